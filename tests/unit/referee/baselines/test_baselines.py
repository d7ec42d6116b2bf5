"""Baselines: their names, what is kept, how they enter a record, and real ones compiled and timed on the CPU.

The same measurements run on a GPU with `-m gpu`.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import random
import resource
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from rich.table import Table

from harness.cli import main
from harness.cli.baseline import _BaselineFiles, _jobs, _like_gpus
from harness.core.choices import Baseline, DeviceKind, PrecisionClass
from harness.core.environment import Gpu, collect
from harness.core.executables import find_gxx
from harness.core.problem import InputRules, Problem, Workload, digest_text
from harness.core.stats import SpeedupEstimate
from harness.devices.device import open_device
from harness.referee.baselines import (
    BaselineEntry,
    BaselineKeeper,
    BaselineOutcome,
    BaselineProcess,
    BaselineRequest,
    BaselinesLost,
    BaselineStore,
    measuring,
)
from harness.referee.baselines import entry as entries_of
from harness.referee.baselines.compiled_reference import CompiledReference, Turnstile
from harness.referee.baselines.entry import with_baselines
from harness.referee.baselines.keeper import spot_check
from harness.referee.baselines.measuring import measure
from harness.referee.baselines.measuring_pool import MeasuredBaselines, MeasuringPool
from harness.referee.baselines.store import key_for
from harness.referee.problem.workspace import Workspace
from harness.report import baselines as pages
from harness.results.reader import StoreUnavailable

needs_gxx = pytest.mark.skipif(find_gxx() is None, reason="inductor needs a C++ compiler, and there is none")

LINEAR = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(33, 17)
        def forward(self, x):
            return torch.softmax(self.linear(x), dim=1) * 3.0
    def get_inputs():
        return [torch.rand(29, 33)]
    def get_init_inputs():
        return []
"""

BATCH_NORM = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(8)
        def forward(self, x):
            return self.norm(x)
    def get_inputs():
        return [torch.rand(64, 8)]
    def get_init_inputs():
        return []
"""

REFUSES_TO_COMPILE = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x):
            if torch.compiler.is_compiling():
                raise RuntimeError("not while compiling")
            return x * 2.0
    def get_inputs():
        return [torch.rand(64, 8)]
    def get_init_inputs():
        return []
"""

WRONG_WHEN_COMPILED = REFUSES_TO_COMPILE.replace('raise RuntimeError("not while compiling")', "return x * 2.01")


def problem(source: str = LINEAR, number: int = 1, **changes: object) -> Problem:
    text = textwrap.dedent(source)
    return Problem(
        id=f"level1/{number}",
        name="test",
        path=Path(f"{number}_test.py"),
        source=text,
        digest=digest_text(text),
        rules=InputRules(variants=("zero_mean",)),
        **changes,  # type: ignore[arg-type]
    )


FULL = Workload(name="full")


@pytest.fixture(params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def kind(request: pytest.FixtureRequest) -> DeviceKind:
    held: DeviceKind = request.param
    return held


def estimate(speedup: float, spread: float = 1.01) -> SpeedupEstimate:
    return SpeedupEstimate(
        speedup=speedup,
        low=speedup / spread,
        high=speedup * spread,
        confidence=0.95,
        pairs=8,
        method="signed-rank",
    )


def entry(
    baseline: Baseline = Baseline.COMPILE, over: float = 2.0, eager_s: float = 1e-3, **changes: Any
) -> BaselineEntry:
    fields: dict[str, Any] = {
        "baseline": baseline,
        "outcome": BaselineOutcome.measured,
        "held_to": "fp32",
        "matmul_tf32": False,
        "cudnn_tf32": True,
        "compile_s": 3.0,
        "device": {"median_s": eager_s / over, "mad_s": 1e-6, "samples": 64},
        "eager": {"median_s": eager_s},
        "over_eager": estimate(over),
        "rounds": 8,
        "stopped_by": "interval",
        "measured_at": "2026-01-01T00:00:00+00:00",
    }
    return BaselineEntry(**{**fields, **changes})


def failed_entry(reason: str = "no") -> BaselineEntry:
    return entry(outcome=BaselineOutcome.failed, reason=reason, device=None, eager=None, over_eager=None)


class TestNames:
    def test_modes_and_flags_follow_from_the_name(self) -> None:
        assert {item: (item.mode, item.tf32) for item in Baseline} == {
            Baseline.EAGER: (None, None),
            Baseline.EAGER_TF32: (None, True),
            Baseline.EAGER_NO_TF32: (None, False),
            Baseline.COMPILE: ("default", None),
            Baseline.COMPILE_TF32: ("default", True),
            Baseline.COMPILE_MAX_AUTOTUNE: ("max-autotune", None),
            Baseline.COMPILE_MAX_AUTOTUNE_NO_CUDAGRAPHS: ("max-autotune-no-cudagraphs", None),
        }

    def test_torch_knows_every_mode(self) -> None:
        known = torch._inductor.list_mode_options()  # type: ignore[attr-defined]
        assert {item.mode for item in Baseline if item.mode} <= set(known)

    def test_kernelbenchs_files_carry_names_of_the_same_enum(self) -> None:
        from harness.results.kernelbench.formats import BASELINE_SUFFIXES

        assert set(BASELINE_SUFFIXES) <= {item.value for item in Baseline}


class TestKept:
    def test_an_entry_is_found_by_the_same_key_only(self, tmp_path: Path) -> None:
        device = open_device(DeviceKind.HOST)
        store, made = BaselineStore(tmp_path), entry()
        key = key_for(Baseline.COMPILE, problem(), FULL, device)
        store.put(key, made)
        assert store.get(key) == made
        assert BaselineStore(tmp_path / "elsewhere").get(key) is None
        others: list[Callable[[], object]] = [
            lambda: key_for(Baseline.EAGER, problem(), FULL, device),
            lambda: key_for(Baseline.COMPILE, problem(BATCH_NORM), FULL, device),
            lambda: key_for(Baseline.COMPILE, problem(precision=PrecisionClass.BF16), FULL, device),
            lambda: key_for(Baseline.COMPILE, problem(), Workload(name="full", sizes={"N": 3}), device),
            lambda: replace(key, torch="1.0"),
            lambda: replace(key, driver="580"),
            lambda: replace(key, processor="another"),
            lambda: replace(key, units=key.units + 1),
        ]
        for other in others:
            assert store.get(other()) is None  # type: ignore[arg-type]

    def test_what_failed_is_kept_with_its_reason(self, tmp_path: Path) -> None:
        key = key_for(Baseline.COMPILE, problem(), FULL, open_device(DeviceKind.HOST))
        BaselineStore(tmp_path).put(key, failed_entry("it would not"))
        found = BaselineStore(tmp_path).get(key)
        assert found is not None
        assert (found.outcome, found.reason, found.median_s) == (BaselineOutcome.failed, "it would not", None)

    @pytest.mark.parametrize("step", [-1, 1])
    def test_an_entry_of_another_format_is_as_none(self, tmp_path: Path, step: int) -> None:
        store = BaselineStore(tmp_path)
        key = key_for(Baseline.COMPILE, problem(), FULL, open_device(DeviceKind.HOST))
        store.put(key, entry())
        (path,) = store.folder.glob("*.json")
        value = json.loads(path.read_text())
        path.write_text(json.dumps(value | {"format": value["format"] + step}))
        assert store.get(key) is None

    @pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"format": 1, "entry": {"baseline": "fastest"}}'])
    def test_a_damaged_file_is_as_none(self, tmp_path: Path, damage: str) -> None:
        store = BaselineStore(tmp_path)
        key = key_for(Baseline.COMPILE, problem(), FULL, open_device(DeviceKind.HOST))
        store.put(key, entry())
        next(store.folder.glob("*.json")).write_text(damage)
        assert store.get(key) is None

    def test_times_stand_only_beside_right_values(self) -> None:
        with pytest.raises(ValueError, match="has times if and only if"):
            entry(outcome=BaselineOutcome.wrong)
        with pytest.raises(ValueError, match="has times if and only if"):
            entry(over_eager=None)


class TestSpotCheck:
    @pytest.mark.parametrize(
        ("then_s", "now_s", "drifted"),
        [
            (1e-3, 1.015e-3, False),
            (1e-3, 1.025e-3, True),
            (1e-3, 0.975e-3, True),
            (5e-6, 5.2e-6, False),  # 4 %, and below what an event's clock tells
            (5e-6, 5.5e-6, True),
        ],
    )
    def test_two_percent_and_a_third_of_a_microsecond(self, then_s: float, now_s: float, drifted: bool) -> None:
        found = spot_check(entry(eager_s=then_s), now_s, DeviceKind.CUDA)
        assert found["drifted"] is drifted
        assert found["drift"] == pytest.approx(now_s / then_s - 1)

    def test_what_has_no_time_can_not_drift(self) -> None:
        assert spot_check(failed_entry(), 1e-3, DeviceKind.CUDA)["drifted"] is False


class TestInARecord:
    TIMING: ClassVar[dict[str, Any]] = {"baseline": "eager", "speedup": estimate(3.0).to_json(), "rounds": 8}

    def test_a_speedup_over_compile_is_the_one_over_eager_by_its_own(self) -> None:
        speedup, timing = with_baselines(
            self.TIMING, (Baseline.EAGER, Baseline.COMPILE), {Baseline.COMPILE: entry(over=2.0)}
        )
        assert speedup == 3.0
        assert timing["baseline"] == "eager"
        assert timing["speedup"] == self.TIMING["speedup"]
        row = timing["baselines"]["compile"]
        assert row["speedup"] == pytest.approx(1.5)
        assert row["low"] < 1.5 < row["high"]
        # Half widths of independent ratios add in squares.
        assert row["high"] / 1.5 == pytest.approx(1.01 ** (2**0.5), rel=1e-6)
        assert timing["speedups"] == {"eager": 3.0, "compile": pytest.approx(1.5)}
        assert (row["matmul_tf32"], row["cudnn_tf32"], row["held_to"]) == (False, True, "fp32")

    def test_the_first_named_decides_the_speedup(self) -> None:
        speedup, timing = with_baselines(
            self.TIMING, (Baseline.COMPILE, Baseline.EAGER), {Baseline.COMPILE: entry(over=2.0)}
        )
        assert speedup == pytest.approx(1.5)
        assert timing["baseline"] == "compile"
        assert timing["speedup"]["speedup"] == pytest.approx(1.5)
        assert timing["baselines"]["eager"]["speedup"] == 3.0

    def test_a_baseline_that_failed_says_why_and_gives_no_speedup(self) -> None:
        speedup, timing = with_baselines(
            self.TIMING, (Baseline.EAGER, Baseline.COMPILE), {Baseline.COMPILE: failed_entry("graph break")}
        )
        assert speedup == 3.0
        assert timing["speedups"] == {"eager": 3.0, "compile": None}
        assert timing["baselines"]["compile"]["reason"] == "graph break"
        speedup, timing = with_baselines(self.TIMING, (Baseline.COMPILE,), {Baseline.COMPILE: failed_entry()})
        assert speedup is None
        assert timing["speedup"] is None

    def test_eager_alone_leaves_the_timing_as_it_is(self) -> None:
        assert with_baselines(self.TIMING, (Baseline.EAGER,), {}) == (3.0, self.TIMING)

    def test_a_record_holds_no_nan_and_no_enum(self) -> None:
        _, timing = with_baselines(self.TIMING, (Baseline.EAGER, Baseline.COMPILE), {Baseline.COMPILE: entry()})
        assert json.loads(json.dumps(timing, allow_nan=False)) == timing


def made_workspace(source: str, kind: DeviceKind, **changes: object) -> Workspace:
    return Workspace(problem(source, **changes), FULL, open_device(kind), sets_wanted=6, secret=random.Random(3))


def measured(
    source: str, *wanted: Baseline, kind: DeviceKind = DeviceKind.HOST, **changes: object
) -> list[BaselineEntry]:
    workspace = made_workspace(source, kind, **changes)
    try:
        return measure(workspace, wanted, secret=random.Random(4), budget_s=0.5)
    finally:
        workspace.close()


RETURNS_ITS_BUFFER = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(64, 8))
        def forward(self, x):
            self.cache.copy_(x * 2.0)
            return self.cache
    def get_inputs():
        return [torch.rand(64, 8)]
    def get_init_inputs():
        return []
"""


class TestMeasured:
    def test_a_returned_buffer_is_held_against_truth_before_it_is_put_back(self, kind: DeviceKind) -> None:
        workspace = made_workspace(RETURNS_ITS_BUFFER, kind)
        try:
            assert workspace.traits.updates_state == ("cache",)
            assert measuring._wrong(CompiledReference(Baseline.EAGER, workspace, Turnstile())) is None
        finally:
            workspace.close()

    def test_eager_against_itself_is_the_noise(self, kind: DeviceKind) -> None:
        (found,) = measured(LINEAR, Baseline.EAGER, kind=kind)
        assert found.outcome is BaselineOutcome.measured
        assert found.median_s is not None
        assert found.over_eager is not None
        assert found.rounds == len(found.samples_s) == len(found.eager_samples_s) >= 4
        assert found.rounds % 2 == 0
        assert BaselineEntry.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found

    @needs_gxx
    def test_compiled_is_right_and_timed_beside_eager(self, kind: DeviceKind) -> None:
        found = measured(LINEAR, Baseline.COMPILE, Baseline.COMPILE_MAX_AUTOTUNE, kind=kind)
        assert [item.baseline for item in found] == [Baseline.COMPILE, Baseline.COMPILE_MAX_AUTOTUNE]
        for item in found:
            assert (item.outcome, item.reason) == (BaselineOutcome.measured, None)
            assert item.compile_s is not None
            assert item.graphs == 1
            assert item.eager_s is not None

    def test_an_interval_that_is_narrow_before_it_can_mean_much_ends_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def narrow_at_three(eager: Sequence[Sequence[float]], _own: Sequence[Sequence[float]]) -> SpeedupEstimate:
            pairs = len(eager)
            return replace(estimate(1.0, spread=1.001 if pairs == 3 else 2.0 ** (1 / pairs)), pairs=pairs)

        monkeypatch.setattr(measuring, "speedup_interval", narrow_at_three)
        monkeypatch.setattr(measuring, "MAX_ROUNDS", 6)
        workspace = made_workspace(LINEAR, DeviceKind.HOST)
        try:
            (found,) = measure(workspace, [Baseline.EAGER], secret=random.Random(4), budget_s=60.0)
        finally:
            workspace.close()
        assert (found.rounds, found.stopped_by) == (6, "most rounds")

    @needs_gxx
    def test_state_that_the_reference_updates_is_compared_and_put_back(self, kind: DeviceKind) -> None:
        workspace = made_workspace(BATCH_NORM, kind)
        before = {name: value.clone() for name, value in workspace.oracle.model.state_dict().items()}
        (found,) = measure(workspace, [Baseline.COMPILE], secret=random.Random(4), budget_s=0.3)
        assert found.outcome is BaselineOutcome.measured, found.reason
        for name, value in workspace.oracle.model.state_dict().items():
            assert torch.equal(value, before[name]), name
        workspace.close()

    @needs_gxx
    def test_a_wrong_compilation_is_found_out(self) -> None:
        wrong, eager = measured(WRONG_WHEN_COMPILED, Baseline.COMPILE, Baseline.EAGER)
        assert wrong.outcome is BaselineOutcome.wrong
        assert wrong.reason
        assert wrong.median_s is None
        assert eager.outcome is BaselineOutcome.measured

    @needs_gxx
    def test_torch_giving_up_without_a_word_is_no_compiled_baseline(self) -> None:
        failed, eager = measured(REFUSES_TO_COMPILE, Baseline.COMPILE, Baseline.EAGER)
        assert failed.outcome is BaselineOutcome.failed
        assert "ran it eagerly" in str(failed.reason)
        assert failed.graphs == 0
        assert eager.outcome is BaselineOutcome.measured
        assert eager.graphs is None

    def test_tf32_is_held_to_its_own_class_and_stated(self) -> None:
        fast, exact, usual = measured(LINEAR, Baseline.EAGER_TF32, Baseline.EAGER_NO_TF32, Baseline.EAGER)
        assert (fast.held_to, fast.matmul_tf32, fast.cudnn_tf32) == ("tf32", True, True)
        assert (exact.held_to, exact.matmul_tf32, exact.cudnn_tf32) == ("fp32", False, False)
        assert (usual.held_to, usual.matmul_tf32, usual.cudnn_tf32) == ("fp32", False, True)
        (coarser,) = measured(LINEAR, Baseline.EAGER_TF32, precision=PrecisionClass.BF16)
        assert coarser.held_to == "bf16"

    @pytest.mark.gpu
    def test_tf32_is_faster_where_tensor_cores_are(self) -> None:
        source = LINEAR.replace("33, 17", "4096, 4096").replace("29, 33", "4096, 4096")
        (fast,) = measured(source, Baseline.EAGER_TF32, kind=DeviceKind.CUDA)
        assert fast.outcome is BaselineOutcome.measured, fast.reason
        assert fast.over_eager is not None
        assert fast.over_eager.low is not None
        assert fast.over_eager.low > 1.5


class TestTheTurnstile:
    def test_one_at_a_time_and_again_inside_itself(self, tmp_path: Path) -> None:
        import fcntl
        import os

        gate = Turnstile(tmp_path / "gate")
        other = os.open(tmp_path / "gate", os.O_RDWR)
        with gate:
            with gate:
                pass
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)

    def test_without_a_path_it_lets_everyone_pass(self) -> None:
        gate = Turnstile()
        assert not gate.shared
        with gate, Turnstile():
            pass

    def test_inductors_own_benchmarks_can_be_guarded_by_this_torch(self, tmp_path: Path) -> None:
        from torch._inductor.select_algorithm import AlgorithmSelectorCache

        from harness.referee.baselines.compiled_reference import _guarded

        gate = Turnstile(tmp_path / "gate")
        before = AlgorithmSelectorCache.__dict__.get("benchmark_in_current_process")
        if before is None:  # torch 2.6: all of the compiling is guarded then
            assert not _guarded(gate)
            return
        try:
            assert _guarded(gate)
            assert _guarded(gate)
            assert AlgorithmSelectorCache.__dict__["benchmark_in_current_process"] is not before
        finally:
            AlgorithmSelectorCache.benchmark_in_current_process = before


@functools.cache
def listed(*baselines: Baseline) -> BaselineRequest:
    return BaselineRequest(problem=problem(), workload=FULL, baselines=baselines, budget_s=0.3)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaselineProcess]:
    """One for tests after which it measures on."""
    folder = tmp_path_factory.mktemp("process")
    with BaselineProcess(DeviceKind.HOST, folder, folder / "log", threads=1) as started:
        yield started


class TestTheProcess:
    def test_measures_keeps_and_finds_again(self, tmp_path: Path, kind: DeviceKind) -> None:
        with BaselineProcess(kind, tmp_path, tmp_path / "log", threads=1) as process:
            (first,) = process.measure(listed(Baseline.EAGER))
            (again,) = process.measure(listed(Baseline.EAGER))
            (anew,) = process.measure(replace(listed(Baseline.EAGER), refresh=True))
            assert (process.peaks is None) == (kind is DeviceKind.HOST)
        assert first == again
        assert anew.samples_s != first.samples_s

    def test_what_is_kept_is_held_against_eager_once_and_where_it_drifted_each_time(
        self, tmp_path: Path, process: BaselineProcess
    ) -> None:
        workspace = made_workspace(LINEAR, DeviceKind.HOST)
        key = key_for(Baseline.EAGER, workspace.problem, workspace.workload, workspace.device)
        workspace.close()
        store = BaselineStore(tmp_path)
        (first,) = process.measure(listed(Baseline.EAGER))
        slow = entry(Baseline.EAGER, over=1.0, eager_s=1e3 * (first.eager_s or 0.0))
        store.put(key, slow)
        other = replace(listed(Baseline.EAGER), problem=problem(LINEAR + "    # another\n"))
        other_key = key_for(Baseline.EAGER, other.problem, other.workload, workspace.device)
        store.put(other_key, slow)
        with BaselineProcess(DeviceKind.HOST, tmp_path, tmp_path / "log", threads=1) as later:
            (anew,) = later.measure(listed(Baseline.EAGER))
            assert anew == store.get(key) != slow, "a machine that is a thousand times faster now"
            (again,) = later.measure(listed(Baseline.EAGER))
            assert again == anew, "what this process measured is not doubted"
            (second,) = later.measure(other)
            assert second == store.get(other_key) != slow, "one that drifted puts the others in doubt"

    def test_a_problem_that_does_not_load_is_told_and_the_next_is_measured(self, process: BaselineProcess) -> None:
        broken = replace(listed(Baseline.EAGER), problem=problem("import torch\nboom = 1 / 0\n"))
        with pytest.raises(BaselinesLost, match="division by zero"):
            process.measure(broken)
        (found,) = process.measure(replace(listed(Baseline.EAGER), refresh=True))
        assert found.outcome is BaselineOutcome.measured

    def test_a_failing_compiler_is_a_result(self, tmp_path: Path) -> None:
        own = {"CXX": "/bin/false"}
        with BaselineProcess(DeviceKind.HOST, tmp_path, tmp_path / "log", threads=1, env=own) as process:
            failed, eager = process.measure(listed(Baseline.COMPILE, Baseline.EAGER))
        assert failed.outcome is BaselineOutcome.failed
        assert "/bin/false" in str(failed.reason)
        assert eager.outcome is BaselineOutcome.measured

    def test_a_reference_that_ends_the_process_is_lost_with_a_reason(self, tmp_path: Path) -> None:
        deadly = LINEAR.replace("return torch.softmax", "import os; os._exit(7); return torch.softmax")
        with (
            BaselineProcess(DeviceKind.HOST, tmp_path, tmp_path / "log", threads=1) as process,
            pytest.raises(BaselinesLost, match="baselines died"),
        ):
            process.measure(replace(listed(Baseline.EAGER), problem=problem(deadly)))

    def test_a_keeper_takes_what_is_kept_and_measures_what_drifted(self, tmp_path: Path) -> None:
        workspace = made_workspace(LINEAR, DeviceKind.HOST)
        keeper = BaselineKeeper((Baseline.EAGER, Baseline.EAGER_TF32), workspace.device, tmp_path)
        assert keeper.lacks(workspace)
        keeper.ready(workspace, random.Random(1), tmp_path / "log")
        assert not keeper.lacks(workspace)
        first = keeper.entries[Baseline.EAGER_TF32]
        assert first.outcome is BaselineOutcome.measured
        assert not keeper.checks
        key = key_for(Baseline.EAGER_TF32, workspace.problem, workspace.workload, workspace.device)
        # Eager was never a thousand times slower: this entry is of another machine in all but name.
        BaselineStore(tmp_path).put(key, entry(Baseline.EAGER_TF32, eager_s=1e3 * (first.eager_s or 0.0)))
        second = BaselineKeeper((Baseline.EAGER_TF32,), workspace.device, tmp_path)
        second.ready(workspace, random.Random(1), tmp_path / "log")
        assert second.checks[Baseline.EAGER_TF32]["drifted"]
        assert second.entries[Baseline.EAGER_TF32].rounds >= 4
        assert second.entries[Baseline.EAGER_TF32] == BaselineStore(tmp_path).get(key)
        workspace.close()

    def test_what_a_keeper_has_for_some_sizes_is_not_taken_for_others_of_the_same_name(self, tmp_path: Path) -> None:
        sized = problem(LINEAR.replace("29", "ROWS").replace("import torch\n", "import torch\n    ROWS = 29\n", 1))
        keeper: BaselineKeeper | None = None
        for rows in (8, 512):
            odd = Workload(name="odd", sizes={"ROWS": rows})
            workspace = Workspace(sized, odd, open_device(DeviceKind.HOST), sets_wanted=6, secret=random.Random(3))
            keeper = keeper or BaselineKeeper((Baseline.EAGER_TF32,), workspace.device, tmp_path)
            assert keeper.lacks(workspace)
            keeper.ready(workspace, random.Random(1), tmp_path / "log")
            key = key_for(Baseline.EAGER_TF32, sized, odd, workspace.device)
            assert keeper.entries[Baseline.EAGER_TF32] == BaselineStore(tmp_path).get(key)
            workspace.close()

    def test_of_those_a_keeper_lacks_one_that_is_late_or_deadly_costs_the_others_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = {Baseline.COMPILE: 0.05, Baseline.EAGER_TF32: 100.0, Baseline.EAGER_NO_TF32: 101.0}
        monkeypatch.setattr(BaselineRequest, "timeout_s", property(lambda held: limits[held.baselines[0]]))
        ends = "import os; torch.backends.cudnn.allow_tf32 or os._exit(7); return torch.softmax"
        workspace = made_workspace(LINEAR.replace("return torch.softmax", ends), DeviceKind.HOST)
        keeper = BaselineKeeper(
            (Baseline.EAGER_NO_TF32, Baseline.COMPILE, Baseline.EAGER_TF32), workspace.device, tmp_path
        )
        keeper.ready(workspace, random.Random(1), tmp_path / "log")
        found = keeper.entries
        assert found[Baseline.EAGER_TF32].outcome is BaselineOutcome.measured
        assert found[Baseline.COMPILE].outcome is BaselineOutcome.failed
        assert found[Baseline.COMPILE].reason == "compiling and measuring took more than 0 s"
        assert found[Baseline.EAGER_NO_TF32].outcome is BaselineOutcome.failed
        assert "baselines died" in str(found[Baseline.EAGER_NO_TF32].reason)
        kept = BaselineStore(tmp_path)
        keys = {b: key_for(b, workspace.problem, workspace.workload, workspace.device) for b in found}
        assert [b for b, key in keys.items() if kept.get(key) is not None] == [Baseline.EAGER_TF32]
        workspace.close()

    def test_what_the_others_left_no_time_for_is_not_begun(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("harness.referee.baselines.keeper.LONGEST_S", 0.0)
        workspace = made_workspace(LINEAR, DeviceKind.HOST)
        keeper = BaselineKeeper((Baseline.EAGER_TF32,), workspace.device, tmp_path)
        keeper.ready(workspace, random.Random(1), tmp_path / "log")
        assert "skipped: earlier baselines used up" in str(keeper.entries[Baseline.EAGER_TF32].reason)
        assert not (tmp_path / "log").exists(), "no process was started"
        workspace.close()

    def test_one_that_never_gets_ready_is_given_up_with_the_time_for_all(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ready after 20 s, it would measure both; the time that there is for all is over long before."""
        (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(20.0)\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr("harness.referee.baselines.keeper.LONGEST_S", 0.5)
        workspace = made_workspace(LINEAR, DeviceKind.HOST)
        keeper = BaselineKeeper((Baseline.EAGER_NO_TF32, Baseline.EAGER_TF32), workspace.device, tmp_path / "cache")
        keeper.ready(workspace, random.Random(1), tmp_path / "log")
        reasons = [str(keeper.entries[b].reason) for b in (Baseline.EAGER_NO_TF32, Baseline.EAGER_TF32)]
        assert any("not ready in" in reason for reason in reasons)
        assert any("skipped: earlier baselines used up" in reason for reason in reasons)
        workspace.close()

    def test_eager_alone_needs_no_keeping(self, tmp_path: Path) -> None:
        workspace = made_workspace(LINEAR, DeviceKind.HOST)
        assert not BaselineKeeper((Baseline.EAGER,), workspace.device, tmp_path).lacks(workspace)
        workspace.close()


class TestThePool:
    def test_several_processes_share_a_device(self, tmp_path: Path) -> None:
        requests = [
            BaselineRequest(problem=problem(source, number), workload=FULL, baselines=[Baseline.EAGER], budget_s=0.2)
            for number, source in enumerate((LINEAR, BATCH_NORM, "boom = 1 / 0\n"), 1)
        ]
        told = list(MeasuringPool(DeviceKind.HOST, tmp_path, tmp_path / "logs", jobs=2).run(requests))
        assert sorted(item.request.problem.id for item in told) == ["level1/1", "level1/2", "level1/3"]
        for item in told:
            if item.request.problem.id == "level1/3":
                assert "division by zero" in str(item.reason)
            else:
                assert [found.outcome for found in item.entries] == [BaselineOutcome.measured]

    def test_each_process_sees_one_gpu_and_all_take_from_one_list(self, tmp_path: Path) -> None:
        tells = LINEAR.replace("return torch", "import os; raise RuntimeError(os.environ['CUDA_VISIBLE_DEVICES'])#")
        requests = [
            BaselineRequest(problem=problem(tells, number), workload=FULL, baselines=[Baseline.EAGER], budget_s=0.2)
            for number in (1, 2)
        ]
        pool = MeasuringPool(DeviceKind.HOST, tmp_path, tmp_path / "logs", jobs=2, gpus=("GPU-one", "GPU-two"))
        reasons = " ".join(str(item.reason) for item in pool.run(requests))
        assert "GPU-one" in reasons
        assert "GPU-two" in reasons

    def test_nothing_begins_after_the_budget(self, tmp_path: Path) -> None:
        assert not list(
            MeasuringPool(DeviceKind.HOST, tmp_path, tmp_path, jobs=1).run([listed(Baseline.EAGER)], budget_s=-1.0)
        )


def _columns(table: Table) -> list[list[object]]:
    return [list(column.cells) for column in table.columns]


class TestFiles:
    def rows(self) -> list[pages.Row]:
        made = [
            pages.row_of(problem(number=16), FULL, entry(eager_s=20e-3), None),
            pages.row_of(problem(number=9), FULL, entry(Baseline.EAGER, over=1.0, eager_s=0.04e-3), None),
            pages.row_of(problem(number=16), FULL, entry(Baseline.EAGER, over=1.0, eager_s=20e-3), None),
            pages.row_of(problem(number=10), FULL, entry(Baseline.EAGER, over=1.0, eager_s=1e-3), None),
            pages.lost_row(problem(number=11), FULL, Baseline.COMPILE, "=cmd, died", None),
        ]
        return made

    def test_rows_come_back_from_csv_in_the_order_of_levels_and_numbers(self) -> None:
        text = pages.to_csv(self.rows())
        found = pages.from_csv(text)
        assert [(row["problem"], row["baseline"]) for row in found] == [
            ("level1/9", "eager"),
            ("level1/10", "eager"),
            ("level1/11", "compile"),
            ("level1/16", "eager"),
            ("level1/16", "compile"),
        ]
        assert pages.to_csv(found) == text
        assert next(csv.reader(io.StringIO(text))) == list(pages.COLUMNS)
        assert pages.number(found[3], "device_s") == pytest.approx(20e-3)
        assert pages.number(found[2], "device_s") is None

    def test_a_ratio_to_eager_inside_the_noise_is_the_same(self) -> None:
        for over, said in ((1.003, "same (within 1.3 %)"), (1.2, "1.20x (1.19 to 1.21)")):
            row = pages.row_of(problem(number=16), FULL, entry(over=over), None)
            assert pages.compared(row) == said

    def test_what_befell_a_compiled_reference_is_not_said_of_eager(self) -> None:
        lines = {
            str(cells[0]): [str(cell) for cell in cells]
            for cells in zip(*_columns(pages.table(self.rows())), strict=True)
        }
        assert lines["level1/11"][2:] == ["-", "-", "lost: =cmd, died"]
        assert lines["level1/16"][2].startswith("20")

    @pytest.mark.parametrize(
        "text", ["", "a,b\n1,2\n", "problem,workload,baseline,outcome,device_s\nlevel1/1,full,no,,\n"]
    )
    def test_another_file_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="baseline"):
            pages.from_csv(text)


PROBLEM_FILE = textwrap.dedent(LINEAR)


def with_problems(root: Path) -> Path:
    folder = root / "problems" / "level1"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"{number}_test.py").write_text(PROBLEM_FILE + f"# {number}\n")
    return root


def call(root: Path, *more: str) -> int:
    settled = ["--problems", str(root / "problems"), "--device", "host", "--workload", "full"]
    return main(["baseline", *settled, "--cache", str(root / "cache"), "--baseline", "eager", *more])


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder in which the first of two problems was measured, into `out`, and the command's output and messages."""
    root = with_problems(tmp_path_factory.mktemp("half"))
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as told:
        assert call(root, "level1/1", "--out", str(root / "out")) == 0
    return root, printed.getvalue(), told.getvalue()


class TestTheCommand:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return with_problems(tmp_path)

    @pytest.fixture
    def begun(self, half_done: tuple[Path, str, str], tmp_path: Path) -> Path:
        """A copy of the folder of `half_done` that a test may change."""
        return Path(shutil.copytree(half_done[0], tmp_path / "begun"))

    def test_measures_writes_and_resumes(self, begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
        root, out = begun, begun / "out"
        (first,) = pages.from_csv((out / "baselines.csv").read_text())
        assert first["outcome"] == "measured"
        assert call(root, "--out", str(out)) == 2
        assert "--resume" in capsys.readouterr().err
        assert call(root, "--out", str(out), "--resume", "--json") == 0
        printed = capsys.readouterr()
        told = json.loads(printed.out)
        assert [row["problem"] for row in told["rows"]] == ["level1/2"]
        assert f"skipped: 1 of 2 problems have all their times in {out}" in printed.err
        assert pages.from_csv((out / "baselines.csv").read_text())[0] == first
        held = json.loads((out / "environment.json").read_text())
        assert held["format"] == 1
        assert len(held["sessions"]) == 2

    def test_one_time_of_eager_is_told(self, half_done: tuple[Path, str, str]) -> None:
        """Beside itself eager has two, and the table told another than the line before it."""
        _, printed, told = half_done
        (row,) = [line.split() for line in printed.splitlines() if line.strip().startswith("level1/1 ")]
        assert f"eager {row[2]} {row[3]};" in told

    def test_no_solution_of_what_was_asked_for(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        solution = root / "solutions" / "ann" / "level1" / "2_mine.py"
        solution.parent.mkdir(parents=True)
        solution.write_text("class ModelNew: ...\n")
        assert call(root, "level1/1", "--solved", str(root / "solutions")) == 2
        assert "no solution in this folder solves one of the chosen problems" in capsys.readouterr().err

    def test_what_the_budget_left_is_measured_as_the_message_says(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert call(root, "--budget", "0.001") == 0
        assert "problems started; run the command again" in capsys.readouterr().err
        assert call(root) == 0
        assert call(root, "--out", str(root / "out"), "--budget", "0.001", "--refresh") == 0
        assert "problems started; run the command again with --resume" in capsys.readouterr().err

    def test_a_full_disk_leaves_the_files_as_they_were_and_no_part(self, begun: Path) -> None:
        out = begun / "out"
        before = (out / "baselines.csv").read_bytes()
        files = _BaselineFiles(out, collect(), DeviceKind.HOST, (), resume=True)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), limits[1]))  # stands for a full disk
        try:
            with pytest.raises(StoreUnavailable, match="File too large"):
                files.add([pages.lost_row(problem(number=2), FULL, Baseline.EAGER, "died", None)], None, wall_s=1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (out / "baselines.csv").read_bytes() == before
        assert sorted(item.name for item in out.iterdir()) == ["baselines.csv", "environment.json"]

    def test_a_file_of_another_machine_is_not_continued(self, begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = begun / "out"
        held = json.loads((out / "environment.json").read_text())
        held["environment"]["torch"] = "0.4"
        (out / "environment.json").write_text(json.dumps(held))
        assert call(begun, "--out", str(out), "--resume") == 2
        assert "another machine (torch differ)" in capsys.readouterr().err

    def test_gpus_of_the_first_ones_model_measure(self) -> None:
        unknown = dict.fromkeys(item.name for item in fields(Gpu))
        gpus = [
            Gpu(**{**unknown, "index": place, "name": name, "uuid": f"GPU-{place}"})  # type: ignore[arg-type]
            for place, name in enumerate(("NVIDIA H200", "NVIDIA L4", "NVIDIA H200"))
        ]
        found = replace(collect(), gpus=tuple(gpus), cuda_visible_devices=None)
        assert _like_gpus(found) == ("GPU-0", "GPU-2")
        assert _like_gpus(replace(found, cuda_visible_devices="2,1")) == ("GPU-2",)

    @pytest.mark.parametrize(
        ("asked", "processors", "gpus", "expected"),
        [
            ((Baseline.EAGER,), 32, 2, 4),
            ((Baseline.EAGER, Baseline.COMPILE), 32, 2, 16),
            ((Baseline.COMPILE,), 16, 1, 8),
            ((Baseline.COMPILE,), 4, 4, 3),
            ((Baseline.COMPILE,), 16, 0, 1),
        ],
    )
    def test_how_many_processes_measure(
        self, asked: tuple[Baseline, ...], processors: int, gpus: int, expected: int
    ) -> None:
        assert _jobs(asked, processors, gpus) == expected

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            (["--baseline", "fastest"], "one or several of"),
            (["level7/1"], "level7"),
            (["--workload", "huge"], "huge"),
            (["--device", "tpu"], "auto, cuda, host"),
            (["--solved", "nowhere"], "nowhere"),
            (["--resume"], "pass --out FOLDER too"),
            (["--jobs", "0"], "--jobs must be at least 1, not 0"),
            (["--budget", "-1"], "--budget must be a number of seconds above 0, not -1"),
        ],
    )
    def test_wrong_calls_are_refused(
        self, root: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
    ) -> None:
        assert call(root, *more) == 2
        assert said in capsys.readouterr().err

    def test_a_baseline_that_takes_too_long_is_a_row_and_the_others_are_measured(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = {(Baseline.EAGER,): 100.0, (Baseline.COMPILE,): 0.05, (Baseline.EAGER, Baseline.COMPILE): 0.1}
        monkeypatch.setattr(BaselineRequest, "timeout_s", property(lambda held: limits[tuple(held.baselines)]))
        out = root / "out"
        assert call(root, "level1/1", "--baseline", "eager,compile", "--out", str(out)) == 0
        eager, compiled = sorted(
            pages.from_csv((out / "baselines.csv").read_text()), key=lambda row: row["baseline"], reverse=True
        )
        assert (eager["baseline"], eager["outcome"]) == ("eager", "measured")
        assert (compiled["baseline"], compiled["outcome"]) == ("compile", "failed")
        assert "more than 0 s" in compiled["reason"]

    def test_what_the_budget_cuts_off_of_a_problem_is_told(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def run(
            self: MeasuringPool, requests: Sequence[BaselineRequest], *, budget_s: float | None = None
        ) -> Iterator[MeasuredBaselines]:
            held = replace(requests[0], baselines=[Baseline.EAGER])
            yield MeasuredBaselines(
                request=held, entries=[entries_of.failed_entry(Baseline.EAGER, held.problem, "too slow")]
            )

        monkeypatch.setattr(MeasuringPool, "run", run)
        assert call(root, "level1/1", "--baseline", "eager,compile", "--budget", "1") == 0
        assert "--budget was used up before 1 problem" in capsys.readouterr().err

    def test_a_problem_that_fails_is_a_row_and_exit_code_3(self, root: Path) -> None:
        (root / "problems" / "level1" / "2_test.py").write_text(PROBLEM_FILE.replace("29, 33", "29, 34"))
        out = root / "out"
        assert call(root, "--out", str(out)) == 3
        good, bad = pages.from_csv((out / "baselines.csv").read_text())
        assert (good["outcome"], bad["outcome"]) == ("measured", "lost")
        assert "forward failed" in bad["reason"]

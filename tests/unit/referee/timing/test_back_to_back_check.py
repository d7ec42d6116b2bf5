"""Calls without a pause: a real contestant in its sandbox, asked in each manner; the gate; rule 6 of the claims."""

from __future__ import annotations

import math
import mmap
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Problem, Workload, digest_text
from harness.core.runqueue_delay import waited_s
from harness.core.status import Status
from harness.devices.device import Device, open_device
from harness.devices.stream_gate import Gate, opened_after
from harness.hostcuda.translate.build import prepare_headers
from harness.protocol.messages import Attach, Burst, Call, LaunchMode, Load, Open
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.correctness.verifier import Verifier, overall
from harness.referee.problem.workspace import Workspace
from harness.referee.timing import back_to_back
from harness.referee.timing import back_to_back_burst as burst_runner
from harness.referee.timing.back_to_back import ASLEEP, MOST_LATE, REST_S, TRIES, BackToBackCheck, BackToBackTimes
from harness.referee.timing.back_to_back_burst import (
    ANSWER_LIMIT_S,
    AWAKE,
    NO_MEMORY,
    NOT_LAUNCHED,
    WAITS,
    BackToBackBurst,
    BackToBackRunner,
    BurstRefusal,
    RefusalCause,
    Sleep,
)
from harness.referee.timing.calibration import Calibration
from harness.referee.timing.claims import LAUNCHED, QUEUED, BackToBackVerdict, judge_back_to_back
from harness.referee.timing.output_copies import OutputCopies, copying_s, learn_copying, reserve
from harness.sandbox import SandboxPolicy
from harness.sandbox.zygote import Zygote
from harness.toolchain import default_root
from tests.unit.referee.timing.test_speedup import KNOWN

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.rand(37, 91)]

def get_init_inputs():
    return []
"""

SETS = 5

SOLUTIONS = {
    "right": "return torch.softmax(x, dim=1)",
    "static": """
        if not hasattr(self, "kept"):
            self.kept = torch.empty_like(x)
        self.kept.copy_(torch.softmax(x, dim=1))
        return self.kept
    """,
    "remembers": """
        held = self.__dict__.setdefault("held", {})
        if x.data_ptr() not in held:
            held[x.data_ptr()] = torch.softmax(x, dim=1)
        return held[x.data_ptr()]
    """,
    "raises": """
        self.count = getattr(self, "count", 0) + 1
        if self.count > 2:
            raise RuntimeError("the third call")
        return torch.softmax(x, dim=1)
    """,
    "draws": "return torch.nn.functional.dropout(torch.softmax(x, dim=1), 0.3, training=True)",
    "waits": "return torch.softmax(x, dim=1) + float(x.sum().cpu()) * 0",
    "waits_once": """
        import sys
        frame, names = sys._getframe(), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        if "queue" in names and not hasattr(self, "waited"):
            self.waited = True
            torch.cuda.synchronize()
        return torch.softmax(x, dim=1)
    """,
}


@pytest.fixture(scope="module", params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def zygote(device: Device, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Zygote:
    return contestant_zygote(device.kind)


def workspace_of(device: Device, text: str) -> Workspace:
    source = textwrap.dedent(text)
    problem = Problem(id="level1/23", name="softmax", path=Path("23.py"), source=source, digest=digest_text(source))
    return Workspace(problem, Workload(name="full"), device, sets_wanted=SETS, secret=random.Random(3))


@pytest.fixture(scope="module")
def workspace(device: Device) -> Workspace:
    return workspace_of(device, PROBLEM)


class Asked:
    """A contestant with one solution, and what judges its answers."""

    def __init__(self, workspace: Workspace, contestant: ContestantProcess, name: str) -> None:
        host = workspace.device.kind is DeviceKind.HOST
        runtime = str(prepare_headers(default_root()).folder) if host else None
        workspace.publish()
        attach = Attach(
            nbytes=workspace.arena.nbytes,
            opening=Open(device=workspace.device.kind.value, device_index=0, checked=False, host_runtime=runtime),
        )
        contestant.attach(attach, workspace.arena.fd, 60.0)
        body = textwrap.indent(textwrap.dedent(SOLUTIONS[name]).strip(), " " * 8)
        contestant.load(
            Load(
                source=f"import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{body}\n",
                filename="23_x.py",
                modules=(),
                init_tree=workspace.init_tree.to_json(),
                init_slots=workspace.init_slots,
                state=workspace.state_slots,
                seed=1,
            ),
            60.0,
        )
        self.workspace = workspace
        self.burst_runner = BackToBackRunner(
            workspace=workspace, contestant=contestant, request=self.request, limit_s=20.0
        )
        self.verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)

    def request(self, calls: tuple[Call, ...]) -> Burst:
        return Burst(
            calls=calls,
            input_tree=self.workspace.tree.to_json(),
            state_names=(),
            restore_state=False,
            coerce_device=False,
        )

    def run(self, launch_mode: LaunchMode) -> BackToBackBurst | BurstRefusal:
        """As the harness asks: again where a busy machine took too long to submit them."""
        for _ in range(TRIES):
            held = self.burst_runner.run(range(SETS), launch_mode)
            if held != WAITS:
                break
        return held

    def verdict(self, held: BackToBackBurst) -> Status | None:
        failure = overall(self.verifier.check(held.planned_calls, held.done, with_reference=False))
        return None if failure is None else failure.status


@contextmanager
def asked(zygote: Zygote, workspace: Workspace, folder: Path, name: str) -> Iterator[Asked]:
    gpu = workspace.device.kind is DeviceKind.CUDA
    runtime = () if gpu else (Path(str(prepare_headers(default_root()).folder)),)
    policy = SandboxPolicy(mode="auto", gpu=gpu, readable=runtime, max_memory_bytes=(32 if gpu else 4) * 2**30)
    with ContestantProcess(zygote, policy, folder / "log", memory_limit_bytes=4 * 2**30) as contestant:
        yield Asked(workspace, contestant, name)


@pytest.fixture
def ask(zygote: Zygote, workspace: Workspace, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Asked]:
    with asked(zygote, workspace, tmp_path, request.param) as held:
        yield held


solution = pytest.mark.parametrize("ask", ["right", "static"], indirect=True)


@solution
def test_calls_launched_one_by_one_are_verified_each(ask: Asked) -> None:
    for _ in range(2):
        held = ask.run(LaunchMode.LAUNCHED)
        assert isinstance(held, BackToBackBurst), held
        assert len(held.done.claims) == SETS
        assert ask.verdict(held) is None
        assert held.still()
        assert 0.0 < held.claimed_s * SETS <= held.wall_s


def test_random_numbers_are_drawn_as_the_reference_draws_them(zygote: Zygote, device: Device, tmp_path: Path) -> None:
    """Inputs come after the calls on them were asked for, with what the generators are set to."""
    body = SOLUTIONS["draws"].removeprefix("return ")
    workspace = workspace_of(device, PROBLEM.replace("torch.softmax(x, dim=1)", body))
    assert workspace.traits.draws_random
    with asked(zygote, workspace, tmp_path, "draws") as ask:
        for launch_mode in (LaunchMode.LAUNCHED, LaunchMode.QUEUED):
            held = ask.run(launch_mode)
            if isinstance(held, BurstRefusal):
                assert held.why is RefusalCause.NO_GATE
                assert "has no queue" in held.text
                continue
            assert ask.verdict(held) is None
    workspace.close()


@pytest.mark.parametrize("ask", ["remembers"], indirect=True)
def test_answers_remembered_by_address_are_wrong_the_second_time(ask: Asked) -> None:
    first = ask.run(LaunchMode.LAUNCHED)
    assert isinstance(first, BackToBackBurst)
    assert ask.verdict(first) is None
    second = ask.run(LaunchMode.LAUNCHED)
    assert isinstance(second, BackToBackBurst)
    assert ask.verdict(second) is Status.wrong_value


@pytest.mark.parametrize("ask", ["raises"], indirect=True)
def test_an_exception_in_a_call_is_the_solution_s(ask: Asked) -> None:
    with pytest.raises(ContestantFailed) as refused:
        ask.run(LaunchMode.LAUNCHED)
    assert refused.value.failure.status is Status.runtime_error
    assert "the third call" in refused.value.failure.reason


@pytest.mark.parametrize("ask", ["right"], indirect=True)
def test_an_output_written_late_is_seen(ask: Asked) -> None:
    held = ask.run(LaunchMode.LAUNCHED)
    assert isinstance(held, BackToBackBurst)
    assert held.still()
    ask.workspace.tensor(ask.workspace.sets[3].outputs[0])[0, 0] += 1
    assert not held.still()


@pytest.mark.parametrize("ask", ["right", "static", "waits"], indirect=True)
def test_queued_calls_and_graphs_are_right_or_refused(ask: Asked, request: pytest.FixtureRequest) -> None:
    gpu = ask.workspace.device.kind is DeviceKind.CUDA
    name = request.node.callspec.params["ask"]
    for launch_mode in (LaunchMode.QUEUED, LaunchMode.GRAPH):
        ask.run(LaunchMode.LAUNCHED)
        held = ask.run(launch_mode)
        if not gpu:
            assert isinstance(held, BurstRefusal)
            assert held.why is (RefusalCause.FAILS if launch_mode is LaunchMode.GRAPH else RefusalCause.NO_GATE)
        elif name == "waits":
            assert isinstance(held, BurstRefusal)
            assert held == WAITS or launch_mode is LaunchMode.GRAPH
        elif name == "right" or launch_mode is LaunchMode.QUEUED:
            assert isinstance(held, BackToBackBurst), held
            assert ask.verdict(held) is None
    again = ask.run(LaunchMode.LAUNCHED)
    assert isinstance(again, BackToBackBurst)
    assert ask.verdict(again) is None


def test_a_thread_that_stands_in_line_for_a_processor_says_how_long() -> None:
    before_s = waited_s()
    assert before_s >= 0.0
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this kernel does not count that")
    only = min(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, {{{only}}})\nprint(flush=True)\nwhile True: pass"
    allowed = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            os.sched_setaffinity(0, {only})
            begin_s = time.perf_counter()
            while waited_s() - before_s < 5e-3:
                assert time.perf_counter() - begin_s < 20.0, "one processor is shared with who never lets go of it"
        finally:
            os.sched_setaffinity(0, allowed)
            other.kill()


class TestGate:
    def test_an_end_that_is_seen_late_says_how_late(self) -> None:
        gate = Gate()
        number = gate.begin()
        gate.open()
        words = gate._words

        class Held:
            """The page, whose owner is kept from looking twice before the end is there."""

            looks = 0

            def __getitem__(self, word: int) -> int:
                self.looks += 1
                if self.looks == 3:
                    time.sleep(0.03)
                    words[16] = number
                    time.sleep(0.02)
                return words[word]

        gate._words = Held()  # type: ignore[assignment]
        end = gate.wait_done(1.0)
        gate._words = words
        gate.close()
        assert end is not None
        assert 0.05 <= end.loose_s < 0.5

    def test_the_other_end_is_seen(self) -> None:
        gate = Gate()
        number = gate.begin()
        assert not gate.is_open
        assert gate.wait_done(0.01) is None
        begin = gate.open()
        assert begin.loose_s < 0.01
        gate._words[16] = number  # what the device does behind the last call
        end = gate.wait_done(1.0)
        assert end is not None
        assert end.at_s >= begin.at_s
        assert end.loose_s < 0.01
        assert gate.begin() == number + 1
        assert not gate.is_open
        assert gate.wait_done(0.01) is None, "the last use's end is not this one's"
        gate.close()

    def test_what_is_told_before_it_opens_is_seen_and_does_not_count(self) -> None:
        gate = Gate()
        number = gate.begin()
        assert not gate.told
        gate._words[16] = number  # what a process could do that has the page
        assert gate.told
        gate.open()
        assert not gate.told
        assert gate.wait_done(0.01) is None
        gate.close()

    def test_what_one_user_left_on_the_page_does_not_reach_the_next(self) -> None:
        gate = Gate()
        gate.begin()
        gate.open()
        with mmap.mmap(gate.fd, 4096) as page:  # as a process may write that was given the descriptor
            page[:] = b"\xff" * 4096
            number = gate.begin()
            assert int.from_bytes(page[0:4], "little") < number, "else nothing that is queued next would wait"
            page[64:68] = (number + 1).to_bytes(4, "little")
            assert not gate.told
            gate.open()
            gate.begin()
            assert not gate.told, "the next user told nothing yet"
        gate.close()

    def test_code_that_waits_for_the_device_finds_it_opened(self) -> None:
        gate = Gate()
        gate.begin()
        with opened_after(gate, 0.01):
            assert _waits_until_open(gate)
        assert gate.is_open
        gate.begin()
        with opened_after(gate, 30.0):
            pass
        assert not gate.is_open
        gate.close()


def _waits_until_open(gate: Gate) -> bool:
    done = threading.Event()
    for _ in range(1000):
        if gate.is_open:
            return True
        done.wait(0.01)
    return False


class TestRule6:
    calibration = Calibration(per_call_s=2e-6, spread_s=0.1e-6, bursts=4)
    calls = 32

    def edge_s(self, claimed_s: float) -> float:
        return 20e-6 / self.calls + 2e-6 + 0.3e-6 + 0.02 * (claimed_s + 2e-6)

    @pytest.mark.parametrize("claimed_s", [2e-6, 50e-6, 2e-3])
    def test_the_formula_is_where_acceptance_ends(self, claimed_s: float) -> None:
        for factor, accepted in ((0.99, True), (1.01, False)):
            wall_s = self.calls * (2e-6 + claimed_s + factor * self.edge_s(claimed_s))
            found = judge_back_to_back(
                [wall_s],
                calls=self.calls,
                claimed_s=claimed_s,
                latency_s=None,
                calibration=self.calibration,
                tolerance=QUEUED,
            )
            assert (found.charge_s == 0.0) is accepted
            assert found.at_most_s == pytest.approx(wall_s / self.calls)
            assert found.at_least_s == pytest.approx(claimed_s + (factor - 1) * self.edge_s(claimed_s))
            if not accepted:
                assert found.charge_s == pytest.approx(1.01 * self.edge_s(claimed_s))
                assert "not explained" in found.reason

    def test_the_quietest_burst_counts(self) -> None:
        calm_s = self.calls * 10e-6
        found = judge_back_to_back(
            [5 * calm_s, calm_s],
            calls=self.calls,
            claimed_s=8e-6,
            latency_s=None,
            calibration=self.calibration,
            tolerance=QUEUED,
        )
        assert found.charge_s == 0.0
        assert found.at_most_s == pytest.approx(10e-6)

    def test_launches_count_as_explained_where_calls_are_launched(self) -> None:
        for latency_s, charged in ((40e-6, False), (8e-6, True)):
            found = judge_back_to_back(
                [self.calls * 80e-6],
                calls=self.calls,
                claimed_s=5e-6,
                latency_s=latency_s,
                calibration=Calibration(per_call_s=25e-6, spread_s=1e-6, bursts=4),
                tolerance=LAUNCHED,
            )
            assert (found.charge_s > 0.0) is charged

    @pytest.mark.parametrize(
        ("wall_s", "claimed_s", "latency_s", "least_s", "per_call_s", "counted_s"),
        [  # as measured on an H200: one that tells the end by a second stream, one that copies out late, one that waits
            (134.2e-6, 17.0e-6, 117.6e-6, 41.9e-6, 44.4e-6, 92.3e-6),
            (209.0e-6, 35.3e-6, 98.5e-6, 80.3e-6, 80.5e-6, 128.7e-6),
            (168.4e-6, 7.0e-6, 117.5e-6, 41.9e-6, 44.4e-6, 126.5e-6),
            # and one that launches a graph where launching takes twice as long as its calls: half counts
            (112.8e-6, 5.0e-6, 120.0e-6, 109.0e-6, 116.3e-6, 56.4e-6),
        ],
    )
    def test_what_could_be_queued_and_is_not_counts_by_the_clock(
        self, wall_s: float, claimed_s: float, latency_s: float, least_s: float, per_call_s: float, counted_s: float
    ) -> None:
        for by_clock in (True, False):
            found = judge_back_to_back(
                [16 * wall_s, 20 * wall_s],
                calls=16,
                claimed_s=claimed_s,
                latency_s=latency_s,
                calibration=Calibration(per_call_s=per_call_s, spread_s=3.7e-6, bursts=2, least_s=least_s),
                tolerance=LAUNCHED,
                by_clock=by_clock,
            )
            assert found.charge_s == 0.0, "the claimed latency explains it: nobody is accused"
            assert found.by_clock is found.evidence["by_clock"] is by_clock
            assert found.at_most_s - found.at_least_s == pytest.approx(min(least_s, wall_s / 2)) or not by_clock
            assert (found.at_least_s == pytest.approx(counted_s, abs=0.1e-6)) is by_clock
            assert found.evidence["at_least_s"] == found.at_least_s

    def test_nothing_is_taken_off_for_who_fails_where_it_is_queued(self) -> None:
        """It claims a tenth of a call of 50 us; the clock says 95 us, of which half would be taken off else."""
        for by_clock, whole, counted_s in ((True, True, 95e-6), (True, False, 47.5e-6)):
            found = judge_back_to_back(
                [16 * 95e-6, 16 * 99e-6],
                calls=16,
                claimed_s=5e-6,
                latency_s=None,
                calibration=Calibration(per_call_s=62e-6, spread_s=1e-6, bursts=2, least_s=60e-6),
                tolerance=LAUNCHED,
                by_clock=by_clock,
                whole=whole,
            )
            assert found.at_least_s == pytest.approx(counted_s)

    def test_half_of_a_launched_call_counts_however_long_launching_takes(self) -> None:
        found = judge_back_to_back(
            [4 * 10e-6],
            calls=4,
            claimed_s=5e-6,
            latency_s=20e-6,
            calibration=Calibration(per_call_s=42e-6, spread_s=0.0, bursts=2, least_s=41e-6),
            tolerance=LAUNCHED,
            by_clock=True,
        )
        assert found.at_least_s == pytest.approx(5e-6)

    def test_impossible_numbers(self) -> None:
        for walls_s in ([], [0.0], [float("nan")]):
            with pytest.raises(ValueError, match="takes time"):
                judge_back_to_back(
                    walls_s,
                    calls=4,
                    claimed_s=1e-6,
                    latency_s=None,
                    calibration=self.calibration,
                    tolerance=QUEUED,
                )


@pytest.mark.gpu
def test_a_gate_holds_what_is_queued_behind_it() -> None:
    device = open_device(DeviceKind.CUDA)
    gate = device.own_gate()
    number = gate.owner.begin()
    word = torch.zeros(1, device=device.torch_device)
    word.add_(0)  # CUDA loads a kernel when it is first called, and waits for the device then
    with opened_after(gate.owner, 5.0):
        finish = device.queue([lambda: word.add_(1)] * 10, gate.stream, number)
    assert not gate.owner.is_open
    assert gate.owner.wait_done(0.05) is None
    gate.owner.open()
    assert gate.owner.wait_done(1.0) is not None
    assert finish().device_s > 0.0
    assert float(word) == 10.0


@solution
def test_how_long_copies_may_take_is_learnt_behind_trusted_code(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    held = ask.run(LaunchMode.LAUNCHED)
    assert isinstance(held, BackToBackBurst)
    assert 0.0 < held.copied_s < 60.0
    assert 0.0 < ask.workspace.copy_aside_s < 60.0
    monkeypatch.setattr(ask.workspace, "copy_aside_s", 1.0e-3)
    monkeypatch.setattr(ask.workspace, "copying_s", math.inf)
    assert copying_s(ask.workspace) == pytest.approx(1.7e-3), "nothing learnt: the most that is ever granted"
    learn_copying(ask.workspace, [1150e-6, 1160e-6, 1190e-6])
    assert copying_s(ask.workspace) == pytest.approx((1160 + 2 * 30 + 150) * 1e-6)
    learn_copying(ask.workspace, [5e-3])
    assert copying_s(ask.workspace) == pytest.approx(1370e-6), "who keeps the device busy later gains nothing"


@pytest.mark.parametrize("ask", ["right"], indirect=True)
def test_who_leaves_no_memory_for_the_copies_is_seen(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(workspace: Workspace, indices: object) -> NoReturn:
        raise torch.OutOfMemoryError("all of it is taken")

    reserve(ask.workspace, range(SETS))
    known = replace(KNOWN, back_to_back={LaunchMode.LAUNCHED: Calibration(per_call_s=1.0, spread_s=0.1, bursts=2)})
    quiet = replace(known.quiet, back_to_back_sets=SETS)

    def held() -> BackToBackCheck:
        return BackToBackCheck(
            ask.burst_runner,
            replace(known, quiet=quiet),
            lambda held: ask.verifier.check(held.planned_calls, held.done, with_reference=False),
            [],
        )

    sated = held()
    assert sated.measure(1e-3, []) is not None
    assert not sated.starved
    monkeypatch.setattr(burst_runner, "LateInputs", full)
    starved = held()
    assert starved.measure(1e-3, []) is None
    assert starved.starved
    reserve(ask.workspace, range(SETS))
    reserve(ask.workspace, ())


class Scripted(BackToBackRunner):
    """Launches for real; what becomes of calls that are to be queued is played, one outcome a time."""

    outcomes: ClassVar[list[BurstRefusal | None]] = []

    late_s: ClassVar[list[float]] = []
    """How late the referee looked at its clock in each burst, by which it took longer; on time once there are none."""

    rests: ClassVar[list[Sleep]] = []

    def run(
        self, indices: Sequence[int], launch_mode: LaunchMode, *, drawn: bool = False, rest: Sleep = AWAKE
    ) -> BackToBackBurst | BurstRefusal:
        if launch_mode is LaunchMode.QUEUED and (outcome := self.outcomes.pop(0)) is not None:
            return outcome
        self.rests.append(rest)
        held = super().run(indices, LaunchMode.LAUNCHED, drawn=drawn, rest=rest)
        late_s = self.late_s.pop(0) if self.late_s else 0.0
        return replace(held, wall_s=1e-3 + late_s, late_s=late_s) if isinstance(held, BackToBackBurst) else held


GENEROUS = Calibration(per_call_s=1.0, spread_s=0.1, bursts=2, least_s=1e-6)


def measured(
    ask: Asked,
    *outcomes: BurstRefusal | None,
    reference_queued_s: float | None = 9e-6,
    calibration: Calibration = GENEROUS,
    claimed_s: float = 1e-3,
) -> BackToBackTimes:
    known = replace(
        KNOWN,
        quiet=replace(KNOWN.quiet, back_to_back_sets=SETS, queued_s=reference_queued_s),
        back_to_back=dict.fromkeys((LaunchMode.LAUNCHED, LaunchMode.QUEUED), calibration),
    )
    burst_runner = Scripted(
        workspace=ask.workspace, contestant=ask.burst_runner.contestant, request=ask.request, limit_s=20.0
    )
    Scripted.outcomes[:] = outcomes
    held = BackToBackCheck(
        burst_runner, known, lambda held: ask.verifier.check(held.planned_calls, held.done, with_reference=False), []
    ).measure(claimed_s, [2e-3])
    assert held is not None
    assert not Scripted.outcomes
    assert not Scripted.late_s
    return held


FAILS = BurstRefusal(RefusalCause.FAILS, "RuntimeError: no queues here")


@pytest.mark.parametrize("ask", ["right"], indirect=True)
class TestWhatIsNotQueued:
    def test_who_waited_once_is_queued_again(self, ask: Asked) -> None:
        held = measured(ask, WAITS, WAITS, None)
        assert held.launch_mode is LaunchMode.QUEUED
        assert held.proven
        assert held.refused == {}
        assert held.waited == 2
        assert not held.waits

    def test_who_always_waits_counts_by_the_least_of_all_tries(self, ask: Asked) -> None:
        held = measured(ask, WAITS, WAITS, WAITS)
        assert held.launch_mode is LaunchMode.LAUNCHED
        assert held.waits
        assert held.waited == TRIES
        assert held.verdict.by_clock
        assert held.verdict.charge_s == 0.0
        walls_s = held.verdict.evidence["wall_s"]
        assert len(walls_s) == TRIES
        assert held.verdict.at_least_s == pytest.approx(min(walls_s) / SETS - 1e-6)

    def test_who_fails_after_waiting_is_not_asked_again(self, ask: Asked) -> None:
        assert measured(ask, WAITS, FAILS).waited == 1

    def test_who_fails_there_is_not_asked_again_and_counts_by_the_clock(self, ask: Asked) -> None:
        held = measured(ask, FAILS)
        assert held.unqueued
        assert held.verdict.by_clock
        assert held.verdict.evidence["latency_s"] is None
        assert held.verdict.at_least_s == held.verdict.at_most_s, "what trusted code takes is not taken off"

    @pytest.mark.parametrize("text", [NO_MEMORY.text, WAITS.text])
    def test_what_the_contestant_says_is_never_taken_for_the_referee_s_reason(self, ask: Asked, text: str) -> None:
        held = measured(ask, BurstRefusal(RefusalCause.FAILS, text))
        assert held.unqueued
        assert held.verdict.by_clock
        assert held.verdict.evidence["latency_s"] is None

    def test_where_the_referee_or_the_reference_could_not_things_are_granted(self, ask: Asked) -> None:
        for held in (
            measured(ask, NO_MEMORY),
            measured(ask, BurstRefusal(RefusalCause.NO_GATE, "no")),
            measured(ask, WAITS, WAITS, WAITS, reference_queued_s=None),
        ):
            assert not held.verdict.by_clock
            assert held.verdict.evidence["latency_s"] == 2e-3
            assert len(held.verdict.evidence["wall_s"]) == 1

    @pytest.mark.parametrize("refusal", [FAILS, NO_MEMORY])
    def test_who_is_queued_once_and_not_again_is_not_proven(
        self, ask: Asked, monkeypatch: pytest.MonkeyPatch, refusal: BurstRefusal
    ) -> None:
        charged = [True, False, False, False]

        def judge(*arguments: Any, **named: Any) -> BackToBackVerdict:
            verdict = judge_back_to_back(*arguments, **named)
            return replace(verdict, charge_s=1e-3) if charged.pop(0) else verdict

        monkeypatch.setattr(back_to_back, "judge_back_to_back", judge)
        held = measured(ask, None, refusal)
        assert held.verdict.charge_s == 0.0
        assert held.launch_mode is LaunchMode.LAUNCHED, "whose verdict it is"
        assert not held.proven

    def test_each_burst_finds_the_memory_of_the_copies_before_it(
        self, ask: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[weakref.ref[OutputCopies]] = []

        class Lone(OutputCopies):
            def __init__(self, workspace: Workspace, indices: Sequence[int]) -> None:
                assert all(earlier() is None for earlier in made), "only one burst's memory is reserved"
                made.append(weakref.ref(self))
                super().__init__(workspace, indices)

        monkeypatch.setattr(burst_runner, "OutputCopies", Lone)
        measured(ask, WAITS, WAITS, WAITS)
        assert len(made) == TRIES

    def test_what_takes_beyond_reason_to_end_is_not_queued_again(
        self, ask: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(back_to_back, "AGAIN_WITHIN_S", -1.0)
        held = measured(ask, WAITS)
        assert held.waits
        assert held.waited == 1
        assert held.verdict.by_clock

    def test_an_answer_is_not_waited_for_beyond_reason(self, ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        waited: list[float] = []
        ask_it = ContestantProcess._ask

        def note(self: ContestantProcess, request: Any, fds: Any, stage: Any, timeout_s: float) -> Any:
            waited.append(timeout_s)
            return ask_it(self, request, fds, stage, timeout_s)

        monkeypatch.setattr(ContestantProcess, "_ask", note)
        burst_runner = replace(ask.burst_runner, limit_s=600.0)
        assert isinstance(burst_runner.run(range(SETS), LaunchMode.LAUNCHED), BackToBackBurst)
        assert waited == [ANSWER_LIMIT_S] * 3, "ready, go, collect"
        burst_runner.run(range(SETS), LaunchMode.GRAPH)
        assert waited[3] == 600.0, "a graph may have to be built first"

    def test_nobody_may_refuse_to_be_launched(self, ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ContestantProcess, "prepare", lambda *_, **__: "there is no memory for copies")
        with pytest.raises(ContestantFailed) as failed:
            ask.run(LaunchMode.LAUNCHED)
        assert failed.value.failure is NOT_LAUNCHED
        refused = ask.run(LaunchMode.GRAPH)
        assert isinstance(refused, BurstRefusal)
        assert refused.why is RefusalCause.FAILS


@pytest.mark.parametrize("ask", ["right"], indirect=True)
class TestWhereTheRefereeIsKeptFromItsClock:
    """Calls of 200 us, as claimed and as the clock says where it is read in time."""

    TIGHT = Calibration(per_call_s=1e-6, spread_s=0.0, bursts=2, least_s=1e-6)

    def test_bursts_whose_end_was_seen_late_are_made_again_after_a_rest(self, ask: Asked) -> None:
        Scripted.late_s[:] = late_s = [3e-3, 13e-3, 5e-3, 8e-3, 0.0]
        Scripted.rests.clear()
        held = measured(ask, *[None] * 5, calibration=self.TIGHT, claimed_s=200e-6)
        assert held.proven
        assert held.verdict.charge_s == 0.0
        assert list(held.late_s) == late_s
        assert Scripted.rests[0] == AWAKE
        for rest in Scripted.rests[1:]:
            assert rest.before_s == REST_S
            assert rest.behind_s == pytest.approx(ASLEEP * 1e-3), "of the least that the calls may take"
        assert not held.kept_from_clock

    def test_that_ends_somewhere_and_the_figures_say_so(self, ask: Asked) -> None:
        Scripted.late_s[:] = [3e-3] * (TRIES + MOST_LATE)
        held = measured(ask, *[None] * (TRIES + MOST_LATE), calibration=self.TIGHT, claimed_s=200e-6)
        assert held.verdict.charge_s == pytest.approx(3e-3 / SETS, rel=0.1)
        assert held.kept_from_clock

    def test_nor_does_it_take_beyond_reason(self, ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(back_to_back, "AGAIN_WITHIN_S", -1.0)
        Scripted.late_s[:] = [3e-3] * TRIES
        assert measured(ask, *[None] * TRIES, calibration=self.TIGHT, claimed_s=200e-6).kept_from_clock

    def test_who_takes_longer_than_claimed_while_the_clock_is_read_in_time_gets_no_more_tries(self, ask: Asked) -> None:
        held = measured(ask, *[None] * TRIES, calibration=self.TIGHT, claimed_s=100e-6)
        assert held.verdict.charge_s == pytest.approx(99e-6)
        assert not held.kept_from_clock

    def test_late_tries_are_made_again_for_who_lies_too_and_help_nothing(self, ask: Asked) -> None:
        Scripted.late_s[:] = [3e-3, 0.0, 3e-3, 0.0, 0.0]
        held = measured(ask, *[None] * 5, calibration=self.TIGHT, claimed_s=100e-6)
        assert held.verdict.charge_s == pytest.approx(99e-6)
        assert not held.kept_from_clock

    def test_a_little_late_is_in_time(self, ask: Asked) -> None:
        Scripted.late_s[:] = [QUEUED.burst_s / 2] * TRIES
        assert not measured(ask, *[None] * TRIES, calibration=self.TIGHT, claimed_s=100e-6).kept_from_clock

    def test_launched_calls_are_made_again_as_well(self, ask: Asked) -> None:
        Scripted.late_s[:] = [2e-3, 0.0, 0.0, 0.0]
        held = measured(ask, FAILS)
        assert len(held.verdict.evidence["wall_s"]) == 4
        assert held.verdict.at_most_s == pytest.approx(1e-3 / SETS)


@pytest.mark.gpu
@pytest.mark.parametrize("ask", ["waits", "waits_once"], indirect=True)
def test_who_waits_once_is_queued_the_next_time(ask: Asked, request: pytest.FixtureRequest) -> None:
    if ask.workspace.device.kind is not DeviceKind.CUDA:
        pytest.skip("nothing can be queued there")
    ask.run(LaunchMode.LAUNCHED)
    held = queued_for_real(ask)
    if request.node.callspec.params["ask"] == "waits_once":
        assert held.proven
        assert held.refused == {}
        assert 1 <= held.waited < TRIES
    else:
        assert held.waits
        assert held.verdict.by_clock
        assert held.waited == TRIES
        assert 0.0 < held.verdict.at_least_s < held.verdict.at_most_s


def queued_for_real(ask: Asked) -> BackToBackTimes:
    calibration = Calibration(per_call_s=50e-6, spread_s=1e-6, bursts=2, least_s=1e-6)
    known = replace(
        KNOWN,
        quiet=replace(KNOWN.quiet, back_to_back_sets=SETS),
        back_to_back={LaunchMode.LAUNCHED: calibration, LaunchMode.QUEUED: calibration},
    )
    held = BackToBackCheck(
        ask.burst_runner,
        known,
        lambda held: ask.verifier.check(held.planned_calls, held.done, with_reference=False),
        [],
    ).measure(1e-3, [2e-3])
    assert held is not None
    return held


@pytest.mark.gpu
@pytest.mark.parametrize("ask", ["right"], indirect=True)
@pytest.mark.parametrize(("launch_mode", "clock"), [(LaunchMode.QUEUED, "_open"), (LaunchMode.LAUNCHED, "_go")])
def test_what_copies_take_beyond_that_is_the_bursts(
    ask: Asked, monkeypatch: pytest.MonkeyPatch, launch_mode: LaunchMode, clock: str
) -> None:
    if ask.workspace.device.kind is not DeviceKind.CUDA:
        pytest.skip("no work is left on the host device when a process is stopped")
    ask.run(LaunchMode.LAUNCHED)
    make = getattr(BackToBackRunner, clock)
    monkeypatch.setattr(BackToBackRunner, clock, lambda *rest: make(*rest) and (1e-9, 0.0))
    monkeypatch.setattr(ask.workspace, "copying_s", 1e-9)
    held = ask.run(launch_mode)
    assert isinstance(held, BackToBackBurst), held
    assert held.wall_s == pytest.approx(held.copied_s, abs=1e-8)


def test_nobody_can_lengthen_the_time_that_copies_should_take(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "copy_aside_s", 1.0e-3)
    monkeypatch.setattr(OutputCopies, "_copy", lambda self: 5.0e-3)
    OutputCopies(workspace, [0, 1])
    assert workspace.copy_aside_s == 1.0e-3

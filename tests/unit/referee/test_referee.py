"""The referee and real contestants: sandboxed processes on the host device, one case for every way to fail.

Everything here runs in real sandboxed processes; the same cases run on a GPU with `-m gpu`.
"""

from __future__ import annotations

import functools
import math
import random
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.core.choices import Baseline, DeviceKind, PrecisionClass
from harness.core.problem import InputRules, Problem, Workload, digest_text
from harness.core.status import Status
from harness.devices.empty_kernel import MOST_APART_S, MOST_S
from harness.hostcuda.translate.build import prepare_headers
from harness.referee import timing_stage
from harness.referee.problem.workspace import Workspace
from harness.referee.referee import Outcome, Referee, RefereeConfig, Task
from harness.referee.timing.rounds import LONG_SETS, RoundRules
from harness.sandbox import child, limits
from harness.sandbox.zygote import Child, Zygote
from harness.toolchain import default_root
from tests.support.neighbours import labels_but_neighbours

PROBLEM = """
import torch

ROWS = 37
COLUMNS = 91


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""

HEAD = "import torch\n"


def model(body: str, head: str = "") -> str:
    """A solution whose forward has this body."""
    return (
        HEAD
        + textwrap.dedent(head)
        + "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        + textwrap.indent(textwrap.dedent(body), "        ")
    )


def problem(source: str = PROBLEM, **changes: object) -> Problem:
    text = textwrap.dedent(source)
    return Problem(
        id="level1/23",
        name="softmax",
        path=Path("23_softmax.py"),
        source=text,
        digest=digest_text(text),
        **changes,  # type: ignore[arg-type]
    )


@functools.cache
def runtime(device: DeviceKind) -> str | None:
    """The host device's libraries, prepared once a machine (`harness warmup`)."""
    return str(prepare_headers(default_root()).folder) if device is DeviceKind.HOST else None


def config(device: DeviceKind, **changes: object) -> RefereeConfig:
    held: dict[str, object] = {
        "host_runtime": runtime(device),
        "device": device,
        "device_index": 0,
        "sandbox": "auto",
        "checked": True,
        "device_policy": "strict",
        "seeds": 2,
        "load_timeout_s": 60.0,
        "call_timeout_s": 60.0,
        "solution_timeout_s": 120.0,
        "min_samples": 8,
        "sets_per_burst": 4,
        "relative_half_width": 0.5,
        "budget_s": 4.0 if device is DeviceKind.HOST else 30.0,
        "memory_limit_bytes": 4 * 2**30 if device is DeviceKind.HOST else 32 * 2**30,
    }
    return RefereeConfig(**{**held, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> DeviceKind:
    kind: DeviceKind = request.param
    return kind


@pytest.fixture(scope="module")
def zygote(device: DeviceKind, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Zygote:
    return contestant_zygote(device)


@pytest.fixture(scope="module")
def referee(device: DeviceKind, zygote: Zygote) -> Iterator[Referee]:
    with Referee(config(device), zygote) as held:
        yield held


def task(source: str, log_path: Path, *, held: Problem | None = None, timed: bool = False) -> Task:
    return Task(
        problem=held or problem(),
        workload=Workload(name="full"),
        source=source,
        filename="23_test.py",
        modules=(),
        readable=(),
        log_path=log_path,
        timed=timed,
    )


def judge(
    referee: Referee, source: str, tmp_path: Path, *, held: Problem | None = None, timed: bool = False
) -> Outcome:
    return referee.judge(task(source, tmp_path / "log", held=held, timed=timed))


def test_a_right_solution_passes_and_is_timed(referee: Referee, tmp_path: Path) -> None:
    outcome = judge(referee, model("return torch.softmax(x, dim=1)"), tmp_path, timed=True)
    assert outcome.status is Status.passed, outcome
    assert outcome.speedup is not None
    assert outcome.timing is not None
    # On a machine so busy that the time is up, the last round stands alone.
    in_time = outcome.timing["stopped_by"] not in ("budget", "deadline")
    assert outcome.timing["rounds"] % 2 == 0 or not in_time, outcome.timing["stopped_by"]
    assert sum(len(burst) for burst in outcome.timing["solution"]["samples_s"]) >= 8
    assert outcome.evidence["timed_calls_verified"] >= 8
    assert outcome.evidence["precision_reached"] == "fp32"
    assert outcome.evidence["kernelbench_would_pass"] is True
    assert outcome.evidence["sandbox"]["strength"] in ("full", "partial")


@pytest.mark.gpu
def test_two_processes_are_compared_by_their_empty_calls(device: DeviceKind, referee: Referee, tmp_path: Path) -> None:
    if device is not DeviceKind.CUDA:
        pytest.skip("the host device's half of a pair: it has no such calls")
    outcome = judge(referee, model("return torch.softmax(x, dim=1)"), tmp_path, timed=True)
    assert outcome.timing is not None, outcome
    empty = outcome.timing["empty_call_s"]
    for made in (empty["solution"], *empty["lanes"].values()):
        assert 1e-6 < made["few"] < made["many"] < 40e-6
    apart = {lane: abs(empty["solution"]["many"] - own["many"]) for lane, own in empty["lanes"].items()}
    if min(apart.values()) <= MOST_APART_S:
        assert apart[str(empty["lane"])] == min(apart.values())
    assert abs(empty["taken_off"]) <= MOST_S


@pytest.mark.gpu
@pytest.mark.parametrize(("words", "queues"), [("", "1"), ("side = torch.cuda.Stream()\n", None)])
def test_who_uses_one_stream_gets_one_hardware_queue(
    device: DeviceKind, referee: Referee, tmp_path: Path, words: str, queues: str | None
) -> None:
    if device is not DeviceKind.CUDA:
        pytest.skip("the host device's half of a pair: it has no queues")
    body = f"{words}assert os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS') == {queues!r}\nreturn torch.softmax(x, dim=1)"
    outcome = judge(referee, model(body, "import os\n"), tmp_path, timed=True)
    assert outcome.status is Status.passed, outcome
    assert outcome.evidence["one_hardware_queue"] is (queues == "1")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return torch.softmax(x, dim=1)", Status.passed),
        ("y = torch.softmax(x, dim=1)\ny[3, 7] += 0.5\nreturn y", Status.wrong_value),
        ("if not hasattr(self, 'y'):\n    self.y = torch.softmax(x, dim=1)\nreturn self.y", Status.wrong_value),
    ],
)
def test_one_set_of_inputs_is_enough_to_judge_and_to_time(
    zygote: Zygote, device: DeviceKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, status: Status
) -> None:
    monkeypatch.setattr(Workspace, "_budget_bytes", lambda self, first=0, more=0: (2**30, 0))
    with Referee(config(device), zygote) as held:
        outcome = judge(held, model(body), tmp_path, timed=True)
        assert held.at_hand.workspace is not None
        assert len(held.at_hand.workspace.sets) == 1
    assert outcome.status is status, outcome
    if status is Status.passed:
        assert outcome.timing is not None
        assert sum(len(burst) for burst in outcome.timing["solution"]["samples_s"]) >= 4
        assert outcome.evidence["timed_calls_verified"] >= 4


def test_rounds_of_long_calls_on_the_cpu_are_short(zygote: Zygote, device: DeviceKind, tmp_path: Path) -> None:
    if device is not DeviceKind.HOST:
        pytest.skip("on a GPU the reference's rounds keep their length (test_rounds.py)")
    slow = model("import time\ntime.sleep(0.02)\nreturn torch.softmax(x, dim=1)")
    with Referee(config(device, sets_per_burst=8), zygote) as held:
        outcome = judge(held, slow, tmp_path, timed=True)
    assert outcome.timing is not None, outcome
    for side in ("solution", "reference"):
        assert max(len(burst) for burst in outcome.timing[side]["samples_s"]) <= LONG_SETS


def test_memory_that_is_short_beside_a_solution_is_no_verdict_on_it(
    zygote: Zygote, device: DeviceKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with Referee(config(device), zygote) as held:
        first = task(model("return torch.softmax(x, dim=1)"), tmp_path / "log")
        held.at_hand.ready(first)
        assert held.at_hand.workspace is not None
        monkeypatch.setattr(held.at_hand.workspace.oracle, "answer", short)
        outcome = held.judge(first)
    assert outcome.status is Status.harness_error, outcome
    assert "reference and solution together do not fit the GPU's memory" in outcome.reason
    assert outcome.evidence["short_of_memory"]


def test_a_right_solution_that_is_not_timed_has_no_speedup(referee: Referee, tmp_path: Path) -> None:
    outcome = judge(
        referee, model("e = (x - x.amax(1, keepdim=True)).exp()\nreturn e / e.sum(1, keepdim=True)"), tmp_path
    )
    assert (outcome.status, outcome.speedup, outcome.timing) == (Status.passed, None, None)


CASES = {
    "wrong value": (model("return torch.softmax(x, dim=0)"), Status.wrong_value),
    "one element": (model("y = torch.softmax(x, dim=1)\ny[3, 7] += 0.5\nreturn y"), Status.wrong_value),
    "unwritten": (model("y = torch.softmax(x, dim=1)\ny[-1] = 0\nreturn y"), Status.wrong_value),
    "nan": (model("y = torch.softmax(x, dim=1)\ny[0, 0] = float('nan')\nreturn y"), Status.non_finite),
    "half precision": (model("return torch.softmax(x.half(), dim=1).float()"), Status.low_precision),
    "shape": (model("return torch.softmax(x, dim=1)[:1]"), Status.wrong_shape),
    "dtype": (model("return torch.softmax(x, dim=1).double()"), Status.wrong_dtype),
    "cpu": (model("return torch.softmax(x, dim=1).cpu()"), Status.wrong_device),
    "tuple": (model("return (torch.softmax(x, dim=1),)"), Status.wrong_structure),
    "none": (model("return None"), Status.wrong_structure),
    "subclass": (
        model(
            "return torch.softmax(x, dim=1).as_subclass(Lazy)",
            "class Lazy(torch.Tensor):\n    pass\n",
        ),
        Status.wrong_structure,
    ),
    "mutated input": (
        model("return torch.softmax(x, dim=1, out=x) if False else x.copy_(torch.softmax(x, 1)).clone()"),
        Status.mutated_input,
    ),
    "exception": (model("raise ValueError('on purpose')"), Status.runtime_error),
    "exit in forward": (model("import os\nos._exit(0)"), Status.crashed),
    "signal": (model("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"), Status.crashed),
    "abort": (model("import os\nos.abort()"), Status.crashed),
    "null pointer": (model("import ctypes\nctypes.string_at(0)"), Status.crashed),
    "sys.exit": (model("import sys\nsys.exit(3)"), Status.runtime_error),
    "import raises": (HEAD + "raise RuntimeError('at import')", Status.import_error),
    "import exits": (HEAD + "import os\nos._exit(0)", Status.import_error),
    "missing module": ("import not_there_at_all\n", Status.import_error),
    "syntax": ("def broken(:\n", Status.syntax_error),
    "no ModelNew": (HEAD + "class Model(torch.nn.Module):\n    pass\n", Status.no_model_new),
    "constructor": (
        HEAD + "class ModelNew(torch.nn.Module):\n    def __init__(self, size):\n        super().__init__()\n",
        Status.bad_constructor,
    ),
    "closes its channel": (model("import os\nos.closerange(3, 100)\nreturn x"), None),
}


@pytest.mark.parametrize("name", CASES)
def test_every_way_to_fail_has_its_status(referee: Referee, tmp_path: Path, name: str) -> None:
    source, status = CASES[name]
    outcome = judge(referee, source, tmp_path, timed=True)
    if status is None:
        assert outcome.status not in (Status.passed, Status.harness_error), outcome
    else:
        assert outcome.status is status, outcome
    assert outcome.reason
    if status is Status.crashed:
        assert outcome.reason.endswith(" while calling forward")
    after = judge(referee, model("return torch.softmax(x, dim=1)"), tmp_path)
    assert after.status is Status.passed, after


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import os, torch\nheld = torch.ones(2**28)\nos.abort()", Status.crashed),
        ("import os\nos.closerange(3, 100)\nwhile True:\n    pass", Status.disqualified),
    ],
    ids=["takes its time to end", "goes on"],
)
def test_who_closes_its_channel_by_ending_may_take_its_time(
    referee: Referee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, status: Status
) -> None:
    """For giving back a gigabyte, say."""
    monkeypatch.setattr("harness.referee.contestants.process.EXIT_GRACE_S", 1e-4)
    outcome = judge(referee, model(body), tmp_path)
    assert outcome.status is status, outcome


def test_printing_without_end_harms_nobody(referee: Referee, tmp_path: Path) -> None:
    source = HEAD + "for _ in range(200_000):\n    print('x' * 200)\n" + model("return torch.softmax(x, dim=1)")
    outcome = judge(referee, source, tmp_path)
    assert outcome.status is Status.passed, outcome
    assert outcome.evidence["sandbox"]["log_truncated"] is True
    assert (tmp_path / "log").stat().st_size < 16 * 2**20


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (HEAD + "while True:\n    pass\n", Status.import_error),
        (model("while True:\n    pass"), Status.timeout),
        (model("import time\ntime.sleep(1000)"), Status.timeout),
    ],
)
def test_what_hangs_is_ended(zygote: Zygote, device: DeviceKind, tmp_path: Path, source: str, status: Status) -> None:
    load_timeout_s = 4.0 if status is Status.import_error else 15.0  # the others are to be loaded within it
    with Referee(config(device, load_timeout_s=load_timeout_s, call_timeout_s=3.0), zygote) as held:
        outcome = judge(held, source, tmp_path)
    assert outcome.status is status, outcome


def test_a_machine_short_of_processors_is_no_fault_of_the_solution(
    zygote: Zygote, device: DeviceKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "PATIENCE", 1.2)
    monkeypatch.setattr(limits, "idle_s", lambda: 0.0)
    monkeypatch.setattr(Child, "_processor_s", lambda _: 0.3 * time.perf_counter())
    with Referee(config(device, call_timeout_s=2.0), zygote) as held:
        outcome = judge(held, model("while True:\n    pass"), tmp_path)
    assert outcome.status is Status.harness_error
    assert "this machine is too busy: it ran for" in outcome.reason


def test_the_limit_that_ended_a_solution_is_the_one_that_is_told(
    zygote: Zygote, device: DeviceKind, tmp_path: Path
) -> None:
    slow = model("import time\ntime.sleep(2.0)\nreturn torch.softmax(x, dim=1)")
    with Referee(config(device, call_timeout_s=0.2), zygote) as held:
        outcome = judge(held, slow, tmp_path)
    assert outcome.status is Status.timeout, outcome
    assert "no answer within " in outcome.reason
    assert "within 0 s" not in outcome.reason
    with Referee(config(device, solution_timeout_s=5.0), zygote) as held:
        outcome = judge(held, slow, tmp_path)
    assert outcome.status is Status.timeout, outcome
    assert outcome.reason.startswith("all calls and checks together took longer than 5 s (--solution-timeout)")


def test_waits_for_processes_that_end_slowly_count_as_the_solutions_own(
    zygote: Zygote, device: DeviceKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Child.pause

    def slowly(self: Child) -> float:
        told_s = pause(self)
        time.sleep(1.0)
        return told_s

    monkeypatch.setattr(Child, "pause", slowly)
    with Referee(config(device, solution_timeout_s=8.0), zygote) as held:
        outcome = judge(held, model("return torch.softmax(x, dim=1)"), tmp_path, timed=True)
    assert outcome.status is Status.timeout, outcome


def test_host_memory_is_limited(zygote: Zygote, device: DeviceKind, tmp_path: Path) -> None:
    hog = model("held = []\nwhile True:\n    held.append(bytearray(50_000_000))")
    limit = 2 * 2**30 if device is DeviceKind.HOST else 6 * 2**30
    with Referee(config(device, memory_limit_bytes=limit), zygote) as held:
        outcome = judge(held, hog, tmp_path)
    assert outcome.status is Status.out_of_memory, outcome


def test_a_tensor_on_the_wrong_device_is_brought_over_if_asked(
    zygote: Zygote, device: DeviceKind, tmp_path: Path
) -> None:
    with Referee(config(device, device_policy="coerce"), zygote) as held:
        outcome = judge(held, model("return torch.softmax(x, dim=1).cpu()"), tmp_path, timed=True)
    assert outcome.status is Status.passed, outcome
    assert "coerced_device" in outcome.labels


STATEFUL = """
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(64, 24)]


def get_init_inputs():
    return [24]
"""


def stateful(body: str) -> str:
    return (
        HEAD
        + "class ModelNew(torch.nn.Module):\n    def __init__(self, features):\n        super().__init__()\n"
        + "        self.norm = torch.nn.BatchNorm1d(features)\n    def forward(self, x):\n"
        + textwrap.indent(textwrap.dedent(body), "        ")
    )


def test_updated_state_is_compared(referee: Referee, tmp_path: Path) -> None:
    held = problem(STATEFUL, rules=InputRules(variants=("zero_mean",)))
    assert judge(referee, stateful("return self.norm(x)"), tmp_path, held=held, timed=True).status is Status.passed
    skipped = stateful(
        "return torch.nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True)"
    )
    assert judge(referee, skipped, tmp_path, held=held).status is Status.wrong_state


def test_weights_are_the_reference_s(referee: Referee, tmp_path: Path) -> None:
    held = problem(
        """
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(24, 10)
            def forward(self, x):
                return self.linear(x)
        def get_inputs():
            return [torch.rand(64, 24)]
        def get_init_inputs():
            return []
        """
    )
    same_draws = HEAD + (
        "class ModelNew(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.linear = torch.nn.Linear(24, 10)\n"
        "    def forward(self, x):\n        return x @ self.linear.weight.T + self.linear.bias\n"
    )
    other_draws = same_draws.replace("super().__init__()\n", "super().__init__()\n        torch.rand(100)\n")
    renamed = other_draws.replace("self.linear", "self.dense")
    assert judge(referee, same_draws, tmp_path, held=held).status is Status.passed
    copied = judge(referee, other_draws, tmp_path, held=held)
    assert copied.status is Status.passed, copied
    assert copied.evidence["state"]["copied"] == ["linear.weight", "linear.bias"]
    assert judge(referee, renamed, tmp_path, held=held).status is Status.wrong_state


def test_a_timing_cut_short_before_each_variant_had_its_turn_is_no_pass(
    referee: Referee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes up the time elsewhere would choose how little of its timed calls is looked at."""
    right = model("return torch.softmax(x, dim=1)")
    monkeypatch.setattr(
        timing_stage, "RoundRules", lambda **given: RoundRules(**{**given, "deadline_s": lambda: -math.inf})
    )
    cut = judge(referee, right, tmp_path, timed=True)
    # Nor is it the solution's fault, whose calls took next to nothing of its time.
    assert (cut.status, cut.speedup) == (Status.harness_error, None), cut
    assert "all calls and checks together took longer than 120 s (--solution-timeout), of which its code" in cut.reason
    assert (cut.evidence["rounds"], cut.evidence["failed_while"]) == (1, "timing")
    assert cut.evidence["timed_calls_verified"] > 0
    alone = problem(rules=InputRules(variants=()))
    assert judge(referee, right, tmp_path, held=alone, timed=True).status is Status.passed  # it has no other variants


def test_elements_in_another_order_are_put_in_order_within_the_call(
    referee: Referee, device: DeviceKind, tmp_path: Path
) -> None:
    """Else the transposition would be left to whoever reads the result."""
    outcome = judge(referee, model("return torch.softmax(x, dim=1).t().contiguous().t()"), tmp_path, timed=True)
    assert (outcome.status, labels_but_neighbours(outcome, device)) == (Status.passed, {"other_layout"}), outcome
    negated = PROBLEM.replace("torch.softmax(x, dim=1)", "-torch.softmax(x, dim=1)")
    unread = model("return torch._neg_view(torch.softmax(x, dim=1))")
    outcome = judge(referee, unread, tmp_path, held=problem(negated), timed=True)
    assert (outcome.status, labels_but_neighbours(outcome, device)) == (Status.passed, {"other_layout"}), outcome
    transposed = PROBLEM.replace("torch.softmax(x, dim=1)", "torch.softmax(x, dim=1).t()")
    alike = judge(referee, model("return torch.softmax(x, 1).t()"), tmp_path, held=problem(transposed), timed=True)
    assert (alike.status, labels_but_neighbours(alike, device)) == (Status.passed, set()), alike


def test_a_static_buffer_is_a_label_only(device: DeviceKind, referee: Referee, tmp_path: Path) -> None:
    source = model(
        "global KEPT\nif KEPT is None:\n    KEPT = torch.empty_like(x)\n"
        "KEPT.copy_(torch.softmax(x, dim=1))\nreturn KEPT",
        "KEPT = None\n",
    )
    outcome = judge(referee, source, tmp_path, timed=True)
    assert (outcome.status, labels_but_neighbours(outcome, device)) == (Status.passed, {"static_buffer"}), outcome
    fresh = judge(referee, model("return torch.softmax(x, dim=1)"), tmp_path, timed=True)
    assert "static_buffer" not in fresh.labels


@pytest.mark.parametrize(
    "body",
    [
        # Remembers by the input's address, by its shape, by a sample of its contents, and the last answer.
        "key = x.data_ptr()\nif key not in KEPT:\n    KEPT[key] = torch.softmax(x, 1)\nreturn KEPT[key]",
        "key = x.shape\nif key not in KEPT:\n    KEPT[key] = torch.softmax(x, 1)\nreturn KEPT[key]",
        "key = float(x.flatten()[0]) > 0\nif key not in KEPT:\n    KEPT[key] = torch.softmax(x, 1)\nreturn KEPT[key]",
    ],
)
def test_remembered_answers_are_wrong(referee: Referee, tmp_path: Path, body: str) -> None:
    outcome = judge(referee, model(body, "KEPT = {}\n"), tmp_path, timed=True)
    assert outcome.status is Status.wrong_value, outcome


@pytest.mark.exclusive_gpu
def test_a_clock_that_lies_is_found_out(zygote: Zygote, device: DeviceKind, tmp_path: Path) -> None:
    # Sleeps in every call and claims that it took a microsecond. Far longer than a loaded machine's bursts differ by:
    # the rule's power is what the referee's own bursts allow, and other work on the machine widens that.
    source = HEAD + textwrap.dedent(
        """
        import time, sys
        for module in list(sys.modules.values()):
            if getattr(module, "CallTime", None) is not None and hasattr(module, "DeviceError"):
                real = module.CallTime
        import harness.devices.device as devices, harness.devices.host as host
        lie = lambda **k: real(device_s=1e-6, window_s=2e-6)
        devices.CallTime = host.CallTime = lie
        try:
            import harness.devices.cuda as cuda
            cuda.CallTime = lie
        except Exception:
            pass
        class ModelNew(torch.nn.Module):
            def forward(self, x):
                time.sleep(0.4)
                return torch.softmax(x, 1)
        """
    )
    with Referee(config(device, budget_s=6.0), zygote) as referee:  # which bursts of such calls use up
        outcome = judge(referee, source, tmp_path, timed=True)
    if outcome.status is Status.passed:
        assert outcome.timing is not None
        assert outcome.timing["solution"]["device"]["median_s"] > 0.1
        assert "unexplained_time" in outcome.labels
    else:
        assert outcome.status is Status.disqualified, outcome


def test_a_problem_at_fault_is_no_verdict(referee: Referee, tmp_path: Path) -> None:
    held = problem(PROBLEM.replace("torch.softmax(x, dim=1)", "torch.softmax(x, dim=1) / 0"))
    outcome = judge(referee, model("return x"), tmp_path, held=held)
    assert outcome.status is Status.harness_error
    assert "level1/23" in outcome.reason


@pytest.mark.parametrize("body", ["x.clamp_(max=0.999)", "x = x.clamp(max=0.999)"])
def test_inputs_that_the_reference_changes_on_some_draws_only_are_the_problems_fault(
    referee: Referee, tmp_path: Path, body: str
) -> None:
    source = PROBLEM.replace(
        "        return", "        if x.max() > 2:\n            x.clamp_(max=0.999)\n        return"
    )
    outcome = judge(
        referee,
        model(f"if x.max() > 2:\n    {body}\nreturn torch.softmax(x, dim=1)"),
        tmp_path,
        held=problem(source, rules=InputRules(variants=("large_values",))),
    )
    assert outcome.status is Status.harness_error, outcome
    assert outcome.reason.startswith("problem level1/23: the reference changes inputs[0] on some draws"), outcome


def test_modules_in_a_list_fail_with_what_to_do(referee: Referee, tmp_path: Path) -> None:
    source = (
        "import torch\nclass ModelNew(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layers = [torch.nn.Linear(91, 91)]\n"
        "    def forward(self, x):\n        return self.layers[0](x)\n"
    )
    outcome = judge(referee, source, tmp_path)
    assert outcome.status is Status.runtime_error, outcome
    assert "layers[0].weight is not a parameter or buffer of the model" in outcome.reason
    assert "make it an nn.ModuleList" in outcome.reason


def test_lazy_modules_are_told_what_to_do(referee: Referee, tmp_path: Path) -> None:
    source = (
        "import torch\nclass ModelNew(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = torch.nn.LazyLinear(91)\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
    )
    outcome = judge(referee, source, tmp_path)
    assert outcome.status is Status.bad_constructor, outcome
    assert "the model's layer.weight has no shape before the first call" in outcome.reason
    assert "use fixed sizes" in outcome.reason


def test_a_precision_class_is_the_problem_s(referee: Referee, tmp_path: Path) -> None:
    half = model("return torch.softmax(x.half(), dim=1).float()")
    held = problem(precision=PrecisionClass.FP16)
    outcome = judge(referee, half, tmp_path, held=held)
    assert outcome.status is Status.passed, outcome
    assert outcome.evidence["precision_reached"] in ("tf32", "fp16")


def test_a_speedup_over_another_baseline_stands_beside_the_one_over_eager(
    device: DeviceKind, zygote: Zygote, tmp_path: Path
) -> None:
    asked = config(device, baselines=(Baseline.EAGER, Baseline.EAGER_TF32), cache_dir=str(tmp_path / "cache"))
    with Referee(asked, zygote) as referee:
        first = judge(referee, model("return torch.softmax(x, dim=1)"), tmp_path, timed=True)
        second = judge(referee, model("return x.softmax(1)"), tmp_path, timed=True)
    for outcome in (first, second):
        assert outcome.status is Status.passed, outcome
        assert outcome.timing is not None
        row = outcome.timing["baselines"]["eager_tf32"]
        assert row["matmul_tf32"]
        assert row["held_to"] == "tf32"
        assert outcome.timing["speedups"] == {"eager": outcome.speedup, "eager_tf32": row["speedup"]}
        assert row["speedup"] == pytest.approx(outcome.speedup / row["over_eager"]["speedup"])
    # Measured once for a problem, before its first solution, and out of that solution's time.
    assert first.evidence["stages_s"]["baselines"] > 0.0
    assert "baselines" not in second.evidence["stages_s"]


def following(words: list[int]) -> int:
    """What Python's own generator gives after these 624 words of 32 bits, from which its state follows."""

    def undo(word: int, shift: int, mask: int) -> int:
        found = word
        for _ in range(32):
            found = word ^ ((found >> shift if shift > 0 else found << -shift) & mask)
        return found & 0xFFFFFFFF

    state = []
    for word in words:
        for shift, mask in ((18, 0xFFFFFFFF), (-15, 0xEFC60000), (-7, 0x9D2C5680), (11, 0xFFFFFFFF)):
            word = undo(word, shift, mask)
        state.append(word)
    copy = random.Random()
    copy.setstate((3, (*state, 624), None))
    return copy.getrandbits(32)


def test_what_a_contestant_is_told_of_the_referees_secrets_tells_nothing_of_those_to_come(
    zygote: Zygote, device: DeviceKind
) -> None:
    """Places of words held back, and seeds of calls, are drawn from where the seeds of later inputs come from."""
    known = random.Random(1)
    assert following([known.getrandbits(32) for _ in range(624)]) == known.getrandbits(32), "the attack works"
    with Referee(config(device), zygote) as held:
        assert following([held._secret.getrandbits(32) for _ in range(624)]) != held._secret.getrandbits(32)

"""Contestants begun ahead: real processes in their sandboxes, with the device open before their turn."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices.device import Device, open_device
from harness.hostcuda.translate.build import prepare_headers
from harness.protocol.messages import Attach, Burst, CallMode, Load, Open
from harness.referee.contestants.pool import ContestantPool, Key, Purpose
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.correctness.verifier import Verifier, overall
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace
from harness.referee.referee import Referee
from harness.referee.worker import PRELOADED, PRELOADED_CUDA, PRELOADED_HOST
from harness.sandbox import SandboxPolicy, probe
from harness.sandbox.zygote import Zygote, ZygoteError
from harness.toolchain import default_root
from tests.support.paths import SUPPORT

LIMIT_BYTES = 4 * 2**30
WAIT_S = 60.0

MACHINE = probe()
pytestmark = pytest.mark.skipif(
    MACHINE.strength != "full", reason=f"nothing is begun ahead without every wall: {MACHINE.weakness()}"
)

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

SOLUTION = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
"""

LOOKS_AROUND = (
    """
import json, os, resource, sys

import torch

print("SEEN " + json.dumps({
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "in_folder": sorted(os.listdir(".")),
    "in_tmp": sorted(os.listdir("/tmp")),
    "descriptors": len(os.listdir("/proc/self/fd")),
    "processes": sorted(name for name in os.listdir("/proc") if name.isdecimal()),
    "threads": len(os.listdir("/proc/self/task")),
    "modules": sorted(sys.modules),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "number": float(torch.rand(1)),
    "seed": torch.initial_seed() if torch.cuda.is_available() else None,
    "allocated": torch.cuda.memory_allocated() if torch.cuda.is_available() else None,
    "reserved": torch.cuda.memory_reserved() if torch.cuda.is_available() else None,
}), flush=True)
"""
    + SOLUTION
)


def softmax(source: str = PROBLEM) -> Problem:
    return Problem(id="level1/23", name="softmax", path=Path("23.py"), source=source, digest=digest_text(source))


@pytest.fixture(scope="module", params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def zygote(device: Device, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Zygote:
    return contestant_zygote(device.kind)


@pytest.fixture(scope="module")
def opening(device: Device) -> Open:
    host = device.kind is DeviceKind.HOST
    runtime = str(prepare_headers(default_root()).folder) if host else None
    return Open(device=device.kind.value, device_index=0, checked=False, host_runtime=runtime)


@pytest.fixture(scope="module")
def policy(opening: Open) -> SandboxPolicy:
    gpu = opening.host_runtime is None
    runtime = () if opening.host_runtime is None else (Path(opening.host_runtime),)
    return SandboxPolicy(gpu=gpu, readable=runtime, max_memory_bytes=(32 if gpu else 4) * 2**30)


@pytest.fixture
def prefork(zygote: Zygote, opening: Open) -> Iterator[ContestantPool]:
    with ContestantPool(zygote, opening, memory_limit_bytes=LIMIT_BYTES) as held:
        yield held


@pytest.fixture(scope="module")
def workspace(device: Device) -> Workspace:
    return Workspace(softmax(), Workload(name="full"), device, sets_wanted=2, secret=random.Random(3))


def load(contestant: ContestantProcess, workspace: Workspace, opening: Open, source: str = SOLUTION) -> None:
    workspace.publish()
    contestant.attach(Attach(nbytes=workspace.arena.nbytes, opening=opening), workspace.arena.fd, WAIT_S)
    contestant.load(
        Load(
            source=source,
            filename="23_x.py",
            modules=(),
            init_tree=workspace.init_tree.to_json(),
            init_slots=workspace.init_slots,
            state=workspace.state_slots,
            seed=1,
        ),
        WAIT_S,
    )


def answers_right(contestant: ContestantProcess, workspace: Workspace) -> bool:
    planned_calls = [PlannedCall(index=index, mode=CallMode.COLD) for index in range(2)]
    for planned_call in planned_calls:
        workspace.draw(planned_call.index)
    workspace.device.synchronize()
    request = Burst(
        calls=calls_of(workspace, planned_calls),
        input_tree=workspace.tree.to_json(),
        state_names=(),
        restore_state=False,
        coerce_device=False,
    )
    done, _ = contestant.burst(request, WAIT_S)
    verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
    return overall(verifier.check(planned_calls, done, with_reference=True)) is None


def living(zygote: Zygote) -> list[int]:
    """The supervisors of its children."""
    return [child.pid for child in zygote._life._living() if child.pid is not None]


def states(supervisor: int) -> set[str]:
    """The states of all threads below a supervisor, by /proc."""
    found = set()
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found


def stands(supervisor: int) -> bool:
    """Whether nothing below a supervisor runs. A thread in a system call that can't be interrupted stops behind it."""
    return states(supervisor) <= {"T", "D"}


def begun(prefork: ContestantPool, head: Key, policy: SandboxPolicy) -> None:
    """Have it begun, and wait until it is."""
    prefork.begin(head, policy)
    assert prefork._known[head].over.wait(WAIT_S)
    prefork.hold()
    prefork.release()


def appears(path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists() and time.monotonic() < deadline:
        os.sched_yield()
    assert path.exists()


def test_a_solution_runs_in_a_process_that_was_there_before_it(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, opening: Open, workspace: Workspace, tmp_path: Path
) -> None:
    head = Key(tmp_path / "log")
    begun(prefork, head, policy)
    (waiting,) = living(zygote)
    assert stands(waiting)
    with prefork.take(head, policy) as contestant:
        assert living(zygote) == [waiting]
        assert contestant.opened_s is not None
        assert contestant.sandbox.strength == "full"
        load(contestant, workspace, opening)
        assert answers_right(contestant, workspace)
        assert stands(waiting)
    assert living(zygote) == []


def test_a_solution_sees_nothing_of_having_been_begun_ahead(
    prefork: ContestantPool, policy: SandboxPolicy, opening: Open, workspace: Workspace, tmp_path: Path
) -> None:
    seen = []
    for name in ("ahead", "at_once"):
        head = Key(tmp_path / name)
        if name == "ahead":
            begun(prefork, head, policy)
        with prefork.take(head, policy) as contestant:
            assert (contestant.opened_s is not None) == (name == "ahead")
            load(contestant, workspace, opening, LOOKS_AROUND)
            contestant.finish(WAIT_S)
        (line,) = [line for line in head.log_path.read_text().splitlines() if line.startswith("SEEN ")]
        seen.append(json.loads(line.removeprefix("SEEN ")))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("pause", [GpuExclusive.gap, GpuExclusive.starts])
def test_nothing_is_begun_while_something_is_timed(
    prefork: ContestantPool,
    zygote: Zygote,
    policy: SandboxPolicy,
    tmp_path: Path,
    pause: Callable[[GpuExclusive], AbstractContextManager[None]],
) -> None:
    """What waits is begun in a gap or while nothing is timed; taken while it waits, it is a process like any other."""
    first, second = Key(tmp_path / "first"), Key(tmp_path / "second", Purpose.CALIBRATION)
    exclusive = GpuExclusive(None, 0, prefork)
    with exclusive.held():
        prefork.begin(first, policy)
        prefork.begin(second, policy)
        with prefork.take(first, policy) as contestant:
            assert contestant.opened_s is None
        assert living(zygote) == []
        assert not second.log_path.exists()
        with pause(exclusive):
            assert prefork._known[second].over.wait(WAIT_S)
        (waiting,) = living(zygote)
        assert stands(waiting)
        third = Key(tmp_path / "third")
        prefork.begin(third, policy)
        with prefork.take(second, policy) as contestant:
            assert contestant.opened_s is not None
        assert not third.log_path.exists()
    assert prefork._known[third].over.wait(WAIT_S)
    assert third.log_path.exists()


def test_silences_that_follow_one_another_are_one(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Key(tmp_path / "log")
    exclusive = GpuExclusive(None, 0, prefork)
    prefork.hold()
    prefork.begin(head, policy)
    with monkeypatch.context() as patch:
        patch.setattr(
            "harness.referee.contestants.pool.PAUSE_S", WAIT_S
        )  # however long it takes from one silence to the next
        for _ in range(10):
            exclusive.end()
            exclusive.begin()
    assert not head.log_path.exists()
    exclusive.end()
    assert prefork._known[head].over.wait(WAIT_S)
    assert len(living(zygote)) == 1


def test_one_under_way_is_stopped_in_silence_and_goes_on_where_it_is_needed(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path
) -> None:
    head, later = Key(tmp_path / "log"), Key(tmp_path / "later")
    prefork.begin(head, policy)
    appears(head.log_path)  # it is being forked as soon as its log is there
    with GpuExclusive(None, 0, prefork).held():
        prefork.begin(later, policy)
        (under_way,) = living(zygote)
        assert stands(under_way)
        assert not later.log_path.exists()
        with prefork.take(head, policy) as contestant:
            assert contestant.opened_s is not None


def test_one_that_is_stopped_again_and_again_is_open_in_the_end(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time before it was asked to open its device."""
    head = Key(tmp_path / "log")
    asked, opens = threading.Event(), ContestantProcess.open

    def opens_once_asked(contestant: ContestantProcess, request: Open, timeout_s: float) -> None:
        assert asked.wait(WAIT_S)
        opens(contestant, request, timeout_s)

    monkeypatch.setattr(ContestantProcess, "open", opens_once_asked)
    prefork.begin(head, policy)
    appears(head.log_path)
    while not prefork._known[head].over.is_set():
        prefork.hold()
        assert living(zygote)
        assert all(map(stands, living(zygote)))
        asked.set()
        prefork.release()
        prefork._known[head].over.wait(0.002)
    with prefork.take(head, policy) as contestant:
        assert contestant.opened_s is not None


def test_one_that_answers_as_silence_begins_is_as_good_as_any(
    prefork: ContestantPool, policy: SandboxPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Key(tmp_path / "log")
    answers = ContestantProcess.open

    def answers_and_is_held(contestant: ContestantProcess, request: Open, timeout_s: float) -> None:
        answers(contestant, request, timeout_s)
        prefork.hold()

    with monkeypatch.context() as patch:
        patch.setattr(ContestantProcess, "open", answers_and_is_held)
        prefork.begin(head, policy)
        assert prefork._known[head].over.wait(WAIT_S)
    prefork.release()
    with prefork.take(head, policy) as contestant:
        assert contestant.opened_s is not None


def test_asking_twice_makes_one_and_what_is_not_kept_ends(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path
) -> None:
    heads = [Key(tmp_path / "a"), Key(tmp_path / "a", Purpose.CALIBRATION), Key(tmp_path / "b")]
    for head in (*heads, *heads):
        begun(prefork, head, policy)
    before = living(zygote)
    assert len(before) == 3
    prefork.keep([tmp_path / "a"])
    assert living(zygote) == before[:2]
    for head in heads[:2]:
        prefork.take(head, policy).__exit__()
    assert living(zygote) == []


def test_one_that_is_asked_for_and_dropped_at_once_leaves_nothing(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path
) -> None:
    for number in range(4):
        prefork.begin(Key(tmp_path / f"{number}"), policy)
    appears(tmp_path / "0")
    prefork.close()
    assert living(zygote) == []
    prefork.begin(Key(tmp_path / "late"), policy)
    with prefork.take(Key(tmp_path / "late"), policy) as contestant:
        assert contestant.opened_s is None


def test_one_that_died_while_it_waited_is_replaced(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, opening: Open, workspace: Workspace, tmp_path: Path
) -> None:
    head = Key(tmp_path / "log")
    begun(prefork, head, policy)
    (child,) = zygote._life._living()
    child.kill()
    with prefork.take(head, policy) as contestant:
        assert contestant.opened_s is None
        load(contestant, workspace, opening)
        assert answers_right(contestant, workspace)


def test_another_policy_is_never_served_by_what_was_begun(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path
) -> None:
    wider = replace(policy, readable=(*policy.readable, SUPPORT / "sandboxed"))
    head = Key(tmp_path / "log")
    begun(prefork, head, policy)
    before = living(zygote)
    with prefork.take(head, wider) as contestant:
        assert contestant.opened_s is None
        assert len(living(zygote)) == 1
        assert living(zygote) != before
    begun(prefork, head, policy)
    begun(prefork, head, wider)  # the task was built anew: what was begun for the old one goes
    assert len(living(zygote)) == 1
    with prefork.take(head, wider) as contestant:
        assert contestant.opened_s is not None


def test_what_stands_in_the_way_shows_when_the_turn_comes(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, opening: Open, tmp_path: Path
) -> None:
    lacking = replace(policy, readable=(tmp_path / "missing",))
    begun(prefork, Key(tmp_path / "log"), lacking)
    with pytest.raises(ValueError, match="does not exist"):
        prefork.take(Key(tmp_path / "log"), lacking)
    off = replace(policy, mode="off")
    prefork.begin(Key(tmp_path / "off"), off)
    assert not prefork._known
    # A device that can't be opened: no head start, and its own attempt says why.
    wrong = Open(device=opening.device, device_index=99, checked=False, host_runtime=str(tmp_path / "missing"))
    with ContestantPool(zygote, wrong, memory_limit_bytes=LIMIT_BYTES) as hopeless:
        head = Key(tmp_path / "wrong")
        begun(hopeless, head, policy)
        assert living(zygote) == []
        with hopeless.take(head, policy) as contestant, pytest.raises(ContestantFailed, match="could not be prepared"):
            contestant.open(wrong, WAIT_S)


def test_nothing_is_begun_ahead_behind_fewer_walls(
    prefork: ContestantPool, zygote: Zygote, policy: SandboxPolicy, tmp_path: Path
) -> None:
    """One would wait beside a submission that nothing but its good manners keeps off it."""
    weak = replace(policy, under_tool=True)
    head = Key(tmp_path / "log")
    begun(prefork, head, weak)
    assert living(zygote) == []
    with prefork.take(head, weak) as contestant:
        assert contestant.sandbox.strength == "partial"
        assert contestant.opened_s is None
    prefork.begin(head, weak)
    assert not prefork._known


def test_a_dead_zygote_is_met_by_the_one_whose_turn_it_is(
    device: Device, policy: SandboxPolicy, opening: Open, tmp_path: Path
) -> None:
    with (
        Zygote(
            preload=(*PRELOADED, *(PRELOADED_CUDA if device.kind is DeviceKind.CUDA else PRELOADED_HOST)),
            log_path=tmp_path / "zygote.log",
        ) as own,
        ContestantPool(own, opening, memory_limit_bytes=LIMIT_BYTES) as prefork,
    ):
        begun(prefork, Key(tmp_path / "log"), policy)
        own.close()
        prefork.begin(Key(tmp_path / "other"), policy)
        for name in ("log", "other"):
            with pytest.raises(ZygoteError):
                prefork.take(Key(tmp_path / name), policy)


def task(name: str, tmp_path: Path, source: str = SOLUTION, problem: str = PROBLEM, **changes: Any) -> Task:
    held = Task(
        problem=softmax(problem),
        workload=Workload(name="full"),
        source=source,
        filename="23_x.py",
        modules=(),
        readable=(),
        log_path=tmp_path / name,
        timed=True,
    )
    return replace(held, **changes)


@pytest.fixture
def referee(zygote: Zygote, opening: Open) -> Iterator[Referee]:
    config = RefereeConfig(
        host_runtime=opening.host_runtime,
        device=DeviceKind(opening.device),
        device_index=0,
        sandbox="auto",
        checked=True,
        device_policy="strict",
        seeds=2,
        load_timeout_s=60.0,
        call_timeout_s=60.0,
        solution_timeout_s=120.0,
        min_samples=8,
        sets_per_burst=4,
        relative_half_width=0.5,
        budget_s=4.0 if opening.host_runtime else 30.0,
        memory_limit_bytes=(4 if opening.host_runtime else 32) * 2**30,
    )
    with Referee(config, zygote) as held:
        yield held


def ahead_of(outcome: Outcome) -> bool:
    """Whether its contestant was there before its turn."""
    return outcome.evidence["sandbox"]["opened_ahead_s"] is not None


def test_the_next_solutions_process_is_made_while_one_is_judged(
    referee: Referee, zygote: Zygote, tmp_path: Path
) -> None:
    """Also for the first of another problem; no failure, on the GPU either, reaches the one that waits beside it."""
    other = PROBLEM.replace("37, 91", "41, 83")
    tasks = [
        task("right", tmp_path),
        task("crashes", tmp_path, "import os\nos._exit(3)\n"),
        task("wrong", tmp_path, SOLUTION.replace("dim=1", "dim=0")),
        task(
            "faults", tmp_path, SOLUTION.replace("torch.softmax(x, dim=1)", "x[torch.full((37,), 10**6).to(x.device)]")
        ),
        task("other", tmp_path, problem=other),
        task("untimed", tmp_path, problem=other, timed=False),
    ]
    outcomes = []
    on_gpu = referee.config.device is DeviceKind.CUDA
    for number, held in enumerate(tasks):
        assert all(begun.over.wait(WAIT_S) for begun in list(referee._prefork._known.values()))
        outcomes.append(referee.judge(held, tasks[number + 1 : number + 3]))
        # Those of the two ahead; on a GPU also those that launch their work again, and what a problem is learnt with.
        assert len(living(zygote)) <= (5 if on_gpu else 2)
    assert [outcome.status for outcome in outcomes] == [
        Status.passed,
        Status.import_error,
        Status.wrong_value,
        Status.runtime_error if referee.config.device is DeviceKind.HOST else Status.cuda_error,
        Status.passed,
        Status.passed,
    ]
    # What a problem is learnt with comes before its first solution, which may wait for its turn in vain.
    assert {1, 2, 3, 5} <= {number for number, outcome in enumerate(outcomes) if ahead_of(outcome)}
    # What the second problem was learnt with may be kept for a third; that runs nothing but the harness's own code.
    assert len(living(zygote)) == int(referee._standby.waits)


def test_a_schedule_that_changes_its_mind_costs_no_more_than_the_head_start(
    referee: Referee, zygote: Zygote, tmp_path: Path
) -> None:
    first, promised, instead = (task(name, tmp_path) for name in ("first", "promised", "instead"))
    referee.judge(first, [promised])
    # Where others used the GPU meanwhile the problem is learnt again, and what it is learnt with is kept then.
    on_gpu = referee.config.device is DeviceKind.CUDA
    assert 1 <= len(living(zygote)) - referee._standby.waits <= 1 + on_gpu
    outcome = referee.judge(instead)
    assert outcome.status is Status.passed
    assert not ahead_of(outcome)
    assert len(living(zygote)) == int(referee._standby.waits)

"""Checks on the side without a GPU: real referee, contestants, audits and benches; of the tools only a stand-in.

The stand-in starts what it is given, as compute-sanitizer does, and says what a test wants it to have found. The tools
themselves are tested on a GPU (tests/gpu/test_audit.py).
"""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.policy import apply, parse_policy
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome, RefereeConfig, SourcePart, Task
from harness.hostcuda.translate.build import prepare_headers
from harness.protocol.messages import Attach
from harness.referee.audit import small_workload, timeouts
from harness.referee.audit.auditor import Auditor
from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.audit.small_workload import KEPT, SmallWorkspaces
from harness.referee.contestants.process import ContestantProcess
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.workspace import NoRoom, Workspace
from harness.referee.referee import Referee
from harness.referee.worker import PRELOADED, PRELOADED_HOST
from harness.sandbox.zygote import Zygote
from harness.toolchain import default_root

PROBLEM = textwrap.dedent(
    """
    import torch

    ROWS = 40
    COLUMNS = 64

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(x, dim=1)

    def get_inputs():
        return [torch.rand(ROWS, COLUMNS)]

    def get_init_inputs():
        return []
    """
)

SOLUTION = """
import os
import time

import torch

AUDITED = "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
RIGHT = "return torch.softmax(x, dim=1)"

RACE = textwrap.dedent(
    """\
    ========= Error: Race reported between Write access at racy(float *)+0x70 in cuda.cu:5
    =========     and Read access at racy(float *)+0x90 in cuda.cu:6 [128 hazards]
    =========
    """
)

TOOL = """#!{python}
import os, sys, time
words = sys.argv[1:]
tool, log = words[words.index("--tool") + 1], words[words.index("--log-file") + 1]
command = words[words.index("--log-file") + 2:]
open(log, "a").close()
os.environ["STANDIN_TOOL"] = tool
parent = os.getpid()
if tool == "racecheck" and os.fork() == 0:
    while os.getppid() == parent:
        if os.path.exists({finding!r}):
            with open(log, "a") as out:
                out.write(open({finding!r}).read())
        time.sleep(0.1)
    os._exit(0)
os.execvp(command[0], command)
"""


RUNTIME = prepare_headers(default_root()).folder
"""The host device's libraries, which audited contestants, being meant for GPUs, don't get by themselves."""


class Gate:
    """A file for which audited calls wait, and which the test makes. Contestants see its folder, and can't write to it.

    `audited` are the words in front of a solution's own that have it wait there while it is audited.
    """

    WAITS = "at the gate"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.audited = f"""if AUDITED and not os.path.exists({str(path)!r}):
            os.write(2, b"{self.WAITS}")
            while not os.path.exists({str(path)!r}):
                time.sleep(0.02)
        """
        self.shut = f"not os.path.exists({str(path)!r})"

    def open(self) -> None:
        self._path.touch()


class Court:
    def __init__(self, folder: Path, referee: Referee, finding: Path) -> None:
        self._folder, self.referee, self.finding = folder, referee, finding
        self._number = self._gates = 0
        self._shown = folder / "gates"
        self._shown.mkdir()

    def gate(self) -> Gate:
        self._gates += 1
        return Gate(self._shown / str(self._gates))

    def waiting(self, *tasks: Task) -> int:
        """How many audits of these tasks wait at a gate: each has a log of its own while it goes on."""
        logs = [log for task in tasks for log in task.log_path.parent.glob(f"{task.log_path.name}.*")]
        return sum(Gate.WAITS in log.read_text(errors="replace") for log in logs)

    def task(self, body: str, *, timed: bool = False) -> Task:
        self._number += 1
        text = "__global__ void racy(float* x) {\n  a(x);\n  b(x);\n}\n__shared__ int s;\n"
        return Task(
            problem=Problem(
                id="level1/23", name="softmax", path=Path("23.py"), source=PROBLEM, digest=digest_text(PROBLEM)
            ),
            workload=Workload(name="full"),
            source=SOLUTION.format(body=body) + "# __shared__ __syncthreads\n",
            filename="23_test.py",
            modules=(),
            readable=(RUNTIME, self._shown),
            log_path=self._folder / f"{self._number}.log",
            timed=timed,
            small=Workload(name="small", sizes={"ROWS": 7, "COLUMNS": 33}),
            parts=(SourcePart(file="cuda.cu", name="cuda source 1", text=text, begin=1),),
            kernels=("racy",),
        )


class Retried:
    """Notes how often a referee ends the audits of others, for one who finds no memory beside them; gates given to
    `opens` let those come to their end then, and no sooner."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._gates: list[Gate] = []
        end = Referee._end_others

        def noted(referee: Referee) -> None:
            self.times += 1
            for gate in self._gates:
                gate.open()
            end(referee)

        monkeypatch.setattr(Referee, "_end_others", noted)

    def opens(self, gate: Gate) -> None:
        self._gates.append(gate)


@contextmanager
def a_court(folder: Path, contestants: Zygote) -> Iterator[Court]:
    finding = folder / "finding"
    tool = folder / "compute-sanitizer"
    tool.write_text(TOOL.format(python=sys.executable, finding=str(finding)))
    tool.chmod(0o755)
    config = RefereeConfig(
        host_runtime=str(RUNTIME), device=DeviceKind.HOST, device_index=0, sandbox="auto", checked=True, seeds=2,
        device_policy="strict",
        load_timeout_s=60.0, call_timeout_s=20.0, solution_timeout_s=120.0, min_samples=8, sets_per_burst=4,
        relative_half_width=0.5, budget_s=1.0, memory_limit_bytes=4 * 2**30, sanitizer=str(tool),
    )  # fmt: skip
    preload = (*PRELOADED, *PRELOADED_HOST)
    with (
        Auditor(str(tool), preload=preload, logs=folder, sandbox="auto", memory_limit_bytes=4 * 2**30) as auditor,
        Referee(config, contestants, auditor=auditor) as referee,
    ):
        yield Court(folder, referee, finding)


@pytest.fixture(scope="module")
def court(
    tmp_path_factory: pytest.TempPathFactory, contestant_zygote: Callable[[DeviceKind], Zygote]
) -> Iterator[Court]:
    with a_court(tmp_path_factory.mktemp("side"), contestant_zygote(DeviceKind.HOST)) as held:
        yield held


@pytest.fixture
def fresh_court(tmp_path: Path, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Iterator[Court]:
    """Its own, since what the stand-in has beside the tool's process is ended with the first contestant."""
    with a_court(tmp_path, contestant_zygote(DeviceKind.HOST)) as held:
        yield held


def test_the_audited_calls_tell_that_small_sizes_are_right(court: Court) -> None:
    outcome = court.referee.judge(court.task(RIGHT))
    assert (outcome.status, outcome.labels) == (Status.passed, ()), outcome
    assert outcome.evidence["small_workload"] == {"status": "passed", "reason": "correct in the audited calls"}, outcome
    assert all("not_run" not in held for held in outcome.evidence["audit"]["tools"].values()), outcome.evidence["audit"]


def test_wrong_at_small_sizes_is_a_label(court: Court) -> None:
    body = "return torch.softmax(x, dim=1) if x.shape[0] == 40 else torch.softmax(x, dim=0)"
    outcome = court.referee.judge(court.task(body))
    assert (outcome.status, outcome.labels) == (Status.passed, ("specialised_shape",)), outcome
    assert outcome.evidence["small_workload"]["status"] == "wrong_value"


def test_what_fails_at_small_sizes_was_not_audited_either(court: Court) -> None:
    outcome = court.referee.judge(court.task("assert x.shape[0] == 40\n        return torch.softmax(x, dim=1)"))
    assert (outcome.status, outcome.labels) == (Status.passed, ("specialised_shape", "audit_incomplete")), outcome
    assert outcome.evidence["small_workload"]["status"] == "runtime_error"
    assert {held["ended"] for held in outcome.evidence["audit"]["tools"].values()} == {"AssertionError:"}


def test_a_tool_that_gives_no_answer_is_ended_and_told(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the other tools took: one that hangs is no tool that found nothing."""
    monkeypatch.setattr(timeouts, "STEP_FLOOR_S", 2.0)
    monkeypatch.setattr(timeouts, "TIMES_OTHERS", 1.0)
    hang = 'while os.environ.get("STANDIN_TOOL") == "synccheck":\n            time.sleep(0.1)\n        '
    outcome = court.referee.judge(court.task(hang + RIGHT))
    assert (outcome.status, outcome.labels) == (Status.passed, ("audit_incomplete",)), outcome
    tools = outcome.evidence["audit"]["tools"]
    assert [name for name, held in tools.items() if "ended" in held or "not_run" in held] == ["synccheck"], tools
    said = tools["synccheck"]["ended"]
    assert said.startswith("a call took more than "), said
    assert re.search(r"; the whole solution took at most \d+\.\d s under .*memcheck", said), said
    assert said.endswith("may have a barrier that some threads of a block never reach"), said
    refused = apply(parse_policy({"refuse_labels": ["audit_incomplete"]}), outcome)
    assert refused.status is Status.disqualified
    assert "a tool of the audit was missing or did not finish" in refused.reason


def test_a_tool_that_is_stuck_before_it_sees_anything_is_asked_again(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped while it opens its device, and by nobody that would let it go on."""
    monkeypatch.setattr("harness.referee.audit.auditor.OPEN_LIMIT_S", 2.0)
    stuck: list[ContestantProcess] = []
    attach = ContestantProcess.attach

    def attach_stopped(self: ContestantProcess, request: Attach, fd: int, timeout_s: float) -> None:
        if "network_shared_with_zygote" in self.sandbox.mechanisms and not stuck:  # only those under a tool
            stuck.append(self)
            target = self._child.target_pid()
            assert target is not None
            os.kill(target, signal.SIGSTOP)
        attach(self, request, fd, timeout_s)

    monkeypatch.setattr(ContestantProcess, "attach", attach_stopped)
    outcome = court.referee.judge(court.task(RIGHT))
    assert (outcome.status, outcome.labels) == (Status.passed, ()), outcome
    assert stuck
    assert stuck[0].exit_report is not None
    assert not any({"ended", "not_run"} & set(held) for held in outcome.evidence["audit"]["tools"].values())


@pytest.mark.parametrize("small", [True, False], ids=["no room", "too large"])
def test_what_nothing_could_audit_says_so(court: Court, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    task = court.task(RIGHT)
    if small:

        def no_room(problem: Problem, workload: Workload) -> Workspace:
            raise NoRoom("none left")

        monkeypatch.setattr(court.referee._alongside.workspaces, "lend", no_room)
    else:
        task = replace(task, small=None)
        monkeypatch.setattr(small_workload, "LARGEST_FULL_BYTES", 1)
    outcome = court.referee.judge(task)
    assert (outcome.status, outcome.labels) == (Status.passed, ("audit_incomplete",)), outcome
    assert ("no small workload" in outcome.evidence["audit"]["not_run"]) is not small
    kernelless = replace(task, parts=(), log_path=task.log_path.with_suffix(".plain"))
    assert court.referee.judge(kernelless).labels == ()


def test_time_in_which_tools_are_held_is_nobodys(court: Court) -> None:
    auditor = court.referee._auditor
    assert auditor is not None
    clock = auditor.zygotes.clock
    auditor.zygotes.hold()
    auditor.zygotes.hold()
    held_s = clock()
    time.sleep(0.05)
    assert clock() == held_s
    auditor.zygotes.release()
    begin_s = clock()
    while clock() == begin_s:
        time.sleep(0.001)
    assert clock() > held_s


def test_wrong_only_under_a_tool_is_the_tools_matter(court: Court) -> None:
    """Values under a tool are no ground for a label: the small workload is judged without it then."""
    outcome = court.referee.judge(court.task("return torch.softmax(x, dim=1) * (0.5 if AUDITED else 1.0)"))
    assert (outcome.status, outcome.labels) == (Status.passed, ()), outcome
    assert outcome.evidence["small_workload"]["reason"].startswith("right on every input variant")


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60.0
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_audits_go_on_at_once_and_stand_still_together(court: Court) -> None:
    auditor = court.referee._auditor
    assert auditor is not None
    gate = court.gate()
    slow = [court.task(gate.audited + RIGHT) for _ in range(2)]
    assert [court.referee.begin(task) for task in slow] == [None, None]
    wait_for(lambda: court.waiting(*slow) == 2 * len(SanitizerTool))
    assert auditor.zygotes.hold()
    try:
        gate.open()
        time.sleep(1.5)  # longer than each needs to see it
        assert auditor.zygotes.active == court.waiting(*slow) == 2 * len(SanitizerTool)
    finally:
        auditor.zygotes.release()
    assert [court.referee.settle(task).status for task in slow] == [Status.passed, Status.passed]
    assert len(auditor.zygotes) == 2 * len(SanitizerTool)


def test_an_audit_that_has_not_begun_is_given_up_at_once(court: Court) -> None:
    """One whose turn never came: those before it stand still, and nobody waits for them."""
    referee, auditor = court.referee, court.referee._auditor
    assert auditor is not None
    gate = court.gate()
    slow = [court.task(gate.audited + RIGHT) for _ in range(2)]
    assert [referee.begin(task) for task in slow] == [None, None]
    wait_for(lambda: auditor.zygotes.active == 2 * len(SanitizerTool))
    assert auditor.zygotes.hold()
    try:
        late = court.task(gate.audited + RIGHT)
        assert late.small is not None
        side = referee._alongside.begin(late, late.small)
        assert side is not None
        given_up = threading.Thread(target=side.cancel, daemon=True)
        given_up.start()
        given_up.join(30.0)
        assert not given_up.is_alive()
        assert side.audit.over
    finally:
        gate.open()
        auditor.zygotes.release()
    assert [referee.settle(task).status for task in slow] == [Status.passed, Status.passed]


def test_a_verdict_waits_for_its_audit_while_others_are_judged(court: Court) -> None:
    gate = court.gate()
    slow, quick = court.task(gate.audited + RIGHT, timed=True), court.task("return x.softmax(1)", timed=True)
    assert court.referee.begin(slow) is None
    assert not court.referee.due(slow)
    # While the other's audit goes on this one is left open, too, or judged to its end.
    second = court.referee.begin(quick)
    gate.open()
    end = time.monotonic() + 60.0
    while not court.referee.due(slow):
        assert time.monotonic() < end
        time.sleep(0.01)
    first = court.referee.settle(slow)
    second = second or court.referee.settle(quick)
    for outcome in (first, second):
        assert (outcome.status, outcome.labels) == (Status.passed, ()), outcome
        assert outcome.speedup is not None
        assert outcome.evidence["small_workload"]["status"] == "passed"
        assert outcome.evidence["stages_s"]["audit"] > 0.0
        assert outcome.evidence["defences_s"]["audit"] > 0.0
    with pytest.raises(KeyError):
        court.referee.settle(slow)


@pytest.mark.parametrize("late", [False, True])
def test_a_problem_that_only_an_audits_draws_show_to_be_at_fault_is_told(
    court: Court, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    def at_fault(*_: Any) -> None:
        raise ProblemError("the reference changes its state seen on some draws only")

    monkeypatch.setattr("harness.referee.background_checks._wrong_values", at_fault)
    gate = court.gate()
    task = court.task((gate.audited if late else "") + RIGHT, timed=True)
    outcome = court.referee.begin(task)
    assert outcome is None or not late
    gate.open()
    outcome = outcome or court.referee.settle(task)
    assert outcome.status is Status.harness_error
    assert "level1/23: the reference changes its state seen" in outcome.reason
    assert outcome.speedup is None
    assert not any(held.lent for held in court.referee._alongside.workspaces._held)


def test_a_late_finding_takes_the_pass_away_and_explains_wrong_values(fresh_court: Court) -> None:
    fresh_court.finding.write_text(RACE)
    gate = fresh_court.gate()
    right, wrong = (fresh_court.task(gate.audited + body, timed=True) for body in (RIGHT, RIGHT + " + 0.5"))
    assert [fresh_court.referee.begin(task) for task in (right, wrong)] == [None, None]
    gate.open()
    for task in (right, wrong):
        outcome = fresh_court.referee.settle(task)
        assert outcome.status is Status.data_race, outcome.evidence["audit"]
        assert outcome.speedup is None
        assert outcome.timing is None
        assert outcome.evidence["reports"][0]["kernel"] == "racy"
        assert ("at full size" in outcome.reason) is (task is wrong), outcome.reason


def test_a_tool_that_could_not_keep_all_has_not_seen_all(fresh_court: Court) -> None:
    fresh_court.finding.write_text("========= Warning: Maximum number of hazards reached. ...\n=========\n")
    gate = fresh_court.gate()
    task = fresh_court.task(gate.audited + RIGHT)
    assert fresh_court.referee.begin(task) is None
    gate.open()
    outcome = fresh_court.referee.settle(task)
    assert (outcome.status, outcome.labels) == (Status.passed, ("audit_incomplete",)), outcome
    ended = {name: held["ended"] for name, held in outcome.evidence["audit"]["tools"].items() if "ended" in held}
    assert ended == {"racecheck": "the kernels have more pairs of accesses than racecheck can store"}


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> Retried:
    return Retried(monkeypatch)


def test_memory_that_audits_of_others_took_is_not_missed_by_who_is_judged(court: Court, retried: Retried) -> None:
    """Tried again without them: here what is short comes back as their audits end."""
    gate = court.gate()
    retried.opens(gate)
    waiting = court.task(gate.audited + RIGHT)
    assert court.referee.begin(waiting) is None
    outcome = court.referee.judge(court.task(f"if {gate.shut}:\n            raise MemoryError\n        {RIGHT}"))
    assert outcome.status is Status.passed, outcome
    assert retried.times == 1
    assert court.referee.settle(waiting).status is Status.passed
    alone = court.referee.judge(court.task("raise MemoryError"))
    assert alone.status is Status.out_of_memory


def test_what_says_itself_what_is_wrong_needs_no_audit(court: Court) -> None:
    outcome = court.referee.begin(court.task(court.gate().audited + "return torch.softmax(x, dim=1)[:1]"))
    assert outcome is not None
    assert outcome.status is Status.wrong_shape
    assert "audit" not in outcome.evidence


def test_solutions_under_way_never_share_a_workspace(court: Court) -> None:
    class Lent:
        """Stands where a bench does: only its identity and its end matter here."""

        def __init__(self) -> None:
            self.closed, self.published = False, 0

        def publish(self) -> None:
            self.published += 1

        def close(self) -> None:
            self.closed = True

    made: list[Lent] = []

    def make(problem: Problem, workload: Workload) -> Lent:
        made.append(Lent())
        return made[-1]

    workspaces = SmallWorkspaces(make)  # type: ignore[arg-type]
    task = court.task(RIGHT)
    small = task.small
    assert small is not None
    lend: Callable[[], object] = lambda: workspaces.lend(task.problem, small)  # noqa: E731
    first, second = lend(), lend()
    assert first is not second
    workspaces.give_back(first)  # type: ignore[arg-type]
    workspaces.give_back(first)  # type: ignore[arg-type]
    assert lend() is first
    assert made[0].published == 2  # wiped before each
    larger = replace(small, sizes={**small.sizes, "ROWS": 8})
    workspaces.get_ready(task.problem, larger)
    assert workspaces.lend(task.problem, larger) is made[-1], "other sizes by the same name"
    workspaces.give_back(made.pop())  # type: ignore[arg-type]
    for number in range(KEPT + 3):
        other = replace(task.problem, digest=f"{number}")
        workspaces.give_back(workspaces.lend(other, small))
    assert not made[0].closed, "one that is lent is never closed"
    assert not made[1].closed
    assert sum(not held.closed for held in made) == 2 + KEPT
    workspaces.close()
    assert all(held.closed for held in made)


@pytest.mark.parametrize(
    ("source", "later"),
    [
        ("load_inline(name='x')", False),
        ("from triton import jit", True),
        ("cupy.RawKernel", True),
        ("import cutlass.cute as cute", True),
        ("import tilelang", True),
        ("#include <cutlass/gemm.h>  // a warp", False),
    ],
)
def test_kernels_may_be_built_later_by_what_the_source_names(source: str, later: bool) -> None:
    task = Task(
        problem=Problem(id="level1/1", name="p", path=Path("1_p.py"), source="", digest=digest_text("")),
        workload=Workload(name="full"),
        source=source,
        filename="1_a.py",
        modules=(),
        readable=(),
        log_path=Path("log"),
        timed=True,
    )
    assert small_workload.builds_later(task) is later
    if later:
        passed = Outcome(status=Status.passed, reason="")
        untold = small_workload.unaudited(task, passed, 3 * 2**40)
        assert "3145728 MiB a set are too much" in untold.evidence["audit"]["not_run"]

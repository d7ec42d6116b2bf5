"""What audits of other solutions take must not become the verdict on the one that is judged beside them.

Real referee, contestants and audits on the host device; of the tools a stand-in
(tests/unit/referee/audit/test_small_workload.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Workload
from harness.core.status import Status
from harness.protocol.messages import Attach, Broken, Stage
from harness.referee.audit.audit import AuditSubject
from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.audit.small_workload import subject_of
from harness.referee.audit.zygotes import SanitizerZygotes
from harness.referee.contestants.failures import failure_of
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.correctness.perturbed_input import PerturbedInput
from harness.referee.correctness.verifier import Verifier
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.problem.stress_variants import checked_variants
from harness.sandbox.zygote import Zygote
from tests.unit.referee.audit.test_small_workload import RIGHT, Court, Retried, a_court

BEYOND = """========= Invalid __global__ read of size 4 bytes
=========     at racy(const float *, float *)+0xc0 in cuda.cu:2
=========     by thread (104,1,0) in block (7,0,2)
=========     Access at 0x7f2b3ba00fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2b3ba00000 of size 4,000 bytes
=========
"""


@pytest.fixture(scope="module")
def court(
    tmp_path_factory: pytest.TempPathFactory, contestant_zygote: Callable[[DeviceKind], Zygote]
) -> Iterator[Court]:
    with a_court(tmp_path_factory.mktemp("beside"), contestant_zygote(DeviceKind.HOST)) as held:
        yield held


@pytest.fixture
def fresh_court(tmp_path: Path, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Iterator[Court]:
    with a_court(tmp_path, contestant_zygote(DeviceKind.HOST)) as held:
        yield held


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> Retried:
    return Retried(monkeypatch)


def test_memory_that_is_short_while_timing_is_tried_again_without_them(court: Court, retried: Retried) -> None:
    """Also where the answers were right and the audit goes on: that it is owed must not make it final."""
    gate = court.gate()
    retried.opens(gate)
    waiting = court.task(gate.audited + RIGHT)
    assert court.referee.begin(waiting) is None
    # Verification makes fewer than a dozen calls, and timing more.
    short = f"""self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 12 and {gate.shut} and not AUDITED:
            raise MemoryError
        """
    outcome = court.referee.judge(court.task(short + gate.audited + RIGHT, timed=True))
    assert outcome.status is Status.passed, outcome
    assert retried.times == 1
    assert court.referee.settle(waiting).status is Status.passed


def test_a_contestant_without_memory_to_start_with_is_tried_again_without_them(
    court: Court, retried: Retried, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = court.gate()
    retried.opens(gate)
    waiting = court.task(gate.audited + RIGHT)
    assert court.referee.begin(waiting) is None
    attach, tried = ContestantProcess.attach, 0

    def attach_if_there_is_room(self: ContestantProcess, request: Attach, fd: int, timeout_s: float) -> None:
        nonlocal tried
        if threading.current_thread() is threading.main_thread() and court.referee._owed:
            tried += 1
            message = "CUDA error: out of memory"
            raise ContestantFailed(
                failure_of(
                    Broken(
                        stage=Stage.ATTACH, kind="AcceleratorError", message=message, trace="", call=None, reports=()
                    )
                )
            )
        attach(self, request, fd, timeout_s)

    monkeypatch.setattr(ContestantProcess, "attach", attach_if_there_is_room)
    outcome = court.referee.judge(court.task(RIGHT))
    assert tried == 1
    assert outcome.status is Status.passed, outcome
    assert court.referee.settle(waiting).status is Status.passed


def test_a_problem_whose_inputs_find_no_room_is_tried_again_without_them(
    court: Court, retried: Retried, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = court.gate()
    retried.opens(gate)
    waiting = court.task(gate.audited + RIGHT)
    assert court.referee.begin(waiting) is None
    device = court.referee.device
    free: Callable[[], int] = device.free_bytes
    monkeypatch.setattr(type(device), "free_bytes", lambda self, enough=None: 0 if court.referee._owed else free())
    larger = replace(court.task(RIGHT), workload=Workload(name="larger", sizes={"ROWS": 50}))
    outcome = court.referee.judge(larger)
    assert outcome.status is Status.passed, outcome
    monkeypatch.setattr(type(device), "free_bytes", lambda self, enough=None: 0)
    largest = replace(court.task(RIGHT), workload=Workload(name="largest", sizes={"ROWS": 60}))
    alone = court.referee.judge(largest)
    assert alone.status is Status.harness_error
    assert "do not fit" in alone.reason


@pytest.mark.parametrize("drawing", [False, True], ids=["bench", "inputs"])
def test_nobody_goes_unaudited_for_the_memory_that_audits_of_others_take(
    court: Court, retried: Retried, monkeypatch: pytest.MonkeyPatch, drawing: bool
) -> None:
    court.referee._alongside.workspaces.close()  # none is left over that would do for the second
    gate = court.gate()
    retried.opens(gate)
    waiting, judged = court.task(gate.audited + RIGHT), court.task(RIGHT)
    assert court.referee.begin(waiting) is None
    device = court.referee.device
    free: Callable[[], int] = device.free_bytes

    def subject_if_there_is_room(*args: Any, **more: Any) -> AuditSubject:
        if court.referee._owed:
            raise MemoryError
        return subject_of(*args, **more)

    if drawing:
        monkeypatch.setattr("harness.referee.background_checks.subject_of", subject_if_there_is_room)
    else:
        monkeypatch.setattr(type(device), "free_bytes", lambda self, enough=None: 0 if court.referee._owed else free())
    outcome = court.referee.judge(judged)
    assert outcome.status is Status.passed, outcome
    assert "audit" in outcome.evidence
    assert retried.times == 1
    assert court.referee.settle(waiting).status is Status.passed
    assert not any(held.lent for held in court.referee._alongside.workspaces._held)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Status.out_of_memory),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Status.out_of_memory),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", Status.cuda_error),
        ("CUDA error: an illegal memory access was encountered", Status.cuda_error),
    ],
)
def test_libraries_that_find_no_memory_say_so_in_their_own_words(message: str, status: Status) -> None:
    broken = Broken(stage=Stage.CALL, kind="RuntimeError", message=message, trace="", call=0, reports=())
    failure = failure_of(broken)
    assert failure.status is status
    short = status is Status.out_of_memory or "NOT_INITIALIZED" in message
    assert bool(failure.evidence.get("short_of_memory")) is short


def test_waiting_for_silence_takes_nothing_of_the_solutions_time(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "time.sleep(0.1 * (not AUDITED))\n        "
    begun = time.monotonic()
    outcome = court.referee.judge(court.task(slow + RIGHT, timed=True))
    assert outcome.status is Status.passed, outcome
    limit_s = 2 * (time.monotonic() - begun)  # however busy the machine is, the solution itself needs less
    hurried = replace(court.referee.config, solution_timeout_s=limit_s)
    monkeypatch.setattr(court.referee, "context", replace(court.referee.context, config=hurried))
    waited = GpuExclusive.begin

    def long_wait(self: GpuExclusive) -> None:
        waited(self)
        if not self.audits_s > limit_s / 2:
            time.sleep(limit_s + 1.0)  # as where a kernel of an audit's can't be stopped, and is let come to its end
            self.last_s += limit_s + 1.0
            self.audits_s += limit_s + 1.0

    monkeypatch.setattr(GpuExclusive, "begin", long_wait)
    outcome = court.referee.judge(court.task(slow + RIGHT, timed=True))
    assert outcome.status is Status.passed, outcome
    assert outcome.timing is not None


def test_who_waits_for_draws_and_checks_alone_is_convicted_of_nothing(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_s = 6.0
    hurried = replace(court.referee.config, solution_timeout_s=limit_s)
    monkeypatch.setattr(court.referee, "context", replace(court.referee.context, config=hurried))
    check = Verifier.check

    def slow_check(self: Verifier, *arguments: Any, **options: Any) -> Any:
        time.sleep(limit_s)  # as where sizes are too large for the machine
        return check(self, *arguments, **options)

    monkeypatch.setattr(Verifier, "check", slow_check)
    outcome = court.referee.judge(court.task(RIGHT, timed=True))
    assert outcome.status is Status.harness_error, outcome
    assert "all calls and checks together took longer than 6 s (--solution-timeout), of which its code took" in (
        outcome.reason
    )
    assert "take a smaller --workload" in outcome.reason


def test_one_that_takes_its_place_at_once_is_not_replaced_again(court: Court, tmp_path: Path) -> None:
    """Else each that is lost while audits wait for their turn would leave one zygote more than before."""
    sanitizer_zygotes = SanitizerZygotes(
        str(tmp_path / "compute-sanitizer"),
        preload=("json",),
        logs=tmp_path,
        most=dict.fromkeys(SanitizerTool, 2),
        again=lambda tool: None,
    )
    try:
        lost, other = sanitizer_zygotes.take(SanitizerTool.MEMCHECK), sanitizer_zygotes.take(SanitizerTool.MEMCHECK)
        sanitizer_zygotes.drop(lost)
        sanitizer_zygotes.give_back(sanitizer_zygotes.take(SanitizerTool.MEMCHECK))
        sanitizer_zygotes.prepare(SanitizerTool.MEMCHECK)  # what `again` asks for, when its turn comes
        assert len(sanitizer_zygotes) == 2
        sanitizer_zygotes.drop(other)
        sanitizer_zygotes.prepare(SanitizerTool.MEMCHECK)
        assert len(sanitizer_zygotes) == 2
    finally:
        sanitizer_zygotes.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What audits and the last check of answers were told, in order."""
    told: list[str] = []

    def note(owner: type, name: str) -> None:
        whole = getattr(owner, name)

        def noted(self: object, *arguments: object) -> object:
            told.append(name)
            return whole(self, *arguments)

        monkeypatch.setattr(owner, name, noted)

    for name in ("announce", "begin", "withdraw"):
        note(GpuExclusive, name)
    note(PerturbedInput, "check")
    return told


def test_audits_are_told_of_the_silence_before_the_last_check(court: Court, told: list[str]) -> None:
    """One under way beside it stands still for the measurement, and goes on after it."""
    gate = court.gate()
    waiting = court.task(gate.audited + RIGHT)
    assert court.referee.begin(waiting) is None
    assert "announce" not in told  # it is not timed
    told.clear()
    outcome = court.referee.judge(court.task(RIGHT, timed=True))
    assert outcome.status is Status.passed, outcome
    assert told[:3] == ["announce", "check", "begin"], told
    gate.open()
    assert court.referee.settle(waiting).status is Status.passed


@pytest.mark.parametrize("end", ["os._exit(3)", "return x"], ids=["dies", "wrong"])
def test_nothing_stays_held_where_no_measurement_follows(court: Court, told: list[str], end: str) -> None:
    gate = court.gate()
    waiting, failing = court.task(gate.audited + RIGHT), court.task(RIGHT, timed=True)
    assert court.referee.begin(waiting) is None
    told.clear()
    fails = f"""self.calls = getattr(self, "calls", 0) + 1
        if self.calls > {len(checked_variants(failing.problem, court.referee.config.seeds))} and not AUDITED:
            {end}
        """
    outcome = court.referee.judge(court.task(fails + RIGHT, timed=True))
    assert outcome.status is not Status.passed, outcome
    assert told == ["announce", "check", "withdraw"], told
    gate.open()
    assert court.referee.settle(waiting).status is Status.passed


def test_nothing_stays_held_where_the_last_check_raises(
    court: Court, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = court.gate()
    waiting, judged = (court.task(gate.audited + RIGHT, timed=timed) for timed in (False, True))
    assert court.referee.begin(waiting) is None
    told.clear()

    def fails(self: PerturbedInput, answered: object) -> None:
        raise RuntimeError("a fault of the harness")

    with monkeypatch.context() as patch:
        patch.setattr(PerturbedInput, "check", fails)
        with pytest.raises(RuntimeError, match="a fault of the harness"):
            court.referee.judge(judged)
    assert told == ["announce", "withdraw"]
    gate.open()
    assert court.referee.settle(waiting).status is Status.passed


def test_a_finding_is_confirmed_though_silence_was_announced(fresh_court: Court, told: list[str]) -> None:
    """The tool that is to watch a call at full size would wait for the silence's end, and the silence for it."""
    court = fresh_court
    auditor = court.referee._auditor
    assert auditor is not None
    court.finding.write_text(BEYOND)
    task = court.task("time.sleep(0.5 * AUDITED)\n        " + RIGHT, timed=True)
    court.referee._begin_small(task)
    side = court.referee._sides[str(task.log_path)]
    assert side is not None
    while not side.ready:
        time.sleep(0.01)
    waits_for_ever = threading.Timer(60.0, auditor.zygotes.release)
    waits_for_ever.start()
    try:
        outcome = court.referee.judge(task)
        assert waits_for_ever.is_alive()
    finally:
        waits_for_ever.cancel()
    assert told[:2] == ["announce", "check"], told
    assert "audit_at_full_size" in outcome.evidence, outcome

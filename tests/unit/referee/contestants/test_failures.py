"""What an exception means, alone and with findings: the cause is told, and a report is worth nothing to its sender."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Failure, Status
from harness.protocol.messages import Broken, Stage
from harness.referee.contestants.failures import MAX_REASON, REFUSAL, explained, failure_of, standing
from harness.referee.contestants.findings import STATUS_OF_KIND
from harness.referee.contestants.process import ContestantProcess
from harness.referee.context import EvidenceLog
from harness.results.reward import reward_of
from harness.sandbox.policy import Cause, ExitReport

BAD_ACCESS = {"kind": "memory_error", "kernel": "relu", "line": 14, "message": "out of bounds"}
DIED = Failure(
    status=Status.crashed,
    reason="the process died of SIGSEGV while calling forward",
    evidence={"stage": "call", "exit_code": None, "signal": 11},
)
LATE = Failure(status=Status.timeout, reason="no answer within 5 s", evidence={"stage": "call", "timeout_s": 5.0})
GRAPH = {"kind": "not_emulated", "message": "CUDA graphs", "line": None, "count": 1}
KERNEL = {"kind": "not_emulated", "message": "inline PTX: wgmma", "kernel": "matmul", "line": 7}
FAILED = Failure(
    status=Status.cuda_error,
    reason="RuntimeError: CUDA error: an illegal memory access was encountered",
    evidence={"stage": "call", "call": 0},
    detail="Traceback ...",
)


def ended(status: Status, detail: str = "") -> Failure:
    return replace(FAILED, status=status, detail=detail)


def record(failure: Failure) -> Record:
    return Record(
        problem="level1/19",
        author="a",
        solution="a/level1/19_a.py",
        device=DeviceKind.HOST,
        workload="small",
        status=failure.status,
        reason=failure.reason,
        evidence=failure.evidence,
        finished_at="2026-01-01T00:00:00Z",
    )


def test_a_finding_is_the_verdict_and_the_exception_is_told_behind_it() -> None:
    failure = explained(FAILED, [BAD_ACCESS])
    assert failure.status is Status.memory_error
    assert failure.reason == f"relu, line 14: out of bounds; it ended with {FAILED.reason}"
    assert failure.evidence == {**FAILED.evidence, "reports": [BAD_ACCESS], "ended_as": "cuda_error"}
    assert failure.detail == FAILED.detail


def test_without_findings_nothing_is_changed() -> None:
    assert explained(FAILED, []) is FAILED


def test_findings_that_decide_nothing_are_kept_and_make_their_labels() -> None:
    leak = {"kind": "leak", "message": "1 allocation of device memory"}
    failure = explained(FAILED, [leak])
    assert (failure.status, failure.reason) == (FAILED.status, FAILED.reason)
    assert failure.evidence["reports"] == [leak]
    assert "ended_as" not in failure.evidence
    assert EvidenceLog(labels=["static_buffer"]).failed(failure).labels == ("static_buffer", "leaks_memory")


@pytest.mark.parametrize(
    ("stood_in", "told"),
    [
        ({"kernel": "relu", "line": 14, "file": "19_a.py", "signal": 11}, "in kernel relu, line 14"),
        ({"kernel": "relu", "line": 3, "file": "cuda source 2"}, "in kernel relu, line 3 of cuda source 2"),
        ({"kernel": "relu", "line": 30, "launch": 2, "file": "19_a.py"}, "in kernel relu, launched on line 30"),
        ({"kernel": "relu", "line": None, "launch": 2}, "in kernel relu"),
        ({"kernel": "relu", "message": "its stack overflowed"}, "in kernel relu, its stack overflowed"),
        ({"line": 40, "file": "19_a.py"}, "outside of kernels, line 40"),
        ({"last_kernel": "relu"}, "outside of kernels, after relu"),
    ],
)
def test_where_a_process_stood_is_told(stood_in: dict[str, Any], told: str) -> None:
    failure = standing(DIED, stood_in)
    assert failure.reason == f"{DIED.reason}; it was {told}"
    assert failure.evidence == {**DIED.evidence, "stood_in": stood_in}
    assert failure.status is Status.crashed


@pytest.mark.parametrize("stood_in", [None, {}, {"signal": 11}, {"kernel": None, "last_kernel": ""}])
def test_a_place_that_is_not_known_is_not_told(stood_in: dict[str, Any] | None) -> None:
    assert standing(DIED, stood_in) is DIED


def test_a_place_of_any_shape_and_length_is_told_in_bounds() -> None:
    for odd in ("x" * 5000, 3, ["relu"], True, {"kernel": "relu"}):
        held = standing(DIED, {"kernel": odd, "line": odd, "file": odd, "message": odd, "last_kernel": odd})
        assert len(held.reason) <= MAX_REASON
        assert "\n" not in held.reason


@pytest.mark.parametrize("ended", [DIED, LATE])
def test_a_finding_is_the_verdict_and_the_death_is_told_behind_it(ended: Failure) -> None:
    failure = explained(ended, [BAD_ACCESS])
    assert failure.status is Status.memory_error
    assert failure.reason == f"relu, line 14: out of bounds; then {ended.reason}"
    assert failure.evidence["ended_as"] == ended.status.value


def test_what_was_not_emulated_explains_a_death_and_no_time_limit() -> None:
    assert explained(DIED, [KERNEL]).status is Status.not_emulated
    assert explained(LATE, [KERNEL]).status is Status.timeout
    assert explained(DIED, [GRAPH]).status is Status.crashed


@pytest.mark.parametrize("status", [Status.runtime_error, Status.bad_constructor, Status.import_error])
def test_what_the_host_device_refused_is_no_fault(status: Status) -> None:
    trace = f"NotImplementedError: {REFUSAL}CUDA graphs\n\nThe above exception ...\n\nRuntimeError: no graph\n"
    assert explained(ended(status, trace), [GRAPH]).status is Status.not_emulated


def test_a_kernel_that_was_ended_by_what_it_lacks_is_no_fault() -> None:
    assert explained(FAILED, [KERNEL]).status is Status.not_emulated


def test_a_refusal_that_was_caught_hides_no_other_mistake() -> None:
    failure = explained(ended(Status.runtime_error, "ValueError: on purpose"), [GRAPH])
    assert failure.status is Status.runtime_error
    assert failure.evidence["reports"] == [GRAPH]
    assert explained(FAILED, [GRAPH, BAD_ACCESS]).status is Status.memory_error


@pytest.mark.parametrize("status", [Status.syntax_error, Status.no_model_new, Status.compile_error])
def test_what_is_wrong_on_any_device_is_never_unjudged(status: Status) -> None:
    told = ended(status, f"NotImplementedError: {REFUSAL}CUDA graphs")
    assert explained(told, [GRAPH, KERNEL]).status is status


@pytest.mark.parametrize("status", sorted(set(Status) - VERDICT_FREE - {Status.passed, Status.disqualified}))
@pytest.mark.parametrize("kind", sorted(STATUS_OF_KIND))
def test_no_report_makes_a_failure_worth_more(status: Status, kind: str) -> None:
    """Rewards know steps: a race counts more than a file that can't be imported."""
    alone = ended(status)
    together = explained(alone, [{"kind": kind, "message": "made up"}])
    before, after = reward_of(record(alone)), reward_of(record(together))
    assert before is not None
    assert after is not None
    assert after <= before


@pytest.mark.parametrize("kind", ["NotEmulated", "Unsupported", "HarnessError"])
def test_no_exception_of_a_submission_s_own_counts_nowhere(kind: str) -> None:
    for stage in (Stage.IMPORT, Stage.CONSTRUCT, Stage.CALL):
        broken = Broken(stage=stage, kind=kind, message="tensor cores that nobody has", trace="", call=0)
        assert failure_of(broken).status not in VERDICT_FREE


def test_ended_as_of_any_shape_is_read(tmp_path: Path) -> None:
    odd: list[Any] = [None, 3, ["runtime_error"], "nothing known"]
    for held in odd:
        assert reward_of(record(replace(FAILED, evidence={"ended_as": held}))) == reward_of(record(FAILED))


@pytest.mark.parametrize(
    ("kind", "stage", "status"),
    [
        ("SyntaxError", Stage.IMPORT, Status.syntax_error),
        ("SyntaxError", Stage.CALL, Status.runtime_error),
        ("SyntaxError", Stage.CONSTRUCT, Status.bad_constructor),
        ("ValueError", Stage.IMPORT, Status.import_error),
        ("ValueError", Stage.CONSTRUCT, Status.bad_constructor),
        ("ValueError", Stage.CALL, Status.runtime_error),
        ("ValueError", Stage.ATTACH, Status.harness_error),
        ("MemoryError", Stage.CALL, Status.out_of_memory),
        ("NoModelNew", Stage.IMPORT, Status.no_model_new),
    ],
)
def test_an_exception_means_what_its_kind_and_stage_say(kind: str, stage: Stage, status: Status) -> None:
    assert failure_of(Broken(stage=stage, kind=kind, message="no", trace="", call=None)).status is status


@pytest.mark.parametrize(
    ("cause", "number", "status", "words"),
    [
        ("memory_limit", 9, Status.out_of_memory, "used more than 3.5 GiB of host memory, its limit, while"),
        ("machine_memory", 9, Status.harness_error, "this machine ran out of host memory while"),
        ("lost", None, Status.harness_error, "the harness lost track of the process while"),
        ("signalled", 11, Status.crashed, "the process died of SIGSEGV while"),
        ("exited", None, Status.crashed, "the process exited with code 3 while"),
    ],
)
def test_how_a_process_ended_is_told(cause: Cause, number: int | None, status: Status, words: str) -> None:
    ended = ExitReport(
        exit_code=None if number else 3,
        signal=number,
        cause=cause,
        wall_s=1.0,
        peak_memory_bytes=2**20,
        log_truncated=False,
    )
    process = SimpleNamespace(_exit=ended, _memory_limit_bytes=7 * 2**29)
    failure = ContestantProcess._died(cast("ContestantProcess", process), Stage.CALL)
    assert (failure.status, failure.reason.startswith(words)) == (status, True), failure.reason

"""What a background check makes of the audit's findings and of the verdict at the sizes that were asked for.

The checks as a whole, with a stand-in for the tools and real contestants: audit/test_small_workload.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Workload
from harness.core.status import Failure, Status
from harness.core.task import Outcome
from harness.referee import background_checks
from harness.referee.audit.audit import Audit, AuditResult
from harness.referee.audit.small_workload import INCOMPLETE, SPECIALISED
from harness.referee.background_checks import BackgroundChecks, SmallWorkloadCheck, settle
from harness.referee.problem.loader import ProblemError
from harness.referee.referee import Referee
from tests.unit.referee.test_referee import config, task

RACE = {"kind": "data_race", "tool": "racecheck", "message": "two threads write", "kernel": "k"}
OUTSIDE = {"kind": "memory_error", "tool": "memcheck", "message": "write of 4 bytes", "kernel": "k"}
DONE = {"memcheck": {"findings": 0, "wall_s": 1.0}, "racecheck": {"findings": 0, "wall_s": 1.0}}
WRONG = Failure(status=Status.wrong_value, reason="3 of 9 values are wrong", evidence={"at": "full size"})

TASK = task("", Path("log"), timed=True)


class Finished:
    """An audit that has come to its end."""

    over = True

    def __init__(self, *reports: dict[str, Any], tools: dict[str, dict[str, Any]] | None = None) -> None:
        self.cancelled = False
        self._result = AuditResult(reports=list(reports), tools=tools or DONE)

    def result(self) -> AuditResult:
        return self._result

    def cancel(self) -> None:
        self.cancelled = True


class Lent:
    """Counts the workspaces that are given back."""

    def __init__(self) -> None:
        self.given_back: list[object] = []

    def give_back(self, workspace: object) -> None:
        self.given_back.append(workspace)


def check(
    audit: Finished, monkeypatch: pytest.MonkeyPatch, *, at_full_size: Finished | None = None
) -> SmallWorkloadCheck:
    """A check whose values at the small sizes are right; `at_full_size` is what the tools find there."""

    def right(self: SmallWorkloadCheck, result: AuditResult) -> bool:
        return True

    def watched(self: SmallWorkloadCheck, tools: object) -> Audit:
        assert at_full_size is not None, "nothing asks for a call at full size"
        return cast("Audit", at_full_size)

    monkeypatch.setattr(SmallWorkloadCheck, "_compare_values", right)
    monkeypatch.setattr(SmallWorkloadCheck, "_audit_at_full_size", watched)
    return SmallWorkloadCheck(
        task=TASK,
        workload=Workload(name="small", sizes={"ROWS": 7}),
        workspace=cast("Any", "workspace"),
        context=cast("Any", None),
        auditor=cast("Any", None),
        workspaces=cast("Any", Lent()),
        audit=cast("Audit", audit),
    )


def test_a_race_counts_without_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    side = check(Finished(RACE), monkeypatch)
    failure = side.conclude(None)
    assert failure is not None
    assert failure.status is Status.data_race
    assert side.labels == []
    assert side.evidence["reports"] == [RACE]


def test_another_finding_counts_if_it_is_there_at_full_size_too(monkeypatch: pytest.MonkeyPatch) -> None:
    side = check(Finished(OUTSIDE), monkeypatch, at_full_size=Finished(OUTSIDE))
    failure = side.conclude(None)
    assert failure is not None
    assert failure.status is Status.memory_error
    assert side.evidence["audit_at_full_size"]["findings"] == 1


def test_a_finding_at_small_sizes_alone_is_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    side = check(Finished(OUTSIDE), monkeypatch, at_full_size=Finished())
    assert side.conclude(None) is None
    assert side.labels == [SPECIALISED]


@pytest.mark.parametrize("why", [{"not_run": "no memory"}, {"ended": "took longer than 30 s"}])
def test_a_tool_that_cannot_tell_at_full_size_clears_nobody(
    why: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unsure = Finished(tools={"memcheck": {"findings": 0, **why}})
    failure = check(Finished(OUTSIDE), monkeypatch, at_full_size=unsure).conclude(None)
    assert failure is not None
    assert failure.status is Status.memory_error


def test_a_tool_that_did_not_finish_is_a_label_of_what_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    for verdict, labels in ((None, [INCOMPLETE]), (WRONG, [])):
        side = check(Finished(tools={"racecheck": {"findings": 0, "not_run": "not installed"}}), monkeypatch)
        assert side.conclude(verdict) is verdict
        assert side.labels == labels


def test_a_finding_explains_wrong_values(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = check(Finished(RACE), monkeypatch).conclude(WRONG)
    assert failure is not None
    assert failure.status is Status.data_race
    assert failure.reason.endswith("at full size: 3 of 9 values are wrong")
    assert failure.evidence == WRONG.evidence


def outcome(status: Status, reason: str = "because") -> Outcome:
    return Outcome(
        status=status,
        reason=reason,
        speedup=2.0,
        timing={"rounds": 3},
        labels=("busy_host",),
        evidence={"stages_s": {"total": 1.0}},
    )


def test_what_no_finding_explains_ends_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Finished(RACE)
    side = check(audit, monkeypatch)
    refused = outcome(Status.disqualified)
    assert settle(side, refused) is refused
    assert audit.cancelled
    assert cast("Lent", side.workspaces).given_back == ["workspace"]


def test_a_pass_with_a_finding_loses_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = settle(check(Finished(RACE), monkeypatch), outcome(Status.passed))
    assert settled.status is Status.data_race
    assert settled.speedup is None
    assert settled.timing is None
    assert settled.labels == ("busy_host",)
    assert settled.evidence["stages_s"]["total"] >= 1.0


def test_a_pass_without_a_finding_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = settle(check(Finished(), monkeypatch), outcome(Status.passed))
    assert (settled.status, settled.speedup, settled.labels) == (Status.passed, 2.0, ("busy_host",))
    assert settled.evidence["audit"] == {"workload": "small", "tools": DONE, "findings": 0}


def test_a_fault_of_the_problem_is_not_the_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(self: SmallWorkloadCheck, failure: Failure | None) -> Failure | None:
        raise ProblemError("get_inputs: no such size")

    side = check(Finished(), monkeypatch)
    monkeypatch.setattr(SmallWorkloadCheck, "conclude", faulty)
    settled = settle(side, outcome(Status.passed))
    assert settled.status is Status.harness_error
    assert settled.reason == "problem level1/23: get_inputs: no such size"
    assert settled.speedup is None


def test_without_tools_or_without_kernels_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Referee(config(DeviceKind.HOST), cast("Any", None)) as referee:
        without = BackgroundChecks(referee.context, None)
        without.get_ready(TASK.problem, Workload(name="small"))
        assert without.begin(TASK, Workload(name="small")) is None
        watched = BackgroundChecks(referee.context, cast("Any", "tools"))
        monkeypatch.setattr(background_checks, "auditable", lambda task: False)
        assert watched.begin(TASK, Workload(name="small")) is None


def test_small_sizes_that_do_not_load_are_not_the_solutions_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_checks, "auditable", lambda task: True)
    with Referee(config(DeviceKind.HOST), cast("Any", None)) as referee:
        watched = BackgroundChecks(referee.context, cast("Any", "tools"))
        broken = replace(TASK.problem, source="def get_inputs():\n    return [undefined]\n", digest="broken")
        assert watched.begin(replace(TASK, problem=broken), Workload(name="small")) is None

"""Check solutions on a small workload beside their evaluations: values and audit.

Trusted side. Wrong values on the small workload only set a label: the solution is right only for the sizes that it was
written for. Findings of the audit decide the status. A data race counts always. Another finding, for instance an access
out of bounds, may only mean that the solution does not support the small size. If its values at full size are right,
the same tool watches one call at full size. The finding counts if it occurs there too or the tool can't finish there;
otherwise the solution gets the label. A tool that is missing or did not finish decides nothing, but sets a label.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.problem import Problem, Workload
from harness.core.status import Failure, Status, one_line
from harness.core.task import Outcome, Task
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.audit.audit import Audit, AuditResult, AuditSubject
from harness.referee.audit.auditor import Auditor
from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.audit.small_workload import (
    ANSWERED,
    AUDITED_CALLS,
    EXPLAINED,
    FIRST_FREE,
    INCOMPLETE,
    SPECIALISED,
    SmallWorkspaces,
    auditable,
    subject_of,
)
from harness.referee.contestants.client import attach_request
from harness.referee.contestants.findings import failure_of_reports
from harness.referee.contestants.process import ContestantFailed
from harness.referee.context import EvidenceLog, RefereeContext
from harness.referee.correctness.verifier import Verifier, overall
from harness.referee.correctness_stage import CorrectnessStage
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.stress_variants import checked_variants
from harness.referee.problem.workspace import NO_MEMORY, Workspace


class BackgroundChecks:
    """Starts the background checks of one referee. Not thread-safe.

    Args:
        context: What the referee's evaluations share.
        auditor: Runs the tools; None starts no check.
    """

    def __init__(self, context: RefereeContext, auditor: Auditor | None) -> None:
        self._context = context
        self._auditor = auditor
        self.workspaces = SmallWorkspaces(self._make)

    def get_ready(self, problem: Problem, workload: Workload) -> None:
        """Prepare a workspace for solutions to this problem.

        Raises `ProblemError` and `NO_MEMORY`.
        """
        if self._auditor is not None:
            self.workspaces.get_ready(problem, workload)

    def begin(self, task: Task, workload: Workload) -> SmallWorkloadCheck | None:
        """Start the checks on `workload`; None if there are none. Raises `NO_MEMORY`."""
        if self._auditor is None or not auditable(task):
            return None
        try:
            workspace = self.workspaces.lend(task.problem, workload)
        except NO_MEMORY:
            raise
        except ProblemError:
            return None  # faulty small sizes are not the solution's fault; `harness problems lint` reports them
        try:
            subject = _subject(self._context, task, workspace, AUDITED_CALLS)
        except NO_MEMORY:
            self.workspaces.give_back(workspace)
            raise
        return SmallWorkloadCheck(
            task=task,
            workload=workload,
            workspace=workspace,
            context=self._context,
            auditor=self._auditor,
            workspaces=self.workspaces,
            audit=self._auditor.begin(subject),
        )

    def close(self) -> None:
        """Close the workspaces, including lent ones."""
        self.workspaces.close()

    def _make(self, problem: Problem, workload: Workload) -> Workspace:
        calls = len(checked_variants(problem, self._context.config.seeds))
        return self._context.problem.make_workspace(problem, workload, sets_wanted=FIRST_FREE + calls)


def _subject(context: RefereeContext, task: Task, workspace: Workspace, calls: int) -> AuditSubject:
    attach = attach_request(context.config, workspace, own_allocations=True)
    return subject_of(task, workspace, attach, gpu_minor=context.gpu_minor, calls=calls)


@dataclass(slots=True, kw_only=True)
class SmallWorkloadCheck:
    """The running background check of one solution, over a lent workspace."""

    task: Task
    workload: Workload
    workspace: Workspace
    context: RefereeContext
    auditor: Auditor
    workspaces: SmallWorkspaces
    audit: Audit
    evidence: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    _over: bool = False

    @property
    def ready(self) -> bool:
        """Whether the tools have finished, so that `conclude` does not wait."""
        return self.audit.over

    def cancel(self) -> None:
        """End everything, for a solution whose failure needs no explanation."""
        if not self._over:
            self._over = True
            self.audit.cancel()
        self.workspaces.give_back(self.workspace)

    def conclude(self, failure: Failure | None) -> Failure | None:
        """Return the failure that follows from `failure` (full workload) and the findings.

        Fills `evidence` and `labels`.
        """
        result = self.audit.result()
        self._over = True
        try:
            compared = failure is None and self._compare_values(result)
        finally:
            self.workspaces.give_back(self.workspace)
        self.evidence["audit"] = {"workload": self.workload.name, **result.to_json()}
        if result.reports:
            self.evidence["reports"] = result.reports
        counting = [report for report in result.reports if report["kind"] == "data_race"]
        others = [report for report in result.reports if report["kind"] != "data_race"]
        if others and (not compared or self._confirmed(others)):
            counting += others
        elif others and SPECIALISED not in self.labels:
            self.labels.append(SPECIALISED)
        defect = failure_of_reports(counting)
        if defect is None and failure is None and result.incomplete:
            self.labels.append(INCOMPLETE)
        if defect is None:
            return failure
        if failure is None:
            return defect
        reason = f"{defect.reason}; at full size: {failure.reason}"[:600]
        return replace(defect, reason=reason, evidence=failure.evidence)

    def _confirmed(self, reports: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the same tools find something at full size too, or can't tell."""
        tools = {tool for tool in SanitizerTool if any(str(report["tool"]).endswith(tool.value) for report in reports)}
        self.audit, self._over = self._audit_at_full_size(tools), False
        result = self.audit.result()
        self._over = True
        self.evidence["audit_at_full_size"] = result.to_json()
        unsure = any("not_run" in each or "ended" in each for each in result.tools.values())
        return bool(result.reports) or unsure

    def _audit_at_full_size(self, tools: Collection[SanitizerTool]) -> Audit:
        workspace, _ = self.context.problem.ready(self.task)
        return self.auditor.begin(_subject(self.context, self.task, workspace, 1), tools)

    def _compare_values(self, result: AuditResult) -> bool:
        """Compare values on the small workload; False if it is the one evaluated anyway."""
        if self.workload == self.task.workload:
            return False
        status, reason = Status.passed, "correct in the audited calls"
        if result.answers is None or _wrong_values(self.task, self.workspace, result.answers) is not None:
            # This evaluation runs without a tool and uses all variants.
            failure, reason = self._values_without_tool(), "right on every input variant"
            if failure is not None:
                status, reason = failure.status, failure.reason
        self.evidence["small_workload"] = {"status": status.value, "reason": reason}
        if status not in (Status.passed, Status.harness_error):
            self.labels.append(SPECIALISED)
        return True

    def _values_without_tool(self) -> Failure | None:
        """Load the solution in a new process and check its outputs on the small workload."""
        task = replace(self.task, workload=self.workload, timed=False)
        log, begin = EvidenceLog(), time.perf_counter()
        first = FIRST_FREE if len(self.workspace.sets) > FIRST_FREE else 0  # no tool writes to these sets
        try:
            with self.context.contestant(task) as contestant:
                client = self.context.client(self.workspace, contestant, task, log, begin)
                client.load()
                return CorrectnessStage(self.context, client, log, first_set=first).run()
        except ContestantFailed as refused:
            return refused.failure


def explainable(outcome: Outcome) -> bool:
    """Whether findings of the background check may change this outcome."""
    return outcome.status is Status.passed or outcome.status in EXPLAINED


def settle(side: SmallWorkloadCheck, outcome: Outcome) -> Outcome:
    """Combine `outcome`, reached without `side`, with the result of `side`.

    Waits for the tools.
    """
    begin = time.perf_counter()
    if not explainable(outcome):
        side.cancel()
        return outcome
    failure = None
    if outcome.status is not Status.passed:
        failure = Failure(status=outcome.status, reason=outcome.reason, detail=outcome.detail)
    try:
        defect = side.conclude(failure)
    except ProblemError as error:  # inputs drawn for the audit may be the first to show the problem's fault
        reason = one_line(f"problem {side.task.problem.id}: {error}")
        return replace(outcome, status=Status.harness_error, reason=reason, speedup=None, timing=None)
    waited_s = time.perf_counter() - begin
    stages, defences = (dict(outcome.evidence.get(name, {})) for name in ("stages_s", "defences_s"))
    times = {
        "stages_s": {**stages, "audit": waited_s, "total": stages.get("total", 0.0) + waited_s},
        "defences_s": {**defences, "audit": waited_s},
    }
    labels = (*outcome.labels, *(label for label in side.labels if label not in outcome.labels))
    outcome = replace(outcome, evidence={**outcome.evidence, **side.evidence, **times}, labels=labels)
    if defect is None or defect is failure:
        return outcome
    return replace(
        outcome,
        status=defect.status,
        reason=defect.reason,
        evidence={**outcome.evidence, **defect.evidence},
        speedup=None,
        timing=None,
        detail=defect.detail,
    )


def _wrong_values(task: Task, workspace: Workspace, answers: Sequence[BurstDone]) -> Failure | None:
    """The defect in the answers of audited calls, or None."""
    verifier = Verifier(workspace, required=task.problem.precision, coerce=True)
    findings = [
        finding
        for index, done in zip(ANSWERED, answers, strict=True)
        for finding in verifier.check([PlannedCall(index=index, mode=CallMode.LATENCY)], done, with_reference=True)
    ]
    return overall(findings)

"""What a solution does on a small workload, beside its judgement at full size: values, and the audit.

Trusted side; used by the referee. Values on the small workload make no verdict: a solution that is right only for the
sizes it was written for gets a label. Findings of the audit do make one. A race counts wherever it is found. An access
outside of an array and the like may only say that the solution does not fit this size: where its values at full size
are right, the tool that found it watches a call at full size as well, and it counts if it is found there too, or if the
tool can't finish there. Else the solution gets the same label. A tool that was not there or did not come to its end
makes no verdict either, but is never taken for one that found nothing: there is a label for that, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.choices import PrecisionClass
from harness.core.problem import Problem, Workload
from harness.core.status import Failure, Status, one_line
from harness.core.task import Outcome, Task
from harness.protocol.messages import Attach, Burst, BurstDone, Call, CallMode, Load
from harness.referee.audit.audit import Audit, AuditResult, AuditSubject
from harness.referee.audit.auditor import Auditor
from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.contestants.findings import failure_of_reports
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.workspace import Workspace

KEPT = 6
"""Benches kept ready that nobody has. Beside the problem at hand there are those whose audits run ahead."""


@dataclass(slots=True, kw_only=True)
class _Held:
    key: tuple[str, PrecisionClass, Workload]
    workspace: Workspace
    lent: bool = False


class SmallWorkspaces:
    """Benches that `make` makes when they are needed. Not safe for threads."""

    def __init__(self, make: Callable[[Problem, Workload], Workspace]) -> None:
        self._make = make
        self._held: list[_Held] = []

    def lend(self, problem: Problem, workload: Workload) -> Workspace:
        """A bench with nothing on it, for its borrower alone until `give_back`. Raises what making one raises."""
        key = (problem.digest, problem.precision, workload)
        found = next((held for held in self._held if held.key == key and not held.lent), None)
        if found is None:
            self._give_up(KEPT - 1)
            found = _Held(key=key, workspace=self._make(problem, workload))
            self._held.append(found)
        found.lent = True
        found.workspace.publish()
        return found.workspace

    def get_ready(self, problem: Problem, workload: Workload) -> None:
        """Have one made that nobody has yet, unless there is one of this problem. Raises what making one raises."""
        if not any(held.key == (problem.digest, problem.precision, workload) for held in self._held):
            self.give_back(self.lend(problem, workload))

    def give_back(self, workspace: Workspace) -> None:
        """Whoever had it is done with it: no process of a solution's has its arena any more. Idempotent."""
        for held in self._held:
            if held.workspace is workspace and held.lent:
                held.lent = False
                # The last used is the last to be given up.
                self._held.remove(held)
                self._held.append(held)
                return

    def close(self) -> None:
        """Close all of them, lent ones too."""
        for held in self._held:
            held.workspace.close()
        self._held.clear()

    def _give_up(self, keep: int) -> None:
        """Close those unused for longest, until at most `keep` are left that nobody has."""
        idle = [held for held in self._held if not held.lent]
        for held in idle[: max(0, len(idle) - keep)]:
            held.workspace.close()
            self._held.remove(held)


SPECIALISED = "specialised_shape"
"""Label: right at the sizes asked for, wrong or failing at the problem's small ones."""

INCOMPLETE = "audit_incomplete"
"""Label: a tool of the audit was not there or did not come to its end, or nothing could be audited."""

AUDITED_CALLS = 2
"""Calls under each tool; the second one meets what the first left behind."""

ANSWERED, ELSEWHERE = range(AUDITED_CALLS), range(AUDITED_CALLS, 2 * AUDITED_CALLS)
"""Sets of the side bench with the calls' inputs and kept answers, and those whose outputs take all other answers."""

FIRST_FREE = ELSEWHERE.stop
"""The first set that no tool writes to."""

LARGEST_FULL_BYTES = 64 * 2**20
"""Where a problem declares no small workload, one set of its full one up to this size is audited instead."""

EXPLAINED = frozenset(
    {
        Status.wrong_value,
        Status.low_precision,
        Status.non_finite,
        Status.wrong_state,
        Status.mutated_input,
        Status.cuda_error,
        Status.crashed,
    }
)
"""Failures whose cause the audit may name; the others say themselves what is wrong."""


_BUILDS_LATER = re.compile(r"\b(triton|load|cupy|numba|nvrtc|_compile_kernel|jiterator)\b")


def builds_later(task: Task) -> bool:
    """Whether a solution may run kernels that were not built ahead."""
    return _BUILDS_LATER.search(task.source) is not None


def auditable(task: Task) -> bool:
    """Whether a solution has kernels of its own, or may have."""
    return bool(task.parts) or builds_later(task)


def whole_as_small(task: Task, set_bytes: int) -> Workload | None:
    """What to check on the side where no small workload is declared: the whole one, if a set of it takes few bytes."""
    return task.workload if set_bytes <= LARGEST_FULL_BYTES else None


def subject_of(
    task: Task, workspace: Workspace, attach: Attach, *, calls: int, gpu_minor: int | None = None
) -> AuditSubject:
    """The audit of `task` over the first sets of `workspace`, as published; they are filled here.

    Answers that nobody looks at go to the sets behind them, where there are enough.
    """
    count = min(calls, len(workspace.sets))
    for index in range(count):
        workspace.draw(index)
    workspace.device.synchronize()

    def requests(outputs: range) -> Burst:
        return Burst(
            calls=tuple(
                Call(
                    inputs=workspace.sets[index].inputs,
                    outputs=workspace.sets[place].outputs,
                    state=workspace.sets[place].state,
                    seed=workspace.call_seed(index),
                    mode=CallMode.LATENCY,  # no flush, which a tool would watch write hundreds of megabytes
                )
                for index, place in zip(range(count), outputs, strict=False)
            ),
            input_tree=workspace.tree.to_json(),
            state_names=workspace.traits.updates_state,
            restore_state=bool(workspace.traits.updates_state),
            coerce_device=True,
        )

    return AuditSubject(
        attach=attach,
        arena_fd=workspace.arena.fd,
        load=Load(
            source=task.source,
            filename=task.filename,
            modules=task.modules,
            init_tree=workspace.init_tree.to_json(),
            init_slots=workspace.init_slots,
            state=workspace.state_slots,
            seed=workspace.model_seed,
        ),
        burst=requests(ANSWERED),
        elsewhere=requests(ELSEWHERE if len(workspace.sets) >= FIRST_FREE else ANSWERED),
        readable=task.readable,
        gpu_minor=gpu_minor,
        builds_later=builds_later(task),
        source=task.source,
        filename=task.filename,
        parts=task.parts,
        kernels=frozenset(task.kernels),
        log_path=task.log_path,
    )


@dataclass(slots=True, kw_only=True)
class SmallWorkloadCheck:
    """The side check of one solution under way.

    `verify` holds the answers that the audited calls gave against the truth; where they gave none, `examine` has the
    values of a task judged on their own. `give_back` ends the use of the bench that both look at.
    """

    task: Task
    workload: Workload
    audit: Audit
    verify: Callable[[Sequence[BurstDone]], Failure | None]
    examine: Callable[[Task], Outcome]
    confirm: Callable[[Collection[SanitizerTool]], Audit]
    give_back: Callable[[], None]
    evidence: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    _over: bool = False

    @property
    def ready(self) -> bool:
        """Whether the tools are through, so that `conclude` takes no time for them."""
        return self.audit.over

    @classmethod
    def begin(
        cls,
        task: Task,
        workload: Workload,
        subject: AuditSubject,
        auditor: Auditor,
        *,
        verify: Callable[[Sequence[BurstDone]], Failure | None],
        examine: Callable[[Task], Outcome],
        full: Callable[[], AuditSubject],
        give_back: Callable[[], None],
    ) -> SmallWorkloadCheck:
        """Start the tools on `subject`. `full` makes the same for one call at the size that was asked for."""
        return cls(
            task=task,
            workload=workload,
            audit=auditor.begin(subject),
            verify=verify,
            examine=examine,
            confirm=lambda tools: auditor.begin(full(), tools),
            give_back=give_back,
        )

    def cancel(self) -> None:
        """Leave nothing running; for a solution that failed for a reason that needs no explanation."""
        if not self._over:
            self._over = True
            self.audit.cancel()
        self.give_back()

    def conclude(self, failure: Failure | None) -> Failure | None:
        """The verdict that `failure` (of the full workload) becomes in the light of the findings.

        Fills `evidence` and `labels`.
        """
        result = self.audit.result()
        self._over = True
        try:
            small = self._values(result) if failure is None else None
        finally:
            self.give_back()
        self.evidence["audit"] = {"workload": self.workload.name, **result.to_json()}
        if result.reports:
            self.evidence["reports"] = result.reports
        counting = [report for report in result.reports if report["kind"] == "data_race"]
        others = [report for report in result.reports if report["kind"] != "data_race"]
        if others and (failure is not None or small is None or self._confirmed(others)):
            counting += others
        elif others and SPECIALISED not in self.labels:
            self.labels.append(SPECIALISED)
        found = failure_of_reports(counting)
        if found is None and failure is None and result.incomplete:
            self.labels.append(INCOMPLETE)
        if found is None:
            return failure
        if failure is None:
            return found
        return replace(found, reason=f"{found.reason}; at full size: {failure.reason}"[:600], evidence=failure.evidence)

    def _confirmed(self, reports: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the tools that found these find something at full size too, or can't tell."""
        tools = {tool for tool in SanitizerTool if any(str(report["tool"]).endswith(tool.value) for report in reports)}
        self.audit, self._over = self.confirm(tools), False
        result = self.audit.result()
        self._over = True
        self.evidence["audit_at_full_size"] = result.to_json()
        unsure = any("not_run" in held or "ended" in held for held in result.tools.values())
        return bool(result.reports) or unsure

    def _values(self, result: AuditResult) -> Outcome | None:
        """How the small workload came out; None where it is what was judged anyway."""
        if self.workload == self.task.workload:
            return None
        if result.answers is not None and self.verify(result.answers) is None:
            outcome = Outcome(status=Status.passed, reason="right in the audited calls")
        else:
            # No tool is around it now, and the calls are of all variants.
            outcome = self.examine(replace(self.task, workload=self.workload, timed=False))
        self.evidence["small_workload"] = {"status": outcome.status.value, "reason": outcome.reason}
        if outcome.status not in (Status.passed, Status.harness_error):
            self.labels.append(SPECIALISED)
        return outcome


def explainable(outcome: Outcome) -> bool:
    """Whether findings on the side may change this outcome."""
    return outcome.status is Status.passed or outcome.status in EXPLAINED


def settle(side: SmallWorkloadCheck, outcome: Outcome) -> Outcome:
    """The verdict that `outcome`, which was reached without `side`, becomes by it; waits for the tools."""
    begin = time.perf_counter()
    failure = None
    if outcome.status is not Status.passed:
        if outcome.status not in EXPLAINED:
            side.cancel()
            return outcome
        failure = Failure(status=outcome.status, reason=outcome.reason, detail=outcome.detail)
    try:
        found = side.conclude(failure)
    except ProblemError as error:  # which the draws of a solution may be the first to show
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
    if found is None or found is failure:
        return outcome
    return replace(
        outcome,
        status=found.status,
        reason=found.reason,
        evidence={**outcome.evidence, **found.evidence},
        speedup=None,
        timing=None,
        detail=found.detail,
    )


def unaudited(task: Task, outcome: Outcome, set_bytes: int) -> Outcome:
    """`outcome` of a solution that should have been audited and was not, a set of whose workload takes `set_bytes`."""
    if outcome.status is not Status.passed or not auditable(task):
        return outcome
    if task.small is None and whole_as_small(task, set_bytes) is None:
        why = f"the problem declares no small workload, and {set_bytes / 2**20:.0f} MiB are too many for the tools"
    else:
        why = "its small workload could not be made ready: for want of room, or harness problems lint says why"
    evidence = {**outcome.evidence, "audit": {"not_run": why}}
    return replace(outcome, evidence=evidence, labels=(*outcome.labels, INCOMPLETE))


def set_bytes(workspace: Workspace) -> int:
    """Bytes of one set's inputs and outputs."""
    held: Sequence[Any] = (*workspace.sets[0].inputs, *workspace.sets[0].outputs)
    return sum(tensor.numel() * tensor.element_size() for tensor in workspace.tensors(held))

"""Check a solution on a small workload beside its evaluation: values and audit.

Trusted side. Wrong values on the small workload only set a label: the solution is right only for the sizes that it was
written for. Findings of the audit decide the status. A data race counts always. Another finding, for instance an access
out of bounds, may only mean that the solution does not support the small size. If its values at full size are right,
the same tool watches one call at full size. The finding counts if it occurs there too or the tool can't finish there;
otherwise the solution gets the label. A tool that is missing or did not finish decides nothing, but sets a label.
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
"""Unused workspaces kept ready, for the current problem and for those whose audits run ahead."""


@dataclass(slots=True, kw_only=True)
class _Held:
    key: tuple[str, PrecisionClass, Workload]
    workspace: Workspace
    lent: bool = False


class SmallWorkspaces:
    """Workspaces that `make` makes on demand. Not thread-safe."""

    def __init__(self, make: Callable[[Problem, Workload], Workspace]) -> None:
        self._make = make
        self._held: list[_Held] = []

    def lend(self, problem: Problem, workload: Workload) -> Workspace:
        """A workspace for the borrower's exclusive use until `give_back`.

        Raises the exceptions of `make`.
        """
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
        """Make an unused workspace for this problem, unless there is one.

        Raises the exceptions of `make`.
        """
        if not any(held.key == (problem.digest, problem.precision, workload) for held in self._held):
            self.give_back(self.lend(problem, workload))

    def give_back(self, workspace: Workspace) -> None:
        """End a loan; no process of the solution maps the arena any more. Idempotent."""
        for held in self._held:
            if held.workspace is workspace and held.lent:
                held.lent = False
                # `_give_up` closes the least recently used first.
                self._held.remove(held)
                self._held.append(held)
                return

    def close(self) -> None:
        """Close all of them, including lent ones."""
        for held in self._held:
            held.workspace.close()
        self._held.clear()

    def _give_up(self, keep: int) -> None:
        """Close the least recently used, until at most `keep` unused ones are left."""
        idle = [held for held in self._held if not held.lent]
        for held in idle[: max(0, len(idle) - keep)]:
            held.workspace.close()
            self._held.remove(held)


SPECIALISED = "specialised_shape"
"""Label: right at the requested sizes, wrong or failing at the problem's small sizes."""

INCOMPLETE = "audit_incomplete"
"""Label: a tool of the audit was missing or did not finish, or nothing could be audited."""

AUDITED_CALLS = 2
"""Calls under each tool; the second one finds memory as the first left it."""

ANSWERED, ELSEWHERE = range(AUDITED_CALLS), range(AUDITED_CALLS, 2 * AUDITED_CALLS)
"""Sets of the small workspace with the calls' inputs and kept answers, and sets for the outputs of all other tools."""

FIRST_FREE = ELSEWHERE.stop
"""The first set that no tool writes to."""

LARGEST_FULL_BYTES = 64 * 2**20
"""If a problem declares no small workload, the full one is audited, provided that one set is at most this large."""

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
"""Failures whose cause the audit may name; other statuses need no further explanation."""


_BUILDS_LATER = re.compile(r"\b(triton|load|cupy|numba|nvrtc|_compile_kernel|jiterator)\b")


def builds_later(task: Task) -> bool:
    """Whether a solution may run kernels that were not built before."""
    return _BUILDS_LATER.search(task.source) is not None


def auditable(task: Task) -> bool:
    """Whether a solution has, or may have, kernels of its own."""
    return bool(task.parts) or builds_later(task)


def whole_as_small(task: Task, set_bytes: int) -> Workload | None:
    """The workload to check if no small one is declared: the full one if small."""
    return task.workload if set_bytes <= LARGEST_FULL_BYTES else None


def subject_of(
    task: Task, workspace: Workspace, attach: Attach, *, calls: int, gpu_minor: int | None = None
) -> AuditSubject:
    """Make the audit of `task` over the first sets of `workspace`, as published.

    Fills these sets. Outputs that are not checked go to the sets after them, if there are enough.
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
                    mode=CallMode.LATENCY,  # without the cache flush, whose writes a tool would watch
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
    """The running background check of one solution.

    `verify` compares the answers of the audited calls with the truth. If there are none, `examine` evaluates the values
    of a task. `give_back` ends the use of the workspace.
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
        """Whether the tools have finished, so that `conclude` does not wait."""
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
        """Start the tools on `subject`.

        `full` makes the subject for one call at the requested size.
        """
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
        """End everything, for a solution whose failure needs no explanation."""
        if not self._over:
            self._over = True
            self.audit.cancel()
        self.give_back()

    def conclude(self, failure: Failure | None) -> Failure | None:
        """Return the failure that follows from `failure` (full workload) and the findings.

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
        """Whether the same tools find something at full size too, or can't tell."""
        tools = {tool for tool in SanitizerTool if any(str(report["tool"]).endswith(tool.value) for report in reports)}
        self.audit, self._over = self.confirm(tools), False
        result = self.audit.result()
        self._over = True
        self.evidence["audit_at_full_size"] = result.to_json()
        unsure = any("not_run" in held or "ended" in held for held in result.tools.values())
        return bool(result.reports) or unsure

    def _values(self, result: AuditResult) -> Outcome | None:
        """The result on the small workload; None if that is the workload evaluated anyway."""
        if self.workload == self.task.workload:
            return None
        if result.answers is not None and self.verify(result.answers) is None:
            outcome = Outcome(status=Status.passed, reason="correct in the audited calls")
        else:
            # This evaluation runs without a tool and uses all variants.
            outcome = self.examine(replace(self.task, workload=self.workload, timed=False))
        self.evidence["small_workload"] = {"status": outcome.status.value, "reason": outcome.reason}
        if outcome.status not in (Status.passed, Status.harness_error):
            self.labels.append(SPECIALISED)
        return outcome


def explainable(outcome: Outcome) -> bool:
    """Whether findings of the background check may change this outcome."""
    return outcome.status is Status.passed or outcome.status in EXPLAINED


def settle(side: SmallWorkloadCheck, outcome: Outcome) -> Outcome:
    """Combine `outcome`, reached without `side`, with the result of `side`.

    Waits for the tools.
    """
    begin = time.perf_counter()
    failure = None
    if outcome.status is not Status.passed:
        if outcome.status not in EXPLAINED:
            side.cancel()
            return outcome
        failure = Failure(status=outcome.status, reason=outcome.reason, detail=outcome.detail)
    try:
        found = side.conclude(failure)
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
    """Label a solution that should have been audited and was not.

    `set_bytes` is the size of one set of its workload.
    """
    if outcome.status is not Status.passed or not auditable(task):
        return outcome
    if task.small is None and whole_as_small(task, set_bytes) is None:
        why = (
            f"the problem declares no small workload, and {set_bytes / 2**20:.0f} MiB a set are too much for the tools"
        )
    else:
        why = "the small workload could not be prepared: too little memory, or a fault (run harness problems lint)"
    evidence = {**outcome.evidence, "audit": {"not_run": why}}
    return replace(outcome, evidence=evidence, labels=(*outcome.labels, INCOMPLETE))


def set_bytes(workspace: Workspace) -> int:
    """Bytes of one set's inputs and outputs."""
    held: Sequence[Any] = (*workspace.sets[0].inputs, *workspace.sets[0].outputs)
    return sum(tensor.numel() * tensor.element_size() for tensor in workspace.tensors(held))

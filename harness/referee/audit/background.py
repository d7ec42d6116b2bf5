"""Start the checks of solutions on a small workload, beside their evaluations.

Trusted side. Lends each check a workspace of its own, tells the tools what to watch, and compares answers with the
truth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from harness.core.problem import Problem, Workload
from harness.core.status import Failure
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices.device import Device
from harness.protocol.messages import BurstDone, CallMode
from harness.referee.audit.audit import AuditSubject
from harness.referee.audit.auditor import Auditor
from harness.referee.audit.small_workload import (
    ANSWERED,
    AUDITED_CALLS,
    FIRST_FREE,
    SmallWorkloadCheck,
    SmallWorkspaces,
    auditable,
    subject_of,
)
from harness.referee.contestants.client import attach_request
from harness.referee.correctness.verifier import Verifier, overall
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.watchdog import Phase, ProgressMarker
from harness.referee.problem.workspace import NoRoom, Workspace

NO_MEMORY = (NoRoom, torch.OutOfMemoryError, MemoryError)
"""Exceptions of a workspace that does not fit in memory."""


class BackgroundChecks:
    """The background checks of one referee, with its device and secret.

    Does nothing without an auditor. Not thread-safe. `calls` gives the number of calls in a problem's correctness
    check; `full` makes a task's workspace at full size, published; `examine` evaluates a task's values in a given
    workspace, from the given set number on.
    """

    def __init__(
        self,
        config: RefereeConfig,
        device: Device,
        secret: random.Random,
        auditor: Auditor | None,
        *,
        gpu_minor: int | None,
        calls: Callable[[Problem], int],
        full: Callable[[Task], Workspace],
        examine: Callable[[Task, Workspace, int], Outcome],
        progress_marker: ProgressMarker,
    ) -> None:
        self._config = config
        self._device = device
        self._secret = secret
        self._auditor = auditor
        self._gpu_minor = gpu_minor
        self._calls = calls
        self._full = full
        self._examine = examine
        self._progress_marker = progress_marker
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

        def subject(workspace: Workspace, calls: int) -> AuditSubject:
            attach = attach_request(self._config, workspace, own_allocations=True)
            return subject_of(task, workspace, attach, gpu_minor=self._gpu_minor, calls=calls)

        try:
            audited = subject(workspace, AUDITED_CALLS)
        except NO_MEMORY:
            self.workspaces.give_back(workspace)
            raise
        first = FIRST_FREE if len(workspace.sets) > FIRST_FREE else 0  # no tool writes to these sets
        return SmallWorkloadCheck.begin(
            task,
            workload,
            audited,
            self._auditor,
            verify=lambda answers: _wrong_values(task, workspace, answers),
            examine=lambda small: self._examine(small, workspace, first),
            full=lambda: subject(self._full(task), 1),
            give_back=lambda: self.workspaces.give_back(workspace),
        )

    def close(self) -> None:
        """Close the workspaces, including lent ones."""
        self.workspaces.close()

    def _make(self, problem: Problem, workload: Workload) -> Workspace:
        wanted = FIRST_FREE + self._calls(problem)
        with self._progress_marker.at(problem, workload, Phase.READY):
            return Workspace(
                problem,
                workload,
                self._device,
                sets_wanted=wanted,
                secret=self._secret,
                progress_marker=self._progress_marker,
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

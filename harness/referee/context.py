"""State that the evaluations of one referee share, and evidence of one evaluation.

Trusted side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from harness.core.status import Failure
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices.nvml import GpuMonitor
from harness.referee.baselines import BaselineKeeper
from harness.referee.contestants import process
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.findings import labels_of_reports
from harness.referee.contestants.pool import ContestantPool, Key, Purpose
from harness.referee.contestants.process import ContestantProcess
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.problem.workspace import TimeLedger, Workspace
from harness.referee.problem_state import CurrentProblem


@dataclass(slots=True)
class EvidenceLog:
    """Evidence and labels that one evaluation collects for its record."""

    evidence: dict[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage; part of the evidence."""

    def __post_init__(self) -> None:
        self.evidence["stages_s"] = self.stages_s

    @contextmanager
    def stage(self, name: str, defence: TimeLedger | None = None) -> Iterator[None]:
        """Note the block's seconds as a stage.

        Args:
            name: Name of the stage.
            defence: Ledger for a stage that exists only to make the verdict trustworthy.

        Yields:
            None.
        """
        begin = time.perf_counter()
        try:
            with nullcontext() if defence is None else defence.spend(name):
                yield
        finally:
            self.stages_s[name] = time.perf_counter() - begin

    def failed(self, failure: Failure, *, timing: Mapping[str, Any] | None = None, **more: object) -> Outcome:
        """Build the outcome of a solution that did not pass.

        Args:
            failure: Status, reason and evidence; reports in the evidence may add labels.
            timing: Timing, if the solution was timed before it failed.
            more: Further evidence.
        """
        asked = labels_of_reports(failure.evidence.get("reports", ()))
        return Outcome(
            status=failure.status,
            reason=failure.reason,
            evidence={**self.evidence, **more, **failure.evidence},
            timing=timing,
            labels=tuple(dict.fromkeys((*self.labels, *asked))),
            detail=failure.detail,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RefereeContext:
    """Settings and shared objects of a referee, as its evaluations need them."""

    config: RefereeConfig
    monitor: GpuMonitor
    pool: ContestantPool
    exclusive: GpuExclusive
    problem: CurrentProblem
    baselines: BaselineKeeper | None
    gpu_minor: int | None

    def contestant(self, task: Task, purpose: Purpose = Purpose.JUDGEMENT) -> ContestantProcess:
        """Return a sandboxed process for the solution; the caller ends it."""
        return self.pool.take(Key(task.log_path, purpose), process.policy_for(task, self.config, self.gpu_minor))

    def client(
        self, workspace: Workspace, contestant: ContestantProcess, task: Task, log: EvidenceLog, begin: float
    ) -> ContestantClient:
        """Return a client; its time counts from `begin`, without waits for exclusive use."""
        client = ContestantClient(self.config, workspace, contestant, task, log.evidence, begin)
        client.deadline_s += self.exclusive.waited_s
        return client

"""One audit of a solution by compute-sanitizer's tools: its subject and result.

Trusted side. An audit can only turn a pass into a failure. The tool's own libraries live in the submission's process,
so a submission that disables them is not audited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.task import SourcePart
from harness.protocol.messages import Attach, Burst, BurstDone, Load
from harness.referee.audit.sanitizer import SanitizerFinding, SanitizerTool
from harness.referee.audit.timeouts import ToolPaces
from harness.referee.contestants.findings import placed
from harness.referee.contestants.process import ContestantProcess

ANSWERS = SanitizerTool.MEMCHECK
"""The tool whose run provides answers: it alters no launch, and every audit includes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """What to audit: the requests, the arena's descriptor, and how to find lines.

    Answers to `burst` are kept (`AuditResult.answers`). Answers to `elsewhere`, the same calls with other output
    buffers, are not, because tools run in parallel.
    """

    attach: Attach
    arena_fd: int
    load: Load
    burst: Burst
    elsewhere: Burst
    readable: tuple[Path, ...]
    gpu_minor: int | None
    builds_later: bool
    source: str
    filename: str
    parts: tuple[SourcePart, ...]
    kernels: frozenset[str]
    log_path: Path


@dataclass(slots=True, kw_only=True)
class AuditResult:
    """Findings in the solution's own kernels as reports, and each tool's result.

    `answers` are the solution's replies to the calls of the subject's `burst`; None if not all of them were made.
    """

    reports: list[dict[str, Any]] = field(default_factory=list)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: tuple[BurstDone, ...] | None = None

    @property
    def incomplete(self) -> dict[str, str]:
        """The tools that found nothing but did not finish, each with the reason."""
        whys = {name: held.get("not_run") or held.get("ended") for name, held in self.tools.items()}
        return {name: str(why) for name, why in whys.items() if why and not self.tools[name]["findings"]}

    def to_json(self) -> dict[str, Any]:
        return {"tools": self.tools, "findings": len(self.reports)}


@dataclass(slots=True, kw_only=True)
class ToolRun:
    """The result of one tool.

    `again`: the run failed before any code of the solution ran. `lost`: its zygote is unusable.
    """

    findings: tuple[SanitizerFinding, ...] = ()
    not_run: str | None = None
    ended: str | None = None
    wall_s: float = 0.0
    answers: list[BurstDone] = field(default_factory=list)
    again: bool = False
    lost: bool = False


class ContestantSet:
    """The contestants of one audit, to be killed together, and `paces` of the tools."""

    def __init__(self) -> None:
        self.paces = ToolPaces()
        self._lock = threading.Lock()
        self._held: list[ContestantProcess] = []
        self._cancelled = False

    def add(self, contestant: ContestantProcess) -> None:
        with self._lock:
            self._held.append(contestant)
            if self._cancelled:
                contestant.kill()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            for contestant in self._held:
                contestant.kill()


class Audit:
    """One running audit."""

    def __init__(
        self,
        subject: AuditSubject,
        running: Mapping[SanitizerTool, Future[ToolRun]],
        contestants: ContestantSet,
        idle: Mapping[SanitizerTool, str] | None = None,
        *,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self._subject = subject
        self._idle = dict(idle or {})
        self._running = running
        self._contestants = contestants
        self._waits = waits

    def close_when_over(self) -> None:
        """Close the arena's descriptor when the last tool has finished."""
        left = len(self._running)
        if not left:
            os.close(self._subject.arena_fd)
        lock = threading.Lock()

        def one_less(_: object) -> None:
            nonlocal left
            with lock:
                left -= 1
                if not left:
                    os.close(self._subject.arena_fd)

        for running in self._running.values():
            running.add_done_callback(one_less)

    @property
    def over(self) -> bool:
        """Whether `result` returns at once."""
        return all(running.done() for running in self._running.values())

    def cancel(self) -> None:
        """End the audit; returns when nothing of it is left on the GPU."""
        self._contestants.cancel()
        # Runs still in the queue are dropped at once, because those before them may take long.
        wait([running for running in self._running.values() if not running.cancel()])

    def result(self) -> AuditResult:
        """Wait for all tools.

        Findings in kernels that are not the solution's are counted, not reported.
        """
        if not self.over:
            self._waits()
        subject, result = self._subject, AuditResult()
        result.tools |= {tool.value: {"not_needed": why, "findings": 0} for tool, why in self._idle.items()}
        for tool, future in self._running.items():
            told = future.result()
            own = [finding for finding in told.findings if _is_own(finding, subject)]
            result.reports += [
                placed(finding.to_report(), subject.parts, source=subject.source, filename=subject.filename)
                for finding in own
            ]
            held: dict[str, Any] = {"wall_s": told.wall_s, "findings": len(own)}
            if len(own) < len(told.findings):
                held["foreign_findings"] = len(told.findings) - len(own)
            if told.not_run is not None:
                held["not_run"] = told.not_run
            if told.ended is not None:
                held["ended"] = told.ended
            result.tools[tool.value] = held
            if tool is ANSWERS and told.ended is None and len(told.answers) == len(subject.burst.calls):
                result.answers = tuple(told.answers)
        return result


def _is_own(finding: SanitizerFinding, subject: AuditSubject) -> bool:
    """Whether the defect is in the solution's code.

    Decided by the file, or by the kernel's name if the finding has no line.
    """
    files = {subject.filename, *(part.file for part in subject.parts)}
    return finding.place.file in files or finding.place.kernel in subject.kernels

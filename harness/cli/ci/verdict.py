"""Combine records, gates and earlier results into one verdict on a submission.

Trusted side. Pure functions: no files, no processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.record import Record
from harness.core.status import Status
from harness.results.compare import SolutionDifference
from harness.results.evidence import mapping, rows, text, whole
from harness.results.gates import FAILED, GateResult, Gates, weigh
from harness.results.latest import recency

VERDICT_FORMAT = 1
PASSED, GATE_FAILED, INFRASTRUCTURE = 0, 1, 3
"""Exit codes of a verdict; 2 means wrong arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A submitted file that can't be evaluated: it fails the submission."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One solution that the submission adds or changes.

    `path` is its path in the repository; `line` is the line of the file that caused the failure, or None.
    """

    path: str
    change: str
    record: Record
    gates: tuple[GateResult, ...]
    difference: SolutionDifference | None
    line: int | None

    @property
    def failed(self) -> bool:
        return any(result.outcome == FAILED for result in self.gates)

    def to_json(self) -> dict[str, Any]:
        timing = mapping(self.record.timing, "speedup")
        return {
            "path": self.path,
            "change": self.change,
            "problem": self.record.problem,
            "author": self.record.author,
            "solution": self.record.solution,
            "status": self.record.status.value,
            "reason": self.record.reason,
            "labels": list(self.record.labels),
            "line": self.line,
            "speedup": self.record.speedup,
            "speedup_low": timing.get("low"),
            "speedup_high": timing.get("high"),
            "failed": self.failed,
            "gates": [result.to_json() for result in self.gates],
            "compared_with_base": self.difference.to_json() if self.difference else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CiVerdict:
    """The verdict on a submission.

    `ignored` lists the changed files that are not solutions. `fault` says why this machine could evaluate nothing, or
    is None.
    """

    base: str
    head: str
    device: str
    workload: str
    gates: Gates
    scored: tuple[Scored, ...]
    rejected: Sequence[Rejected] = ()
    deleted: Sequence[str] = ()
    ignored: Sequence[str] = ()
    fault: str | None = None

    @property
    def unjudged(self) -> tuple[Scored, ...]:
        """Solutions that the harness failed to judge."""
        return tuple(item for item in self.scored if item.record.status is Status.harness_error)

    @property
    def exit_code(self) -> int:
        """1 if a gate certainly failed, else 3 if a solution could not be judged, else 0."""
        if self.rejected or any(item.failed for item in self.scored):
            return GATE_FAILED
        return INFRASTRUCTURE if self.unjudged or self.fault else PASSED

    @property
    def word(self) -> str:
        """`passed`, `failed`, `error`, or `nothing` if no solution was added or changed."""
        if not (self.scored or self.rejected or self.fault):
            return "nothing"
        return {PASSED: "passed", GATE_FAILED: "failed", INFRASTRUCTURE: "error"}[self.exit_code]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": VERDICT_FORMAT,
            "verdict": self.word,
            "exit_code": self.exit_code,
            "fault": self.fault,
            "base": self.base,
            "head": self.head,
            "device": self.device,
            "workload": self.workload,
            "gates": self.gates.to_json(),
            "solutions": [item.to_json() for item in self.scored],
            "rejected": [{"path": item.path, "reason": item.reason} for item in self.rejected],
            "deleted": list(self.deleted),
            "ignored": list(self.ignored),
        }


def score(
    records: Iterable[Record],
    *,
    paths: Mapping[str, tuple[str, str, str]],
    base_records: Sequence[Record],
    gates: Gates,
) -> tuple[Scored, ...]:
    """Check each record against the gates.

    Args:
        records: Records of the submitted solutions.
        paths: Solution label -> (path, kind of change, source).
        base_records: Earlier records of the base; of several with one identity the latest counts.
        gates: The gates of the base.

    Returns:
        The scored solutions, sorted by path.
    """
    before: dict[tuple[str, str, str, str], Record] = {}
    for held in base_records:
        known = before.get(held.identity)
        if known is None or recency(held) >= recency(known):
            before[held.identity] = held
    scored = []
    for record in records:
        path, change, source = paths[record.solution]
        results, difference = weigh(record, before.get(record.identity), gates)
        scored.append(
            Scored(
                path=path,
                change=change,
                record=record,
                gates=results,
                difference=difference,
                line=failing_line(record, source),
            )
        )
    return tuple(sorted(scored, key=lambda item: item.path))


def failing_line(record: Record, source: str) -> int | None:
    """Return the line of the solution's file that caused the failure, or None.

    A compiler, Python or a check reports it.
    """
    evidence = record.evidence
    line = whole(mapping(evidence, "error"), "solution_line") or whole(evidence, "line")
    if line is None:
        for report in rows(evidence, "reports"):
            # If the line counts in a text that the solution's file does not contain, `file` names that text.
            if text(report, "file").endswith(".py") and (line := whole(report, "line")) is not None:
                break
    return line if line is not None and 1 <= line <= source.count("\n") + 1 else None

"""Findings of the host device's checks, turned into a verdict.

Pure. A report is a JSON object from the contestant (its format is `hostcuda`'s): a claim like everything from
there, so every field is read defensively.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.status import Failure, Status, one_line

STATUS_OF_KIND: Mapping[str, Status] = {
    "data_race": Status.data_race,
    "memory_error": Status.memory_error,
    "misaligned": Status.memory_error,
    "uninitialised_read": Status.uninitialised_read,
    "barrier_error": Status.barrier_error,
    "launch_error": Status.cuda_error,
    "assertion": Status.cuda_error,
    "not_emulated": Status.not_emulated,
}
"""Kinds that decide the status. A kind that is not here is evidence only, or a label."""

LABEL_OF_KIND: Mapping[str, str] = {
    "leak": "leaks_memory",
}
"""Kinds that make a label and decide nothing: values are right, but every call takes memory that none gives back."""

ORDER = (
    Status.not_emulated,
    Status.memory_error,
    Status.barrier_error,
    Status.data_race,
    Status.uninitialised_read,
    Status.cuda_error,
)
"""What a record says where there are several: an access outside an array may cause all the rest."""


def is_of_unset_shared(report: Mapping[str, Any]) -> bool:
    """Whether it is about a read of shared memory that nobody wrote: whether a value depends on it can be tried."""
    return report.get("kind") == "uninitialised_read" and str(report.get("space")) in ("shared", "distributed shared")


def failure_of_reports(reports: Sequence[Mapping[str, Any]]) -> Failure | None:
    """The verdict that the gravest report asks for, or None."""
    found = [
        (STATUS_OF_KIND[kind], report) for report in reports if (kind := str(report.get("kind"))) in STATUS_OF_KIND
    ]
    for status in ORDER:
        for held, report in found:
            if held is status:
                more = len(found) - 1
                rest = f" (and {more} more findings)" if more else ""
                return Failure(status=status, reason=one_line(_describe(report) + rest))
    return None


def labels_of_reports(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels that the reports ask for, each once."""
    return list(dict.fromkeys(LABEL_OF_KIND[kind] for r in reports if (kind := str(r.get("kind"))) in LABEL_OF_KIND))


def _describe(report: Mapping[str, Any]) -> str:
    """`matmul, line 51: read of what another thread writes (shared tile[0][3]; the other access is on line 36)`."""

    def text(key: str) -> str:
        held = report.get(key)
        return "" if held is None else str(held)[:200]

    line = f"line {text('line')}" if text("line") else ""
    if line and text("file") and not text("file").endswith(".py"):
        line += f" of {text('file')}"
    where = ", ".join(part for part in (text("kernel"), line) if part)
    what = text("message") or text("kind").replace("_", " ")
    array = f"{text('space')} {text('array')}{text('subscript')}".strip() if text("array") else ""
    other = f"the other access is on line {text('other_line')}" if text("other_line") else ""
    details = "; ".join(part for part in (array, other) if part)
    return (f"{where}: " if where else "") + what + (f" ({details})" if details else "")

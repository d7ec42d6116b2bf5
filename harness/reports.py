"""Findings of the host device's checks, turned into a verdict.

Pure. A report is a JSON object from the contestant (its format is `hostcuda`'s): a claim like everything from
there, so every field is read defensively.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.model import Failure, Status, one_line

STATUS_OF_KIND: Mapping[str, Status] = {
    "data_race": Status.data_race,
    "memory_error": Status.memory_error,
    "misaligned": Status.memory_error,
    "uninitialised_read": Status.uninitialised_read,
    "barrier_error": Status.barrier_error,
    "launch_error": Status.cuda_error,
    "not_emulated": Status.not_emulated,
}
"""Kinds that decide the status. A kind that is not here (a leak, say) is evidence only."""

ORDER = (
    Status.not_emulated,
    Status.memory_error,
    Status.barrier_error,
    Status.data_race,
    Status.uninitialised_read,
    Status.cuda_error,
)
"""What a record says where there are several: an access outside an array may cause all the rest."""


def failure_of_reports(reports: Sequence[Mapping[str, Any]]) -> Failure | None:
    """The verdict that the gravest report asks for, or None."""
    found = [
        (STATUS_OF_KIND[kind], report) for report in reports if (kind := str(report.get("kind"))) in STATUS_OF_KIND
    ]
    for status in ORDER:
        for held, report in found:
            if held is status:
                more = len(found) - 1
                text = str(report.get("message") or _describe(report))
                return Failure(status=status, reason=one_line(text + (f" (and {more} more findings)" if more else "")))
    return None


def _describe(report: Mapping[str, Any]) -> str:
    kind = str(report.get("kind")).replace("_", " ")
    where = f" in {report['kernel']}" if report.get("kernel") else ""
    line = f", line {report['line']}" if report.get("line") is not None else ""
    array = f", {report['array']}" if report.get("array") else ""
    index = f"[{report['index']}]" if report.get("index") is not None and array else ""
    return f"{kind}{where}{line}{array}{index}"

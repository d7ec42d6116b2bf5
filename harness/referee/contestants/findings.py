"""Where findings lie: lines of compiled files, as the tools and the host device's checks know them, become lines of the
solution's file.

Trusted side; pure but for its imports. A report may come from a contestant's process: every field is read defensively.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.status import Failure, Status, one_line
from harness.core.task import SourcePart
from harness.toolchain.diagnostics import place_in_sources

MAX_PLACED = 200
"""Reports of one burst that are looked up: as many as the host device's checks tell apart."""

_LINES = (("line", "file"), ("other_line", "other_file"))


def all_placed(
    reports: Sequence[Mapping[str, Any]], parts: Sequence[SourcePart], *, source: str, filename: str
) -> tuple[Mapping[str, Any], ...]:
    """Each report `placed`; those beyond `MAX_PLACED` stay as they are."""
    found = [placed(report, parts, source=source, filename=filename) for report in reports[:MAX_PLACED]]
    return (*found, *reports[MAX_PLACED:])


def placed(report: Mapping[str, Any], parts: Sequence[SourcePart], *, source: str, filename: str) -> dict[str, Any]:
    """The report with `line` and `other_line` counted in the solution's file (`source`, called `filename`), which its
    `file` and `other_file` then name.

    A line of a text that does not stand in that file as it is counts in the text, and `file` is the text's name
    (`cuda source 1`). One of another file stays as it is.
    """
    found = dict(report)
    kernel = str(report.get("kernel") or "")[:200].split("<")[0].split("(")[0].split("::")[-1].strip()
    own = sorted(parts, key=lambda part: kernel not in _identifiers(part.text))
    for line_key, file_key in _LINES:
        line, file = report.get(line_key), report.get(file_key)
        if not isinstance(line, int) or isinstance(line, bool) or file == filename:
            continue
        held = [(part.name, part.text, part.begin) for part in own if file is None or part.file == file]
        if place := place_in_sources(held, line, source):
            name, in_text, in_solution = place
            found[line_key] = in_solution or in_text
            found[file_key] = filename if in_solution else name
    return found


@functools.lru_cache(maxsize=64)
def _identifiers(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))


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

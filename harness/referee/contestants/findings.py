"""Map findings to lines of the solution's file, and to statuses and labels.

Trusted side. compute-sanitizer and the host device's checks report lines of compiled files. A report may come from a
contestant's process: every field is read defensively.
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
"""Most reports of one burst whose lines are looked up: as many as the host device's checks distinguish."""

_LINES = (("line", "file"), ("other_line", "other_file"))


def all_placed(
    reports: Sequence[Mapping[str, Any]], parts: Sequence[SourcePart], *, source: str, filename: str
) -> tuple[Mapping[str, Any], ...]:
    """Apply `placed` to each report; those beyond `MAX_PLACED` stay unchanged."""
    found = [placed(report, parts, source=source, filename=filename) for report in reports[:MAX_PLACED]]
    return (*found, *reports[MAX_PLACED:])


def placed(report: Mapping[str, Any], parts: Sequence[SourcePart], *, source: str, filename: str) -> dict[str, Any]:
    """Return the report with lines counted in the solution's file.

    `file` and `other_file` then name that file. A line of a text that the file does not contain literally counts in
    that text, and `file` is its name (`cuda source 1`). A line of another file stays unchanged.

    Args:
        report: The report; `line`, `file`, `other_line` and `other_file` are used.
        parts: Texts of the solution that were compiled.
        source: The solution's text.
        filename: The solution's file name.
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
"""Kinds that decide the status. Any other kind is only evidence, or a label."""

LABEL_OF_KIND: Mapping[str, str] = {
    "leak": "leaks_memory",
}
"""Kinds that only set a label: the outputs are correct, but every call allocates memory that is never freed."""

ORDER = (
    Status.not_emulated,
    Status.memory_error,
    Status.barrier_error,
    Status.data_race,
    Status.uninitialised_read,
    Status.cuda_error,
)
"""The first of these statuses among several findings counts: an access out of bounds may cause all the others."""


def is_of_unset_shared(report: Mapping[str, Any]) -> bool:
    """Return whether it reports a read of shared memory that was never written.

    A second schedule can test whether an output depends on such a value.
    """
    return report.get("kind") == "uninitialised_read" and str(report.get("space")) in ("shared", "distributed shared")


def failure_of_reports(reports: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Return the failure of the gravest report, or None if no report decides."""
    found = [
        (STATUS_OF_KIND[kind], report) for report in reports if (kind := str(report.get("kind"))) in STATUS_OF_KIND
    ]
    for status in ORDER:
        for held, report in found:
            if held is status:
                return Failure(status=status, reason=one_line(_describe(report)))
    return None


def labels_of_reports(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the labels that the reports set, each once."""
    return list(dict.fromkeys(LABEL_OF_KIND[kind] for r in reports if (kind := str(r.get("kind"))) in LABEL_OF_KIND))


def _describe(report: Mapping[str, Any]) -> str:
    """Describe a report, e.g. `matmul, line 51: <message> (shared tile[0][3])`.

    A data race names the array first, then both accesses, if the report has them.
    """

    def text(key: str) -> str:
        held = report.get(key)
        return "" if held is None else str(held)[:200]

    line = f"line {text('line')}" if text("line") else ""
    if line and text("file") and not text("file").endswith(".py"):
        line += f" of {text('file')}"
    where = ", ".join(part for part in (text("kernel"), line) if part)
    what = text("message") or text("kind").replace("_", " ")
    array = f"{text('space')} {text('array')}{text('subscript')}".strip() if text("array") else ""
    access, other_access = text("access").partition(" of ")[0], text("other_access")
    if report.get("kind") == "data_race" and array and line and access and other_access and text("other_line"):
        element = f"{text('space')} `{text('array')}{text('subscript')}`".strip()
        inside = f" in kernel `{text('kernel')}`" if text("kernel") else ""
        second = f"{other_access} by another thread on line {text('other_line')} without synchronisation"
        return f"data race on {element}{inside}: {access} on {line}, {second}"
    other = f"the other access is on line {text('other_line')}" if text("other_line") else ""
    details = "; ".join(part for part in (array, other) if part)
    return (f"{where}: " if where else "") + what + (f" ({details})" if details else "")

"""Where findings lie: lines of compiled files, as the tools and the host device's checks know them, become lines of the
solution's file.

Trusted side; pure but for its imports. A report may come from a contestant's process: every field is read defensively.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

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

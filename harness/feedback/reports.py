"""What the checks of the host device and compute-sanitizer's tools reported: races, bad accesses, barriers.

Pure; see the package. Reports are claims of a contestant's process, so every field is read defensively.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.feedback import evidence as read
from harness.feedback.source import line_in_file, quoted
from harness.model import Record
from harness.report import format as show

MAX_REPORTS = 5


def reports(record: Record, source: str | None) -> list[str]:
    """The reports of a record, each mistake once, with the lines of the source where it is at hand."""
    held = read.rows(record.evidence, "reports")
    lines: list[str] = []
    seen: set[tuple[str, ...]] = set()
    for row in held:
        # One mistake is seen from both of its threads: each pair of lines once.
        pair = sorted(str(row.get(key) or "") for key in ("line", "other_line"))
        key = (read.text(row, "kind"), read.text(row, "kernel"), *pair)
        if key not in seen and len(seen) < MAX_REPORTS:
            seen.add(key)
            lines += _report(row, source)
        elif key not in seen:
            return [*lines, f"and more: {len(held)} reports in all"]
    return lines


def _report(row: Mapping[str, Any], source: str | None) -> list[str]:
    kernel = show.line(row.get("kernel") or "", 120)
    line, other = read.whole(row, "line"), read.whole(row, "other_line")
    # compute-sanitizer's places were looked up in the solution's file already; the host device's are the CUDA text's.
    placed = read.text(row, "file").endswith(".py")
    kind = show.line(read.text(row, "kind").replace("_", " ") or "report", 40)
    what = show.line(read.text(row, "message"), 300)
    where = f", line {line}{' of the solution' if placed else ''}" if line else ""
    tool = f" ({show.line(read.text(row, 'tool'), 60)})" if read.text(row, "tool") else ""
    lines = [f"{kind} in {kernel or 'a kernel'}{where}" + (f": {what}" if what else "") + tool]
    array = f"{read.text(row, 'space')} {read.text(row, 'array')}{read.text(row, 'subscript')}".strip()
    if read.text(row, "array"):
        lines.append(f"  memory: {show.line(array, 120)}")
    for prefix, words in (("", "by"), ("other_", "the other access: by")):
        block, thread, access = (row.get(f"{prefix}{name}") for name in ("block", "thread", "access"))
        if thread is not None:
            did = f", a {show.line(access, 40)}" if access else ""
            lines.append(f"  {words} thread {show.line(thread, 40)} of block {show.line(block, 40)}{did}")
    if count := read.whole(row, "count"):
        lines.append(f"  seen {count} times" if count > 1 else "  seen once")
    for place in dict.fromkeys(item for item in (line, other) if item):
        lines += _quoted(source, kernel, place, placed=placed)
    return lines


def _quoted(source: str | None, kernel: str, line: int, *, placed: bool) -> list[str]:
    if source is None:
        return []
    in_file = line if placed else line_in_file(source, kernel, line) if kernel else None
    if in_file is None:
        return []
    found = [f"    {item}" for item in quoted(source, in_file, around=1)]
    heading = f"  line {in_file} of the solution:"
    return [heading if placed else f"  line {line} of the CUDA source is line {in_file} of the solution:", *found]

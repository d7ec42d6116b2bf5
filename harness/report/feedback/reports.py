"""Format findings of the host device and of compute-sanitizer.

Findings are claims of a contestant's process, so every field is read defensively.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.record import Record
from harness.report import format as show
from harness.results import evidence as read

MAX_REPORTS = 5
AROUND = 2
"""Number of lines quoted before and after."""

MAX_LINE_CHARS = 160


def reports(record: Record, source: str | None) -> list[str]:
    """Return the findings of a record, each once, with quoted source lines."""
    held = read.rows(record.evidence, "reports")
    lines: list[str] = []
    seen: set[tuple[str, ...]] = set()
    for row in held:
        # Both threads of a race report it: show each pair of lines once.
        pair = sorted(str(row.get(key) or "") for key in ("line", "other_line"))
        key = (read.text(row, "kind"), read.text(row, "kernel"), *pair)
        if key not in seen and len(seen) < MAX_REPORTS:
            seen.add(key)
            lines += _report(row, source)
        elif key not in seen:
            return [*lines, f"not all shown: {len(held)} reports in total"]
    return lines


def stood_in(record: Record, source: str | None) -> list[str]:
    """Return the place in which a process died or was killed, with the quoted line."""
    row = read.mapping(record.evidence, "stood_in")
    kernel, last = (show.line(row.get(name) or "", 120) for name in ("kernel", "last_kernel"))
    line = read.whole(row, "line")
    if not (kernel or last or line):
        return []
    where = f"line {line}{_of_what(row, 'file')}" if line else ""
    if kernel:
        launch = read.whole(row, "launch")
        where = f"launch {launch}, on {where}" if launch and where else where
        lines = [f"in kernel {kernel}" + (f", {where}" if where else "")]
    else:
        lines = [
            "outside kernels" + (f", {where}" if where else "") + (f"; the last kernel was {last}" if last else "")
        ]
    if message := read.text(row, "message"):
        lines.append(f"  {show.line(message, 100)}")
    if (thread := row.get("thread")) is not None:
        lines.append(f"  thread {show.line(thread, 40)} of block {show.line(row.get('block'), 40)}")
    return lines + (_quoted(source, line) if line and _placed(row, "file") else [])


def _report(row: Mapping[str, Any], source: str | None) -> list[str]:
    kernel = show.line(row.get("kernel") or "", 120)
    line = read.whole(row, "line")
    kind = show.line(read.text(row, "kind").replace("_", " ") or "report", 40)
    # The accesses of both threads are listed below; a tool's own words say more.
    told_below = row.get("other_thread") is not None and not read.text(row, "tool")
    what = "" if told_below else show.line(read.text(row, "message"), 300)
    where = f", line {line}{_of_what(row, 'file')}" if line else ""
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
    places = {read.whole(row, f"{prefix}line") for prefix in ("", "other_") if _placed(row, f"{prefix}file")}
    for place in sorted(item for item in places if item):
        lines += _quoted(source, place)
    return lines


def _placed(row: Mapping[str, Any], key: str) -> bool:
    """Return whether the line number refers to the solution's file."""
    return read.text(row, key).endswith(".py")


def _of_what(row: Mapping[str, Any], key: str) -> str:
    file = read.text(row, key)
    return f" of {'the solution' if _placed(row, key) else show.line(file, 80)}" if file else ""


def _quoted(source: str | None, line: int) -> list[str]:
    found = [f"    {item}" for item in quoted(source, line, around=1)] if source is not None else []
    return [f"  line {line} of the solution:", *found] if found else []


def quoted(source: str, line: int, *, around: int = AROUND) -> list[str]:
    """Return the numbered lines around `line` (from 1), with `line` marked."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - around), min(len(lines), line + around)
    width = len(str(last))
    return [
        f"{'>' if number == line else ' '} {number:{width}} | {show.line(lines[number - 1].rstrip(), MAX_LINE_CHARS)}"
        for number in range(first, last + 1)
    ]

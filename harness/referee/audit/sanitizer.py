"""compute-sanitizer: command lines of its tools, and their output as reports.

Pure. The output comes from a tool in an untrusted process: the search is bounded, and nothing beyond the text is
believed. Reports have the same fields as the host device's (`contestants.findings` turns both into verdicts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from harness.protocol.kernel_names import function_name

PRINT_LIMIT = 2000
"""Findings after which a tool stops printing, counted over all processes that it has watched."""

MAX_TEXT_CHARS = 4 * 2**20
MAX_REPORTS = 64


class SanitizerTool(StrEnum):
    """A tool of compute-sanitizer; each member says what it finds."""

    MEMCHECK = "memcheck"
    """Accesses outside allocations, misaligned accesses, stack overflows."""
    RACECHECK = "racecheck"
    """Hazards between threads on shared memory."""
    INITCHECK = "initcheck"
    """Reads of global memory that was never written."""
    SYNCCHECK = "synccheck"
    """Barriers that some threads of the block, or of the named warp, never reach."""


_OPTIONS = {
    # Without padding the next allocation may follow directly, and an access past the end falls into it.
    SanitizerTool.MEMCHECK: ("--report-api-errors", "no", "--padding", "4096"),
    SanitizerTool.RACECHECK: ("--racecheck-report", "analysis"),
    SanitizerTool.INITCHECK: (),
    SanitizerTool.SYNCCHECK: (),
}


CALLS = {SanitizerTool.MEMCHECK: 2, SanitizerTool.RACECHECK: 1, SanitizerTool.INITCHECK: 2, SanitizerTool.SYNCCHECK: 1}
"""Calls under each tool.

A second call shows errors in memory that the first call left behind; races do not depend on it, and racecheck takes
seconds for a long loop.
"""

_MARKS = {
    SanitizerTool.RACECHECK: ("shared", "asm", "##"),
    SanitizerTool.SYNCCHECK: ("sync", "barrier", "asm", "##"),
}
"""If CUDA code contains none of these words, the tool has nothing to check; `##` may form any word."""


def not_needed(tool: SanitizerTool, texts: Sequence[str]) -> str | None:
    """Why `tool` can find nothing in kernels compiled from `texts`; None if it may.

    Macros may come from compiler flags, so `texts` should include the file that names them.
    """
    marks = _MARKS.get(tool)
    if marks is None or not texts:
        return None
    # A line splice may have trailing blanks; the digraph %: means #.
    whole = re.sub(r"\\\s*\n", "", "\n".join(texts)).replace("%:", "#").lower()
    if any(mark in whole for mark in marks):
        return None
    return "the sources use no shared memory" if tool is SanitizerTool.RACECHECK else "the sources use no barriers"


def command(executable: str, tool: SanitizerTool, log_path: str) -> tuple[str, ...]:
    """The words before a command that run it and its children under `tool`.

    The tool writes to `log_path`.
    """
    options = ("--target-processes", "all", "--show-backtrace", "no", "--print-limit", str(PRINT_LIMIT))
    return (executable, "--tool", tool.value, *options, *_OPTIONS[tool], "--log-file", log_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLocation:
    """A point in device code: a line of a file in a kernel.

    `file` is the last part of its path; `file` and `line` are None without line tables.
    """

    kernel: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizerFinding:
    """One defect, with the number of threads that had it.

    `other` is the conflicting access of a race.
    """

    kind: str
    tool: SanitizerTool
    message: str
    place: DeviceLocation
    other: DeviceLocation | None = None
    thread: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    count: int = 1

    def to_report(self) -> dict[str, Any]:
        """The finding in the host device's report format: JSON without unknown fields."""
        report: dict[str, Any] = {
            "kind": self.kind,
            "tool": f"compute-sanitizer {self.tool.value}",
            "message": self.message,
            "kernel": self.place.kernel,
            "file": self.place.file,
            "line": self.place.line,
            "other_line": None if self.other is None else self.other.line,
            "other_file": None if self.other is None else self.other.file,
            "thread": None if self.thread is None else list(self.thread),
            "block": None if self.block is None else list(self.block),
            "count": self.count,
        }
        return {key: value for key, value in report.items() if value is not None}


_MARK = "========="
_HAZARDS = re.compile(r" \[\d{1,12} hazards\]$")
_OFFSET = re.compile(r"\+0x[0-9a-f]++(?= in |$)")
_LINE = re.compile(r":(\d{1,9})$")
_THREAD = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_RACE = re.compile(r"(?P<severity>Error|Warning): Race reported between (?P<first>\w+) access (?P<place>at .+)$")
_AND = re.compile(r"and (?P<second>\w+) access (?P<place>at .+)$")
_HEADS = (
    (re.compile(r"^(?P<what>Invalid __\w+__ (?:read|write|atomic) of size \d+ bytes)"), "memory_error"),
    (re.compile(r"^(?P<what>Uninitialized __\w+__ memory read of size \d+ bytes)"), "uninitialised_read"),
    (re.compile(r"^(?P<what>Barrier error detected\. .+)$"), "barrier_error"),
    (re.compile(r"^(?P<what>Stack overflow.*|.*[Uu]ser stack overflow.*)$"), "memory_error"),
)
_DETAIL = re.compile(r"^(?:Address|Access at) 0x[0-9a-f]+ is (?P<fault>misaligned|out of bounds)")
_NEAREST = re.compile(
    r"^and is (?P<text>[\d,]+ bytes (?:after|before) the nearest allocation) "
    r"at 0x[0-9a-f]+ (?P<size>of size [\d,]+ bytes)"
)


_OVERFLOW = "Maximum number of hazards reached"


def overflowed(text: str) -> bool:
    """Whether racecheck's output is incomplete.

    racecheck keeps at most ten million pairs of accesses.
    """
    return any(line.startswith(_MARK) and _OVERFLOW in line for line in text[:MAX_TEXT_CHARS].splitlines())


def parse(text: str, tool: SanitizerTool) -> tuple[SanitizerFinding, ...]:
    """The findings in a tool's output, at most `MAX_REPORTS`, in order of appearance.

    Findings at the same places are counted together.
    """
    found: dict[tuple[object, ...], SanitizerFinding] = {}
    for block in _blocks(text[:MAX_TEXT_CHARS]):
        finding = _read_race(block, tool) or _read_fault(block, tool)
        if finding is None:
            continue
        key = (finding.kind, finding.place, finding.other)
        held = found.get(key)
        if held is None and len(found) >= MAX_REPORTS:
            continue
        found[key] = finding if held is None else replace(held, count=held.count + finding.count)
    return tuple(found.values())


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each finding without their mark; an empty line ends a finding."""
    block: list[str] = []
    for line in text.splitlines():
        if not line.startswith(_MARK):
            continue
        words = line.removeprefix(_MARK).strip()
        if words:
            block.append(words)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _read_race(block: Sequence[str], tool: SanitizerTool) -> SanitizerFinding | None:
    for index, line in enumerate(block):
        head = _RACE.search(line)
        if head is None:
            continue
        if head["severity"] != "Error":
            return None
        tail = next((match for other in block[index + 1 :] if (match := _AND.search(other))), None)
        first = _place(head["place"])
        second = _place(tail["place"]) if tail else None
        if first is None:
            return None
        # The finding's place is the read, and `other` the write; of two writes, the first one named.
        own, other, words = first, second, (head["first"], tail["second"] if tail else "another")
        if second is not None and words[0] == "Write" and words[1] == "Read":
            own, other, words = second, first, (words[1], words[0])
        hazards = re.search(r"\[(\d+) hazards\]", " ".join(block))
        return SanitizerFinding(
            kind="data_race",
            tool=tool,
            message=f"a {words[0].lower()} of shared memory races with a {words[1].lower()} by another thread",
            place=own,
            other=other,
            count=int(hazards[1][:9]) if hazards else 1,
        )
    return None


def _read_fault(block: Sequence[str], tool: SanitizerTool) -> SanitizerFinding | None:
    for index, line in enumerate(block):
        for pattern, kind in _HEADS:
            if (head := pattern.search(line)) is None:
                continue
            rest = block[index + 1 :]
            place = next((held for other in rest if (held := _place(other))), None)
            if place is None:
                return None
            message = head["what"]
            for other in rest:
                if detail := _DETAIL.search(other):
                    kind = "misaligned" if detail["fault"] == "misaligned" else kind
                    message += f", {detail['fault']}"
                if nearest := _NEAREST.search(other):
                    message += f": {nearest['text']} ({nearest['size']})"
            thread = next((match for other in rest if (match := _THREAD.search(other))), None)
            numbers = tuple(int(group[:9]) for group in thread.groups()) if thread else None
            return SanitizerFinding(
                kind=kind,
                tool=tool,
                message=message[:300],
                place=place,
                thread=numbers[:3] if numbers else None,
                block=numbers[3:] if numbers else None,
            )
    return None


def _place(line: str) -> DeviceLocation | None:
    """Parse `at KERNEL+0xOFFSET`, optionally followed by `in FILE:LINE`.

    The solution chooses the names of kernels and files, which may contain these words, so each part is searched once.
    """
    _, _, text = _HAZARDS.sub("", line).partition("at ")
    end = _LINE.search(text)
    for offset in _OFFSET.finditer(text):
        file_at = offset.end() + len(" in ")
        if offset.start() == 0 or not (offset.end() == len(text) or (end is not None and file_at < end.start())):
            continue
        named = None if end is None or offset.end() == len(text) else text[file_at : end.start()]
        return DeviceLocation(
            kernel=function_name(text[: offset.start()]),
            file=PurePath(named).name[:200] if named else None,
            line=int(end[1]) if named and end is not None else None,
        )
    return None

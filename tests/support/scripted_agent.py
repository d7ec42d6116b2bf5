"""A deterministic agent: it reads replies of `harness mcp` and edits its solution by fixed rules.

It knows its own source and the replies, nothing else: neither the solution before the bug nor the problem. Each rule
takes what the feedback says (status, line, memory, pattern) and yields edited sources, the likeliest first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.agent_replies import Read

Rule = Callable[[list[str], Read], Iterator[list[str]]]
"""Takes the lines of a source and the reply; yields edited lines."""

BARRIER = "__syncthreads();"


def number(reply: Read, pattern: str) -> int:
    """Return the first number that a pattern finds in the untrusted text; 0 if there is none."""
    found = re.search(pattern, reply.text)
    return int(found[1]) if found else 0


def changed(lines: list[str], line: int, old: str, new: str) -> Iterator[list[str]]:
    """Replace a pattern in one line (from 1)."""
    edited = re.sub(old, new, lines[line - 1])
    if edited != lines[line - 1]:
        yield [*lines[: line - 1], edited, *lines[line:]]


def inserted(lines: list[str], before: int, text: str) -> list[str]:
    """Insert a line before another one (from 1), indented as that one."""
    indent = re.match(r"\s*", lines[before - 1])
    return [*lines[: before - 1], (indent[0] if indent else "") + text, *lines[before - 1 :]]


def depths(lines: list[str]) -> list[int]:
    """Return how many braces are open at the beginning of each line."""
    found = [0]
    for line in lines:
        found.append(found[-1] + line.count("{") - line.count("}"))
    return found


def kernel_lines(lines: list[str], line: int) -> range:
    """Return the lines from `line` up to the beginning of its function, nearest first."""
    first = next(n for n in range(line, 0, -1) if re.search(r"__(global|device)__|kernel\(", lines[n - 1]) or n == 1)
    return range(line, first, -1)


def compile_error(lines: list[str], reply: Read) -> Iterator[list[str]]:
    line = number(reply, r"\(line (\d+) of the solution\)")
    if not line:
        return
    if re.search(r"expected .*;", reply.text):
        before = next(n for n in range(line - 1, 0, -1) if lines[n - 1].strip())
        yield from changed(lines, before, r"\s*$", ";")
    if named := re.search(r"[‘'\"](\w+)[’'\"] was not declared.*did you mean [‘'\"](\w+)[’'\"]", reply.text):
        yield from changed(lines, line, rf"\b{named[1]}\b", named[2])


def memory_error(lines: list[str], reply: Read) -> Iterator[list[str]]:
    line = number(reply, r"What failed\n.*line (\d+)")
    memory = re.search(r"memory: (shared|global) (\w+)\[(\d+)\]", reply.text)
    if not line or not memory:
        return
    space, array, index = memory.groups()
    if space == "shared":  # the declaration has too few elements
        for n in kernel_lines(lines, line):
            yield from changed(lines, n, rf"(__shared__ .*\b{array})\[[^\]]*\]", rf"\1[{int(index) + 1}]")
        return
    for n in kernel_lines(lines, line):  # the nearest bound that lets one index too many through
        yield from changed(lines, n, r" <= ", " < ")
        if "return" in lines[n - 1]:
            yield from changed(lines, n, r" > ", " >= ")
    for n in range(1, len(lines) + 1):  # the memory is one element too small
        yield from changed(lines, n, rf"(auto {array} = torch::\w+)\(\{{([^,}}]*)\}}", r"\1({(\2) + 1}")


def data_race(lines: list[str], reply: Read) -> Iterator[list[str]]:
    pair = re.search(r"data race on .* on line (\d+), .* on line (\d+)", reply.text)
    if not pair:
        return
    first, last = sorted(map(int, pair.groups()))
    depth = depths(lines)
    least = min(depth[n - 1] for n in range(first, last + 1))
    between = [n for n in range(first + 1, last + 1) if depth[n - 1] == least and "}" not in lines[n - 1][:9].strip()]
    if not any(BARRIER in lines[n - 1] for n in between) and between:
        yield inserted(lines, between[0], BARRIER)  # between the two accesses, where all threads come by
    end = next((n for n in range(last + 1, len(lines) + 1) if depth[n] < depth[first - 1]), 0)
    if end:
        yield inserted(lines, end, BARRIER)  # at the end of the loop, before its next round


def barrier_error(lines: list[str], reply: Read) -> Iterator[list[str]]:
    line, depth = number(reply, r"What failed\n.*line (\d+)"), depths(lines)
    for n in kernel_lines(lines, line) if line else ():
        if BARRIER in lines[n - 1] and depth[n - 1] > 1:  # out of the branch, behind its end
            end = next(m for m in range(n + 1, len(lines) + 1) if depth[m] < depth[n - 1])
            yield [*lines[: n - 1], *lines[n:end], BARRIER, *lines[end:]]
            yield [*lines[: n - 1], *lines[n:]]


def uninitialised_read(lines: list[str], reply: Read) -> Iterator[list[str]]:
    line = number(reply, r"What failed\n.*line (\d+)")
    memory = re.search(r"memory: (shared|global) (\w+)\[", reply.text)
    if line and memory:
        yield from changed(lines, line, rf"\b{memory[2]}\[([^\]]+)\]\[([^\]]+)\]", rf"{memory[2]}[\2][\1]")
        for n in range(1, len(lines) + 1):
            yield from changed(lines, n, rf"(auto {memory[2]} = torch::)empty", r"\1zeros")


def cuda_error(lines: list[str], reply: Read) -> Iterator[list[str]]:
    line = number(reply, r"What failed\n.*line (\d+)")
    most = number(reply, r"exceeds the limits: 1 to (\d+)")
    launch = re.search(r"<<<.*, (\w+)>>>", lines[line - 1]) if line and most else None
    if launch:
        for n in range(1, len(lines) + 1):
            yield from changed(lines, n, rf"\b{launch[1]} = \d+", f"{launch[1]} = {most}")
        yield from changed(lines, line, r", \d+>>>", f", {most}>>>")


def runtime_error(lines: list[str], reply: Read) -> Iterator[list[str]]:
    if re.search("expected scalar type Float but found Double", reply.text):
        for n, line in enumerate(lines, 1):
            named = re.search(r"auto (\w+) = torch::.*\.dtype\(torch::kFloat64\)", line)
            if named and f"{named[1]}.data_ptr<float>" in "\n".join(lines):
                yield from changed(lines, n, r"\.dtype\(torch::kFloat64\)", "")


def returned(lines: list[str], call: str) -> Iterator[list[str]]:
    """Append a call to what `forward` returns."""
    for n in range(len(lines), 0, -1):
        if re.match(r"\s+return ", lines[n - 1]):
            yield from changed(lines, n, r"$", call)
            return


def wrong_dtype(lines: list[str], reply: Read) -> Iterator[list[str]]:
    if found := re.search(r"has dtype \w+, expected (\w+)", reply.text):
        yield from returned(lines, f".to(torch.{found[1]})")


def wrong_shape(lines: list[str], reply: Read) -> Iterator[list[str]]:
    found = re.search(r"has shape \[(.*?)\], expected \[(.*?)\]", reply.text)
    has, wanted = (found[n].split(", ") for n in (1, 2)) if found else ([], [])
    for at in range(len(wanted)):
        if wanted[at] == "1" and wanted[:at] + wanted[at + 1 :] == has:
            yield from returned(lines, f".unsqueeze({at})")
    for at in range(len(has)):
        if has[at] == "1" and has[:at] + has[at + 1 :] == wanted:
            yield from returned(lines, f".squeeze({at})")


def wrong_value(lines: list[str], reply: Read) -> Iterator[list[str]]:
    if "partial tile" in reply.text:  # the grid is rounded down
        for n in range(1, len(lines) + 1):
            yield from changed(lines, n, r"<<<(\w+) / (\w+),", r"<<<(\1 + \2 - 1) / \2,")
    if "transposed" in reply.text:
        for n in range(len(lines), 0, -1):
            yield from changed(lines, n, r"\[((?:\(\w+\))?)(\w+) \* (\w+) \+ (\w+)\] =", r"[\1\4 * \3 + \2] =")


RULES: Mapping[str, Rule] = {
    "compile_error": compile_error,
    "memory_error": memory_error,
    "data_race": data_race,
    "barrier_error": barrier_error,
    "uninitialised_read": uninitialised_read,
    "cuda_error": cuda_error,
    "runtime_error": runtime_error,
    "wrong_dtype": wrong_dtype,
    "wrong_shape": wrong_shape,
    "wrong_value": wrong_value,
    "non_finite": wrong_value,
}
"""Status -> rule."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """How an agent went: the status after each call, and the last source."""

    statuses: tuple[str, ...]
    source: str

    @property
    def right(self) -> bool:
        return self.statuses[0] != "passed" and self.statuses[-1] == "passed"


async def work(evaluate: Callable[[str], Any], source: str, calls: int) -> Course:
    """Evaluate a source and follow the feedback, in at most `calls` calls.

    An edit that changes what the feedback says is kept; else the next one of the same rule is tried.
    """
    tried = {source}
    statuses: list[str] = []
    best, told = source, ""
    untried: Iterator[list[str]] = iter(())
    for _ in range(calls):
        reply: Read = await evaluate(source)
        statuses.append(reply.head["status"])
        if statuses[-1] == "passed":
            break
        failed = f"{statuses[-1]} {reply.text.partition('What failed')[2].partition('Inputs')[0]}"
        if failed != told and (len(statuses) == 1 or statuses[-1] not in statuses[:-1]):
            best, told = source, failed
            rule = RULES.get(statuses[-1])
            untried = rule(best.split("\n"), reply) if rule else iter(())
        source = next((text for lines in untried if (text := "\n".join(lines)) not in tried), "")
        if not source:
            return Course(statuses=tuple(statuses), source=best)
        tried.add(source)
    return Course(statuses=tuple(statuses), source=source)

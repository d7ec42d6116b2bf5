"""Parse compiler output: the first error, and the resources of each kernel.

Trusted side. The text comes out of a sandbox and may hold anything, so every extracted value is bounded. Lines are cut
before the regexes run, so that a hostile log can't make the parser slow.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.core.json_value import JsonObject
from harness.protocol.kernel_names import kept_symbol

MAX_LOG_CHARS = 4 * 2**20
MAX_KERNELS = 256
_MAX_MESSAGE = 400

MAX_LINE_CHARS = 16_000
"""Part of a log line that is searched. Template names are long; nothing of interest follows later."""

TEXTS_KEPT = 2
"""Texts whose lines are cached: all reports of one burst refer to the same ones."""

NOTE = "[harness]"
"""Prefix of every log line that the harness itself wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMap:
    """Maps lines of a generated file to lines of the source texts in it.

    Attributes:
        file: Name of the generated file.
        parts: For each text its display name (`cuda source 1`), the text, and the line of `file` where it begins
            (from 1).
    """

    file: str
    parts: tuple[tuple[str, str, int], ...]

    def locate(self, line: int) -> tuple[str, int, str] | None:
        """Return the text that covers `line`: its name, line number (from 1) and line."""
        for name, text, begin in reversed(self.parts):
            if begin <= line <= begin + _breaks(text):
                return name, line - begin + 1, _lines(text)[line - begin]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerError(JsonObject):
    """The first error of a build.

    Attributes:
        tool: The compiler or tool that reported it.
        message: The message, in one line.
        file: Name of the source text (`cuda source 1`, `cpp source 1`), or another file or tool.
        line: Line in `file` (from 1).
        solution_line: Line in the solution's file, if it is known.
        text: The source line.
    """

    tool: str
    message: str
    file: str | None = None
    line: int | None = None
    solution_line: int | None = None
    text: str = ""

    def sentence(self) -> str:
        """Return the error in one line.

        Example: `cuda source 1, line 12 (line 45 of the solution): identifier "x" is undefined`.
        """
        place = self.file or self.tool
        if self.line is not None:
            place += f", line {self.line}"
        if self.solution_line is not None:
            place += f" (line {self.solution_line} of the solution)"
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources(JsonObject):
    """GPU resources of one kernel for one architecture, as ptxas reports them.

    `stack_bytes` and the spills are bytes per thread, `shared_bytes` (static) is bytes per block.
    """

    kernel: str
    symbol: str
    arch: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_stores_bytes: int
    spill_loads_bytes: int
    barriers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics(JsonObject):
    """Everything parsed from one log.

    Attributes:
        error: The first compiler error.
        kernels: Resources of the compiled kernels.
        not_emulated: Constructs that the host device can't execute, with their places.
        fault: An exception in the harness's own code that ran between the compilers.
    """

    error: CompilerError | None = None
    kernels: tuple[KernelResources, ...] = ()
    not_emulated: tuple[str, ...] = ()
    fault: str | None = None


_TELLING = re.compile(r"error|fatal|undefined reference|multiple definition|cannot find|^/bin/sh: ")
"""Words that a line must contain to match any pattern below; the log may hold millions of other lines."""

# One error a line, of the compilers and tools that a build runs.
_PLACED = (
    (
        "nvcc",
        re.compile(
            r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.+)$"
        ),
    ),
    ("g++", re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<message>.+)$")),
)
_UNPLACED = (
    ("ptxas", re.compile(r"^ptxas (?:\S+, line \d+; )?(?:fatal|error)\s*: (?P<message>.+)$")),
    ("nvlink", re.compile(r"^nvlink (?:fatal|error)\s*: (?P<message>.+)$")),
    ("nvcc", re.compile(r"^(?:nvcc fatal|nvcc error)\s*: (?P<message>.+)$")),
    ("linker", re.compile(r"^.*(?P<message>(?:undefined reference|multiple definition|cannot find) .+)$")),
    # The driver may have any prefix or suffix: `g++-13`, `x86_64-conda-linux-gnu-c++`.
    (
        "g++",
        re.compile(
            r"^(?:[^\s:]*[-/])?(?:g\+\+|gcc|c\+\+|cc|cc1plus|cc1|clang\+\+|clang)(?:-[\w.]+)?: "
            r"(?:fatal )?error: (?P<message>.+)$"
        ),
    ),
    ("linker", re.compile(r"^(?:/\S+/)?(?:ld|collect2)(?:\.\w+)?: (?:fatal )?error: (?P<message>.+)$")),
    ("ninja", re.compile(r"^ninja: (?:error|fatal): (?P<message>.+)$")),
    ("shell", re.compile(r"^/bin/sh: (?:\d+: |line \d+: |-c: )?(?P<message>.+)$")),
)
_MENTION = (
    re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+:   required from here"),
    re.compile(r"at line (?P<line>\d+) of (?P<file>\S+)"),
    re.compile(r"at line (?P<line>\d+)$"),
)
_CONTEXT_LINES = 40


def first_error(log: str, maps: Sequence[SourceMap], solution: str | None = None) -> CompilerError | None:
    """Return the first error of a log, placed in the source texts if possible.

    An error in a header gets the place in the sources that the compiler names as its cause.

    Args:
        log: The compilers' output.
        maps: The generated files of the build.
        solution: Text of the solution's file, to find the line in it.

    Returns:
        None if no line is an error.
    """
    lines = [line[:MAX_LINE_CHARS] for line in log[:MAX_LOG_CHARS].splitlines()]
    weak: CompilerError | None = None
    for index, line in enumerate(lines):
        if line.startswith(NOTE) or _TELLING.search(line) is None:
            continue
        for tool, pattern in _PLACED:
            if match := pattern.match(line):
                # g++ prints the origin of an error before it, nvcc after it.
                before, after = lines[max(0, index - _CONTEXT_LINES) : index], lines[index + 1 :][:_CONTEXT_LINES]
                context = before[::-1] if tool == "g++" else after
                return _placed(tool, match, context, maps, solution)
        for tool, pattern in _UNPLACED:
            if match := pattern.match(line):
                message = re.sub(r"_Z\w+", lambda symbol: kernel_name(symbol[0]), match["message"])
                found = CompilerError(tool=tool, message=_clip(message))
                if tool in ("ninja", "shell") or match["message"].startswith("ld returned"):
                    weak = weak or found
                    break
                return found
    return weak


def place_in_sources(
    parts: Sequence[tuple[str, str, int]], line: int, solution: str
) -> tuple[str, int, int | None] | None:
    """Find the origin of a compiled file's line.

    Args:
        parts: `SourceMap.parts` of all files of this name, possibly of several extensions.
        line: Line of the compiled file (from 1).
        solution: Text of the solution's file.

    Returns:
        Name of the source text, line in it, and line in the solution's file. None if the harness added the line; the
        solution's line is None if the text is not found there.
    """
    for name, text, begin in parts:
        if spot := SourceMap(file="", parts=((name, text, begin),)).locate(line):
            return name, spot[1], _line_in(solution, text, spot[1], spot[2])
    return None


def in_solution(error: CompilerError, maps: Sequence[SourceMap], solution: str) -> CompilerError:
    """Add the solution's line to `error`, if its text occurs there exactly once."""
    for source in maps:
        for name, text, _ in source.parts:
            if name == error.file and error.line is not None:
                line = _line_in(solution, text, error.line, error.text)
                return CompilerError(
                    tool=error.tool,
                    message=error.message,
                    file=error.file,
                    line=error.line,
                    solution_line=line,
                    text=error.text,
                )
    return error


def kernel_resources(log: str) -> tuple[KernelResources, ...]:
    """Parse `ptxas -v` output: one entry per kernel and architecture, in order.

    At most `MAX_KERNELS` entries are returned.
    """
    found: dict[tuple[str, str], KernelResources] = {}
    for match in _COMPILING.finditer(log[:MAX_LOG_CHARS]):
        if len(found) >= MAX_KERNELS:
            break
        symbol, arch = kept_symbol(match["symbol"]), match["arch"]
        block = "\n".join(line[:MAX_LINE_CHARS] for line in match["block"].splitlines())

        def number(before: str, after: str, text: str = block) -> int:
            hit = re.search(rf"{before}(?<!\d)(\d{{1,9}}){after}", text)
            return int(hit[1]) if hit else 0

        found[symbol, arch] = KernelResources(
            kernel=kernel_name(match["symbol"])[:_MAX_MESSAGE],
            symbol=symbol,
            arch=arch,
            registers=number("Used ", " registers"),
            shared_bytes=number("", " bytes smem"),
            stack_bytes=number("", " bytes stack frame"),
            spill_stores_bytes=number("", " bytes spill stores"),
            spill_loads_bytes=number("", " bytes spill loads"),
            barriers=number("used ", " barriers"),
        )
    return tuple(found.values())


_COMPILING = re.compile(
    r"^ptxas info\s*: Compiling entry function '(?P<symbol>[^'\n]+)' for '(?P<arch>sm_\w+)'\n"
    r"(?P<block>(?:(?!ptxas info\s*: Compiling)[^\n]*\n){0,6})",
    re.MULTILINE,
)


def not_emulated(log: str, maps: Sequence[SourceMap], solution: str | None = None) -> tuple[str, ...]:
    """Return the constructs that the host device can't execute, with places.

    Each appears once; at most `MAX_KERNELS` are returned.
    """
    found: dict[str, None] = {}
    for match in _NOT_EMULATED.finditer(log[:MAX_LOG_CHARS]):
        spot = _spot(match["file"], int(match["line"][:9]), maps)
        place = f"{spot[0]}, line {spot[1]}" if spot else f"{match['file']}, line {match['line'][:9]}"
        if spot and solution is not None:
            texts = [text for source in maps for name, text, _ in source.parts if name == spot[0]]
            line = _line_in(solution, texts[0], spot[1], spot[2])
            place += f" (line {line} of the solution)" if line is not None else ""
        found[_clip(f"{place}: {match['what']}")] = None
        if len(found) >= MAX_KERNELS:
            break
    return tuple(found)


def own_fault(log: str) -> str | None:
    """Return the exception that the harness's own code raised in the build, or None."""
    inside = own = False
    for line in log[:MAX_LOG_CHARS].splitlines():
        if line == "Traceback (most recent call last):":
            inside, own = True, False
        elif inside and line.startswith(" "):
            own = own or re.match(r' +File "[^"]*/harness/', line) is not None
        elif inside:
            if own and line:
                return _clip(line)
            inside = False
    return None


_NOT_EMULATED = re.compile(r"^(?P<file>[\w.]+):(?P<line>\d+): note: not emulated: (?P<what>.+)$", re.MULTILINE)


def kernel_name(symbol: str) -> str:
    """Return the last plain name of a mangled symbol, or the symbol if it has none.

    `_Z9my_kernelIfEvPT_` gives `my_kernel`.
    """
    if not symbol.startswith("_Z"):
        return symbol
    nested = symbol.startswith("N", 2)
    at = 2 + nested
    while nested and symbol.startswith("K", at):
        at += 1
    name = symbol
    while (size := _LENGTH.match(symbol, at)) is not None:
        length = int(size[1])
        part = symbol[size.end() : size.end() + length]
        if len(part) < length:
            break
        if not part.startswith("_GLOBAL__N_"):
            name = part
        at = size.end() + length
        if not nested:
            break
    return name


_LENGTH = re.compile(r"L?(\d{1,4})")
"""Length prefix of each part of a mangled name."""


def undefined_symbol(message: str) -> str | None:
    """Return the symbol that the dynamic loader did not find, or None."""
    found = re.search(r"undefined symbol: (.+)", message)
    return _clip(found[1]) if found else None


def _placed(
    tool: str, match: re.Match[str], context: Sequence[str], maps: Sequence[SourceMap], solution: str | None
) -> CompilerError:
    message, file, line = _clip(match["message"]), match["file"], int(match["line"][:9])
    spot = _spot(file, line, maps)
    if spot is None:
        for name, at in _mentions(context):
            if (spot := _spot(name, at, maps)) is not None:
                break
    if spot is None:
        return CompilerError(tool=tool, message=message, file=_clip(file), line=line)
    where, at, text = spot
    error = CompilerError(
        tool=tool, message=message, file=where, line=at, text=_clip(text.strip()) if text.strip() else ""
    )
    return error if solution is None else in_solution(error, maps, solution)


def _mentions(lines: Sequence[str]) -> Iterator[tuple[str | None, int]]:
    for line in lines:
        for pattern in _MENTION:
            if found := pattern.search(line):
                yield found.groupdict().get("file"), int(found["line"][:9])


def _spot(file: str | None, line: int, maps: Sequence[SourceMap]) -> tuple[str, int, str] | None:
    for source in maps:
        named = file is None or file == source.file or file.endswith(f"/{source.file}")
        if named and (spot := source.locate(line)) is not None:
            return spot
    return None


def _line_in(solution: str, text: str, line: int, line_text: str) -> int | None:
    if (before := _lines_before(solution, text)) is not None:
        return before + line
    return _single_lines(solution).get(line_text.strip())


@functools.lru_cache(maxsize=256)
def _breaks(text: str) -> int:
    return text.count("\n")


@functools.lru_cache(maxsize=TEXTS_KEPT)
def _lines(text: str) -> list[str]:
    return text.split("\n")


@functools.lru_cache(maxsize=64)
def _lines_before(solution: str, text: str) -> int | None:
    """Count the lines before `text` in the solution; None unless it occurs once."""
    if not text.strip() or solution.count(text) != 1:
        return None
    return solution.count("\n", 0, solution.index(text))


@functools.lru_cache(maxsize=TEXTS_KEPT)
def _single_lines(solution: str) -> dict[str, int]:
    """Map lines that occur exactly once (stripped, not empty) to their numbers."""
    found: dict[str, int] = {}
    often: set[str] = set()
    for number, line in enumerate(_lines(solution), 1):
        held = line.strip()
        if held in found:
            often.add(held)
        elif held:
            found[held] = number
    return {line: number for line, number in found.items() if line not in often}


def _clip(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _MAX_MESSAGE else folded[: _MAX_MESSAGE - 1] + "…"

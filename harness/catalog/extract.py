"""Extract a solution from a model's response.

It is the last complete fenced Python block that defines `ModelNew`.

The text is untrusted; it is parsed, never executed. Rules, in order:

1. The text after the last `</think>` is the answer, the text before it is reasoning. Reasoning is searched only if no
   line of the answer defines `ModelNew`; the reason then says so. No draft replaces an answer that is cut off.
2. A block begins with a line of three or more backticks or tildes. It ends with the next line that has only the same
   characters, at least as many. An opening fence may end a line of prose if it names Python. A fence with a language
   inside an open block starts a new block; the old block is unfinished. Unfinished blocks are ignored.
3. A fence inside a triple-quoted string belongs to the string. A broken draft may leave a string open, so the text is
   split both with and without this rule, and both results give candidates.
4. The last candidate that parses is taken, among those tagged as Python or untagged. If none parses, the last one.

The time is linear in the text. Candidates above `MAX_SOURCE_CHARS` are refused.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.core import python_ast

MAX_SOURCE_CHARS = 2**20
"""Largest block in characters. Real solutions have a few kilobytes; the parser is slow on megabytes."""

MAX_PARSED_CHARS = 2 * MAX_SOURCE_CHARS
"""Most characters to parse in all blocks of one response, from the last block backwards: Python's parser takes up to
6 s for a megabyte."""

PYTHON_TAGS = frozenset({"", "python", "py", "python3", "py3"})
"""Languages of fences that may contain a solution; the empty one is a fence without a language."""

_REASONING_END = "</think>"
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\r\n]*)")
# Possessive and anchored after the fence characters, so that a megabyte of backticks is searched once.
_FENCE_IN_PROSE = re.compile(r"(?<![`~])(`{3,}+|~{3,}+)[ \t]*+(python3?|py3?)[ \t]*+\Z", re.IGNORECASE)
_DEFINITION = re.compile(r"^[ \t]*(?:class[ \t]+ModelNew\b|ModelNew[ \t]*=[^=])", re.MULTILINE)
_QUOTES = re.compile(r"\\.|'''|\"\"\"|'|\"|#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One fenced block that mentions `ModelNew`.

    Attributes:
        first_line: Line of the opening fence, from 1.
        last_line: Line of the closing fence; None if the block is never closed.
        language: Language of the opening fence.
        in_reasoning: Whether the block is before the last `</think>`.
        verdict: Why the block was taken or not.
        chosen: Whether the block was taken.
    """

    first_line: int
    last_line: int | None
    language: str
    in_reasoning: bool
    verdict: str
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    r"""Result of an extraction.

    Attributes:
        source: The solution, with `\n` line ends and one newline at the end; None if there is none.
        reason: One line that says which block was taken, or why none.
        considered: All blocks that mention `ModelNew`.
    """

    source: str | None
    reason: str
    considered: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block: `lines[start:stop]`, with the fences at `start - 1` and `stop`."""

    start: int
    stop: int
    language: str
    indent: int
    closed: bool


def extract(text: str) -> Extraction:
    """Extract the solution from `text`. Never raises, for any string."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    marks = [i for i, line in enumerate(lines) if _REASONING_END in line]
    if not marks:
        return _describe(_choose(lines, 0, len(lines), in_reasoning=False), lines, "")
    # On the line of the mark, the text before it is reasoning, the text after it is answer.
    boundary = marks[-1]
    last, _, lines[boundary] = lines[boundary].rpartition(_REASONING_END)
    answer = _choose(lines, boundary, len(lines), in_reasoning=False)
    if answer.source is not None:
        return _describe(answer, lines, f", after the reasoning that ends on line {boundary + 1}")
    if _DEFINITION.search("\n".join(lines[boundary:])):  # cut off, or without a fence: a draft is not the answer
        return replace(
            answer, reason=f"{answer.reason}; the reasoning that ends on line {boundary + 1} was not searched"
        )
    reasoning = _choose([*lines[:boundary], last], 0, boundary + 1, in_reasoning=True)
    considered = (*reasoning.considered, *answer.considered)
    if reasoning.source is None:
        return replace(answer, considered=considered)
    note = f"; it is part of the reasoning, because nothing after line {boundary + 1} defines ModelNew"
    return _describe(replace(reasoning, considered=considered), lines, note)


def _describe(found: Extraction, lines: list[str], note: str) -> Extraction:
    return found if found.source is None else replace(found, reason=found.reason + note)


def _choose(lines: list[str], first: int, stop: int, *, in_reasoning: bool) -> Extraction:
    """Choose the best block of `lines[first:stop]`."""
    plain = list(_blocks(lines, first, stop, aware_of_strings=False))
    blocks = {(b.start, b.stop): b for b in (*_blocks(lines, first, stop, aware_of_strings=True), *plain)}
    considered: list[Candidate] = []
    usable: list[tuple[int, str]] = []
    for block in sorted(blocks.values(), key=lambda b: (b.stop, -b.start)):
        source = _source(lines, block)
        if _DEFINITION.search(source) is None:
            continue
        verdict = _objection(block, source)
        if verdict is None:
            usable.append((len(considered), source))
        considered.append(
            Candidate(
                first_line=block.start,
                last_line=block.stop + 1 if block.closed else None,
                language=block.language,
                in_reasoning=in_reasoning,
                verdict=verdict or "an earlier draft",
            )
        )
    chosen: tuple[int, str] | None = None
    broken = ""
    drafts: list[tuple[int, str]] = []
    left_chars = MAX_PARSED_CHARS
    for index, source in reversed(usable):
        left_chars -= len(source)
        if left_chars < 0:
            considered[index] = replace(considered[index], verdict="not read: the later blocks are too long")
            continue
        tree = _parse(source)
        if isinstance(tree, ast.Module) and _defines(tree.body):
            chosen = (index, source)
            break
        if isinstance(tree, str):
            drafts.append((index, source))
        verdict = tree if isinstance(tree, str) else "defines ModelNew only inside a string or a function"
        considered[index] = replace(considered[index], verdict=verdict)
    if chosen is None and drafts:
        chosen = drafts[0]
        broken = f", although it is broken ({considered[chosen[0]].verdict})"
    if chosen is None:
        return Extraction(source=None, reason=_nothing(plain, considered), considered=tuple(considered))
    index, source = chosen
    taken = considered[index]
    span = f"lines {taken.first_line} to {taken.last_line}"
    what = "the only block that defines" if len(considered) == 1 else f"the last of {len(considered)} that define"
    if not broken and index != len(considered) - 1:
        what = f"the last usable of {len(considered)} blocks that define"
    considered[index] = replace(taken, verdict="taken" + broken, chosen=True)
    return Extraction(source=source, reason=f"{span}: {what} ModelNew{broken}", considered=tuple(considered))


def _nothing(blocks: list[_Block], considered: list[Candidate]) -> str:
    """Return the reason why there is no solution."""
    if considered:
        last = considered[-1]
        return f"no complete Python block defines ModelNew; the one from line {last.first_line}: {last.verdict}"
    if not blocks:
        return "no fenced code block (``` or ~~~): the response is cut off, or it is bare code that needs no extraction"
    what = (
        "the only fenced block does not define"
        if len(blocks) == 1
        else f"none of the {len(blocks)} fenced blocks defines"
    )
    return f"{what} ModelNew"


def _objection(block: _Block, source: str) -> str | None:
    """Return why a block is not a candidate, or None."""
    if not block.closed:
        return "never closed: the response is cut off, or a new block begins inside"
    if block.language not in PYTHON_TAGS:
        return f"tagged {block.language[:40]!r}, not Python"
    if len(source) > MAX_SOURCE_CHARS:
        return f"larger than {MAX_SOURCE_CHARS} characters"
    return None


def _parse(source: str) -> ast.Module | str:
    """Return the syntax tree, or a text that says why `source` is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return python_ast.parse(source)
    except SyntaxError as error:
        return f"does not parse: {error.msg}, line {error.lineno} of the block"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"does not parse: {type(error).__name__}"


def _defines(body: list[ast.stmt]) -> bool:
    """Tell whether these top-level statements bind `ModelNew`.

    No recursion: each `elif` nests one level deeper, and a file may have as many as the parser accepts.
    """
    pending = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "ModelNew" for target in node.targets
        ):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            pending += getattr(node, name, [])
        for handler in getattr(node, "handlers", []):
            pending += handler.body
    return False


def _source(lines: list[str], block: _Block) -> str:
    """Return the text between the fences, without the opening fence's indentation."""
    held = lines[block.start : block.stop]
    if block.indent:
        held = [line[min(block.indent, len(line) - len(line.lstrip(" \t"))) :] for line in held]
    return "\n".join(held).strip("\n") + "\n"


def _blocks(lines: list[str], first: int, stop: int, *, aware_of_strings: bool) -> Iterator[_Block]:
    """Yield the fenced blocks of `lines[first:stop]`, also unfinished ones."""
    fence, language, indent, start, quote = "", "", 0, 0, ""
    for i in range(first, stop):
        line = lines[i]
        match = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if not fence:
            opened = match or _FENCE_IN_PROSE.search(line)
            if opened and not (opened[1][0] == "`" and "`" in opened[2]):
                fence, language, start, quote = opened[1], _language(opened[2]), i + 1, ""
                indent = opened.start(1) if match else 0
            continue
        if match and match[1][0] == fence[0] and not (aware_of_strings and quote):
            info = match[2].strip()
            if not info and len(match[1]) >= len(fence):
                yield _Block(start, i, language, indent, closed=True)
                fence = ""
                continue
            if info and "`" not in info and " " not in info:
                yield _Block(start, i, language, indent, closed=False)
                fence, language, start, quote = match[1], _language(info), i + 1, ""
                indent = match.start(1)
                continue
        if aware_of_strings:
            quote = _quote_after(line, quote)
    if fence:
        yield _Block(start, stop, language, indent, closed=False)


def _language(info: str) -> str:
    """Return the language of an opening fence, in lower case.

    It is the first word, without decoration (`{.python}`).
    """
    words = info.strip().strip("{}").split()
    return words[0].lstrip(".").rstrip(",").lower() if words else ""


def _quote_after(line: str, quote: str) -> str:
    """Return the triple quote that is open after `line`; empty for none.

    `quote` is the one that is open before it.
    """
    single = ""
    for match in _QUOTES.finditer(line):
        token = match[0]
        if quote:
            quote = "" if token == quote else quote
        elif single:
            if token[0] == single:
                single = ""
        elif token == "#":
            break
        elif len(token) == 3:
            quote = token
        elif token[0] in "'\"":
            single = token
    return quote

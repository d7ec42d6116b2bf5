"""Find where the declarations of a source begin and end, by its brackets alone.

Pure. A parser that fails on one declaration would otherwise misread all declarations after it. Text in parentheses,
braces and brackets is skipped; a namespace's braces do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from harness.toolchain.cuda_source.tokens import code

__all__ = ["alone", "declarations"]

_DIRECTIVE = re.compile(rb"^[ \t]*#(?:[^\n\\]|\\\r?\n|\\.)*", re.M)
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|else|endif)\b(?:[^\n\\]|\\\r?\n|\\.)*", re.M)
_TOKEN = re.compile(rb"[A-Za-z_]\w*|\S")
_CLOSING = {b"(": b")", b"[": b"]", b"{": b"}"}
_TYPES = {b"struct", b"class", b"union", b"enum", b"namespace"}


def declarations(data: bytes) -> list[tuple[int, int]] | None:
    """The ranges of the declarations at namespace scope, with preceding directives.

    None if brackets do not match, for instance if branches of a condition share one.
    """
    scanned = bytearray(code(data))
    for directive in _DIRECTIVE.finditer(bytes(scanned)):
        scanned[directive.start() : directive.end()] = re.sub(rb"[^\n]", b" ", directive[0])
    found: list[tuple[int, int]] = []
    stack: list[bytes] = []
    spaces = 0
    start = 0
    head: list[bytes] = []  # of the current declaration, without text in brackets
    for match in _TOKEN.finditer(scanned):
        text = match[0]
        if text in _CLOSING:
            if text == b"{" and not stack and _opens_a_space(head):
                spaces += 1
                head, start = [], match.end()
                continue
            stack.append(_CLOSING[text])
            if len(stack) == 1:
                head.append(text)
            continue
        if text in (b")", b"]", b"}"):
            if not stack:
                if text != b"}" or not spaces:
                    return None
                spaces -= 1
                head, start = [], match.end()
                continue
            if stack.pop() != text:
                return None
            if text != b"}" or stack or not _is_function(head):
                continue
        elif stack:
            continue
        else:
            head.append(text)
            if text != b";":
                continue
        found.append((start, match.end()))
        head, start = [], match.end()
    if stack or spaces:
        return None
    return [*found, (start, len(data))] if data[start:].strip() else found


def alone(data: bytes, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """For each range, the source with everything else blanked.

    Preprocessor conditions of which a range has only a part are blanked too.
    """
    blanked = re.sub(rb"[^\n\r]", b" ", data)
    for start, end in ranges:
        piece = bytearray(data[start:end])
        conditions = list(_CONDITION.finditer(piece))
        opened = sum(1 for c in conditions if re.match(rb"[ \t]*#[ \t]*if", c[0]))
        if 2 * opened != sum(1 for c in conditions if re.match(rb"[ \t]*#[ \t]*(?:if|endif)", c[0])):
            for condition in conditions:
                piece[condition.start() : condition.end()] = re.sub(rb"[^\n\r]", b" ", condition[0])
        yield blanked[:start] + piece + blanked[end:]


def _opens_a_space(head: list[bytes]) -> bool:
    return head == [b"extern"] or (b"namespace" in head and b"(" not in head and b"=" not in head)


def _is_function(head: list[bytes]) -> bool:
    """Whether the closed brace ends the declaration: neither a type's nor a value's."""
    said = list(_without_templates(head))
    return b"(" in said and b"=" not in said[: said.index(b"(")] and not _TYPES & set(said[: said.index(b"(")])


def _without_templates(head: list[bytes]) -> Iterator[bytes]:
    depth = 0
    opens = False
    for text in head:
        if opens and text == b"<":
            depth += 1
        elif depth and text == b">":
            depth -= 1
        elif depth == 0:
            yield text
        opens = text == b"template" or depth > 0

"""Make declarations and launches behind or inside macros visible to the grammar.

A pass of `rewrite` on the text that the parser sees. Pure. Every byte keeps its place; the compiler gets the source
itself. The grammar has no preprocessor: if a macro does not look like an expression or a declaration, the parser takes
the following text as a part of it. guides/design/host_device.md has a table of the cases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.toolchain.cuda_source.tokens import blank, code

__all__ = ["legible"]

_TOKEN = re.compile(rb"[A-Za-z_]\w*|\d[\w.]*|->|\S")
_DIRECTIVE = re.compile(rb"^[ \t]*#(?:[^\n\\]|\\\r?\n|\\.)*", re.M)
_DEFINED = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", re.M)
_DEFINES_A_TEMPLATE = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[^\n]*\btemplate\b", re.M)
_LIKE_A_MACRO = re.compile(rb"[A-Z][A-Z0-9_]+")
_PLACES = {b"C10_HOST_DEVICE", b"C10_DEVICE", b"C10_HOST", b"C10_ALWAYS_INLINE"}
_BEFORE_A_VALUE = {b"(", b",", b"=", b"return", b"?", b":", b"+", b"-", b"*", b"/", b"<", b"|", b"&", b"!"}
_IN_A_HEAD = {b"__global__", b"__device__", b"__host__", b"static", b"inline", b"void", b">"}
_LOOPS = {b"for", b"while", b"do"}
_CLOSING = {b"(": b")", b"[": b"]", b"{": b"}"}
_HOLDS_CUDA = re.compile(rb"<<<|[{}]|\b__(?:shared|global|device|constant)__\b")


@dataclass(frozen=True, slots=True)
class _Token:
    text: bytes
    start: int
    end: int


def legible(data: bytes) -> bytes:
    """The source for the parser, with the same number of bytes."""
    scanned = bytearray(code(data))
    for directive in _DIRECTIVE.finditer(bytes(scanned)):
        blank(scanned, *directive.span())
        scanned[directive.start() : directive.end()] = scanned[directive.start() : directive.end()].replace(b"\\", b" ")
    return _TokenReader(data, bytes(scanned)).text()


class _TokenReader:
    """One source, token by token, without directives, comments and literals."""

    def __init__(self, data: bytes, scanned: bytes) -> None:
        self._out = bytearray(data)
        self._scanned = scanned
        self._tokens = [_Token(m[0], *m.span()) for m in _TOKEN.finditer(scanned)]
        self._macros = set(_DEFINED.findall(data))
        self._templates = set(_DEFINES_A_TEMPLATE.findall(data))
        self._partner = self._brackets()

    def text(self) -> bytes:
        open_: list[bytes] = []  # `n`: a namespace's brace
        begins = True  # at the first token of a declaration, at namespace scope
        skipped = -1
        for i, token in enumerate(self._tokens):
            if i <= skipped:
                continue
            text = token.text
            outside = all(kind == b"n" for kind in open_)
            inside = open_[-1:] == [b"{"]
            if text in _PLACES:
                self._blank(i, i)
                continue
            if text in (b"_Pragma", b"decltype", b"typename") or text in _LOOPS:
                self._in_code(i)
            elif (outside or inside) and begins and self._stands_alone(i):
                skipped = self._partner[i + 1]
                self._blank(i, skipped)
                continue
            elif outside and begins and self._is_a_line(i):
                self._blank(i, i)
                continue
            elif outside and self._stands_in_a_head(i):
                skipped = self._partner[i + 1]
                self._blank(i, skipped)
                continue
            elif open_ and open_[-1] == b"(":
                self._side_by_side(i)
            if text in _CLOSING:
                open_.append(b"n" if text == b"{" and outside and self._is_transparent(i) else text)
            elif text in (b")", b"]", b"}") and open_:
                open_.pop()
            begins = text in (b";", b"{", b"}")
        return bytes(self._out)

    def _brackets(self) -> dict[int, int]:
        """The matching bracket of each bracket token."""
        found: dict[int, int] = {}
        stack: list[int] = []
        for i, token in enumerate(self._tokens):
            if token.text in _CLOSING:
                stack.append(i)
            elif stack and token.text == _CLOSING[self._tokens[stack[-1]].text]:
                found[stack[-1]] = i
                found[i] = stack.pop()
        return found

    def _at(self, i: int) -> bytes:
        return self._tokens[i].text if 0 <= i < len(self._tokens) else b""

    def _blank(self, first: int, last: int) -> None:
        blank(self._out, self._tokens[first].start, self._tokens[last].end)

    def _is_macro(self, i: int) -> bool:
        name = self._at(i)
        return name in self._macros or _LIKE_A_MACRO.fullmatch(name) is not None

    def _is_transparent(self, brace: int) -> bool:
        first = brace
        while first > 0 and self._at(first - 1) not in (b";", b"{", b"}"):
            first -= 1
        head = [token.text for token in self._tokens[first:brace]]
        return head == [b"extern"] or (b"namespace" in head and b"(" not in head)

    def _stands_alone(self, i: int) -> bool:
        """Whether a macro with arguments is its own line before a declaration.

        It must not contain CUDA syntax.
        """
        if not self._is_macro(i) or self._at(i + 1) != b"(" or i + 1 not in self._partner:
            return False
        close = self._partner[i + 1]
        if not re.match(rb"[A-Za-z_]", self._at(close + 1)):
            return False
        between = self._scanned[self._tokens[close].end : self._tokens[close + 1].start]
        another = self._is_macro(close + 1) and self._at(close + 2) == b"("
        return (b"\n" in between or another) and not _HOLDS_CUDA.search(
            self._scanned, self._tokens[i].start, self._tokens[close].end
        )

    def _is_a_line(self, i: int) -> bool:
        """Whether a macro without arguments is its own line.

        Such a macro may open or close a namespace.
        """
        token = self._tokens[i]
        begin, end = self._scanned.rfind(b"\n", 0, token.start) + 1, self._scanned.find(b"\n", token.end)
        line = self._scanned[begin : end if end >= 0 else len(self._scanned)]
        return self._is_macro(i) and line.strip() == token.text and token.text not in self._templates

    def _stands_in_a_head(self, i: int) -> bool:
        """Whether a macro with arguments is an attribute.

        Example: `__global__ void BOUNDS(256) k(...)`.
        """
        if self._at(i - 1) not in _IN_A_HEAD or not self._is_macro(i) or self._at(i + 1) != b"(":
            return False
        after = self._at(self._partner[i + 1] + 1) if i + 1 in self._partner else b""
        return re.match(rb"[A-Za-z_]", after) is not None

    def _in_code(self, i: int) -> None:
        text = self._at(i)
        if text in _LOOPS:
            if self._is_macro(i - 1):
                self._blank(i - 1, i - 1)
            elif self._at(i - 1) == b")" and i - 1 in self._partner and self._is_macro(self._partner[i - 1] - 1):
                self._blank(self._partner[i - 1] - 1, i - 1)
            return
        if text == b"typename":
            if self._is_cast(i):
                self._blank(i, i)
            return
        if self._at(i + 1) != b"(" or i + 1 not in self._partner:
            return
        close = self._partner[i + 1]
        if text == b"_Pragma":
            self._blank(i, close)
        elif self._at(close + 1) in (b"{", b"(") and self._at(i - 1) != b"->":
            start, end = self._tokens[i].start, self._tokens[close].end
            if b"\n" not in self._out[start:end]:
                self._out[start:end] = re.sub(rb"\W", b"_", bytes(self._out[start:end]))

    def _is_cast(self, i: int) -> bool:
        """Whether `typename` begins a value, as in `f(typename T::type(x))`."""
        if self._at(i - 1) not in _BEFORE_A_VALUE:
            return False
        depth = 0
        for j in range(i + 1, min(i + 64, len(self._tokens))):
            text = self._at(j)
            depth += (text == b"<") - (text == b">")
            if depth == 0 and text not in (b":", b">") and not re.match(rb"[A-Za-z_]", text):
                return text in (b"(", b"{")
            if depth == 0 and text != b":" and re.match(rb"[A-Za-z_]", self._at(j + 1)) and text != b"template":
                return False
        return False

    def _side_by_side(self, i: int) -> None:
        """In `CASE(a) CASE(b)` among a macro's arguments, turn the blank into a comma."""
        if not self._is_macro(i) or self._at(i + 1) != b"(" or self._at(i - 1) != b")":
            return
        if i - 1 in self._partner and self._is_macro(self._partner[i - 1] - 1):
            gap = self._tokens[i - 1].end
            if self._out[gap : gap + 1].isspace() and self._out[gap : gap + 1] != b"\n":
                self._out[gap] = ord(",")
            elif (
                self._tokens[i].start - 1 > gap and self._out[self._tokens[i].start - 1 : self._tokens[i].start] == b" "
            ):
                self._out[self._tokens[i].start - 1] = ord(",")

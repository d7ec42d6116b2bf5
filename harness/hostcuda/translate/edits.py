"""State of one source during the rewriting: edits of byte ranges, names, counters.

The passes of `rewrite` share it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tree_sitter import Node

from harness.hostcuda.translate.preprocess import Places
from harness.hostcuda.translate.sides import CodeSide
from harness.toolchain.cuda_source.syntax import Tree

__all__ = ["Edit", "FunctionLines", "SourceEdits", "quoted"]


@dataclass(slots=True)
class Edit:
    """Replaces the bytes `start` to `end` by `text`."""

    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLines:
    """Where a function or lambda lies in the author's file; `kernel` if it is one."""

    file: str
    first: int
    last: int
    name: str
    side: CodeSide
    kernel: bool


@dataclass(slots=True)
class SourceEdits:
    """One source during the rewriting; edits are byte ranges of `source`.

    `tree` has the same bytes, with blanks in place of what the grammar can't parse. `refused` are the messages of
    `refusal`.
    """

    source: bytes
    tree: Tree
    places: Places
    marked: frozenset[bytes] | None = frozenset()
    edits: list[Edit] = field(default_factory=list)
    kernels: dict[bytes, list[bytes]] = field(default_factory=dict)
    kernel_counts: dict[bytes, int] = field(default_factory=dict)
    declared_clusters: dict[bytes, bytes] = field(default_factory=dict)
    shared_names: set[bytes] = field(default_factory=set)
    outer_shared: dict[bytes, bytes] = field(default_factory=dict)
    not_emulated: list[tuple[int, str]] = field(default_factory=list)
    functions: list[FunctionLines] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    counter: int = 0

    def number(self) -> bytes:
        self.counter += 1
        return str(self.counter).encode()

    def line(self, node: Node) -> int:
        """The line of a node in the author's file."""
        return self.places.of(node.start_byte)[1]

    def insert(self, at: int, text: bytes) -> None:
        self.edits.append(Edit(at, at, text))

    def replace(self, start: int, end: int, text: bytes) -> None:
        """Replace a range; the number of lines stays."""
        lines = self.source.count(b"\n", start, end) - text.count(b"\n")
        self.edits.append(Edit(start, end, text + b"\n" * lines))

    def refusal(self, message: str, callee: str = "") -> bytes:
        """A call that g++ warns of with `message`; `callee` is what the source calls."""
        self.refused.append((message, callee))
        return b"::hostcuda_refused_%d()" % len(self.refused)

    def applied(self, start: int, end: int, more: Iterable[Edit] = ()) -> bytes:
        """The source between two bytes with all edits in it.

        If two overlap (a launch inside a launch's arguments), the outer one already contains the inner one.
        """
        out = bytearray()
        position = start
        for edit in sorted([*self.edits, *more], key=lambda e: (e.start, e.end)):
            if edit.start >= position and edit.end <= end:
                out += self.source[position : edit.start] + edit.text
                position = edit.end
        return bytes(out + self.source[position:end])


def quoted(text: bytes) -> bytes:
    """A string literal on one line."""
    return b'"' + b" ".join(text.split()).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'

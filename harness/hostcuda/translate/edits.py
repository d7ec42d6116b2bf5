"""State of one source during the rewriting: edits of byte ranges, names, counters.

The passes of `rewrite` share it. Pure.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from tree_sitter import Parser

__all__ = ["Edit", "SourceEdits", "applied", "quoted"]


@dataclass(slots=True)
class Edit:
    """Replaces the bytes `start` to `end` by `text`."""

    start: int
    end: int
    text: bytes


@dataclass(slots=True)
class SourceEdits:
    """One source during the rewriting; edits are byte ranges of `source`."""

    source: bytes
    parser: Parser
    edits: list[Edit] = field(default_factory=list)
    kernels: dict[bytes, list[bytes]] = field(default_factory=dict)
    kernel_counts: dict[bytes, int] = field(default_factory=dict)
    heads: list[tuple[int, int]] = field(default_factory=list)
    declared_clusters: dict[bytes, bytes] = field(default_factory=dict)
    shared_names: set[bytes] = field(default_factory=set)
    outer_shared: dict[bytes, bytes] = field(default_factory=dict)
    not_emulated: list[tuple[int, str]] = field(default_factory=list)
    counter: int = 0
    marked: Container[bytes] = ()
    conditional: Container[bytes] = ()

    def number(self) -> bytes:
        self.counter += 1
        return str(self.counter).encode()

    def replace(self, start: int, end: int, text: bytes, *, in_macro: bool) -> None:
        lines = self.source.count(b"\n", start, end) - text.count(b"\n")
        self.edits.append(Edit(start, end, text + (b"\\\n" if in_macro else b"\n") * lines))


def applied(state: SourceEdits) -> bytes:
    """Apply all edits to the source.

    If two overlap (a launch inside a launch's arguments), the outer one already contains the inner one.
    """
    out = bytearray()
    position = 0
    for edit in sorted(state.edits, key=lambda e: (e.start, e.end)):
        if edit.start < position:
            continue
        out += state.source[position : edit.start]
        out += edit.text
        position = edit.end
    out += state.source[position:]
    return bytes(out)


def quoted(text: bytes) -> bytes:
    """A string literal on one line."""
    flat = b" ".join(text.replace(b"\\\n", b" ").split())
    return b'"' + flat.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'

"""The code blocks of a page in Markdown, and how the output of its commands is compared with that of a real run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced code block: its language, the file that it is (`title="..."`), its text and the line it begins at."""

    language: str
    title: str
    text: str
    line: int


def blocks_in(page: str) -> Iterator[Block]:
    """The blocks of a page. Fences stand at the margin, as everywhere in the guides."""
    for found in re.finditer(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', page, flags=re.MULTILINE | re.DOTALL):
        language, title, text = found.groups()
        yield Block(language=language, title=title or "", text=text, line=page[: found.start()].count("\n") + 1)


def absent_lines(shown: str, printed: str) -> list[str]:
    """The lines of a page's output that a real run did not print.

    `…` stands for anything. Spaces and durations (`5.3 s`) may differ.
    """
    lines = [_normalised(line) for line in printed.splitlines()]
    return [line for line in shown.splitlines() if not _is_among(_normalised(line), lines)]


def _normalised(line: str) -> str:
    return " ".join(re.sub(r"\b\d+(\.\d+)? s\b", "# s", line).split())


def _is_among(wanted: str, lines: list[str]) -> bool:
    pattern = ".*".join(re.escape(part) for part in re.split(r"\s*…\s*", wanted))
    return any(re.fullmatch(pattern, line) for line in lines)

"""Wrap plain text for a terminal at words. Pure functions."""

from __future__ import annotations

import re
import textwrap

_KEPT = re.compile(r"\s*[> ]?\s*\d+ \| |\s*[\^~ ]+$")
"""Quoted source and the marks below a line of it: they stay as they are."""


def wrapped(text: str, width: int) -> str:
    """Break lines longer than `width` columns at words.

    The rest of an indented line is indented further.
    A word that is longer, such as a path, and quoted source stay whole.
    """
    return "\n".join(_wrapped_line(line, width) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    if len(line) <= width or _KEPT.match(line):
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(),
        width=max(width, len(indent) + 20),
        initial_indent=indent,
        subsequent_indent=f"{indent}  " if indent else "",
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        drop_whitespace=True,
    )

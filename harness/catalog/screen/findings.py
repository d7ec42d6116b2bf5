"""Findings of the screen, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.catalog.screen.rules import RULES, Rule

MAX_FINDINGS = 400
"""Most findings of one file, so that a hostile file can't fill the records."""

EXCERPT_CHARS = 120
"""Longest excerpt of a source line, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFinding:
    """One construct for a reviewer.

    Attributes:
        rule: Name of the rule in `RULES`.
        line: Line in the file, from 1.
        excerpt: The line, shortened.
    """

    rule: str
    line: int
    excerpt: str

    @property
    def described(self) -> Rule:
        return RULES[self.rule]

    def to_json(self) -> dict[str, Any]:
        rule = self.described
        return {
            "rule": self.rule,
            "line": self.line,
            "excerpt": self.excerpt,
            "family": rule.family.value,
            "weight": rule.weight.value,
            "why": rule.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Result of screening one file.

    Attributes:
        findings: Findings by line.
        unreadable: One line that says why the file could not be screened, or None.
        notes: One line for each part that was screened incompletely.
    """

    findings: tuple[ScreenFinding, ...]
    unreadable: str | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "findings": [item.to_json() for item in self.findings],
            "unreadable": self.unreadable,
            "notes": list(self.notes),
        }


def settle(found: Sequence[tuple[str, int]], lines: Sequence[str]) -> tuple[ScreenFinding, ...]:
    """Return one finding for each rule and line, ordered by line.

    There are at most `MAX_FINDINGS`; each has an excerpt.
    """
    ordered = sorted(set(found), key=lambda item: (item[1], item[0]))[:MAX_FINDINGS]
    return tuple(ScreenFinding(rule=rule, line=line, excerpt=_excerpt(lines, line)) for rule, line in ordered)


def _excerpt(lines: Sequence[str], line: int) -> str:
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return text if len(text) <= EXCERPT_CHARS else text[: EXCERPT_CHARS - 1] + "…"

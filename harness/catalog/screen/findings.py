"""What the screen found: values only. Pure; standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.catalog.screen.rules import RULES, Rule

MAX_FINDINGS = 400
"""Most findings of one file; a hostile file must not fill the records."""

EXCERPT_CHARS = 120
"""Longest excerpt of a source line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFinding:
    """One construct that a reviewer may want to see. `line` counts from 1 in the file."""

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
    """All of one file, by line. `unreadable` says in one line why nothing could be looked at, with the line; `notes`
    say what was looked at only in part.
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
    """One finding a rule and line, in the order of the file, with excerpts; at most `MAX_FINDINGS`."""
    ordered = sorted(set(found), key=lambda item: (item[1], item[0]))[:MAX_FINDINGS]
    return tuple(ScreenFinding(rule=rule, line=line, excerpt=_excerpt(lines, line)) for rule, line in ordered)


def _excerpt(lines: Sequence[str], line: int) -> str:
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return text if len(text) <= EXCERPT_CHARS else text[: EXCERPT_CHARS - 1] + "…"

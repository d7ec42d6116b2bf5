"""What one entry of the corpus did on one device: the rows that both runners give and `compare.py` writes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One report: the status it would give, where, and the tool's own words."""

    status: str
    kernel: str | None
    lines: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one entry did on one device."""

    entry: str
    kind: str
    device: str
    outcome: str
    errors: dict[str, float | str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    tool: str | None = None
    detail: str = ""
    wall_s: float = 0.0

"""Render findings of `harness problems lint` as text or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.report.format import block, duration, line
from harness.report.table import escape_markdown, markdown_table

if TYPE_CHECKING:
    from harness.referee.soundness import ProblemReport

COLUMNS = ("problem", "workload", "", "wrong answers tried", "rules met", "not checked", "s", "remarks")


def lines(report: ProblemReport, number: int, total: int) -> list[str]:
    """Return the lines of one problem: its result, its broken rules and notes."""
    mark = "✗" if report.broken else "✓"
    head = f"[{number}/{total}] {mark} {report.problem}  {report.workload} on {report.device}, "
    found = [block(f"{head}{report.tried} wrong answers tried, {report.wall_s:.1f} s")]
    for check in report.broken:
        found.append(f"    {check.rule}")
        found += [block(f"      {detail}") for detail in check.details]
    return found + [block(f"    note: {note}") for note in report.notes]


def markdown(reports: Sequence[ProblemReport]) -> str:
    """Render a Markdown page: number of answers, broken rules and notes by problem."""
    broken = [report for report in reports if report.broken]
    where = sorted({report.processor or report.device for report in reports})
    tried = sum(report.tried for report in reports)
    head = [
        "# Results of harness problems lint",
        "",
        f"{len(reports)} problems ({_counted(reports)}) on {' and '.join(map(escape_markdown, where))}: "
        f"{tried} wrong answers tried in {duration(sum(report.wall_s for report in reports))}, "
        + (f"{len(broken)} problems break a rule." if broken else "no problem breaks a rule."),
        "",
        *markdown_table(COLUMNS, map(_cells, reports)),
    ]
    return "\n".join(head) + "\n"


def _counted(reports: Sequence[ProblemReport]) -> str:
    names = list(dict.fromkeys(report.workload for report in reports))
    return ", ".join(
        f"{sum(report.workload == name for report in reports)} at {escape_markdown(name)}" for name in names
    )


def _cells(report: ProblemReport) -> list[str]:
    unchecked = [check.rule for check in report.checks if check.verdict == "not_checked"]
    remarks = [f"{check.rule}: {detail}" for check in report.broken for detail in check.details]
    cells = [
        report.problem,
        report.workload,
        "✗" if report.broken else "✓",
        str(report.tried),
        str(sum(check.verdict == "kept" for check in report.checks)),
        ", ".join(unchecked),
        f"{report.wall_s:.1f}",
        "; ".join([*remarks, *report.notes]),
    ]
    return [line(cell, 600) for cell in cells]

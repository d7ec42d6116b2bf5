"""Render a comparison of runs or solutions: terminal table or Markdown."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from harness.core.stats import SAME_AT_MOST
from harness.report import format as show
from harness.report.table import Fitting, escape_markdown, markdown_table, table_of
from harness.results.compare import WORDS, Change, RunDifferences, SolutionDifference
from harness.results.scoring import is_noisy

COLUMNS = ("problem", "solution", "outcome", "later over earlier", "speedup before", "after", "remark")
"""Speedups are over eager; a speedup within the noise floor is shown as `same`."""

STYLES = {
    Change.faster: "green",
    Change.fixed: "green",
    Change.slower: "red",
    Change.broken: "red",
    Change.unclear: "yellow",
    Change.unlike: "yellow",
    Change.unjudged: "yellow",
}


def ratio_of(row: SolutionDifference) -> str:
    """Format a ratio as `1.052x (1.044 to 1.060)`, near 1 with four digits."""
    if row.ratio is None:
        return show.ABSENT
    ratio, *ends = (show.digits(end, 4 if 0.5 < row.ratio < 2 else 3) for end in (row.ratio, row.low, row.high) if end)
    return f"{ratio}x ({' to '.join(ends)})" if len(ends) == 2 else f"{ratio}x"


def remark_of(row: SolutionDifference) -> str:
    """Return remarks on a row: statuses, tolerance, noise floor, differing conditions."""
    if row.outcome is Change.broken:
        return f"{row.after.value if row.after else 'gone'}: {show.line(row.reason, 160)}"
    if row.outcome in (Change.failing, Change.fixed, Change.unjudged) and row.before and row.after:
        return row.after.value if row.before is row.after else f"{row.before.value}, then {row.after.value}"
    parts = ["beyond the tolerance"] if row.regressed else []
    if row.outcome is Change.slower and not row.regressed:
        parts = ["within the tolerance"]
    if row.outcome is Change.untimed:
        parts = [_untimed(row)]
    if row.outcome is Change.unclear and row.low is None:
        parts = ["the records have no confidence interval"]
    elif row.outcome is Change.unclear and is_noisy(row.low, row.high):
        parts = [show.TOO_NOISY]
    elif row.outcome is Change.unclear and row.floor is not None and row.floor > math.log1p(SAME_AT_MOST):
        parts = [f"the noise floor is {show.share(math.expm1(row.floor))}"]
    if row.unlike:
        parts.append("differs in " + "; ".join(show.line(item, 120) for item in row.unlike))
    if row.unknown and row.ratio is not None:
        parts.append(f"{' and '.join(row.unknown)} unknown")
    if row.basis == "time":
        parts.append("compared by its own times, not by speedups")
    return "; ".join(parts)


def _untimed(row: SolutionDifference) -> str:
    """Say which of the two records has no time."""
    lacking = [name for name, held in (("before", row.before_speedup), ("after", row.after_speedup)) if held is None]
    return f"correct, no time {lacking[0]}" if len(lacking) == 1 else "correct, not timed"


def cells(row: SolutionDifference) -> list[str]:
    """Return the texts of one row, in the order of `COLUMNS`."""
    name = show.line(row.solution, 100)
    if row.later_solution != row.solution:
        name = f"{name} → {show.line(row.later_solution, 100)}"
    pairs = ((row.before_speedup, row.before_same_within), (row.after_speedup, row.after_same_within))
    speeds = [show.speedup(ratio) if same is None else "same" for ratio, same in pairs]
    outcome = WORDS.get(row.outcome, row.outcome.value)
    return [show.line(row.problem, 40), name, outcome, ratio_of(row), *speeds, remark_of(row)]


def closing(found: RunDifferences) -> str:
    """Return a closing line: the count of each outcome, and if something got worse."""
    counted = ", ".join(f"{number} {WORDS.get(outcome, outcome.value)}" for outcome, number in found.counts().items())
    if not found.compared:
        return f"{counted if found.rows else 'no results'}; nothing was compared."
    number = len(found.regressions)
    unclear = any(row.outcome is Change.unclear for row in found.rows)
    worse = f"{number} got worse" if number else "nothing is known to be worse" if unclear else "nothing got worse"
    if not number and any(row.outcome is Change.slower for row in found.rows):
        worse = "nothing got slower by more than that"
    return f"{counted}; {worse} (tolerance {found.tolerance * 100:.3g} %)."


def table(found: RunDifferences) -> RenderableType:
    """Render the comparison for the terminal."""
    rows = [
        [
            Text(text, style=STYLES.get(row.outcome, "") if name == "outcome" else "")
            for name, text in zip(COLUMNS, cells(row), strict=True)
        ]
        for row in found.rows
    ]
    return Group(*([Fitting(table_of(COLUMNS, rows))] if rows else []), Text(closing(found)))


def markdown(found: RunDifferences) -> str:
    """Render the comparison as a GitHub Markdown table with the closing line."""
    lines = [*markdown_table(COLUMNS, map(cells, found.rows)), ""] if found.rows else []
    return "\n".join([*lines, escape_markdown(closing(found))]) + "\n"

"""Write times of baselines as CSV: a row a problem, workload, baseline.

Pure functions. The guide on commands describes the columns, which are stable: later versions only add some at the end.
Seconds, bytes and flops are in base units; absent values are empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from harness.core.choices import Baseline
from harness.core.problem import Problem, Workload
from harness.core.stats import same_within
from harness.report import format as show
from harness.report.table import table_of
from harness.results.compare import WITHIN_RUN

if TYPE_CHECKING:
    from harness.referee.baselines import BaselineEntry
    from harness.referee.problem.roofline import SpeedOfLight

COLUMNS = (
    *("problem", "name", "workload", "precision", "baseline", "outcome", "reason", "device_s", "device_mad_s"),
    *("samples", "eager_s", "over_eager", "over_eager_low", "over_eager_high", "latency_s", "eager_latency_s"),
    *("compile_s", "graphs", "held_to", "matmul_tf32", "cudnn_tf32", "rounds", "stopped_by", "sol_time_s", "bound"),
    *("sol_fraction", "peaks_source", "measured_at", "problem_digest"),
)
AS_MEASURED = (
    *("reason", "eager_s", "latency_s", "eager_latency_s", "compile_s", "graphs", "held_to"),
    *("matmul_tf32", "cudnn_tf32", "stopped_by", "measured_at"),
)
"""Columns that a `BaselineEntry` has under the same names."""

LOST = "lost"
"""Outcome of a baseline without a result: its process died, or the problem did not load."""

Row = Mapping[str, str]
Identity = tuple[str, str, str]


def identity(row: Row) -> Identity:
    """Return problem, workload and baseline: a file has one row for each."""
    return row["problem"], row["workload"], row["baseline"]


def row_of(problem: Problem, workload: Workload, entry: BaselineEntry, light: SpeedOfLight | None) -> Row:
    """Return the row of one entry."""
    device, over, median_s = entry.device or {}, entry.over_eager, entry.median_s
    return _row(
        problem,
        workload,
        entry.baseline,
        light,
        **{name: getattr(entry, name) for name in AS_MEASURED},
        outcome=entry.outcome.value,
        device_s=median_s,
        rounds=entry.rounds or None,
        device_mad_s=device.get("mad_s"),
        samples=device.get("samples"),
        over_eager=over and over.speedup,
        over_eager_low=over and over.low,
        over_eager_high=over and over.high,
        sol_fraction=None if light is None or median_s is None else light.fraction(median_s),
    )


def lost_row(problem: Problem, workload: Workload, baseline: Baseline, reason: str, light: SpeedOfLight | None) -> Row:
    """Return the row of a baseline without a result."""
    return _row(problem, workload, baseline, light, outcome=LOST, reason=reason)


def _row(
    problem: Problem, workload: Workload, baseline: Baseline, light: SpeedOfLight | None, **values: Any
) -> dict[str, str]:
    values |= {"problem": problem.id, "name": problem.name, "precision": problem.precision.value}
    values |= {"problem_digest": problem.digest, "workload": workload.name, "baseline": baseline.value}
    for name in ("sol_time_s", "bound", "peaks_source"):
        values[name] = getattr(light, name, None)
    return {name: _cell(values.get(name)) for name in COLUMNS}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return show.line(value, 400)


def to_csv(rows: Iterable[Row]) -> str:
    """Format rows as CSV text, sorted by problem, workload and baseline."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n", extrasaction="ignore", restval="")
    writer.writeheader()
    order = [baseline.value for baseline in Baseline]
    writer.writerows(
        sorted(rows, key=lambda row: (problem_order(row["problem"]), row["workload"], order.index(row["baseline"])))
    )
    return stream.getvalue()


def from_csv(text: str) -> list[Row]:
    """Read the rows of such a file.

    Raises:
        ValueError: The text is no such file.
    """
    reader = csv.DictReader(io.StringIO(text))
    if missing := {"problem", "workload", "baseline", "outcome", "device_s"} - set(reader.fieldnames or ()):
        raise ValueError(f"not a file of baselines: it lacks the columns {', '.join(sorted(missing))}")
    rows: list[Row] = [{name: row.get(name) or "" for name in COLUMNS} for row in reader]
    known = {baseline.value for baseline in Baseline}
    if strange := sorted({row["baseline"] for row in rows} - known):
        raise ValueError(f"unknown baseline {strange[0]!r:.60}")
    return rows


def problem_order(problem: str) -> tuple[str, int, str]:
    """Return a sort key that puts `level1/9` before `level1/16`."""
    level, _, rest = problem.partition("/")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return level, int(digits or 0), rest


def number(row: Row, column: str) -> float | None:
    """Return the number in a column; None if it is empty."""
    text = row.get(column, "")
    return float(text) if text else None


def table(rows: Sequence[Row]) -> Table:
    """Render a row for each problem: eager's time, and speedups of other baselines."""
    names = [b.value for b in Baseline if b is not Baseline.EAGER and any(row["baseline"] == b.value for row in rows)]
    grouped: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        grouped.setdefault((row["problem"], row["workload"]), {})[row["baseline"]] = row
    lines = []
    for (problem, _), own in sorted(grouped.items(), key=lambda item: problem_order(item[0][0])):
        first, eager = next(iter(own.values())), own.get(Baseline.EAGER.value, {})
        times_s = [number(eager, "device_s"), *(number(row, "eager_s") for row in own.values())]
        eager_s, light_s = next(filter(None, times_s), None), number(first, "sol_time_s")
        share = show.share(light_s / eager_s) if light_s and eager_s else show.ABSENT
        time = show.duration(eager_s) if eager_s else _why(eager) if eager else show.ABSENT
        cells = [problem, first["name"], time, share, *(compared(own.get(name)) for name in names)]
        lines.append([show.line(cell, 120) for cell in cells])
    over = [f"{name} over eager" for name in names]
    return table_of(["problem", "name", "eager", "of speed of light", *over], lines)


def compared(row: Row | None) -> str:
    """Format the speedup over eager with its interval, or why there is none."""
    if row is None:
        return show.ABSENT
    ratio = number(row, "over_eager")
    if ratio is None:
        return _why(row)
    low, high = number(row, "over_eager_low"), number(row, "over_eager_high")
    if (same := same_within(ratio, low, high, floor=WITHIN_RUN)) is not None:
        return f"same (within {show.digits(100 * same, 2)} %)"
    return show.speedup_with_interval(ratio, low, high)


def _why(row: Row) -> str:
    return f"{row['outcome']}: {row['reason'][:60]}" if row["reason"] else row["outcome"]

"""How far the speedups of separate runs lie apart: pure, the rows of `bench_repeat` in, Markdown out.

A row is one evaluation of one run: `run`, `workload`, `problem`, `solution`, `speedup` (None where it has none, with
its `status`), `low`, `high`, `reference_s` and `solution_s` (medians of device time, seconds).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

SHORT_S = 50e-6
"""Device time of the shorter side that divides the two targets."""

TARGETS = {"from 50 us on": 0.01, "below 50 us": 0.03}
"""The largest relative spread asked for."""


def document(rows: Sequence[Row]) -> str:
    held = grouped(rows)
    runs = sorted({row["run"] for row in rows})
    lines = [
        f"{len(runs)} runs, each by a command of its own, one after another: "
        "the spread is the largest speedup over the smallest, less one.",
        "",
        "| problem | solution | workload | runs | eager us | solution us | speedup, median | lowest | highest | spread "
        "| widest interval |",
        "|---" * 11 + "|",
        *(_line(mine) for mine in held.values()),
        "",
    ]
    for words, target in TARGETS.items():
        spreads = [spread(mine) for mine in held.values() if size(mine) == words and len(_timed(mine)) > 1]
        if spreads:
            verdict = "yes" if max(spreads) < target else "no"
            lines.append(
                f"Kernels {words}: {len(spreads)} of them, largest spread {max(spreads) * 100:.2f} %, below "
                f"{target * 100:g} %: **{verdict}**."
            )
            lines.append("")
    return "\n".join(lines)


def grouped(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """Evaluations by problem, solution and workload."""
    held: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        held.setdefault((row["problem"], row["solution"], row["workload"]), []).append(row)
    return dict(sorted(held.items()))


def _timed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["speedup"]]


def spread(rows: Sequence[Row]) -> float:
    """The largest speedup over the smallest, less 1."""
    values = [row["speedup"] for row in _timed(rows)]
    return float(max(values) / min(values) - 1.0)


def size(rows: Sequence[Row]) -> str:
    """Which target holds: by the shorter of reference and solution."""
    timed = _timed(rows)
    shortest_s = min((min(row["reference_s"], row["solution_s"]) for row in timed), default=0.0)
    return "below 50 us" if shortest_s < SHORT_S else "from 50 us on"


def _line(rows: Sequence[Row]) -> str:
    first, timed = rows[0], _timed(rows)
    head = f"| {first['problem']} | {first['solution']} | {first['workload']} | {len(rows)} |"
    failed = sorted({row["status"] for row in rows if not row["speedup"]})
    if not timed:
        return f"{head} {', '.join(failed)} |"
    values = sorted(row["speedup"] for row in timed)
    widths = [row["high"] / row["low"] - 1 for row in timed if row["low"] and row["high"]]
    times = [f"{statistics.median(row[side] for row in timed) * 1e6:.1f}" for side in ("reference_s", "solution_s")]
    mark = f" (and {len(rows) - len(timed)} {', '.join(failed)})" if failed else ""
    return (
        f"{head} {times[0]} | {times[1]} | {statistics.median(values):.4f} | {values[0]:.4f} | {values[-1]:.4f} | "
        f"{spread(rows) * 100:.2f} %{mark} | {max(widths, default=0.0) * 100:.2f} % |"
    )

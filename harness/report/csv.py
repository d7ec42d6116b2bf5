"""The leaderboard as CSV: one row a row of `scoring.leaderboard`, columns as listed here.

Pure; imports `scoring` and `report.format`. The columns and their order are a promise; a later version only adds some
at the end. Numbers are plain (ratios, shares, counts), absent ones empty; texts that a submission chose are escaped
as everywhere, and can't be taken for formulas by a spreadsheet.

    device, processor, workload, baseline   what was compared: rows that differ here are never ranked together
    rank                                    within those (for solutions: within the problem too); empty: unranked
    author, problem, solution, status       which of them are filled says what the row stands for
    speedup, speedup_low, speedup_high      against the baseline (an author's: geometric mean), 95 % interval
    sol_fraction                            share of the speed of light reached
    results, passed, untimed, disqualified  how many were judged; of those, passed (untimed among them), disqualified
    unjudged                                ended without a verdict on the solution; in no share
    fast_0 … fast_2                         share of results right and strictly faster than 0, 0.5, 0.8, 1, 1.5, 2 times
    reason                                  of the record, or of a disqualification
    precision                               "declared" (each problem's own class), or the class that the run was told to
                                            use instead; rows that differ here are never ranked together
    same_within                             filled where the speedup, widened by its noise floor, is none: the share
                                            within which solution and baseline are as fast (0.005 is 0.5 %)
    driver                                  of the GPU; rows that differ here are never ranked together
    display_name, model                     what the author says of itself (author.yaml), where the runs tell of it;
                                            `author` alone tells authors apart

`author` rows have neither problem nor solution, `problem` rows have their best solution's author and name. Boards by
author and by problem end, in each group, with one row a disqualified solution: status `disqualified`, no rank.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from harness.report import format as show
from harness.results.scoring import LeaderboardRow

COLUMNS = (
    "device",
    "processor",
    "workload",
    "baseline",
    "rank",
    "author",
    "problem",
    "solution",
    "status",
    "speedup",
    "speedup_low",
    "speedup_high",
    "sol_fraction",
    "results",
    "passed",
    "untimed",
    "disqualified",
    "unjudged",
    "fast_0",
    "fast_0.5",
    "fast_0.8",
    "fast_1",
    "fast_1.5",
    "fast_2",
    "reason",
    "precision",
    "same_within",
    "driver",
    "display_name",
    "model",
)


def leaderboard(rows: Sequence[LeaderboardRow]) -> str:
    """The rows as CSV text (RFC 4180 quoting, `\\n` line ends, a header line)."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        held = row.to_json()
        writer.writerow([_cell(held[name]) for name in COLUMNS])
    return stream.getvalue()


_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula may begin with, of full width too; some programs leave blanks before it out as they read."""


def _cell(held: Any) -> str:
    if held is None:
        return ""
    if isinstance(held, (int, float)):
        return repr(held)
    text = show.line(held, 1000)
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text

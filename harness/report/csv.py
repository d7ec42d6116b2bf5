"""Write the leaderboard as CSV: one line for each row of `scoring.leaderboard`.

Pure functions. Columns and their order are stable; later versions only add columns at the end. Numbers are plain
(ratios, shares, counts), absent ones are empty. Texts of submissions are escaped, and no spreadsheet can read them as
formulas.

    device, processor, workload, baseline   rows that differ in one of these are never ranked together
    rank                                    rank among these rows (solutions: of one problem); empty without a rank
    author, problem, solution, status       the filled ones say what the row is about
    speedup, speedup_low, speedup_high      over the baseline (author: geometric mean), 95 % confidence interval
    sol_fraction                            reached share of the speed of light
    results, passed, untimed, disqualified  number of judged results; of these passed (including untimed), disqualified
    unjudged                                results without a verdict on the solution; counted in no share
    fast_0 … fast_2                         share of results that are correct and faster than 0, 0.5, 0.8, 1, 1.5, 2
                                            times the baseline
    reason                                  reason of the record, or of a disqualification
    precision                               "declared" (each problem's own class), or the class that the run set; rows
                                            that differ here are never ranked together
    same_within                             filled if the speedup is within the noise floor: solution and baseline are
                                            as fast within this share (0.005 is 0.5 %)
    driver                                  driver of the GPU; rows that differ here are never ranked together
    display_name, model                     the author's description (author.yaml), if the runs have it; only `author`
                                            identifies an author

`author` rows have no problem and no solution; `problem` rows have author and name of the best solution. Boards by
author and by problem end with a row for each disqualified solution of the group: status `disqualified`, no rank.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from harness.report import format as show
from harness.results.scoring import COLUMNS, LeaderboardRow


def leaderboard(rows: Sequence[LeaderboardRow]) -> str:
    """Format rows as CSV text with a header line.

    Quoting follows RFC 4180; lines end with a line feed.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(map(_cell, row.to_json().values()))
    return stream.getvalue()


_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a formula, also in full width; some programs skip spaces before them."""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return repr(value)
    text = show.line(value, 1000)
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text

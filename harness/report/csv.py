"""Write the leaderboard as CSV: one line for each row of `leaderboard`.

Pure functions. The guide on results describes the columns, which are stable: later versions only add some at the end.
Numbers are plain (ratios, shares, counts), absent ones are empty. Texts of submissions are escaped, and no spreadsheet
can read them as formulas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from harness.report import format as show
from harness.results.leaderboard import COLUMNS, LeaderboardRow


def leaderboard(rows: Sequence[LeaderboardRow]) -> str:
    """Format rows as CSV text (RFC 4180, with line feeds) with a header line."""
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

"""The tuned solutions beside code that torch compiled and `harness baseline` timed, not their own run.

Both runs time eager, so a solution's speedup over compiled code is its own over eager, by that of the compiled code
over eager. The quotient's interval is as wide as both together, and separate runs differ by some percent more: `MARGIN`
is asked for on top. Only times of the same GPU model, driver, torch and problem are put together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.choices import Baseline
from harness.core.record import Record
from harness.report.baselines import Row, from_csv, number

MARGIN = 0.03
"""By how much the whole interval has to be above 1: what separate runs of short kernels differ by at most."""

SAME = ("gpu", "driver", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A speedup over code compiled by torch. `sure`: that it is one, beyond what measurements differ by."""

    speedup: float
    sure: bool


def leads(records: Sequence[Record], folder: Path, baseline: Baseline = Baseline.COMPILE) -> dict[str, Lead]:
    """By solution, over the reference compiled as `baseline` says: from `baselines.csv` and `environment.json` in
    `folder`; none where these are not there."""
    table, about = folder / "baselines.csv", folder / "environment.json"
    if not table.is_file() or not about.is_file():
        return {}
    machine = json.loads(about.read_text())["environment"]
    rows = {
        (row["problem"], row["workload"], row["problem_digest"]): row
        for row in from_csv(table.read_text())
        if row["baseline"] == baseline.value and row["outcome"] == "measured"
    }
    found = {}
    for record in records:
        row = rows.get((record.problem, record.workload, record.problem_digest))
        alike = all(record.environment.get(name) == machine.get(name) for name in SAME)
        if row is not None and alike and (lead := _lead(record, row)) is not None:
            found[record.solution] = lead
    return found


def _lead(record: Record, row: Row) -> Lead | None:
    low = ((record.timing or {}).get("speedup") or {}).get("low")
    theirs, theirs_high = number(row, "over_eager"), number(row, "over_eager_high")
    if record.speedup is None or not low or not theirs or not theirs_high:
        return None
    return Lead(speedup=record.speedup / theirs, sure=low / theirs_high > 1.0 + MARGIN)


def counted(held: Mapping[str, Lead]) -> str:
    """How many are faster, in one sentence."""
    faster = sum(lead.sure for lead in held.values())
    return f"Of {len(held)} that could be compared {faster} are faster than `torch.compile` in its default mode"

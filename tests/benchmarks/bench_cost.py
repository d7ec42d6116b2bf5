"""What one evaluation costs the GPU, by stage, from the records of runs: `python -m tests.benchmarks.bench_cost RUN`.

Prints a Markdown table, a row a solution, and whether ordinary problems (calls of reference and solution below 5 ms)
keep to one second. Seconds are the referee's: `prepare` is what a problem takes before its first solution (drawing
inputs, the reference on its own, what bursts cost), and 0 for those that follow; `audit` is the waiting for
compute-sanitizer's verdict, not its work, which is done beside other solutions.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.core.record import Record
from harness.results.reader import StoreError
from harness.results.writer import RunStore

STAGES = ("prepare", "open", "load", "verify", "audit", "measure", "census")
"""In order; together with `other` they are the total. `refresh` is a part of `verify`, `back_to_back` of `measure`."""

ORDINARY_BELOW_S = 5e-3
TARGET_S = 1.0


def timed(records: Sequence[Record]) -> list[Record]:
    """Records of a GPU with a speedup and the seconds of their stages."""
    return [
        record
        for record in records
        if record.device.value == "cuda" and record.speedup is not None and record.evidence.get("stages_s")
    ]


def stages_s(record: Record) -> dict[str, float]:
    """Seconds by stage; `other` is what no stage counts, `total` all of it."""
    held = {name: float(seconds) for name, seconds in dict(record.evidence["stages_s"]).items()}
    found = {name: held.get(name, 0.0) for name in STAGES}
    total_s = held.get("total", sum(found.values()))
    return {**found, "other": max(0.0, total_s - sum(found.values())), "total": total_s}


def slower_s(record: Record) -> float:
    """Device time of the slower of reference and solution."""
    timing: dict[str, Any] = dict(record.timing or {})
    return float(max(timing[side]["device"]["median_s"] for side in ("reference", "solution")))


def document(records: Sequence[Record]) -> str:
    """The table and its summary; empty where no record says what its stages took."""
    chosen = timed(records)
    if not chosen:
        return ""
    names = (*STAGES, "other", "total")
    lines = [
        f"| problem | solution | slower call ms | {' | '.join(names)} | rounds | ended by |",
        "|---" * (len(names) + 5) + "|",
    ]
    for record in sorted(chosen, key=lambda held: (held.problem, held.solution)):
        timing: dict[str, Any] = dict(record.timing or {})
        spent = stages_s(record)
        lines.append(
            f"| {record.problem} | {record.solution} | {slower_s(record) * 1e3:.3f} | "
            f"{' | '.join(f'{spent[name]:.2f}' for name in names)} | {timing['rounds']} | {timing['stopped_by']} |"
        )
    return "\n".join([*lines, "", *_summary(chosen)])


def _summary(chosen: Sequence[Record]) -> list[str]:
    ordinary = [stages_s(record) for record in chosen if slower_s(record) < ORDINARY_BELOW_S]
    if not ordinary:
        return []
    names = (*STAGES, "other")
    totals = [spent["total"] for spent in ordinary]
    own = [spent["total"] - spent["prepare"] for spent in ordinary]
    means = ", ".join(f"{name} {statistics.fmean(spent[name] for spent in ordinary):.2f}" for name in names)
    verdict = "yes" if max(totals) <= TARGET_S else "no"
    return [
        f"Calls below 5 ms, {len(ordinary)} evaluations: {statistics.median(totals):.2f} s in the median, "
        f"{max(totals):.2f} s at most; without what is done once a problem {statistics.median(own):.2f} s and "
        f"{max(own):.2f} s. All within {TARGET_S:g} s: **{verdict}**.",
        "",
        f"Means in seconds: {means}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs: results/RUN")
    given = parser.parse_args()
    try:
        text = document([record for run in given.runs for record in RunStore.open(run).records()])
    except StoreError as error:
        raise SystemExit(str(error)) from error
    if not text:
        raise SystemExit("no record of these runs was timed on a GPU and says what its stages took")
    print(text)


if __name__ == "__main__":
    main()

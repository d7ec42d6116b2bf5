"""The page on time, made from what is committed: `python -m tests.benchmarks.time_tables`.

    python -m tests.benchmarks.time_tables            # writes results/time-h200/README.md
    python -m tests.benchmarks.time_tables --check    # exit code 1 where the page says something else
    python -m tests.benchmarks.time_tables --add rows/calibration.jsonl rows/repeat.jsonl    # takes them in first

Calibration and repeatability come from the rows of `bench_calibration` and `bench_repeat` in that folder; the speed of
light that solutions and eager reach, and what an evaluation costs, from the records of committed runs. A part for which
nothing is there is left out. Run from the repository root.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.core.record import Record
from harness.results.writer import RunStore

from . import bench_cost, calibration_tables, repeat_tables

RESULTS = Path(__file__).parents[2] / "results"
FOLDER = RESULTS / "time-h200"
CALIBRATION, REPEAT, PAGE = "calibration.jsonl", "repeat.jsonl", "README.md"

LIGHT_RUNS = ("h200-examples", "h200")
"""Runs whose solutions' share of the speed of light is shown: of one solution the first run that has it."""

COST_RUN = "h200"
"""Says what an evaluation costs."""


def page(folder: Path, results: Path) -> str:
    """The whole page."""
    parts = [
        "# Time on an H200",
        "Written by `python -m tests.benchmarks.time_tables` from the rows in this folder and the committed runs.",
    ]
    if (rows := folder / CALIBRATION).is_file():
        text = calibration_tables.document(calibration_tables.read(rows))
        parts.append(text.replace("# Calibration", "## Calibration", 1).strip())
    if (rows := folder / REPEAT).is_file():
        parts += ["## Separate runs", repeat_tables.document(calibration_tables.read(rows)).strip()]
    if light := speed_of_light({name: records for name in LIGHT_RUNS if (records := records_of(results / name))}):
        parts += ["## Speed of light", light]
    if cost := bench_cost.document(records_of(results / COST_RUN)):
        parts += [f"## Cost of an evaluation (`{COST_RUN}`)", cost]
    return "\n\n".join(parts) + "\n"


def records_of(run: Path) -> list[Record]:
    """The records of a run; none where it is not there."""
    return list(RunStore.open(run).records()) if (run / "records.jsonl").is_file() else []


def speed_of_light(runs: dict[str, list[Record]]) -> str:
    """What each timed solution and its reference reach; empty where no record says."""
    lines = [
        "The least time that the GPU could take for the reference's flops and bytes, at rates measured on it (in runs "
        "of earlier versions the datasheet's), over the time taken. A solution that does less work than the reference, "
        "or does it in another precision, can exceed 100 %.",
        "",
        "| problem | solution | bound by | rates | least us | eager us | eager | solution us | solution | run |",
        "|---" * 10 + "|",
    ]
    seen: set[tuple[str, str]] = set()
    rows = []
    for run, records in runs.items():
        for record in records:
            timing: dict[str, Any] = dict(record.timing or {})
            light = timing.get("speed_of_light") or {}
            key = (record.problem, record.solution)
            if not light.get("fraction") or key in seen or record.workload != "full" or record.device.value != "cuda":
                continue
            seen.add(key)
            rows.append((_place(record.problem), record.solution, _light_row(record, timing, light, run)))
    return "\n".join([*lines, *(row for *_, row in sorted(rows))]) if rows else ""


def _light_row(record: Record, timing: dict[str, Any], light: dict[str, Any], run: str) -> str:
    reference_s, solution_s = (timing[side]["device"]["median_s"] for side in ("reference", "solution"))
    least_s = light["sol_time_s"]
    rates, bound = light.get("peaks_source", ""), light["bound"]
    reached = (
        f"{reference_s * 1e6:.1f} | {least_s / reference_s:.0%} | {solution_s * 1e6:.1f} | {least_s / solution_s:.0%}"
    )
    return (
        f"| {record.problem} | {record.solution} | {bound} | {rates} | {least_s * 1e6:.1f} | "
        f"{reached.replace('%', ' %')} | {run} |"
    )


def _place(problem: str) -> tuple[str, int]:
    level, _, number = problem.partition("/")
    return level, int(number) if number.isdigit() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the page differs")
    parser.add_argument("--add", type=Path, nargs="+", default=(), help="rows to take in, by their files' names")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the committed runs")
    given = parser.parse_args(arguments)
    for rows in given.add:
        if rows.name not in (CALIBRATION, REPEAT):
            parser.error(f"{rows}: rows are called {CALIBRATION} or {REPEAT}")
        given.folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(rows, given.folder / rows.name)
    text, target = page(given.folder, given.results), given.folder / PAGE
    if given.check:
        same = target.is_file() and target.read_text() == text
        if not same:
            print(f"time_tables: {target} is not what is committed says; run without --check", file=sys.stderr)
        return int(not same)
    given.folder.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

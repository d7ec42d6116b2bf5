"""Do separate runs give the same speedups?

    python -m tests.benchmarks.bench_repeat --rows rows.jsonl --out repeat.md
    python -m tests.benchmarks.bench_repeat --runs 3 --workload small solutions/examples/optimised

Runs `harness eval PATHS --audit never` `--runs` times, each a run of its own (audits are no part of the timing), and
compares the speedups of each solution. The rows and the table (`repeat_tables`) are written after each run, so that a
cut-off loses one. The first run builds what the cache does not hold; `--build-first` makes one more for that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.core.record import Record
from harness.results.writer import RunStore
from tests.benchmarks.repeat_tables import Row, document

ROOT = Path(__file__).parent.parent.parent

SOLUTIONS = (
    "solutions/examples/naive/level1/95_block_per_row.py",
    "solutions/examples/optimised/level1/40_chunked_samples.py",
    "solutions/tuned/level1/12_row_scaling.py",
    "solutions/tuned/level2/116_warp_a_token.py",
    "solutions/tuned/level2/134_one_read.py",
)
"""Kernels of 35 to 310 us, three of them below 50 us: a run of them takes little longer than its start."""


def evaluate(paths: Sequence[str], options: Sequence[str], out: Path, run_id: str) -> list[Record]:
    command = [sys.executable, "-m", "harness", "eval", *paths, "--audit", "never", *options]
    done = subprocess.run(
        [*command, "--out", str(out), "--run-id", run_id], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return RunStore.open(out / run_id).records()


def rows_of(records: Iterable[Record], run: int) -> list[Row]:
    return [_row(record, run) for record in records]


def _row(record: Record, run: int) -> Row:
    timing: dict[str, Any] = dict(record.timing or {})
    found = timing.get("speedup") or {}
    return {
        "run": run,
        "workload": record.workload,
        "problem": record.problem,
        "solution": record.solution,
        "status": record.status.value,
        "speedup": record.speedup,
        "low": found.get("low"),
        "high": found.get("high"),
        "labels": list(record.labels),
        **{
            f"{side}_s": timing[side]["device"]["median_s"] if timing.get(side) else None
            for side in ("reference", "solution")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(SOLUTIONS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workload", action="append", help="once for each; default: full")
    parser.add_argument("--timing-budget", default="2", help="seconds of timing that a solution gets at most")
    parser.add_argument("--build-first", action="store_true", help="one run more, ahead, which is not counted")
    parser.add_argument("--rows", type=Path, help="file for the rows, written after each run")
    parser.add_argument("--out", type=Path, help="Markdown file to write after each run")
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="repeat-") as folder:
        out = given.keep or Path(folder)
        for run in range(0 if given.build_first else 1, given.runs + 1):
            for workload in given.workload or ["full"]:
                options = ["--workload", workload, "--timing-budget", given.timing_budget]
                records = evaluate(given.paths, options, out / workload, f"run-{run}")
                if run == 0:
                    continue
                rows += rows_of(records, run)
            if given.rows and rows:
                given.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))
            if given.out and rows:
                given.out.write_text(document(rows) + "\n")
            print(f"run {run} of {given.runs}", file=sys.stderr, flush=True)
    print(document(rows))


if __name__ == "__main__":
    main()

"""Do separate runs give the same speedups, and what does one evaluation cost the GPU?

    python -m tests.benchmarks.bench_repeat --out results/repeat-h200.md
    python -m tests.benchmarks.bench_repeat --runs 3 --workload small solutions/examples/optimised

Runs `harness eval PATHS --audit never` once to build everything and then `--runs` times, each a run of its own, and
compares the speedups of each solution. Also splits the seconds of one evaluation by stage, as the records have them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.model import Record
from harness.store import RunStore

ROOT = Path(__file__).parent.parent.parent

SHORT_S = 50e-6
"""Device time that divides the two targets: below 1 % of spread above it, below 3 % under it."""

STAGES = ("prepare", "load", "verify", "audit", "measure", "back_to_back", "census", "total")
"""`back_to_back` is a part of `measure`; `total` is of all."""


def evaluate(paths: Sequence[str], options: Sequence[str], out: Path, run_id: str) -> list[Record]:
    command = [sys.executable, "-m", "harness", "eval", *paths, "--audit", "never", *options]
    done = subprocess.run(
        [*command, "--out", str(out), "--run-id", run_id], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return RunStore.open(out / run_id).records()


def spreads(runs: Sequence[Sequence[Record]]) -> tuple[list[str], dict[str, float]]:
    """A row for each solution that passed in all runs, and the largest spread of short and of long ones."""
    held: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for records in runs:
        for record in records:
            if record.speedup is not None:
                held[record.problem, record.solution].append(record)
    rows = [
        "| problem | solution | device time us | speedup, median | lowest | highest | spread | widest interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    worst: dict[str, float] = {}
    for (problem, solution), records in sorted(held.items()):
        if len(records) < len(runs):
            continue
        values = sorted(record.speedup or 0.0 for record in records)
        spread = values[-1] / values[0] - 1
        timing: dict[str, Any] = dict(records[0].timing or {})
        device_s = timing["solution"]["device"]["median_s"]
        size = "short" if min(device_s, timing["reference"]["device"]["median_s"]) < SHORT_S else "long"
        worst[size] = max(worst.get(size, 0.0), spread)
        widths = [
            found["high"] / found["low"] - 1
            for record in records
            if (found := (record.timing or {}).get("speedup")) and found["low"] and found["high"]
        ]
        rows.append(
            f"| {problem} | {solution} | {device_s * 1e6:.1f} | {statistics.median(values):.4f} | {values[0]:.4f} | "
            f"{values[-1]:.4f} | {spread * 100:.2f} % | {max(widths, default=0.0) * 100:.2f} % |"
        )
    return rows, worst


def costs(runs: Sequence[Sequence[Record]]) -> list[str]:
    """Seconds of one evaluation by stage, medians over the runs."""
    held: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for records in runs:
        for record in records:
            if record.speedup is not None:
                held[record.problem, record.solution].append(record)
    rows = [
        f"| problem | solution | kernel ms | {' | '.join(STAGES)} | bursts: solution | reference | rounds | ended by |",
        "|---" * (len(STAGES) + 7) + "|",
    ]
    for (problem, solution), records in sorted(held.items()):
        stages = [dict(record.evidence.get("stages_s", {})) for record in records]
        bursts = [dict(record.evidence.get("bursts_s", {})) for record in records]
        timing: dict[str, Any] = dict(records[-1].timing or {})
        shown = [f"{statistics.median(s.get(name, 0.0) for s in stages):.2f}" for name in STAGES]
        parts = [f"{statistics.median(b.get(name, 0.0) for b in bursts):.2f}" for name in ("solution", "reference")]
        rows.append(
            f"| {problem} | {solution} | {timing['solution']['device']['median_s'] * 1e3:.3f} | {' | '.join(shown)} | "
            f"{' | '.join(parts)} | {timing['rounds']} | {timing['stopped_by']} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["solutions/examples"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workload", action="append", help="once for each; default: full")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    given = parser.parse_args()
    lines = [f"# Speedups over {given.runs} separate runs", ""]
    with tempfile.TemporaryDirectory(prefix="repeat-") as folder:
        for workload in given.workload or ["full"]:
            options = ["--workload", workload]
            out = Path(folder) / workload
            evaluate(given.paths, options, out, "first")
            runs = [evaluate(given.paths, options, out, f"run-{number}") for number in range(given.runs)]
            rows, worst = spreads(runs)
            lines += [f"## Workload {workload}", "", *rows, ""]
            for size, limit in (("long", 1.0), ("short", 3.0)):
                if size in worst:
                    lines.append(
                        f"Largest spread of {size} ones ({'from' if size == 'long' else 'below'} 50 us): "
                        f"**{worst[size] * 100:.2f} %** (target: below {limit:g} %)."
                    )
            lines += ["", "Seconds of one evaluation by stage, builds cached, no audit:", "", *costs(runs), ""]
    text = "\n".join(lines)
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()

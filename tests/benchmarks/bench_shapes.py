"""Secret shapes: how many problems have them, and what five shapes cost compared with one.

    python tests/benchmarks/bench_shapes.py ranges --markdown ranges.md
    python tests/benchmarks/bench_shapes.py cost --device host --sources solutions/examples --problems 4
    python tests/benchmarks/bench_shapes.py cost --device cuda --sources solutions/tuned --problems 12 --copies 4 \\
        --json shapes.json

`ranges` derives the ranges of all problems and draws four shapes of each at `full` and at `small`, without data.

`cost` evaluates copies of solutions with a warm build cache, in turn at the shown shape alone and at `--secret` more,
by `harness eval` in a process of its own. It prints the seconds of the whole command and of the evaluations alone,
their ratios, where the time goes, and the speedup of each solution at the shown and at the secret shapes. The goal:
five shapes cost at most 1.6 times one. Exits with 1 if they cost more.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent

GOAL = 1.6
"""Most seconds of five shapes, as a multiple of those of one."""

STAGES = ("prepare", "load", "verify", "shapes", "measure", "back_to_back", "total")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    ranges = commands.add_parser("ranges", help="count the problems that have secret shapes")
    ranges.add_argument("--problems", type=Path, default=ROOT / "problems")
    ranges.add_argument("--markdown", type=Path, help="write the ranges as a table")
    cost = commands.add_parser("cost", help="measure what shapes cost")
    cost.add_argument("--device", choices=("cuda", "host"), default="cuda")
    cost.add_argument("--sources", type=Path, default=ROOT / "solutions/tuned")
    cost.add_argument("--problems", type=int, default=12, help="the first so many problems of the sources")
    cost.add_argument("--copies", type=int, default=1, help="solutions of each source")
    cost.add_argument("--secret", type=int, default=4, help="secret shapes")
    cost.add_argument("--times", type=int, default=2, help="runs of each kind")
    cost.add_argument("--json", type=Path)
    given = parser.parse_args()
    return count_ranges(given.problems, given.markdown) if given.command == "ranges" else measure(given)


def count_ranges(root: Path, markdown: Path | None) -> int:
    """Print how many problems have secret shapes at `full` and `small`."""
    from harness.catalog import load_problems
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.size_ranges import ShapeDrawer

    problems = load_problems(root)
    lines = ["| problem | ranges at full size | at small size |", "|---|---|---|"]
    ready = {"full": 0, "small": 0}
    spent_s: list[float] = []
    for key, problem in problems.items():
        cells = []
        for name in ready:
            if name not in problem.workloads:
                cells.append("not declared")
                continue
            begin = time.perf_counter()
            try:
                drawer = ShapeDrawer(problem, problem.workloads[name])
                drawn = drawer.draw(4, random.Random(1))
            except ProblemError as error:
                cells.append(f"none: {error}")
                continue
            spent_s.append(time.perf_counter() - begin)
            ready[name] += len(drawn) == 4
            cells.append("; ".join(each.title for each in drawer.ranges) or f"a list of {len(drawer.listed)}")
        lines.append(f"| {key} {problem.name} | {' | '.join(cells)} |")
    for name, count in ready.items():
        declared = sum(name in problem.workloads for problem in problems.values())
        print(f"{count} of {declared} problems have four secret shapes at {name}")
    print(f"ranges and four draws: {statistics.median(spent_s):.2f} s in the median, at most {max(spent_s):.2f} s")
    if markdown is not None:
        markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def measure(given: argparse.Namespace) -> int:
    """Evaluate with one shape and with several, and print a table."""
    from tests.benchmarks.bench_throughput import make_solutions, sources_of

    shapes = 1 + given.secret
    sources = sources_of(given.sources, given.problems)
    with tempfile.TemporaryDirectory(prefix="bench-shapes-") as scratch:
        folder = Path(scratch)
        solutions = folder / "solutions"
        make_solutions(solutions, sources, given.copies * sum(map(len, sources)))
        evaluate(folder, solutions, given.device, 0, "warm")  # builds everything
        runs: dict[int, list[tuple[float, list[dict[str, Any]]]]] = {0: [], given.secret: []}
        for number in range(given.times):
            for secret, held in runs.items():
                held.append(evaluate(folder, solutions, given.device, secret, f"secret-{secret}-{number}"))
    one, several = runs[0], runs[given.secret]
    rows = [
        (name, *(statistics.median(seconds(run)[place] for run in side) for side in (one, several)))
        for place, name in enumerate(("whole command", "evaluations alone"))
    ]
    count = len(one[0][1])
    print(
        f"\n{count} solutions of {len(sources)} problems, {given.device}, warm build cache, median of {given.times}\n"
    )
    print(f"| seconds | one shape | {shapes} shapes | ratio |\n|---|---:|---:|---:|")
    for name, less_s, more_s in rows:
        print(f"| {name} | {less_s:.2f} | {more_s:.2f} | {more_s / less_s:.2f} |")
    for stage in STAGES:
        less_s, more_s = (mean_stage(side, stage) for side in (one, several))
        print(f"| {stage}, mean of a solution | {less_s:.3f} | {more_s:.3f} | |")
    print(f"\n| solution | status | shown | {given.secret} secret | gap | remark |\n|---|---|---:|---:|---:|---|")
    for record in sorted(several[0][1], key=lambda record: str(record["solution"])):
        print(solution_row(record))
    ratio = rows[1][2] / rows[1][1]
    if given.json is not None:
        given.json.write_text(json.dumps({"rows": rows, "ratio": ratio, "records": several[0][1]}, indent=1))
    print(f"\n{shapes} shapes cost {ratio:.2f} times one (goal: at most {GOAL})")
    return 0 if ratio <= GOAL else 1


def evaluate(
    folder: Path, solutions: Path, device: str, secret: int, run_id: str
) -> tuple[float, list[dict[str, Any]]]:
    """Return the seconds of one `harness eval`, and its records."""
    command = [sys.executable, "-m", "harness", "eval", str(solutions), "--device", device, "--shapes", str(secret)]
    command += ["--out", str(folder / "results"), "--run-id", run_id]
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - begin
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    text = (folder / "results" / run_id / "records.jsonl").read_text()
    return wall_s, [json.loads(line) for line in text.splitlines()]


def seconds(run: tuple[float, list[dict[str, Any]]]) -> tuple[float, float]:
    """Return the seconds of the command, and of all its evaluations."""
    return run[0], sum(stage_s(record, "total") for record in run[1])


def stage_s(record: dict[str, Any], stage: str) -> float:
    return float(record["evidence"].get("stages_s", {}).get(stage, 0.0))


def mean_stage(runs: Sequence[tuple[float, list[dict[str, Any]]]], stage: str) -> float:
    return statistics.fmean(stage_s(record, stage) for _, records in runs for record in records)


def solution_row(record: dict[str, Any]) -> str:
    """Return a line on one solution."""
    held = (record["timing"] or {}).get("shapes")
    numbers = [held["shown"]["speedup"], record["speedup"], held["gap"]["speedup"]] if held else []
    cells = [f"{number:.3g}" for number in numbers] or ["", "", ""]
    remark = record["reason"] if record["status"] != "passed" else ", ".join(record["labels"])
    return f"| {record['solution']} | {record['status']} | {' | '.join(cells)} | {remark[:160]} |"


if __name__ == "__main__":
    sys.exit(main())

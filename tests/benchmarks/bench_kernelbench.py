"""What the harness itself costs on KernelBench's problems, by stage.

    python -m tests.benchmarks.bench_kernelbench ../KernelBench/KernelBench
    python -m tests.benchmarks.bench_kernelbench ../KernelBench/KernelBench --every 20 --eval-options '--device host'

Writes for each problem a solution that calls the reference's own forward, in a temporary folder, so that only the
harness's work counts. Evaluates all of them by one `harness eval` in a process of its own. Prints each problem's status
and seconds by stage, slowest first, then the sums; sizes that were not derived before are derived first, which is in no
stage. A sample (`--every`, `--first`, `--only`) tells how long all would take; so does a run that is interrupted.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.catalog import load_problems
from harness.core.problem import Problem
from harness.core.record import Record
from harness.results.reader import is_run
from harness.results.writer import RunStore

ROOT = Path(__file__).parent.parent.parent

STAGES = ("prepare", "open", "load", "verify", "reorder", "refresh", "audit", "measure", "total")
"""The columns of the table: those of `evidence.stages_s`."""


def chosen(
    problems: Sequence[Problem], levels: Sequence[str], every: int = 1, first: int = 0, only: Sequence[str] = ()
) -> list[Problem]:
    """Return the problems to take, in the catalog's order."""
    of_levels = [problem for problem in problems if problem.id.partition("/")[0] in levels]
    return [problem for problem in of_levels if not only or problem.id in only][first::every]


def write_solution(folder: Path, problem: Problem) -> None:
    """Write a solution that is the reference itself."""
    target = folder / "own_forward" / problem.id.partition("/")[0] / problem.path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{problem.source}\n\nclass ModelNew(Model):\n    pass\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path, help="the folder that has level1, level2, …")
    parser.add_argument("--levels", default="level1,level2,level3", help="[level1,level2,level3]")
    parser.add_argument("--every", type=int, default=1, help="take only every so manieth problem")
    parser.add_argument("--first", type=int, default=0, help="begin with this one, counted from 0  [0]")
    parser.add_argument("--only", default="", help="take only these, for example level1/54,level3/28")
    parser.add_argument("--eval-options", default="", help="more for harness eval, as '--device host'")
    given = parser.parse_args()
    levels = given.levels.split(",")
    everything = list(load_problems(given.problems).values())
    taken = chosen(everything, levels, given.every, given.first, [name for name in given.only.split(",") if name])
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as name:
        folder = Path(name)
        for problem in taken:
            write_solution(folder / "solutions", problem)
        command = [
            sys.executable,
            "-m",
            "harness",
            "eval",
            str(folder / "solutions"),
            "--problems",
            str(given.problems),
        ]
        command += ["--out", str(folder / "results"), "--run-id", "run", *given.eval_options.split()]
        begin = time.perf_counter()
        with subprocess.Popen(command, cwd=ROOT) as evaluation:
            with suppress(KeyboardInterrupt):  # the evaluation got the signal, too, and ends by itself
                evaluation.wait()
            code = evaluation.wait()
        wall_s = time.perf_counter() - begin
        if not is_run(folder / "results" / "run"):
            sys.exit(code)
        records = RunStore.open(folder / "results" / "run").records()  # of faulty problems, too
    print_table(records)
    whole = len(chosen(everything, levels))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(records)} solutions in {wall_s:.0f} s, {wall_s / len(records):.1f} s each, and "
        f"{(used.ru_utime + used.ru_stime) / len(records):.1f} s of a processor; "
        f"at that rate all {whole} take {wall_s / len(records) * whole / 60:.0f} minutes"
    )


def print_table(records: Sequence[Record]) -> None:
    """Print a row for each problem, the slowest first, and the sums."""

    def seconds(record: Record, stage: str) -> float:
        return float(record.evidence.get("stages_s", {}).get(stage, 0.0))

    stages = [stage for stage in STAGES if any(seconds(record, stage) for record in records)]
    print(f"{'problem':12} {'status':16}" + "".join(f"{stage:>9}" for stage in stages))
    for record in sorted(records, key=lambda record: -seconds(record, "total")):
        times = "".join(f"{seconds(record, stage):9.2f}" for stage in stages)
        reason = f"  {record.reason}" if record.status != "passed" else ""
        print(f"{record.problem:12} {record.status:16}{times}{reason}")
    sums = "".join(f"{sum(seconds(record, stage) for record in records):9.2f}" for stage in stages)
    print(f"{'all':12} {'':16}{sums}")
    print(", ".join(f"{count} {status}" for status, count in Counter(str(r.status) for r in records).most_common()))


if __name__ == "__main__":
    main()

"""Judge torch's own backward, the written ones and their mutants on the host device, and write a table.

    python -m tests.gradients --table results/gradients.md

The exit code is 1 if a right solution fails or a mutant passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import collect
from harness.core.record import Record
from harness.core.status import Status
from harness.runner.run import evaluate_run
from harness.toolchain import default_root
from tests.gradients import MUTANTS, OWN, TORCH, judged
from tests.support.paths import ROOT


def evaluate(folder: Path, names: frozenset[str] | None = None) -> list[Record]:
    """Judge the solutions of these problems, all by default; `folder` is for files."""
    for author, name, source in judged(names):
        path = folder / "solutions" / author / "backward" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [folder / "solutions"],
            "problems": ROOT / "problems",
            "out": folder / "results",
            "cache_dir": default_root(),
        },
    )
    return list(evaluate_run(config, environment=collect()).records)


def astray(records: list[Record]) -> list[str]:
    """Return a line for each right solution that fails and each mutant that lives."""
    return [
        f"{record.solution}: {record.status.value}: {record.reason}"
        for record in records
        if (record.status is Status.passed) == (record.author == MUTANTS)
        or record.status in (Status.harness_error, Status.not_emulated, Status.unsupported)
    ]


def table(records: list[Record]) -> str:
    """Return a Markdown table with a row for each problem."""
    rows = ["| problem | torch | own backward | mutants | statuses of the mutants |", "|---|---|---|---:|---|"]
    problems = sorted({record.problem for record in records}, key=lambda problem: int(problem.partition("/")[2]))
    for problem in problems:
        of = {
            author: [r for r in records if r.problem == problem and r.author == author]
            for author in (TORCH, OWN, MUTANTS)
        }
        status = {author: of[author][0].status.value for author in (TORCH, OWN)}
        died = Counter(record.status.value for record in of[MUTANTS])
        words = ", ".join(f"{name} {count}" for name, count in died.most_common())
        rows.append(f"| {problem} | {status[TORCH]} | {status[OWN]} | {len(of[MUTANTS])} | {words} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="write the table to this file")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        records = evaluate(Path(folder))
    rows, wrong = table(records), astray(records)
    counts = Counter((record.author, record.status is Status.passed) for record in records)
    passed = f"torch's own backward passes {counts[TORCH, True]} of {counts[TORCH, True] + counts[TORCH, False]}"
    own = f"written ones {counts[OWN, True]} of {counts[OWN, True] + counts[OWN, False]}"
    died = f"{counts[MUTANTS, False]} of {counts[MUTANTS, True] + counts[MUTANTS, False]} mutants die"
    print("\n".join([rows, "", f"{passed}, {own}, {died}; {time.perf_counter() - begin:.0f} s.", *wrong]))
    if arguments.table is not None:
        arguments.table.write_text(f"{rows}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

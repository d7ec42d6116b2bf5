"""What a training loop waits for: all solutions of a folder submitted to one open `Harness`, batch after batch.

    python -m tests.benchmarks.bench_loop solutions/tuned --device cuda --count 24 --batches 3
    python -m tests.benchmarks.bench_loop transcripts --timing full --audit never --json loop.json

The first batch starts the processes and builds what the cache does not know; later ones find all that warm, and judge
everything anew. Prints each batch's seconds from the first `submit` to the last result, and its evaluations an hour.
Exit code 1 where the statuses of two batches differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import Harness, as_completed
from harness.catalog import CatalogError, find_solutions, load_problems
from harness.core.problem import Solution

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Seconds; `median_s` is of the solutions' own evaluations (their records' `wall_s`), builds among them."""

    wall_s: float
    per_hour: float
    median_s: float
    statuses: dict[str, str]
    """By the solution's path."""


def one_batch(h: Harness, solutions: Sequence[Solution]) -> Batch:
    begin = time.perf_counter()
    futures = {h.submit(held.problem_id, held.path, author=held.author): held.label for held in solutions}
    walls, statuses = [], {}
    for future in as_completed(futures):
        record = future.result().record
        walls.append(record.wall_s)
        statuses[futures[future]] = record.status.value
    wall_s = time.perf_counter() - begin
    return Batch(
        wall_s=wall_s,
        per_hour=3600.0 * len(solutions) / wall_s,
        median_s=statistics.median(walls),
        statuses=dict(sorted(statuses.items())),
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--count", type=int, help="no more solutions than these, in order")
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "host"])
    parser.add_argument("--timing", default="quick", choices=["quick", "full"])
    parser.add_argument("--audit", choices=["auto", "always", "never"])
    parser.add_argument("--workload")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    try:
        solutions = find_solutions(options.paths, load_problems(ROOT / "problems"))[: options.count]
    except CatalogError as error:
        parser.error(str(error))
    if not solutions or options.batches < 1:
        parser.error("nothing to submit: name solutions, and at least one of --count and --batches")
    batches = []
    settings = {name: getattr(options, name) for name in ("device", "timing", "audit", "workload", "workers")}
    with Harness(problems=ROOT / "problems", **settings) as h:
        print(f"device {h.device.value}, timing {options.timing}, audit {h.config.audit}, {len(solutions)} solutions")
        for number in range(1, options.batches + 1):
            batches.append(one_batch(h, solutions))
            held = batches[-1]
            counted = ", ".join(f"{count} {status}" for status, count in Counter(held.statuses.values()).most_common())
            print(
                f"batch {number}: {held.wall_s:.1f} s, {held.per_hour:,.0f} an hour; one takes {held.median_s:.2f} s "
                f"in the median; {counted}",
                flush=True,
            )
    if options.json is not None:
        told = {"settings": settings, "solutions": len(solutions), "batches": [asdict(held) for held in batches]}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0 if all(held.statuses == batches[0].statuses for held in batches) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

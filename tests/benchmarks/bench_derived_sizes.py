"""Derive small sizes for every problem of a folder, and write a table of them.

    python -m tests.benchmarks.bench_derived_sizes ../KernelBench/KernelBench --out results/kernelbench-sizes.md

Results are cached; `--cache` names another folder, for times without a cache.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from harness.catalog import load_problems
from harness.core.config import CACHE_LIMIT_BYTES, cache_root
from harness.core.problem import Problem
from harness.referee.small_sizes import NoSmallSizes, SmallSizes

HEAD = """# Small sizes of KernelBench's problems

Made by `python -m tests.benchmarks.bench_derived_sizes PATH_TO_KERNELBENCH/KernelBench` on {cpus} processors without a
GPU, beside other work: the times are upper bounds. {found} of {count} problems get sizes ({levels}).

Operations are flops, and elements of the results of all operations, of one call of the reference. Bytes are those of
inputs, parameters, buffers and outputs.

| problem | operations | KiB | seconds | sizes, or why there are none |
|---|---:|---:|---:|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=Path)
    parser.add_argument("--level", action="append", default=[], help="Level to take, for example level1.  [all]")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path, default=cache_root())
    arguments = parser.parse_args()
    chosen = [
        problem
        for problem in load_problems(arguments.problems).values()
        if not arguments.level or problem.id.partition("/")[0] in arguments.level
    ]
    rows: list[str] = []
    counts: dict[str, list[bool]] = {}
    with SmallSizes(arguments.cache, CACHE_LIMIT_BYTES) as small_sizes:
        for problem in chosen:
            begin = time.perf_counter()
            try:
                sizes, told = dict(small_sizes.of(problem).sizes), None
            except NoSmallSizes as error:
                sizes, told = {}, str(error)
            seconds = time.perf_counter() - begin
            counts.setdefault(problem.id.partition("/")[0], []).append(told is None)
            cost = _cost(problem, sizes) if told is None else ("", "")
            shown = told or ", ".join(f"{name} = {json.dumps(value)}" for name, value in sizes.items()) or "as shipped"
            rows.append(f"| {problem.id} {problem.name} | {cost[0]} | {cost[1]} | {seconds:.1f} | {shown} |")
            print(rows[-1], flush=True)
    levels = ", ".join(f"{level}: {sum(found)} of {len(found)}" for level, found in counts.items())
    found = sum(sum(each) for each in counts.values())
    page = HEAD.format(cpus=os.cpu_count(), found=found, count=len(chosen), levels=levels) + "\n".join(rows) + "\n"
    if arguments.out is not None:
        arguments.out.write_text(page)
    print(levels)


def _cost(problem: Problem, sizes: dict[str, object]) -> tuple[str, str]:
    from harness.referee.problem.derive import trace

    call = trace(problem, sizes)
    return f"{call.operations:.2g}", f"{call.nbytes / 1024:.0f}"


if __name__ == "__main__":
    main()

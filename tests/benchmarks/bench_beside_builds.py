"""Do builds on the other processors change what is measured? The same solutions timed beside none, few and many builds.

    python -m tests.benchmarks.bench_beside_builds solutions/tuned/level1/10_split_tf32.py --device cuda
    python -m tests.benchmarks.bench_beside_builds PATHS --runs 5 --json beside.json

An open `Harness` judges the solutions, by turns, beside as many builds at once as `--jobs` says (by default none, half
of the processors, which is what the harness allows itself on a GPU, and all of them). A process of its own makes them:
real builds of different solutions, without end. Ctrl-C ends it with what was measured until then. For each solution
and number of builds: the median speedup beside that with none, how far the runs lie apart, how many were charged for
what the referee's clock did not explain, the half width of the interval, rounds, and seconds of measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import Harness
from harness.catalog import CatalogError, find_solutions, load_problems
from harness.core.config import cache_root
from harness.core.executables import find_nvcc
from harness.core.problem import Solution
from harness.core.record import Record
from harness.core.visible_gpus import Capability
from harness.referee.timing.speedup import UNEXPLAINED
from tests.benchmarks.bench_builds import Builders, solutions

ROOT = Path(__file__).parent.parent.parent
BATCH = 64
BEGUN_S = 4.0
"""How long builds are left alone before something is timed beside them: compilers have started by then."""

ARCH: Capability = (9, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One evaluation beside so many builds. Seconds; `half_width` is a share of the speedup."""

    solution: str
    jobs: int
    speedup: float
    half_width: float
    rounds: int
    spent_s: float
    charged: bool
    """Whether calls were charged for what the referee's clock did not explain (label `unexplained_time`)."""
    load: float
    """Processors that were busy meanwhile, of all of the machine's."""


def build_for_ever(jobs: int) -> None:
    """Build different solutions, so many at once, until the process is ended."""
    capabilities = (ARCH,) if find_nvcc() is not None else ()
    with tempfile.TemporaryDirectory() as folder:
        builders = Builders("quick", cache_root() / "build", Path(folder), capabilities)
        builders.toolchain.warm_up()
        try:
            builders.start()
            print("ready", flush=True)
            with ThreadPoolExecutor(jobs) as pool:
                while True:
                    list(pool.map(builders.build, solutions(BATCH, bool(capabilities))))
        finally:
            builders.close()


@contextmanager
def beside(jobs: int) -> Iterator[None]:
    """So many builds go on meanwhile."""
    if not jobs:
        yield
        return
    command = [sys.executable, "-m", "tests.benchmarks.bench_beside_builds", "--build-for-ever", str(jobs)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            if not child.stdout.readline():
                raise SystemExit("the builds beside came to an end: call this with --build-for-ever 1 to see why")
            time.sleep(BEGUN_S)
            yield
        finally:
            os.killpg(child.pid, signal.SIGINT)


def busy_processors() -> tuple[float, float]:
    """Seconds that processors were busy since the machine started, and now."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:8]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK"), time.monotonic()


def timed(record: Record, jobs: int, load: float) -> Timed:
    timing = record.timing
    if record.speedup is None or timing is None:
        raise SystemExit(f"{record.solution}: {record.status.value}, not timed: {record.reason}")
    low, high = timing["speedup"]["low"], timing["speedup"]["high"]
    return Timed(
        solution=record.solution,
        jobs=jobs,
        speedup=record.speedup,
        half_width=(high - low) / 2.0 / record.speedup,
        rounds=len(timing["order"]),
        spent_s=timing["spent_s"],
        charged=UNEXPLAINED in record.labels,
        load=load,
    )


def table(rows: Sequence[Timed], numbers: Sequence[int]) -> str:
    lines = [
        "| solution | builds beside | processors busy | speedup, median | beside none | apart | charged | half width "
        "| rounds | measured for |",
        "|---" * 10 + "|",
    ]
    for solution in dict.fromkeys(row.solution for row in rows):
        alone: float | None = None
        for jobs in numbers:
            held = [row for row in rows if (row.solution, row.jobs) == (solution, jobs)]
            if not held:
                continue
            speedups = [row.speedup for row in held]
            median = statistics.median(speedups)
            alone = median if not jobs else alone
            cells = [
                solution,
                str(jobs),
                f"{statistics.mean(row.load for row in held):.1f}",
                f"{median:.4g}",
                "" if alone is None else f"{median / alone - 1.0:+.2%}",
                f"{(max(speedups) - min(speedups)) / median:.2%}",
                f"{sum(row.charged for row in held)} of {len(held)}",
                f"{statistics.median(row.half_width for row in held):.2%}",
                f"{statistics.mean(row.rounds for row in held):.1f}",
                f"{statistics.median(row.spent_s for row in held):.2f} s",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    processors = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, nargs="*", default=[0, max(1, processors // 2), processors])
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "host"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--build-for-ever", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.build_for_ever:
        with suppress(KeyboardInterrupt):
            build_for_ever(options.build_for_ever)
        return 0
    try:
        found = find_solutions(options.paths, load_problems(ROOT / "problems"))
    except CatalogError as error:
        parser.error(str(error))
    rows: list[Timed] = []
    with (
        suppress(KeyboardInterrupt),
        Harness(problems=ROOT / "problems", device=options.device, timing="full", audit="never") as harness,
    ):

        def judged(solution: Solution) -> Record:
            name = solution.path.stem
            return harness.evaluate(solution.problem_id, solution.path, author=solution.author, name=name).record

        for solution in found:  # what is built and learnt first is no part of this
            judged(solution)
        for run in range(options.runs):
            for jobs in options.jobs if run % 2 == 0 else reversed(options.jobs):
                with beside(jobs):
                    for solution in found:
                        busy_s, begin_s = busy_processors()
                        record = judged(solution)
                        after_s, end_s = busy_processors()
                        rows.append(timed(record, jobs, (after_s - busy_s) / (end_s - begin_s)))
                print(f"run {run + 1}, beside {jobs} builds: done", file=sys.stderr, flush=True)
                if options.json is not None:
                    text = json.dumps([asdict(row) for row in rows], indent=1)
                    options.json.write_text(text + "\n", encoding="utf-8")
    print(table(rows, options.jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

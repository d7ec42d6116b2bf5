"""Time builds from an empty cache: one solution alone, and many at once.

    python tests/benchmarks/bench_builds.py --json builds.json --markdown builds.md
    taskset -c 0-15 python tests/benchmarks/bench_builds.py          # on 16 of the processors
    python tests/benchmarks/bench_builds.py --ways quick --count 64

Makes `--count` different solutions of the examples (each with a constant of its own), and builds them by the real
builders: zygotes, harvest, sandbox, compilers, cache. Shared headers are warmed up first, which is timed apart.
The GPU is not used; without nvcc the examples in plain C++ are built.

Ways: `full` torch's own headers; `lean` lean headers; `prebuilt` and `split` one of the quick ways beside lean headers;
`apart` both, in two units; `quick` the same joined where `main.cpp` only declares, which is what the harness does.
`--count` are built of `quick`, `--others` of each other way and none of `full`: processor seconds a solution say what a
technique brings, whatever their number. Processor seconds are those of the processors that this process may use (all of
the machine's, or `taskset`'s), which should have nothing else to do.
Exit code 1 if a target is missed: one alone in 1.5 s, `--count` in 12 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.core.executables import find_nvcc
from harness.core.visible_gpus import Capability
from harness.runner.executors import BuildRequest
from harness.runner.executors.builders import LocalBuilders
from harness.toolchain import BuildCache, BuildOutcome, NvccToolchain

ROOT = Path(__file__).parent.parent.parent

WAYS = {
    "full": {"lean_headers": False},
    "lean": {"quick_ways": ()},
    "prebuilt": {"quick_ways": ("prebuilt",)},
    "split": {"quick_ways": ("split",)},
    "apart": {"quick_ways": ("prebuilt", "split")},
    "quick": {},
}
ALONE_ONLY = ("full",)

ALONE_TARGET_S, MANY_TARGET_S = 1.5, 12.0
"""What `quick` should take at most on 16 processors: a typical solution alone, and `--count` different ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way of building. `alone_s` and `alone_cpu_s` are of one typical solution with the machine to itself; of
    `count` solutions at once, `wall_s` is all of them, `cpu_s` their processor time, `typical_s` the median of one."""

    way: str
    alone_s: float
    alone_cpu_s: float
    alone_units: dict[str, str]
    count: int = 0
    wall_s: float | None = None
    cpu_s: float | None = None
    typical_s: float | None = None
    compile_s: float | None = None
    units: dict[str, int] | None = None
    failed: int = 0


def solutions(count: int, cuda: bool) -> list[tuple[str, str]]:
    """Name and text of `count` different solutions."""
    found = []
    for path in sorted((ROOT / "solutions" / "examples").glob("*/level*/*.py")):
        text = path.read_text(encoding="utf-8")
        if "load_inline" in text and "does_not_compile" not in path.name and cuda == ("__global__" in text):
            found.append((path.stem, text))
    made = []
    for number in range(count):
        name, text = found[number % len(found)]
        constant = f"constexpr int copy_of_benchmark = {time.time_ns() % 10**9 + number};"
        changed = re.sub(r"^(#include .*)$", rf"\1\n{constant}", text, count=1, flags=re.MULTILINE)
        made.append((f"{name}_{number}.py", changed))
    return made


def busy_s() -> float:
    """Seconds for which the processors that this process may use were busy since the machine started."""
    wanted = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for row in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *fields = row.split()
        if name in wanted:
            user, nice, system, _idle, _wait, interrupt, soft = (int(field) for field in fields[:7])
            ticks += user + nice + system + interrupt + soft
    return ticks / os.sysconf("SC_CLK_TCK")


class Builders:
    """The real builders with one way and an empty cache."""

    def __init__(self, way: str, shared: Path, folder: Path, capabilities: Sequence[Capability]) -> None:
        self.toolchain = NvccToolchain(capabilities, shared, **WAYS[way])  # type: ignore[arg-type]
        self._folder = folder
        self._builders = LocalBuilders(
            self.toolchain, BuildCache(folder / "cache"), timeout_s=600.0, sandbox="auto", log=folder / "zygote.log"
        )

    def start(self) -> None:
        """Have the zygotes ready."""
        order = self._order(("start.py", "from torch import nn\nclass ModelNew(nn.Module): pass\n"))
        self._builders.expect(order)
        self._builders.build(order)

    def build(self, solution: tuple[str, str]) -> BuildOutcome:
        return self._builders.build(self._order(solution))

    def _order(self, solution: tuple[str, str]) -> BuildRequest:
        name, text = solution
        return BuildRequest(source=text, filename=name, arguments=None, log_path=self._folder / f"{name}.log")

    def close(self) -> None:
        self._builders.close()


def measure(
    way: str, count: int, jobs: int, shared: Path, folder: Path, capabilities: Sequence[Capability]
) -> Measured:
    """Build one alone, then `count` at once."""
    chosen = solutions(count + 2, bool(capabilities))
    builders = Builders(way, shared, folder, capabilities)
    try:
        builders.start()
        before, begin = busy_s(), time.perf_counter()
        alone = builders.build(chosen[count])
        alone_s, alone_cpu_s = time.perf_counter() - begin, busy_s() - before
        if alone.failure is not None:
            raise SystemExit(f"{chosen[count][0]} does not build: {alone.failure.reason}")
        units = dict(alone.modules[0].report.headers)
        if way in ALONE_ONLY or not count:
            return Measured(way=way, alone_s=alone_s, alone_cpu_s=alone_cpu_s, alone_units=units)
        before, begin = busy_s(), time.perf_counter()
        with ThreadPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(builders.build, chosen[:count]))
        wall_s, cpu_s = time.perf_counter() - begin, busy_s() - before
    finally:
        builders.close()
    taken: dict[str, int] = {}
    for outcome in outcomes:
        for module in outcome.modules:
            for unit in module.report.headers.values():
                taken[unit] = taken.get(unit, 0) + 1
    return Measured(
        way=way,
        alone_s=alone_s,
        alone_cpu_s=alone_cpu_s,
        alone_units=units,
        count=count,
        wall_s=wall_s,
        cpu_s=cpu_s,
        typical_s=statistics.median(outcome.wall_s for outcome in outcomes),
        compile_s=statistics.median(outcome.compile_s for outcome in outcomes),
        units=taken,
        failed=sum(outcome.failure is not None for outcome in outcomes),
    )


def line(held: Measured) -> str:
    text = f"{held.way:9} alone {held.alone_s:6.1f} s ({held.alone_cpu_s:5.1f} s of processors)"
    if held.wall_s is not None and held.cpu_s is not None:
        text += f"   {held.count} at once {held.wall_s:6.1f} s ({held.cpu_s / held.count:5.1f} s of processors each), "
        text += f"each {held.typical_s:.1f} s, {held.failed} failed; units {held.units}"
    return text


def markdown(measured: Sequence[Measured], warm_up_s: float, processors: int) -> str:
    """The page to commit: one row a way."""
    rows = [
        "# Builds from an empty cache",
        "",
        f"{processors} processors; shared headers made ready once in {warm_up_s:.1f} s. The harness builds by `quick`.",
        "",
        "| way | one alone | its processor time | at once | all of them | processor time each | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for held in measured:
        cells = [f"`{held.way}`", f"{held.alone_s:.1f} s", f"{held.alone_cpu_s:.1f} s"]
        if held.wall_s is not None and held.cpu_s is not None:
            each_s = held.cpu_s / held.count
            cells += [str(held.count), f"{held.wall_s:.1f} s", f"{each_s:.1f} s", str(held.failed)]
        else:
            cells += ["", "", "", ""]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def missed(measured: Sequence[Measured]) -> list[str]:
    """What `quick` did not reach."""
    found = []
    for held in measured:
        if held.way == "quick" and held.alone_s > ALONE_TARGET_S:
            found.append(f"one alone took {held.alone_s:.1f} s, more than {ALONE_TARGET_S:g}")
        if held.way == "quick" and held.wall_s is not None and held.wall_s > MANY_TARGET_S:
            found.append(f"{held.count} at once took {held.wall_s:.1f} s, more than {MANY_TARGET_S:g}")
        if held.failed:
            found.append(f"{held.failed} of {held.count} by {held.way} do not build")
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default="quick,split,prebuilt,lean,full", help=", ".join(WAYS))
    parser.add_argument("--count", type=int, default=64, help="different solutions at once, of quick")
    parser.add_argument("--others", type=int, default=16, help="the same of every other way; 0: only one alone")
    processors = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=processors, help="builders at once")
    parser.add_argument("--arch", default="9.0", help="compute capability")
    parser.add_argument("--cache", type=Path, help="where shared headers are; a new folder if absent")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--budget-s", type=float, help="seconds after which no further way begins")
    options = parser.parse_args(arguments)
    major, minor = map(int, options.arch.split("."))
    capabilities = [(major, minor)] if find_nvcc() is not None else []
    begin = time.perf_counter()
    held: list[Measured] = []
    with tempfile.TemporaryDirectory() as scratch:
        shared = options.cache or Path(scratch) / "shared"
        NvccToolchain(capabilities, shared).warm_up()
        warm_up_s = time.perf_counter() - begin
        sys.stdout.write(f"warm-up {warm_up_s:.1f} s, {processors} processors, {options.jobs} builders\n")
        for way in options.ways.split(","):
            if options.budget_s is not None and time.perf_counter() - begin > options.budget_s:
                sys.stdout.write(f"{way:9} not begun: the budget was spent\n")
                continue
            folder = Path(tempfile.mkdtemp(prefix=f"{way}-", dir=scratch))
            count = options.count if way == "quick" else options.others
            held.append(measure(way, count, options.jobs, shared, folder, capabilities))
            sys.stdout.write(f"{line(held[-1])}\n")
            sys.stdout.flush()
            # Written again after each: what was measured is kept when the rest is cut off.
            value = {"warm_up_s": warm_up_s, "cpu_count": processors, "jobs": options.jobs}
            if options.json is not None:
                options.json.write_text(json.dumps({**value, "ways": [asdict(item) for item in held]}, indent=1) + "\n")
            if options.markdown is not None:
                options.markdown.write_text(markdown(held, warm_up_s, processors), encoding="utf-8")
    strays = missed(held)
    sys.stdout.write("".join(f"missed: {stray}\n" for stray in strays))
    return 1 if strays else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

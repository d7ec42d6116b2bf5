"""How many solutions an hour, with how many devices, and whether memory and disk stay flat.

    python tests/benchmarks/bench_throughput.py --device host --count 40 --workers 1,2
    python tests/benchmarks/bench_throughput.py --device cuda --sources solutions/tuned --count 64 --problems 16 \\
        --workers 1,2,4 --json throughput.json

Makes `--count` different solutions of those in `--sources` (each a copy with a comment of its own, spread over their
problems), evaluates one copy of each so that everything is built, and then all for each number of workers with a warm
cache, by `harness eval` in a process of its own. Prints for each: seconds, solutions an hour (of the whole command, and
between the first solution's beginning and the last one's end, which leaves the start of processes out), what the
devices did in every second, the largest memory of the conductor and of a referee early and late in the run, and the
disk's use. With `--groups` the solutions of each problem are evaluated as by `Harness.evaluate_group`, by this process,
and memory is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.api.session import Harness
from harness.report import timeline
from harness.results.writer import RunStore
from harness.runner.group import Group

ROOT = Path(__file__).parent.parent.parent

AUTHORS = ("naive", "optimised")
"""Of the examples: those whose solutions pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. `judging_s` is from the first solution's beginning on a device to the last one's end. Memory is the sum
    of resident set sizes of the conductor and of all referees, in bytes."""

    workers: int
    solutions: int
    passed: int
    wall_s: float
    per_hour: float
    judging_s: float
    judging_per_hour: float
    rss_early_bytes: int
    rss_late_bytes: int
    run_bytes: int
    cache_bytes: int


def sources_of(folder: Path, problems: int) -> list[list[Path]]:
    """The solutions of the first `problems` problems that have any, by problem."""
    found: dict[str, list[Path]] = {}
    authors = [folder / name for name in AUTHORS] if folder.name == "examples" else [folder]
    for author in authors:
        for path in sorted(author.glob("level*/*.py")):
            found.setdefault(f"{path.parent.name}/{path.name.split('_')[0]}", []).append(path)
    return [found[name] for name in sorted(found)[:problems]]


def make_solutions(folder: Path, sources: Sequence[Sequence[Path]], count: int) -> None:
    """`count` copies, as evenly as can be over the problems, each problem's sources in turn."""
    for number in range(count):
        held = sources[number % len(sources)]
        source = held[number // len(sources) % len(held)]
        target = folder / "bench" / source.parent.name / f"{source.stem}_v{number}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"# copy {number}\n{source.read_text()}")


def tree_bytes(folder: Path) -> int:
    return sum(item.stat().st_size for item in folder.rglob("*") if item.is_file() and not item.is_symlink())


def resident_bytes(pid: int) -> int:
    """Of a process and the referees that it started."""
    total = 0
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        pids += [int(child) for child in task.read_text().split()]
    for each in pids:
        try:
            for line in Path(f"/proc/{each}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def evaluate_groups(folder: Path, solutions: Path, options: list[str], workers: int, run_id: str) -> Measured:
    device, *more = options[1:]
    if more not in ([], ["--cascade"]):
        sys.exit("--groups goes with no other --eval-options than --cascade")
    run, groups = folder / "results" / run_id, dict[str, Group]()
    settings = {"device": device, "workers": workers, "cascade": bool(more), "timing": "full", "results": run}
    begin = time.perf_counter()
    with Harness(**settings) as harness:  # type: ignore[arg-type]
        futures = []
        for path in sorted(solutions.rglob("*.py")):
            problem = f"{path.parent.name}/{path.name.partition('_')[0]}"
            group = groups.setdefault(problem, Group.ranking())
            futures.append(harness.submit(problem, path, name=path.stem, group=group))
        for future in futures:
            future.result()
        wall_s = time.perf_counter() - begin
    return measured_of(run, workers, wall_s, samples=[])


def evaluate(folder: Path, solutions: Path, options: list[str], workers: int, run_id: str) -> Measured:
    command = [sys.executable, "-m", "harness", "eval", str(solutions), *options]
    command += ["--out", str(folder / "results"), "--run-id", run_id, "--workers", str(workers)]
    samples: list[int] = []
    begin = time.perf_counter()
    with (folder / f"{run_id}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.5):
            samples.append(resident_bytes(process.pid))

    thread = threading.Thread(target=sample)
    thread.start()
    code = process.wait()
    wall_s = time.perf_counter() - begin
    ended.set()
    thread.join()
    if code != 0:
        sys.exit((folder / f"{run_id}.log").read_text())
    return measured_of(folder / "results" / run_id, workers, wall_s, samples)


def measured_of(run: Path, workers: int, wall_s: float, samples: Sequence[int]) -> Measured:
    """What the records of a run and samples of memory say."""
    records = RunStore.open(run).records()
    stays = timeline.stays(records)
    judging_s = max((stay.end_s for stay in stays), default=wall_s)
    for line in timeline.lines(stays):
        if not line.startswith("  "):
            print(f"  {line}")
    quarter = max(1, len(samples) // 4)
    return Measured(
        workers=workers,
        solutions=len(records),
        passed=sum(record.status == "passed" for record in records),
        wall_s=round(wall_s, 2),
        per_hour=round(len(records) / wall_s * 3600, 1),
        judging_s=round(judging_s, 2),
        judging_per_hour=round(len(records) / judging_s * 3600, 1),
        rss_early_bytes=max(samples[quarter : 2 * quarter], default=0),
        rss_late_bytes=max(samples[-quarter:], default=0),
        run_bytes=tree_bytes(run),
        cache_bytes=tree_bytes(Path(os.environ["HARNESS_CACHE"]) / "entries"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host", choices=("host", "cuda"))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--sources", type=Path, default=ROOT / "solutions" / "examples", help="an author's folder")
    parser.add_argument("--workers", default="1")
    parser.add_argument("--eval-options", default="", help="more for harness eval, as '--audit never'")
    parser.add_argument("--groups", action="store_true", help="time each problem's solutions as a group")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--warm", action="store_true", help="all is built: no run of one copy each before")
    parser.add_argument("--keep", type=Path, help="a folder for the runs' records")
    given = parser.parse_args()
    from harness.core.config import cache_root

    os.environ["HARNESS_CACHE"] = str(cache_root())
    folder = Path(tempfile.mkdtemp(prefix="throughput-"))
    try:
        sources = sources_of(given.sources, given.problems)
        each_once = max(map(len, sources)) * len(sources)
        make_solutions(folder / "solutions", sources, given.count)
        make_solutions(folder / "once", sources, min(given.count, each_once))
        options = ["--device", given.device, *given.eval_options.split()]
        counts = [int(text) for text in given.workers.split(",")]
        before: list[Measured] = []
        if not given.warm:
            print(f"{min(given.count, each_once)} solutions; first run, whatever the cache holds:", flush=True)
            before = [evaluate(folder, folder / "once", options, max(counts), "first")]
            print(f"  {before[0].wall_s} s")
        measured: list[Measured] = []
        for workers in counts:
            print(f"warm cache, {workers} at once:", flush=True)
            how = evaluate_groups if given.groups else evaluate
            done = how(folder, folder / "solutions", options, workers, f"warm-{workers}")
            measured.append(done)
            if given.keep:
                kept = given.keep / f"warm-{workers}"
                shutil.copytree(folder / "results" / f"warm-{workers}", kept, ignore=shutil.ignore_patterns("logs"))
            growth = (done.rss_late_bytes - done.rss_early_bytes) / 2**20
            memory = f"memory {done.rss_early_bytes / 2**20:.0f} MiB early, {growth:+.0f} MiB late; "
            print(
                f"  {done.solutions} solutions, {done.passed} passed, in {done.wall_s} s: {done.per_hour} an hour, "
                f"{measured[0].wall_s / done.wall_s:.2f} times the first of these; judged in {done.judging_s} s: "
                f"{done.judging_per_hour} an hour, {measured[0].judging_s / done.judging_s:.2f} times"
            )
            print(
                f"  {'' if given.groups else memory}records and logs {done.run_bytes / 2**20:.2f} MiB; "
                f"cache {done.cache_bytes / 2**20:.1f} MiB",
                flush=True,
            )
            if given.json:
                # Written after each run: what was measured is kept when the rest is cut off.
                given.json.write_text(json.dumps([asdict(item) for item in (*before, *measured)], indent=2) + "\n")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

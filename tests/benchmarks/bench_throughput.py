"""How many solutions an hour, with how many devices, and whether memory and disk stay flat.

    python tests/benchmarks/bench_throughput.py --device host --count 40 --workers 1,2
    python tests/benchmarks/bench_throughput.py --device cuda --count 64 --workers 1,2,4 --json throughput.json

Makes `--count` different solutions of the examples that pass (each a copy with a comment of its own, spread over their
problems), evaluates them once so that everything is built, and then once more for each number of workers with a warm
cache, by `harness eval` in a process of its own. Prints for each: seconds, solutions an hour, what the devices did in
every second, the largest memory of the conductor and of a referee early and late in the run, and the disk's use.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.report import timeline
from harness.store import RunStore

ROOT = Path(__file__).parent.parent.parent

AUTHORS = ("naive", "optimised")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. Memory is the sum of resident set sizes of the conductor and of all referees, in bytes."""

    workers: int
    solutions: int
    passed: int
    wall_s: float
    per_hour: float
    rss_early_bytes: int
    rss_late_bytes: int
    run_bytes: int
    cache_bytes: int


def make_solutions(folder: Path, count: int, problems: int) -> None:
    """`count` solutions, as evenly as can be over the first `problems` problems that have an example."""
    sources: dict[str, list[Path]] = {}
    for author in AUTHORS:
        for path in sorted((ROOT / "solutions" / "examples" / author).glob("level*/*.py")):
            sources.setdefault(f"{path.parent.name}/{path.name.split('_')[0]}", []).append(path)
    chosen = [sources[name] for name in sorted(sources)[:problems]]
    for number in range(count):
        held = chosen[number % len(chosen)]
        source = held[number // len(chosen) % len(held)]
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


def evaluate(folder: Path, options: list[str], workers: int, run_id: str) -> Measured:
    command = [sys.executable, "-m", "harness", "eval", str(folder / "solutions"), *options]
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
    run = folder / "results" / run_id
    records = RunStore.open(run).records()
    for line in timeline.lines(timeline.stays(records)):
        if not line.startswith("  "):
            print(f"  {line}")
    quarter = max(1, len(samples) // 4)
    return Measured(
        workers=workers,
        solutions=len(records),
        passed=sum(record.status == "passed" for record in records),
        wall_s=round(wall_s, 2),
        per_hour=round(len(records) / wall_s * 3600, 1),
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
    parser.add_argument("--workers", default="1")
    parser.add_argument("--eval-options", default="", help="more for harness eval, as '--audit never'")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    from harness.config import cache_root

    os.environ["HARNESS_CACHE"] = str(cache_root())
    folder = Path(tempfile.mkdtemp(prefix="throughput-"))
    try:
        make_solutions(folder / "solutions", given.count, given.problems)
        options = ["--device", given.device, *given.eval_options.split()]
        counts = [int(text) for text in given.workers.split(",")]
        print(f"{given.count} solutions; first run, whatever the cache holds:")
        measured = [evaluate(folder, options, max(counts), "first")]
        print(f"  {measured[0].wall_s} s")
        for workers in counts:
            print(f"warm cache, {workers} at once:")
            done = evaluate(folder, options, workers, f"warm-{workers}")
            measured.append(done)
            growth = (done.rss_late_bytes - done.rss_early_bytes) / 2**20
            print(
                f"  {done.solutions} solutions, {done.passed} passed, in {done.wall_s} s: {done.per_hour} an hour, "
                f"{measured[1].wall_s / done.wall_s:.2f} times the first of these"
            )
            print(
                f"  memory {done.rss_early_bytes / 2**20:.0f} MiB early, {growth:+.0f} MiB late; records and logs "
                f"{done.run_bytes / 2**20:.2f} MiB; cache {done.cache_bytes / 2**20:.1f} MiB"
            )
        if given.json:
            given.json.write_text(json.dumps([asdict(item) for item in measured], indent=2) + "\n")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""Which solutions does the CPU convict? Any sound one is a false refusal.

    python -m tests.benchmarks.bench_cascade solutions/tuned solutions/quantised --out FOLDER [--problems FOLDER]
    python -m tests.benchmarks.bench_cascade --page FOLDER ...

Evaluates every solution as the CPU's part of `harness eval --cascade` does, without a GPU. Writes one line of JSON for
each into `FOLDER/decisions.jsonl`; again with the same FOLDER it continues. Prints counts by status and decision.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.core.config import resolve
from harness.core.environment import collect, machine
from harness.core.status import VERDICT_FREE, Status
from harness.referee.small_sizes import SmallSizes
from harness.results.reader import new_run_id
from harness.runner.cascade import Cascade, host_config
from harness.runner.executors.local import LocalExecutor
from harness.runner.plan import PendingSolution, PlannedSolution, plan
from harness.runner.record_builder import with_small_sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--problems", type=Path, default=Path("problems"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--count", type=int, default=0, help="At most so many, spread evenly.")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = collect()
    options = {"paths": given.paths, "problems": given.problems, "device": "cuda", "jobs": given.jobs, "cascade": True}
    config = resolve(
        machine=machine(found),
        run_id=new_run_id(),
        options={**options, "memory_limit_bytes": "4GiB", "allow_degenerate": True},
    )
    kept = given.out / "decisions.jsonl"
    held = {line["solution"]: line for line in _lines(kept)}
    jobs = plan(config, lambda rejected: print(f"not evaluated: {rejected}"))
    if given.count:
        jobs = jobs[:: max(1, len(jobs) // given.count)][: given.count]
    lock = threading.Lock()
    with tempfile.TemporaryDirectory() as logs, SmallSizes(config.cache_dir, config.cache_limit_bytes) as small_sizes:
        cascade = Cascade(LocalExecutor(host_config(config), found, Path(logs)), config, found)

        def decide(job: PlannedSolution) -> None:
            line = _decided(cascade, with_small_sizes(job, small_sizes), Path(logs))
            with lock, kept.open("a") as file:
                file.write(json.dumps(line) + "\n")
                held[line["solution"]] = line

        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(decide, [job for job in jobs if job.solution.label not in held]))
        cascade.end()
    _tell([held[job.solution.label] for job in jobs])


def _decided(cascade: Cascade, job: PlannedSolution, logs: Path) -> dict[str, Any]:
    line: dict[str, Any] = {"solution": job.solution.label, "problem": job.problem.id}
    if job.failure is not None:
        return line | {
            "status": job.failure.status.value,
            "convicted": True,
            "reason": job.failure.reason,
            "text": True,
        }
    work = PendingSolution(job=job, log_path=logs / f"{abs(hash(job.solution.label))}.log")
    record = cascade.convicts(work, {}, lambda event: print(event))
    on_host = work.job.on_host or {"status": "none"}
    return line | {**on_host, "convicted": record is not None}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _tell(lines: list[dict[str, Any]]) -> None:
    counts = Counter((line["status"], line["convicted"], str(line.get("not_decisive", ""))[:24]) for line in lines)
    for (status, convicted, why), number in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{number:5d}  {status:20s} {'convicted' if convicted else 'to the GPU':12s} {why}")
    print(f"{len(lines)} solutions, {sum(line['convicted'] for line in lines)} convicted")
    free = {status.value for status in VERDICT_FREE} | {Status.passed.value}
    wall = sorted(line["wall_s"] for line in lines if "wall_s" in line and line["status"] not in free - {"passed"})
    if wall:
        print(f"seconds on the CPU: median {wall[len(wall) // 2]:.2f}, mean {sum(wall) / len(wall):.2f}")


if __name__ == "__main__":
    main()

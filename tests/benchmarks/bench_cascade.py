"""Which solutions does the CPU convict? Any sound one is a false refusal.

    python -m tests.benchmarks.bench_cascade solutions/tuned solutions/quantised --out FOLDER [--problems FOLDER]
    python -m tests.benchmarks.bench_cascade --variants 2000 SOUND
    python -m tests.benchmarks.bench_cascade --stream 200 STREAM
    harness eval STREAM --cascade --run-id with --out RUNS
    python -m tests.benchmarks.bench_cascade --seconds RUNS/with

The first command evaluates every solution as the CPU's part of `harness eval --cascade` does, without a GPU. It
writes one line of JSON for each into `FOLDER/decisions.jsonl`, goes on with the same FOLDER, and prints counts by
status and decision. The second writes variants of sound solutions, the third a stream like that of a training run: of
ten solutions three are sound, two do not compile, and five have one small mistake (`tests.mutation`). The last says
how many seconds of a GPU each of its solutions took.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.core.config import resolve
from harness.core.environment import collect, machine
from harness.core.record import Record
from harness.referee.small_sizes import SmallSizes
from harness.results.reader import new_run_id
from harness.results.writer import RunStore
from harness.runner.cascade import Cascade, host_config
from harness.runner.executors.local import LocalExecutor
from harness.runner.plan import PendingSolution, PlannedSolution, plan
from harness.runner.record_builder import with_small_sizes
from tests.mutation.kernels import kernel_files, sample

_HEAD = re.compile(r"(__global__\b[^;{]*\{)")
SOUND_CHANGES: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace("__restrict__", ""),
    lambda text: re.sub(r"#pragma unroll[^\n]*", "", text),
    lambda text: re.sub(r"__launch_bounds__\([^()]*\)", "", text),
    lambda text: _HEAD.sub(r"\1 __syncthreads();", text),
    lambda text: _HEAD.sub(r"\1 const unsigned unused_lane = threadIdx.x & 31u; (void)unused_lane;", text),
    lambda text: _HEAD.sub(r"\1 if (blockDim.x == 0u) return;", text),
    lambda text: re.sub(r"\bfmaxf\(", "::fmaxf(", text),
)
"""Changes of CUDA sources that keep what a kernel computes."""


KINDS = ("sound", "mistake", "unbuilt", "mistake", "mistake", "sound", "mistake", "unbuilt", "mistake", "sound")
"""Kinds of the solutions of a stream, in turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--problems", type=Path, default=Path("problems"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stream", type=int, metavar="N", help="Write a stream of N solutions into the folder.")
    parser.add_argument(
        "--variants", type=int, metavar="N", help="Write N variants of sound solutions into the folder."
    )
    parser.add_argument("--seconds", action="store_true", help="Say what the solutions of these runs took of a GPU.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--count", type=int, default=0, help="At most so many, spread evenly.")
    given = parser.parse_args()
    if given.stream:
        return write_stream(given.paths[0], given.stream)
    if given.variants:
        return write_variants(given.paths[0], given.variants)
    if given.seconds:
        return tell_seconds([record for path in given.paths for record in RunStore.open(path).records()])
    if given.out is None:
        parser.error("--out is missing")
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


def write_stream(folder: Path, count: int) -> None:
    """Write solutions to the shipped problems of level 1 and 2: sound ones, and ones with a mistake."""
    files = [file for file in kernel_files() if file.startswith("solutions/")]
    draw = random.Random(count)
    mutants = [mutant.source() for mutant in sample(files, count, 1)]
    places = [Path(mutant.file) for mutant in sample(files, count, 1)]
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        path = draw.choice(list(map(Path, files))) if kind != "mistake" else places[number]
        text = path.read_text() if kind != "mistake" else mutants[number]
        if kind == "unbuilt":
            text = text.replace("__global__ void", "__global__ undeclared_type", 1)
        name = f"{path.stem.partition('_')[0]}_{kind}_{number}.py"
        target = folder / "stream" / path.parent.name / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n# {number}\n")
    print(f"{count} solutions in {folder}")


def write_variants(folder: Path, count: int) -> None:
    """Write sound solutions, each with some changes that keep what its kernels compute."""
    files = [file for file in kernel_files() if file.startswith("solutions/")]
    draw, written = random.Random(count), set[str]()
    for _ in range(20 * count):
        if len(written) == count:
            break
        path = Path(draw.choice(files))
        text = path.read_text()
        for change in draw.sample(SOUND_CHANGES, draw.randint(1, len(SOUND_CHANGES))):
            text = change(text)
        if text in written or text == path.read_text():
            continue
        written.add(text)
        target = folder / "stream" / path.parent.name / f"{path.stem.partition('_')[0]}_sound_{len(written)}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    print(f"{len(written)} variants of {len(files)} sound solutions in {folder}")


def tell_seconds(records: list[Record]) -> None:
    """Print the seconds of a GPU that solutions took, by kind and decision."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        ran = record.evidence.get("ran_on") or {}
        on_gpu = not str(ran.get("slot", "host")).startswith("host")
        spent_s = ran["end_unix_s"] - ran["begin_unix_s"] if on_gpu else 0.0
        kind = record.solution.split("_")[1]
        rows.setdefault((kind, record.status.value, "GPU" if on_gpu else "CPU"), []).append(spent_s)
    for (kind, status, where), seconds in sorted(rows.items(), key=lambda item: -len(item[1])):
        print(f"{len(seconds):5d}  {kind:8s} {status:20s} {where}  {sum(seconds) / len(seconds):.2f} s")
    total = sum(sum(seconds) for seconds in rows.values())
    print(f"{len(records)} solutions, {total:.1f} s of a GPU, {total / max(1, len(records)):.3f} s each")


def _decided(cascade: Cascade, job: PlannedSolution, logs: Path) -> dict[str, Any]:
    line: dict[str, Any] = {"solution": job.solution.label, "problem": job.problem.id}
    if job.failure is not None:
        return line | {
            "status": job.failure.status.value,
            "convicted": True,
            "reason": job.failure.reason,
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
    wall = sorted(line["wall_s"] for line in lines if "wall_s" in line)
    if wall:
        print(f"seconds on the CPU: median {wall[len(wall) // 2]:.2f}, mean {sum(wall) / len(wall):.2f}")


if __name__ == "__main__":
    main()

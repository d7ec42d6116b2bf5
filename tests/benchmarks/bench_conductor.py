"""A run of very many solutions: `python -m tests.benchmarks.bench_conductor [--solutions N] [--kills K] [--json FILE]`.

How many records a second does the conductor of a run write (`evaluate_run`, its scheduler, its threads and its store),
and does its memory stay flat? The executor is simulated: builds and verdicts take no time, one verdict of ten stays
open for a while, as if it waited for an audit. So the figures are the conductor's own. The solutions are planned
already (`jobs=`), for a million files would measure the disk.

With `--kills` the same is done again, while the conductor is killed (SIGKILL) at random and continued (`resume`), and
slots are lost at random, so that whole runs end without a device. In the end each solution has exactly one record, and
its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.problem import Problem, Solution, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome, Task
from harness.results.reader import RecordLines
from harness.runner.events import Event, Noted, SolutionFinished
from harness.runner.executors import BuildRequest, Built, ExecutorError, Slot, SlotLost
from harness.runner.plan import PlannedSolution
from harness.runner.run import evaluate_run
from tests.support.scripted import PROBLEM, Made

RUN = "run"
SLOTS, BUILDERS = 8, 2
SOLUTIONS_A_PROBLEM = 5000
NO_DEVICE_LEFT = 3

FILLER = {f"figure {number}": number / 7 for number in range(40)}
"""Evidence: with it, a record has about 2 KB."""


def verdict(source: str) -> Outcome:
    """What a solution deserves, by its text."""
    right = digest_text(source)[0] in "0123456789"
    status = Status.passed if right else Status.wrong_value
    return Outcome(status=status, reason="simulated", evidence={"echo": source, "figures": FILLER})


class Simulated:
    """An executor without processes. Each verdict loses its slot with the chance `losing`."""

    def __init__(self, losing: float, environment: dict[str, Any]) -> None:
        self.slots: Sequence[Slot] = [
            Slot(name=f"slot {number}", title=f"slot {number}", environment=environment) for number in range(SLOTS)
        ]
        self.builders = BUILDERS
        self._losing = losing

    def expect(self, order: BuildRequest) -> None:
        pass

    def build(self, order: BuildRequest) -> Built:
        return Made(order.source)

    def at_fault(self, problem: Problem) -> Outcome | None:
        return None

    def await_slot(self, slot: Slot) -> None:
        pass

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        pass

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        if random.random() < self._losing:
            raise SlotLost(f"{slot.title}: lost at random")
        return None if random.random() < 0.1 else verdict(task.source)

    def due(self, slot: Slot, task: Task) -> bool:
        return random.random() < 0.5

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        return verdict(task.source)

    def close(self) -> None:
        pass


def solution_text(number: int) -> str:
    return f"class ModelNew: 'solution {number}'\n"


def planned(count: int, a_problem: int) -> Iterator[PlannedSolution]:
    """So many solutions, each with a text of its own."""
    workloads = {name: Workload(name=name) for name in ("full", "small")}
    for number in range(count):
        if number % a_problem == 0:
            text = f"{PROBLEM}# {number // a_problem}\n"
            problem = Problem(
                id=f"level1/{number // a_problem}",
                name="x",
                path=Path("problem.py"),
                source=text,
                digest=digest_text(text),
                workloads=workloads,
            )
        solution = Solution(
            problem_id=problem.id,
            author="bench",
            label=f"bench/{problem.id}_{number}.py",
            path=Path(f"{number}.py"),
            source=solution_text(number),
        )
        yield PlannedSolution(solution=solution, problem=problem, workload=workloads["full"])


def settings(folder: Path) -> RunConfig:
    return resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id=RUN,
        options={
            "paths": [folder],
            "problems": folder,
            "out": folder / "results",
            "cache_dir": folder / "cache",
            "workload": "full",
            "resume": True,
        },
    )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def conduct(folder: Path, count: int, a_problem: int, losing: float, every_s: float) -> int:
    """Evaluate all that has no record yet, in this process; return the exit code.

    Appends a line to `samples.jsonl` every so many seconds: seconds, records of this process, resident bytes.
    """
    begin, ended, records, lost = time.perf_counter(), threading.Event(), 0, 0

    def sample(what: str) -> None:
        held = {"pid": os.getpid(), "what": what, "s": time.perf_counter() - begin, "records": records, "lost": lost}
        held["rss_bytes"] = resident_bytes()
        with (folder / "samples.jsonl").open("a") as stream:
            stream.write(json.dumps(held) + "\n")

    def sample_on() -> None:
        while not ended.wait(every_s):
            sample("running" if records else "starting")

    def on_event(event: Event) -> None:
        nonlocal records, lost
        records += isinstance(event, SolutionFinished)
        lost += isinstance(event, Noted) and event.message.startswith("out of service")

    thread = threading.Thread(target=sample_on, daemon=True)
    thread.start()
    found = collect()
    executor = Simulated(losing, dict(found.for_record(DeviceKind.HOST)))
    jobs = list(planned(count, a_problem))
    sample("planned")
    try:
        summary = evaluate_run(settings(folder), environment=found, on_event=on_event, executor=executor, jobs=jobs)
        assert summary.skipped + records == count
    except ExecutorError:
        return NO_DEVICE_LEFT
    finally:
        ended.set()
        thread.join()
        sample("ended")
    return 0


@dataclass(kw_only=True)
class Conducted:
    """What became of all solutions. `kills` includes `kills_at_start`; `superseded` counts lines."""

    solutions: int
    wall_s: float = 0.0
    starts: int = 0
    kills: int = 0
    kills_at_start: int = 0
    without_device: int = 0
    lines: int = 0
    superseded: int = 0
    records: int = 0
    missing: int = 0
    twice: int = 0
    of_others: int = 0
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether each solution has exactly one record that counts, and its own."""
        return self.records == self.solutions and not (self.missing or self.twice or self.of_others)


class Lines:
    """Counts the whole lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._read, self.count = path, 0, 0

    def look(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as stream:
                stream.seek(self._read)
                while data := stream.read(2**24):
                    self._read += len(data)
                    self.count += data.count(b"\n")
        return self.count


def conducted(
    folder: Path,
    count: int,
    *,
    a_problem: int = SOLUTIONS_A_PROBLEM,
    kills: int = 0,
    losing: float = 0.0,
    every_s: float = 10.0,
    chance: random.Random,
) -> Conducted:
    """Evaluate so many solutions in one process after another, of which so many are killed.

    Half of the kills hit at a random number of records, the others while the next process starts.
    """
    found = Conducted(solutions=count)
    begin = time.perf_counter()
    hits: list[int | None] = [*sorted(chance.randrange(count) for _ in range(kills - kills // 2))]
    for _ in range(kills // 2):
        hits.insert(chance.randrange(len(hits) + 1), None)
    command = [sys.executable, "-m", "tests.benchmarks.bench_conductor", "--child", str(folder), "--solutions"]
    command += [str(count), "--a-problem", str(a_problem), "--losing", str(losing), "--every-s", str(every_s)]
    lines = Lines(folder / "results" / RUN / "records.jsonl")
    start_s = 5.0
    while True:
        process = subprocess.Popen(command)
        found.starts += 1
        began, before = time.monotonic(), lines.look()
        due_s = chance.uniform(0.0, start_s)
        started = False
        while process.poll() is None:
            time.sleep(min(0.2, every_s / 50))
            if not started and lines.look() > before:
                started, start_s = True, time.monotonic() - began
            hit = hits[0] if hits else count
            if (hits and lines.look() >= hit) if hit is not None else time.monotonic() - began >= due_s:
                process.kill()
                break
        code = process.wait()
        if code == -signal.SIGKILL:
            found.kills_at_start += hits.pop(0) is None
            found.kills += 1
            while hits and (hit := hits[0]) is not None and hit <= lines.look():
                hits.pop(0)
        elif code == NO_DEVICE_LEFT:
            found.without_device += 1
        elif code == 0:
            break
        else:
            raise SystemExit(f"the conductor ended with exit code {code}")
    found.wall_s = time.perf_counter() - begin
    check(folder, found)
    return found


def check(folder: Path, found: Conducted) -> None:
    """Count the records of each solution; those of a `harness_error` are superseded by a later one."""
    seen = bytearray(found.solutions)
    errors, statuses = Counter[int](), Counter[str]()
    for record in RecordLines(folder / "results" / RUN):
        found.lines += 1
        number = int(Path(record.solution).stem.rpartition("_")[2])
        if record.status is Status.harness_error:
            errors[number] += 1
            continue
        text = solution_text(number)
        expected = verdict(text)
        own = record.evidence["echo"] == text and record.solution_digest == digest_text(text)
        found.of_others += not (own and record.status is expected.status)
        found.twice += seen[number]
        seen[number] = 1
        statuses[record.status.value] += 1
    found.records, found.superseded = sum(seen), errors.total()
    found.missing = found.solutions - found.records
    found.statuses = dict(statuses)


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def over_time(held: Sequence[dict[str, Any]], rows: int = 14) -> Iterator[str]:
    """Records a second and memory over one process's time."""
    yield "| seconds | records | records/s since the line above | resident MiB |"
    yield "|---|---|---|---|"
    shown = [held[index * (len(held) - 1) // (rows - 1)] for index in range(rows)] if len(held) > rows else held
    before = shown[0]
    for item in shown:
        passed_s = item["s"] - before["s"]
        rate = f"{(item['records'] - before['records']) / passed_s:,.0f}" if passed_s else "-"
        title = f"{item['s']:.0f}" + ("" if item["what"] == "running" else f" ({item['what']})")
        yield f"| {title} | {item['records']:,} | {rate} | {item['rss_bytes'] / 2**20:,.0f} |"
        before = item


def by_start(held: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What each process did until it was killed, by its last sample."""
    yield "| start | seconds | records | lost slots | most resident MiB |"
    yield "|---|---|---|---|---|"
    for number, pid in enumerate(dict.fromkeys(item["pid"] for item in held), start=1):
        own = [item for item in held if item["pid"] == pid]
        last, most = own[-1], max(item["rss_bytes"] for item in own)
        yield f"| {number} | {last['s']:.0f} | {last['records']:,} | {last['lost']} | {most / 2**20:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solutions", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=0, help="also run with so many kills, and with lost slots")
    parser.add_argument("--only-kills", action="store_true", help="leave out the run without kills")
    parser.add_argument("--losing", type=float, default=4e-5, help="chance that a verdict loses its slot, with kills")
    parser.add_argument("--a-problem", type=int, default=SOLUTIONS_A_PROBLEM)
    parser.add_argument("--every-s", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        sys.exit(conduct(given.child, given.solutions, given.a_problem, given.losing, given.every_s))
    chance, results = random.Random(given.seed), []
    print(f"{datetime.now(UTC):%d %B %Y}, {os.cpu_count()} processors; {given.solutions:,} solutions")
    for kills in ([] if given.only_kills else [0]) + ([given.kills] if given.kills else []):
        with tempfile.TemporaryDirectory(prefix="conductor-") as name:
            folder = Path(name)
            found = conducted(
                folder,
                given.solutions,
                a_problem=given.a_problem,
                kills=kills,
                losing=given.losing if kills else 0.0,
                every_s=given.every_s,
                chance=chance,
            )
            held = samples(folder)
            run = folder / "results" / RUN
            bytes_ = (run / "records.jsonl").stat().st_size
        print(f"\n{'with' if kills else 'without'} kills: {found}")
        print(f"{found.solutions / found.wall_s:,.0f} records/s over all; {bytes_ / found.lines:,.0f} bytes a record")
        print(*(by_start(held) if kills else over_time(held)), sep="\n")
        print("exactly one record for each solution:", "yes" if found.exact else "NO", flush=True)
        results.append({**asdict(found), "kills_asked": kills, "exact": found.exact, "samples": held})
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=1))
        if not found.exact:
            sys.exit(1)


if __name__ == "__main__":
    main()

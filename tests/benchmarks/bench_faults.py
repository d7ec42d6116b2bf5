"""Real evaluations under faults: `python -m tests.benchmarks.bench_faults [--solutions N] [--device host|cuda]`.

Evaluates copies of a few solutions by `harness eval`: passing ones, wrong ones, and one whose kernel writes to an
illegal address (on a GPU: an Xid in the driver's log). Meanwhile, after random numbers of records, so that a slow
machine gets on, too:

* processes of the run are killed (SIGKILL): referees, contestants, builders, zygotes, supervisors, compilers;
* the conductor is killed (SIGKILL); its processes must end, and `--resume` continues;
* the disk that holds the run's folder (a small tmpfs in a mount namespace of this process) is full for a while;
* the clock of the day jumps every two seconds by up to 30 days (`jumping_clock.c`, preloaded; monotonic clocks stay).

In the end a call without faults evaluates those that have a `harness_error`. Each solution then must have exactly one
verdict, and that of an undisturbed evaluation. Prints what was hit, and how many lines were `harness_error` on the way.
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
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.core.status import Status
from harness.results.reader import RecordLines
from harness.results.writer import MIN_FREE_BYTES

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "solutions" / "examples"
SOURCES = (
    "optimised/level1/19_wide_loads.py",
    "broken/level1/4_drops_the_last_term.py",
    "broken/level1/47_drops_a_dimension.py",
)
ILLEGAL = "19_illegal_address.py"
MOUNTED = "BENCH_FAULTS_MOUNTED"
CONDUCTOR_EVERY, DISK_EVERY = 8, 12
"""How many processes are killed for each kill of the conductor, and for each full disk."""
DISK_BYTES = 512 * 2**20

KINDS = (
    ("harness.referee.worker", "referee"),
    ("harness.untrusted.contestant", "contestant or its zygote"),
    ("harness.untrusted.builder", "builder or its zygote"),
    ("harness.referee", "other process of a referee"),
)


@dataclass(kw_only=True)
class Faults:
    """What was done and what came of it."""

    solutions: int
    device: str
    wall_s: float = 0.0
    starts: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    full_disks: int = 0
    exit_codes: Counter[int] = field(default_factory=Counter)
    left_over: int = 0
    lines: int = 0
    harness_errors: int = 0
    other_verdicts: list[str] = field(default_factory=list)
    missing: int = 0
    twice: int = 0
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def exact(self) -> bool:
        """Whether each solution has exactly one verdict, and the right one."""
        return not (self.missing or self.twice or self.other_verdicts or self.left_over)


def make(folder: Path, count: int) -> None:
    """So many copies, each with a comment of its own; the sources of one problem follow each other."""
    texts = [(Path(name).name, (EXAMPLES / name).read_text()) for name in SOURCES]
    over = (EXAMPLES / "broken/level1/19_writes_past_the_end.py").read_text()
    guard = "if (i <= count) y[i] ="
    assert guard in over
    texts.append((ILLEGAL, over.replace(guard, "if (i < count) y[i + (1ll << 42)] =")))
    for number in range(count):
        name, text = texts[number % len(texts)]
        path = folder / "bench" / "level1" / f"{name.removesuffix('.py')}_v{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# copy {number}\n{text}")


def below(pid: int) -> list[int]:
    """All processes below a process, without itself."""
    found, pending = dict.fromkeys([pid]), [pid]
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            with suppress(OSError):
                new = [int(child) for child in task.read_text().split() if int(child) not in found]
                found.update(dict.fromkeys(new))
                pending += new
    return [each for each in found if each != pid]


def kind_of(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "ended already"
    return next((kind for part, kind in KINDS if part in line), "compiler or other process")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def recorded(run: Path) -> int:
    path = run / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_one(found: Faults, conductor: int, chance: random.Random) -> None:
    """Kill a random process of the run: first its kind is drawn, as there are more of some than of others."""
    by_kind: dict[str, list[int]] = {}
    for pid in below(conductor):
        by_kind.setdefault(kind_of(pid), []).append(pid)
    by_kind.pop("ended already", None)
    if by_kind:
        kind = chance.choice(sorted(by_kind))
        with suppress(ProcessLookupError):
            os.kill(chance.choice(by_kind[kind]), 9)
            found.killed[kind] += 1


def fill(disk: Path) -> None:
    """Leave less than the store wants to have free."""
    held = os.statvfs(disk)
    room = held.f_bavail * held.f_frsize - MIN_FREE_BYTES // 2
    with suppress(OSError), (disk / "filler").open("wb") as stream:
        while room > 0:
            room -= stream.write(bytes(min(room, 2**22)))


def disturbed(
    found: Faults,
    command: Sequence[str],
    disk: Path,
    *,
    chance: random.Random,
    limit_s: float,
    stop_s: float,
    every: float,
    environment: dict[str, str],
) -> None:
    """Run the command again and again until all is evaluated, with faults until the limit."""
    begin = time.monotonic()

    def after(mean: float) -> int:
        """The number of lines at which to hit next."""
        return recorded(disk / "run") + max(1, round(mean * chance.uniform(0.5, 1.5)))

    next_kill, next_conductor, next_disk = after(every), after(CONDUCTOR_EVERY * every), after(DISK_EVERY * every)
    filled: float | None = None
    log = (disk.parent / "eval.log").open("ab")
    while True:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment)
        found.starts += 1
        while process.poll() is None:
            time.sleep(0.1)
            now = time.monotonic()
            if now - begin > stop_s:
                process.send_signal(signal.SIGINT)
                process.wait()
                return
            if now - begin > limit_s:
                continue
            lines = recorded(disk / "run")
            if lines >= next_kill:
                kill_one(found, process.pid, chance)
                next_kill = after(every)
            if lines >= next_disk and filled is None and os.path.ismount(disk):
                fill(disk)
                filled, found.full_disks = now, found.full_disks + 1
            if filled is not None and now - filled > 5.0:
                (disk / "filler").unlink()
                filled, next_disk = None, after(DISK_EVERY * every)
            if lines >= next_conductor:
                next_conductor = after(CONDUCTOR_EVERY * every)
                others = below(process.pid)
                process.kill()
                process.wait()
                found.killed["conductor"] += 1
                deadline = time.monotonic() + 20
                while any(map(alive, others)) and time.monotonic() < deadline:
                    time.sleep(0.1)
                found.left_over += sum(map(alive, others))
        found.exit_codes[process.returncode] += 1
        if filled is not None:
            (disk / "filler").unlink()
            filled, next_disk = None, after(DISK_EVERY * every)
        if process.returncode == 0:
            return
        if found.starts > 200:
            sys.exit((disk.parent / "eval.log").read_text()[-4000:])


def check(found: Faults, run: Path, expected: dict[str, str]) -> None:
    """Compare the records with those of an undisturbed evaluation."""
    verdicts: dict[str, list[str]] = {}
    for record in RecordLines(run):
        found.lines += 1
        if record.status is Status.harness_error:
            found.harness_errors += 1
            continue
        verdicts.setdefault(record.solution, []).append(record.status.value)
        found.statuses[record.status.value] += 1
        if record.status.value != expected[Path(record.solution).stem.rpartition("_v")[0]]:
            found.other_verdicts.append(f"{record.solution}: {record.status.value}: {record.reason}")
    found.missing = found.solutions - len(verdicts)
    found.twice = sum(len(held) > 1 for held in verdicts.values())


def clock_library(folder: Path) -> Path:
    made = folder / "jumping_clock.so"
    source = Path(__file__).with_name("jumping_clock.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
    made.chmod(0o755)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solutions", type=int, default=2000)
    parser.add_argument("--device", default="host", choices=("host", "cuda"))
    parser.add_argument("--limit-s", type=float, default=1500.0, help="no faults after so many seconds")
    parser.add_argument("--stop-s", type=float, default=3600.0, help="end incomplete after so many seconds")
    parser.add_argument("--every", type=float, default=8.0, help="records between kills in the mean")
    parser.add_argument("--no-clock", action="store_true", help="leave the clock alone")
    parser.add_argument("--no-disk", action="store_true", help="fill no disk, where nothing can be mounted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given, options = parser.parse_known_args()
    if MOUNTED not in os.environ and not given.no_disk:  # a mount of its own, which ends with this process
        again = [sys.executable, "-m", "tests.benchmarks.bench_faults", *sys.argv[1:]]
        os.environ[MOUNTED] = "1"
        os.execvp("unshare", ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "--mount", *again])
    found = Faults(solutions=given.solutions, device=given.device)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        disk = folder / "disk"
        disk.mkdir()
        if not given.no_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True)
        common = [sys.executable, "-m", "harness", "eval", "--device", given.device, "--workload", "small", *options]
        make(folder / "each", len(SOURCES) + 1)
        alone = [*common, str(folder / "each"), "--out", str(folder / "alone"), "--run-id", "run"]
        subprocess.run(alone, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        expected = {
            Path(record.solution).stem.rpartition("_v")[0]: record.status.value
            for record in RecordLines(folder / "alone" / "run")
        }
        assert Status.harness_error.value not in expected.values(), expected
        make(folder / "solutions", given.solutions)
        command = [*common, str(folder / "solutions"), "--out", str(disk), "--run-id", "run", "--resume"]
        environment = dict(os.environ)
        if not given.no_clock:
            environment["LD_PRELOAD"] = str(clock_library(folder))
        begin = time.perf_counter()
        try:
            disturbed(
                found,
                command,
                disk,
                chance=random.Random(given.seed),
                limit_s=given.limit_s,
                stop_s=given.stop_s,
                every=given.every,
                environment=environment,
            )
            found.wall_s = time.perf_counter() - begin
            check(found, disk / "run", expected)
        finally:
            if given.json is not None:
                given.json.with_suffix(".log").write_bytes((folder / "eval.log").read_bytes()[-200_000:])
            if not given.no_disk:
                subprocess.run(["umount", str(disk)], check=True)
    held = {**vars(found), "exact": found.exact, "expected": expected}  # `asdict` breaks counters
    print(f"{datetime.now(UTC):%d %B %Y}, {os.cpu_count()} processors, device {given.device}")
    for key, value in held.items():
        shown = dict(value) if isinstance(value, Counter) else value
        print(f"{key}: {shown}")
    if given.json is not None:
        given.json.write_text(json.dumps(held, indent=1))
    sys.exit(0 if found.exact else 1)


if __name__ == "__main__":
    main()

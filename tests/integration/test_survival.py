"""Real runs that are hit: killed processes, a full disk, a damaged cache, an interrupt, a device that breaks.

Whatever happens, `--resume` completes the run, every solution has exactly one record, and the verdicts are those of an
undisturbed run. All with real builders, referees and contestants on the host device.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.record import Record
from harness.core.status import Status
from harness.results.writer import MIN_FREE_BYTES, RunStore
from harness.runner.events import Event, Noted
from harness.runner.executors import ExecutorError
from harness.runner.executors.local import LocalExecutor
from harness.runner.run import evaluate_run
from harness.toolchain import default_root
from tests.support.paths import SUPPORT

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(64, 64) - 0.5]
def get_init_inputs():
    return []
"""

SOLUTION = """
import time
import torch
{at_import}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""

BODIES = {
    "right": "return torch.clamp(x, min=0)",
    "wrong": "return x",
    "raises": "raise RuntimeError('on purpose')",
    "slow": "time.sleep(0.01); return torch.clamp(x, min=0)",
}
STATUSES = {
    "right": Status.passed,
    "wrong": Status.wrong_value,
    "raises": Status.runtime_error,
    "slow": Status.passed,
}
NAMES = ["19_right", "19_slow", "19_wrong", "20_right", "20_raises", "20_slow"]
EXPECTED = {name: STATUSES[name[3:]] for name in NAMES}

QUICK = {"min_samples": 4, "sets_per_burst": 3, "relative_half_width": 0.9, "budget_s": 0.6}
"""How little is timed: how fast a solution is decides nothing here."""


def make_tree(folder: Path, at_import: str = "") -> None:
    level = folder / "problems" / "level1"
    level.mkdir(parents=True)
    own = folder / "solutions" / "somebody" / "level1"
    own.mkdir(parents=True)
    for number in ("19", "20"):
        (level / f"{number}_relu.py").write_text(PROBLEM + f"# {number}\n")
    for name in NAMES:
        text = SOLUTION.format(at_import=at_import, body=BODIES[name[3:]])
        (own / f"{name}.py").write_text(f"# {name}\n{text}")
    (folder / "settings.yaml").write_text(json.dumps({"seeds": 2, "timing": QUICK}))


def settings(folder: Path, **options: object) -> RunConfig:
    return resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [folder / "solutions"],
            "problems": folder / "problems",
            "out": folder / "results",
            "workload": "full",
            "cache_dir": default_root(),
            "seeds": 2,
            **QUICK,
            **options,
        },
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make_tree(tmp_path)
    return tmp_path


def command(folder: Path, *more: str) -> list[str]:
    options = f"--problems {folder}/problems --out {folder}/results --run-id run --workload full --device host"
    options += f" --config {folder}/settings.yaml"
    return [sys.executable, "-m", "harness", "eval", str(folder / "solutions"), *options.split(), *more]


def complete(folder: Path) -> None:
    """Every solution has exactly one record that counts, with the verdict of an undisturbed run."""
    records = RunStore.open(folder / "results" / "run").records()
    assert {Path(record.solution).stem: record.status for record in records} == EXPECTED
    assert len(records) == len(EXPECTED)


def wait_for(what: Callable[[], object], timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def lines(folder: Path) -> list[dict[str, object]]:
    path = folder / "results" / "run" / "records.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def descendants(pid: int) -> set[int]:
    """All processes below a process, itself included."""
    found, pending = {pid}, [pid]
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            try:
                children = [int(child) for child in task.read_text().split()]
            except OSError:
                continue
            pending += [child for child in children if child not in found]
            found.update(children)
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_runner_and_an_interrupted_one_are_resumed(tree: Path) -> None:
    first = subprocess.Popen(command(tree), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: lines(tree))
    below = descendants(first.pid)
    assert any("harness.referee.worker" in command_line(pid) for pid in below)
    first.kill()
    first.wait()
    wait_for(lambda: not any(alive(pid) for pid in below), 20.0)
    assert 0 < len(lines(tree)) < len(NAMES)

    again = command(tree, "--resume")
    second = subprocess.Popen(again, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    held = len(lines(tree))
    wait_for(lambda: len(lines(tree)) > held)
    below = descendants(second.pid)
    second.send_signal(signal.SIGINT)
    _, said = second.communicate(timeout=300)
    assert second.returncode == 130, said
    assert "--resume --run-id run continues" in said
    wait_for(lambda: not any(alive(pid) for pid in below), 20.0)

    done = subprocess.run(again, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(lines(tree)) == len(NAMES)
    complete(tree)


def newest_fork_of(part: str, below: Iterable[int]) -> int | None:
    """The newest process forked by a zygote whose command line holds `part`: a builder, or a contestant.

    Its supervisor is its parent and has the same command line; the youngest of three generations is meant.
    """
    for pid in sorted(below):
        if "harness.sandbox.zygote" in command_line(pid) and part in command_line(pid):
            under = descendants(pid) - {pid}
            if len(under) > 2:
                return max(under)
    return None


def process_with(part: str, below: Iterable[int]) -> int | None:
    return next((pid for pid in sorted(below) if part in command_line(pid)), None)


def killed(pid: int | None) -> bool:
    """Whether it could be killed: on a busy machine what was found may have ended meanwhile."""
    try:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid is not None
    except ProcessLookupError:
        return False


HITS = [
    ("a builder", newest_fork_of, "harness.untrusted.builder.import_solution"),
    ("a contestant", newest_fork_of, "harness.untrusted.contestant.main"),
    ("the builders' zygote", process_with, "harness.untrusted.builder.import_solution"),
    ("the contestants' zygote", process_with, "harness.untrusted.contestant.main"),
    ("the referee", process_with, "harness.referee.worker"),
]


def test_whoever_is_killed_is_replaced_and_the_verdicts_stay(tmp_path: Path) -> None:
    # Slow to import, so that each is there long enough to be hit; with a text of its own, so that no cache knows it.
    make_tree(tmp_path, at_import=f"time.sleep(0.4)  # {uuid.uuid4()}")
    config = settings(tmp_path, jobs=1)
    hit: list[str] = []
    ended = threading.Event()
    others = descendants(os.getpid())  # of this process's other tests

    def kill_one_after_another() -> None:
        for name, find, part in HITS:
            while not killed(find(part, descendants(os.getpid()) - others)):
                if ended.wait(0.02):
                    return
            hit.append(name)
            # Time for it to be replaced: who is killed over and over is rightly given up.
            if ended.wait(1.0):
                return

    thread = threading.Thread(target=kill_one_after_another)
    thread.start()
    try:
        evaluate_run(config, environment=collect())
    finally:
        ended.set()
        thread.join()
    assert "a builder" in hit
    assert "a contestant" in hit
    assert "the builders' zygote" in hit
    if any(record.status is Status.harness_error for record in RunStore.open(config.run_dir).records()):
        evaluate_run(replace(config, resume=True), environment=collect())
    complete(tmp_path)


FULL_DISK = """
mount -t tmpfs -o size=6m tmpfs {disk} || exit 77
head -c {filler} /dev/zero > {disk}/filler
{run} > {folder}/first.log 2>&1
echo $? > {folder}/first.code
rm {disk}/filler
for entry in {cache}/entries/??/*/entry.json; do head -c 40 /dev/zero > $entry; done
{run} --resume > {folder}/second.log 2>&1
echo $? > {folder}/second.code
cp -r {disk}/results {folder}/results
"""


@pytest.fixture
def own_cache() -> Iterator[Path]:
    """A cache of this test's own, with the headers that were prepared once: gigabytes, so linked and not copied, which
    works on the same disk only. The sandbox shows folders as they are, so links to folders would not do."""
    root = Path(tempfile.mkdtemp(prefix="harness-test-", dir=default_root().parent))
    for item in default_root().iterdir():
        if item.is_dir() and item.name not in ("entries", "locks", "drafts"):
            shutil.copytree(item, root / item.name, copy_function=os.link)
        elif item.is_file():
            shutil.copy2(item, root / item.name)
    yield root
    shutil.rmtree(root)


def test_a_full_disk_says_what_to_do_and_a_damaged_cache_costs_no_verdict(tree: Path, own_cache: Path) -> None:
    disk = tree / "disk"
    disk.mkdir()
    run = " ".join(command(tree)).replace(f"--out {tree}/results", f"--out {disk}/results --cache {own_cache}")
    # What the store wants to have free stays free, and some kilobytes for the first of the records.
    filler = 6 * 2**20 - MIN_FREE_BYTES - 24 * 2**10
    script = FULL_DISK.format(disk=disk, folder=tree, run=run, cache=own_cache, filler=filler)
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script], timeout=300)
    if done.returncode in (1, 77) and not (tree / "first.code").exists():
        pytest.skip("no user namespace with a mount of its own can be had here, so no small disk to fill")
    said = (tree / "first.log").read_text()
    assert (tree / "first.code").read_text().strip() == "3", said
    assert "No space left on device" in said
    assert "--resume" in said
    assert "Traceback" not in said
    assert list((own_cache / "entries").glob("??/*/entry.json"))
    assert (tree / "second.code").read_text().strip() == "0", (tree / "second.log").read_text()
    complete(tree)


FAILING = (str(SUPPORT / "failing_worker.py"),)


def test_a_device_that_fails_is_quarantined_and_its_solutions_go_elsewhere(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = collect()
    logs = tree / "logs"
    logs.mkdir()
    config = settings(tree)
    monkeypatch.setenv("BREAKS_ALL", "1")
    with (
        LocalExecutor(config, found, logs, worker=FAILING) as executor,
        pytest.raises(ExecutorError, match=r"no device is left: .* uncorrectable ECC .*--resume"),
    ):
        evaluate_run(config, environment=found, executor=executor)
    assert all(_is_verdict(record) for record in RunStore.open(config.run_dir).records())

    monkeypatch.delenv("BREAKS_ALL")
    monkeypatch.setenv("BREAKS", str(tree))
    config = replace(config, resume=True, workers=2)
    events: list[Event] = []
    with LocalExecutor(config, found, logs, worker=FAILING) as executor:
        evaluate_run(config, environment=found, on_event=events.append, executor=executor)
    broken = (tree / "claim").read_text()
    said = [event.message for event in events if isinstance(event, Noted)]
    assert len(said) == 1
    assert broken in said[0]
    assert "uncorrectable ECC" in said[0]
    assert not any(record["status"] == "harness_error" for record in lines(tree))
    complete(tree)


OWING = (str(SUPPORT / "owing_worker.py"),)


def test_verdicts_owed_by_a_referee_that_dies_are_reached_anew(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = collect()
    logs = tree / "logs"
    logs.mkdir()
    monkeypatch.setenv("OWING_MARK", str(tree / "died"))
    with LocalExecutor(settings(tree), found, logs, worker=OWING) as executor:
        summary = evaluate_run(settings(tree), environment=found, executor=executor)
    assert (tree / "died").exists()
    assert len(summary.records) == len(NAMES)
    assert all(_is_verdict(record) for record in summary.records)
    complete(tree)


CROWDED = (str(SUPPORT / "crowded_worker.py"),)


def test_a_referee_that_dies_of_what_goes_on_beside_is_given_nothing_beside(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = collect()
    logs = tree / "logs"
    logs.mkdir()
    monkeypatch.setenv("CROWDED_MARK", str(tree / "died"))
    with LocalExecutor(settings(tree), found, logs, worker=CROWDED) as executor:
        summary = evaluate_run(settings(tree), environment=found, executor=executor)
    assert (tree / "died").exists()
    assert all(_is_verdict(record) for record in summary.records)
    complete(tree)


def _is_verdict(record: Record) -> bool:
    return record.status is EXPECTED[Path(record.solution).stem]

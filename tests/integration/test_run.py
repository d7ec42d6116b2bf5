"""From files to records with real builders, referees and contestants: neighbours survive, resume skips, a referee that
dies is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.catalog import CatalogError
from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.status import Status
from harness.core.task import Outcome, Task
from harness.results.reader import is_run
from harness.results.writer import RunStore
from harness.runner.events import Noted, SolutionFinished
from harness.runner.executors import BuildRequest, Built, ExecutorError, Slot
from harness.runner.executors.local import LocalExecutor
from harness.runner.record_builder import where_unjudged
from harness.runner.run import evaluate_run
from harness.toolchain import BuildOutcome, default_root

PROBLEM = """
import torch
SIZE = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(SIZE, SIZE) - 0.5]
def get_init_inputs():
    return []
"""

SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""

BODIES = {
    "19_right": "return torch.clamp(x, min=0)",
    "19_wrong": "return x",
    "19_dies": "import os; os._exit(1)",
    "19_raises": "raise RuntimeError('on purpose')",
}
EXPECTED = {
    "19_right": Status.passed,
    "19_wrong": Status.wrong_value,
    "19_dies": Status.crashed,
    "19_raises": Status.runtime_error,
}


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "19_relu.py").write_text(PROBLEM)
    folder = tmp_path / "solutions" / "somebody" / "level1"
    folder.mkdir(parents=True)
    for name, body in BODIES.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(SOLUTION).format(body=body))
    return resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [tmp_path / "solutions"],
            "problems": tmp_path / "problems",
            "out": tmp_path / "results",
            "workload": "full",
            "cache_dir": default_root(),
            "min_samples": 4,
            "relative_half_width": 0.9,
            "budget_s": 5.0,
        },
    )


def test_each_has_its_record_and_resume_evaluates_only_what_is_missing(config: RunConfig) -> None:
    events: list[object] = []
    summary = evaluate_run(config, environment=collect(), on_event=events.append)
    found = {Path(record.solution).stem: record for record in summary.records}
    assert {name: record.status for name, record in found.items()} == EXPECTED
    assert found["19_right"].speedup is not None
    assert all(found[name].speedup is None for name in EXPECTED if name != "19_right")
    assert len([event for event in events if isinstance(event, SolutionFinished)]) == len(EXPECTED)

    folder = config.paths[0] / "somebody" / "level1"
    (folder / "19_wrong.py").write_text((folder / "19_right.py").read_text())
    again = RunConfig(**{name: getattr(config, name) for name in config.__slots__} | {"resume": True})
    resumed = evaluate_run(again, environment=collect())
    assert [Path(record.solution).stem for record in resumed.records] == ["19_wrong"]
    assert resumed.skipped == 3
    one = evaluate_run(replace(again, paths=(folder / "19_wrong.py",)), environment=collect())
    assert (list(one.records), one.skipped) == ([], 1)
    with RunStore.open(config.run_dir) as store:
        assert {record.status for record in store.records()} == {
            Status.passed,
            Status.crashed,
            Status.runtime_error,
        }
        assert len(store.records()) == store.head["solutions"] == len(EXPECTED)


def test_what_authors_say_is_in_the_run_and_a_broken_file_is_told_once(config: RunConfig, tmp_path: Path) -> None:
    said = {"ann": "model: m-1\n", "bob": "model: [\n", "cid": None}
    for name, text in said.items():
        folder = tmp_path / "more" / name
        (folder / "level1").mkdir(parents=True)
        (folder / "level1" / "19_torn.py").write_text("class ModelNew(\n")
        (folder / "level1" / "19_torn_too.py").write_text("class ModelNew(\n")
        if text is not None:
            (folder / "author.yaml").write_text(text)
    events: list[object] = []
    asked = replace(config, paths=(tmp_path / "more",))
    summary = evaluate_run(asked, environment=collect(), on_event=events.append)
    assert {record.status for record in summary.records} == {Status.syntax_error}
    assert {record.author for record in summary.records} == set(said)
    assert RunStore.open(config.run_dir).head["authors"] == {
        "ann": {"display_name": None, "model": "m-1", "notes": None}
    }
    (note,) = [event for event in events if isinstance(event, Noted)]
    assert str(tmp_path / "more" / "bob" / "author.yaml") in note.message

    (tmp_path / "more" / "bob" / "author.yaml").write_text("display_name: Bob\n")
    (tmp_path / "more" / "ann" / "author.yaml").write_text("- \n")
    resumed = evaluate_run(replace(asked, resume=True), environment=collect())
    assert resumed.skipped == len(summary.records)
    held = RunStore.open(config.run_dir).head["authors"]
    assert (held["ann"]["model"], held["bob"]["display_name"]) == ("m-1", "Bob")


class _Noting(LocalExecutor):
    """Notes which tasks came ahead of each; its slot can begin only once all that it is given to build is built."""

    def __init__(self, config: RunConfig, logs: Path) -> None:
        super().__init__(config, collect(), logs)
        self.ahead: list[list[str]] = []
        self._left = threading.Semaphore(0)

    def build(self, order: BuildRequest) -> BuildOutcome:
        try:
            return super().build(order)
        finally:
            self._left.release()

    def await_slot(self, slot: Slot) -> None:
        for _ in BODIES:
            assert self._left.acquire(timeout=60)
        time.sleep(0.2)  # what was built is handed over right afterwards
        super().await_slot(slot)

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        self.ahead.append([each.filename for each, _ in ahead])
        return super().judge(slot, task, built, ahead)


def test_a_slot_that_is_slow_to_start_knows_what_comes_after_its_first_task(config: RunConfig) -> None:
    logs = config.run_dir / "logs"
    logs.mkdir(parents=True)
    executor = _Noting(config, logs)
    with executor:
        evaluate_run(replace(config, out=config.out / "again"), environment=collect(), executor=executor)
    assert [len(names) for names in executor.ahead] == [2, 2, 1, 0]


def test_a_referee_that_is_killed_is_replaced_and_nothing_is_lost(config: RunConfig) -> None:
    killed: list[int] = []

    def kill_a_worker() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            found = subprocess.run(
                ["pgrep", "-P", str(os.getpid()), "-f", "harness.referee.worker"], capture_output=True, text=True
            )
            for pid in found.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
                killed.append(int(pid))
            time.sleep(0.05)

    thread = threading.Thread(target=kill_a_worker)
    thread.start()
    summary = evaluate_run(config, environment=collect())
    thread.join()
    assert killed
    assert {Path(record.solution).stem: record.status for record in summary.records} == EXPECTED


def test_an_unknown_workload_is_said_before_anything_runs(config: RunConfig) -> None:
    wrong = RunConfig(**{name: getattr(config, name) for name in config.__slots__} | {"workload": "huge"})
    with pytest.raises(CatalogError, match="declares no workload 'huge'"):
        evaluate_run(wrong, environment=collect())
    assert not wrong.run_dir.exists()


def test_a_run_that_can_not_begin_leaves_none(config: RunConfig) -> None:
    # Nobody answers at port 1, or there is no ray.
    remote = replace(config, executor="ray", ray_address="127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ExecutorError):
            evaluate_run(remote, environment=collect())
        assert not config.run_dir.exists()
    RunStore.create(config.run_dir, config={}, environment={}).close()
    with pytest.raises(ExecutorError):
        evaluate_run(replace(remote, resume=True), environment=collect())
    assert is_run(config.run_dir)


def test_what_no_device_judged_counts_among_the_results_of_the_one_it_was_for() -> None:
    found = collect()
    here = found.for_record(DeviceKind.CUDA)
    waiting, ready = Slot(name="a", title="a"), Slot(name="b", title="b", environment={"gpu": "H200", "driver": "580"})
    assert where_unjudged([waiting, ready], found, DeviceKind.CUDA) == ready.environment
    assert where_unjudged([waiting], found, DeviceKind.CUDA) == here

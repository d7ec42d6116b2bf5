"""A run's order of things: which solutions it takes, and when it ends. Executors are scripted; the rest is real."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.catalog import CatalogError
from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.preparing import Preparing, TellPreparing
from harness.core.status import Status
from harness.core.task import Outcome
from harness.results.writer import RunStore
from harness.runner.events import Event, Noted, SolutionFinished
from harness.runner.executors import Slot
from harness.runner.plan import PendingSolution, plan
from harness.runner.run import evaluate_run
from harness.runner.runner import Runner
from tests.support.scripted import PROBLEM, RIGHT, Scripted

WRONG = Outcome(status=Status.wrong_value, reason="3 of 9 values wrong")


def judged(slot: Slot, source: str) -> Outcome:
    return WRONG if "wrong" in source else RIGHT


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of all tests, so that the problems' shapes are found out once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """Settings of a run over six solutions, of which two fail."""
    for number in (1, 2):
        problem = tmp_path / "problems" / "level1" / f"{number}_x.py"
        problem.parent.mkdir(parents=True, exist_ok=True)
        problem.write_text(PROBLEM + f"# {number}\n")
        for name in ("Naive", "fast", "wrong"):
            solution = tmp_path / "solutions" / "ann" / "level1" / f"{number}_{name}.py"
            solution.parent.mkdir(parents=True, exist_ok=True)
            solution.write_text(f"class ModelNew: '{number} {name}'\n")
    return settings(tmp_path)


def settings(place: Path, **more: Any) -> RunConfig:
    given: Mapping[str, Any] = {
        "paths": [place / "solutions"],
        "problems": place / "problems",
        "out": place / "results",
        "workload": "full",
    }
    machine = Machine(device=DeviceKind.HOST, cpu_count=1, memory_bytes=2**33)
    return resolve(machine=machine, run_id=more.pop("run_id", "first"), options={**given, **more})


def evaluated(config: RunConfig) -> tuple[list[str], list[str]]:
    """The names of the recorded solutions, and the notes.

    A solution behind a wrong one is judged a moment after the wrong one's record was told.
    """
    events: list[Event] = []
    wrong, told = threading.Event(), threading.Event()

    def judged_in_turn(slot: Slot, source: str) -> Outcome:
        if wrong.is_set():
            assert told.wait(60)
            time.sleep(0.2)
        if "wrong" in source:
            wrong.set()
        return judged(slot, source)

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, SolutionFinished) and event.record.status is WRONG.status:
            told.set()

    executor = Scripted(builders=1)
    executor.judging = judged_in_turn
    evaluate_run(config, environment=collect(), on_event=hear, executor=executor)
    names = sorted(Path(item.solution).stem for item in RunStore.open(config.run_dir).records())
    return names, [event.message for event in events if isinstance(event, Noted)]


def names(config: RunConfig) -> list[str]:
    return [job.solution.path.stem for job in plan(config)]


def test_a_pattern_is_found_in_names_and_problems_in_any_case(config: RunConfig) -> None:
    assert names(replace(config, pattern="NAIVE")) == ["1_Naive", "2_Naive"]
    assert names(replace(config, pattern="Level1/2")) == ["2_Naive", "2_fast", "2_wrong"]
    with pytest.raises(CatalogError, match="-k 'slow' is in no name or problem of these 6 solutions"):
        plan(replace(config, pattern="slow"))


def test_a_status_selects_by_the_last_run(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=f"there is no earlier run in {tmp_path}/results"):
        plan(replace(config, status="failed"))
    evaluated(config)
    again = settings(tmp_path, run_id="second")
    assert names(replace(again, status="failed")) == ["1_wrong", "2_wrong"]
    assert names(replace(again, status="passed")) == ["1_Naive", "1_fast", "2_Naive", "2_fast"]
    assert names(replace(again, status="wrong_value", pattern="2_")) == ["2_wrong"]
    with pytest.raises(CatalogError, match="none of these 6 solutions had the status timeout in the last run"):
        plan(replace(again, status="timeout"))


def test_a_resumed_run_is_not_its_own_last_run(config: RunConfig, tmp_path: Path) -> None:
    evaluated(config)
    second = settings(tmp_path, run_id="second", status="failed", pattern="1_")
    assert evaluated(second)[0] == ["1_wrong"]
    wider = replace(second, pattern=None, resume=True)
    assert evaluated(wider)[0] == ["1_wrong", "2_wrong"], "of the first run, not of the resumed one"
    assert RunStore.open(wider.run_dir).head["solutions"] == 2


def test_a_run_that_stops_at_a_failure_says_what_is_left_and_how_to_go_on(config: RunConfig) -> None:
    stopping = replace(config, stop_at_failure=True)
    done, notes = evaluated(stopping)
    assert "1_wrong" in done
    assert "2_wrong" not in done, "one slot evaluates them in order, and the schedule is at most two ahead"
    (note,) = notes
    assert note.startswith(f"stopped at the first failure (-x): {6 - len(done)} solutions not evaluated")
    assert "--resume --run-id first" in note
    rest, notes = evaluated(replace(config, resume=True))
    assert len(rest) == 6
    assert not notes


def test_a_run_without_failure_does_not_stop(config: RunConfig) -> None:
    done, notes = evaluated(replace(config, stop_at_failure=True, pattern="naive"))
    assert len(done) == 2
    assert not notes


def test_a_preparation_in_another_thread_is_told_in_the_calling_one(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell: list[TellPreparing] = []

    @contextmanager
    def opened(config: RunConfig, here: object, logs: Path, ahead: object, told: TellPreparing) -> Iterator[Scripted]:
        tell.append(told)
        told(Preparing(what="the device", done=0, total=1))
        yield executor

    def build(source: str) -> None:
        tell[0](Preparing(what="headers", done=1, total=1))

    executor = Scripted(builders=1)
    executor.building = build
    monkeypatch.setattr("harness.runner.run.open_executor", opened)
    events: list[tuple[int, Event]] = []
    evaluate_run(
        replace(config, pattern="1_fast"),
        environment=collect(),
        on_event=lambda event: events.append((threading.get_ident(), event)),
    )
    prepared = [event.what for _, event in events if isinstance(event, Preparing)]
    assert prepared == ["the device", "headers"]
    assert {thread for thread, _ in events} == {threading.get_ident()}
    assert isinstance(events[0][1], Preparing), "before the run starts"


def test_a_long_run_is_submitted_in_portions_and_ends_like_any_other(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runner.run.PORTION", 4)
    (job,) = plan(replace(config, pattern="1_fast"))
    jobs = [
        replace(job, solution=replace(job.solution, label=f"ann/{number}.py", source=f"class ModelNew: {number}\n"))
        for number in range(50)
    ]
    held: set[str] = set()
    most, keys = 0, set()
    real = Runner.submit

    def submit(self: Runner[Any], works: Sequence[PendingSolution], *rest: Any, **more: Any) -> list[Future[Any]]:
        nonlocal most
        held.update(work.job.solution.label for work in works)
        most = max(most, len(held))
        futures = real(self, works, *rest, **more)
        keys.update(work.job.shape_key for work in works)
        return futures

    def hear(event: Event) -> None:
        if isinstance(event, SolutionFinished):
            held.remove(event.record.solution)

    monkeypatch.setattr(Runner, "submit", submit)
    config = replace(config, shapes=2)
    summary = evaluate_run(config, environment=collect(), on_event=hear, executor=Scripted(2), jobs=jobs)
    assert most == 4
    assert not held
    assert len(keys) == 1, "the secret shapes are those of the run, not of a portion"
    assert sorted(item.solution for item in summary.records) == sorted(item.solution.label for item in jobs)
    assert len(summary.records) == 50

    executor = Scripted()
    executor.judging = lambda slot, source: WRONG
    notes: list[str] = []
    again = replace(config, run_id="second", stop_at_failure=True)
    evaluate_run(
        again,
        environment=collect(),
        on_event=lambda event: notes.append(event.message) if isinstance(event, Noted) else None,
        executor=executor,
        jobs=jobs,
    )
    done = len(RunStore.open(again.run_dir).records())
    assert 0 < done <= 4
    assert notes == [next(note for note in notes if f"{50 - done} solutions not evaluated" in note)]

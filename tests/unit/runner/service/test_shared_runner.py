"""Several runs that share one runner, with an executor whose verdicts and losses come when a test says so."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import Environment, collect
from harness.core.problem import Problem, Solution, Workload, digest_text
from harness.runner.events import Event, Noted, SolutionFinished
from harness.runner.executors import ExecutorError, Slot, SlotLost
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.runner import Runner
from harness.runner.service import ServiceError
from harness.runner.service.kept import WarmPool
from tests.support.scripted import PROBLEM, SOON_S, Scripted

Shared = Runner[SolutionFinished]


class Run:
    """A run: its works, their futures, and what it is told."""

    def __init__(self, folder: Path, name: str, *sources: str) -> None:
        self.name = name
        self.works = [self._work(folder, source) for source in sources]
        self.notes: list[str] = []
        self.futures: list[Future[SolutionFinished]] = []

    def _work(self, folder: Path, source: str) -> PendingSolution:
        problem = Problem(id="local/a", name="a", path=Path("a.py"), source=PROBLEM, digest=digest_text(PROBLEM))
        label = f"{self.name}/{source}.py"
        solution = Solution(problem_id=problem.id, author=self.name, label=label, path=Path(label), source=source)
        job = PlannedSolution(solution=solution, problem=problem, workload=Workload(name="full"))
        return PendingSolution(job=job, log_path=folder / f"{self.name}-{source}.log")

    def begin(self, shared: Shared) -> Run:
        self.futures = shared.submit(self.works, self._notify)
        return self

    def _notify(self, event: Event) -> None:
        if isinstance(event, Noted):
            self.notes.append(event.message)

    def ends(self) -> list[str]:
        """What became of each of its solutions: its source, or why it has no record."""
        return [self._end(work, future) for work, future in zip(self.works, self.futures, strict=True)]

    def _end(self, work: PendingSolution, future: Future[SolutionFinished]) -> str:
        try:
            record = future.result(SOON_S).record
        except CancelledError:
            return "cancelled"
        except ExecutorError as error:
            return str(error)
        assert (record.author, record.solution) == (self.name, work.job.solution.label)
        return work.job.solution.source


@pytest.fixture(scope="module")
def here() -> Environment:
    return collect()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@contextmanager
def sharing(executor: Scripted, here: Environment, cache: Path) -> Iterator[Shared]:
    machine = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**30)
    config = resolve(machine=machine, run_id="run", options={"paths": [Path()], "cache_dir": cache})
    shared = Runner(executor, config, here, lambda work, event: event)
    try:
        yield shared
    finally:
        shared.end()


def test_each_run_gets_its_own(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor = Scripted(slots=2)
    with sharing(executor, here, cache) as shared:
        runs = [Run(tmp_path, name, *(f"{name}{n}" for n in range(5))).begin(shared) for name in ("ann", "bob", "cy")]
        for run in runs:
            assert run.ends() == [f"{run.name}{n}" for n in range(5)]
        assert Run(tmp_path, "later", "x").begin(shared).ends() == ["x"]
        assert Run(tmp_path, "empty").begin(shared).ends() == []
    assert all(made.released == 1 for made in executor.made)


def test_a_run_that_stops_gets_what_is_being_judged_and_the_others_go_on(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    executor, judging, go_on = Scripted(), threading.Event(), threading.Event()

    def judge(slot: Slot, source: str) -> None:
        if source == "a0":
            judging.set()
            assert go_on.wait(SOON_S)

    executor.judging = judge
    with sharing(executor, here, cache) as shared:
        stopped = Run(tmp_path, "ann", *(f"a{n}" for n in range(6))).begin(shared)
        assert judging.wait(SOON_S)
        other = Run(tmp_path, "bob", "b0", "b1").begin(shared)
        assert shared.cancel(stopped.futures) == 1
        assert shared.cancel(stopped.futures) == 1
        assert all(future.done() for future in stopped.futures[1:])
        go_on.set()
        assert stopped.ends() == ["a0", *["cancelled"] * 5]
        assert other.ends() == ["b0", "b1"]
    assert {source for what, source in executor.told if what == "judged"} == {"a0", "b0", "b1"}
    assert all(made.released == 1 for made in executor.made)


def test_a_run_that_stops_leaves_no_build(tmp_path: Path, here: Environment, cache: Path) -> None:
    """What is built, and what is being built, is released before any slot could take it."""
    executor, building, go_on = Scripted(builders=1), threading.Event(), threading.Event()
    executor.opened.clear()

    def build(source: str) -> None:
        if source == "a1":
            building.set()
            assert go_on.wait(SOON_S)

    executor.building = build
    with sharing(executor, here, cache) as shared:
        stopped = Run(tmp_path, "ann", "a0", "a1", "a2").begin(shared)
        assert building.wait(SOON_S)
        assert shared.cancel(stopped.futures) == 0
        assert stopped.ends() == ["cancelled"] * 3
        assert [made.released for made in executor.made] == [1]
        other = Run(tmp_path, "bob", "b0").begin(shared)
        go_on.set()
        executor.opened.set()
        assert other.ends() == ["b0"]
    assert [(made.source, made.released) for made in executor.made] == [("a0", 1), ("a1", 1), ("b0", 1)]


def test_a_lost_slot_is_told_to_all_and_the_last_one_ends_them(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, both = Scripted(), threading.Barrier(2)

    def judge(slot: Slot, source: str) -> None:
        both.wait(SOON_S)
        raise SlotLost("gone")

    executor.judging = judge
    with sharing(executor, here, cache) as shared:
        runs = [Run(tmp_path, name, f"{name}0").begin(shared) for name in ("ann", "bob")]
        both.wait(SOON_S)
        for run in runs:
            assert run.ends() == ["no device is left: gone"]
            assert run.notes == ["out of service: gone"]
        assert not shared.usable
        assert Run(tmp_path, "late", "x").begin(shared).ends() == ["no device is left: gone"]


def test_a_slot_that_is_lost_with_the_last_solution_is_told_before_its_record(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    executor = Scripted(slots=2)

    def judge(slot: Slot, source: str) -> None:
        raise SlotLost(f"{slot.name} gone")

    executor.judging = judge
    with sharing(executor, here, cache) as shared:
        run = Run(tmp_path, "ann", "a0").begin(shared)
        assert run.ends() == ["a0"], "a harness_error"
        assert sorted(run.notes) == ["out of service: slot 0 gone", "out of service: slot 1 gone"]


class Rooms(WarmPool):
    """What keeps executors of the tests' own; those that were opened are in `opened`."""

    def __init__(self, folder: Path, here: Environment, cache: Path) -> None:
        super().__init__(folder, idle_s=1e9)
        self._here, self._cache = here, cache
        self.opened: list[Scripted] = []

    def _opened(self, settings: Mapping[str, Any]) -> Shared:
        machine = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**30)
        config = resolve(machine=machine, run_id="run", options={"paths": [Path()], "cache_dir": self._cache})
        self.opened.append(Scripted(slots=2))
        return Runner(self.opened[-1], config, self._here, lambda work, event: event)


def test_what_lost_a_slot_is_used_to_the_end_and_then_opened_anew(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    rooms = Rooms(tmp_path, here, cache)
    try:
        shared = rooms.enter({"seeds": 1})
        assert shared is not None
        (executor,) = rooms.opened
        lost = threading.Event()

        def judge(slot: Slot, source: str) -> None:
            if not lost.is_set():
                lost.set()
                raise SlotLost("gone")

        executor.judging = judge
        run = Run(tmp_path, "ann", "a0", "a1").begin(shared)
        assert run.ends() == ["a0", "a1"]
        assert run.notes == ["out of service: gone"]
        assert rooms.enter({"seeds": 1}) is shared
        rooms.leave()
        rooms.leave()
        assert rooms.enter({"seeds": 1}) is not shared
        assert len(rooms.opened) == 2
    finally:
        rooms.close()


def test_other_settings_wait_and_nobody_overtakes_them(tmp_path: Path, here: Environment, cache: Path) -> None:
    rooms = Rooms(tmp_path, here, cache)
    entered: queue.SimpleQueue[str] = queue.SimpleQueue()
    waiting = {name: threading.Event() for name in ("other", "behind", "gave up")}
    gave_up = threading.Event()

    def enter(name: str, seeds: int) -> threading.Thread:
        def live() -> None:
            given = gave_up.is_set if name == "gave up" else lambda: False
            if rooms.enter({"seeds": seeds}, gave_up=given, waits=waiting[name].set) is not None:
                entered.put(name)
                rooms.leave()

        thread = threading.Thread(target=live)
        thread.start()
        assert waiting[name].wait(SOON_S)
        return thread

    try:
        assert rooms.enter({"seeds": 1}) is not None
        threads = [enter("gave up", 3), enter("other", 2), enter("behind", 1)]
        gave_up.set()
        threads[0].join(SOON_S)
        assert entered.empty()
        rooms.leave()
        assert [entered.get(timeout=SOON_S) for _ in range(2)] == ["other", "behind"]
        for thread in threads:
            thread.join(SOON_S)
        assert len(rooms.opened) == 3
    finally:
        rooms.close()
    with pytest.raises(ServiceError, match="shutting down"):
        rooms.enter({"seeds": 1})


def test_what_can_not_be_had_is_told_to_the_run_that_it_belongs_to(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    executor = Scripted()

    def build(source: str) -> None:
        if source == "a0":
            raise ExecutorError("no builder")

    executor.building = build
    with sharing(executor, here, cache) as shared:
        ann, bob = (Run(tmp_path, name, f"{name[0]}0", f"{name[0]}1").begin(shared) for name in ("ann", "bob"))
        assert ann.ends() == ["no builder", "a1"]
        assert bob.ends() == ["b0", "b1"]

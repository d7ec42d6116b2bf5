"""Several runs behind one conductor, with an executor whose verdicts and losses come when a test says so."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import Environment, collect
from harness.core.problem import Problem, Solution, Workload, digest_text
from harness.core.record import Record
from harness.runner.executors import Built, ExecutorError, Slot, SlotLost
from harness.runner.listeners import Kind, PendingSolution
from harness.runner.plan import PlannedSolution
from harness.runner.service import ServiceError
from harness.runner.service.kept import WarmPool
from harness.runner.shared_runner import RunShare, SharedRunner
from tests.support.scripted import PROBLEM, SOON_S, Scripted


class Run:
    """A run: its works, and what it is told."""

    def __init__(self, folder: Path, name: str, *sources: str) -> None:
        self.name = name
        self.works = [self._work(folder, source) for source in sources]
        self.told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.share: RunShare | None = None

    def _work(self, folder: Path, source: str) -> PendingSolution:
        problem = Problem(id="local/a", name="a", path=Path("a.py"), source=PROBLEM, digest=digest_text(PROBLEM))
        label = f"{self.name}/{source}.py"
        solution = Solution(problem_id=problem.id, author=self.name, label=label, path=Path(label), source=source)
        job = PlannedSolution(solution=solution, problem=problem, workload=Workload(name="full"))
        return PendingSolution(job=job, log_path=folder / f"{self.name}-{source}.log")

    def begin(self, shared: SharedRunner) -> Run:
        self.share = shared.share(self, self.works)
        self.share.start()
        return self

    def until_left(self) -> list[tuple[str, str]]:
        """All that it is told until nothing more comes, less the builds."""
        told: list[tuple[str, str]] = []
        while [what for what, _ in told].count("left") < len(RunShare.kinds):
            told.append(self.told.get(timeout=SOON_S))
        # A build that was under way when nothing was left to judge it may come to its end.
        assert all(self.told.get()[0] == "built" for _ in range(self.told.qsize()))
        return [each for each in told if each[0] not in ("left", "built")]

    def wanted(self, work: PendingSolution) -> bool:
        return True

    def built(self, work: PendingSolution, built: Built) -> None:
        self.told.put(("built", work.job.solution.source))

    def finished(self, work: PendingSolution, record: Record, slot: Slot | None) -> None:
        assert record.author == self.name
        self.told.put(("finished", work.job.solution.source))

    def failed(self, work: PendingSolution | None, error: BaseException) -> None:
        self.told.put(("failed", str(error)))

    def lost(self, lost: SlotLost, cause: BaseException | None) -> None:
        self.told.put(("lost", str(lost)))

    def left(self, kind: Kind) -> None:
        self.told.put(("left", kind))

    def noted(self, message: str) -> None:
        self.told.put(("noted", message))


@pytest.fixture(scope="module")
def here() -> Environment:
    return collect()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@contextmanager
def sharing(executor: Scripted, here: Environment, cache: Path) -> Iterator[SharedRunner]:
    machine = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**30)
    config = resolve(machine=machine, run_id="run", options={"paths": [Path()], "cache_dir": cache})
    shared = SharedRunner(executor, config, here)
    try:
        yield shared
    finally:
        shared.close()


def finished(*sources: str) -> list[tuple[str, str]]:
    return [("finished", source) for source in sources]


def test_each_run_gets_its_own(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor = Scripted(slots=2)
    with sharing(executor, here, cache) as shared:
        runs = [Run(tmp_path, name, *(f"{name}{n}" for n in range(5))).begin(shared) for name in ("ann", "bob", "cy")]
        for run in runs:
            assert sorted(run.until_left()) == finished(*(f"{run.name}{n}" for n in range(5)))
        assert Run(tmp_path, "later", "x").begin(shared).until_left() == finished("x")
        assert Run(tmp_path, "empty").begin(shared).until_left() == []
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
        assert stopped.share is not None
        stopped.share.stop()
        assert stopped.share.judging == 1
        go_on.set()
        assert stopped.until_left() == finished("a0")
        stopped.share.close()
        assert sorted(other.until_left()) == finished("b0", "b1")
    assert {source for what, source in executor.told if what == "judged"} == {"a0", "b0", "b1"}
    assert all(made.released == 1 for made in executor.made)


def test_nobody_listens_for_a_run_that_is_closed(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, judging, go_on = Scripted(), threading.Event(), threading.Event()

    def judge(slot: Slot, source: str) -> None:
        if source == "a0":
            judging.set()
            assert go_on.wait(SOON_S)

    executor.judging = judge
    with sharing(executor, here, cache) as shared:
        gone = Run(tmp_path, "ann", "a0", "a1").begin(shared)
        assert judging.wait(SOON_S)
        assert gone.share is not None
        gone.share.close()
        go_on.set()
        assert Run(tmp_path, "bob", "b0").begin(shared).until_left() == finished("b0")
        assert ("finished", "a0") not in [gone.told.get() for _ in range(gone.told.qsize())]
    assert all(made.released == 1 for made in executor.made)


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
            assert run.until_left() == [("lost", "gone")]
            assert run.share is not None
            assert run.share.lost == "gone"
        assert not shared.usable
        assert Run(tmp_path, "late", "x").begin(shared).until_left() == [("lost", "gone")]


class Rooms(WarmPool):
    """What keeps executors of the tests' own; those that were opened are in `opened`."""

    def __init__(self, folder: Path, here: Environment, cache: Path) -> None:
        super().__init__(folder, idle_s=1e9)
        self._here, self._cache = here, cache
        self.opened: list[Scripted] = []

    def _opened(self, settings: Mapping[str, Any]) -> SharedRunner:
        machine = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**30)
        config = resolve(machine=machine, run_id="run", options={"paths": [Path()], "cache_dir": self._cache})
        self.opened.append(Scripted(slots=2))
        return SharedRunner(self.opened[-1], config, self._here)


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
        assert sorted(run.until_left()) == [*finished("a0", "a1"), ("lost", "gone")]
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
        assert sorted(ann.until_left()) == [("failed", "no builder"), ("finished", "a1")]
        assert sorted(bob.until_left()) == finished("b0", "b1")

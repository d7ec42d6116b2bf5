"""The threads between solutions and records, as the Python API uses them: an executor of the tests' own, whose verdicts
and losses come when a test says so. Real builders and referees: tests/unit/api/test_api.py,
tests/integration/test_run.py.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, as_completed
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from harness.api.result import Result
from harness.core.choices import DeviceKind
from harness.core.config import Machine, resolve
from harness.core.environment import Environment, collect
from harness.core.problem import Problem, Solution, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome
from harness.runner.events import SolutionFinished
from harness.runner.executors import ExecutorError, Slot, SlotLost
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.runner import MOST_OPEN, Runner
from tests.support.scripted import PROBLEM, RIGHT, SOON_S, Scripted


@pytest.fixture(scope="module")
def here() -> Environment:
    return collect()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all tests, so that the problems' shapes are found out once."""
    return tmp_path_factory.mktemp("cache")


Submit = Callable[..., Future[Result]]


@contextmanager
def flowing(
    executor: Scripted, folder: Path, here: Environment, cache: Path
) -> Iterator[tuple[Runner[Result], Submit]]:
    """A runner with `executor`, and what submits a source to it, to problem `a` or another."""
    machine = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**30)
    config = resolve(machine=machine, run_id="run", file=None, options={"paths": [folder], "cache_dir": cache})
    number = count()

    def deliver(work: PendingSolution, event: SolutionFinished) -> Result:
        return Result(record=event.record, source=work.job.solution.source, log="")

    runner = Runner(executor, config, here, deliver)

    def submit(source: str, problem: str = "a") -> Future[Result]:
        text = PROBLEM + f"# {problem}\n"
        held = Problem(
            id=f"local/{problem}", name=problem, path=Path(f"{problem}.py"), source=text, digest=digest_text(text)
        )
        solution = Solution(
            problem_id=held.id,
            author="local",
            label=f"local/{problem}/{source}.py",
            path=Path(f"{source}.py"),
            source=source,
        )
        job = PlannedSolution(solution=solution, problem=held, workload=Workload(name="full"))
        (future,) = runner.submit([PendingSolution(job=job, log_path=folder / f"{next(number)}.log")])
        return future

    try:
        yield runner, submit
    finally:
        runner.end()


def statuses(futures: Sequence[Future[Result]]) -> list[Status]:
    return [future.result(SOON_S).status for future in futures]


def test_a_verdict_that_waits_for_its_audit_holds_nobody_up(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, all_built = Scripted(), threading.Event()

    def building(source: str) -> None:
        if source == "3":
            all_built.set()

    def judging(slot: Slot, source: str) -> None:
        assert all_built.wait(SOON_S)

    executor.builders, executor.building, executor.judging = 1, building, judging
    executor.is_due = lambda source: ("judged", "3") in executor.told
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit(str(n)) for n in range(4)]
        assert statuses(futures) == [Status.passed] * 4
    first = executor.told.index(("settled", "0"))
    before = [source for what, source in executor.told[:first] if what == "judged"]
    # Two more were judged meanwhile at the least, and no more verdicts than that were left open.
    assert len(before) >= MOST_OPEN
    assert executor.told.index(("settled", "0")) < executor.told.index(("judged", "3"))
    assert all(made.released == 1 for made in executor.made)


def test_a_slot_that_waits_for_an_audit_judges_what_comes_meanwhile(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    """Nothing else is ready when the first is judged: the slot is not lost to the second until the audit is over."""
    executor, second_judged = Scripted(), threading.Event()

    def judging(slot: Slot, source: str) -> None:
        if source == "second":
            second_judged.set()

    executor.judging = judging
    executor.is_due = lambda source: second_judged.is_set()
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        first = submit("first")
        while ("judged", "first") not in executor.told:
            time.sleep(0.01)
        assert statuses([submit("second"), first]) == [Status.passed] * 2
    assert executor.told[:2] == [("judged", "first"), ("judged", "second")]


def test_what_is_due_is_settled_first(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, both = Scripted(builders=1), threading.Event()
    executor.building = lambda source: both.set() if source == "2" else None

    def judging(slot: Slot, source: str) -> None:
        assert both.wait(SOON_S)

    executor.judging, executor.is_due = judging, lambda source: source == "1"
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit(str(n)) for n in range(3)]
        assert futures[1].result(SOON_S).passed
        executor.is_due = lambda source: True
        assert statuses(futures) == [Status.passed] * 3
    assert next(source for what, source in executor.told if what == "settled") == "1"


def test_what_comes_next_is_told_ahead(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, both_built = Scripted(builders=1), threading.Event()
    executor.opened.clear()
    executor.building = lambda source: both_built.set() if source == "c" else None
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit("a"), submit("b"), submit("c"), submit("d")]
        assert both_built.wait(SOON_S)
        executor.opened.set()
        assert statuses(futures) == [Status.passed] * 4
    assert executor.ahead["a"][:1] == ["b"]


def test_what_no_slot_evaluates_waits_for_none_to_open(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor = Scripted()
    executor.opened.clear()
    executor.at_fault = lambda problem: Outcome(status=Status.harness_error, reason="hangs")  # type: ignore[method-assign]
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        assert submit("x").result(SOON_S).reason == "hangs"
        executor.opened.set()
    assert not executor.told


def test_a_problem_is_got_ready_while_its_first_solution_is_built(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    executor, prepared = Scripted(), threading.Event()
    executor.preparing = prepared.set

    def building(source: str) -> None:
        assert prepared.wait(SOON_S), "nothing is got ready until something is built"

    executor.building = building
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        assert statuses([submit("x", "b")]) == [Status.passed]
        assert executor.prepared == [["local/b"]]
        # The next solution to it finds it ready.
        assert statuses([submit("y", "b")]) == [Status.passed]
        assert executor.prepared == [["local/b"]]


def test_an_error_in_one_build_or_judgement_is_that_ones_alone(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor = Scripted()

    def building(source: str) -> None:
        if source == "unlucky":
            raise OSError(28, "No space left on device")

    def judging(slot: Slot, source: str) -> Outcome:
        if source == "odd":
            raise ValueError("odd")
        return RIGHT

    executor.building, executor.judging = building, judging
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = {source: submit(source) for source in ("unlucky", "odd", "one", "another")}
        with pytest.raises(OSError, match="No space left"):
            futures["unlucky"].result(SOON_S)
        with pytest.raises(ValueError, match="odd"):
            futures["odd"].result(SOON_S)
        assert statuses([futures["one"], futures["another"]]) == [Status.passed] * 2
    assert all(made.released == 1 for made in executor.made)


def test_a_lost_slots_solutions_go_to_another(tmp_path: Path, here: Environment, cache: Path) -> None:
    """What it was judging, and what it owed."""
    executor, lost = Scripted(slots=2), threading.Event()
    first: dict[str, Slot] = {}

    def judging(slot: Slot, source: str) -> Outcome | None:
        first.setdefault(source, slot)
        if slot.name == "slot 0":
            return None
        assert lost.wait(SOON_S)
        return RIGHT

    def settling(slot: Slot, source: str) -> Outcome:
        lost.set()
        raise SlotLost("slot 0: gone")

    executor.judging, executor.settling = judging, settling
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit(str(n)) for n in range(6)]
        assert statuses(futures) == [Status.passed] * 6
        assert {future.result().record.evidence["ran_on"]["slot"] for future in futures} == {"slot 1"}
        assert any(slot.name == "slot 0" for slot in first.values())
        # One is left, for what comes later too.
        assert statuses([submit("later")]) == [Status.passed]


def test_a_solution_that_takes_slots_with_it_is_given_up(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor = Scripted(slots=3)

    def judging(slot: Slot, source: str) -> Outcome:
        if source == "deadly":
            raise SlotLost(f"{slot.name}: gone")
        return RIGHT

    executor.judging = judging
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        result = submit("deadly").result(SOON_S)
        assert result.status is Status.harness_error
        assert "2 devices failed" in result.reason
        assert statuses([submit("next")]) == [Status.passed]


def test_where_no_slot_is_left_everybody_is_told_and_so_is_who_comes_later(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    executor = Scripted()

    def judging(slot: Slot, source: str) -> Outcome:
        raise SlotLost("slot 0: gone")

    executor.judging = judging
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        for future in [submit(str(n)) for n in range(3)]:
            with pytest.raises(ExecutorError, match="no device is left: slot 0: gone"):
                future.result(SOON_S)
        with pytest.raises(ExecutorError, match="no device is left: slot 0: gone"):
            submit("late").result(SOON_S)


def test_a_slot_that_fails_as_nobody_expects_is_lost_and_no_more(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    """Its thread has ended: what it owed goes to the other slot, and so does what comes later."""
    executor, began = Scripted(slots=2, builders=1), threading.Event()

    def judging(slot: Slot, source: str) -> Outcome | None:
        if slot.name == "slot 0":
            began.set()
            return None
        assert began.wait(SOON_S)
        return RIGHT

    def is_due(source: str) -> bool:
        raise OSError(5, "odd")

    executor.judging, executor.is_due = judging, is_due
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        assert statuses([submit(str(n)) for n in range(4)]) == [Status.passed] * 4
        assert submit("later").result(SOON_S).record.evidence["ran_on"]["slot"] == "slot 1"
    assert all(made.released == 1 for made in executor.made)


def test_where_the_last_slot_fails_so_nobody_waits_for_it(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor = Scripted()

    def is_due(source: str) -> bool:
        raise OSError(5, "odd")

    executor.judging, executor.is_due = lambda slot, source: None, is_due
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        for source in ("first", "later"):
            with pytest.raises(ExecutorError, match=r"no device is left: slot 0: OSError: .*odd"):
                submit(source).result(SOON_S)
    assert all(made.released == 1 for made in executor.made)


def test_a_hint_that_goes_wrong_does_no_harm(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, prepared = Scripted(), threading.Event()

    def preparing() -> None:
        prepared.set()
        raise TypeError("odd")

    def building(source: str) -> None:
        assert prepared.wait(SOON_S)

    executor.preparing, executor.building = preparing, building
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        assert statuses([submit("first"), submit("second")]) == [Status.passed] * 2


def test_a_callback_ends_no_thread_but_its_own(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, go_on = Scripted(builders=1), threading.Event()

    def building(source: str) -> None:
        assert go_on.wait(SOON_S)
        if source == "unlucky":
            raise OSError(28, "No space left on device")

    executor.building = building
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        for source in ("right", "unlucky"):  # on the judge's thread, and on the builder's
            submit(source).add_done_callback(lambda _: sys.exit())
        go_on.set()
        assert statuses([submit("next")]) == [Status.passed]


def test_who_cancels_while_its_build_is_about_to_begin_is_told_once(
    tmp_path: Path, here: Environment, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The builder comes upon the cancelled future before the future has told so."""
    executor, cancelled, last_begun = Scripted(builders=1), threading.Event(), threading.Event()
    forget = Runner._forget

    def forget_late(runner: Runner[Result], work: PendingSolution, future: Future[Result]) -> None:
        if work.job.solution.source == "unwanted":
            cancelled.set()
            assert last_begun.wait(SOON_S)
        forget(runner, work, future)

    def building(source: str) -> None:
        if source == "first":
            assert cancelled.wait(SOON_S)
        else:
            last_begun.set()

    monkeypatch.setattr(Runner, "_forget", forget_late)
    executor.building = building
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit("first"), submit("unwanted"), submit("last")]
        assert futures[1].cancel()
        assert len(list(as_completed(futures, timeout=SOON_S))) == 3
        assert statuses([futures[0], futures[2]]) == [Status.passed] * 2
    assert not caplog.records


def test_what_is_cancelled_before_its_build_is_not_built_and_nobody_waits_for_it(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    executor, go_on = Scripted(builders=1), threading.Event()
    begun: list[str] = []

    def building(source: str) -> None:
        begun.append(source)
        assert go_on.wait(SOON_S)

    executor.building = building
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit("first"), submit("unwanted"), submit("last")]
        assert futures[1].cancel()
        go_on.set()
        done = list(as_completed(futures, timeout=SOON_S))
        assert len(done) == 3
        assert statuses([futures[0], futures[2]]) == [Status.passed] * 2
    assert begun == ["first", "last"]


def test_a_close_cancels_what_has_not_begun_and_tells_what_has(tmp_path: Path, here: Environment, cache: Path) -> None:
    executor, closing = Scripted(builders=1), threading.Event()

    def building(source: str) -> None:
        assert closing.wait(SOON_S)

    executor.building = building
    executor.close = closing.set  # type: ignore[method-assign]
    with flowing(executor, tmp_path, here, cache) as (runner, submit):
        futures = [submit("begun"), submit("not yet")]
        runner.end()
        with pytest.raises((ExecutorError, CancelledError), match=r"closed before|^$"):
            futures[0].result(SOON_S)
        with pytest.raises(CancelledError):
            futures[1].result(SOON_S)
        assert len(list(as_completed(futures, timeout=SOON_S))) == 2
    assert all(made.released == 1 for made in executor.made)


def test_a_close_does_not_wait_for_what_a_build_would_have_to_know(
    tmp_path: Path, here: Environment, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.referee.problem.signature.LIMIT_S", 10 * SOON_S)
    begun = tmp_path / "begun"
    hangs = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep({20 * SOON_S})\n"
    monkeypatch.setitem(globals(), "PROBLEM", hangs + PROBLEM)
    with flowing(Scripted(), tmp_path, here, cache) as (runner, submit):
        future = submit("x")
        end = time.monotonic() + SOON_S
        while not begun.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        closing = threading.Thread(target=runner.end)
        closing.start()
        closing.join(SOON_S)
        assert not closing.is_alive()
        with pytest.raises(ExecutorError, match="closed before"):
            future.result(0)


def test_a_close_from_a_callback_lets_go_of_what_the_slot_owes(tmp_path: Path, here: Environment, cache: Path) -> None:
    """The slot's thread goes on after that, and learns then that its executor has ended."""
    executor, all_built, ended = Scripted(builders=1), threading.Event(), threading.Event()

    def judging(slot: Slot, source: str) -> Outcome | None:
        assert all_built.wait(SOON_S)
        return RIGHT if source == "2" else None

    def settling(slot: Slot, source: str) -> Outcome:
        assert ended.is_set()
        raise SlotLost("the run has ended")

    executor.building = lambda source: all_built.set() if source == "2" else None
    executor.judging, executor.settling, executor.is_due = judging, settling, lambda source: False
    executor.close = ended.set  # type: ignore[method-assign]
    with flowing(executor, tmp_path, here, cache) as (runner, submit):
        futures = [submit(str(n)) for n in range(3)]
        futures[2].add_done_callback(lambda _: runner.end())
        assert statuses(futures[2:]) == [Status.passed]
        for future in futures[:2]:
            with pytest.raises(ExecutorError, match="closed before"):
                future.result(SOON_S)
        runner.end()
        assert [made.released for made in executor.made] == [1, 1, 1]


def test_the_order_of_arrival_decides_where_nothing_else_does(tmp_path: Path, here: Environment, cache: Path) -> None:
    """Solutions to one problem go together, though they did not come so."""
    executor = Scripted(builders=1)
    executor.opened.clear()
    built = threading.Event()
    executor.building = lambda source: built.set() if source == "b2" else None
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        futures = [submit("a1", "a"), submit("b1", "b"), submit("a2", "a"), submit("b2", "b")]
        assert built.wait(SOON_S)
        executor.opened.set()
        assert statuses(futures) == [Status.passed] * 4
    assert [source for what, source in executor.told if what == "judged"] == ["a1", "a2", "b1", "b2"]


def test_records_say_where_they_come_from(tmp_path: Path, here: Environment, cache: Path) -> None:
    environment: Mapping[str, Any] = {"device": "host", "cpu": "one of the test's"}
    executor = Scripted()
    executor.slots = (Slot(name="slot 0", title="slot 0", environment=environment),)
    with flowing(executor, tmp_path, here, cache) as (_, submit):
        assert submit("x").result(SOON_S).record.environment == environment

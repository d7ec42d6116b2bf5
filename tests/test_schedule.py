"""Who judges what next, without a process: grouping, stealing, bounds, losses; and that nobody waits for ever."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schedule import Ready, Schedule, choose

Item = Ready[str, str]


def filled(*jobs: str, ahead: int = 100) -> Schedule[str, str]:
    """A schedule whose jobs `a1`, `a2`, `b1` (problem a, a, b) are all built."""
    schedule: Schedule[str, str] = Schedule([(job[0], job) for job in jobs], ahead=ahead)
    while (found := schedule.next_build()) is not None:
        problem, job = found
        schedule.built(Ready(job=job, problem=problem, built=f"built {job}"))
    return schedule


def take(schedule: Schedule[str, str], slot: str) -> str | None:
    found = schedule.take(slot)
    return None if found is None else found.job


def test_a_slot_stays_with_its_problem_and_another_takes_the_next_one() -> None:
    schedule = filled("a1", "a2", "b1", "b2", "c1")
    assert [take(schedule, "x"), take(schedule, "y")] == ["a1", "b1"]
    assert [take(schedule, "y"), take(schedule, "x")] == ["b2", "a2"]
    assert take(schedule, "x") == "c1"


def test_where_every_problem_has_its_slot_the_one_with_most_left_is_shared() -> None:
    schedule = filled("a1", "a2", "b1", "b2", "b3")
    assert [take(schedule, "x"), take(schedule, "y")] == ["a1", "b1"]
    assert [take(schedule, "x"), take(schedule, "x")] == ["a2", "b2"]
    assert take(schedule, "y") == "b3"


def test_what_comes_next_for_a_slot_is_what_it_takes_then() -> None:
    schedule = filled("a1", "a2", "b1", "a3", "c1")
    assert take(schedule, "x") == "a1"
    assert [ready.job for ready in schedule.upcoming("x", 3)] == ["a2", "a3", "b1"]
    assert [take(schedule, "x") for _ in range(4)] == ["a2", "a3", "b1", "c1"]


def test_a_problem_that_is_ready_goes_before_what_was_meant_to_come_next() -> None:
    """What was built too late to be looked ahead to costs less now than its problem does later."""
    schedule: Schedule[str, str] = Schedule([("a", "a1"), ("b", "b1"), ("a", "a2")], ahead=100)
    for problem, job in [("a", "a1"), ("b", "b1")]:
        assert schedule.next_build() == (problem, job)
        schedule.built(Ready(job=job, problem=problem, built=""))
    assert take(schedule, "x") == "a1"
    assert [ready.job for ready in schedule.upcoming("x", 2)] == ["b1"]
    assert schedule.next_build() == ("a", "a2")
    schedule.built(Ready(job="a2", problem="a", built=""))
    assert [take(schedule, "x"), take(schedule, "x")] == ["a2", "b1"]


def test_who_need_not_wait_is_told_at_once_that_nothing_is_ready() -> None:
    schedule: Schedule[str, str] = Schedule([("a", "a1")], ahead=100)
    assert schedule.take("x", wait=False) is None
    assert schedule.next_build() == ("a", "a1")
    schedule.built(Ready(job="a1", problem="a", built=""))
    found = schedule.take("x", wait=False)
    assert found is not None
    assert found.job == "a1"


def test_slots_leave_each_other_what_is_meant_for_them_as_long_as_there_is_more() -> None:
    schedule = filled("a1", "a2", "b1", "b2")
    assert take(schedule, "x") == "a1"
    assert [ready.job for ready in schedule.upcoming("x", 2)] == ["a2", "b1"]
    assert [ready.job for ready in schedule.upcoming("y", 2)] == ["b2"]
    assert take(schedule, "y") == "b2"
    assert schedule.upcoming("y", 2) == []
    assert take(schedule, "y") == "b1"  # nothing else is left
    assert take(schedule, "x") == "a2"


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), min_size=1), st.sets(st.sampled_from("abcdef")))
def test_a_choice_is_always_something_that_waits(waiting: dict[str, int], others: set[str]) -> None:
    held = Counter(waiting)
    for mine in (None, *"abcdef"):
        chosen = choose(held, mine, others)
        assert waiting[str(chosen)] > 0
        if mine in waiting:
            assert chosen == mine
        elif set(waiting) - others:
            assert chosen not in others


def test_no_more_is_built_ahead_than_allowed() -> None:
    schedule: Schedule[str, str] = Schedule([("a", f"a{n}") for n in range(6)], ahead=2)
    first, second = schedule.next_build(), schedule.next_build()
    assert first is not None
    assert second is not None
    third: list[object] = []
    waiting = threading.Thread(target=lambda: third.append(schedule.next_build()))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "a third build was given out beside two that are not judged"
    for problem, job in (first, second):
        schedule.built(Ready(job=job, problem=problem, built=""))
    assert schedule.take("x") is not None
    waiting.join(10)
    assert third == [("a", "a2")]
    schedule.stop()


def test_what_a_lost_slot_had_goes_first_to_another_which_has_waited_for_it() -> None:
    schedule = filled("a1")
    held = schedule.take("x")
    assert held is not None
    got: list[str | None] = []
    waiting = threading.Thread(target=lambda: got.extend([take(schedule, "y")]))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "a slot left while another's job could still come back"
    schedule.give_back("x", held)
    waiting.join(10)
    assert got == ["a1"]
    schedule.judged()
    assert take(schedule, "y") is None


def test_stop_wakes_everybody_and_names_what_is_left() -> None:
    schedule: Schedule[str, str] = Schedule([("a", "a1"), ("a", "a2")], ahead=9)
    assert schedule.next_build() == ("a", "a1")
    ended: list[object] = []
    waiting = threading.Thread(target=lambda: ended.append(schedule.take("x")))
    waiting.start()
    schedule.stop()
    waiting.join(10)
    assert ended == [None]
    assert schedule.next_build() is None
    schedule.built(Ready(job="a1", problem="a", built="b"))
    assert [ready.job for ready in schedule.left_over()] == ["a1"]
    assert schedule.left_over() == []


def test_who_waits_for_something_to_be_built_takes_nothing() -> None:
    schedule: Schedule[str, str] = Schedule([("a", "a1"), ("a", "a2")], ahead=9)
    told: list[bool] = []

    def waiting() -> threading.Thread:
        thread = threading.Thread(target=lambda: told.append(schedule.await_ready()))
        thread.start()
        return thread

    first = waiting()
    assert schedule.next_build() == ("a", "a1")
    assert schedule.next_build() == ("a", "a2")
    schedule.built(Ready(job="a1", problem="a", built=""))
    first.join(10)
    assert told == [True]
    assert take(schedule, "x") == "a1"
    second = waiting()
    schedule.settled()  # a2 could not be built, and the slot that has a1 may give it back
    second.join(0.05)
    assert told == [True]
    schedule.judged()
    second.join(10)
    assert told == [True, False]
    schedule.stop()
    assert not schedule.await_ready()


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_many_threads_judge_each_job_once(slots: int) -> None:
    jobs = [(f"p{n % 7}", f"p{n % 7}-{n}") for n in range(200)]
    schedule: Schedule[str, str] = Schedule(jobs, ahead=8)
    judged: list[str] = []
    lock = threading.Lock()

    def build() -> None:
        while (found := schedule.next_build()) is not None:
            problem, job = found
            if job.endswith("3"):
                schedule.settled()
            else:
                schedule.built(Ready(job=job, problem=problem, built=""))

    def judge(slot: str) -> None:
        while (found := schedule.take(slot)) is not None:
            with lock:
                judged.append(found.job)
            schedule.judged()

    threads = [threading.Thread(target=build) for _ in range(3)]
    threads += [threading.Thread(target=judge, args=(f"slot {n}",)) for n in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(judged) == sorted(job for _, job in jobs if not job.endswith("3"))

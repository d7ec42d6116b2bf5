"""Who judges what next, without a process: grouping, stealing, bounds, losses; and that nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runner.scheduler import MOST_PASSED_OVER, BuiltSolution, ForeseenSolution, Schedule, choose, dealt

Item = BuiltSolution[str, str]


def planned(*jobs: str, ahead: int = 100) -> Schedule[str, str]:
    """A schedule of jobs `a1`, `a2`, `b1` (problem a, a, b), none of them built, with slots x, y and z."""
    return Schedule([(job[0], job) for job in jobs], ahead=ahead, slots=3)


def finish(schedule: Schedule[str, str], *jobs: str) -> None:
    """These builds, which are under way, succeed."""
    for job in jobs:
        schedule.built(BuiltSolution(job=job, problem=job[0], built=f"built {job}"))


def filled(*jobs: str, ahead: int = 100) -> Schedule[str, str]:
    """A schedule whose jobs `a1`, `a2`, `b1` (problem a, a, b) are all built."""
    schedule = planned(*jobs, ahead=ahead)
    while (found := schedule.next_build()) is not None:
        problem, job = found
        schedule.built(BuiltSolution(job=job, problem=problem, built=f"built {job}"))
    return schedule


def take(schedule: Schedule[str, str], slot: str) -> str | None:
    found = schedule.take(slot)
    assert not isinstance(found, ForeseenSolution)
    return None if found is None else found.job


def foreseen(schedule: Schedule[str, str], slot: str) -> list[str]:
    found = schedule.take(slot)
    assert isinstance(found, ForeseenSolution)
    return list(found.jobs)


def taking(schedule: Schedule[str, str], slot: str, into: list[str | None]) -> threading.Thread:
    """A thread that takes one job for this slot, and waits for it where there is none yet."""
    thread = threading.Thread(target=lambda: into.append(take(schedule, slot)))
    thread.start()
    wait_until(lambda: slot in schedule._idle or not thread.is_alive())
    return thread


def wait_until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.001)


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
    schedule = planned("a1", "b1", "a2")
    for job in ("a1", "b1"):
        assert schedule.next_build() == (job[0], job)
        finish(schedule, job)
    assert take(schedule, "x") == "a1"
    assert [ready.job for ready in schedule.upcoming("x", 2)] == ["b1"]
    assert schedule.next_build() == ("a", "a2")
    finish(schedule, "a2")
    assert [take(schedule, "x"), take(schedule, "x")] == ["a2", "b1"]


def test_who_need_not_wait_is_told_at_once_that_nothing_is_ready() -> None:
    schedule = planned("a1")
    assert schedule.take("x", within_s=0.0) is None
    assert schedule.next_build() == ("a", "a1")
    finish(schedule, "a1")
    found = schedule.take("x", within_s=0.0)
    assert isinstance(found, BuiltSolution)
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
    held: Counter[Hashable] = Counter(waiting)
    for mine in (None, *"abcdef"):
        chosen = choose(held, mine, others)
        assert waiting[str(chosen)] > 0
        if mine in waiting:
            assert chosen == mine
        elif set(waiting) - others:
            assert chosen not in others


def test_no_more_is_built_ahead_than_allowed() -> None:
    schedule = planned(*(f"a{n}" for n in range(6)), ahead=2)
    first, second = schedule.next_build(), schedule.next_build()
    assert first is not None
    assert second is not None
    third: list[object] = []
    waiting = threading.Thread(target=lambda: third.append(schedule.next_build()))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "a third build was given out beside two that are not judged"
    for problem, job in (first, second):
        schedule.built(BuiltSolution(job=job, problem=problem, built=""))
    assert schedule.take("x") is not None
    waiting.join(60)
    assert third == [("a", "a2")]
    schedule.stop()


def test_what_a_lost_slot_had_goes_first_to_another_which_has_waited_for_it() -> None:
    schedule = filled("a1")
    held = schedule.take("x")
    assert isinstance(held, BuiltSolution)
    got: list[str | None] = []
    waiting = taking(schedule, "y", got)
    assert waiting.is_alive(), "a slot left while another's job could still come back"
    schedule.leave("x")
    assert schedule.give_back(held)
    waiting.join(60)
    assert got == ["a1"]
    schedule.judged()
    assert take(schedule, "y") is None


def test_stop_wakes_everybody_and_takes_no_build_any_more() -> None:
    schedule = planned("a1", "a2")
    assert schedule.next_build() == ("a", "a1")
    ended: list[str | None] = []
    assert foreseen(schedule, "x") == ["a1"]
    waiting = taking(schedule, "x", ended)
    assert schedule.stop() == []
    waiting.join(60)
    assert ended == [None]
    assert schedule.next_build() is None
    assert not schedule.built(BuiltSolution(job="a1", problem="a", built="b"))
    assert schedule.stop() == []


def test_stop_returns_what_is_built_and_what_was_taken_is_not_given_back() -> None:
    schedule = filled("a1", "a2")
    taken = schedule.take("x")
    assert isinstance(taken, BuiltSolution)
    assert [ready.job for ready in schedule.stop()] == ["a2"]
    assert schedule.stop() == []
    assert not schedule.give_back(taken)


def test_slots_are_told_of_different_problems_once_the_most_built_first() -> None:
    schedule = planned("a1", "b1", "b2", "c1", "d1", "e1", "f1")
    for _ in range(4):
        schedule.next_build()
    assert foreseen(schedule, "x") == ["b1", "a1", "c1", "d1"]
    assert foreseen(schedule, "y") == ["a1", "c1", "d1", "e1"]
    got: list[str | None] = []
    waiting = taking(schedule, "x", got)  # which is told nothing that it knows
    finish(schedule, "b1")
    waiting.join(60)
    assert got == ["b1"]
    second = taking(schedule, "x", got)  # with more of its own to come, of which one is built last
    finish(schedule, "c1")
    second.join(60)
    assert got == ["b1", "c1"], "a slot waits for its problem while another's solution is ready"
    assert foreseen(schedule, "z") == ["b2", "d1", "e1", "f1"], "b is free again, and c is not"


def test_who_has_a_problem_ready_gets_its_solutions_before_others_that_wait() -> None:
    schedule = planned("a1", "b1", "b2", "c1")
    for _ in range(4):
        schedule.next_build()
    assert foreseen(schedule, "x")[0] == "b1"
    assert foreseen(schedule, "y")[0] == "a1"
    for _ in range(20):  # whoever wakes first
        got_x: list[str | None] = []
        got_y: list[str | None] = []
        waiting_x, waiting_y = taking(schedule, "x", got_x), taking(schedule, "y", got_y)
        finish(schedule, "a1")
        waiting_y.join(60)
        assert got_y == ["a1"]
        assert not got_x
        finish(schedule, "b1")
        waiting_x.join(60)
        assert got_x == ["b1"]
        schedule._building += [("a", "a1"), ("b", "b1")]
        schedule.judged()
        schedule.judged()
    # Two at once: one is for who waits with the problem ready, the other for anybody.
    waiting_x, waiting_y = taking(schedule, "x", got_x), taking(schedule, "y", got_y)
    finish(schedule, "b1", "b2")
    waiting_x.join(60)
    waiting_y.join(60)
    assert {*got_x[1:], *got_y[1:]} == {"b1", "b2"}


def test_a_problem_of_which_nothing_comes_any_more_is_followed_by_the_next() -> None:
    schedule = planned("a1", "b1", "c1")
    for _ in range(3):
        schedule.next_build()
    assert foreseen(schedule, "x") == ["a1", "b1", "c1"]
    assert foreseen(schedule, "y") == ["b1", "c1"]
    schedule.settled("a", "a1")
    assert foreseen(schedule, "x") == ["c1"], "b is another's"
    schedule.settled("c", "c1")
    got: list[str | None] = []
    waiting = taking(schedule, "x", got)  # of b there is no more than the other slot takes
    finish(schedule, "b1")
    assert take(schedule, "y") == "b1"
    schedule.judged()
    waiting.join(60)
    assert got == [None]


def test_one_problem_with_enough_for_several_slots_is_told_to_all_of_them() -> None:
    schedule = planned("a1", "a2")
    assert foreseen(schedule, "x") == ["a1"]
    assert foreseen(schedule, "y") == ["a1"]
    assert schedule.take("z", within_s=0.0) is None
    third: list[str | None] = []
    waiting = taking(schedule, "z", third)
    for _ in range(2):
        schedule.next_build()
    finish(schedule, "a1", "a2")
    taken = [take(schedule, "x"), take(schedule, "y")]
    waiting.join(0.1)
    assert {*taken, *third} >= {"a1", "a2"}
    schedule.stop()
    waiting.join(60)


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_many_threads_judge_each_job_once(slots: int) -> None:
    jobs = [(f"p{n % 7}", f"p{n % 7}-{n}") for n in range(200)]
    schedule: Schedule[str, str] = Schedule(jobs, ahead=8, slots=slots)
    judged: list[str] = []
    lock = threading.Lock()

    def build() -> None:
        while (found := schedule.next_build()) is not None:
            problem, job = found
            if job.endswith("3"):
                schedule.settled(problem, job)
            else:
                schedule.built(BuiltSolution(job=job, problem=problem, built=""))

    def judge(slot: str) -> None:
        while (found := schedule.take(slot)) is not None:
            if isinstance(found, ForeseenSolution):
                continue
            with lock:
                judged.append(found.job)
            schedule.judged()

    threads = [threading.Thread(target=judge, args=(f"slot {n}",)) for n in range(slots)]
    threads += [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(judged) == sorted(job for _, job in jobs if not job.endswith("3"))


def of_problems(*jobs: str) -> list[tuple[str, str]]:
    return [(job[0], job) for job in jobs]


def test_problems_are_dealt_out_to_slots_and_come_by_turns() -> None:
    jobs = of_problems("a1", "a2", "a3", "b1", "c1", "c2", "d1")
    assert [job for _, job in dealt(jobs, 2)] == ["a1", "b1", "a2", "c1", "a3", "c2", "d1"]
    assert [job for _, job in dealt(jobs, 9)] == ["a1", "b1", "c1", "d1", "a2", "c2", "a3"]


def test_one_slot_gets_one_problem_after_another() -> None:
    jobs = of_problems("a1", "b1", "a2", "c1", "b2")
    assert [job for _, job in dealt(jobs, 1)] == ["a1", "a2", "b1", "b2", "c1"]
    assert dealt(jobs, 0) == dealt(jobs, 1), "a machine whose slots are not known yet"
    assert dealt([], 3) == []


@given(st.lists(st.sampled_from("abcdefg"), max_size=40), st.integers(1, 6))
def test_dealing_loses_nothing_and_keeps_each_problems_order(problems: list[str], slots: int) -> None:
    jobs = [(problem, number) for number, problem in enumerate(problems)]
    found = dealt(jobs, slots)
    assert sorted(found) == sorted(jobs)
    for problem in set(problems):
        assert [job for job in found if job[0] == problem] == [job for job in jobs if job[0] == problem]


def visited(jobs: Sequence[tuple[Hashable, str]], slots: str) -> list[int]:
    """How many problems each slot comes to where all judge in turns, and no more is built ahead than they take."""
    schedule: Schedule[str, str] = Schedule(jobs, ahead=len(slots), slots=len(slots))
    at: dict[str, set[Hashable]] = {slot: set() for slot in slots}
    for _ in range(len(jobs) // len(slots)):
        for problem, job in [schedule.next_build() or pytest.fail("nothing to build") for _ in slots]:
            schedule.built(BuiltSolution(job=job, problem=problem, built=f"built {job}"))
        for slot in slots:
            taken = schedule.take(slot)
            assert isinstance(taken, BuiltSolution)
            at[slot].add(taken.problem)
            schedule.judged()
    return [len(held) for held in at.values()]


def test_slots_of_equal_problems_make_each_ready_once() -> None:
    """Eight problems of four jobs on four slots: nobody comes to another's problem, in whichever order they are."""
    jobs = [(name, f"{name}{number}") for name in "abcdefgh" for number in range(4)]
    assert visited(jobs, "wxyz") == [2, 2, 2, 2]
    assert visited(dealt(jobs, 4), "wxyz") == [2, 2, 2, 2]


def test_who_comes_next_to_a_problem_is_meant_to_stay_with_it() -> None:
    schedule = filled("a1", "b1", "a2", "b2", "c1", "d1", "c2", "d2")
    assert [take(schedule, "x"), take(schedule, "y")] == ["a1", "b1"]
    assert [take(schedule, "x"), take(schedule, "y")] == ["a2", "b2"]
    assert [ready.job for ready in schedule.upcoming("x", 2)] == ["c1", "c2"]
    assert [ready.job for ready in schedule.upcoming("y", 2)] == ["d1", "d2"]


def flood(schedule: Schedule[str, str], *jobs: str) -> None:
    """These come, and are built at once."""
    for job in jobs:
        schedule.add([(job[0], job)])
        assert schedule.next_build() == (job[0], job)
        finish(schedule, job)


def test_where_jobs_keep_coming_no_problem_holds_its_slot_for_ever() -> None:
    schedule: Schedule[str, str] = Schedule([], ahead=100, more=True)
    flood(schedule, "a", "b1", "b2")
    assert take(schedule, "x") == "a"
    for number in range(MOST_PASSED_OVER):
        flood(schedule, f"a{number}")
        assert take(schedule, "x") == f"a{number}"
    flood(schedule, "a next")
    assert [ready.job for ready in schedule.upcoming("x", 3)] == ["b1", "b2", "a next"]
    assert [take(schedule, "x") for _ in range(3)] == ["b1", "b2", "a next"], "its problem's others go with it"


def test_what_is_overdue_is_taken_by_any_slot_and_known_beforehand() -> None:
    schedule: Schedule[str, str] = Schedule([], ahead=100, more=True, slots=3)
    flood(schedule, "a", "c", "b")
    assert [take(schedule, "x"), take(schedule, "y")] == ["a", "c"]
    assert [ready.job for ready in schedule.upcoming("z", 1)] == ["b"]  # and z is long at what it judges
    for number in range(0, MOST_PASSED_OVER, 2):
        flood(schedule, f"a{number}", f"c{number}")
        assert [take(schedule, "x"), take(schedule, "y")] == [f"a{number}", f"c{number}"]
    flood(schedule, "a next")
    assert take(schedule, "x") == "b"


def test_a_run_whose_jobs_are_known_changes_problems_no_more_often_than_it_must() -> None:
    many = [f"a{number}" for number in range(2 * MOST_PASSED_OVER)]
    schedule = filled("a", "b", *many)
    assert [take(schedule, "x") for _ in range(2 + len(many))] == ["a", *many, "b"]


def arriving(*jobs: str, slots: int, ahead: int = 100) -> list[str]:
    """The order in which these are built that come at once."""
    schedule: Schedule[str, str] = Schedule([], ahead=ahead, more=True, slots=slots)
    for job in jobs:
        schedule.add([(job[0], job)])
    return [(schedule.next_build() or pytest.fail("nothing to build"))[1] for _ in jobs]


def test_of_jobs_that_come_as_they_like_those_to_few_problems_are_built_at_a_time() -> None:
    jobs = ("a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3")
    assert arriving(*jobs, slots=1) == ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"]
    assert arriving(*jobs, slots=2) == ["a1", "b1", "a2", "b2", "a3", "b3", "c1", "c2", "c3"]
    assert arriving(*jobs, slots=4) == ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"]


def test_what_has_waited_for_longest_is_built_in_the_end() -> None:
    many = [f"a{number}" for number in range(2 * MOST_PASSED_OVER)]
    order = arriving("a", "b", *many, slots=1)
    assert order.index("b") == 1 + MOST_PASSED_OVER
    assert sorted(order) == sorted(["a", "b", *many])


def test_a_lost_slot_counts_no_more_where_jobs_keep_coming() -> None:
    schedule: Schedule[str, str] = Schedule([], ahead=100, more=True, slots=2)
    flood(schedule, "a", "b")
    held = [schedule.take("x"), schedule.take("y")]
    for ready in held:
        assert isinstance(ready, BuiltSolution)
        schedule.give_back(ready)  # what it was at, and what it owed
    schedule.leave("x")
    for job in ("c1", "d1", "c2", "d2"):
        schedule.add([(job[0], job)])
    assert [(schedule.next_build() or pytest.fail("nothing to build"))[1] for _ in range(4)] == ["c1", "c2", "d1", "d2"]


def test_nothing_is_kept_for_a_slot_that_is_lost() -> None:
    schedule = filled("a1", "a2", "b1", "c1")
    assert take(schedule, "x") == "a1"
    assert [ready.job for ready in schedule.upcoming("x", 2)] == ["a2", "b1"]
    schedule.leave("x")
    assert take(schedule, "y") == "a2"


def test_one_problem_does_not_fill_all_that_may_be_built_ahead() -> None:
    schedule = planned(*(f"a{n}" for n in range(9)), "b1", "c1", ahead=6)  # for three slots
    assert [schedule.next_build() for _ in range(4)] == [("a", "a0"), ("a", "a1"), ("b", "b1"), ("c", "c1")]
    assert [schedule.next_build() for _ in range(2)] == [("a", "a2"), ("a", "a3")], "nothing else is left"


def test_the_problem_with_most_left_for_each_slot_is_shared() -> None:
    waiting: Counter[Hashable] = Counter({"a": 4, "b": 3})
    assert choose(waiting, None, ["a", "b"]) == "a"
    assert choose(waiting, None, ["a", "a", "b"]) == "b"
    assert choose(waiting, None, ["a", "b"], {"b": 2}) == "b", "what is not built yet counts too"


def test_what_is_withdrawn_is_given_to_nobody() -> None:
    schedule = planned("a1", "a2", "b1", "b2")
    building = [schedule.next_build() for _ in range(2)]
    finish(schedule, "a1")
    assert [job for _, job in filter(None, building)] == ["a1", "a2"]
    dropped, built = schedule.withdraw({"a1", "a2", "b2"})
    assert sorted(dropped) == ["a1", "a2", "b2"]
    assert [ready.built for ready in built] == ["built a1"]
    assert not schedule.built(BuiltSolution(job="a2", problem="a", built="built a2"))
    assert schedule.withdraw({"a1", "a2"}) == ([], [])
    assert schedule.next_build() == ("b", "b1")
    finish(schedule, "b1")
    assert take(schedule, "x") == "b1"
    schedule.judged()
    assert take(schedule, "x") is None


def test_a_build_that_fails_after_it_was_withdrawn_leaves_no_trace() -> None:
    schedule = planned("a1", "a2")
    assert schedule.next_build() == ("a", "a1")
    assert schedule.withdraw({"a1"}) == (["a1"], [])
    schedule.settled("a", "a1")
    assert schedule.next_build() == ("a", "a2")
    assert schedule.built(BuiltSolution(job="a2", problem="a", built="built a2"))
    assert take(schedule, "x") == "a2"

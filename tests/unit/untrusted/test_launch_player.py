"""Recorded work on other streams begins after the call's start and ends before its end."""

from __future__ import annotations

from typing import Any

from harness.untrusted.contestant.launch_player import joined

FREE = [False, True, True]


def kernel(stream: int) -> list[Any]:
    return ["kernel", 0, [1] * 6, 0, stream, "", []]


def test_work_on_the_calls_own_stream_stays_as_it_is() -> None:
    steps = [kernel(0), ["copy", 1, 2, 3, 0], ["fill", 1, 0, 1, 8, 0]]
    assert joined(steps, FREE) == steps


def test_a_stream_that_waits_for_nothing_waits_for_the_start_and_is_waited_for() -> None:
    assert joined([kernel(1), kernel(0)], FREE) == [
        ["record", "start", 0],
        ["wait", "start", 1],
        kernel(1),
        kernel(0),
        ["record", ("end", 1), 1],
        ["wait", ("end", 1), 0],
    ]


def test_a_stream_that_is_joined_already_is_not_joined_again() -> None:
    steps = [["record", 7, 0], ["wait", 7, 1], kernel(1), ["record", 8, 1], ["wait", 8, 0], kernel(0)]
    assert joined(steps, FREE) == steps


def test_a_wait_for_an_event_of_an_earlier_call_is_no_wait() -> None:
    bound = joined([["wait", 7, 1], kernel(1)], FREE)
    assert ["wait", 7, 1] not in bound
    assert bound[:2] == [["record", "start", 0], ["wait", "start", 1]]


def test_work_after_a_join_is_joined_again() -> None:
    steps = [["record", 7, 0], ["wait", 7, 1], ["record", 8, 1], ["wait", 8, 0], kernel(1)]
    assert joined(steps, FREE)[-2:] == [["record", ("end", 1), 1], ["wait", ("end", 1), 0]]


def test_a_stream_joined_by_way_of_another_is_joined() -> None:
    steps = [
        ["record", 1, 0],
        ["wait", 1, 1],
        kernel(1),
        ["record", 2, 1],
        ["wait", 2, 2],
        kernel(2),
        ["record", 3, 2],
        ["wait", 3, 0],
    ]
    assert joined(steps, FREE) == steps


def test_a_blocking_stream_is_ordered_by_the_default_stream_itself() -> None:
    assert joined([kernel(1)], [False, False]) == [kernel(1)]

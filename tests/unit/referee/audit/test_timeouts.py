"""How long a tool is waited for, and what is said of one that was not waited for any longer."""

from __future__ import annotations

import threading
import time

import pytest

from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.audit.timeouts import STEP_FLOOR_S, STEP_LIMIT_S, TIMES_OTHERS, ToolPaces, ToolTimeouts


def test_a_limit_follows_what_the_slowest_other_tool_took() -> None:
    paces = ToolPaces()
    assert paces.limit_s(SanitizerTool.RACECHECK) == STEP_LIMIT_S
    paces.told(SanitizerTool.RACECHECK, 1.0)
    assert paces.limit_s(SanitizerTool.RACECHECK) == STEP_LIMIT_S, "its own pace says nothing"
    assert paces.limit_s(SanitizerTool.MEMCHECK) == STEP_FLOOR_S
    between = (STEP_FLOOR_S + STEP_LIMIT_S) / 2
    paces.told(SanitizerTool.INITCHECK, between / TIMES_OTHERS)
    assert paces.limit_s(SanitizerTool.MEMCHECK) == pytest.approx(between)
    paces.told(SanitizerTool.SYNCCHECK, STEP_LIMIT_S)
    assert paces.limit_s(SanitizerTool.MEMCHECK) == STEP_LIMIT_S
    assert paces.limit_s(SanitizerTool.SYNCCHECK) == pytest.approx(between)


def test_others_are_named_with_what_they_took() -> None:
    paces = ToolPaces()
    assert paces.others(SanitizerTool.SYNCCHECK) == ""
    paces.told(SanitizerTool.MEMCHECK, 1.25)
    paces.told(SanitizerTool.SYNCCHECK, 9.0)
    paces.told(SanitizerTool.INITCHECK, 2.5)
    assert paces.others(SanitizerTool.SYNCCHECK) == "; the whole solution took at most 2.5 s under memcheck, initcheck"


def test_who_takes_too_long_is_given_up_once_and_told() -> None:
    given_up = threading.Event()
    patience = ToolTimeouts(time.perf_counter, given_up.set)
    with patience.step("a call", lambda: 0.01, lambda: ", as others did"):
        assert given_up.wait(30.0)
    assert patience.why == "a call took more than 0 s, as others did"


def test_time_that_stands_counts_for_nobody() -> None:
    asked = threading.Semaphore(0)

    def limit_s() -> float:
        asked.release()
        return 0.01

    given_up = threading.Event()
    patience = ToolTimeouts(lambda: 5.0, given_up.set)
    with patience.step("a call", limit_s):
        for _ in range(3):
            assert asked.acquire(timeout=30.0)
    assert patience.why is None
    assert not given_up.is_set()


def test_a_limit_that_becomes_shorter_while_a_step_goes_on_holds() -> None:
    paces = ToolPaces()
    given_up = threading.Event()
    begin_s = time.perf_counter()
    patience = ToolTimeouts(lambda: (time.perf_counter() - begin_s) * 1000.0, given_up.set)  # a quicker clock
    with patience.step("a call", lambda: paces.limit_s(SanitizerTool.SYNCCHECK)):
        paces.told(SanitizerTool.MEMCHECK, 0.5)
        assert given_up.wait(30.0)
    assert patience.why == f"a call took more than {STEP_FLOOR_S:.0f} s"


def test_a_step_that_is_over_is_left_alone() -> None:
    given_up = threading.Event()
    patience = ToolTimeouts(time.perf_counter, given_up.set)
    for _ in range(2):
        with patience.step("a call", lambda: 60.0):
            pass
    with pytest.raises(ZeroDivisionError), patience.step("a call", lambda: 60.0):
        raise ZeroDivisionError
    assert patience.why is None
    assert not given_up.is_set()

"""Timeouts for the steps of a tool of an audit.

Trusted side. A tool slows kernels down by factors of 10 to 1000, and some kernels hang under one tool only. So the
limit of a step is a multiple of the time that other tools needed for the whole solution, as soon as one has finished.
Time in which the tools are paused does not count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.referee.audit.sanitizer import SanitizerTool

OPEN_LIMIT_S = 20.0
"""For opening the device under a tool, before any code of the solution runs."""

STEP_LIMIT_S = 90.0
"""For importing the solution, and for each call, while no other tool has finished."""

STEP_FLOOR_S = 20.0
"""Lower bound of each step's limit, however fast the other tools were."""

TIMES_OTHERS = 8.0
"""Limit of one step, as a multiple of the time of the slowest other tool for the whole solution."""

END_LIMIT_S = 10.0
"""For the contestant's exit, in which the tool writes its findings."""

WALL_LIMIT_S = 600.0
"""For each step, including time in which it is paused."""

_LOOK_S = 0.2, 5.0
"""Bounds of the interval between two looks; seldom, because others may be timed meanwhile."""


class ToolPaces:
    """Time that each finished tool took for one solution. Thread-safe."""

    def __init__(self) -> None:
        self._took_s: dict[SanitizerTool, float] = {}
        self._lock = threading.Lock()

    def told(self, tool: SanitizerTool, took_s: float) -> None:
        """Note that `tool` finished after `took_s`, without paused time."""
        with self._lock:  # two tools may finish at once; readers use the old dict, which never changes
            self._took_s = {**self._took_s, tool: took_s}

    def limit_s(self, tool: SanitizerTool) -> float:
        """Current limit of one step under `tool`."""
        others = [took_s for other, took_s in self._took_s.items() if other is not tool]
        return min(STEP_LIMIT_S, max(STEP_FLOOR_S, TIMES_OTHERS * max(others))) if others else STEP_LIMIT_S

    def others(self, tool: SanitizerTool) -> str:
        """Text on the other tools' times; empty if none has finished."""
        others = {other: took_s for other, took_s in self._took_s.items() if other is not tool}
        if not others:
            return ""
        names = ", ".join(other.value for other in others)
        return f"; the whole solution took at most {max(others.values()):.1f} s under {names}"


class ToolTimeouts:
    """Ends one contestant (`give_up`) if a step takes too long by `clock`.

    The clock stands while the contestant is paused. `why` is the reason afterwards, None if no step took too long.
    """

    def __init__(self, clock: Callable[[], float], give_up: Callable[[], None]) -> None:
        self._clock = clock
        self._give_up = give_up
        self.why: str | None = None

    @contextmanager
    def step(self, what: str, limit_s: Callable[[], float], more: Callable[[], str] = str) -> Iterator[None]:
        """Watch one step named `what`, with the limit `limit_s`, asked repeatedly.

        `more` adds text to the reason.
        """
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over, what, limit_s, more), name="patience", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _watch(self, over: threading.Event, what: str, limit_s: Callable[[], float], more: Callable[[], str]) -> None:
        begin = self._clock()
        least, most = _LOOK_S
        while True:
            limit = limit_s()
            left_s = limit - (self._clock() - begin)
            if left_s <= 0.0:
                self.why = f"{what} took more than {limit:.0f} s{more()}"
                self._give_up()
                return
            if over.wait(min(most, max(least, left_s / 2))):
                return

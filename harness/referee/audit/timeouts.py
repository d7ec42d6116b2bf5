"""How long a tool of an audit may take over one step of a solution, and what is said of one that took longer.

Trusted side; used by `auditor`. Imports `sanitizers`. A tool slows kernels down by factors of 10 to 1000, and some
kernels hang under one tool alone. So a step's limit is a multiple of what other tools took for all of the same
solution, as soon as one of them is through. Time in which the tools are held still counts for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.referee.audit.sanitizer import SanitizerTool

OPEN_LIMIT_S = 20.0
"""For opening the device under a tool, before anything of the solution is there."""

STEP_LIMIT_S = 90.0
"""For importing the solution, and for each call, while no other tool has come to its end."""

STEP_FLOOR_S = 20.0
"""What each step may take, however little the other tools took."""

TIMES_OTHERS = 8.0
"""How much longer than the slowest other tool, over all of the solution, one step of a tool may take."""

END_LIMIT_S = 10.0
"""How long a contestant may take to end, in which the tool writes what it knows."""

WALL_LIMIT_S = 600.0
"""For each step, with the time in which it is held still."""

_LOOK_S = 0.2, 5.0
"""Bounds of the time between two looks: seldom, since others may be timed meanwhile."""


class ToolPaces:
    """What each tool took for one solution, told by those that came to their end. Safe for threads."""

    def __init__(self) -> None:
        self._took_s: dict[SanitizerTool, float] = {}
        self._lock = threading.Lock()

    def told(self, tool: SanitizerTool, took_s: float) -> None:
        """`tool` came to its end after this long, not counting when it was held."""
        with self._lock:  # two that end at once are both to count; whoever reads has a dict that stays as it is
            self._took_s = {**self._took_s, tool: took_s}

    def limit_s(self, tool: SanitizerTool) -> float:
        """What one step under `tool` may take, by what is known now."""
        others = [took_s for other, took_s in self._took_s.items() if other is not tool]
        return min(STEP_LIMIT_S, max(STEP_FLOOR_S, TIMES_OTHERS * max(others))) if others else STEP_LIMIT_S

    def others(self, tool: SanitizerTool) -> str:
        """Words on what the others took, empty where none came to its end."""
        others = {other: took_s for other, took_s in self._took_s.items() if other is not tool}
        if not others:
            return ""
        names = ", ".join(other.value for other in others)
        return f"; all of it took {max(others.values()):.1f} s at most under {names}"


class ToolTimeouts:
    """Ends one contestant (`give_up`) whose step takes too long by `clock`, which stands while it is held still.

    `why` says so afterwards; None where none took too long.
    """

    def __init__(self, clock: Callable[[], float], give_up: Callable[[], None]) -> None:
        self._clock = clock
        self._give_up = give_up
        self.why: str | None = None

    @contextmanager
    def step(self, what: str, limit_s: Callable[[], float], more: Callable[[], str] = str) -> Iterator[None]:
        """One step, named by `what`, which may take `limit_s` (asked again and again); `more` is said behind it."""
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
                self.why = f"{what} was not over within {limit:.0f} s{more()}"
                self._give_up()
                return
            if over.wait(min(most, max(least, left_s / 2))):
                return

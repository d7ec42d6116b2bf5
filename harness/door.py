"""Who opens a GPU context next: a few audits at a time, and contestants that are to be judged before any of them.

Trusted side; used by `auditor` and `prefork`. The driver opens contexts one after another, whoever asks for them, and
in no order: of twelve audits that asked at once, a contestant whose turn had come waited for most.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PLACES = 3
"""Audits that open their contexts at a time: while one is at its tool's handshake or its fork, the driver is another's.
More of them only wait for one another."""

LOOK_S = 1.0
"""How often one that waits looks by itself: seldom, since something may be timed meanwhile. It is told (`look_again`)
when what it waits for has changed."""


class Door:
    """Safe for threads."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._changed = threading.Condition()
        self._inside = 0
        self._first: list[Callable[[], bool]] = []
        self._line: deque[object] = deque()

    @contextmanager
    def first(self, stands: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Enter at once. Nobody does in turn meanwhile, unless it `stands` still: whoever holds it may wait for those
        in the line."""
        with self._changed:
            self._first.append(stands)
        try:
            yield
        finally:
            with self._changed:
                self._first.remove(stands)
                self._changed.notify_all()

    @contextmanager
    def in_turn(
        self, given_up: Callable[[], bool] = lambda: False, still: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Enter when there is a place, in the order of asking, and not while it is to be `still`: True then, False
        where it is `given_up` before. Whoever changes what these say calls `look_again`."""
        mine = object()
        with self._changed:
            self._line.append(mine)
            while not (given := given_up()) and (still() or not self._is_open_to(mine)):
                self._changed.wait(LOOK_S)
            self._line.remove(mine)
            self._inside += not given
            self._changed.notify_all()  # for whoever is the next in line
        try:
            yield not given
        finally:
            with self._changed:
                self._inside -= not given
                self._changed.notify_all()

    def look_again(self) -> None:
        """Have those in the line look whether they may enter now, or leave."""
        with self._changed:
            self._changed.notify_all()

    def _is_open_to(self, who: object) -> bool:
        others = self._inside >= self._places or self._line[0] is not who
        return not others and all(stands() for stands in self._first)

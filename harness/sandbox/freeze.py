"""Stops every process of a sandbox while it is not its turn, and lets them go on; from outside, by its owner.

Imports `limits`. Trusted side. A submission's threads live on between the calls that it is asked for: they could fill
in answers after the reply, compute on the next inputs while those are being drawn, or keep the cores busy while the
reference is timed. SIGSTOP can't be caught, blocked or ignored, and where it comes from an outer pid namespace not
even a first process is spared.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from harness.sandbox.limits import descendants

STOP_TIMEOUT_S = 5.0
"""How long to chase processes that go on making new ones; a sandbox has at most some thousand."""

_RUNS = frozenset("RS")
"""States in /proc of a thread that may be in its own code when looked at next. One in a system call that can't be
interrupted (D) meets the signal before it returns to it."""


class StopError(Exception):
    """The processes could not all be stopped in time: only code that runs away from the signal does that.

    `stopped` are those that were told.
    """

    def __init__(self, stopped: Sequence[int]) -> None:
        super().__init__(f"{len(stopped)} processes could not be stopped within {STOP_TIMEOUT_S:g} s")
        self.stopped = tuple(stopped)


class Below:
    """Everything below one supervisor, and whether it stands still. Not safe for threads."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._told: tuple[int, ...] = ()
        """What was told to stop the last time."""
        self._goes = True
        """Whether nothing was told to stop since it was let go on."""
        self._still = False
        """Whether all that was told was seen to stand still."""

    def tell(self) -> None:
        """Tell everything to stop, without waiting until it does, as `stop` will. Idempotent."""
        if self._goes:
            self._goes, self._told = False, tell(self._root)

    def stop(self) -> float:
        """Stop everything; the `time.perf_counter()` at which the last of it was told. Raises `StopError`."""
        self._goes = self._still = False
        try:
            told_s, self._told = stop(self._root, self._told)
        except StopError as error:
            self._told = error.stopped
            raise
        self._still = True
        return told_s

    def go_on(self) -> None:
        """Let it go on, whether it was stopped or told. Idempotent."""
        if self._still:
            resume(self._told)
        elif not self._goes:
            recall(self._root, self._told)
        self._goes, self._still = True, False


def tell(root: int) -> tuple[int, ...]:
    """Tell every process below `root` to stop, and return them without waiting until they do.

    A head start for `stop`, and nothing to rely on: one in a long system call comes to the call's end first, and one
    that is made meanwhile is missed. `recall` takes it back.
    """
    found = tuple(descendants(root))
    _signal(found, signal.SIGSTOP)
    return found


def recall(root: int, told: Sequence[int]) -> None:
    """Let the processes go on that were told to stop, and may not have done so: those of them still below `root`.

    One that was told may have been ending, and its id be another sandbox's by now, where something is to stand still.
    """
    found = descendants(root)
    _signal([*set(told).intersection(found), *_missed(root, told, found)], signal.SIGCONT)


def stop(root: int, known: Sequence[int] = ()) -> tuple[float, tuple[int, ...]]:
    """Stop every process below `root` (a supervisor, which itself goes on).

    Returns the `time.perf_counter()` at which the last of them was told, and all that are stopped. `known` are those
    that were stopped the last time: they are told at once, since looking through /proc takes a millisecond. A process
    id that has been given to another process since is harmless: nothing but this sandbox's are below `root`, and only
    those are signalled. Raises `StopError`.
    """
    told: set[int] = set(known) & set(_children(root)) if known else set()
    _signal(sorted(told), signal.SIGSTOP)
    told_s = time.perf_counter()
    deadline_s = told_s + STOP_TIMEOUT_S
    while True:
        found = descendants(root)
        if fresh := [pid for pid in found if pid not in told]:
            _signal(fresh, signal.SIGSTOP)
            told_s = time.perf_counter()
            told.update(fresh)
        elif not any(_running(pid) for pid in found) and told.issuperset(descendants(root)):
            # The last walk, while all that is known stands still, finds what changed its parent during those before;
            # and what was told to stop, but found no more, has to be let go on as well.
            return told_s, (*found, *_missed(root, told, found))
        if time.perf_counter() > deadline_s:
            raise StopError(found)


def resume(stopped: Sequence[int]) -> None:
    """Let the processes go on that `stop` has stopped; being stopped, they still are who they were."""
    _signal(stopped, signal.SIGCONT)


def _missed(root: int, told: Collection[int], found: Collection[int]) -> list[int]:
    """Those `told` that a walk has not `found`, since their parent ended while it went on."""
    return [pid for pid in set(told).difference(found) if _parent(pid) in (root, *told)]


def _children(root: int) -> list[int]:
    """The direct children of a supervisor, which has one thread: the confined process, and what it has lost."""
    with suppress(OSError), open(f"/proc/{root}/task/{root}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]
    return []


def _parent(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return None


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _running(pid: int) -> bool:
    """Whether any thread of this process may still be in its own code."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                # The name in parentheses may hold anything, more parentheses too.
                if chr(file.read().rpartition(b")")[2].lstrip()[0]) in _RUNS:
                    return True
    return False

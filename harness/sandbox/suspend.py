"""Stop and resume all processes of a sandbox from outside, by SIGSTOP.

Trusted side. Threads of a submission live on between calls; they could work on answers and inputs, or load the cores
during timing. SIGSTOP cannot be caught, blocked or ignored. But SIGCONT can undo it, from a process that was not
stopped yet or from the kernel. So running processes get the signal again, and before a stopped process may resume,
`moved` checks whether it ran. See guides/design/sandbox.md.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.sandbox.limits import descendants

STOP_TIMEOUT_S = 5.0
"""Time limit in seconds for processes that keep forking or undo the signal; a sandbox has at most some thousand."""

STARVED_S = 60.0
"""Time limit in seconds for processes with a pending signal that wait for a processor or are inside the kernel."""

LOOK_S = 0.1
"""Longest time in seconds that one look counts towards a time limit; a look takes 1 ms. If the machine delays the look
longer, no process had time to run away either.
"""

AT_ONCE_S = 0.05
"""Time in seconds during which looks repeat without a pause; longer than a stop takes on free processors."""

_RUNS = frozenset("RS")
"""States in /proc of a thread that may run its own code at the next look. An uninterruptible call (D) handles the
signal before it returns to that code.
"""

_STOPPED = "T"
_STANDS = frozenset("TtZXD")
"""States in /proc of a thread that runs no code of its own."""

_EXITING = 0x4
"""Flag in /proc of a thread that is ending and handles no signal any more (`PF_EXITING` of the kernel)."""

_IDLE_NICE = 20
"""Nice value for SCHED_IDLE: lower priority than every real one."""

_SLIP_NS = 50_000
"""Processor time in nanoseconds that a stopped thread may get once, if it was interrupted while stopping."""


class StopError(Exception):
    """Some processes could not be stopped in time.

    Either they evade the signal or keep the kernel busy for them, or (`starved`) they had no processor to handle it.

    Attributes:
        stopped: Processes that got the signal.
        starved: Whether they lacked processor time.
    """

    def __init__(self, stopped: Sequence[int], within_s: float, *, starved: bool = False) -> None:
        super().__init__(f"{len(stopped)} processes could not be stopped within {within_s:g} s")
        self.stopped = tuple(stopped)
        self.starved = starved


@dataclass(frozen=True, slots=True)
class _Thread:
    """State of one thread in /proc.

    `arrivals` counts how often it got a processor, `ran_ns` for how long, `in_line_ns` how long it waited for one.
    """

    state: str
    exiting: bool
    arrivals: int
    ran_ns: int
    nice: int = 0
    in_line_ns: int = 0


@dataclass(frozen=True, slots=True)
class Stopped:
    """Processes stopped by `stop`, and the state of their threads.

    `told_s` is the `time.perf_counter()` of the last signal.
    """

    told_s: float
    pids: tuple[int, ...]
    threads: Mapping[int, Mapping[int, _Thread]]


class _Waiting:
    """Time spent waiting for stopping processes."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._last_s = time.perf_counter()

    def has_looked(self) -> None:
        """Count one more look; pause first if the wait is long, to free the processor."""
        if self.waited_s > AT_ONCE_S:
            time.sleep(0.001)
        now_s = time.perf_counter()
        self.waited_s += min(now_s - self._last_s, LOOK_S)
        self._last_s = now_s


class Below:
    """All processes below one supervisor, and whether they are stopped.

    Not safe for threads.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._told: tuple[int, ...] = ()
        self._goes = True
        self._still: Stopped | None = None

    def tell(self) -> None:
        """Send the stop signal to all processes without waiting. Idempotent."""
        if self._goes:
            self._goes, self._told = False, tell(self._root)

    def stop(self) -> float:
        """Stop all processes.

        Returns:
            Time (`time.perf_counter()`) of the last signal.

        Raises:
            StopError: Some processes could not be stopped in time.
        """
        self._goes, self._still = False, None
        try:
            stopped = stop(self._root, self._told)
        except StopError as error:
            self._told = error.stopped
            raise
        self._told, self._still = stopped.pids, stopped
        return stopped.told_s

    def moved(self) -> bool:
        """Return whether any thread ran since `stop`; a killed process counts as moved.

        False if nothing is stopped. Waits for kernel calls that are about to return.

        Raises:
            StopError: The wait took too long.
        """
        if self._still is None:
            return False
        waiting = _Waiting()
        while (ran := _any_has_run(self._still.threads, self._root)) is None:
            waiting.has_looked()
            if waiting.waited_s > STOP_TIMEOUT_S:
                # The id of an ended process may belong to another sandbox by now.
                if any(_goes_on(pid) for pid in set(self._still.pids).intersection(descendants(self._root))):
                    return True
                if waiting.waited_s > STARVED_S:
                    raise _too_late(self._still.pids, self._still.threads, self._root)
        return ran

    @property
    def in_line_s(self) -> float:
        """Total time in seconds that the stopped threads have waited for a processor.

        0 if nothing is stopped or the kernel does not count it.
        """
        held = self._still.threads.values() if self._still is not None else ()
        return sum(thread.in_line_ns for threads in held for thread in threads.values()) * 1e-9

    def go_on(self) -> None:
        """Resume all processes after `stop` or `tell`. Idempotent."""
        if self._still is not None:
            resume(self._told)
        elif not self._goes:
            recall(self._root, self._told)
        self._goes, self._still = True, None


def tell(root: int) -> tuple[int, ...]:
    """Send SIGSTOP to all processes below `root` and return them, without waiting.

    This only gives `stop` a head start: a process in a long system call stops at its end, and new processes are missed.
    `recall` undoes it.
    """
    found = tuple(descendants(root))
    _signal(found, signal.SIGSTOP)
    return found


def recall(root: int, told: Sequence[int]) -> None:
    """Resume the processes of `tell` that are still below `root`.

    An id of an ended process may belong to another, stopped sandbox by now.
    """
    found = descendants(root)
    _signal([*set(told).intersection(found), *_missed(root, told, found)], signal.SIGCONT)


def stop(root: int, known: Sequence[int] = ()) -> Stopped:
    """Stop all processes below a supervisor, which itself continues.

    Reused process ids do no harm: only processes below `root` get the signal.

    Args:
        root: Process id of the supervisor.
        known: Processes stopped last time; they get the signal at once, because a walk through /proc takes 1 ms.

    Returns:
        The stopped processes and their threads.

    Raises:
        StopError: Some processes could not be stopped in time.
    """
    told: set[int] = set(known) & set(_children(root)) if known else set()
    _tell_to_stop(told, told)
    told_s = time.perf_counter()
    first: dict[int, Mapping[int, _Thread]] = {}
    waiting, evaded_s = _Waiting(), 0.0
    while True:
        found = descendants(root)
        if late := [pid for pid in found if pid not in told]:
            told.update(late)
        else:
            held = _threads(found)
            first = held | first
            running = [pid for pid, threads in held.items() if _any_runs(threads)]
            if not running and told.issuperset(descendants(root)):
                # The last walk, with all known processes stopped, finds processes whose parent changed during the
                # earlier walks. Processes that got the signal but were not found must be resumed later as well.
                missed = _missed(root, told, found)
                again = _threads((*found, *missed))
                # During the look at one thread after another, new threads may start, or a whole process may be ending.
                if all(_lasting(again[pid]) == _lasting(held[pid]) and not _any_runs(again[pid]) for pid in found):
                    return Stopped(told_s, (*found, *missed), again)
            late = [pid for pid in running if _goes_on(pid)]
        if late:
            _tell_to_stop(late, found)
            told_s = time.perf_counter()
        waited_s = waiting.waited_s
        waiting.has_looked()
        if late:
            # Only such looks count: a thread that is about to stop looks for a moment as if it had undone the signal.
            evaded_s += waiting.waited_s - waited_s
        if evaded_s > STOP_TIMEOUT_S:
            raise StopError(found, STOP_TIMEOUT_S)
        if waiting.waited_s > STARVED_S:
            raise _too_late(found, first, root)


def _too_late(told: Sequence[int], before: Mapping[int, Mapping[int, _Thread]], root: int) -> StopError:
    """Return the error after `STARVED_S`, and decide whether the processes starved.

    They did not starve if, together, they got much processor time since `before`, or if any of them has a lower
    priority. So a call that keeps the kernel busy for minutes does not look like a busy machine.
    """
    now = _threads([pid for pid in descendants(root) if pid in before])
    ran_ns = sum(
        held.ran_ns - (earlier.ran_ns if (earlier := before[pid].get(number)) is not None else 0)
        for pid, threads in now.items()
        for number, held in threads.items()
    )
    usual = max((held.nice for held in _threads([root])[root].values()), default=0)
    gave_way = any(held.nice > usual for threads in now.values() for held in threads.values() if held.state in _RUNS)
    return StopError(told, STARVED_S, starved=ran_ns < STOP_TIMEOUT_S * 1e9 and not gave_way)


def is_ending(pid: int) -> bool:
    """Return whether a process is ending or gone and runs no own code any more."""
    return all(map(_is_ending, _threads([pid])[pid].values()))


def resume(stopped: Sequence[int]) -> None:
    """Resume processes stopped by `stop`; stopped processes keep their ids."""
    _signal(stopped, signal.SIGCONT)


def _missed(root: int, told: Collection[int], found: Collection[int]) -> list[int]:
    """Return the `told` processes that a walk missed because their parent ended."""
    return [pid for pid in set(told).difference(found) if _parent(pid) in (root, *told)]


def _children(root: int) -> list[int]:
    """List the direct children of a supervisor, which has one thread."""
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


def _tell_to_stop(late: Collection[int], everybody: Collection[int]) -> None:
    """Send SIGSTOP to the late ones, then to all once more.

    One of the late ones may have resumed a process that was told earlier.
    """
    _signal(sorted(late), signal.SIGSTOP)
    if len(everybody) > 1:
        _signal(sorted(everybody), signal.SIGSTOP)


def _goes_on(pid: int) -> bool:
    """Return whether a running process runs because the signal was undone.

    Otherwise the signal is pending, or one thread is already stopped by it.
    """
    with suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = int(file.read().partition(b"\nShdPnd:")[2].split()[0], 16)
        if pending >> (signal.SIGSTOP - 1) & 1:
            return False
        threads = _threads([pid])[pid].values()
        return any(not held.exiting for held in threads) and all(held.state != _STOPPED for held in threads)
    return False


def _any_runs(threads: Mapping[int, _Thread]) -> bool:
    """Return whether any of these threads may still run its own code."""
    return any(held.state in _RUNS for held in threads.values())


def _lasting(threads: Mapping[int, _Thread]) -> set[int]:
    """Return the numbers of the threads that are not ending."""
    return {number for number, held in threads.items() if not _is_ending(held)}


def _is_ending(thread: _Thread) -> bool:
    return thread.exiting or thread.state in "ZX"


def _threads(pids: Sequence[int]) -> dict[int, dict[int, _Thread]]:
    """Read the threads of each of these processes."""
    found: dict[int, dict[int, _Thread]] = {pid: {} for pid in pids}
    for pid in pids:
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(f"/proc/{pid}/task")
        for name in names:
            if (held := _thread(f"/proc/{pid}/task/{name}")) is not None:
                found[pid][int(name)] = held
    return found


def _thread(folder: str) -> _Thread | None:
    """Read one thread's state from /proc; None if it is gone.

    The state is read first, so the processor time of a stopped thread is complete.
    """
    try:
        with open(f"{folder}/stat", "rb") as file:
            # The name in parentheses may contain any character, also parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    ran_ns = in_line_ns = arrivals = 0
    with suppress(OSError, ValueError), open(f"{folder}/schedstat", "rb") as file:
        ran_ns, in_line_ns, arrivals = map(int, file.read().split())  # zeros if the kernel does not count
    nice = _IDLE_NICE if int(fields[38]) == os.SCHED_IDLE else int(fields[16])
    return _Thread(fields[0].decode("ascii"), bool(int(fields[6]) & _EXITING), arrivals, ran_ns, nice, in_line_ns)


def _any_has_run(before: Mapping[int, Mapping[int, _Thread]], root: int) -> bool | None:
    """Return whether any thread ran or was created since `before`; None if unclear."""
    found = descendants(root)
    now = _threads([*before, *(pid for pid in found if pid not in before)])
    looks = [
        _has_run(before.get(pid, {}).get(number), now[pid].get(number))
        for pid in now
        # The id of an ended process may belong to another sandbox by now.
        for number in {*before.get(pid, {}), *(now[pid] if pid in found else ())}
    ]
    return True if True in looks else None if None in looks else False


def _has_run(before: _Thread | None, now: _Thread | None) -> bool | None:
    """Return whether a thread ran while it should be stopped.

    An ending thread did not run; a stopped thread that is gone did. None if an uninterruptible kernel call may just
    have ended.
    """
    ended = now is None or _is_ending(now)
    if before is None:
        return not ended
    if _is_ending(before):
        return False
    if before.state == "D":  # it stops at the end of the call
        return None if now is not None and not ended and now.state not in _STANDS else False
    if now is None or ended or now.state not in _STANDS:
        return True
    more = now.arrivals - before.arrivals
    return more > 1 or (more == 1 and now.ran_ns - before.ran_ns > _SLIP_NS)

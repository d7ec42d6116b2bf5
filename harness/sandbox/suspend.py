"""Stops every process of a sandbox while it is not its turn, and lets them go on; from outside, by its owner.

Imports `limits`. Trusted side. A submission's threads live on between the calls that it is asked for: they could fill
in answers after the reply, compute on the next inputs while those are being drawn, or keep the cores busy while the
reference is timed. SIGSTOP can't be caught, blocked or ignored, and where it comes from an outer pid namespace not
even a first process is spared.

It can be undone, though. SIGCONT from a process that was not told yet takes back a SIGSTOP that another one has just
got: so what goes on although it was told is told again, and the time at which everything was told is that of the last
time. And the kernel sends SIGCONT by itself (a timer with that signal, the end of a relative): so whatever was stopped
is looked at before it may go on, and counts as moved if it had the processor meanwhile, or has come to its end.
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
"""How long to chase processes that go on making new ones, or that take the signal back; a sandbox has at most some
thousand."""

STARVED_S = 60.0
"""How long to wait for what was told, and takes the signal as soon as it gets a processor, or leaves the kernel."""

LOOK_S = 0.1
"""So much of a look counts at most, which takes a millisecond: a machine too busy to let this one look, or that itself
stood still, has given nobody the time to run away."""

AT_ONCE_S = 0.05
"""How long what was told is looked at again at once; longer than it takes where processors are free."""

_RUNS = frozenset("RS")
"""States in /proc of a thread that may be in its own code when looked at next. One in a system call that can't be
interrupted (D) meets the signal before it returns to it."""

_STOPPED = "T"
_STANDS = frozenset("TtZXD")
"""States in /proc of what runs no code of its own."""

_EXITING = 0x4
"""Among the flags in /proc of a thread: it is ending, and takes no signal any more (`PF_EXITING` of the kernel)."""

_IDLE_NICE = 20
"""For who takes idle processors only (SCHED_IDLE): below the lowest."""

_SLIP_NS = 50_000
"""Processor time that a stopped thread may still get, once, where it was interrupted on its way to standing still."""


class StopError(Exception):
    """The processes could not all be stopped in time. Only code that runs away from the signal does that, or that has
    the kernel at work for it without end, but where they `starved`: then they had no processor to take it on.

    `stopped` are those that were told, `within_s` is what was waited.
    """

    def __init__(self, stopped: Sequence[int], within_s: float, *, starved: bool = False) -> None:
        super().__init__(f"{len(stopped)} processes could not be stopped within {within_s:g} s")
        self.stopped = tuple(stopped)
        self.starved = starved


@dataclass(frozen=True, slots=True)
class _Thread:
    """What /proc says of one thread: its state, whether it is ending, how often it got a processor, for how long, how
    far it lets others go first, and how long it stood in line for a processor.
    """

    state: str
    exiting: bool
    arrivals: int
    ran_ns: int
    nice: int = 0
    in_line_ns: int = 0


@dataclass(frozen=True, slots=True)
class Stopped:
    """What `stop` has stopped: the processes, and the threads of each as they stood then.

    `told_s` is the `time.perf_counter()` at which the last of them was told.
    """

    told_s: float
    pids: tuple[int, ...]
    threads: Mapping[int, Mapping[int, _Thread]]


class _Waiting:
    """How long it has been waited for what was told."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._last_s = time.perf_counter()

    def has_looked(self) -> None:
        """Once more; where that takes long, what is told shall have the processor meanwhile."""
        if self.waited_s > AT_ONCE_S:
            time.sleep(0.001)
        now_s = time.perf_counter()
        self.waited_s += min(now_s - self._last_s, LOOK_S)
        self._last_s = now_s


class Below:
    """Everything below one supervisor, and whether it stands still. Not safe for threads."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._told: tuple[int, ...] = ()
        """What was told to stop the last time."""
        self._goes = True
        """Whether nothing was told to stop since it was let go on."""
        self._still: Stopped | None = None
        """All that was told, once it was seen to stand still."""

    def tell(self) -> None:
        """Tell everything to stop, without waiting until it does, as `stop` will. Idempotent."""
        if self._goes:
            self._goes, self._told = False, tell(self._root)

    def stop(self) -> float:
        """Stop everything; the `time.perf_counter()` at which the last of it was told. Raises `StopError`."""
        self._goes, self._still = False, None
        try:
            stopped = stop(self._root, self._told)
        except StopError as error:
            self._told = error.stopped
            raise
        self._told, self._still = stopped.pids, stopped
        return stopped.told_s

    def moved(self) -> bool:
        """Whether anything has run since `stop` left it standing; what was killed has, too. False where it was not
        stopped. Waits for what a call into the kernel lets go of at this moment. Raises `StopError`.
        """
        if self._still is None:
            return False
        waiting = _Waiting()
        while (ran := _any_has_run(self._still.threads, self._root)) is None:
            waiting.has_looked()
            if waiting.waited_s > STOP_TIMEOUT_S:
                # The id of what has ended may be another sandbox's by now.
                if any(_goes_on(pid) for pid in set(self._still.pids).intersection(descendants(self._root))):
                    return True
                if waiting.waited_s > STARVED_S:
                    raise _too_late(self._still.pids, self._still.threads, self._root)
        return ran

    @property
    def in_line_s(self) -> float:
        """How long all threads that stand since the last `stop` have stood in line for a processor so far, together, in
        seconds; 0 where nothing stands, or the kernel does not count it.
        """
        held = self._still.threads.values() if self._still is not None else ()
        return sum(thread.in_line_ns for threads in held for thread in threads.values()) * 1e-9

    def go_on(self) -> None:
        """Let it go on, whether it was stopped or told. Idempotent."""
        if self._still is not None:
            resume(self._told)
        elif not self._goes:
            recall(self._root, self._told)
        self._goes, self._still = True, None


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


def stop(root: int, known: Sequence[int] = ()) -> Stopped:
    """Stop every process below `root` (a supervisor, which itself goes on).

    `known` are those that were stopped the last time: they are told at once, since looking through /proc takes a
    millisecond. A process id that has been given to another process since is harmless: nothing but this sandbox's are
    below `root`, and only those are signalled. Raises `StopError`.
    """
    told: set[int] = set(known) & set(_children(root)) if known else set()
    _signal(sorted(told), signal.SIGSTOP)
    told_s = time.perf_counter()
    first: dict[int, Mapping[int, _Thread]] = {}
    waiting = _Waiting()
    while True:
        found = descendants(root)
        if late := [pid for pid in found if pid not in told]:
            told.update(late)
        else:
            held = _threads(found)
            first = held | first
            running = [pid for pid, threads in held.items() if _any_runs(threads)]
            if not running and told.issuperset(descendants(root)):
                # The last walk, while all that is known stands still, finds what changed its parent during those
                # before; and what was told to stop, but found no more, has to be let go on as well.
                missed = _missed(root, told, found)
                again = _threads((*found, *missed))
                # While one thread after another is looked at, others may be made, or all of a process be told to end.
                if all(_lasting(again[pid]) == _lasting(held[pid]) and not _any_runs(again[pid]) for pid in found):
                    return Stopped(told_s, (*found, *missed), again)
            late = [pid for pid in running if _goes_on(pid)]
        if late:
            _signal(late, signal.SIGSTOP)
            told_s = time.perf_counter()
        waiting.has_looked()
        if late and waiting.waited_s > STOP_TIMEOUT_S:
            raise StopError(found, STOP_TIMEOUT_S)
        if waiting.waited_s > STARVED_S:
            raise _too_late(found, first, root)


def _too_late(told: Sequence[int], before: Mapping[int, Mapping[int, _Thread]], root: int) -> StopError:
    """After `STARVED_S`. Who had processors for long since it was as `before`, all together, did not want for one, nor
    did who lets all others go first: a call that keeps the kernel busy for minutes must not pass for a busy machine.
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
    """Whether a process runs no code of its own any more, since it is ending, or gone."""
    return all(map(_is_ending, _threads([pid])[pid].values()))


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


def _goes_on(pid: int) -> bool:
    """Whether a process that was told to stop, and runs, does so because the signal was taken back.

    Else the signal is pending, or, since the thread that takes it stops in the same moment, a thread stands by it.
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
    """Whether any of these threads may still be in its own code."""
    return any(held.state in _RUNS for held in threads.values())


def _lasting(threads: Mapping[int, _Thread]) -> set[int]:
    """The numbers of those of these threads that are not ending."""
    return {number for number, held in threads.items() if not _is_ending(held)}


def _is_ending(thread: _Thread) -> bool:
    return thread.exiting or thread.state in "ZX"


def _threads(pids: Sequence[int]) -> dict[int, dict[int, _Thread]]:
    """The threads of each of these processes."""
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
    """What /proc says of one thread; None where it is gone. The state is read first, so that of one that stands, all
    the processor time is known.
    """
    try:
        with open(f"{folder}/stat", "rb") as file:
            # The name in parentheses may hold anything, more parentheses too.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    ran_ns = in_line_ns = arrivals = 0
    with suppress(OSError, ValueError), open(f"{folder}/schedstat", "rb") as file:
        ran_ns, in_line_ns, arrivals = map(int, file.read().split())  # zeros where the kernel does not count
    nice = _IDLE_NICE if int(fields[38]) == os.SCHED_IDLE else int(fields[16])
    return _Thread(fields[0].decode("ascii"), bool(int(fields[6]) & _EXITING), arrivals, ran_ns, nice, in_line_ns)


def _any_has_run(before: Mapping[int, Mapping[int, _Thread]], root: int) -> bool | None:
    """Whether any thread has run since it was as it was `before`, or was made since; None where that will show."""
    found = descendants(root)
    now = _threads([*before, *(pid for pid in found if pid not in before)])
    looks = [
        _has_run(before.get(pid, {}).get(number), now[pid].get(number))
        for pid in now
        # The id of one that was ending may be another sandbox's by now.
        for number in {*before.get(pid, {}), *(now[pid] if pid in found else ())}
    ]
    return True if True in looks else None if None in looks else False


def _has_run(before: _Thread | None, now: _Thread | None) -> bool | None:
    """Whether a thread that was to stand still has run meanwhile. One that was ending has not; who stood has, where it
    is gone. None where a call into the kernel that could not be interrupted may just have come to its end.
    """
    ended = now is None or _is_ending(now)
    if before is None:
        return not ended
    if _is_ending(before):
        return False
    if before.state == "D":  # it stops where the call ends
        return None if now is not None and not ended and now.state not in _STANDS else False
    if now is None or ended or now.state not in _STANDS:
        return True
    more = now.arrivals - before.arrivals
    return more > 1 or (more == 1 and now.ran_ns - before.ran_ns > _SLIP_NS)

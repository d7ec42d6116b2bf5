"""Which solution is built next and which is judged next, and where: a bounded hand-over between builders and slots.

Control layer, trusted side; no process, no clock, no I/O. A *slot* judges one solution at a time (one GPU). A referee
keeps one problem ready, so a slot goes on with its problem while there is work for it, then takes one that no other
slot is at, and only then steals from another's. While nothing is ready it is told which problem will likely come
first, to get that ready meanwhile: it counts as the slot's own from then on.

Decision: where jobs keep coming, a problem of which there is always one more would hold its slot for ever, and whoever
waits for another's verdict would never get it. So what was built first is passed over `MOST_PASSED_OVER` times at most;
then the next slot takes it, and goes on with its problem; the order of builds has the same bound. A run whose jobs are
all known has none: nobody waits for one of them alone, and each change of problems costs time.

Builds run ahead of the slots, but not without bound: what is built and not judged holds leases (open files) on the
cache's entries. What each solution will take nobody knows: slots whose problems are quick to judge take over from those
whose aren't, for which `tests/unit/runner/test_scheduler_mixes.py` has simulations.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")
B = TypeVar("B")

MOST_PASSED_OVER = 32
"""How often slots may take others before what has been built for longest, where jobs keep coming. Changing problems and
coming back then is a small part of the time, whatever comes; and about as many are built ahead, so that those which
came together are judged problem by problem as ever."""

MOST_FORESEEN = 4
"""Problems at most of which a slot is told that they are likely to come, the likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSolution(Generic[J, B]):
    """A job that is built and waits for a slot. `problem` is what jobs are grouped by."""

    job: J
    problem: Hashable
    built: B


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenSolution(Generic[J]):
    """Nothing is ready for a slot, and its problem has nothing more to come. Jobs that it may take next, one a problem,
    the likeliest first: that one's problem is to be got ready.
    """

    jobs: tuple[J, ...]


def choose(
    waiting: Counter[Hashable], mine: Hashable | None, others: Iterable[Hashable], coming: Mapping[Hashable, int] = {}
) -> Hashable:
    """The problem that a slot goes on with: its own, one that no other slot is at, or the one with most left for each
    that would be at it.

    `waiting` counts what is ready of each problem, in the order in which they are to be done; it is not empty. `others`
    has the problem of each other slot, `coming` counts what is not ready yet.
    """
    if mine is not None and waiting[mine]:
        return mine
    at = Counter(others)
    free = next((problem for problem in waiting if problem not in at and waiting[problem]), None)
    if free is not None:
        return free
    return max(waiting, key=lambda problem: (waiting[problem] + coming.get(problem, 0)) / (1 + at[problem]))


def dealt(jobs: Iterable[tuple[Hashable, J]], slots: int) -> list[tuple[Hashable, J]]:
    """The jobs in the order in which they are built: problems dealt out to as many hands as there are `slots`, each to
    the one with the fewest jobs so far, and one job of each hand after another.

    So each slot finds a problem of its own from the first build on, and as much work behind it as the others: where
    problems came one after another, the last ones were shared by all, and made ready as often.
    """
    problems: dict[Hashable, list[tuple[Hashable, J]]] = {}
    for problem, job in jobs:
        problems.setdefault(problem, []).append((problem, job))
    hands: list[list[tuple[Hashable, J]]] = [[] for _ in range(max(1, slots))]
    for held in problems.values():
        min(hands, key=len).extend(held)
    return [job for row in itertools.zip_longest(*hands) for job in row if job is not None]


class Schedule(Generic[J, B]):
    """Jobs on their way from waiting to judged. Safe for threads; what blocks is woken by `stop`.

    `ahead` is how many may be built and not judged. Where `more` come later (`add`), only `stop` ends it, and so many
    `slots` will take them, of which none may be open yet.
    """

    def __init__(self, jobs: Iterable[tuple[Hashable, J]], *, ahead: int, more: bool = False, slots: int = 0) -> None:
        self._waiting = deque(jobs)
        self._ahead = ahead
        self._more = more
        self._slots = slots
        self._left_behind = 0
        """How often others were built before what has waited for longest, and may be built."""
        self._ready: deque[BuiltSolution[J, B]] = deque()
        self._building: list[tuple[Hashable, J]] = []
        self._withdrawn: list[J] = []
        """Of those being built."""
        self._passed_over = 0
        """How often others were taken before the one that is ready for longest."""
        self._judging = 0
        self._open: set[str] = set()
        self._idle: set[str] = set()
        """Slots that take what is ready as soon as something is."""
        self._at: dict[str, Hashable] = {}
        self._meant: dict[str, list[BuiltSolution[J, B]]] = {}
        self._stopped = False
        self._changed = threading.Condition(threading.RLock())

    def add(self, problem: Hashable, job: J) -> None:
        """One more, behind the others; forgotten after `stop`."""
        with self._changed:
            if not self._stopped:
                self._waiting.append((problem, job))
                self._changed.notify_all()

    def next_build(self) -> tuple[Hashable, J] | None:
        """The next job to build; waits while too many are built already. None when there is none left, nor will be."""
        with self._changed:
            while True:
                if self._stopped or not (self._waiting or self._more):
                    return None
                if self._waiting and len(self._ready) + len(self._building) < self._ahead:
                    self._building.append(self._next_waiting())
                    return self._building[-1]
                self._changed.wait()

    def _next_waiting(self) -> tuple[Hashable, J]:
        """The first one whose problem has not the share of a slot built already: else one whose solutions take long to
        judge would fill all that may be built ahead, and slots at others would leave these for it, and come back.

        Where they come as they like, nobody has dealt them out: then those to few problems are built at a time, but
        what has waited for longest is not left behind for ever.
        """
        slots = max(1, self._slots or len(self._open))
        built = Counter([ready.problem for ready in self._ready])
        built.update(problem for problem, _ in self._building)
        below = [n for n, (problem, _) in enumerate(self._waiting) if built[problem] < self._ahead // slots] or [0]
        number = below[0]
        if self._more and self._left_behind < MOST_PASSED_OVER:
            number = self._one_for_each(slots, below, built)
        self._left_behind = 0 if number == below[0] else self._left_behind + 1
        chosen = self._waiting[number]
        del self._waiting[number]
        return chosen

    def _one_for_each(self, slots: int, among: Sequence[int], built: Mapping[Hashable, int]) -> int:
        """Of these that wait, the first one to a new problem as long as fewer are under way than there are slots, then
        one to that of which least is built.
        """
        new = [number for number in among if self._waiting[number][0] not in built]
        others = [number for number in among if self._waiting[number][0] in built]
        if new and (len(built) < slots or not others):
            return new[0]
        return min(others, key=lambda number: built[self._waiting[number][0]])

    def built(self, ready: BuiltSolution[J, B]) -> bool:
        """A build that `next_build` gave out has succeeded. False where it was withdrawn meanwhile."""
        with self._changed:
            self._building.remove((ready.problem, ready.job))
            wanted = not self._is_withdrawn(ready.job)
            if wanted:
                self._ready.append(ready)
            self._changed.notify_all()
            return wanted

    def settled(self, problem: Hashable, job: J) -> None:
        """A build that `next_build` gave out has failed, and nothing is left to judge of it."""
        with self._changed:
            self._building.remove((problem, job))
            self._is_withdrawn(job)
            self._changed.notify_all()

    def withdraw(self, unwanted: Callable[[J], bool]) -> tuple[list[J], list[BuiltSolution[J, B]]]:
        """Take back all of these jobs that no slot was given: they are returned, and those that were built besides."""
        with self._changed:
            waiting = [job for _, job in self._waiting if unwanted(job)]
            self._waiting = deque(each for each in self._waiting if not unwanted(each[1]))
            ready = [held for held in self._ready if unwanted(held.job)]
            self._ready = deque(held for held in self._ready if not unwanted(held.job))
            building = [
                job for _, job in self._building if unwanted(job) and not any(job is w for w in self._withdrawn)
            ]
            self._withdrawn += building
            self._changed.notify_all()
            return [*waiting, *(held.job for held in ready), *building], ready

    def _is_withdrawn(self, job: J) -> bool:
        """Whether this job, whose build is over, was withdrawn meanwhile; forgets that."""
        before = len(self._withdrawn)
        self._withdrawn = [other for other in self._withdrawn if other is not job]
        return len(self._withdrawn) < before

    def open(self, slot: str) -> None:
        """The slot can begin: from now on `take` gives it something."""
        with self._changed:
            self._open.add(slot)
            self._changed.notify_all()

    @property
    def to_come(self) -> bool:
        """Whether something is left that nobody was given."""
        with self._changed:
            return not self._stopped and bool(self._more or self._ready or self._waiting or self._building)

    def take(self, slot: str, *, within_s: float | None = None) -> BuiltSolution[J, B] | ForeseenSolution[J] | None:
        """What this slot judges next; waits for builds, and until it is open. None when all is judged, or after `stop`.

        Where there is nothing to be taken yet, but something to be foreseen that this slot was not told, it is told so
        at once. With `within_s` it is not, and None comes after so many seconds, or sooner, where nothing is ready.
        """
        with self._changed:
            waited = within_s == 0.0
            while True:
                if self._stopped:
                    return None
                if slot in self._open and (left := self._left_for(slot)):
                    return self._pick(slot, left)
                # A slot that is lost gives its job back: so nobody leaves before the last is judged.
                if waited or not (self.to_come or (within_s is None and self._judging)):
                    return None
                if slot in self._open:
                    if within_s is None and not self._ready and (jobs := self._foresee(slot)):
                        return ForeseenSolution(jobs=jobs)
                    self._idle.add(slot)
                self._changed.wait(within_s)
                self._idle.discard(slot)
                waited = within_s is not None

    def _left_for(self, slot: str) -> list[BuiltSolution[J, B]]:
        """What is ready, less one job for each other slot that waits with its problem ready, and takes it at once."""
        mine = self._at.get(slot)
        theirs = Counter(self._at[name] for name in self._idle - {slot} if self._at.get(name) not in (None, mine))
        left = []
        for ready in self._ready:
            if theirs[ready.problem]:
                theirs[ready.problem] -= 1
            else:
                left.append(ready)
        return left

    def _foresee(self, slot: str) -> tuple[J, ...]:
        """Jobs that this slot may take next, whose first one's problem is its own from now on; none where its problem
        has more to come, or whatever comes is for others.

        First come problems that no other slot is at: those with most builds under way, then as they are to be done.
        """
        coming = Counter(problem for problem, _ in (*self._building, *self._waiting))
        if coming[self._at.get(slot)]:
            return ()
        others = Counter(problem for name, problem in self._at.items() if name != slot)
        under_way = Counter(problem for problem, _ in self._building)
        free = sorted((problem for problem in coming if not others[problem]), key=lambda each: -under_way[each])
        shared = [problem for problem in coming if 0 < others[problem] < coming[problem]]
        likely = free[:MOST_FORESEEN] or sorted(shared, key=lambda each: others[each] - coming[each])[:1]
        if not likely:
            return ()
        self._at[slot] = likely[0]
        jobs = (*self._building, *self._waiting)
        return tuple(next(job for problem, job in jobs if problem == each) for each in likely)

    def upcoming(self, slot: str, count: int) -> list[BuiltSolution[J, B]]:
        """What this slot will most likely take next, at most `count`, one problem after another; other slots leave it
        to this one if they can.
        """
        with self._changed:
            meant, at = self._meant.setdefault(slot, []), self._at.get(slot)
            meant.clear()
            for number in range(min(count, len(self._ready))):
                left = self._for(slot, apart_from=meant)
                if not left:
                    break
                overdue = self._overdue(left, self._passed_over + number)
                meant.append(self._chosen(slot, left, at) if overdue is None else overdue)
                at = meant[-1].problem
            return list(meant)

    def _overdue(self, among: Sequence[BuiltSolution[J, B]], passed_over: int) -> BuiltSolution[J, B] | None:
        """What goes before all others now, being passed over so often; None where nothing does, or not among these."""
        due = self._more and passed_over >= MOST_PASSED_OVER
        return self._ready[0] if due and any(ready is self._ready[0] for ready in among) else None

    def _for(self, slot: str, apart_from: Sequence[BuiltSolution[J, B]] = ()) -> list[BuiltSolution[J, B]]:
        """What is ready and not meant for another slot."""
        taken = [held for name, meant in self._meant.items() if name != slot for held in meant]
        return [ready for ready in self._ready if not any(ready is held for held in (*taken, *apart_from))]

    def _chosen(self, slot: str, among: Sequence[BuiltSolution[J, B]], at: Hashable | None) -> BuiltSolution[J, B]:
        """What this slot goes on with from that problem: not with what others are at or come to, if it can."""
        counts: Counter[Hashable] = Counter(ready.problem for ready in among)
        others = [problem for name, problem in self._at.items() if name != slot]
        for name, meant in self._meant.items():
            if name != slot:
                others += {held.problem for held in meant} - {self._at.get(name)}
        coming = Counter(problem for problem, _ in (*self._building, *self._waiting))
        problem = choose(counts, at, others, coming)
        return next(ready for ready in among if ready.problem == problem)

    def _pick(self, slot: str, left: Sequence[BuiltSolution[J, B]]) -> BuiltSolution[J, B]:
        def is_left(ready: BuiltSolution[J, B]) -> bool:
            return any(ready is held for held in left)

        meant = [ready for ready in self._meant.pop(slot, []) if is_left(ready)]
        overdue = self._overdue(left, self._passed_over)
        free = [ready for ready in self._for(slot) if is_left(ready)]
        # A problem costs more to make ready again than an audit that was not begun ahead.
        same = [ready for ready in (*meant, *free) if ready.problem == self._at.get(slot)]
        chosen = overdue or (same or meant or [self._chosen(slot, free or left, self._at.get(slot))])[0]
        self._passed_over = 0 if chosen is self._ready[0] else self._passed_over + 1
        self._ready = deque(ready for ready in self._ready if ready is not chosen)
        self._at[slot] = chosen.problem
        self._judging += 1
        self._changed.notify_all()
        return chosen

    def judged(self) -> None:
        """What `take` gave out has its verdict."""
        with self._changed:
            self._judging -= 1
            self._changed.notify_all()

    def give_back(self, slot: str, ready: BuiltSolution[J, B]) -> None:
        """The slot is lost before it had a verdict: the job goes to another one, first of all."""
        with self._changed:
            self._judging -= 1
            self._ready.appendleft(ready)
            self.leave(slot)

    def leave(self, slot: str) -> None:
        """The slot is lost: nothing is kept for it any more, and its problem is nobody's."""
        with self._changed:
            if slot in self._open:
                self._open.remove(slot)
                self._slots = max(0, self._slots - 1)
            self._at.pop(slot, None)
            self._meant.pop(slot, None)
            self._changed.notify_all()

    def stop(self) -> None:
        """Give out nothing any more, and wake whoever waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def left_over(self) -> list[BuiltSolution[J, B]]:
        """What is built and will not be judged, after `stop`. Empties it."""
        with self._changed:
            held = list(self._ready)
            self._ready.clear()
            return held

"""Decide which solution is built next, and which one each slot evaluates next.

Trusted side; no processes, no clock, no I/O. A referee keeps one problem loaded. So a slot goes on with its problem
while it has solutions, then takes a problem that no other slot has, and only then shares one. An idle slot learns which
problem probably comes next and loads it. Builds run ahead of the slots, up to a limit, since each build holds open
files of the cache. See guides/design/scheduling.md.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")
B = TypeVar("B")

MOST_PASSED_OVER = 32
"""How often slots may take other solutions before the one built first, if solutions keep coming.

About as many are built ahead, so solutions that came together are still evaluated problem by problem.
"""

MOST_FORESEEN = 4
"""Limit of the problems that are named to an idle slot as probably next, the likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSolution(Generic[J, B]):
    """A solution that is built and waits for a slot.

    `problem` is the key by which solutions are grouped.
    """

    job: J
    problem: Hashable
    built: B


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenSolution(Generic[J]):
    """Nothing is ready for this slot, and its own problem has nothing more to come.

    `jobs` are solutions that it may take next, one per problem, the likeliest first. The slot should load the first
    one's problem.
    """

    jobs: tuple[J, ...]


def choose(
    waiting: Counter[Hashable], mine: Hashable | None, others: Iterable[Hashable], coming: Mapping[Hashable, int] = {}
) -> Hashable:
    """Choose the problem that a slot goes on with.

    It is the slot's own problem, else one that no other slot has, else the one with most solutions per slot.

    Args:
        waiting: Number of ready solutions per problem, in the order of evaluation; not empty.
        mine: The slot's current problem, or None.
        others: The problem of each other slot.
        coming: Number of solutions per problem that are not ready yet.

    Returns:
        A problem of `waiting`.
    """
    if mine is not None and waiting[mine]:
        return mine
    at = Counter(others)
    free = next((problem for problem in waiting if problem not in at and waiting[problem]), None)
    if free is not None:
        return free
    return max(waiting, key=lambda problem: (waiting[problem] + coming.get(problem, 0)) / (1 + at[problem]))


def dealt(jobs: Iterable[tuple[Hashable, J]], slots: int) -> list[tuple[Hashable, J]]:
    """Return the solutions in build order: problems dealt to slots, then interleaved.

    Each problem goes to the slot with the fewest solutions so far, and one solution of each slot follows another. So
    each slot has a problem of its own from the first build on, and about as many solutions as the others.
    """
    problems: dict[Hashable, list[J]] = {}
    for problem, job in jobs:
        problems.setdefault(problem, []).append(job)
    hands: list[list[tuple[Hashable, J]]] = [[] for _ in range(max(1, slots))]
    for problem, held in problems.items():
        min(hands, key=len).extend((problem, job) for job in held)
    return [job for row in itertools.zip_longest(*hands) for job in row if job is not None]


class Schedule(Generic[J, B]):
    """Solutions on their way from waiting to evaluated. Thread-safe.

    `stop` wakes every blocked call. `ahead` limits how many may be built and not evaluated. With `more`, solutions may
    be added later (`add`) until the last ones or `stop`. `slots` is the number of slots, whether they are ready or not.
    If `fair`, no solution is passed over for long while others keep coming; else problems change as rarely as possible.
    """

    def __init__(
        self,
        jobs: Iterable[tuple[Hashable, J]],
        *,
        ahead: int,
        more: bool = False,
        slots: int = 1,
        fair: bool = True,
    ) -> None:
        self._waiting: dict[Hashable, deque[tuple[int, J]]] = {}
        """The solutions that wait for a build, by problem, each with its number in the order of arrival."""
        self._arrivals = itertools.count()
        self._ahead = ahead
        self._more = more
        self._fair = fair
        self._slots = slots
        self._left_behind = 0
        """How often others were built before the solution that has waited longest and may be built."""
        self._ready: deque[BuiltSolution[J, B]] = deque()
        self._building: list[tuple[Hashable, J]] = []
        self._withdrawn: set[J] = set()
        """Solutions that were withdrawn during their build."""
        self._passed_over = 0
        """How often others were taken before the solution that was built first."""
        self._judging = 0
        self._idle: set[str] = set()
        """Slots that wait and take a ready solution at once."""
        self._at: dict[str, Hashable] = {}
        self._meant: dict[str, list[BuiltSolution[J, B]]] = {}
        self._stopped = False
        self._changed = threading.Condition(threading.RLock())
        self._append(jobs)

    def _append(self, jobs: Iterable[tuple[Hashable, J]]) -> None:
        for problem, job in jobs:
            self._waiting.setdefault(problem, deque()).append((next(self._arrivals), job))

    def _arrival(self, problem: Hashable) -> int:
        """Return the number of the problem's solution that has waited longest."""
        return self._waiting[problem][0][0]

    def _coming(self, problem: Hashable) -> int:
        """Return how many of the problem's solutions are not built yet."""
        return len(self._waiting.get(problem, ())) + sum(each == problem for each, _ in self._building)

    def add(self, jobs: Iterable[tuple[Hashable, J]], *, last: bool = False) -> None:
        """Append solutions, the `last` ones or not; ignored after `stop`."""
        with self._changed:
            if not self._stopped:
                self._append(jobs)
                self._more = not last
                self._changed.notify_all()

    def next_build(self) -> tuple[Hashable, J] | None:
        """Return the next solution to build; wait while too many are built already.

        None if no solution is left and none will come.
        """
        with self._changed:
            while True:
                if self._stopped or not (self._waiting or self._more):
                    return None
                if self._waiting and len(self._ready) + len(self._building) < self._ahead:
                    self._building.append(self._next_waiting())
                    return self._building[-1]
                self._changed.wait()

    def _next_waiting(self) -> tuple[Hashable, J]:
        """Remove and return the first solution whose problem is below a slot's share.

        The share is the limit of builds divided by the number of slots. Otherwise one problem with slow evaluations
        would fill the limit, and other slots would run dry. If solutions keep coming, they are not dealt to slots, so
        solutions of few problems are built at a time; but the one that has waited longest is passed over
        `MOST_PASSED_OVER` times at most.
        """
        slots = max(1, self._slots)
        built = Counter([ready.problem for ready in self._ready])
        built.update(problem for problem, _ in self._building)
        below = [problem for problem in self._waiting if built[problem] < self._ahead // slots]
        below = below or [min(self._waiting, key=self._arrival)]
        problem = first = min(below, key=self._arrival)
        if self._more and self._fair and self._left_behind < MOST_PASSED_OVER:
            problem = self._one_for_each(slots, below, built)
        self._left_behind = 0 if problem == first else self._left_behind + 1
        _, job = self._waiting[problem].popleft()
        if not self._waiting[problem]:
            del self._waiting[problem]
        return problem, job

    def _one_for_each(self, slots: int, among: Sequence[Hashable], built: Mapping[Hashable, int]) -> Hashable:
        """Return a new problem while there are fewer problems than slots.

        Those with builds under way or ready count. After that, return the problem with the fewest builds.
        """
        new = [problem for problem in among if problem not in built]
        others = [problem for problem in among if problem in built]
        if new and (len(built) < slots or not others):
            return min(new, key=self._arrival)
        return min(others, key=lambda problem: (built[problem], self._arrival(problem)))

    def built(self, ready: BuiltSolution[J, B]) -> bool:
        """Note a successful build of `next_build`.

        Return False if it was withdrawn meanwhile, or the schedule stopped: then the caller keeps the build.
        """
        with self._changed:
            self._building.remove((ready.problem, ready.job))
            wanted = not self._stopped and ready.job not in self._withdrawn
            self._withdrawn.discard(ready.job)
            if wanted:
                self._ready.append(ready)
            self._changed.notify_all()
            return wanted

    def settled(self, problem: Hashable, job: J) -> None:
        """Note that a build of `next_build` failed, so that nothing is left to evaluate."""
        with self._changed:
            self._building.remove((problem, job))
            self._withdrawn.discard(job)
            self._changed.notify_all()

    def withdraw(self, jobs: Collection[J]) -> tuple[list[J], list[BuiltSolution[J, B]]]:
        """Remove those of these solutions that no slot has taken; return them.

        Returns all removed solutions, and those of them that were built.
        """
        with self._changed:
            waiting = [job for held in self._waiting.values() for _, job in held if job in jobs]
            ready = [each for each in self._ready if each.job in jobs]
            building = [job for _, job in self._building if job in jobs and job not in self._withdrawn]
            for problem, held in list(self._waiting.items()):
                self._waiting[problem] = deque(each for each in held if each[1] not in jobs)
                if not self._waiting[problem]:
                    del self._waiting[problem]
            self._ready = deque(each for each in self._ready if each.job not in jobs)
            self._withdrawn.update(building)
            self._changed.notify_all()
            return [*waiting, *(each.job for each in ready), *building], ready

    @property
    def to_come(self) -> bool:
        """Whether solutions are left that no slot has taken."""
        with self._changed:
            return not self._stopped and bool(self._more or self._ready or self._waiting or self._building)

    def take(self, slot: str, *, within_s: float | None = None) -> BuiltSolution[J, B] | ForeseenSolution[J] | None:
        """Return what this slot evaluates next.

        Waits for builds. Returns None when everything is evaluated, or after `stop`. If nothing is ready, an idle slot
        gets a `ForeseenSolution` once. With `within_s` it does not, and None comes after that many seconds, or sooner
        if nothing is to come.
        """
        with self._changed:
            waited = within_s == 0.0
            while True:
                if self._stopped:
                    return None
                if left := self._left_for(slot):
                    return self._pick(slot, left)
                # A lost slot gives its solution back, so no slot leaves before the last verdict.
                if waited or not (self.to_come or (within_s is None and self._judging)):
                    return None
                if within_s is None and not self._ready and (jobs := self._foresee(slot)):
                    return ForeseenSolution(jobs=jobs)
                self._idle.add(slot)
                self._changed.wait(within_s)
                self._idle.discard(slot)
                waited = within_s is not None

    def _left_for(self, slot: str) -> list[BuiltSolution[J, B]]:
        """Return the ready solutions that idle slots with the same problem do not take."""
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
        """Return solutions that this slot may take next.

        The first one's problem becomes its own.

        Empty if the slot's problem has more to come, or everything is for others. Problems of no other slot come first:
        those with most builds under way, then in the order of evaluation.
        """
        if self._coming(self._at.get(slot)):
            return ()
        others = Counter(problem for name, problem in self._at.items() if name != slot)
        under_way = Counter(problem for problem, _ in self._building)
        coming = dict.fromkeys((*under_way, *sorted(self._waiting, key=self._arrival)))
        free = sorted((problem for problem in coming if not others[problem]), key=lambda each: -under_way[each])
        shared = [problem for problem in coming if 0 < others[problem] < self._coming(problem)]
        likely = free[:MOST_FORESEEN] or sorted(shared, key=lambda each: others[each] - self._coming(each))[:1]
        if not likely:
            return ()
        self._at[slot] = likely[0]
        first = {problem: held[0][1] for problem, held in self._waiting.items() if problem in likely}
        first |= {problem: job for problem, job in reversed(self._building) if problem in likely}
        return tuple(first[problem] for problem in likely)

    def upcoming(self, slot: str, count: int) -> list[BuiltSolution[J, B]]:
        """Return the solutions that this slot will probably take next, at most `count`.

        They are grouped by problem, and other slots leave them to this one if they can.
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
        """Return the solution that was passed over too often, if it is among these."""
        due = self._more and self._fair and passed_over >= MOST_PASSED_OVER
        return self._ready[0] if due and any(ready is self._ready[0] for ready in among) else None

    def _for(self, slot: str, apart_from: Sequence[BuiltSolution[J, B]] = ()) -> list[BuiltSolution[J, B]]:
        """Return the ready solutions that are not meant for another slot."""
        taken = [held for name, meant in self._meant.items() if name != slot for held in meant]
        return [ready for ready in self._ready if not any(ready is held for held in (*taken, *apart_from))]

    def _chosen(self, slot: str, among: Sequence[BuiltSolution[J, B]], at: Hashable | None) -> BuiltSolution[J, B]:
        """Return the solution that this slot takes after that problem.

        It avoids problems that other slots have, or are about to take.
        """
        counts: Counter[Hashable] = Counter(ready.problem for ready in among)
        others = [problem for name, problem in self._at.items() if name != slot]
        for name, meant in self._meant.items():
            if name != slot:
                others += {held.problem for held in meant} - {self._at.get(name)}
        coming = {problem: self._coming(problem) for problem in counts}
        problem = choose(counts, at, others, coming)
        return next(ready for ready in among if ready.problem == problem)

    def _pick(self, slot: str, left: Sequence[BuiltSolution[J, B]]) -> BuiltSolution[J, B]:
        def is_left(ready: BuiltSolution[J, B]) -> bool:
            return any(ready is held for held in left)

        meant = [ready for ready in self._meant.pop(slot, []) if is_left(ready)]
        overdue = self._overdue(left, self._passed_over)
        free = [ready for ready in self._for(slot) if is_left(ready)]
        # Loading a problem again costs more than an audit that was not started ahead.
        same = [ready for ready in (*meant, *free) if ready.problem == self._at.get(slot)]
        chosen = overdue or (same or meant or [self._chosen(slot, free or left, self._at.get(slot))])[0]
        self._passed_over = 0 if chosen is self._ready[0] else self._passed_over + 1
        self._ready = deque(ready for ready in self._ready if ready is not chosen)
        self._at[slot] = chosen.problem
        self._judging += 1
        self._changed.notify_all()
        return chosen

    def judged(self) -> None:
        """Note that a solution of `take` has its verdict."""
        with self._changed:
            self._judging -= 1
            self._changed.notify_all()

    def give_back(self, ready: BuiltSolution[J, B]) -> bool:
        """Note that the slot of this solution was lost without a verdict.

        Another slot takes it first. Return False if the schedule stopped: then the caller keeps the build.
        """
        with self._changed:
            self._judging -= 1
            if not self._stopped:
                self._ready.appendleft(ready)
            self._changed.notify_all()
            return not self._stopped

    def leave(self, slot: str) -> None:
        """Note that the slot is lost: nothing is kept for it, and its problem is free."""
        with self._changed:
            self._slots -= 1
            self._at.pop(slot, None)
            self._meant.pop(slot, None)
            self._changed.notify_all()

    def stop(self) -> list[BuiltSolution[J, B]]:
        """Hand out nothing more, and wake all waiting threads.

        Returns what is built and not taken.
        """
        with self._changed:
            self._stopped = True
            ready = list(self._ready)
            self._ready.clear()
            self._changed.notify_all()
            return ready

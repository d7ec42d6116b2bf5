"""How long runs take, and how often problems are made ready, by simulation: slots, costs and no process.

Each slot takes what the schedule gives it, makes the problem ready where it was at another, and judges. One step is the
quickest judgement. The simple way, against which the problems' being dealt out to slots is held, has them built one
after another. Without knowing what a solution will take, nobody can say who should come last: so single runs may differ
by one preparation and one judgement; what is more than that is to be 3 % at most, and the mean over runs nothing.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from harness.runner.scheduler import BuiltSolution, Schedule, dealt

Job = tuple[int, int]
AHEAD = 40
WORSE = 1.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A run to be: how many jobs each problem has, and what each of them costs."""

    jobs: tuple[int, ...]
    costs: tuple[float, ...]

    def one_after_another(self) -> list[tuple[Hashable, Job]]:
        return [(problem, (problem, number)) for problem, count in enumerate(self.jobs) for number in range(count)]


def simulated(
    order: Sequence[tuple[Hashable, Job]], slots: int, costs: Sequence[float], preparation: float, *, more: bool = False
) -> tuple[float, int]:
    """Steps until the last verdict, and how often a problem was made ready. Whatever may be built is built at once;
    with `more`, others could still come."""
    schedule: Schedule[Job, None] = Schedule(order, ahead=AHEAD, more=more, slots=slots)
    at: dict[str, int] = {}
    unbuilt, unjudged, made_ready, end = len(order), 0, 0, 0.0

    def build() -> None:
        nonlocal unbuilt, unjudged
        while unbuilt and unjudged < AHEAD:
            found = schedule.next_build()
            assert found is not None
            schedule.built(BuiltSolution(job=found[1], problem=found[0], built=None))
            unbuilt, unjudged = unbuilt - 1, unjudged + 1

    coming = [(0.0, number, f"slot {number}") for number in range(slots)]
    judging = set()
    while coming:
        now, number, slot = heapq.heappop(coming)
        if slot in judging:
            schedule.judged()
        build()
        taken = schedule.take(slot, within_s=0.0)
        if taken is None:
            continue
        assert isinstance(taken, BuiltSolution)
        unjudged -= 1
        build()
        judging.add(slot)
        schedule.upcoming(slot, 2)
        problem = taken.job[0]
        new = at.get(slot) != problem
        at[slot], made_ready = problem, made_ready + new
        end = now + costs[problem] + new * preparation
        heapq.heappush(coming, (end, number, slot))
    assert (unbuilt, unjudged) == (0, 0)
    return end, made_ready


def costs_of(kind: str, count: int, chance: random.Random) -> tuple[float, ...]:
    match kind:
        case "equal":
            return (1.0,) * count
        case "tenfold":
            return tuple(10 ** chance.random() for _ in range(count))
    return tuple(10.0 if problem == count // 2 else 1.0 for problem in range(count))


def mixes(problems: int, each: int) -> Iterator[Mix]:
    """Problems of one number of jobs, and of very different ones, with costs of several kinds."""
    chance = random.Random(f"{problems} {each}")
    for kind in ("equal", "tenfold", "one heavy"):
        yield Mix(jobs=(each,) * problems, costs=costs_of(kind, problems, chance))
        varied = tuple(chance.randint(1, 2 * each) for _ in range(problems))
        yield Mix(jobs=varied, costs=costs_of(kind, problems, chance))


def compared(mix: Mix, slots: int, preparation: float) -> Mapping[str, tuple[float, int]]:
    simple = mix.one_after_another()
    return {
        "simple": simulated(simple, slots, mix.costs, preparation),
        "dealt": simulated(dealt(simple, slots), slots, mix.costs, preparation),
    }


SIZES = [(1, 30), (2, 2), (2, 60), (4, 1), (4, 40), (5, 20), (8, 4), (13, 10), (40, 2)]
"""Problems, and solutions to each, or about as many."""


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8])
def test_problems_that_are_dealt_out_take_no_longer_than_one_after_another(slots: int) -> None:
    ratios = []
    made_ready = {"simple": 0, "dealt": 0}
    for mix in (mix for size in SIZES for mix in mixes(*size)):
        for preparation in (0.0, 1.0, 10.0):
            found = compared(mix, slots, preparation)
            simple, others = found["simple"][0], found["dealt"][0]
            assert others <= WORSE * simple + preparation + max(mix.costs), (mix, preparation)
            ratios.append(others / simple)
            for way, (_, times) in found.items():
                made_ready[way] += times
    assert statistics.fmean(ratios) <= 1.005
    assert made_ready["dealt"] <= 1.02 * made_ready["simple"]


@pytest.mark.parametrize("way", ["simple", "dealt"])
@pytest.mark.parametrize("preparation", [0.0, 3.0, 10.0])
@pytest.mark.parametrize(
    "costs", [(1.0, 2.0, 4.0, 8.0), (4.0, 1.0, 2.0, 8.0), (8.0, 4.0, 2.0, 1.0), (1.0, 1.0, 10.0, 1.0)]
)
def test_few_problems_of_many_jobs_and_very_unequal_cost_keep_all_slots_busy(
    costs: tuple[float, ...], preparation: float, way: str
) -> None:
    """Slots at quick problems take over from the one at the slowest, once, and don't come back."""
    mix = Mix(jobs=(100,) * 4, costs=costs)
    steps, made_ready = compared(mix, 4, preparation)[way]
    assert made_ready <= 10
    share = (sum(costs) * 100 + made_ready * preparation) / 4
    assert steps <= WORSE * share + preparation + max(costs)


@pytest.mark.parametrize(("problems", "each", "slots"), [(8, 4, 4), (16, 10, 8), (4, 2, 2), (12, 5, 3)])
def test_equal_problems_are_made_ready_once(problems: int, each: int, slots: int) -> None:
    mix = Mix(jobs=(each,) * problems, costs=(1.0,) * problems)
    assert compared(mix, slots, 10.0)["dealt"] == (problems // slots * (10.0 + each), problems)


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize(("problems", "each"), [(2, 60), (8, 16), (16, 16), (32, 8)])
def test_what_comes_in_any_order_takes_hardly_longer_than_what_was_dealt_out(
    problems: int, each: int, slots: int
) -> None:
    """A batch of a training loop, as its samples happen to be finished."""
    mix = Mix(jobs=(each,) * problems, costs=(1.0,) * problems)
    order = mix.one_after_another()
    best, times = simulated(dealt(order, slots), slots, mix.costs, 1.0)
    random.Random(slots * problems).shuffle(order)
    steps, made_ready = simulated(order, slots, mix.costs, 1.0, more=True)
    assert steps <= best + 1.0
    assert made_ready <= times + slots // 2

"""The calls of a burst: over which inputs, how each is made, and which are over stress variants.

Trusted side. Decides and requests; `measure` has the calls made.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.protocol.messages import Call, CallMode
from harness.referee.problem.stress_variants import OWN
from harness.referee.problem.workspace import Workspace

LATENCY_CALLS = 1
"""Calls of a burst that are timed on the host's clock from an idle device."""

OWN_INPUTS = (OWN, 0)
"""Variant and part of inputs as the problem draws them."""

FEW_SETS = 6
"""Up to so many input sets, each is too precious to be spent on a call that is not timed."""

CALLS_A_STRESSED_ONE = 4
"""Of so many calls timed cold in a round, one is over a stress variant (and always one): as many as the mean of a
burst's middle half (`stats`) is deaf to, should they take another time than those over the problem's own inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One call of a burst: which input set, and how."""

    index: int
    mode: CallMode


def plan_calls(count: int, secret: random.Random, number: int = 0, *, sparing: bool = False) -> tuple[PlannedCall, ...]:
    """Turns of round `number` over `count` input sets in a secret order: to warm up, timed cold, timed for latency.

    With `FEW_SETS` or fewer (large problems), and where calls are `sparing`, only the first round spends one on warming
    up and only the next two one on latency, so that the timed calls don't take forever to gather.
    """
    order = list(range(count))
    secret.shuffle(order)
    few = sparing or count <= FEW_SETS
    warm = 1 if not few or number == 0 else 0
    latency = LATENCY_CALLS if count >= 3 and (not few or number in (1, 2)) else 0
    modes = [CallMode.WARM] * warm + [CallMode.COLD] * (count - warm - latency) + [CallMode.LATENCY] * latency
    return tuple(PlannedCall(index=index, mode=mode) for index, mode in zip(order, modes, strict=True))


def in_turn(stress: Sequence[tuple[str, int]], secret: random.Random) -> Iterator[tuple[str, int]]:
    """Variant and part of one stressed call after another, without end: each variant once before any comes again, in an
    order that is drawn each time, and its parts one after another from a drawn one on. The problem's own where there
    are no others.

    By chance alone, a variant that finds a mistake might not be among those of the four rounds that most timings take.
    """
    parts: dict[str, list[int]] = {}
    for name, part in stress:
        parts.setdefault(name, []).append(part)
    following = {name: itertools.cycle(secret.sample(held, len(held))) for name, held in parts.items()}
    while following:
        for name in secret.sample(sorted(following), len(following)):
            yield name, next(following[name])
    while True:
        yield OWN_INPUTS


def stressed_planned_calls(
    planned_calls: Sequence[PlannedCall], following: Mapping[CallMode, Iterator[tuple[str, int]]], secret: random.Random
) -> dict[int, tuple[str, int]]:
    """Input sets of a round that are not drawn as the problem's own, with variant and part: of the calls of each mode
    that `following` names one in `CALLS_A_STRESSED_ONE`, nobody knows which, the mode's next ones. A round without such
    calls takes none.

    Each mode has its own: the process sees a call's mode, and might be right where its time does not count.
    """
    chosen = {}
    for mode, variants in following.items():
        if held := [planned_call.index for planned_call in planned_calls if planned_call.mode is mode]:
            for index in secret.sample(held, max(1, len(held) // CALLS_A_STRESSED_ONE)):
                chosen[index] = next(variants)
    return chosen


def calls_of(workspace: Workspace, planned_calls: Sequence[PlannedCall]) -> tuple[Call, ...]:
    """The turns as requests to the contestant."""
    return tuple(
        Call(
            inputs=workspace.sets[planned_call.index].inputs,
            outputs=workspace.sets[planned_call.index].outputs,
            state=workspace.sets[planned_call.index].state,
            seed=workspace.call_seed(planned_call.index) if workspace.traits.draws_random else None,
            mode=planned_call.mode,
            late=workspace.late_words(planned_call.index),
        )
        for planned_call in planned_calls
    )

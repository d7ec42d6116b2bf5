"""Plan the calls of a burst: input sets, call modes, stress inputs.

Trusted side.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.protocol.messages import Call, CallMode
from harness.referee.problem.stress_variants import OWN
from harness.referee.problem.workspace import Workspace

T = TypeVar("T")

LATENCY_CALLS = 1
"""Calls of a burst that are timed on the host's clock, starting from an idle device."""

OWN_INPUTS = (OWN, 0)
"""Variant and part of inputs as the problem draws them."""

EXTRA_SETS = 2
"""Input sets of a burst beyond the timed ones: one for the warm-up call, one for the latency call."""

FEW_SETS = 6
"""With this many input sets or fewer, most rounds spend none on calls that are not timed."""

CALLS_A_STRESSED_ONE = 4
"""One of this many cold-timed calls of a round uses stress inputs (at least one).

The mean of a burst's middle half (`core/stats.py`) is insensitive to this share, if stress inputs take another time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One call of a burst: number of its input set, and mode."""

    index: int
    mode: CallMode


def of_mode(planned_calls: Sequence[PlannedCall], items: Iterable[T], mode: CallMode) -> list[T]:
    """Return those of `items`, one for each call, that belong to this mode."""
    return [item for call, item in zip(planned_calls, items, strict=True) if call.mode is mode]


def plan_calls(count: int, secret: random.Random, number: int = 0, *, sparing: bool = False) -> tuple[PlannedCall, ...]:
    """Plan the calls of one round, over all input sets in secret order.

    Args:
        count: Number of input sets.
        secret: Source of the order.
        number: Number of the round, from 0.
        sparing: Whether calls are long, so that few are made.

    Returns:
        One warm-up call, cold-timed calls, one latency call. With `FEW_SETS` sets or fewer, or if `sparing`, only round
        0 has a warm-up call and only rounds 1 and 2 have a latency call, so that timed calls accumulate faster. A
        single set has cold-timed calls only.
    """
    order = list(range(count))
    secret.shuffle(order)
    few = sparing or count <= FEW_SETS
    warm = 1 if count > 1 and (not few or number == 0) else 0
    latency = LATENCY_CALLS if count >= 3 and (not few or number in (1, 2)) else 0
    modes = [CallMode.WARM] * warm + [CallMode.COLD] * (count - warm - latency) + [CallMode.LATENCY] * latency
    return tuple(PlannedCall(index=index, mode=mode) for index, mode in zip(order, modes, strict=True))


def in_turn(stress: Sequence[tuple[str, int]], secret: random.Random) -> Iterator[tuple[str, int]]:
    """Yield the variants for stressed calls, without end.

    Each variant comes once, in random order, before any comes again; its parts follow from a random one on. A purely
    random choice could miss the variant that finds a mistake in the four rounds that most timings take.

    Yields:
        Pairs (variant, part); the problem's own inputs if `stress` is empty.
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
    """Choose the calls of a round that use stress inputs.

    Each mode has its own choice: the process sees the mode, and might compute correctly only in calls that are not
    timed.

    Args:
        planned_calls: The round's calls.
        following: For each mode to stress, its variants (`in_turn`).
        secret: Source of the choice.

    Returns:
        Variant and part by number of the input set: one in `CALLS_A_STRESSED_ONE` calls of each mode, at least one.
    """
    chosen = {}
    for mode, variants in following.items():
        if indices := [call.index for call in planned_calls if call.mode is mode]:
            for index in secret.sample(indices, max(1, len(indices) // CALLS_A_STRESSED_ONE)):
                chosen[index] = next(variants)
    return chosen


def calls_of(workspace: Workspace, planned_calls: Sequence[PlannedCall]) -> tuple[Call, ...]:
    """Convert planned calls to requests for the contestant."""
    return tuple(
        Call(
            inputs=workspace.sets[call.index].inputs,
            outputs=workspace.sets[call.index].outputs,
            state=workspace.sets[call.index].state,
            seed=workspace.call_seed(call.index) if workspace.traits.draws_random else None,
            mode=call.mode,
            late=workspace.late_words(call.index),
        )
        for call in planned_calls
    )

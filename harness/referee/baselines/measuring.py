"""Measure baselines of one problem: compile, compare with the truth, time.

Baselines are timed in alternation with eager.

Trusted side. The bursts are those in which a run times the reference (`ReferenceRunner`): cold L2 cache, distinct
inputs, outputs copied after the clock has stopped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from harness.core.choices import Baseline
from harness.core.stats import SpeedupEstimate, speedup_interval, summarise
from harness.core.status import one_line
from harness.devices.device import CallTime
from harness.devices.layout import copied
from harness.protocol.messages import CallMode
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.baselines.compiled_reference import CompiledReference, Turnstile, forget_compiled
from harness.referee.baselines.entry import BaselineEntry, BaselineOutcome
from harness.referee.correctness.tolerance import (
    UNLIMITED,
    compare,
    judge,
    limits_for,
    longest_sum,
    of_kinds,
    sensitivity_of,
)
from harness.referee.problem.burst_plan import of_mode, plan_calls
from harness.referee.problem.loader import state_of
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.rounds import ReferenceRunner
from harness.referee.timing.stopping import Stopping
from harness.results.reader import timestamp

SETS = 10
"""Input sets of a burst: one call to warm up, one for latency, the others timed."""

SETS_BYTES = 6 * 2**30
"""Limit of all input sets beyond the first `LEAST_SETS`, because several processes share the GPU's memory."""

LEAST_SETS = 3
"""With fewer sets a burst has no call for latency."""

LARGE_SET_BYTES = 2**31
"""From this size on, outputs are checked on the problem's own inputs only: each variant takes seconds."""

LEAST_ROUNDS, MAX_ROUNDS = 4, 40


def sets_for(set_bytes: int | None) -> int:
    """Number of input sets if one has `set_bytes` bytes (None: unknown)."""
    return SETS if not set_bytes else max(LEAST_SETS, min(SETS, SETS_BYTES // set_bytes))


def measure(
    workspace: Workspace,
    wanted: Sequence[Baseline],
    *,
    secret: Random,
    budget_s: float,
    turnstile: Turnstile | None = None,
) -> list[BaselineEntry]:
    """Measure one entry for each of `wanted`; eager is always timed with them.

    `budget_s` limits the bursts of all of them together. Errors of torch in a baseline make a failed entry; only a
    shortage of device memory raises.
    """
    gate = turnstile or Turnstile()
    held: dict[Baseline, BaselineEntry] = {}
    subjects: list[CompiledReference] = []
    try:
        for baseline in wanted:
            subject = CompiledReference(baseline, workspace, gate)
            outcome, reason = _made_ready(subject, gate)
            if outcome is BaselineOutcome.measured:
                subjects.append(subject)
            else:
                held[baseline] = _entry(subject, outcome=outcome, reason=reason)
        with gate:
            series = _bursts(workspace, subjects, secret, budget_s)
        for place, subject in enumerate(subjects):
            held[subject.baseline] = _timed(subject, series, place)
    finally:
        with gate:
            subjects.clear()
            if any(baseline.mode is not None for baseline in wanted):
                forget_compiled()
    return [held[baseline] for baseline in wanted]


def _made_ready(subject: CompiledReference, gate: Turnstile) -> tuple[BaselineOutcome, str | None]:
    if subject.baseline is Baseline.EAGER:
        return BaselineOutcome.measured, None
    try:
        subject.prepare()
        with gate:
            wrong = _wrong(subject)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # whatever a compiler may raise
        return BaselineOutcome.failed, one_line(f"{type(error).__name__}: {error}", limit=400)
    return (BaselineOutcome.wrong, wrong) if wrong else (BaselineOutcome.measured, None)


def _wrong(subject: CompiledReference) -> str | None:
    """What is wrong with the outputs; None if they are right.

    Checks the problem's own inputs and every variant.
    """
    workspace = subject.workspace
    if workspace.traits.draws_random:
        return None  # another stream of random numbers: the outputs can't be compared
    variants = workspace.problem.rules.stress if workspace.call_bytes < LARGE_SET_BYTES else ()
    for index, variant in enumerate(("own", *variants)):
        place = index % len(workspace.sets)
        workspace.draw(place, variant)
        if said := _wrong_on(subject, place):
            return said if variant == "own" else f"on {variant.replace('_', ' ')} inputs: {said}"
    return None


def _wrong_on(subject: CompiledReference, index: int) -> str | None:
    workspace, traits = subject.workspace, subject.workspace.traits
    truth, own = workspace.truth(index), workspace.answer(index)
    leaves = [copied(leaf) for leaf in workspace.tensors(workspace.sets[index].inputs)]
    workspace.device.reseed(workspace.call_seed(index))
    with torch.no_grad(), subject.flags():
        result = subject.forward(unflatten(workspace.tree, leaves))
    got, _ = flatten(result)
    if [(tuple(leaf.shape), leaf.dtype) for leaf in got] != list(zip(traits.shapes, traits.dtypes, strict=True)):
        return "the outputs have other shapes or dtypes than eager's"
    state = state_of(workspace.oracle.model)
    # `restore_state` would also reset an output that is one of the model's buffers.
    actual = [*(leaf.clone() for leaf in got), *(state[name].clone() for name in traits.updates_state)]
    kinds = truth.answer.kinds
    actual = truth.answer.pointed(actual)
    expected, eager = truth.answer.valued(truth.answer).results(), own.valued(truth.answer).results()
    names = traits.result_names()
    workspace.oracle.restore_state()
    longest = longest_sum(traits, workspace.variant(index))
    references = of_kinds([compare(e, t, limits=UNLIMITED) for e, t in zip(eager, expected, strict=True)], kinds)
    found = [
        compare(a, t, reference=None if n in kinds else e, limits=limits_for(subject.held_to, r, longest=longest))
        for n, (a, t, e, r) in enumerate(zip(actual, expected, eager, references, strict=True))
    ]
    comparisons = of_kinds(found, kinds)
    sensitivity = sensitivity_of(
        comparisons,
        subject.held_to,
        references=references,
        expected=expected,
        nearby=(
            (weight, near.valued(truth.answer).results())
            for weight, near in workspace.nearby(index, None, subject.held_to)
        ),
        longest=longest,
    )
    failure = judge(
        comparisons,
        subject.held_to,
        references=references,
        sensitivity=sensitivity,
        names=names,
        longest=longest,
    ).failure
    return None if failure is None else failure.reason


@dataclass(slots=True)
class _Series:
    """Samples of all baselines and of eager, by round."""

    eager: list[list[float]] = field(default_factory=list)
    eager_latency: list[float] = field(default_factory=list)
    own: list[list[list[float]]] = field(default_factory=list)
    own_latency: list[list[float]] = field(default_factory=list)
    stopped_by: str = "most rounds"


def _bursts(workspace: Workspace, subjects: Sequence[CompiledReference], secret: Random, budget_s: float) -> _Series:
    """Run rounds of one burst of eager and one of each baseline.

    All bursts of a round use the same inputs; the order alternates.
    """
    series = _Series(own=[[] for _ in subjects], own_latency=[[] for _ in subjects])
    if not subjects:
        return series
    eager = ReferenceRunner(workspace)
    runners = [ReferenceRunner(workspace, subject.forward) for subject in subjects]
    rules = [Stopping(budget_s=budget_s, least_pairs=LEAST_ROUNDS) for _ in subjects]
    fired: list[str | None] = [None] * len(subjects)
    count = min(len(workspace.sets), SETS)
    for number in range(MAX_ROUNDS):
        begin = time.perf_counter()
        _draw(workspace, count)
        planned_calls = plan_calls(count, secret, number)
        order = list(range(-1, len(subjects)))
        for place in order if number % 2 == 0 else reversed(order):
            if workspace.traits.mutates_inputs:
                for index in range(count):
                    workspace.redraw(index)
            workspace.device.synchronize()
            if place < 0:
                burst = eager.burst(planned_calls)
            else:
                with subjects[place].flags():
                    burst = runners[place].burst(planned_calls)
            samples = [time.device_s for time in of_mode(planned_calls, burst.times, CallMode.COLD)]
            latency = [time.window_s for time in of_mode(planned_calls, burst.times, CallMode.LATENCY)]
            if place < 0:
                series.eager.append(samples)
                series.eager_latency += latency
            else:
                series.own[place].append(samples)
                series.own_latency[place] += latency
        spent_s = time.perf_counter() - begin
        for place, rule in enumerate(rules):
            said = rule.add(speedup_interval(series.eager, series.own[place]), spent_s)
            fired[place] = fired[place] or said
        done = all(fired) or "budget" in fired
        # An even number of rounds, so that both orders occur equally often.
        if done and number + 1 >= LEAST_ROUNDS and number % 2 == 1:
            series.stopped_by = "budget" if "budget" in fired else str(fired[-1])
            break
    return series


def _draw(workspace: Workspace, count: int) -> None:
    for index in range(count):
        workspace.draw(index)
    workspace.hold_back(range(count))


def _timed(subject: CompiledReference, series: _Series, place: int) -> BaselineEntry:
    own, latency = series.own[place], series.own_latency[place]
    over: SpeedupEstimate = speedup_interval(series.eager, own)
    return _entry(
        subject,
        outcome=BaselineOutcome.measured,
        device=summarise([time_s for burst in own for time_s in burst]).to_json(),
        eager=summarise([time_s for burst in series.eager for time_s in burst]).to_json(),
        latency_s=statistics.median(latency) if latency else None,
        eager_latency_s=statistics.median(series.eager_latency) if series.eager_latency else None,
        over_eager=over,
        samples_s=tuple(map(tuple, own)),
        eager_samples_s=tuple(map(tuple, series.eager)),
        rounds=len(own),
        stopped_by=series.stopped_by,
    )


def _entry(subject: CompiledReference, **values: Any) -> BaselineEntry:
    with subject.flags():
        flags = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    return BaselineEntry(
        baseline=subject.baseline,
        held_to=subject.held_to.value,
        matmul_tf32=flags[0],
        cudnn_tf32=flags[1],
        compile_s=subject.compile_s,
        graphs=subject.graphs,
        measured_at=timestamp(),
        **values,
    )


def eager_now_s(workspace: Workspace, secret: Random, bursts: int = 3) -> float:
    """Median time of eager over a few bursts: the spot check of a kept entry."""
    runner, count = ReferenceRunner(workspace), min(len(workspace.sets), SETS)
    times: list[CallTime] = []
    for number in range(bursts):
        _draw(workspace, count)
        workspace.device.synchronize()
        planned_calls = plan_calls(count, secret, number + 3)
        times += of_mode(planned_calls, runner.burst(planned_calls).times, CallMode.COLD)
    return statistics.median(each.device_s for each in times)

"""The timing plan: how reference and solution take turns in rounds of bursts, and when to stop.

Trusted side. Bursts alternate A B B A, so that drift cancels; each round draws fresh inputs; the first call of a
burst is not counted. The solution's times are claims, which `claims` holds against the referee's own clock. While
a burst runs the referee does nothing else. It decides no verdict on values: whoever calls `measure` gets every
round's claims to verify before the next round is drawn.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.devices import sm_clock
from harness.devices.back_to_back import BackToBack, QueuedStep
from harness.devices.device import CallTime, DeviceError
from harness.devices.stream_gate import PATIENCE_S, opened_after
from harness.protocol.messages import BurstDone, CallMode, LaunchMode
from harness.protocol.tensor_tree import flatten
from harness.referee.problem.burst_plan import (
    FEW_SETS,
    OWN_INPUTS,
    PlannedCall,
    in_turn,
    plan_calls,
    stressed_planned_calls,
)
from harness.referee.problem.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceBurst:
    """What the reference took in one burst, by the referee's own clocks.

    `peak_bytes` is the most memory of its parameters and of what its calls allocated, `rate_hz` how fast the GPU's
    processors ran (`cycles`); None where that is not known.
    """

    times: tuple[CallTime, ...]
    wall_s: float
    peak_bytes: int | None = None
    rate_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One reference burst and one solution burst: `planned_calls` are the solution's calls, `reference_planned_calls`
    the reference's, which are the same ones or over more of the inputs. `solution_hz` is how fast the GPU's processors
    ran meanwhile, `in_line_s` how long the solution's threads stood in line for one of the host's.
    """

    planned_calls: tuple[PlannedCall, ...]
    reference_planned_calls: tuple[PlannedCall, ...]
    reference: ReferenceBurst
    solution: BurstDone
    solution_wall_s: float
    reference_first: bool
    solution_hz: float | None = None
    in_line_s: float = 0.0

    @property
    def call_wall_s(self) -> float:
        """The solution's burst by the referee's clock, divided by its calls."""
        return self.solution_wall_s / len(self.planned_calls)

    @property
    def in_line(self) -> bool:
        """Whether that was long."""
        return self.in_line_s > IN_LINE_S


@dataclass(slots=True)
class Rounds:
    """All rounds of one solution, in order. `lacking` is how many rounds with stressed calls are left until there were
    as many as there are variants: each has had as many calls then as a round has stressed ones. `doubted` says why
    rounds were thrown away whose claims were not explained. Seconds: `spent_s` since the beginning, `spent_on_s` on
    what of them, `thrown_s` of them for those of these rounds in which the solution stood in line for a processor.
    """

    held: list[Round] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)
    lacking: int = 0
    stopped_by: str = "not started"
    spent_s: float = 0.0
    spent_on_s: dict[str, float] = field(default_factory=dict)
    thrown_s: float = 0.0

    def samples(self, mode: CallMode) -> tuple[list[list[float]], list[list[float]]]:
        """Device seconds per round and call of this mode: of the reference, and as the solution claims."""
        reference = [
            [
                t.device_s
                for planned_call, t in zip(r.reference_planned_calls, r.reference.times, strict=True)
                if planned_call.mode is mode
            ]
            for r in self.held
        ]
        solution = [
            [
                c.device_s
                for planned_call, c in zip(r.planned_calls, r.solution.claims, strict=True)
                if planned_call.mode is mode
            ]
            for r in self.held
        ]
        return reference, solution

    def windows(self, mode: CallMode) -> tuple[list[float], list[float]]:
        """Host seconds from submission to completion, flat: of the reference, and as the solution claims."""
        reference = [
            t.window_s
            for r in self.held
            for planned_call, t in zip(r.reference_planned_calls, r.reference.times, strict=True)
            if planned_call.mode is mode
        ]
        solution = [
            c.window_s
            for r in self.held
            for planned_call, c in zip(r.planned_calls, r.solution.claims, strict=True)
            if planned_call.mode is mode
        ]
        return reference, solution


class ReferenceRunner:
    """Makes the reference's bursts exactly as the contestant makes the solution's, copies included.

    `forward` takes the place of the reference's own: the reference in another form (`harness.referee.baselines`).
    `lane` is the device's by which its bursts go.
    """

    def __init__(
        self, workspace: Workspace, forward: Callable[[Sequence[object]], object] | None = None, *, lane: int = 0
    ) -> None:
        self._workspace = workspace
        self._lane = lane
        self._forward = forward or workspace.oracle.forward
        first = workspace.sets[0]
        workspace.device.prepare_flush()  # its bursts are what others' are held against, the first one too
        self._scratch = [torch.empty_like(workspace.tensor(slot)) for slot in first.outputs]

    def hold_back(self, indices: Sequence[int]) -> None:
        """Hold back words of these sets' inputs. What they are written from before a call lies in memory of the stream
        that the call is made on, beside its small results, as it does in the contestant's process.
        """
        with self._workspace.device.lane(self._lane):
            self._workspace.hold_back(indices)

    def burst(self, planned_calls: Sequence[PlannedCall]) -> ReferenceBurst:
        paces = sm_clock.of(self._workspace.device)
        with self._workspace.device.lane(self._lane):
            paces.begin()
            made = self._made(planned_calls)
            rate_hz = paces.end()
            # State is put back by then, which the next truth may need on another lane.
            self._workspace.device.synchronize()
            return replace(made, rate_hz=rate_hz)

    def _made(self, planned_calls: Sequence[PlannedCall]) -> ReferenceBurst:
        times = []
        held_bytes = self._workspace.device.start_peak()
        begin = time.perf_counter()
        for planned_call in planned_calls:
            arguments = self._workspace.arguments(planned_call.index)
            self._workspace.oracle.restore_state()
            if self._workspace.traits.draws_random:
                self._workspace.device.reseed(self._workspace.call_seed(planned_call.index))
            timer = (
                self._workspace.device.time_latency
                if planned_call.mode is CallMode.LATENCY
                else self._workspace.device.time_cold
            )
            with torch.no_grad():
                forward = functools.partial(self._forward, arguments)
                times.append(
                    timer(forward, self._copy, functools.partial(self._workspace.complete, planned_call.index))
                )
        wall_s = time.perf_counter() - begin
        self._workspace.oracle.restore_state()
        peak_bytes = self._workspace.device.peak_bytes()
        if peak_bytes is not None:
            # What this process holds beside the reference is the harness's own.
            peak_bytes += self._workspace.oracle.state_bytes - held_bytes
        return ReferenceBurst(times=tuple(times), wall_s=wall_s, peak_bytes=peak_bytes)

    def back_to_back(self, indices: Sequence[int], launch_mode: LaunchMode) -> CallTime:
        """One call's share of calls over these sets without a pause, as the contestant makes the solution's.

        Raises what prevents a graph from being captured, and `DeviceError` where calls can't be queued: because the
        device has no gate, or because they wait for it to finish.
        """
        workspace = self._workspace

        def before(index: int) -> None:
            workspace.oracle.restore_state()
            if workspace.traits.draws_random:
                workspace.device.reseed(workspace.call_seed(index))

        steps = [
            QueuedStep(
                before=functools.partial(before, index),
                forward=functools.partial(self._forward, workspace.arguments(index)),
                after=self._copy,
            )
            for index in indices
        ]
        took = (
            self._queued(steps)
            if launch_mode is LaunchMode.QUEUED
            else BackToBack(workspace.device, steps, launch_mode).run()
        )
        workspace.oracle.restore_state()
        return CallTime(device_s=took.device_s / len(steps), window_s=took.window_s / len(steps))

    def _queued(self, steps: Sequence[QueuedStep]) -> CallTime:
        gate = self._workspace.device.own_gate()
        number = gate.owner.begin()
        try:
            with opened_after(gate.owner, PATIENCE_S):
                ready = BackToBack(self._workspace.device, steps, LaunchMode.QUEUED, gate.stream, number)
            waited = gate.owner.is_open
        finally:
            gate.owner.open()  # what was queued before something failed would stand before all that comes next
        took = ready.run()
        if waited:
            raise DeviceError("calls wait for the device to finish")
        return took

    def _copy(self, result: object) -> None:
        for slot, leaf in zip(self._scratch, flatten(result)[0], strict=True):
            slot.copy_(leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """When rounds end. Seconds by the referee's clock; the deadline moves while others are waited for. With `FEW_SETS`
    or fewer, half of `min_samples` are enough.

    Where a call of the solution took `long_s` or more in every round so far, flush included, it makes `LONG_SETS` calls
    a round, and a third of `min_samples` are enough: such calls are even, and dear.
    """

    min_samples: int
    max_rounds: int
    deadline_s: Callable[[], float]
    long_s: float = math.inf


LONG_S = 10e-3
"""On a GPU nothing needs to be warmed up for calls so long: in 11 bursts of calls of 17 ms that were not, on an H200,
the first took what the others took within 0.8 %, and no burst counts by its slowest call."""

LONG_SETS = 4
"""Calls of the solution in a round where they are so long. The reference makes as many as ever: of 39 of its bursts
that followed one of a solution's calls of 17 to 35 ms on an H200, the first call took 2.6 % longer than the burst's
shortest in the median, so that three or four calls of 2.6 ms told too little, and up to 22 rounds were made."""

INPUTS, REFERENCE, SOLUTION, OUTPUTS = "inputs", "reference", "solution", "outputs"
"""What rounds take their time for: drawing and masking inputs, the two sides' bursts as a whole, verifying outputs.
What is left looks at the GPU and decides whether there is another round."""

MAX_ROUNDS = 40
"""Rounds after which a speedup that still will not settle is reported as it is."""


MOST_DOUBTED = 4
"""Rounds of one solution that are made again because the referee's clock does not explain what is claimed, which a busy
machine brings about now and then; then they count, and pay. Who lies in all rounds gains four of them."""

IN_LINE_S = 1e-3
"""How long a solution's threads may stand in line for a processor in a burst before the machine may be to blame for
what is not explained: as much as is let pass a burst."""

MOST_THROWN_S = 5.0
"""Where they did so for longer, doubted rounds are made again until they have taken so long. While builds took all 16
processors of a machine with an H200, ten of 20 evaluations of calls of 20 ms were charged in rounds that counted, after
four that were made again; two of 14 with more of them. Threads can be made to stand in each other's way: who does that
gains more rounds, and pays in each that counts."""


def run_rounds(
    workspace: Workspace,
    runner: ReferenceRunner,
    solution_burst: Callable[[Sequence[PlannedCall]], tuple[BurstDone, float]],
    verify: Callable[[Sequence[PlannedCall], BurstDone], bool],
    settled: Callable[[Rounds], str | None],
    *,
    sets: int,
    limits: RoundLimits,
    secret: random.Random,
    look: Callable[[], Callable[[], bool]],
    doubt: Callable[[Rounds], str | None] = lambda rounds: None,
    in_line_s: Callable[[], float] = lambda: 0.0,
    call_s: float = 0.0,
    stress: Sequence[tuple[str, int]] = (),
) -> Rounds:
    """Alternate bursts until enough is known.

    Some calls of each round (`stressed_planned_calls`), nobody knows which, are over a variant (and its part) of
    `stress`, like those that values were verified on before: who could tell timed bursts from others would else need
    to be right on the problem's own inputs alone in them. So is the one timed for latency. They are timed like any
    other, for both sides over the same inputs.

    `call_s` is what a call of the solution took so far, flush included; 0 where that is not known.

    `verify` judges each round's outputs before the next inputs are drawn, and returns False to end the timing.
    `settled` names the rule by which the samples suffice, or None. `look` is called once both bursts of a round are
    over, and looks at the GPU while outputs are verified: what it returns says in the end whether the round counts.
    False throws it away, because something else disturbed it. `doubt` says why the last round's claims are not
    explained, or None: up to `MOST_DOUBTED` such rounds are made again, too, and more where `in_line_s`, asked after
    a burst of the solution, says that its threads stood in line for a processor meanwhile (`MOST_THROWN_S`).
    """
    rounds = Rounds(lacking=len({name for name, _ in stress}))
    paces = sm_clock.of(workspace.device)
    begin = lap_s = time.perf_counter()

    def spent_on(what: str) -> None:
        """What goes on since the last call of this was that."""
        nonlocal lap_s
        last_s, lap_s = lap_s, time.perf_counter()
        rounds.spent_on_s[what] = rounds.spent_on_s.get(what, 0.0) + lap_s - last_s

    redraw = workspace.traits.mutates_inputs
    following = {mode: in_turn(stress, secret) for mode in (CallMode.COLD, CallMode.LATENCY)}
    while True:
        # The least of all: who is slow once does not get by with fewer calls to prove its times on (`claims`, rule 4).
        call_s = min((held.call_wall_s for held in rounds.held), default=call_s)
        sparing = sets > FEW_SETS and call_s >= limits.long_s
        # Calls over inputs so large are long and even, and to verify one of them takes a tenth of a second.
        least = limits.min_samples // (3 if sparing else 2 if sets <= FEW_SETS else 1)
        indices = range(sets)
        planned_calls = reference_planned_calls = plan_calls(sets, secret, len(rounds.held))
        if sparing:
            planned_calls = plan_calls(LONG_SETS, secret, len(rounds.held), sparing=True)
        stressed = stressed_planned_calls(planned_calls, following, secret)
        for index in indices:
            name, part = stressed.get(index, OWN_INPUTS)
            workspace.draw(index, name, part=part)
        runner.hold_back(indices)
        reference_first = len(rounds.held) % 2 == 0
        workspace.device.synchronize()
        spent_on(INPUTS)
        reference: ReferenceBurst | None = None
        if reference_first:
            reference = runner.burst(reference_planned_calls)
            spent_on(REFERENCE)
            if redraw:
                for index in indices:
                    workspace.redraw(index)
                workspace.device.synchronize()
        workspace.mask(indices)
        workspace.device.synchronize()
        spent_on(INPUTS)
        paces.begin()
        done, wall_s = solution_burst(planned_calls)
        solution_hz = paces.end()
        waited_s = in_line_s()
        spent_on(SOLUTION)
        # Where calls change their inputs, they are a part of the answer, and the reference needs them as they were.
        right = None
        if redraw:
            right = verify(planned_calls, done)
            spent_on(OUTPUTS)
        if reference is None:
            if redraw:
                for index in indices:
                    workspace.redraw(index)
                workspace.device.synchronize()
                spent_on(INPUTS)
            reference = runner.burst(reference_planned_calls)
            spent_on(REFERENCE)
        counts = look()
        if right is None:
            right = verify(planned_calls, done)
            spent_on(OUTPUTS)
        rounds.held.append(
            Round(
                planned_calls=planned_calls,
                reference_planned_calls=reference_planned_calls,
                reference=reference,
                solution=done,
                solution_wall_s=wall_s,
                reference_first=reference_first,
                solution_hz=solution_hz,
                in_line_s=waited_s,
            )
        )
        disturbed = not counts()
        before_s, rounds.spent_s = rounds.spent_s, time.perf_counter() - begin
        if not right:
            rounds.stopped_by = "wrong answer"
            return rounds
        in_time = rounds.spent_s + begin <= limits.deadline_s()
        if disturbed and in_time:
            rounds.held.pop()
            continue
        in_line = rounds.held[-1].in_line
        again = len(rounds.doubted) < MOST_DOUBTED or (in_line and rounds.thrown_s < MOST_THROWN_S)
        if in_time and again and (why := doubt(rounds)) is not None:
            rounds.doubted.append(why)
            rounds.thrown_s += rounds.spent_s - before_s if in_line else 0.0
            rounds.held.pop()
            continue
        rounds.lacking -= rounds.lacking > 0 and any(
            planned_call.mode is CallMode.COLD for planned_call in planned_calls
        )
        samples = sum(1 for r in rounds.held for planned_call in r.planned_calls if planned_call.mode is CallMode.COLD)
        if rounds.spent_s + begin > limits.deadline_s():
            rounds.stopped_by = "deadline"
            return rounds
        rule = settled(rounds)
        if rule == "budget" and len(rounds.held) >= 2 and not rounds.lacking:
            rounds.stopped_by = rule
            return rounds
        # An even number of rounds, so that each order stands as often as the other.
        if rule is not None and samples >= least and len(rounds.held) % 2 == 0 and not rounds.lacking:
            rounds.stopped_by = rule
            return rounds
        if len(rounds.held) >= limits.max_rounds:
            rounds.stopped_by = "most rounds"
            return rounds

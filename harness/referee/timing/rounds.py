"""Run the timing plan: reference and solution alternate in rounds of bursts.

Trusted side. Bursts alternate A B B A, so that drift cancels. Each round draws new inputs. The first call of a burst is
a warm-up. The solution's times are claims, which `claims.py` judges by the referee's own clock. The referee does
nothing else during a burst. It does not judge values here: the caller of `run_rounds` verifies each round's outputs
before the next inputs are drawn.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch

from harness.devices import sm_clock
from harness.devices.back_to_back import BackToBack, QueuedStep
from harness.devices.device import CallTime, DeviceError
from harness.devices.stream_gate import PATIENCE_S, opened_after
from harness.protocol.gradients import between_passes
from harness.protocol.messages import BurstDone, CallClaim, CallMode, LaunchMode
from harness.protocol.tensor_tree import flatten
from harness.referee.problem.burst_plan import (
    FEW_SETS,
    OWN_INPUTS,
    PlannedCall,
    in_turn,
    of_mode,
    plan_calls,
    stressed_planned_calls,
)
from harness.referee.problem.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceBurst:
    """One burst of the reference, by the referee's own clocks.

    `peak_bytes` is the most memory of its parameters and of its calls' allocations. `rate_hz` is the clock rate of the
    GPU's processors (`sm_clock.py`). None means unknown.
    """

    times: tuple[CallTime, ...]
    wall_s: float
    peak_bytes: int | None = None
    rate_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One burst of the reference and one of the solution.

    The reference makes the same calls as the solution (`planned_calls`), or calls over more of the inputs
    (`reference_planned_calls`). `solution_hz` is the clock rate of the GPU's processors during the solution's burst.
    `in_line_s` is how long the solution's threads waited for a host processor.
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
        """The referee's wall seconds of the solution's burst, divided by its calls."""
        return self.solution_wall_s / len(self.planned_calls)

    @property
    def in_line(self) -> bool:
        """Whether the solution's threads waited for a host processor for long."""
        return self.in_line_s > IN_LINE_S


@dataclass(slots=True)
class Rounds:
    """All rounds of one solution, in order.

    `lacking` holds the stress variants over which no call was timed yet. `doubted` holds the reasons of the rounds
    that were repeated because their claims were not explained. Seconds: `spent_s` in total, `spent_on_s` by
    activity, `thrown_s` for repeated rounds in which the solution waited for a processor.
    """

    held: list[Round] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)
    lacking: set[str] = field(default_factory=set)
    stopped_by: str = "not started"
    spent_s: float = 0.0
    spent_on_s: dict[str, float] = field(default_factory=dict)
    thrown_s: float = 0.0

    def samples(self, mode: CallMode) -> tuple[list[list[float]], list[list[float]]]:
        """Return device times of this mode's calls, by round and call, in seconds.

        The first list contains the reference's times, the second one the solution's claims.
        """
        reference, solution = self._of_mode(mode)
        return (
            [[time.device_s for time in burst] for burst in reference],
            [[claim.device_s for claim in burst] for burst in solution],
        )

    def windows(self, mode: CallMode) -> tuple[list[float], list[float]]:
        """Return host times of this mode's calls, from submission to completion.

        The first list contains the reference's times, the second one the solution's claims. Both are flat and in
        seconds.
        """
        reference, solution = self._of_mode(mode)
        return (
            [time.window_s for burst in reference for time in burst],
            [claim.window_s for burst in solution for claim in burst],
        )

    def passes(self) -> dict[str, dict[str, float]]:
        """Return the median times of forward and backward, by pass and side, in seconds.

        Sides without a time are absent. The solution's are claims, which no rule judges.
        """
        found: dict[str, dict[str, float]] = {"forward_s": {}, "backward_s": {}}
        of_reference, of_solution = self._of_mode(CallMode.COLD)
        times: dict[str, list[CallTime | CallClaim]] = {
            "reference": [time for burst in of_reference for time in burst],
            "solution": [claim for burst in of_solution for claim in burst],
        }
        for side, calls in times.items():
            known = [(call.forward_s, call.device_s) for call in calls if call.forward_s is not None]
            split = [(forward_s, both_s) for forward_s, both_s in known if 0.0 < forward_s < both_s]
            if split:
                found["forward_s"][side] = statistics.median(forward_s for forward_s, _ in split)
                found["backward_s"][side] = statistics.median(both_s - forward_s for forward_s, both_s in split)
        return found

    def _of_mode(self, mode: CallMode) -> tuple[list[list[CallTime]], list[list[CallClaim]]]:
        return (
            [of_mode(each.reference_planned_calls, each.reference.times, mode) for each in self.held],
            [of_mode(each.planned_calls, each.solution.claims, mode) for each in self.held],
        )


class ReferenceRunner:
    """Make the reference's bursts exactly as the contestant makes the solution's.

    Args:
        workspace: Buffers of the problem.
        forward: Replaces the reference's own forward: the reference in another form (`harness.referee.baselines`).
        lane: The device's lane (stream) for these bursts.
    """

    def __init__(
        self, workspace: Workspace, forward: Callable[[Sequence[object]], object] | None = None, *, lane: int = 0
    ) -> None:
        self._workspace = workspace
        self._lane = lane
        self._forward = forward or workspace.oracle.forward
        first = workspace.sets[0]
        workspace.device.prepare_flush()  # before the first burst, because all its bursts calibrate others
        self._scratch = [torch.empty_like(workspace.tensor(slot)) for slot in first.outputs]

    def hold_back(self, indices: Sequence[int]) -> None:
        """Withhold words of these sets' inputs.

        Their source buffer is allocated on the stream of the call, next to its small results, as in the contestant's
        process.
        """
        with self._workspace.device.lane(self._lane):
            self._workspace.hold_back(indices)

    def burst(self, planned_calls: Sequence[PlannedCall]) -> ReferenceBurst:
        paces = sm_clock.of(self._workspace.device)
        with self._workspace.device.lane(self._lane):
            paces.begin()
            burst = self._burst(planned_calls)
            rate_hz = paces.end()
            # Else the state may not be restored yet when the next truth needs it on another lane.
            self._workspace.device.synchronize()
            return replace(burst, rate_hz=rate_hz)

    def _burst(self, planned_calls: Sequence[PlannedCall]) -> ReferenceBurst:
        workspace, device, oracle = self._workspace, self._workspace.device, self._workspace.oracle
        times = []
        held_bytes = device.start_peak()
        begin = time.perf_counter()
        for call in planned_calls:
            arguments = workspace.arguments(call.index)
            oracle.restore_state()
            if workspace.traits.draws_random:
                device.reseed(workspace.call_seed(call.index))
            timer = device.time_latency if call.mode is CallMode.LATENCY else device.time_cold
            with torch.no_grad(), between_passes(device.mark):
                forward = functools.partial(self._forward, arguments)
                times.append(timer(forward, self._copy, functools.partial(workspace.complete, call.index)))
        wall_s = time.perf_counter() - begin
        oracle.restore_state()
        peak_bytes = device.peak_bytes()
        if peak_bytes is not None:
            peak_bytes += oracle.state_bytes - held_bytes  # other memory in this process belongs to the harness
        return ReferenceBurst(times=tuple(times), wall_s=wall_s, peak_bytes=peak_bytes)

    def back_to_back(self, indices: Sequence[int], launch_mode: LaunchMode) -> CallTime:
        """Time the reference's calls over these sets without a pause.

        The contestant makes the solution's calls in the same way.

        Args:
            indices: Indices of the input sets.
            launch_mode: Queued, launched one by one, or inside a graph.

        Returns:
            Device and host seconds a call.

        Raises:
            DeviceError: If calls cannot be queued: the device has no gate, or the calls wait for the device.
            RuntimeError: If the calls cannot be captured in a graph.
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
            gate.owner.open()  # after a failure, queued work would block everything that follows
        took = ready.run()
        if waited:
            raise DeviceError("calls wait for the device to finish")
        return took

    def _copy(self, result: object) -> None:
        for slot, leaf in zip(self._scratch, flatten(result)[0], strict=True):
            slot.copy_(leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """Settings of one solution's rounds.

    With `FEW_SETS` or fewer sets, half of `min_samples` suffices. If a call of the solution took at least `long_s` in
    every round so far, flush included, a round has `LONG_SETS` calls and a third of `min_samples` suffices: such calls
    vary little and are expensive.

    Attributes:
        sets: Number of input sets.
        min_samples: Least calls timed with a cold cache.
        max_rounds: Most rounds.
        long_s: Seconds from which a call is long.
        call_s: Seconds of a call of the solution so far, flush included; 0 if unknown.
        stress: Stress variants, each with its part.
    """

    sets: int
    min_samples: int
    max_rounds: int
    long_s: float = math.inf
    call_s: float = 0.0
    stress: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionSide:
    """The solution's part of a round.

    Attributes:
        burst: Makes the calls; returns the claims and the referee's wall seconds.
        verify: Judges a round's outputs before the next inputs are drawn; returns False to end the timing.
        in_line_s: Seconds that the solution's threads waited for a processor in the last burst.
    """

    burst: Callable[[Sequence[PlannedCall]], tuple[BurstDone, float]]
    verify: Callable[[Sequence[PlannedCall], BurstDone], bool]
    in_line_s: Callable[[], float] = lambda: 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules:
    """Decisions about rounds: which ones count, and when they suffice.

    Attributes:
        settled: Returns the name of the rule by which the samples suffice, or None.
        look: Called after both bursts of a round, to check the GPU while outputs are verified. Its result is called at
            the end of the round; False repeats the round, because something else disturbed it.
        doubt: Returns why the last round's claims are not explained, or None. Such rounds are repeated up to
            `MOST_DOUBTED` times, and longer if the solution's threads waited for a processor (`MOST_THROWN_S`).
        deadline_s: When rounds end, on the clock of `time.perf_counter`; moves while other processes are waited for.
        untimed: Entered while inputs are drawn; other work may use the GPU meanwhile.
    """

    settled: Callable[[Rounds], str | None]
    look: Callable[[], Callable[[], bool]] = lambda: lambda: True
    doubt: Callable[[Rounds], str | None] = lambda rounds: None
    deadline_s: Callable[[], float] = lambda: math.inf
    untimed: Callable[[], AbstractContextManager[object]] = nullcontext


LONG_S = 10e-3
"""Seconds from which a call is long and needs no warm-up on a GPU. In 11 bursts of calls of 17 ms without warm-up, on
an H200, the first call took as long as the others within 0.8 %. No burst counts by its slowest call.
"""

LONG_SETS = 4
"""Calls of the solution in a round if calls are long. The reference makes as many as ever. On an H200, in 39 of its
bursts after a solution's calls of 17 to 35 ms, its first call took 2.6 % longer than the shortest (median). With three
or four reference calls of 2.6 ms, up to 22 rounds were needed.
"""

INPUTS, REFERENCE, SOLUTION, OUTPUTS = "inputs", "reference", "solution", "outputs"
"""Activities on which rounds spend their time: drawing and masking inputs, each side's bursts, verifying outputs. The
rest checks the GPU and decides whether another round follows.
"""

MAX_ROUNDS = 40
"""Rounds after which a speedup that has not settled is reported as it is."""


MOST_DOUBTED = 4
"""Most rounds of one solution that are repeated because the referee's clock does not explain the claims; a busy machine
causes that sometimes. Later such rounds count and are charged. A solution that lies in all rounds gains four rounds.
"""

IN_LINE_S = 1e-3
"""How long a solution's threads may wait for a processor in a burst before the machine may be the cause of unexplained
time: as long as the tolerance of a burst.
"""

MOST_THROWN_S = 5.0
"""Seconds for which doubted rounds are repeated if the solution's threads waited longer than `IN_LINE_S`. While builds
used all 16 processors of a machine with an H200, 10 of 20 evaluations of calls of 20 ms were charged after four
repeated rounds; with more repeats, 2 of 14. A solution can make its threads wait for each other: it gains more rounds,
and pays in each that counts.
"""


def run_rounds(
    workspace: Workspace,
    runner: ReferenceRunner,
    solution: SolutionSide,
    rules: RoundRules,
    settings: RoundSettings,
    secret: random.Random,
) -> Rounds:
    """Alternate bursts of reference and solution until enough is known.

    Some calls of each round, chosen secretly (`stressed_planned_calls`), use stress inputs, and so does the latency
    call. Otherwise code that recognises timed calls would have to be correct only on the problem's own inputs. Both
    sides time these calls over the same inputs, like any other.

    Args:
        workspace: Buffers of the problem.
        runner: Makes the reference's bursts.
        solution: Makes the solution's bursts and checks them.
        rules: Decide which rounds count and when they suffice.
        settings: Numbers of sets, samples and rounds.
        secret: Source of randomness that no contestant can predict.

    Returns:
        All rounds that count, and why they ended.
    """
    sets, call_s = settings.sets, settings.call_s
    rounds = Rounds(lacking={name for name, _ in settings.stress})
    paces = sm_clock.of(workspace.device)
    begin = lap_s = time.perf_counter()

    def spent_on(what: str) -> None:
        """Add the time since the last call of this function to an activity."""
        nonlocal lap_s
        last_s, lap_s = lap_s, time.perf_counter()
        rounds.spent_on_s[what] = rounds.spent_on_s.get(what, 0.0) + lap_s - last_s

    redraw = workspace.traits.mutates_inputs
    following = {mode: in_turn(settings.stress, secret) for mode in (CallMode.COLD, CallMode.LATENCY)}
    while True:
        # The least of all rounds: one slow round must not reduce the calls on which claims are judged (rule 4).
        call_s = min((held.call_wall_s for held in rounds.held), default=call_s)
        sparing = sets > FEW_SETS and call_s >= settings.long_s
        # Calls over such large inputs are long and vary little, and verifying one takes a tenth of a second.
        least = settings.min_samples // (3 if sparing else 2 if sets <= FEW_SETS else 1)
        indices = range(sets)
        planned_calls = reference_planned_calls = plan_calls(sets, secret, len(rounds.held))
        if sparing:
            planned_calls = plan_calls(LONG_SETS, secret, len(rounds.held), sparing=True)
        stressed = stressed_planned_calls(planned_calls, following, secret)
        with rules.untimed():
            for index in indices:
                name, part = stressed.get(index, OWN_INPUTS)
                workspace.draw(index, name, part=part)
            runner.hold_back(indices)
            workspace.device.synchronize()
        reference_first = len(rounds.held) % 2 == 0
        spent_on(INPUTS)
        reference: ReferenceBurst | None = None
        if reference_first:
            reference = runner.burst(reference_planned_calls)
            spent_on(REFERENCE)
            if redraw:
                workspace.redraw_all(indices)
        workspace.mask(indices)
        workspace.device.synchronize()
        spent_on(INPUTS)
        paces.begin()
        done, wall_s = solution.burst(planned_calls)
        solution_hz = paces.end()
        waited_s = solution.in_line_s()
        spent_on(SOLUTION)
        # If calls change their inputs, these are part of the answer, and the reference needs the original ones.
        right = None
        if redraw:
            right = solution.verify(planned_calls, done)
            spent_on(OUTPUTS)
        if reference is None:
            if redraw:
                workspace.redraw_all(indices)
                spent_on(INPUTS)
            reference = runner.burst(reference_planned_calls)
            spent_on(REFERENCE)
        counts = rules.look()
        if right is None:
            right = solution.verify(planned_calls, done)
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
        in_time = rounds.spent_s + begin <= rules.deadline_s()
        if disturbed and in_time:
            rounds.held.pop()
            continue
        in_line = rounds.held[-1].in_line
        again = len(rounds.doubted) < MOST_DOUBTED or (in_line and rounds.thrown_s < MOST_THROWN_S)
        if in_time and again and (why := rules.doubt(rounds)) is not None:
            rounds.doubted.append(why)
            rounds.thrown_s += rounds.spent_s - before_s if in_line else 0.0
            rounds.held.pop()
            continue
        cold = {call.index for call in planned_calls if call.mode is CallMode.COLD}
        rounds.lacking -= {stressed[index][0] for index in cold & stressed.keys()}
        samples = sum(call.mode is CallMode.COLD for each in rounds.held for call in each.planned_calls)
        if rounds.spent_s + begin > rules.deadline_s():
            rounds.stopped_by = "deadline"
            return rounds
        rule = rules.settled(rounds)
        if rule == "budget" and len(rounds.held) >= 2 and not rounds.lacking:
            rounds.stopped_by = rule
            return rounds
        # An even number of rounds, so that both orders are equally frequent.
        if rule is not None and samples >= least and len(rounds.held) % 2 == 0 and not rounds.lacking:
            rounds.stopped_by = rule
            return rounds
        if len(rounds.held) >= settings.max_rounds:
            rounds.stopped_by = "most rounds"
            return rounds

"""Asks a contestant for calls back to back, or for a graph of them, with the referee's clock around nothing else.

Trusted side; used by `nonstop`, `learning` and `conversation`. Queued calls (`messages.Manner`) the contestant submits
behind a shut gate and is stopped; then the inputs are drawn elsewhere and copied to where they belong, some words of
each only at the last moment (`arrival`), so that a kernel that looks out for them gains nothing; then the gate opens,
and until the last call is done nothing but the device is at work. Launched ones it makes ready, is stopped, and is
started by one short message once the inputs are there. In either case outputs are copied aside at once (`aside`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from harness.core import runqueue_delay
from harness.core.status import Failure, Status
from harness.devices.device import DeviceError
from harness.devices.stream_gate import PATIENCE_S, opened_after
from harness.protocol.messages import Burst, BurstDone, Call, CallMode, LaunchMode, Prepare
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.late_inputs import LateInputs
from harness.referee.timing.output_copies import OutputCopies, copying_s

ANSWER_LIMIT_S = 10.0
"""How long making a burst ready or launching it may take, what an earlier one left on the device included. By all that
is known both take milliseconds."""

QUEUE_LIMIT_S = 5.0
"""How long queued calls may take, which by all that is known take milliseconds."""

TOLD_EARLY = Failure(
    status=Status.disqualified,
    reason="queued calls were said to be done before they could begin",
    evidence={"rule": "told early"},
)

NOT_LAUNCHED = Failure(
    status=Status.disqualified,
    reason="calls without a pause were refused, for which nothing has to be made ready",
    evidence={"rule": "not launched"},
)


class RefusalCause(StrEnum):
    """Whose doing it is that calls can't be made in a manner."""

    WAITS = "waits"
    """Their forward waits for the device, or they take longer to submit than anybody's patience."""
    NO_MEMORY = "no_memory"
    """The referee has no memory for its part."""
    NO_GATE = "no_gate"
    """The referee's device can't hold work back."""
    FAILS = "fails"
    """They failed where they were asked for so, were wrong or did not end."""


@dataclass(frozen=True, slots=True)
class BurstRefusal:
    """Why a burst can't be had. Only `why` is the referee's; `text` may be the contestant's own words."""

    why: RefusalCause
    text: str


WAITS = BurstRefusal(RefusalCause.WAITS, "they wait for the device, or take long to submit")
NO_MEMORY = BurstRefusal(RefusalCause.NO_MEMORY, "there is no memory for copies of the inputs and outputs")


@dataclass(frozen=True, slots=True)
class Sleep:
    """How long the referee sleeps before the last words of the inputs come, and once the gate is open. Seconds."""

    before_s: float = 0.0
    behind_s: float = 0.0


AWAKE = Sleep()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackBurst:
    """One such burst: the referee's seconds around it, and the claims. `copied_s` is what it took to copy the outputs
    aside behind it; `still` tells whether they still are as they were then. Up to `late_s` of `wall_s` the referee was
    kept from looking at its clock.
    """

    planned_calls: tuple[PlannedCall, ...]
    done: BurstDone
    wall_s: float
    late_s: float
    copied_s: float
    still: Callable[[], bool]

    @property
    def claimed_s(self) -> float:
        """Seconds a call, as claimed."""
        return statistics.fmean(claim.device_s for claim in self.done.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackRunner:
    """How to ask one contestant: `request` makes a burst of calls. `limit_s` bounds each answer, in seconds."""

    workspace: Workspace
    contestant: ContestantProcess
    request: Callable[[tuple[Call, ...]], Burst]
    limit_s: float

    def run(
        self, indices: Sequence[int], launch_mode: LaunchMode, *, drawn: bool = False, rest: Sleep = AWAKE
    ) -> BackToBackBurst | BurstRefusal:
        """Make one call on each of these sets, drawn anew, without a pause; or why that can't be had.

        With `drawn` the inputs are taken as they are: for trusted code. Raises `ContestantFailed`.
        """
        workspace = self.workspace
        planned_calls = tuple(PlannedCall(index=index, mode=CallMode.COLD) for index in indices)
        calls = tuple(replace(call, late=()) for call in calls_of(workspace, planned_calls))
        try:
            coming, aside = None if drawn else LateInputs(workspace, indices), OutputCopies(workspace, indices)
        except torch.OutOfMemoryError:
            return NO_MEMORY
        if (refused := self._prepare(self.request(calls), launch_mode)) is not None:
            return refused
        if coming is not None:
            coming.draw()
            coming.deliver()
        time.sleep(rest.before_s)
        if coming is not None:
            coming.complete()
        clocked = self._open(rest.behind_s) if launch_mode is LaunchMode.QUEUED else self._go(launch_mode)
        if clocked is None:
            return BurstRefusal(RefusalCause.FAILS, "they did not end in time")
        wall_s, late_s = clocked
        copied_s, waited_s = aside.take()
        if launch_mode is LaunchMode.QUEUED:
            # It is the contestant's device that says it is done. What it still had to do then holds up the copies.
            beyond_s = max(0.0, copied_s - copying_s(workspace))
            wall_s += beyond_s
            late_s += min(waited_s, beyond_s)
        done = self.contestant.collect(len(planned_calls), self._patience_s(launch_mode))
        return BackToBackBurst(
            planned_calls=planned_calls, done=done, wall_s=wall_s, late_s=late_s, copied_s=copied_s, still=aside.same
        )

    def _patience_s(self, launch_mode: LaunchMode) -> float:
        """Seconds for one answer. Capturing a graph may build something first; the other manners do nothing new."""
        return self.limit_s if launch_mode is LaunchMode.GRAPH else min(self.limit_s, ANSWER_LIMIT_S)

    def _prepare(self, burst: Burst, launch_mode: LaunchMode) -> BurstRefusal | None:
        patience_s = self._patience_s(launch_mode)
        if launch_mode is not LaunchMode.QUEUED:
            said = self.contestant.prepare(Prepare(burst=burst, launch_mode=launch_mode), patience_s)
            if said is not None and launch_mode is LaunchMode.LAUNCHED:
                raise ContestantFailed(NOT_LAUNCHED)
            return None if said is None else BurstRefusal(RefusalCause.FAILS, said)
        try:
            gate = self.workspace.device.own_gate().owner
        except DeviceError as error:
            return BurstRefusal(RefusalCause.NO_GATE, str(error))
        request = Prepare(burst=burst, launch_mode=launch_mode, number=gate.begin())
        with opened_after(gate, PATIENCE_S):
            said = self.contestant.prepare(request, patience_s, gate.fd)
        if said is None and not gate.is_open:
            return None
        gate.open()  # whatever was queued must not stand before what comes next
        return WAITS if said is None else BurstRefusal(RefusalCause.FAILS, said)

    def _open(self, asleep_s: float) -> tuple[float, float] | None:
        """Seconds from opening the gate until what was queued behind it was done; up to how many they are too many."""
        gate = self.workspace.device.own_gate().owner
        if gate.told:
            gate.open()
            raise ContestantFailed(TOLD_EARLY)
        begin = gate.open()
        time.sleep(asleep_s)
        end = gate.wait_done(min(self.limit_s, QUEUE_LIMIT_S))
        return None if end is None else (end.at_s - begin.at_s, begin.loose_s + end.loose_s)

    def _go(self, launch_mode: LaunchMode) -> tuple[float, float]:
        """The same from starting the process until it was stopped."""
        before_s = runqueue_delay.waited_s()
        wall_s = self.contestant.go(self._patience_s(launch_mode))
        return wall_s, min(wall_s, runqueue_delay.waited_s() - before_s)

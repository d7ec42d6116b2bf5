"""Make one back-to-back burst: only its calls run between two clock readings.

Trusted side. The contestant submits queued calls behind a closed stream gate and is then stopped. The inputs are drawn
elsewhere and copied to their places; some words of each input follow at the last moment (`late_inputs.py`), so a kernel
that polls for inputs gains nothing. Then the gate opens, and only the device works until the last call is done.

The contestant prepares launched calls, is stopped, and starts them on one short message once the inputs are there. In
both modes the outputs are copied at once (`output_copies.py`). See guides/design/back_to_back.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from harness.core import runqueue_delay
from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status
from harness.devices.device import DeviceError
from harness.devices.stream_gate import PATIENCE_S, opened_after
from harness.protocol.messages import Burst, BurstDone, Call, CallMode, LaunchMode, Prepare
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.late_inputs import LateInputs
from harness.referee.timing.output_copies import OutputCopies, copying_s

ANSWER_LIMIT_S = 10.0
"""Limit for preparing or launching a burst, including work that an earlier burst left on the device; both normally take
milliseconds.
"""

QUEUE_LIMIT_S = 5.0
"""Limit for queued calls, in seconds; they normally take milliseconds."""

TOLD_EARLY = Failure(
    status=Status.disqualified,
    reason="the queued calls were reported as done before the referee opened the gate",
    evidence={"rule": "told early"},
)

NOT_LAUNCHED = Failure(
    status=Status.disqualified,
    reason="the contestant refused to launch calls back to back, which every solution must support",
    evidence={"rule": "not launched"},
)


class RefusalCause(StrEnum):
    """Why calls cannot be made in a launch mode, and whose fault it is."""

    WAITS = "waits"
    """The forward waits for the device, or takes longer to submit than `PATIENCE_S`."""
    NO_MEMORY = "no_memory"
    """The referee has no memory for its copies."""
    NO_GATE = "no_gate"
    """The referee's device has no stream gate."""
    FAILS = "fails"
    """The calls failed in this launch mode, were wrong, or did not finish."""


@dataclass(frozen=True, slots=True)
class BurstRefusal:
    """Reason why a burst was not made.

    `why` is the referee's finding; `text` may be the contestant's own words.
    """

    why: RefusalCause
    text: str


WAITS = BurstRefusal(RefusalCause.WAITS, "the calls wait for the device, or take too long to submit")
NO_MEMORY = BurstRefusal(RefusalCause.NO_MEMORY, "there is no memory for copies of the inputs and outputs")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Seconds that the referee sleeps before and during a burst.

    It sleeps `before_s` before it completes the inputs, and `behind_s` after it opens the gate.
    """

    before_s: float = 0.0
    behind_s: float = 0.0


AWAKE = Sleep()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackBurst:
    """One back-to-back burst: the referee's seconds around it, and the claims.

    `late_s` is the largest part of `wall_s` by which the referee may have read its clock late. `copied_s` is how long
    copying the outputs took after the burst. `still` says whether the outputs are unchanged since then.
    """

    planned_calls: tuple[PlannedCall, ...]
    done: BurstDone
    wall_s: float
    late_s: float
    copied_s: float
    still: Callable[[], bool]

    @property
    def claimed_s(self) -> float:
        """Mean claimed seconds a call."""
        return statistics.fmean(claim.device_s for claim in self.done.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackRunner:
    """Make back-to-back bursts of one contestant.

    `request` builds a burst from calls. `limit_s` bounds each answer, in seconds.
    """

    workspace: Workspace
    contestant: ContestantProcess
    request: Callable[[tuple[Call, ...]], Burst]
    limit_s: float

    @classmethod
    def of(cls, client: ContestantClient) -> BackToBackRunner:
        """Make the runner for a client's contestant."""
        return cls(
            workspace=client.workspace, contestant=client.contestant, request=client.request, limit_s=client.left_s
        )

    def run(
        self, indices: Sequence[int], launch_mode: LaunchMode, *, drawn: bool = False, rest: Sleep = AWAKE
    ) -> BackToBackBurst | BurstRefusal:
        """Make one call on each of these input sets without a pause.

        Args:
            indices: Indices of the input sets.
            launch_mode: How the calls are submitted.
            drawn: Use the inputs as they are, without a new draw. Only for trusted code.
            rest: How long the referee sleeps before and during the burst.

        Returns:
            The burst, or why it could not be made.

        Raises:
            ContestantFailed: If the contestant fails, or reports the end before the gate opened.
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
            return BurstRefusal(RefusalCause.FAILS, "the queued calls did not finish in time")
        wall_s, late_s = clocked
        copied_s, waited_s = aside.take()
        if workspace.device.kind is DeviceKind.CUDA:
            # The contestant reports the end. Work that was still left on the device delays the copies.
            beyond_s = max(0.0, copied_s - copying_s(workspace))
            wall_s += beyond_s
            late_s += min(waited_s, beyond_s)
        done = self.contestant.collect(len(planned_calls), self._patience_s(launch_mode))
        return BackToBackBurst(
            planned_calls=planned_calls, done=done, wall_s=wall_s, late_s=late_s, copied_s=copied_s, still=aside.same
        )

    def _patience_s(self, launch_mode: LaunchMode) -> float:
        """Return the time limit of one answer, in seconds.

        Only capturing a graph gets the full `limit_s`, because it may have to build something first.
        """
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
        gate.open()  # else the queued work would block later calls
        return WAITS if said is None else BurstRefusal(RefusalCause.FAILS, said)

    def _open(self, asleep_s: float) -> tuple[float, float] | None:
        """Open the gate and time the queue until it is done.

        Return the seconds from opening the gate to the end of the queue, and how many of them may be too many. Return
        None if the queue does not finish in time.
        """
        gate = self.workspace.device.own_gate().owner
        if gate.told:
            gate.open()
            raise ContestantFailed(TOLD_EARLY)
        begin = gate.open()
        time.sleep(asleep_s)
        end = gate.wait_done(min(self.limit_s, QUEUE_LIMIT_S))
        return None if end is None else (end.at_s - begin.at_s, begin.loose_s + end.loose_s)

    def _go(self, launch_mode: LaunchMode) -> tuple[float, float]:
        """Return the same two numbers, from starting the process until it was stopped."""
        before_s = runqueue_delay.waited_s()
        wall_s = self.contestant.go(self._patience_s(launch_mode))
        return wall_s, min(wall_s, runqueue_delay.waited_s() - before_s)

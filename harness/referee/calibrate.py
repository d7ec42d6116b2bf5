"""Calibrate a problem before its first solution: reference alone, cost of bursts.

Trusted side. The cost of bursts beyond their calls is measured on a contestant that runs the harness's own code
(`timing/noop_solution.py`), so its claims can be trusted.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.choices import DeviceKind
from harness.core.task import RefereeConfig, Task
from harness.devices.gpu_sharing_probe import wait_until_alone
from harness.protocol.messages import LaunchMode
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.pool import TrustedContestant
from harness.referee.contestants.process import ContestantFailed
from harness.referee.problem.burst_plan import EXTRA_SETS, FEW_SETS, PlannedCall, plan_calls
from harness.referee.problem.workspace import Workspace
from harness.referee.timing import noop_solution
from harness.referee.timing.back_to_back import REST_S, TOLERANCES
from harness.referee.timing.back_to_back_burst import AWAKE, BackToBackBurst, BackToBackRunner, BurstRefusal, Sleep
from harness.referee.timing.calibration import AGREE_LEAST, AGREE_SPREAD, Calibration, calibrate, lower_of
from harness.referee.timing.output_copies import learn_copying
from harness.referee.timing.reference_timing import ProblemCalibration, ReferenceTimer
from harness.referee.timing.rounds import LONG_SETS

BURSTS = 5
"""Bursts with pauses in one calibration; one more runs first and is not counted."""
STILL_S = 0.02
"""Seconds for which the trusted contestant is stopped before each burst, as a solution is while its outputs are
checked.

A burst after such a stop starts later: by 0.5 ms in the median on an H200, from 20 ms on
(`results/stills-h200.md`). Compared with bursts without a stop, correct claims were doubted.
"""

SPARING_BURSTS = 3
"""Bursts with as few calls as bursts of long calls have (`rounds.LONG_SETS`).

Part of a burst's cost does not depend on its calls: on an H200, bursts of four cost 4.5 to 6.7 ms, of ten 7.8 to 11 ms.
Compared with bursts of ten, code of 12 ms a call was charged 0.8 to 1.3 ms a call in 20 of 40 rounds on a busy host
(`results/time-h200/busy-hosts.md`).
"""

NONSTOP_BURSTS = {LaunchMode.QUEUED: 4, LaunchMode.LAUNCHED: 2}
"""Back-to-back bursts of the trusted contestant by launch mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BurstCounts:
    """Number of bursts of each kind in one calibration.

    One more of each kind runs first and is not counted.
    """

    pauses: int
    sparing: int
    back_to_back: Mapping[LaunchMode, int]


EVERY = _BurstCounts(pauses=BURSTS, sparing=SPARING_BURSTS, back_to_back=NONSTOP_BURSTS)
SPOT = _BurstCounts(pauses=1, sparing=0, back_to_back={LaunchMode.QUEUED: 1})
"""To check a calibration of an earlier run."""

TRIES = 3
"""Most repetitions of all bursts if other processes use the GPU meanwhile or the bursts disagree."""

LATE_TRIES = 6
"""Most repetitions of one back-to-back burst if the referee itself was late (`BackToBackBurst.late_s`)."""

PATIENCE_S = 0.5
"""Seconds to wait each time until no other process uses the GPU."""


class Calibrator:
    """Measures problems by the reference and by the contestant of trusted code.

    Args:
        config: Settings of the run.
        secret: Source of randomness that no contestant can predict.
        standby: Lends the contestant of trusted code.
    """

    def __init__(self, config: RefereeConfig, secret: random.Random, standby: TrustedContestant) -> None:
        self._config = config
        self._secret = secret
        self.standby = standby

    def learn(self, workspace: Workspace, task: Task) -> ProblemCalibration:
        """Calibrate a problem.

        The bursts' cost counts as overhead of the defences; the time of the reference does not, since every
        measurement needs it.

        Returns:
            The calibration. If the trusted contestant fails, it is not calm, and the first solution shows the cause.
        """
        _left_alone(workspace, PATIENCE_S)
        timer = ReferenceTimer(workspace, sets=self._sets(workspace))
        if timer.apart:
            timer.result()
        with workspace.ledger.spend("calibration"):
            known = self._with_bursts(ProblemCalibration(quiet=timer.so_far), workspace, task, timer)
        return replace(known, quiet=timer.result())

    def recall(self, earlier: ProblemCalibration, workspace: Workspace, task: Task) -> ProblemCalibration | None:
        """Check the calibration of an earlier run on this GPU by one burst of each kind.

        Returns:
            The calibration with the lower of old and new times; None if the reference or the bursts take another time
                than they did, or other work disturbs them.
        """
        _left_alone(workspace, PATIENCE_S)
        with workspace.ledger.spend("calibration"):
            now = ReferenceTimer(workspace, sets=self._sets(workspace)).so_far
            difference = abs(math.log(now.reference_s / earlier.quiet.reference_s))
            few = now.back_to_back_sets != earlier.quiet.back_to_back_sets
            if few or difference > earlier.quiet.same_log_width:
                return None
            spot = self._with_bursts(ProblemCalibration(quiet=now), workspace, task, counts=SPOT)
        if not spot.calm or spot.pauses is None or earlier.pauses is None:
            return None
        before_s = earlier.pauses.per_call_s
        if not (1 - AGREE_SPREAD) * before_s <= spot.pauses.per_call_s <= AGREE_LEAST * before_s:
            return None
        known = _lower(earlier, spot.pauses, None, spot.back_to_back, alone=True)
        quiet = replace(earlier.quiet, empty_calls=now.empty_calls)
        return replace(known, quiet=quiet, process_bytes=spot.process_bytes or earlier.process_bytes)

    def learn_again(self, known: ProblemCalibration, workspace: Workspace, task: Task) -> ProblemCalibration:
        """Repeat the bursts of trusted code over new inputs.

        Returns:
            The calibration with the lower of old and new times.
        """
        sets = self._sets(workspace)
        for index in range(max(sets, known.quiet.back_to_back_sets)):
            workspace.draw(index)
        workspace.hold_back(range(sets))
        return self._with_bursts(known, workspace, task)

    def _sets(self, workspace: Workspace) -> int:
        return min(len(workspace.sets), self._config.sets_per_burst + EXTRA_SETS)

    def _with_bursts(
        self,
        known: ProblemCalibration,
        workspace: Workspace,
        task: Task,
        meanwhile: ReferenceTimer | None = None,
        counts: _BurstCounts = EVERY,
    ) -> ProblemCalibration:
        """Add the cost of bursts to `known`; if they fail, mark it as not calm.

        `meanwhile` runs while the contestant is stopped, as the reference's bursts do next to a solution's.
        """
        own = replace(
            task,
            problem=replace(task.problem, backward=()),
            source=noop_solution.source(workspace.traits, workspace.oracle.initial_state),
            filename="idle.py",
            modules=(),
            parts=(),
            readable=(),
        )
        sets, back_to_back_sets = self._sets(workspace), known.quiet.back_to_back_sets
        while True:
            kept = self.standby.waits
            try:
                with self.standby.lent(own) as contestant:
                    client = ContestantClient(self._config, workspace, contestant, own, {}, time.perf_counter())
                    bursts = _TrustedBursts(client, self._secret, meanwhile, counts)
                    client.load(known.quiet.empty_calls, unless_known=True)
                    for _ in range(TRIES):
                        alone = _left_alone(workspace, PATIENCE_S)
                        pauses = bursts.with_pauses(sets)
                        sparing = bursts.with_few_calls() if counts.sparing and sets > FEW_SETS else None
                        back_to_back = bursts.back_to_back(back_to_back_sets) if back_to_back_sets else {}
                        alone = alone and _left_alone(workspace, 0.0)
                        known = _lower(known, pauses, sparing, back_to_back, alone=alone)
                        if known.calm:
                            break
                    process_bytes = self.standby.give_back(contestant, workspace.device, client.peak_bytes)
                    return replace(known, process_bytes=process_bytes or known.process_bytes)
            except ContestantFailed:
                if not kept:
                    return replace(known, calm=False)


def _left_alone(workspace: Workspace, patience_s: float) -> bool:
    """Wait at most `patience_s`; return whether no other process uses the GPU."""
    if workspace.device.kind is DeviceKind.HOST:
        return True
    return wait_until_alone(workspace.device.torch_device.index or 0, patience_s).alone


def _lower(
    known: ProblemCalibration,
    pauses: Calibration,
    sparing: Calibration | None,
    back_to_back: Mapping[LaunchMode, Calibration],
    *,
    alone: bool,
) -> ProblemCalibration:
    """Combine old and new times; `alone`: no other process used the GPU meanwhile."""
    lowest = dict(known.back_to_back)
    for launch_mode, latest in back_to_back.items():
        lowest[launch_mode] = lower_of(lowest.get(launch_mode), replace(latest, calm=alone))
    calm = alone and pauses.agrees
    few = known.sparing if sparing is None else lower_of(known.sparing, replace(sparing, calm=calm))
    every = lower_of(known.pauses, replace(pauses, calm=calm))
    return replace(known, pauses=every, sparing=few, back_to_back=lowest, calm=calm)


class _TrustedBursts:
    """Bursts of the harness's own solution: timed, but not judged.

    `meanwhile` runs while the contestant is stopped.
    """

    def __init__(
        self, client: ContestantClient, secret: random.Random, meanwhile: ReferenceTimer | None, counts: _BurstCounts
    ) -> None:
        self._client = client
        self._secret = secret
        self._meanwhile = meanwhile
        self._counts = counts
        self._still_since_s = math.inf
        """When its last burst ended, on the clock of `time.perf_counter`."""

    def with_pauses(self, sets: int) -> Calibration:
        """Measure what bursts over `sets` input sets cost beyond their calls."""
        plans = [plan_calls(sets, self._secret, number + 1) for number in range(self._counts.pauses + 1)]
        # The first burst loads code and allocates, and is not counted: it needs no pause.
        bursts = [
            self._with_pause(planned_calls, STILL_S if number else 0.0) for number, planned_calls in enumerate(plans)
        ]
        return calibrate(bursts[1:])

    def with_few_calls(self) -> Calibration:
        """Measure bursts of `LONG_SETS` calls; call after `with_pauses`."""
        numbers = range(self._counts.sparing)
        plans = [plan_calls(LONG_SETS, self._secret, number + 1, sparing=True) for number in numbers]
        return calibrate([self._with_pause(planned_calls, STILL_S) for planned_calls in plans])

    def _with_pause(self, planned_calls: Sequence[PlannedCall], still_s: float) -> tuple[float, list[float]]:
        """Run a burst after the contestant was stopped for `still_s` seconds."""
        while self._meanwhile is not None and not self._meanwhile.over and self._stood_still_s < still_s:
            self._meanwhile.step()
        self._client.workspace.mask([call.index for call in planned_calls])
        self._client.workspace.device.synchronize()
        time.sleep(max(0.0, still_s - self._stood_still_s))
        done, wall_s = self._client.burst(planned_calls)
        self._still_since_s = time.perf_counter()
        return wall_s, [claim.device_s for claim in done.claims]

    @property
    def _stood_still_s(self) -> float:
        return max(0.0, time.perf_counter() - self._still_since_s)

    def back_to_back(self, sets: int) -> dict[LaunchMode, Calibration]:
        """Measure back-to-back calls over the first `sets` sets in each launch mode.

        Their kernels count as taking no time, so that all the measured time is launch overhead.
        """
        calibrations: dict[LaunchMode, Calibration] = {}
        for launch_mode, number in self._counts.back_to_back.items():
            outcomes = [self._back_to_back_alone(range(sets), launch_mode) for _ in range(number + 1)]
            bursts = [each for each in outcomes[1:] if isinstance(each, BackToBackBurst)]
            if bursts:
                calibrations[launch_mode] = calibrate([(burst.wall_s, [0.0] * sets) for burst in bursts])
                if launch_mode is LaunchMode.QUEUED:
                    learn_copying(self._client.workspace, [burst.copied_s for burst in bursts])
        return calibrations

    def _back_to_back_alone(self, indices: range, launch_mode: LaunchMode) -> BackToBackBurst | BurstRefusal:
        """Run one back-to-back burst and free its output copies at once.

        If the referee was late it runs again: a cost that is too high would let false claims pass.
        """
        rest = AWAKE
        for _ in range(LATE_TRIES):
            burst = BackToBackRunner.of(self._client).run(indices, launch_mode, drawn=True, rest=rest)
            if isinstance(burst, BurstRefusal):
                return burst
            burst, rest = replace(burst, still=lambda: False), Sleep(REST_S)
            if burst.late_s <= TOLERANCES[launch_mode].burst_s:
                break
        return burst

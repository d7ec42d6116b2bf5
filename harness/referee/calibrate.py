"""What is learnt of a problem before any solution to it is started: the reference on its own, and what bursts cost.

Trusted side; used by the referee, once a problem. What bursts cost beside their calls is measured on a contestant like
any other whose code is the harness's own (`idle`), so that its claims can be believed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.core.choices import DeviceKind
from harness.core.task import Task
from harness.devices import empty_kernel
from harness.devices.gpu_sharing_probe import wait_until_alone
from harness.protocol.messages import EmptyTimed, LaunchMode
from harness.referee.contestants.pool import TrustedContestant
from harness.referee.contestants.process import ContestantFailed
from harness.referee.context import RefereeContext
from harness.referee.problem.burst_plan import FEW_SETS, PlannedCall, plan_calls
from harness.referee.problem.workspace import Workspace
from harness.referee.session import EXTRA_SETS, Session
from harness.referee.timing import noop_solution
from harness.referee.timing.back_to_back import REST_S, TOLERANCES
from harness.referee.timing.back_to_back_burst import AWAKE, BackToBackBurst, BurstRefusal, Sleep
from harness.referee.timing.calibration import Calibration, calibrate, lower_of
from harness.referee.timing.output_copies import learn_copying
from harness.referee.timing.reference_timing import ProblemCalibration, ReferenceTimer
from harness.referee.timing.rounds import LONG_SETS

BURSTS = 5
STILL_S = 0.02
"""How long the trusted contestant stands still before each burst. A solution's does so while its answers are verified,
and is slower to begin then: by 0.5 ms in the median on an H200 from 20 ms on (`tests/benchmarks/bench_stills.py`), so
that claims held against bursts that followed one another at once were doubted without reason."""

SPARING_BURSTS = 3
"""Bursts of as few calls as long ones are made in (`measure.LONG_SETS`). Some of what a burst costs is there whatever
the number of its calls: on an H200 four cost 4.5 to 6.7 ms, ten 7.8 to 11. Held against bursts of ten, code that takes
12 ms a call was charged 0.8 to 1.3 ms a call in 20 of 40 rounds on a busy host (`results/time-h200/busy-hosts.md`)."""

NONSTOP_BURSTS = {LaunchMode.QUEUED: 4, LaunchMode.LAUNCHED: 2}
"""Bursts of the trusted contestant: with pauses, and in each manner without."""

TRIES = 3
"""How often they are made at most where others work on the GPU meanwhile, or the bursts differ among themselves."""

LATE_TRIES = 6
"""How often one of them without pauses is made at most where the referee was kept from its clock
(`BackToBackBurst.late_s`)."""

PATIENCE_S = 0.5
"""How long is waited each time for others' work to end."""


def learn(context: RefereeContext, workspace: Workspace, task: Task, standby: TrustedContestant) -> ProblemCalibration:
    """Measure it all; where the trusted contestant fails, the first solution shows why.

    What its bursts take is a defence and counts as one; what the reference takes alone every measurement has to know.
    """
    _left_alone(workspace, PATIENCE_S)
    quieting = ReferenceTimer(workspace, sets=_sets(context, workspace))
    if quieting.apart:
        quieting.result()
    with workspace.ledger.spend("calibration"):
        learnt = _with_bursts(ProblemCalibration(quiet=quieting.so_far), context, workspace, task, standby, quieting)
    return replace(learnt, quiet=quieting.result())


def learn_again(
    known: ProblemCalibration, context: RefereeContext, workspace: Workspace, task: Task, standby: TrustedContestant
) -> ProblemCalibration:
    """`known` with the bursts of trusted code made anew over new inputs, the lower of all that they ever took."""
    for index in range(max(_sets(context, workspace), known.quiet.back_to_back_sets)):
        workspace.draw(index)
    workspace.hold_back(range(_sets(context, workspace)))
    return _with_bursts(known, context, workspace, task, standby)


def _sets(context: RefereeContext, workspace: Workspace) -> int:
    return min(len(workspace.sets), context.config.sets_per_burst + EXTRA_SETS)


def _left_alone(workspace: Workspace, patience_s: float) -> bool:
    """Whether no other process has work on the GPU, waiting for that so long."""
    if workspace.device.kind is DeviceKind.HOST:
        return True
    return wait_until_alone(workspace.device.torch_device.index or 0, patience_s).alone


def _with_bursts(
    known: ProblemCalibration,
    context: RefereeContext,
    workspace: Workspace,
    task: Task,
    standby: TrustedContestant,
    meanwhile: ReferenceTimer | None = None,
) -> ProblemCalibration:
    """`known` and what bursts take now; where that can't be measured, what was known is in doubt. `meanwhile` goes on
    while the contestant stands still, as a reference's bursts do beside a solution's.
    """
    own = replace(
        task,
        source=noop_solution.source(workspace.traits, workspace.oracle.initial_state),
        filename="idle.py",
        modules=(),
        parts=(),
        readable=(),
    )
    while True:
        kept = standby.waits
        try:
            with standby.lent(own) as contestant:
                session = _Trusted(context, workspace, contestant, own, {}, {}, time.perf_counter())
                session.meanwhile = meanwhile
                session.load(known.quiet.empty_calls)
                for _ in range(TRIES):
                    alone = _left_alone(workspace, PATIENCE_S)
                    pauses = session.with_pauses(_sets(context, workspace))
                    sparing = session.with_few_calls() if _sets(context, workspace) > FEW_SETS else None
                    back_to_back = (
                        session.without(known.quiet.back_to_back_sets) if known.quiet.back_to_back_sets else {}
                    )
                    alone = alone and _left_alone(workspace, 0.0)
                    known = _lower(known, pauses, sparing, back_to_back, alone=alone)
                    if known.calm:
                        break
                process_bytes = standby.give_back(contestant, workspace.device, session.peak_bytes)
                return replace(known, process_bytes=process_bytes or known.process_bytes)
        except ContestantFailed:
            if not kept:
                return replace(known, calm=False)


def _lower(
    known: ProblemCalibration,
    pauses: Calibration,
    sparing: Calibration | None,
    back_to_back: Mapping[LaunchMode, Calibration],
    *,
    alone: bool,
) -> ProblemCalibration:
    """What was known, and what was measured now; `alone` says that no other process had work then."""
    lowest = dict(known.back_to_back)
    for launch_mode, found in back_to_back.items():
        lowest[launch_mode] = lower_of(lowest.get(launch_mode), replace(found, calm=alone))
    calm = alone and pauses.agrees
    few = known.sparing if sparing is None else lower_of(known.sparing, replace(sparing, calm=calm))
    every = lower_of(known.pauses, replace(pauses, calm=calm))
    return replace(known, pauses=every, sparing=few, back_to_back=lowest, calm=calm)


class _Trusted(Session):
    """A session with the harness's own solution, which is loaded, timed and not judged."""

    meanwhile: ReferenceTimer | None = None
    """What is done while it stands still."""

    _still_since_s = math.inf
    """When its last burst was over, by the clock."""

    def load(self, lanes: Mapping[int, EmptyTimed]) -> None:
        """Bring it in; the first one's empty calls count for the contestants after it."""
        known = empty_kernel.of(self._workspace.device).knows(one_queue=self._contestant.has_one_queue)
        self._load(empty=bool(lanes) and not known)
        self._compare(lanes)

    @property
    def peak_bytes(self) -> int | None:
        """The most that its calls have allocated."""
        return self._peak_bytes

    def with_pauses(self, sets: int) -> Calibration:
        """What bursts over `sets` sets take beside the device times of their calls."""
        plans = [plan_calls(sets, self._secret, number + 1) for number in range(BURSTS + 1)]
        # The first one loads and allocates: how long it stood still makes no difference.
        return calibrate(
            [self._with_pause(planned_calls, STILL_S if number else 0.0) for number, planned_calls in enumerate(plans)][
                1:
            ]
        )

    def with_few_calls(self) -> Calibration:
        """The same of bursts of `LONG_SETS` calls, once those of more were made."""
        plans = [plan_calls(LONG_SETS, self._secret, number + 1, sparing=True) for number in range(SPARING_BURSTS)]
        return calibrate([self._with_pause(planned_calls, STILL_S) for planned_calls in plans])

    def _with_pause(self, planned_calls: Sequence[PlannedCall], still_s: float) -> tuple[float, list[float]]:
        """A burst, once it has stood still so long."""
        while self.meanwhile is not None and not self.meanwhile.over and self._stood_still_s < still_s:
            self.meanwhile.step()
        self._workspace.mask([planned_call.index for planned_call in planned_calls])
        self._workspace.device.synchronize()
        time.sleep(max(0.0, still_s - self._stood_still_s))
        done, wall_s = self._burst(planned_calls)
        self._still_since_s = time.perf_counter()
        return wall_s, [claim.device_s for claim in done.claims]

    @property
    def _stood_still_s(self) -> float:
        return max(0.0, time.perf_counter() - self._still_since_s)

    def without(self, sets: int) -> dict[LaunchMode, Calibration]:
        """What calls back to back over the first `sets` sets, as drawn, take in each manner that this device has.

        Their device times are taken as nothing: what launches take here counts as what launches take.
        """
        found: dict[LaunchMode, Calibration] = {}
        for launch_mode, number in NONSTOP_BURSTS.items():
            bursts = [self._back_to_back_alone(range(sets), launch_mode) for _ in range(number + 1)]
            made = [held for held in bursts[1:] if isinstance(held, BackToBackBurst)]
            if made:
                found[launch_mode] = calibrate([(held.wall_s, [0.0] * sets) for held in made])
                if launch_mode is LaunchMode.QUEUED:
                    learn_copying(self._workspace, [held.copied_s for held in made])
        return found

    def _back_to_back_alone(self, indices: range, launch_mode: LaunchMode) -> BackToBackBurst | BurstRefusal:
        """One such burst, the copies of whose outputs are let go of at once: the next ones are to get their memory.

        It is made again where the referee was kept from its clock, some times at most: what it costs would seem more,
        and more would be let pass.
        """
        rest = AWAKE
        for _ in range(LATE_TRIES):
            held = self._burst_runner().run(indices, launch_mode, drawn=True, rest=rest)
            if isinstance(held, BurstRefusal):
                return held
            held, rest = replace(held, still=lambda: False), Sleep(REST_S)
            if held.late_s <= TOLERANCES[launch_mode].burst_s:
                break
        return held

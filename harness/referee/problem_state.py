"""The problem that a referee has at hand: made ready, held against blind answers, and what was learnt of it.

Control layer, trusted side; used by the referee, which keeps the last problem so that solutions to one that follow one
another share inputs' layout, reference and calibration. Nothing of a submission is known here.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload
from harness.core.task import RefereeConfig, Task
from harness.devices import empty_kernel, measured_peaks
from harness.devices.device import Device
from harness.devices.gpu_specs import Peaks
from harness.referee.audit.background import NO_MEMORY
from harness.referee.calibrate import learn, learn_again
from harness.referee.contestants.pool import TrustedContestant
from harness.referee.context import RefereeContext
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.problem.watchdog import Phase, ProgressMarker
from harness.referee.problem.workspace import Workspace
from harness.referee.session import EXTRA_SETS
from harness.referee.soundness import Soundness
from harness.referee.timing.reference_timing import NONSTOP_SETS, ProblemCalibration

RECALLED_S = 600.0
"""For how long what was learnt counts where other problems came between, from when one first did: a GPU and its
machine may change. A problem that stays at hand is not learnt again either."""

MOST_RECALLED = 256
"""Problems at most; those that were left first are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """`copying_s` is the bench's own, learnt from trusted code; `sets` is how many it had. `left_s` is when the problem
    was left with this knowledge for the first time, by the clock.
    """

    known: ProblemCalibration
    copying_s: float
    sets: int
    left_s: float


class CalibrationCache:
    """One referee's. Not safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._left: OrderedDict[Hashable, _Left] = OrderedDict()
        self._come_back: tuple[Hashable, _Left] | None = None

    def leave(self, workspace: Workspace, known: ProblemCalibration | None) -> None:
        """Remember what is known of the bench's problem, which is about to be closed; not where it is in doubt."""
        key = _key(workspace)
        self._left.pop(key, None)
        last, self._come_back = self._come_back, None
        if known is None or not known.calm:
            return
        # Who comes back again and again would else go by what was learnt hours ago.
        same = last is not None and last[0] == key and last[1].known is known
        left_s = last[1].left_s if last is not None and same else self._clock()
        self._left[key] = _Left(known=known, copying_s=workspace.copying_s, sets=len(workspace.sets), left_s=left_s)
        while len(self._left) > MOST_RECALLED:
            self._left.popitem(last=False)

    def come_back(self, workspace: Workspace) -> ProblemCalibration | None:
        """What is remembered of the problem of this bench, which gets its own part of it; None where that is nothing,
        or too old, or was learnt over another number of sets.
        """
        key = _key(workspace)
        left = self._left.pop(key, None)
        self._come_back = None
        if left is None or left.sets != len(workspace.sets) or self._clock() - left.left_s > RECALLED_S:
            return None
        workspace.copying_s = left.copying_s
        self._come_back = key, left
        return left.known


def _key(workspace: Workspace) -> Hashable:
    problem, workload = workspace.problem, workspace.workload
    return problem.digest, problem.precision, workload.name, str(sorted(workload.sizes.items()))


STRESS_DRAWS = 2
"""Draws of each stress variant: one draw may hide a mistake (a lost term that happens to be near zero)."""

WARMING = 2
"""How often a problem is learnt ahead for what that loads: the second contestant of trusted code is the first to be
kept (`TrustedContestant.give_back`)."""


def variants(config: RefereeConfig, problem: Problem) -> list[tuple[str, int]]:
    """Variant and part of each call of the verification: own inputs with several seeds, each other one twice."""
    stress = [(variant, part) for variant in problem.rules.variants for part in range(STRESS_DRAWS)]
    return [("own", part) for part in range(config.seeds)] + stress


class CurrentProblem:
    """One referee's, on its device. Not safe for threads.

    `context` are what sessions about a task are lent, `progress_marker` is told when the problem's code runs.
    """

    def __init__(
        self,
        config: RefereeConfig,
        device: Device,
        secret: random.Random,
        *,
        standby: TrustedContestant,
        exclusive: GpuExclusive,
        context: Callable[[Task], RefereeContext],
        progress_marker: ProgressMarker,
    ) -> None:
        self.config = config
        self._device = device
        self._secret = secret
        self._standby = standby
        self._exclusive = exclusive
        self._context = context
        self._progress_marker = progress_marker
        self._soundness = Soundness(allow_degenerate=config.allow_degenerate)
        self._recall = CalibrationCache()
        self.workspace: Workspace | None = None
        self.known: ProblemCalibration | None = None
        """What was learnt of the problem that `workspace` is for."""
        self.peaks: Peaks | None = None
        """This GPU's, as measured."""
        self.warmed = 0
        """How often a problem was learnt for what that loads."""

    def close(self) -> None:
        """Have none at hand. Idempotent."""
        if self.workspace is not None:
            self._recall.leave(self.workspace, self.known)
            self.workspace.close()
            self.workspace = None
            self.known = None

    def workspace_for(self, problem: Problem, workload: Workload) -> Workspace:
        """The problem made ready, kept while solutions to it follow one another. Raises `ProblemError`."""
        held = self.workspace
        if held is not None and _is_for(held, problem, workload):
            return held
        self.close()
        with self._progress_marker.at(problem, workload, Phase.READY):
            self.workspace = Workspace(
                problem,
                workload,
                self._device,
                sets_wanted=max(self.config.sets_per_burst + EXTRA_SETS, len(variants(self.config, problem)) + 1),
                secret=self._secret,
                small_sets_wanted=NONSTOP_SETS if self.config.device is DeviceKind.CUDA else 0,
                progress_marker=self._progress_marker,
            )
        self.known = self._recall.come_back(self.workspace)
        return self.workspace

    def has(self, task: Task) -> bool:
        """Whether the bench is for its problem."""
        return self.workspace is not None and _is_for(self.workspace, task.problem, task.workload)

    def is_ready_for(self, task: Task) -> bool:
        """Whether its problem is prepared, and what there is to learn of it is known."""
        learnt = self.known is not None or not task.timed or self.config.device is DeviceKind.HOST
        return self.has(task) and learnt

    def ready(self, task: Task) -> tuple[Workspace, tuple[str, ...]]:
        """The bench of the task's problem, wiped of what a contestant left, and what the problem wrongly takes for
        right. Raises `ProblemError` and `NO_MEMORY`.
        """
        try:
            workspace = self.workspace_for(task.problem, task.workload)
            with self._progress_marker.at(task.problem, task.workload, Phase.READY):
                degenerate = self._soundness.check(workspace)
                workspace.publish()
        except NO_MEMORY:
            self.close()
            raise
        return workspace, degenerate

    def run_all(self, task: Task) -> None:
        """Run what judging solutions to the task's problem runs of its code, on every variant. Raises as `ready`."""
        workspace, _ = self.ready(task)
        with self._progress_marker.at(task.problem, task.workload, Phase.READY):
            for variant, part in variants(self.config, task.problem):
                workspace.draw(0, variant, part=part)
                workspace.truth(0)
                workspace.answer(0)
            self._device.synchronize()

    def learn(self, task: Task) -> None:
        """Learn of the problem at hand what there is to learn before its first solution, and again what was learnt
        while others were at work on the GPU.
        """
        if not task.timed:
            return
        if self.known is not None and not self.known.calm:
            with self._exclusive.held():
                self.learn_again(task)
        elif self.known is None and self.config.device is DeviceKind.CUDA:
            assert self.workspace is not None
            with self._exclusive.held(), self._progress_marker.at(task.problem, task.workload, Phase.READY):
                self.known = learn(self._context(task), self.workspace, task, self._standby)

    def learn_again(self, task: Task) -> ProblemCalibration:
        """Measure anew what bursts over the bench cost; the lower counts, for the next solutions too."""
        assert self.workspace is not None
        assert self.known is not None
        with self.workspace.ledger.spend("calibration"):
            self.known = learn_again(self.known, self._context(task), self.workspace, task, self._standby)
        return self.known

    def warm_up(self, task: Task) -> None:
        """Learn of the problem at hand for what that loads and starts alone, until the contestant of trusted code is
        kept, or it was done as often as helps.
        """
        learns = task.timed and self.known is None and self.config.device is DeviceKind.CUDA
        if learns and not self._standby.waits and self.warmed < WARMING:
            self.warmed += 1
            self.learn(task)
            self.known = None
            empty_kernel.of(self._device).forget()

    def find_peaks(self) -> None:
        """Look whether this GPU's peaks were measured before."""
        if self.peaks is None and self.config.cache_dir and (key := measured_peaks.key_of(self._device)) is not None:
            self.peaks = measured_peaks.held(key, Path(self.config.cache_dir))

    def know_peaks(self, task: Task) -> None:
        """Find out this GPU's peaks, once a referee."""
        if task.timed and self.peaks is None and self.config.cache_dir and self.config.device is DeviceKind.CUDA:
            with self._exclusive.held():
                self.peaks = measured_peaks.ensure(self._device, Path(self.config.cache_dir))


def _is_for(workspace: Workspace, problem: Problem, workload: Workload) -> bool:
    held = workspace.problem
    return (held.digest, held.precision, workspace.workload) == (problem.digest, problem.precision, workload)

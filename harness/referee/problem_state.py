"""State of the problem loaded in the referee: workspace, soundness, calibration.

Trusted side. The referee keeps the last problem prepared, and calibrations of problems used before. No submission's
code or data is involved.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload
from harness.core.task import RefereeConfig, Task
from harness.devices import empty_kernel, measured_peaks
from harness.devices.device import Device
from harness.devices.gpu_specs import Peaks
from harness.referee.calibrate import Calibrator
from harness.referee.calibration_store import CalibrationStore
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.problem.burst_plan import EXTRA_SETS
from harness.referee.problem.size_ranges import SECRET
from harness.referee.problem.stress_variants import checked_variants
from harness.referee.problem.watchdog import Phase, ProgressMarker
from harness.referee.problem.workspace import NO_MEMORY, Workspace, key_of
from harness.referee.soundness import Soundness
from harness.referee.timing.reference_timing import NONSTOP_SETS, ProblemCalibration

RECALLED_S = 600.0
"""Seconds for which a calibration stays valid after its problem was replaced by another: GPU and machine may change. A
problem that stays loaded is not calibrated again either.
"""

MOST_RECALLED = 256
"""Most problems in the cache; the oldest is dropped first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """A cached calibration.

    `copying_s` and `sets` belong to the workspace it was measured with. `left_s` is when the problem was first
    replaced.
    """

    known: ProblemCalibration
    copying_s: float
    sets: int
    left_s: float


class CalibrationCache:
    """Calibrations of recently used problems of one referee. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Use `clock`, in seconds."""
        self._clock = clock
        self._left: OrderedDict[Hashable, _Left] = OrderedDict()
        self._come_back: tuple[Hashable, _Left] | None = None

    def leave(self, workspace: Workspace, known: ProblemCalibration | None) -> None:
        """Store the calibration of a workspace that is about to be closed.

        Args:
            workspace: The workspace.
            known: Its calibration; None, or one that other work disturbed, is not stored.
        """
        key = key_of(workspace.problem, workspace.workload)
        self._left.pop(key, None)
        last, self._come_back = self._come_back, None
        if known is None or not known.calm:
            return
        # Keep the first time: else a problem that returns again and again would use a calibration of hours ago.
        same = last is not None and last[0] == key and last[1].known is known
        left_s = last[1].left_s if last is not None and same else self._clock()
        self._left[key] = _Left(known=known, copying_s=workspace.copying_s, sets=len(workspace.sets), left_s=left_s)
        while len(self._left) > MOST_RECALLED:
            self._left.popitem(last=False)

    def come_back(self, workspace: Workspace) -> ProblemCalibration | None:
        """Return the stored calibration of a new workspace's problem.

        Args:
            workspace: The workspace; its `copying_s` is set if a calibration is found.

        Returns:
            The calibration, or None if there is none, it is too old, or the number of input sets differs.
        """
        key = key_of(workspace.problem, workspace.workload)
        left = self._left.pop(key, None)
        self._come_back = None
        if left is None or left.sets != len(workspace.sets) or self._clock() - left.left_s > RECALLED_S:
            return None
        workspace.copying_s = left.copying_s
        self._come_back = key, left
        return left.known


PARKED_BYTES = 512 * 2**20
"""Most bytes of a workspace that stays ready at secret sizes; solutions need the memory."""


def _is_secret(workload: Workload) -> bool:
    return workload.name.startswith(SECRET)


WARMING = 2
"""Calibrations run ahead only to load code: the pool keeps the second contestant of trusted code, not the first
(`TrustedContestant.give_back`).
"""


class CurrentProblem:
    """The problem loaded in one referee. Not thread-safe."""

    def __init__(
        self,
        config: RefereeConfig,
        device: Device,
        secret: random.Random,
        *,
        calibrator: Calibrator,
        exclusive: GpuExclusive,
        progress_marker: ProgressMarker,
    ) -> None:
        self.config = config
        self._device = device
        self._secret = secret
        self._calibrator = calibrator
        self._exclusive = exclusive
        self._progress_marker = progress_marker
        self._store = CalibrationStore(config, device)
        self._soundness = Soundness(allow_degenerate=config.allow_degenerate, earlier=self._earlier_taken_for_right)
        self._recall = CalibrationCache()
        self._parked: OrderedDict[Hashable, tuple[Workspace, ProblemCalibration | None]] = OrderedDict()
        self._model_seed: tuple[str, int] | None = None
        self.workspace: Workspace | None = None
        self.known: ProblemCalibration | None = None
        """Calibration of the problem in `workspace`."""
        self.peaks: Peaks | None = None
        """Measured peaks of this GPU."""
        self.warmed = 0
        """Calibrations that were run only to load code."""

    def close(self) -> None:
        """Unload the problem. Idempotent."""
        parked, self._parked = [*self._parked.values()], OrderedDict()
        if self.workspace is not None:
            parked.append((self.workspace, self.known))
        self.workspace = self.known = None
        for workspace, known in parked:
            self._leave(workspace, known)

    def _leave(self, workspace: Workspace, known: ProblemCalibration | None) -> None:
        self._recall.leave(workspace, known)
        workspace.close()

    def park(self) -> None:
        """Unload the current sizes, and keep them ready if they need little memory."""
        if self.workspace is None:
            return
        workspace, known = self.workspace, self.known
        self.workspace = self.known = None
        # The shown sizes are kept between solutions anyway.
        if _is_secret(workspace.workload) and workspace.arena.nbytes > PARKED_BYTES:
            self._leave(workspace, known)
        else:
            self._parked[workspace.key] = (workspace, known)

    def forget_shapes(self, problem: Problem, besides: Sequence[Workload]) -> None:
        """Close what is ready at other secret sizes: no evaluation comes back to them."""
        wanted = {key_of(problem, each) for each in besides}
        for key, (workspace, known) in [*self._parked.items()]:
            if _is_secret(workspace.workload) and key not in wanted:
                del self._parked[key]
                self._leave(workspace, known)

    def workspace_for(self, problem: Problem, workload: Workload) -> Workspace:
        """Return the problem's workspace, and keep it for the next solution.

        Returns:
            The loaded workspace, if it is for this problem and workload, else a new one.

        Raises:
            ProblemError: The problem is at fault.
        """
        key = key_of(problem, workload)
        if self.workspace is not None and self.workspace.key == key:
            return self.workspace
        latest = self.workspace
        if latest is not None and (_is_secret(latest.workload) or _is_secret(workload)):
            self.park()
        if key in self._parked:
            self.workspace, self.known = self._parked.pop(key)
            return self.workspace
        if not _is_secret(workload):  # all parked ones belong to another evaluation
            self.close()
        self.workspace = self.make_workspace(
            problem,
            workload,
            sets_wanted=max(
                self.config.sets_per_burst + EXTRA_SETS, len(checked_variants(problem, self.config.seeds)) + 1
            ),
            small_sets_wanted=NONSTOP_SETS if self.config.device is DeviceKind.CUDA else 0,
            model_seed=self._model_seed_of(problem),
        )
        self._model_seed = problem.digest, self.workspace.model_seed
        self.known = self._recall.come_back(self.workspace)
        return self.workspace

    def _model_seed_of(self, problem: Problem) -> int | None:
        """Return the seed of the problem's models at other sizes.

        With one seed, a solution may keep its model when sizes change.
        """
        latest = self._model_seed
        return latest[1] if latest is not None and latest[0] == problem.digest and problem.model_seed is None else None

    def make_workspace(
        self,
        problem: Problem,
        workload: Workload,
        *,
        sets_wanted: int,
        small_sets_wanted: int = 0,
        model_seed: int | None = None,
    ) -> Workspace:
        """Make a workspace on the referee's device; the caller closes it."""
        with self._progress_marker.at(problem, workload, Phase.READY):
            return Workspace(
                problem,
                workload,
                self._device,
                sets_wanted=sets_wanted,
                secret=self._secret,
                small_sets_wanted=small_sets_wanted,
                progress_marker=self._progress_marker,
                model_seed=model_seed,
            )

    def has(self, task: Task) -> bool:
        """Return whether the loaded workspace is for the task's problem and workload."""
        return self.workspace is not None and self.workspace.key == key_of(task.problem, task.workload)

    def is_ready_for(self, task: Task) -> bool:
        """Return whether the task's problem is loaded and, if needed, calibrated."""
        learnt = self.known is not None or not task.timed or self.config.device is DeviceKind.HOST
        return self.has(task) and learnt

    def ready(self, task: Task) -> tuple[Workspace, tuple[str, ...]]:
        """Return the task's workspace, cleared of all that a contestant left in it.

        Returns:
            The workspace, and names of the degenerate outputs that the problem accepts.

        Raises:
            ProblemError: The problem is at fault. `NO_MEMORY` exceptions pass, too.
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

    def ready_shape(self, task: Task) -> Workspace:
        """Return the workspace of a task at secret sizes; the shown ones stay ready.

        Raises as `ready`. The problem's soundness is a matter of the shown sizes.
        """
        try:
            workspace = self.workspace_for(task.problem, task.workload)
            with self._progress_marker.at(task.problem, task.workload, Phase.READY):
                workspace.publish()
        except NO_MEMORY:
            if self.workspace is not None:
                self._leave(self.workspace, self.known)
                self.workspace = self.known = None
            raise
        return workspace

    def run_all(self, task: Task) -> None:
        """Run the reference on every variant, as evaluations do. Raises as `ready`."""
        workspace, _ = self.ready(task)
        with self._progress_marker.at(task.problem, task.workload, Phase.READY):
            for variant, part in checked_variants(task.problem, self.config.seeds):
                workspace.draw(0, variant, part=part)
                workspace.truth(0)
                workspace.answer(0)
            self._device.synchronize()

    def learn(self, task: Task) -> None:
        """Calibrate the loaded problem, or repeat a calibration that other work disturbed."""
        if not task.timed:
            return
        if self.known is not None and not self.known.calm:
            with self._exclusive.held():
                self.learn_again(task)
        elif self.known is None and self.config.device is DeviceKind.CUDA:
            assert self.workspace is not None
            with self._exclusive.held(), self._progress_marker.at(task.problem, task.workload, Phase.READY):
                self.known = self._recall_calibration(self.workspace, task) or self._learn_anew(self.workspace, task)

    def _recall_calibration(self, workspace: Workspace, task: Task) -> ProblemCalibration | None:
        earlier = self._store.read(workspace)
        return None if earlier is None else self._calibrator.recall(earlier.calibration, workspace, task)

    def _learn_anew(self, workspace: Workspace, task: Task) -> ProblemCalibration:
        known = self._calibrator.learn(workspace, task)
        self._store.write(workspace, known, lambda: self._soundness.check(workspace))
        return known

    def _earlier_taken_for_right(self, workspace: Workspace) -> tuple[str, ...] | None:
        earlier = self._store.read(workspace)
        return None if earlier is None else earlier.taken_for_right

    def learn_again(self, task: Task) -> ProblemCalibration:
        """Repeat the calibration and return it; the lower times count from now on."""
        assert self.workspace is not None
        assert self.known is not None
        with self.workspace.ledger.spend("calibration"):
            self.known = self._calibrator.learn_again(self.known, self.workspace, task)
        return self.known

    def warm_up(self, task: Task) -> None:
        """Run a calibration only for the code that it loads; discard the result.

        Does nothing if the contestant of trusted code is waiting already, or after `WARMING` runs.
        """
        learns = task.timed and self.known is None and self.config.device is DeviceKind.CUDA
        if learns and not self._calibrator.standby.waits and self.warmed < WARMING:
            self.warmed += 1
            assert self.workspace is not None
            with self._exclusive.held(), self._progress_marker.at(task.problem, task.workload, Phase.READY):
                self._calibrator.learn(self.workspace, task)
            empty_kernel.of(self._device).forget()

    def find_peaks(self) -> None:
        """Load this GPU's peaks if they were measured before."""
        if self.peaks is None and self.config.cache_dir and (key := measured_peaks.key_of(self._device)) is not None:
            self.peaks = measured_peaks.held(key, Path(self.config.cache_dir))

    def know_peaks(self, task: Task) -> None:
        """Measure this GPU's peaks, once per referee."""
        if task.timed and self.peaks is None and self.config.cache_dir and self.config.device is DeviceKind.CUDA:
            with self._exclusive.held():
                self.peaks = measured_peaks.ensure(self._device, Path(self.config.cache_dir))

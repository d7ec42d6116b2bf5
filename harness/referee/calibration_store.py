"""Store calibrations of problems on disk, for later runs on the same GPU.

Trusted side. A file holds the calibration of a sound problem. The next run checks it by some bursts
(`Calibrator.recall`) instead of measuring all again, and does not look for wrong answers that the problem accepts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from harness.core.atomic_file import replace_whole
from harness.core.task import RefereeConfig
from harness.devices import measured_peaks
from harness.devices.device import Device
from harness.referee.problem.size_ranges import SECRET
from harness.referee.problem.workspace import Workspace, key_of
from harness.referee.timing.reference_timing import ProblemCalibration

FORMAT = 1
"""Version of the file's format and of the method; files of another version are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProblem:
    """What one file holds.

    Attributes:
        key: What it is valid for: GPU, driver, torch, problem, workload and settings.
        calibration: The calibration, without the referee's own empty calls.
        taken_for_right: Wrong answers that the problem accepts.
    """

    key: str
    calibration: ProblemCalibration
    taken_for_right: tuple[str, ...] = ()


class CalibrationStore:
    """Calibrations in a cache folder.

    Files that can't be read or written cost only time.

    Args:
        config: Settings of the run; without a cache folder nothing is kept.
        device: The device; on the host device nothing is kept.
    """

    def __init__(self, config: RefereeConfig, device: Device) -> None:
        gpu = measured_peaks.key_of(device) if config.cache_dir else None
        self._folder = None if gpu is None or not config.cache_dir else Path(config.cache_dir, "calibrations")
        settings = config.sets_per_burst, config.gpu_memory_bytes, config.sandbox, config.seeds, config.allow_degenerate
        self._common = f"{FORMAT} {gpu and asdict(gpu)} {settings}"

    def read(self, workspace: Workspace) -> KnownProblem | None:
        """Return what an earlier run found out; None if there is nothing."""
        key = self._key(workspace)
        if key is None:
            return None
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            known = msgspec.json.decode(self._path(key).read_bytes(), type=KnownProblem)
            return known if known.key == key else None
        return None

    def write(
        self, workspace: Workspace, calibration: ProblemCalibration, taken_for_right: Callable[[], tuple[str, ...]]
    ) -> None:
        """Store a calibration that nothing disturbed and that a later run can check.

        `taken_for_right` finds the wrong answers that the problem accepts; it is called only for what is stored.
        """
        key = self._key(workspace)
        if key is None or not calibration.calm or not calibration.quiet.repeatable:
            return
        quiet = replace(calibration.quiet, empty_calls={})
        known = KnownProblem(key=key, calibration=replace(calibration, quiet=quiet), taken_for_right=taken_for_right())
        with suppress(OSError):
            replace_whole(self._path(key), msgspec.json.encode(known))

    def _key(self, workspace: Workspace) -> str | None:
        """Return the key of a workspace; None for secret sizes, which each run draws anew."""
        if self._folder is None or workspace.workload.name.startswith(SECRET):
            return None
        return f"{self._common} {key_of(workspace.problem, workspace.workload)} {len(workspace.sets)}"

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

"""Shared state of one referee's evaluations: settings, seeds, GPU monitor.

Trusted side.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.core.task import RefereeConfig
from harness.devices.gpu_specs import Peaks
from harness.devices.nvml import GpuMonitor
from harness.referee.baselines import BaselineKeeper
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.timing.reference_timing import ProblemCalibration


@dataclass(frozen=True, slots=True, kw_only=True)
class RefereeContext:
    """Settings and shared objects of a referee, as its sessions need them."""

    config: RefereeConfig
    monitor: GpuMonitor
    secret: random.Random
    variants: tuple[tuple[str, int], ...]
    exclusive: GpuExclusive
    peaks: Peaks | None = None
    baselines: BaselineKeeper | None = None
    again: Callable[[], ProblemCalibration] | None = None
    """Repeats the calibration with trusted code; None if this problem has no calibration."""

"""Find a run's baselines in the cache folder, spot-check them, or measure them.

Trusted side. A kept entry holds its ratio to eager and eager's own time. If eager measured now differs by more than
`DRIFT`, the machine has changed, and the entry is measured again.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from harness.core.choices import Baseline, DeviceKind
from harness.core.environment import cpu_count
from harness.devices.device import Device
from harness.referee.baselines.entry import BaselineEntry, failed_entry
from harness.referee.baselines.measuring import eager_now_s
from harness.referee.baselines.process_handle import LONGEST_S, BaselineProcess, BaselineRequest, BaselinesLost
from harness.referee.baselines.store import BaselineStore, key_for
from harness.referee.problem.workspace import Workspace

DRIFT = 0.02
"""Relative change of eager's time from which entries are measured again."""

HOST_DRIFT = 0.25
"""The same limit on the host device, whose clock other processes disturb."""

DRIFT_S = 0.3e-6
"""Seconds; a smaller difference is below the resolution of a CUDA event."""

MOST_THREADS = 8
"""Threads that compile one problem; max-autotune has some tens of candidates, the default mode a few kernels."""

BUDGET_S = 2.0
"""Seconds of bursts per baseline, at most."""


class BaselineKeeper:
    """The baselines `wanted` on one device.

    `Baseline.EAGER` is timed in every run and does not need a keeper.
    """

    def __init__(self, wanted: Sequence[Baseline], device: Device, cache_dir: Path) -> None:
        self.wanted = tuple(baseline for baseline in wanted if baseline is not Baseline.EAGER)
        self._device = device
        self._cache_dir = cache_dir
        self._store = BaselineStore(cache_dir)
        self.entries: dict[Baseline, BaselineEntry] = {}
        self.checks: dict[Baseline, Mapping[str, Any]] = {}
        self._held_for: Hashable = None

    def lacks(self, workspace: Workspace) -> bool:
        """Whether `ready` has something to do for this problem."""
        return bool(self.wanted) and self._held_for != workspace.key

    def ready(self, workspace: Workspace, secret: Random, log_path: Path) -> float:
        """Fill `entries` and `checks` for this problem.

        The GPU must be idle; it is in use until this returns.

        Returns:
            Seconds spent. A failure of a baseline is recorded in its entry.
        """
        begin = time.perf_counter()
        keys = {b: key_for(b, workspace.problem, workspace.workload, self._device) for b in self.wanted}
        kept = {b: entry for b, key in keys.items() if (entry := self._store.get(key)) is not None}
        self.entries, self.checks = {}, {}
        now_s = eager_now_s(workspace, secret) if any(entry.eager_s for entry in kept.values()) else None
        for baseline, entry in kept.items():
            self.checks[baseline] = check = spot_check(entry, now_s, self._device.kind)
            if not check["drifted"]:
                self.entries[baseline] = entry
        missing = [baseline for baseline in self.wanted if baseline not in self.entries]
        self.entries |= self._measured(workspace, missing, log_path)
        self._held_for = workspace.key
        return time.perf_counter() - begin

    def _measured(
        self, workspace: Workspace, missing: Sequence[Baseline], log_path: Path
    ) -> dict[Baseline, BaselineEntry]:
        """Measure each baseline in its own request, the quick ones first.

        Each result is kept at once.

        A baseline that hangs or ends the process costs the others only its share of `LONGEST_S`.
        """
        found: dict[Baseline, BaselineEntry] = {}
        deadline = time.monotonic() + LONGEST_S
        requests = [
            BaselineRequest(
                problem=workspace.problem,
                workload=workspace.workload,
                baselines=[baseline],
                budget_s=BUDGET_S,
                refresh=True,
            )
            for baseline in missing
        ]
        process: BaselineProcess | None = None
        try:
            for request in sorted(requests, key=lambda item: item.timeout_s):
                (baseline,) = request.baselines
                left_s = deadline - time.monotonic()
                try:
                    if left_s <= 0.0:
                        raise BaselinesLost(f"skipped: earlier baselines used up the {LONGEST_S:.0f} s limit")
                    process = process or self._started(log_path)
                    (found[baseline],) = process.measure(request, within_s=left_s)
                except BaselinesLost as lost:
                    found[baseline] = failed_entry(baseline, workspace.problem, str(lost))
                    if process is not None:  # it may be dead or still busy
                        process.close()
                        process = None
        finally:
            if process is not None:
                process.close()
        return found

    def _started(self, log_path: Path) -> BaselineProcess:
        on_gpu = self._device.kind is DeviceKind.CUDA
        return BaselineProcess(
            self._device.kind,
            self._cache_dir,
            log_path,
            threads=min(MOST_THREADS, cpu_count()) if on_gpu else 1,
            device_index=self._device.torch_device.index or 0,
        )


def spot_check(entry: BaselineEntry, now_s: float | None, device: DeviceKind) -> dict[str, Any]:
    """Compare eager's time now with its time when `entry` was measured.

    An entry without times has no drift.
    """
    then_s = entry.eager_s
    if then_s is None or now_s is None:
        return {"eager_then_s": then_s, "eager_now_s": now_s, "drift": None, "drifted": False}
    drift = now_s / then_s - 1.0
    limit = DRIFT if device is DeviceKind.CUDA else HOST_DRIFT
    drifted = abs(drift) > limit and abs(now_s - then_s) > DRIFT_S
    return {"eager_then_s": then_s, "eager_now_s": now_s, "drift": drift, "drifted": drifted}

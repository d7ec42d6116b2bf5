"""Read the GPU's state by NVML: clocks, temperature, power, throttling, processes.

Trusted side; reads only. A value is None if the driver refuses it. `interference.disturbance` judges the readings.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from harness.core.json_value import JsonObject
from harness.devices.interference import Neighbours, Reading, Repeats, disturbance, neighbours

THROTTLE_COUNTERS: Mapping[str, str] = {
    "temperature (software)": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "temperature (hardware)": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "power brake": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    "temperature": "NVML_FI_DEV_PERF_POLICY_THERMAL",
    "reliability": "NVML_FI_DEV_PERF_POLICY_RELIABILITY",
}
"""NVML field by reason; it counts the nanoseconds of clocks lowered for this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState(JsonObject):
    """One reading of the GPU's state; None means unknown.

    Attributes:
        sm_clock_hz: Clock of the multiprocessors.
        memory_clock_hz: Clock of the memory.
        temperature_c: Temperature in degrees Celsius.
        power_w: Power in watts.
        throttle_reasons: NVML's mask of clock event reasons.
        other_processes: Number of foreign processes with a context; None if NVML's ids cannot be matched.
    """

    sm_clock_hz: int | None
    memory_clock_hz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: int | None
    other_processes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Result of one look: state (None without NVML), reading and other processes."""

    state: GpuState | None
    reading: Reading
    around: Neighbours


class GpuMonitor:
    """Reads one GPU's state; without NVML all values are unknown."""

    def __init__(self, uuid: str | None) -> None:
        self._handle: Any = None
        if uuid is None:
            return
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        except pynvml.NVMLError:
            self._handle = None

    def minor(self) -> int | None:
        """Return the number of the GPU's node (/dev/nvidia<number>); None if unknown."""
        handle = self._handle
        return None if handle is None else _ask(lambda: pynvml.nvmlDeviceGetMinorNumber(handle))

    def look(self, since_s: float | None = None) -> GpuReading:
        """Read everything once; `since_s` as in `reading`. Takes some milliseconds."""
        reading = self.reading(since_s)
        around = self.neighbours(reading)
        return GpuReading(state=self._state(reading, around), reading=reading, around=around)

    def _state(self, reading: Reading, around: Neighbours) -> GpuState | None:
        handle = self._handle
        if handle is None:
            return None
        sm = _ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        memory = _ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM))
        power = _ask(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
        return GpuState(
            sm_clock_hz=None if sm is None else sm * 10**6,
            memory_clock_hz=None if memory is None else memory * 10**6,
            temperature_c=_ask(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else power / 1000.0,
            throttle_reasons=reading.reasons,
            other_processes=around.foreign,
        )

    def reading(self, since_s: float | None = None) -> Reading:
        """Read the processes and the throttling.

        Args:
            since_s: Start of the samples of busy processes, by `time.time()`; None to skip them.
        """
        handle = self._handle
        if handle is None:
            return Reading(at_s=time.monotonic())
        processes = _ask(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return Reading(
            at_s=time.monotonic(),
            processes=None if processes is None else frozenset(held.pid for held in processes),
            busy=None if since_s is None else _busy(handle, since_s),
            reasons=_ask(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
            throttled_ns=_throttled_ns(handle),
        )

    @staticmethod
    def neighbours(reading: Reading) -> Neighbours:
        """Find other processes on the GPU: neither this process nor its descendants."""
        return neighbours(reading, os.getpid(), parents_of(reading.processes or ()))


class GpuWatch:
    """Watches the GPU between rounds of a solution and decides which rounds count."""

    def __init__(self, monitor: GpuMonitor) -> None:
        self._monitor = monitor
        self._before = monitor.reading()
        self._since_s = time.time()
        self._around: Neighbours | None = None
        self.states: list[GpuState] = []
        self.repeats = Repeats()

    def look(self) -> Callable[[], bool]:
        """Start to read the GPU's state on a thread, after a round's bursts.

        Returns:
            A function that waits for the reading. It returns True if the round since the previous look was undisturbed,
                or counts anyway.
        """
        since_s, self._since_s = self._since_s, time.time()
        looks: list[GpuReading] = []
        thread = threading.Thread(target=lambda: looks.append(self._monitor.look(since_s)), name="look", daemon=True)
        thread.start()

        def counts() -> bool:
            thread.join()
            (seen,) = looks
            if seen.state is not None:
                self.states.append(seen.state)
            self._around = seen.around
            found = disturbance(self._before, seen.reading, seen.around)
            self._before = seen.reading
            return self.repeats.keep(found)

        return counts

    def to_json(self) -> dict[str, Any]:
        """Return the record's entry, for its timing."""
        around = None if self._around is None else self._around.to_json()
        return {"disturbed": {**self.repeats.to_json(), "other_processes": around}}


def parents_of(pids: Iterable[int]) -> dict[int, int]:
    """Return the parents of these processes and their ancestors, as /proc shows."""
    found: dict[int, int] = {}
    for pid in pids:
        while pid > 0 and pid not in found:
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    # The name is in parentheses and may contain any character, also parentheses.
                    found[pid] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                break
            pid = found[pid]
    return found


def _busy(handle: Any, since_s: float) -> dict[int, int] | None:
    """Return the highest share of kernel time in percent by process, since `since_s`."""
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, int(since_s * 1e6))
    except pynvml.NVMLError as error:
        # "Not found" means no sample since then; every other error means unknown.
        return {} if error.value == pynvml.NVML_ERROR_NOT_FOUND else None
    found: dict[int, int] = {}
    for sample in samples:
        if sample.timeStamp >= since_s * 1e6 and sample.smUtil <= 100:
            found[sample.pid] = max(found.get(sample.pid, 0), sample.smUtil)
    return found


def _throttled_ns(handle: Any) -> dict[str, int]:
    fields = {name: getattr(pynvml, field, None) for name, field in THROTTLE_COUNTERS.items()}
    wanted = [(name, field) for name, field in fields.items() if field is not None]
    values = _ask(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [field for _, field in wanted]))
    if values is None:
        return {}
    return {
        name: int(value.value.ullVal)
        for (name, _), value in zip(wanted, values, strict=True)
        if value.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (pynvml.NVMLError, AttributeError):
        return None

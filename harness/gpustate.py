"""What the GPU is doing, by NVML: clocks, temperature, power, throttling, and who else is on it.

Trusted side; reads only, changes nothing. Absent values are None: a driver may refuse any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pynvml

IDLE_REASONS = 0x1 | 0x2
"""Throttle reasons that are none: idle, and clocks set by an application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One reading. Clocks in Hz, temperature in degrees Celsius, power in watts, reasons as NVML's bit mask."""

    sm_clock_hz: int | None
    memory_clock_hz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: int | None
    other_processes: int | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class GpuMonitor:
    """Reads one GPU's state; does nothing where there is no NVML."""

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
        """The number of the GPU's device node (/dev/nvidia<number>); None where it is not known."""
        handle = self._handle
        return None if handle is None else _ask(lambda: pynvml.nvmlDeviceGetMinorNumber(handle))

    def read(self, own_pids: frozenset[int] = frozenset()) -> GpuState | None:
        """The state now, or None without NVML. `own_pids` are not counted among the other processes."""
        handle = self._handle
        if handle is None:
            return None
        sm = _ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        memory = _ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM))
        power = _ask(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
        processes = _ask(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        own = own_pids | {os.getpid()}
        return GpuState(
            sm_clock_hz=None if sm is None else sm * 10**6,
            memory_clock_hz=None if memory is None else memory * 10**6,
            temperature_c=_ask(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else power / 1000.0,
            throttle_reasons=_ask(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
            other_processes=None if processes is None else sum(1 for held in processes if held.pid not in own),
        )


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (pynvml.NVMLError, AttributeError):
        return None

"""Asks a contestant which kernels a call of its solution runs, at the workload that was judged.

Trusted side. The question comes last, when values and times are settled, to the contestant that was timed: the call is
the one that the times are of, and whatever a profiler changes about a process comes too late to matter. What it answers
is noted for the census; nothing that goes wrong here changes a verdict.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.core.choices import DeviceKind
from harness.devices.device import Device
from harness.devices.occupancy import RESIDENT_BLOCKS, MultiprocessorLimits
from harness.protocol.messages import Burst, CallMode, TakeCensus
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace

REGISTERS = 65536
"""32-bit registers of a multiprocessor on every compute capability from 7.0 on, where the driver does not say."""

CENSUS_TIMEOUT_S = 60.0
"""A profiler's first use may take seconds; whatever takes longer goes without a census."""


def request_of(workspace: Workspace, *, coerce: bool, marked: bool = False) -> TakeCensus:
    """The request for one call over the first input set, as it lies in the arena."""
    return TakeCensus(
        burst=Burst(
            calls=calls_of(workspace, [PlannedCall(index=0, mode=CallMode.COLD)]),
            input_tree=workspace.tree.to_json(),
            state_names=workspace.traits.updates_state,
            restore_state=bool(workspace.traits.updates_state),
            coerce_device=coerce,
        ),
        marked=marked,
    )


def take_census(
    contestant: ContestantProcess, workspace: Workspace, *, coerce: bool, timeout_s: float
) -> dict[str, Any]:
    """What the contestant says, for `census.conclude`: `rows`, `complete`, `lack` (why there is nothing), `limits`.

    The contestant may be dead afterwards.
    """
    limits = limits_of(workspace.device)
    noted: dict[str, Any] = {
        "rows": [],
        "complete": False,
        "lack": "",
        "limits": None if limits is None else limits.to_json(),
        "timed": workspace.device.kind is DeviceKind.CUDA,
    }
    try:
        taken = contestant.census(request_of(workspace, coerce=coerce), min(timeout_s, CENSUS_TIMEOUT_S))
    except ContestantFailed as failed:
        return noted | {"lack": f"the call for the census failed: {failed.failure.reason}"}
    return noted | {key: value for key, value in taken.to_json().items() if key != "type"}


def limits_of(device: Device) -> MultiprocessorLimits | None:
    """What a multiprocessor of this GPU has, by its driver; None on the host device, and where that can't be told."""
    if device.kind is not DeviceKind.CUDA:
        return None
    index = device.torch_device.index or 0
    held = torch.cuda.get_device_properties(index)
    driver = _Attributes(index)
    blocks = driver.get("MAX_BLOCKS_PER_MULTIPROCESSOR") or RESIDENT_BLOCKS.get((held.major, held.minor))
    if blocks is None:
        return None
    newer = held.major >= 8
    reserved = driver.get("RESERVED_SHARED_MEMORY_PER_BLOCK")
    return MultiprocessorLimits(
        multiprocessors=held.multi_processor_count,
        threads=held.max_threads_per_multi_processor,
        blocks=blocks,
        registers=driver.get("MAX_REGISTERS_PER_MULTIPROCESSOR") or REGISTERS,
        shared_bytes=held.shared_memory_per_multiprocessor,
        reserved_shared_bytes=(1024 if newer else 0) if reserved is None else reserved,
        shared_portion_bytes=128 if newer else 256,
        warp=held.warp_size,
    )


class _Attributes:
    """The driver's device attributes; None for what it does not tell."""

    def __init__(self, index: int) -> None:
        self._index = index

    def get(self, name: str) -> int | None:
        try:
            from cuda.bindings import driver

            attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            code, value = driver.cuDeviceGetAttribute(attribute, self._index)
        except (ImportError, AttributeError):
            return None
        return int(value) if int(code) == 0 else None

"""Ask a contestant which kernels one call of its solution runs.

Trusted side. The request is the last one, after correctness and timing: the call then is the one that was timed, and a
profiler's effects on the process no longer matter. Errors here never change a verdict. See
guides/design/contestants.md.
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
"""32-bit registers of a multiprocessor on every compute capability from 7.0 on, if the driver does not tell."""

CENSUS_TIMEOUT_S = 60.0
"""Seconds for the census. A profiler's first use may take seconds; if it takes longer, the record has no census."""


def request_of(workspace: Workspace, *, coerce: bool, marked: bool = False) -> TakeCensus:
    """Build the request for one call over the first input set."""
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
    """Ask for the census. The contestant may be dead afterwards.

    Args:
        contestant: The process, with the solution loaded.
        workspace: The workspace; input set 0 is used.
        coerce: Whether outputs on another device are moved.
        timeout_s: Seconds left for the solution.

    Returns:
        The reply, for `kernel_census.conclude`: `rows`, `complete`, `lack` (why there are none), `limits`, `timed`.
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
        return noted | {"lack": f"the census call failed: {failed.failure.reason}"}
    return noted | {key: value for key, value in taken.to_json().items() if key != "type"}


def limits_of(device: Device) -> MultiprocessorLimits | None:
    """Return a multiprocessor's limits on this GPU, from the driver.

    Returns:
        The limits; None on the host device, or if they are unknown.
    """
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
    """The driver's device attributes; None for one that it does not know."""

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

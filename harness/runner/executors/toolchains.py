"""Open the toolchain for a device of this machine. Trusted side."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.core.choices import DeviceKind, Syntax
from harness.core.environment import MachineError, query_gpus
from harness.core.preparing import TellPreparing, untold
from harness.core.visible_gpus import Capability, capabilities_of
from harness.hostcuda.toolchain import HostToolchain
from harness.toolchain.nvcc_toolchain import NvccToolchain
from harness.toolchain.toolchain import Toolchain


def open_toolchain(
    device: DeviceKind,
    cache: Path,
    *,
    checked: bool = False,
    syntax: Syntax = "host",
    capabilities: Collection[Capability] = (),
    tell: TellPreparing = untold,
) -> Toolchain:
    """Open the toolchain for `device`, with shared headers below `cache`.

    Args:
        device: The device to compile for.
        cache: The cache folder.
        checked: Enable the run-time checks of the host device.
        syntax: Whether the host device asks nvcc about CUDA sources first.
        capabilities: Compute capabilities that a module needs code for. If empty, those of all GPUs of this machine.
        tell: Receives the progress of what is prepared once for this machine.

    Raises:
        MachineError: A tool is missing, or NVML reports no GPU.
    """
    if device is DeviceKind.HOST:
        return HostToolchain(cache, checked=checked, syntax=syntax, tell=tell)
    if not capabilities:
        gpus, _, _, reason = query_gpus()
        capabilities = capabilities_of(gpus)
        if not capabilities:
            raise MachineError(f"no GPU to compile for: {reason or 'NVML reports no compute capability'}")
    return NvccToolchain(capabilities, cache, tell=tell)

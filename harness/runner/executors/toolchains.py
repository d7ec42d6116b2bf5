"""The toolchain for a device of this machine.

Trusted side. Imports the toolchains, `environment` and `gpus`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.environment import MachineError, query_gpus
from harness.core.visible_gpus import Capability, capabilities_of
from harness.hostcuda.toolchain import HostToolchain
from harness.toolchain.nvcc_toolchain import NvccToolchain
from harness.toolchain.toolchain import Toolchain


def open_toolchain(
    device: DeviceKind, cache: Path, *, checked: bool = False, capabilities: Collection[Capability] = ()
) -> Toolchain:
    """The toolchain for `device`, with shared headers below `cache`. Raises `MachineError` where tools are missing.

    `checked` asks for the checks of the host device. `capabilities` are the compute capabilities that a module must
    have code for; where none is given, NVML is asked, and it gets code for every kind of GPU of this machine.
    """
    if device is DeviceKind.HOST:
        return HostToolchain(cache, checked=checked)
    if not capabilities:
        gpus, _, _, reason = query_gpus()
        capabilities = capabilities_of(gpus)
        if not capabilities:
            raise MachineError(f"no GPU to compile for: {reason or 'NVML names no compute capability'}")
    return NvccToolchain(capabilities, cache)

"""The toolchain for a device of this machine.

Trusted side. Imports the toolchains and `environment`.
"""

from __future__ import annotations

from pathlib import Path

from harness.build.host import HostToolchain
from harness.build.native import NvccToolchain
from harness.build.toolchain import Toolchain
from harness.environment import MachineError, query_gpus
from harness.model import DeviceKind


def open_toolchain(
    device: DeviceKind, cache: Path, *, checked: bool = False, capability: tuple[int, int] | None = None
) -> Toolchain:
    """The toolchain for `device`, with shared headers below `cache`. Raises `MachineError` where tools are missing.

    `checked` asks for the checks of the host device. `capability` is the GPU's compute capability; where it is not
    given, NVML is asked, and of several kinds of GPU the lowest one decides.
    """
    if device is DeviceKind.HOST:
        return HostToolchain(cache, checked=checked)
    if capability is None:
        gpus, _, _, reason = query_gpus()
        known = sorted(tuple(map(int, gpu.compute_capability.split("."))) for gpu in gpus if gpu.compute_capability)
        if not known:
            raise MachineError(f"no GPU to compile for: {reason or 'NVML names no compute capability'}")
        capability = (known[0][0], known[0][1])
    return NvccToolchain(capability, cache)

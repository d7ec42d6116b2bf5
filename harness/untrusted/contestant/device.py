"""Open the device for a contestant's calls, before or with its solution.

Runs in a submission's process. Opening a GPU takes 0.2 s (a context), more if other processes do it too, so it is done
ahead if possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.core.choices import DeviceKind
from harness.devices.device import Device, open_device
from harness.protocol.withheld_words import writers
from harness.untrusted.contestant.outputs import OutputSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDevice:
    """An open device.

    On the host device, `shim` makes "cuda" tensors exist, with the libraries in `host_runtime`. `recorder` is a
    `LaunchRecorder`, if it was asked for and CUPTI works.
    """

    device: Device
    shim: Any = None
    host_runtime: Path | None = None
    checked: bool = False
    recorder: Any = None


def open_now(message: Mapping[str, Any]) -> OpenedDevice:
    """Open the device that an `Open` message names. Raises `DeviceError`."""
    kind = DeviceKind(message["device"])
    device = open_device(kind, message["device_index"])
    if kind is not DeviceKind.HOST:
        return OpenedDevice(device=device, recorder=_recorder() if message["records"] else None)
    runtime, checked = Path(message["host_runtime"]), bool(message["checked"])
    return OpenedDevice(device=device, shim=_host_shim(runtime, checked=checked), host_runtime=runtime, checked=checked)


def open_ahead(message: Mapping[str, Any]) -> OpenedDevice:
    """Open the device and load the kernels that surround every call.

    CUDA loads a kernel at its first launch. The device is idle afterwards.
    """
    opened = open_now(message)
    if opened.device.kind is DeviceKind.CUDA:
        _call_nothing(opened.device)
    return opened


def _call_nothing(device: Device) -> None:
    """Run a cache flush, withheld words and an output copy, of a few bytes each."""
    words = torch.zeros(4, dtype=torch.int32, device=device.torch_device)
    output = torch.empty_like(words)
    flush = torch.empty(1024, dtype=torch.uint8, device=device.torch_device)
    (write,) = writers(words, [((0, 1),)])
    flush.zero_()
    device.time_latency(words.clone, OutputSnapshot([output], None).take, write)


def _recorder() -> Any:
    from harness.untrusted.contestant.cuda_structures import DriverLibrary
    from harness.untrusted.contestant.cupti import TraceUnavailable
    from harness.untrusted.contestant.launch_recorder import LaunchRecorder

    with suppress(TraceUnavailable):
        return LaunchRecorder(DriverLibrary())
    return None


def _host_shim(runtime: Path, *, checked: bool) -> Any:
    """Make "cuda" tensors exist on the CPU, with the libraries prepared in `runtime`."""
    from harness.hostcuda.translate.build import PreparedHeaders
    from harness.untrusted.contestant.hostcuda import shim

    prepared = PreparedHeaders(
        folder=runtime,
        headers=runtime,
        torch_include=runtime,
        compiler="",
        common_flags=(),
        include_flags=(),
        link_flags=(),
    )
    shim.activate(prepared, checked=checked)
    return shim

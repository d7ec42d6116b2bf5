"""Makes "cuda" a device of this process without a GPU: tensors of that device live in CPU memory and stay
distinguishable from "cpu" ones.

Charter: contestant process only (and tests). Imports torch, the prepared torch bridge and the runtime library.
Untrusted side: everything here can be undone by a solution; nothing it says is believed without the referee's own
look.

How: the bridge registers a fallback for torch's CUDA dispatch key which carries every operator out on the CPU and
labels the results "cuda" again. So `.cuda()`, `.to("cuda")`, `device="cuda"`, `x.device`, `x.is_cuda` and their C++
twins are torch's own. What is patched here is `torch.cuda`, which otherwise looks for a driver.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.hostcuda.translate.build import PreparedHeaders, prepare_headers
from harness.hostcuda.translate.runtime_library import RuntimeLibrary
from harness.untrusted.contestant.hostcuda.torch_cuda import patch
from harness.untrusted.contestant.hostcuda.triton_interpreter import triton_launches

__all__ = [
    "activate",
    "as_host",
    "clear",
    "collect_reports",
    "device_of",
    "launches",
    "load_module",
    "mark_cuda",
    "note_calls",
    "note_not_emulated",
    "record_to",
    "set_schedule",
    "sticky_error",
]

_runtime: RuntimeLibrary | None = None
_bridge: Any = None
_not_emulated: list[dict[str, Any]] = []
_calls: int | None = None

_CALLS_THAT_TELL = 2


def activate(headers: PreparedHeaders | None = None, *, checked: bool = True) -> None:
    """Switch the device on, once a process; later calls change `checked` only.

    `checked` tracks device memory (red zones, poison) from now on; whether kernels are checked was decided when
    they were compiled.
    """
    global _runtime, _bridge
    if _runtime is None:
        prepared = headers or prepare_headers()
        _runtime = RuntimeLibrary(prepared.runtime)
        _bridge = load_module("hostcuda_bridge", prepared.bridge)
        _bridge.activate()
        patch(sticky_error=_runtime_error, not_emulated=note_not_emulated, triton_launch=_runtime.record_launch)
    _runtime.set_checked(checked)


def load_module(name: str, path: Path) -> ModuleType:
    """Import a built module from its path, under `name` but not into `sys.modules`."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    if spec is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _need() -> RuntimeLibrary:
    if _runtime is None:
        raise RuntimeError("the host device is not active: call shim.activate() first")
    return _runtime


def _runtime_error() -> str | None:
    error = _need().sticky_error()
    return _need().error_text(error) if error else None


def mark_cuda(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a "cuda" tensor: for inputs that the harness made. Strided CPU tensors only."""
    _need()
    marked: torch.Tensor = _bridge.as_device(tensor.detach())
    return marked


def as_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a "cpu" tensor: for reading an output without a copy."""
    _need()
    host: torch.Tensor = _bridge.as_host(tensor.detach())
    return host


def device_of(tensor: torch.Tensor) -> str:
    """ "cuda" or "cpu", as the solution sees it."""
    return tensor.device.type


def set_schedule(number: int) -> None:
    """In which order blocks and threads are executed: 0 rising, 1 falling; 2 and 4 are 0 with large and with large
    negative numbers where shared memory was not written, which is NaN else. Right kernels give the same values.
    """
    _need().set_schedule(number)


def record_to(fd: int) -> None:
    """Leave what must outlive this process in this shared memory (`RuntimeLibrary.record_to`)."""
    _need().record_to(fd)


def sticky_error() -> int:
    """The CUDA error a kernel left behind (700: illegal address, ...), 0 without one."""
    return _need().sticky_error()


def clear() -> None:
    """Forget reports, errors and constructs that were not emulated."""
    _need().clear()
    _not_emulated.clear()


def note_not_emulated(construct: str, *, line: int | None = None) -> None:
    """Record something the device can't do, found outside of a kernel."""
    _not_emulated.append({"kind": "not_emulated", "message": construct, "line": line, "count": 1})


def collect_reports(*, leaks: bool = False) -> list[dict[str, Any]]:
    """All reports so far, JSON-able. Each has `kind` (data_race, memory_error, uninitialised_read, barrier_error,
    misaligned, launch_error, assertion, not_emulated, leak), `message`, `count`, and where they are known:
    `kernel`, `line`, `block`, `thread`, `space`, `array`, `index`, `subscript`, `access`, and of the conflicting
    access `other_file`, `other_line`, `other_block`, `other_thread`, `other_access`.

    `leaks` adds one of kind `leak` for each place that allocated device memory with cudaMalloc and kin and never freed
    it: ask at the end of a run.
    """
    found = _need().reports() + [dict(item) for item in _not_emulated]
    if leaks:
        return found + _leaks(since_mark=False)
    if _calls is None or _calls < _CALLS_THAT_TELL:
        return found
    return found + [report for report in _leaks(since_mark=True) if report["count"] >= _calls]


def launches() -> list[tuple[str, int, tuple[int, int, int], tuple[int, int, int]]]:
    """Kernels that ran so far, CUDA's and Triton's: name, how often, grid and block of the last time. Triton's have no
    block: zeros.
    """
    return _need().launches() + triton_launches()


def note_calls(count: int) -> None:
    """So many calls of a solution were made. What the first ones allocated is its set-up; of the later ones, places
    that leave at least one allocation a call behind are reported as leaks. Less is a buffer kept for the next call.
    """
    global _calls
    if _calls is None:
        _calls = 0
        _need().mark_allocations()
    else:
        _calls += count


def _leaks(*, since_mark: bool) -> list[dict[str, Any]]:
    found = _need().leaks(since_mark=since_mark)
    for report in found:
        many = f"{report['count']} allocations" if report["count"] > 1 else "1 allocation"
        report["message"] = f"{many} of device memory, {report['bytes']} bytes in all, never freed"
    return found

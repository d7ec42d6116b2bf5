"""Make "cuda" a device of this process without a GPU.

Runs in a submission's process (and in tests). A solution can undo everything here, so the referee believes nothing of
it without its own checks.

Tensors of the device live in CPU memory but differ from "cpu" tensors. The bridge registers a fallback for torch's CUDA
dispatch key, which runs every operator on the CPU and labels the results "cuda" again. So `.cuda()`, `device="cuda"`,
`x.is_cuda` and their C++ counterparts are torch's own. Only `torch.cuda` is patched, because it looks for a driver.
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
from harness.untrusted.contestant.hostcuda.triton_interpreter import CHECKS, triton_launches

__all__ = [
    "activate",
    "as_host",
    "begin_call",
    "clear",
    "collect_reports",
    "launches_of_call",
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
_launched_before: dict[str, int] = {}

_CALLS_THAT_TELL = 2


def activate(headers: PreparedHeaders | None = None, *, checked: bool = True) -> None:
    """Switch the device on, once per process; later calls change `checked` only.

    Args:
        headers: Prepared headers and libraries; None prepares them.
        checked: Track device memory (red zones, poison) from now on. Whether kernels are checked was decided when they
            were compiled.
    """
    global _runtime, _bridge
    if _runtime is None:
        prepared = headers or prepare_headers()
        _runtime = RuntimeLibrary(prepared.runtime)
        _bridge = load_module("hostcuda_bridge", prepared.bridge)
        _bridge.activate()
        patch(runtime=_runtime, bridge=_bridge, not_emulated=note_not_emulated)
    _runtime.set_checked(checked)
    CHECKS.enabled = checked


def load_module(name: str, path: Path) -> ModuleType:
    """Import a built module from its path, without adding it to `sys.modules`."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not a Python extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _need() -> RuntimeLibrary:
    if _runtime is None:
        raise RuntimeError("the host device is not active: call shim.activate() first")
    return _runtime


def mark_cuda(tensor: torch.Tensor) -> torch.Tensor:
    """Return a "cuda" tensor with the same memory, for inputs that the harness made."""
    _need()
    marked: torch.Tensor = _bridge.as_device(tensor.detach())
    return marked


def as_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a "cpu" tensor with the same memory, to read an output without a copy."""
    _need()
    host: torch.Tensor = _bridge.as_host(tensor.detach())
    return host


def set_schedule(number: int) -> None:
    """Set the order in which blocks and threads run.

    Correct kernels give the same values in all orders.

    Args:
        number: 0 rising, 1 falling. 2 and 4 are like 0, but unwritten shared memory holds large, or large negative,
            numbers instead of NaN.
    """
    _need().set_schedule(number)


def record_to(fd: int) -> None:
    """Keep in shared memory the records that must outlive this process.

    See `RuntimeLibrary.record_to`.
    """
    _need().record_to(fd)


def sticky_error() -> int:
    """Return the CUDA error that a kernel left behind (700: illegal address), or 0."""
    return _need().sticky_error()


def clear() -> None:
    """Forget all reports, errors and constructs that were not emulated."""
    _need().clear()
    _not_emulated.clear()
    CHECKS.findings.clear()


def note_not_emulated(construct: str, *, line: int | None = None) -> None:
    """Record a construct that the device can't execute, found outside of a kernel.

    Args:
        construct: Its name.
        line: Source line, if known.
    """
    _not_emulated.append({"kind": "not_emulated", "message": construct, "line": line, "count": 1})


def collect_reports(*, leaks: bool = False) -> list[dict[str, Any]]:
    """Return all reports so far, JSON-able.

    Each has `kind` (data_race, memory_error, uninitialised_read, barrier_error, misaligned, launch_error, assertion,
    not_emulated, leak), `message`, `count`, and if known `kernel`, `line`, `block`, `thread`, `space`, `array`,
    `index`, `subscript`, `access`, and for a conflicting access `other_file`, `other_line`, `other_block`,
    `other_thread`, `other_access`.

    Args:
        leaks: Add a `leak` for each place that allocated device memory (cudaMalloc etc.) and never freed it. For the
            end of a run.
    """
    found = [*_need().reports(), *map(dict, _not_emulated), *map(dict, CHECKS.findings.values())]
    if leaks:
        return found + _leaks(since_mark=False)
    if _calls is None or _calls < _CALLS_THAT_TELL:
        return found
    return found + [report for report in _leaks(since_mark=True) if report["count"] >= _calls]


Launch = tuple[str, int, tuple[int, int, int], tuple[int, int, int]]
"""A kernel that ran: name, launches, grid and block of the last launch (the block of a Triton kernel: all zeros)."""


def begin_call() -> None:
    """Begin a call of the solution, for `launches_of_call`."""
    global _launched_before
    _launched_before = {name: count for name, count, _, _ in _launches()}


def launches_of_call() -> list[Launch]:
    """Return the kernels, CUDA's and Triton's, that ran since the latest `begin_call`."""
    counted = [(name, count - _launched_before.get(name, 0), grid, block) for name, count, grid, block in _launches()]
    return [launch for launch in counted if launch[1] > 0]


def _launches() -> list[Launch]:
    return _need().launches() + triton_launches()


def note_calls(count: int) -> None:
    """Count calls of a solution, to detect leaks.

    Allocations of the first counted calls are its set-up. Later, places that leave at least one allocation per call
    behind are reported as leaks; fewer are buffers kept for the next call.
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

"""Makes "cuda" a device of this process without a GPU: tensors of that device live in CPU memory and stay distinguishable from "cpu" ones.

Charter: contestant process only (and tests). Imports torch, the prepared torch bridge and the runtime library. Untrusted side: everything
here can be undone by a solution; nothing it says is believed without the referee's own look.

How: the bridge registers a fallback for torch's CUDA dispatch key which carries every operator out on the CPU and
labels the results "cuda" again. So `.cuda()`, `.to("cuda")`, `device="cuda"`, `x.device`, `x.is_cuda` and their C++ twins are torch's own. What is patched here
is `torch.cuda`, which otherwise looks for a driver.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .build import PreparedHeaders, prepare_headers
from .runtime_library import RuntimeLibrary

__all__ = [
    "activate",
    "as_host",
    "clear",
    "collect_reports",
    "device_of",
    "load_module",
    "mark_cuda",
    "note_not_emulated",
    "set_schedule",
    "sticky_error",
]

_runtime: RuntimeLibrary | None = None
_bridge: Any = None
_not_emulated: list[dict[str, Any]] = []


def activate(headers: PreparedHeaders | None = None, *, checked: bool = True) -> None:
    """Switch the device on, once a process; later calls change `checked` only.

    `checked` tracks device memory (red zones, poison) from now on; whether kernels are checked was decided when they were compiled.
    """
    global _runtime, _bridge
    if _runtime is None:
        prepared = headers or prepare_headers()
        _runtime = RuntimeLibrary(prepared.runtime)
        _bridge = load_module("hostcuda_bridge", prepared.bridge)
        _bridge.activate()
        _patch_torch_cuda()
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
    """"cuda" or "cpu", as the solution sees it."""
    return tensor.device.type


def set_schedule(number: int) -> None:
    """In which order blocks and threads are executed: 0 rising, 1 falling. Right kernels give the same values in both."""
    _need().set_schedule(number)


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
    """All reports so far, JSON-able. Each has `kind` (data_race, memory_error, uninitialised_read, barrier_error, misaligned, launch_error,
    assertion, not_emulated, leak), `message`, `count`, and where they are known: `kernel`, `line`, `block`, `thread`, `space`, `array`, `index`,
    `subscript`, `access`, and of the conflicting access `other_line`, `other_block`, `other_thread`, `other_access`.

    `leaks` adds one of kind `leak` where memory of cudaMalloc was not freed: ask at the end of a run.
    """
    runtime = _need()
    found = runtime.reports() + [dict(item) for item in _not_emulated]
    if leaks:
        count, size = runtime.live_allocations()
        if count:
            found.append({"kind": "leak", "message": f"{count} allocations with {size} bytes were not freed", "count": count, "kernel": ""})
    return found


# ---- torch.cuda


class _Stream:
    """A stream: everything on it has happened when the call returns."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self.cuda_stream = 0
        self.stream_id = 0
        self.device_index = 0

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = event or _Event(enable_timing=True)
        event.record(self)
        return event

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)


class _Event:
    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.at_s: float | None = None

    def record(self, stream: Any = None) -> None:
        self.at_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: _Event) -> float:
        if self.at_s is None or end.at_s is None:
            raise RuntimeError("both events must be recorded before elapsed_time")
        return (end.at_s - self.at_s) * 1e3


class _Properties:
    """What `torch.cuda.get_device_properties` says: an H200's limits, as the runtime API does."""

    name = "host device (CUDA on the CPU)"
    major = 9
    minor = 0
    multi_processor_count = 132
    max_threads_per_multi_processor = 2048
    max_threads_per_block = 1024
    shared_memory_per_block = 49152
    shared_memory_per_block_optin = 232448
    shared_memory_per_multiprocessor = 233472
    regs_per_multiprocessor = 65536
    warp_size = 32
    L2_cache_size = 62914560
    is_integrated = False
    is_multi_gpu_board = False
    gcnArchName = ""

    @property
    def total_memory(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_STREAM = _Stream()
_PROPERTIES = _Properties()


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


class _DeviceContext:
    def __init__(self, device: Any = None) -> None:
        self.idx = 0

    def __enter__(self) -> _DeviceContext:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class _Graph:
    def __init__(self, *_: Any, **__: Any) -> None:
        note_not_emulated("CUDA graphs (torch.cuda.CUDAGraph)")
        raise NotImplementedError("CUDA graphs are not emulated on the host device")


def _synchronize(device: Any = None) -> None:
    error = sticky_error()
    if error:
        raise RuntimeError(f"CUDA error: {_need().error_text(error)}")


def _patch_torch_cuda() -> None:
    cuda: Any = torch.cuda

    def constant(value: Any) -> Any:
        return lambda *_, **__: value

    silent = constant(None)
    replacements: dict[str, Any] = {
        "is_available": constant(True), "is_initialized": constant(True), "init": silent, "_lazy_init": silent,
        "device_count": constant(1), "current_device": constant(0), "set_device": silent, "synchronize": _synchronize,
        "get_device_name": constant(_PROPERTIES.name), "get_device_capability": constant((9, 0)), "get_device_properties": constant(_PROPERTIES),
        "current_stream": constant(_STREAM), "default_stream": constant(_STREAM), "set_stream": silent, "stream": _nothing,
        "Stream": _Stream, "ExternalStream": _Stream, "Event": _Event, "device": _DeviceContext, "device_of": _DeviceContext, "CUDAGraph": _Graph, "graph": _Graph,
        "empty_cache": silent, "memory_allocated": constant(0), "max_memory_allocated": constant(0), "memory_reserved": constant(0),
        "max_memory_reserved": constant(0), "reset_peak_memory_stats": silent, "reset_max_memory_allocated": silent, "ipc_collect": silent,
        "mem_get_info": lambda *_, **__: (_PROPERTIES.total_memory // 2, _PROPERTIES.total_memory), "memory_summary": constant(""), "memory_stats": constant({}),
        "is_bf16_supported": constant(True), "is_current_stream_capturing": constant(False), "get_arch_list": constant(["sm_90"]),
        "manual_seed": lambda seed: None, "manual_seed_all": lambda seed: None, "seed": silent, "seed_all": silent, "can_device_access_peer": constant(True),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(), "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state), "utilization": constant(0),
        "_is_compiled": constant(True), "_sleep": silent, "cudart": constant(None), "is_exchange_enabled": constant(False), "_device_count_nvml": constant(1),
    }
    for name, value in replacements.items():
        setattr(cuda, name, value)
    for owner in (getattr(cuda, "streams", None), getattr(cuda, "memory", None), getattr(cuda, "random", None)):
        for name, value in replacements.items():
            if owner is not None and hasattr(owner, name):
                setattr(owner, name, value)
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.Tensor.record_stream = silent  # type: ignore[method-assign]
    _patch_compile()
    os.environ.setdefault("TRITON_INTERPRET", "1")
    generator = torch.Generator

    class Generator(generator):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator(device="cpu")

    torch.Generator = Generator  # type: ignore[misc]


def _patch_compile() -> None:
    """`torch.compile` would generate code for a GPU that isn't there: the function is run as it is."""

    def compile_(model: Any = None, *_: Any, **__: Any) -> Any:
        return (lambda f: f) if model is None else model

    torch.compile = compile_
    module = sys.modules.get("torch._dynamo")
    if module is not None:
        module.optimize = lambda *_, **__: (lambda f: f)  # type: ignore[attr-defined]

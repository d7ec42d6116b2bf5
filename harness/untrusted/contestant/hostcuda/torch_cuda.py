"""Replace `torch.cuda` on the host device: one device with an H200's limits.

Runs in a submission's process; replaces attributes of torch for good. The neighbouring modules replace other parts of
torch: factories, streams, storages, unsupported functions, Triton.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.cpp_extension

from harness.hostcuda.translate.runtime_library import RuntimeLibrary
from harness.untrusted.contestant.hostcuda.torch_factories import patch_factories
from harness.untrusted.contestant.hostcuda.torch_graphs import patch_graphs
from harness.untrusted.contestant.hostcuda.torch_lacking import refuse_absent
from harness.untrusted.contestant.hostcuda.torch_storages import patch_storages
from harness.untrusted.contestant.hostcuda.torch_streams import Streams, make_streams, raise_error
from harness.untrusted.contestant.hostcuda.triton_interpreter import interpret_triton

__all__ = ["patch"]


class _Properties:
    """Device properties: an H200's limits, as in the runtime API."""

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
    clock_rate = 1980000
    memory_clock_rate = 3201000
    memory_bus_width = 6144
    uuid = "00000000-0000-0000-0000-000000000000"
    pci_bus_id = 0
    pci_device_id = 0
    pci_domain_id = 0

    @property
    def total_memory(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_TOOLKIT = "13.0"
"""Version of CUDA whose headers are emulated."""

_PROPERTIES = _Properties()


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _only_device(device: Any = None) -> None:
    """Raise a driver's error for every device but number 0."""
    index = device if isinstance(device, int) else torch.device("cuda" if device is None else device).index
    if index is not None and index > 0:
        raise RuntimeError("CUDA error: invalid device ordinal")


class _DeviceContext:
    def __init__(self, device: Any = None) -> None:
        if not isinstance(device, torch.Tensor):
            _only_device(device)
        self.idx = 0

    def __enter__(self) -> _DeviceContext:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def patch(
    *,
    runtime: RuntimeLibrary,
    bridge: Any,
    not_emulated: Callable[[str], None],
) -> None:
    """Replace everything in torch that would look for a driver.

    Args:
        runtime: The runtime library.
        bridge: The module of tensors of the device.
        not_emulated: Called with the name of an unsupported construct that the solution used.
    """
    cuda: Any = torch.cuda

    def constant(value: Any) -> Any:
        return lambda *_, **__: value

    def synchronize(device: Any = None) -> None:
        raise_error(runtime, runtime.synchronize())

    silent = constant(None)
    streams = make_streams(runtime)
    replacements: dict[str, Any] = {
        "is_available": constant(True),
        "is_initialized": constant(True),
        "init": silent,
        "_lazy_init": silent,
        "device_count": constant(1),
        "current_device": constant(0),
        "set_device": _only_device,
        "synchronize": synchronize,
        "get_device_name": constant(_PROPERTIES.name),
        "get_device_capability": constant((9, 0)),
        "get_device_properties": constant(_PROPERTIES),
        "current_stream": streams.current,
        "default_stream": streams.default,
        "set_stream": streams.set_current,
        "stream": streams.within,
        "Stream": streams.stream,
        "ExternalStream": lambda handle, *_, **__: streams.stream(stream_id=handle),
        "Event": streams.event,
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        "empty_cache": silent,
        "memory_allocated": lambda *_, **__: bridge.allocated_bytes(),
        "max_memory_allocated": constant(0),
        "memory_reserved": constant(0),
        "max_memory_reserved": constant(0),
        "reset_peak_memory_stats": silent,
        "reset_max_memory_allocated": silent,
        "ipc_collect": silent,
        "mem_get_info": lambda *_, **__: (_PROPERTIES.total_memory // 2, _PROPERTIES.total_memory),
        "memory_summary": constant(""),
        "memory_stats": lambda *_, **__: collections.defaultdict(int),
        "memory_stats_as_nested_dict": constant({}),
        "host_memory_stats": lambda *_, **__: collections.defaultdict(int),
        "memory_snapshot": lambda *_, **__: [],
        "reset_accumulated_memory_stats": silent,
        "reset_max_memory_cached": silent,
        "reset_peak_host_memory_stats": silent,
        "reset_accumulated_host_memory_stats": silent,
        "set_per_process_memory_fraction": silent,
        "get_per_process_memory_fraction": constant(1.0),
        "get_allocator_backend": constant("native"),
        "_record_memory_history": silent,
        "get_stream_from_external": lambda handle, *_, **__: streams.stream(stream_id=handle),
        "get_sync_debug_mode": constant(0),
        "set_sync_debug_mode": silent,
        "check_error": silent,
        "current_blas_handle": constant(0),
        "is_bf16_supported": constant(True),
        "get_arch_list": constant(["sm_90"]),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "seed": silent,
        "seed_all": silent,
        "initial_seed": torch.initial_seed,
        "default_generators": (torch.default_generator,),
        "can_device_access_peer": constant(True),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "utilization": constant(0),
        "memory_usage": constant(0),
        "temperature": constant(40),
        "power_draw": constant(100000),
        "clock_rate": constant(1980),
        "_is_compiled": constant(True),
        "_sleep": silent,
        "is_exchange_enabled": constant(False),
        "_device_count_nvml": constant(1),
    }
    for name, value in replacements.items():
        setattr(cuda, name, value)
    for owner in (getattr(cuda, "streams", None), getattr(cuda, "memory", None), getattr(cuda, "random", None)):
        for name, value in replacements.items():
            if owner is not None and hasattr(owner, name):
                setattr(owner, name, value)
    patch_factories()
    patch_storages()
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, constant(0))
    torch.cuda.nvtx.range = _nothing
    for name in ("start", "stop", "init"):
        setattr(torch.cuda.profiler, name, silent)
    for name in ("preferred_linalg_library", "preferred_blas_library"):
        setattr(torch.backends.cuda, name, silent)
    patch_graphs(runtime, bridge)
    _patch_accelerator(synchronize, streams)
    internals: dict[str, Any] = {
        "_cuda_getCurrentRawStream": lambda *_: (
            runtime.torch_stream()
        ),  # torch._dynamo imports it, and checkpoints import torch._dynamo
        "_cuda_getDevice": constant(0),
        "_cuda_getDeviceCount": constant(1),
        "_cuda_setDevice": silent,
        "_cuda_exchangeDevice": constant(0),
        "_cuda_maybeExchangeDevice": constant(0),
        "_cuda_synchronize": synchronize,
        "_cuda_emptyCache": silent,
        "_host_emptyCache": silent,
        "_cuda_getCurrentStream": lambda *_: (runtime.torch_stream(), 0, 1),
        "_cuda_getDefaultStream": constant((0, 0, 1)),
        "_cuda_setStream": lambda stream_id, **_: runtime.set_torch_stream(stream_id),
        "_cuda_clearCublasWorkspaces": silent,
        "_cuda_isCurrentStreamCapturing": lambda: runtime.is_capturing(runtime.torch_stream()),
    }
    for name, value in internals.items():
        setattr(torch._C, name, value)
    refuse_absent(not_emulated)
    if torch.version.cuda is None:
        torch.version.cuda = _TOOLKIT
    if torch.utils.cpp_extension.CUDA_HOME is None:  # solutions build paths from it; nothing is read there
        torch.utils.cpp_extension.CUDA_HOME = "/usr/local/cuda"
    torch.Tensor.record_stream = silent  # type: ignore[method-assign]
    # A CUDA build of torch would call cuDNN for layers that also work without it.
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.is_acceptable = lambda tensor: False
    # A CUDA build of torch would fuse scripted functions for a GPU, and ask for its driver.
    torch._C._jit_override_can_fuse_on_gpu(False)
    _patch_compile()
    interpret_triton(runtime.record_launch, not_emulated)
    generator = torch.Generator

    class Generator(generator):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator(device="cpu")

    torch.Generator = Generator  # type: ignore[misc]


def _patch_accelerator(synchronize: Callable[[], None], streams: Streams) -> None:
    """Replace `torch.accelerator`, which looks for a driver itself."""
    accelerator = torch.accelerator
    replacements: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": _only_device,
        "set_device_idx": _only_device,
        "current_stream": streams.current,
        "set_stream": streams.set_current,
        "synchronize": lambda *_: synchronize(),
    }
    for name, value in replacements.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, value)


def _patch_compile() -> None:
    """Make `torch.compile` return the function; it would generate code for a GPU."""

    def compile_(model: Any = None, *_: Any, **__: Any) -> Any:
        return (lambda f: f) if model is None else model

    torch.compile = compile_
    module = sys.modules.get("torch._dynamo")
    if module is not None:
        module.optimize = lambda *_, **__: lambda f: f  # type: ignore[attr-defined]

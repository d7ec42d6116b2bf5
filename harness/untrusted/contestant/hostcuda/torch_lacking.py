"""Refuse and note the parts of torch that the host device can't execute.

Runs in a submission's process; replaces attributes of torch for good. Without a note such code would fail with torch's
message about a missing driver, and would count as wrong.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from harness.protocol.kernel_packages import GPU_ONLY, PACKAGES

__all__ = ["refuse", "refuse_absent"]

_NAMES = {
    "torch.cuda": {
        "MemPool": "memory pools (torch.cuda.MemPool)",
        "use_mem_pool": "memory pools (torch.cuda.MemPool)",
        "caching_allocator_alloc": "raw device memory (torch.cuda.caching_allocator_alloc)",
        "_compile_kernel": "kernels compiled while running (torch.cuda._compile_kernel)",
    },
    "torch.cuda.jiterator": {
        "_create_jit_fn": "kernels compiled while running (torch.cuda.jiterator)",
        "_create_multi_output_jit_fn": "kernels compiled while running (torch.cuda.jiterator)",
    },
}
"""Functions that are refused whatever their arguments are."""

_DLPACK = "device memory by DLPack (torch.from_dlpack)"
_SPARSE = "sparse tensors on the device"
_QUANTISED = "quantised tensors on the device"
_SEVERAL = "moving tensors between GPUs (torch.nn.DataParallel)"
_CUDART = "the CUDA runtime through torch (torch.cuda.cudart)"


_BETWEEN_GPUS = frozenset(
    {"_scatter", "_scatter_out", "_gather", "_gather_out", "_broadcast", "_broadcast_out", "_broadcast_coalesced"}
)
"""Functions of torch._C that `torch.nn.parallel` calls."""


def refuse(construct: str, note: Callable[[str], None]) -> NoReturn:
    """Note that the solution used `construct`, and raise `NotImplementedError`.

    The referee recognises the exception by its text (`REFUSAL` in `referee/contestants/failures.py`).
    """
    note(construct)
    raise NotImplementedError(f"not emulated on the host device: {construct}")


def refuse_absent(note: Callable[[str], None]) -> None:
    """Replace functions that the host device can't execute.

    Args:
        note: Called with the name of a construct that the solution used.
    """
    for module, names in _NAMES.items():
        owner = importlib.import_module(module)
        for name, construct in names.items():
            if hasattr(owner, name):
                refusing = _refusing(construct, note)
                if (plain := getattr(getattr(owner, name), "__wrapped__", None)) is not None:
                    refusing.__wrapped__ = plain  # type: ignore[attr-defined]  # torch._dynamo looks behind some
                setattr(owner, name, refusing)
    _refuse_dlpack(note)
    _refuse_other_tensors(note)
    torch.cuda.cudart = lambda: _Runtime(note)
    _refuse_internals(note)
    sys.meta_path.insert(0, _GpuOnlyFinder(note))


def _refuse_internals(note: Callable[[str], None]) -> None:
    """Refuse torch's CUDA functions in C++ that `torch_cuda` has not replaced.

    A build without CUDA has none of them; a build with CUDA would ask a driver.
    """

    def __getattr__(name: str) -> Any:
        if name in _BETWEEN_GPUS:
            return _refusing(_SEVERAL, note)
        if not name.startswith("_cuda_"):
            raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
        return _refusing(f"this part of torch.cuda (torch._C.{name})", note)

    for name, value in list(vars(torch._C).items()):
        asks_a_driver = name.startswith("_cuda_") or name in _BETWEEN_GPUS
        if asks_a_driver and isinstance(value, types.BuiltinFunctionType):
            setattr(torch._C, name, __getattr__(name))
    if not hasattr(torch._C, "__getattr__"):
        vars(torch._C)["__getattr__"] = __getattr__


def _refusing(construct: str, note: Callable[[str], None]) -> Callable[..., NoReturn]:
    def refusing(*_: Any, **__: Any) -> NoReturn:
        refuse(construct, note)

    return refusing


def _refuse_dlpack(note: Callable[[str], None]) -> None:
    """Refuse DLPack imports, except for the device's own tensors.

    Other device memory would become a tensor whose storage is on a device, which no operator here can use.
    """
    owner: Any = torch
    plain = owner.from_dlpack

    def from_dlpack(ext_tensor: Any, *given: Any, **options: Any) -> Any:
        on_device = isinstance(ext_tensor, torch.Tensor) and ext_tensor.is_cuda
        if on_device and options.get("device") is None:
            return ext_tensor.clone() if options.get("copy") else ext_tensor.detach()
        if on_device or (made := plain(ext_tensor, *given, **options)).is_cuda:
            refuse(_DLPACK, note)
        return made

    owner.from_dlpack = owner.utils.dlpack.from_dlpack = functools.wraps(plain)(from_dlpack)


def _refuse_other_tensors(note: Callable[[str], None]) -> None:
    """Refuse sparse and quantised tensors on the device.

    The result would be a CPU tensor, or of a kind that no operator here knows.
    """

    def patched(owner: Any, name: str, construct: str) -> None:
        plain = getattr(owner, name)

        def made(*given: Any, **options: Any) -> Any:
            device = options.get("device")
            on_device = device is not None and torch.device(device).type == "cuda"
            if on_device or any(isinstance(item, torch.Tensor) and item.is_cuda for item in given):
                refuse(construct, note)
            return plain(*given, **options)

        setattr(owner, name, functools.wraps(plain)(made))

    for layout in ("", "_coo", "_csr", "_csc", "_bsr", "_bsc"):
        for owner, name in ((torch.Tensor, f"to_sparse{layout}"), (torch, f"sparse{layout}_tensor")):
            if hasattr(owner, name):
                patched(owner, name, _SPARSE)
    for name in ("quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel"):
        if hasattr(torch, name):
            patched(torch, name, _QUANTISED)


class _GpuOnlyFinder(importlib.abc.MetaPathFinder):
    """Refuses imports of packages whose compilers make code for GPUs only."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in GPU_ONLY:
            refuse(f"{PACKAGES[fullname]} (it compiles for GPUs only)", self._note)
        return None


class _Runtime:
    """Replacement for the functions of `torch.cuda.cudart()`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _refusing(_CUDART, self._note)

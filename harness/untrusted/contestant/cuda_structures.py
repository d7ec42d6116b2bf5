"""Call the CUDA driver through ctypes, and the structures that CUPTI passes on.

Runs in a submission's process. Layouts are those of `cuda.h`, `generated_cuda_meta.h` and `cupti_callbacks.h`, which
have not changed from CUDA 12.4 on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

KERNEL_IDENTITY = (0, 1, 2, 3, 4)
"""Attributes of a function that tell kernels of one name apart: the most threads, and bytes of shared, constant and
local memory, and registers."""

MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14
"""Attributes of a function: limit of dynamic shared memory in bytes; whether clusters may have more than 8 blocks."""

MEMORY_TYPE = 2
"""Attribute of a pointer: host (1) or device memory (2)."""

_VOID = ctypes.c_void_p
_UINT = ctypes.c_uint32
_SHAPE = [("shape", _UINT * 7)]
"""Grid and block, three numbers each, and bytes of dynamic shared memory."""


class CudaError(Exception):
    """A function of the CUDA driver returned an error."""


class DriverLibrary:
    """Functions of `libcuda`, by name."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def code(self, name: str, *arguments: Any) -> int:
        """Call a function and return its error code."""
        return int(getattr(self._library, name)(*arguments))

    def ask(self, name: str, *arguments: Any) -> None:
        """Call a function; raise `CudaError` if it returns an error."""
        self.check(name, self.code(name, *arguments))

    def check(self, name: str, code: int) -> None:
        """Raise `CudaError` if `code` is an error."""
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"{name} failed: {(text.value or str(code).encode()).decode()}")

    def function(self, name: str, *types: Any) -> Any:
        """Return a function with the types of its arguments, for frequent calls."""
        function = self._library[name]  # another object each time
        function.argtypes = types
        return function

    def attributes(self, function: ctypes.c_void_p, wanted: Sequence[int]) -> dict[int, int]:
        """Return these attributes of a kernel's function."""
        value = ctypes.c_int()
        found = {}
        for attribute in wanted:
            self.ask("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
            found[attribute] = value.value
        return found


class DriverCall(ctypes.Structure):
    """First fields of `CUpti_CallbackData`."""

    _fields_ = (
        ("site", _UINT),
        ("name", ctypes.c_char_p),
        ("parameters", _VOID),
        ("returned", _VOID),
        ("symbol", ctypes.c_char_p),
    )


class ResourceEvent(ctypes.Structure):
    """`CUpti_ResourceData`."""

    _fields_ = (("context", _VOID), ("stream", _VOID), ("descriptor", _VOID))


class ModuleLoaded(ctypes.Structure):
    """`CUpti_ModuleResourceData`."""

    _fields_ = (("id", _UINT), ("nbytes", ctypes.c_size_t), ("image", _VOID))


class KernelLaunch(ctypes.Structure):
    """Parameters of `cuLaunchKernel`."""

    _fields_ = (("function", _VOID), *_SHAPE, ("stream", _VOID), ("parameters", _VOID), ("extra", _VOID))


class CooperativeLaunch(ctypes.Structure):
    """Parameters of `cuLaunchCooperativeKernel`."""

    _fields_ = (("function", _VOID), *_SHAPE, ("stream", _VOID), ("parameters", _VOID))


class ExtendedLaunch(ctypes.Structure):
    """Parameters of `cuLaunchKernelEx`."""

    _fields_ = (("config", _VOID), ("function", _VOID), ("parameters", _VOID), ("extra", _VOID))


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (*_SHAPE, ("stream", _VOID), ("attributes", _VOID), ("attribute_count", _UINT))


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`."""

    _fields_ = (("id", _UINT), ("pad", _UINT), ("value", ctypes.c_ubyte * 64))


class CopyBytes(ctypes.Structure):
    """Parameters of `cuMemcpyAsync` and its kin; the others have no stream."""

    _fields_ = (
        ("target", ctypes.c_uint64),
        ("source", ctypes.c_uint64),
        ("nbytes", ctypes.c_size_t),
        ("stream", _VOID),
    )


class FillBytes(ctypes.Structure):
    """Parameters of `cuMemsetD8Async` and its kin.

    Narrow values leave bytes undefined.
    """

    _fields_ = (("target", ctypes.c_uint64), ("value", _UINT), ("count", ctypes.c_size_t), ("stream", _VOID))


class Allocation(ctypes.Structure):
    """First parameters of `cuMemAlloc` and its kin: place of the address, bytes."""

    _fields_ = (("address", _VOID), ("nbytes", ctypes.c_size_t))


class EventRecord(ctypes.Structure):
    """First parameters of `cuEventRecord` and `cuEventRecordWithFlags`."""

    _fields_ = (("event", _VOID), ("stream", _VOID))


class StreamWait(ctypes.Structure):
    """First parameters of `cuStreamWaitEvent`."""

    _fields_ = (("stream", _VOID), ("event", _VOID))

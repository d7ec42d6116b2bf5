"""Accept device numbers and tensor types on the host device.

`device=0`, `torch.device(0)` and `torch.cuda.FloatTensor` ask torch's CUDA part otherwise. Runs in a submission's
process; replaces attributes of torch for good.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Optional

import torch

__all__ = ["patch_factories"]

_FACTORIES = (
    "arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye "
    "frombuffer full full_like hamming_window hann_window kaiser_window linspace logspace ones ones_like rand "
    "rand_like randint randint_like randn randn_like randperm range scalar_tensor tensor tril_indices triu_indices "
    "zeros zeros_like"
)
_METHODS = "cuda to new_empty new_empty_strided new_full new_ones new_tensor new_zeros"
_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


def patch_factories() -> None:
    """Replace factories, `torch.device` and tensor types that would look for a driver."""
    # Before the names are replaced: torch compares a default device's functions with those under these names.
    importlib.import_module("torch.utils._device")._device_constructors()
    for name in _METHODS.split():
        _accept_numbers(torch.Tensor, name, first=name in ("cuda", "to"))
    _accept_numbers(torch.nn.Module, "to", first=True)
    for name in _FACTORIES.split():
        if hasattr(torch, name):
            _accept_numbers(torch, name)
    _patch_device()
    _patch_types()


def _named(value: Any) -> Any:
    """Return the device for a bare number, for which torch asks its CUDA part."""
    return _Device("cuda", value) if isinstance(value, int) and not isinstance(value, bool) else value


def _accept_numbers(owner: Any, name: str, *, first: bool = False) -> None:
    """Let `device` be a number, and the first argument too if `first` is true."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def accepting(*given: Any, **options: Any) -> Any:
        if "device" in options:
            options["device"] = _named(options["device"])
        if first and len(given) > 1:
            given = (given[0], _named(given[1]), *given[2:])
        return plain(*given, **options)

    setattr(owner, name, accepting)
    if owner is torch:
        _know_in_scripts(accepting, name)


def _know_in_scripts(function: object, name: str) -> None:
    """Register a function for TorchScript, which knows torch's functions by identity."""
    torch.jit._builtins._register_builtin(function, f"aten::{name}")


_Device: Any = torch.device


def _patch_device() -> None:
    """Replace `torch.device`, so that `torch.device(0)` works.

    The class can't be subclassed, so a replacement creates its instances and recognises them.
    """

    class Meta(type):
        def __call__(cls, *given: Any, **options: Any) -> Any:
            if given and isinstance(given[0], int) and not isinstance(given[0], bool):
                given = ("cuda", *given)
            elif not given and isinstance(options.get("index"), int) and "type" not in options:
                options["type"] = "cuda"
            return _Device(*given, **options)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Device)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, _Device) or other is cls

    class device(metaclass=Meta):
        __doc__ = _Device.__doc__
        __module__ = "torch"
        __qualname__ = "device"

    torch.device = device  # type: ignore[misc, assignment]
    _know_in_scripts(device, "device")
    # Operator schemas also know the class by identity, for annotations.
    known = importlib.import_module("torch._library.infer_schema").SUPPORTED_PARAM_TYPES
    known |= {device: "Device", Optional[device]: "Device?"}  # noqa: UP045


class _OfType(type):
    """Metaclass of `torch.cuda.FloatTensor` etc.

    Their instances are tensors of one dtype on the device.
    """

    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *given: Any, device: Any = None) -> torch.Tensor:
        if len(given) == 1 and not isinstance(given[0], int | torch.Size):
            return torch.as_tensor(given[0], dtype=cls.dtype, device="cuda")
        shape = given[0] if given and isinstance(given[0], torch.Size) else given or (0,)
        return torch.empty(shape, dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype


def _patch_types() -> None:
    """Replace `torch.cuda.FloatTensor` etc. and `x.type("torch.cuda.FloatTensor")`."""
    made = {name: _OfType(name, (), {"dtype": dtype, "__module__": "torch.cuda"}) for name, dtype in _TYPES.items()}
    by_name = {f"torch.cuda.{name}": held for name, held in made.items()}
    for name, held in made.items():
        setattr(torch.cuda, name, held)
    plain, plain_default = torch.Tensor.type, torch.set_default_tensor_type

    def as_type(self: torch.Tensor, dtype: Any = None, *given: Any, **options: Any) -> Any:
        held = by_name.get(dtype, dtype) if isinstance(dtype, str) else dtype
        if isinstance(held, _OfType):
            return self.to(device="cuda", dtype=held.dtype)
        return plain(self, *(() if dtype is None else (dtype,)), *given, **options)

    def set_default_tensor_type(kind: Any) -> None:
        held = by_name.get(kind, kind) if isinstance(kind, str) else kind
        if not isinstance(held, _OfType):
            return plain_default(kind)
        torch.set_default_dtype(held.dtype)
        return torch.set_default_device("cuda")

    torch.Tensor.type = as_type  # type: ignore[method-assign, assignment]
    torch.set_default_tensor_type = set_default_tensor_type

"""Refuse indices out of range before a GPU sees them.

Trusted side. A wrong answer of `problems lint` may compute with indices that the reference never has. On a CPU torch
raises `IndexError`; on a GPU the kernel's assertion ends the whole process's use of the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NUMBERS = (torch.int64, torch.int32)
"""Types of indices that are no masks."""


class IndexBounds(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, indices out of range on a GPU raise `IndexError` as on the CPU."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch's compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        for index, size, least in _indexed(func._overloadpacket.__name__, named):
            if index.device.type == "cuda" and index.numel() and index.dtype in NUMBERS:
                low, high = (int(bound) for bound in index.aminmax())
                if low < least or high >= size:
                    raise IndexError(f"{func}: indices from {low} to {high} for a size of {size}")
        return func(*args, **kwargs)


def _indexed(operator: str, named: Mapping[str, Any]) -> Iterator[tuple[torch.Tensor, int, int]]:
    """Yield each tensor of indices, the size that it indexes, and the least index."""
    held: Any = named.get("self")
    index = named.get("index")
    if operator.startswith("nll_loss") and "backward" not in operator:
        target, skipped = named["target"], named.get("ignore_index", -100)
        yield target[target != skipped], held.shape[1 if held.dim() > 1 else 0], 0
    elif "embedding" in operator and isinstance(named.get("weight"), torch.Tensor):
        yield named["indices"], named["weight"].shape[0], 0
    elif isinstance(index, torch.Tensor) and isinstance(held, torch.Tensor):
        dim = named.get("dim")
        size = held.numel() if dim is None else held.shape[dim] if held.dim() else 1
        yield index, size, -size if dim is None else 0
    elif isinstance(indices := named.get("indices"), (list, tuple)):
        given = [(dim, item) for dim, item in enumerate(indices) if item is not None]
        if all(item.dtype in NUMBERS for _, item in given):  # a mask would stand for several dimensions
            for dim, item in given:
                yield item, held.shape[dim], -held.shape[dim]

"""Strides of inputs: which ones a solution gets, and copies that keep them.

Both sides. A solution gets an input with the strides that `get_inputs` gave it: transposed, sliced with gaps, or
expanded (stride 0). Only an input whose elements overlap in another way becomes contiguous: a stress variant could not
change such an element alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last in memory."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def kept_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of a tensor's copies.

    Returns:
        Strides in elements; None for a contiguous copy: the tensor has the strides of one, or its elements overlap.
    """
    strides = tensor.stride()
    return None if strides == _contiguous(tensor.shape) or not tensor.numel() or overlaps(tensor) else strides


def overlaps(tensor: torch.Tensor) -> bool:
    """Return whether elements may share memory, other than by a stride of 0."""
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and s):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def unexpanded(tensor: torch.Tensor) -> torch.Tensor:
    """Return the view that has each element once.

    Expanded dimensions (stride 0) get the size 1.
    """
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory from a tensor's first to its last element, flat."""
    return tensor.as_strided((extent(tensor.shape, tensor.stride()),), (1,))


def in_order_of_memory(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a contiguous permuted view of the memory; None if there are gaps."""
    tensor = unexpanded(tensor)
    order = sorted(zip(tensor.stride(), tensor.shape, range(tensor.dim()), strict=True), reverse=True)
    permuted = tensor.permute([dim for _, _, dim in order])
    return permuted if permuted.is_contiguous() else None


def copied(
    tensor: torch.Tensor, *, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Copy a tensor with its strides (`kept_strides`) into memory of its own.

    Args:
        tensor: The tensor.
        device: Device of the copy; None is the tensor's.
        dtype: Type of the copy; None is the tensor's.
    """
    device, dtype = device or tensor.device, dtype or tensor.dtype
    if (strides := kept_strides(tensor)) is None:
        return tensor.to(device=device, dtype=dtype, memory_format=torch.contiguous_format, copy=True)
    # Gaps are zero: memory that was freed before might hold anything.
    memory = torch.zeros(extent(tensor.shape, strides), dtype=dtype, device=device)
    copy = memory.as_strided(tensor.shape, strides)
    unexpanded(copy).copy_(unexpanded(tensor))
    return copy


def with_strides_of(value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return `value` with the strides of a copy of `tensor`, whose shape it has."""
    strides = kept_strides(tensor) or _contiguous(tensor.shape)
    if value.stride() == strides or not value.numel():
        return value
    made = value.new_zeros(extent(value.shape, strides)).as_strided(value.shape, strides)
    first = unexpanded(made)
    first.copy_(value[tuple(slice(0, size) for size in first.shape)])
    return made


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()

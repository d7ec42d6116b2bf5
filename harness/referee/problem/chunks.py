"""Slice equally shaped tensors, so that temporaries fit a fixed amount of memory.

Trusted side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

ENTRY_BYTES = 40
"""Temporary bytes per entry: five float64 values, one of them for a norm on a GPU."""

TEMPORARY_BYTES = 256 * 2**20
"""Memory for the float64 temporaries of one slice."""


def slices(count: int, *tensors: torch.Tensor | None) -> Iterator[tuple[int, tuple[torch.Tensor | None, ...]]]:
    """Yield flat slices of equally shaped tensors in logical order.

    Args:
        count: Most entries of a slice.
        *tensors: Tensors of one shape; None passes through. One that is not contiguous is copied slice by slice.

    Yields:
        Index of the first entry, and the slice of each tensor.
    """
    held = [t for t in tensors if t is not None]
    if all(t.is_contiguous() for t in held):
        flat = [None if t is None else t.view(-1) for t in tensors]
        for start in range(0, held[0].numel(), count):
            yield start, tuple(None if t is None else t[start : start + count] for t in flat)
        return
    rows, row = held[0].shape[0], math.prod(held[0].shape[1:])
    if row > count:
        for index in range(rows):
            for start, pieces in slices(count, *(None if t is None else t[index] for t in tensors)):
                yield index * row + start, pieces
        return
    step = max(1, count // max(row, 1))
    for index in range(0, rows, step):
        yield (
            index * row,
            tuple(None if t is None else t[index : index + step].reshape(-1) for t in tensors),
        )


def count_unwritten(actual: torch.Tensor, poison_byte: int | None, step: int) -> int | None:
    """Count entries whose bytes all equal the fill pattern of output buffers.

    Args:
        actual: The output.
        poison_byte: The pattern; None if there is none.
        step: Entries per slice.

    Returns:
        The number of such entries, or None without a pattern.
    """
    if poison_byte is None:
        return None
    size = actual.element_size()
    found = torch.zeros((), dtype=torch.int64, device=actual.device)
    for _, (piece,) in slices(step, actual):
        assert piece is not None
        held = piece.contiguous().view(torch.uint8).view(-1, size)
        found += (held == poison_byte).all(dim=1).sum()
    return int(found)


def unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Convert a flat index to an index of each dimension."""
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))

"""Compute float64 convolutions as matrix products.

Trusted side. cuDNN has no fast float64 kernels: two problems with 3-D convolutions took 38 s to prepare and 113 s to
verify on an H200. A matrix product reaches the peak of the GPU's float64 tensor cores. See
guides/design/reference_and_truth.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode

WORKSPACE_BYTES = 512 * 2**20
"""Most bytes of the columns and the product of one step, beside one padded copy of the samples that it takes.

A step takes at least one row of one sample.
"""


class MatrixConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, float64 convolutions of every kind are matrix products.

    Attributes:
        used: Whether there was any.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.used = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch's compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default and not kwargs and _is_double(*args[:3]):
            self.used = True
            return convolution(*args)
        return func(*args, **(kwargs or {}))


def _is_double(*given: torch.Tensor | None) -> bool:
    return all(tensor is None or (tensor.dtype is torch.float64 and tensor.numel()) for tensor in given)


def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Return what `torch.ops.aten.convolution` returns for these arguments.

    Args:
        input: Samples; (batch, channels, 1 to 3 extents), not empty.
        weight: (output channels, channels / groups, kernel), or (channels, output channels / groups, kernel) if
            `transposed`; dtype of `input`.
        bias: (output channels,), or None.
        stride: For each extent, or one for all; the same holds for `padding`, `dilation` and `output_padding`.
        padding: Zeros on both sides.
        dilation: Distance of the kernel's points.
        transposed: Whether it is the transpose of the convolution with these arguments.
        output_padding: What a transposed convolution adds at the end of each extent.
        groups: Number of groups of channels.

    Returns:
        (batch, output channels, extents), contiguous.
    """
    count = weight.dim() - 2
    stride, padding, dilation, output_padding = (
        list(given) * count if len(given) == 1 else list(given) for given in (stride, padding, dilation, output_padding)
    )
    if transposed:
        output = _transposed(input, weight, stride, padding, dilation, output_padding, groups)
    else:
        output = _convolved(input, weight, stride, padding, dilation, groups)
    return output if bias is None else output.add_(bias.view(-1, *[1] * count))


def _convolved(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Multiply the kernels by the columns of points that each output place sees."""
    batch, channels, *extents = input.shape
    kernel, count = weight.shape[2:], len(extents)
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    places = [(e + 2 * p - n) // s + 1 for e, p, n, s in zip(extents, padding, spans, stride, strict=True)]
    output = input.new_empty(batch, weight.shape[0], *places)
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))
    values = channels * math.prod(kernel) + weight.shape[0]
    samples, rows = _step(batch, places[0], values * math.prod(places[1:]) * input.element_size())
    for begin in range(0, batch, samples):
        some = input[begin : begin + samples]
        some = pad(some, [p for p in reversed(padding) for _ in range(2)]) if any(padding) else some
        for first in range(0, places[0], rows):
            taken = min(rows, places[0] - first)
            windows = some.narrow(2, first * stride[0], (taken - 1) * stride[0] + spans[0])
            for axis, (span, s, d) in enumerate(zip(spans, stride, dilation, strict=True), start=2):
                windows = windows.unfold(axis, span, s)[..., ::d]
            columns = windows.permute(order).reshape(len(some), groups, kernels.shape[2], -1)
            target = output[begin : begin + samples, :, first : first + taken]
            target.copy_((kernels @ columns).view(target.shape))
            del windows, columns
    return output


def _transposed(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Multiply the kernels by the inputs, and add each product at its output place."""
    batch, channels, *extents = input.shape
    each, *kernel = weight.shape[1:]
    whole = [
        (e - 1) * s + d * (k - 1) + 1 + o
        for e, s, d, k, o in zip(extents, stride, dilation, kernel, output_padding, strict=True)
    ]
    places = [n - 2 * p for n, p in zip(whole, padding, strict=True)]
    output = input.new_empty(batch, groups * each, *places)
    kernels = weight.reshape(groups, channels // groups, -1).transpose(1, 2)
    values = groups * each * math.prod(kernel) + channels
    samples, rows = _step(batch, extents[0], values * math.prod(extents[1:]) * input.element_size())
    for begin in range(0, batch, samples):
        some = input[begin : begin + samples]
        sums = input.new_zeros(len(some), groups * each, *whole)
        for first in range(0, extents[0], rows):
            given = some[:, :, first : first + rows]
            products = kernels @ given.reshape(len(some), groups, channels // groups, -1)
            products = products.view(len(some), groups * each, -1, *given.shape[2:])
            starts = (first * stride[0], *[0] * (len(extents) - 1))
            steps = list(zip(starts, given.shape[2:], stride, dilation, strict=True))
            for number, point in enumerate(itertools.product(*map(range, kernel))):
                begins = [start + k * d for k, (start, _, _, d) in zip(point, steps, strict=True)]
                spots = [slice(b, b + (n - 1) * s + 1, s) for b, (_, n, s, _) in zip(begins, steps, strict=True)]
                sums[:, :, *spots].add_(products[:, :, number])
            del products
        for axis, (p, n) in enumerate(zip(padding, places, strict=True), start=2):
            sums = sums.narrow(axis, p, n)
        output[begin : begin + samples] = sums
    return output


def _step(batch: int, rows: int, row_bytes: int) -> tuple[int, int]:
    """Return how many samples, and how many rows of each, one step takes."""
    most = max(1, WORKSPACE_BYTES // row_bytes)
    return (min(batch, most // rows), rows) if most >= rows else (1, most)

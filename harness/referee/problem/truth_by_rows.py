"""Compute the truth some rows at a time, where the whole does not fit the GPU.

Trusted side. Most references treat the rows of a batch alone, so the truth of some rows is the reference's answer to
these rows. Whether that holds is seen from the result: put together, it must agree with the float32 reference's answer
to whole inputs, as closely as float32 can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

AGREEMENT = 64 * 2.0**-24
"""Largest RMS difference from the float32 reference, as a share of the truth's RMS: the limit of fp32 answers.

A reference that mixes rows so little that this does not show has a truth that is wrong by less than answers may be.
"""


def by_rows(
    call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    own: Sequence[torch.Tensor],
    count: int,
    allocate: Callable[[torch.Tensor], torch.Tensor],
) -> list[torch.Tensor] | None:
    """Put the answer to whole inputs together from answers to some rows.

    Inputs with as many rows as the outputs are cut, the others are passed whole.

    Args:
        call: Returns the float64 outputs for inputs in their own types.
        inputs: Whole inputs, not changed.
        own: The reference's own outputs for them.
        count: Rows of one call.
        allocate: Returns an uninitialised float64 tensor of a tensor's shape, for an output.

    Returns:
        The outputs, or None if they can't be computed by rows: outputs of another type than float32 or of different
        numbers of rows, or a result that differs from `own`.
    """
    if not own or any(leaf.dtype is not torch.float32 or not leaf.dim() for leaf in own):
        return None
    rows = own[0].shape[0]
    if count >= rows or any(leaf.shape[0] != rows for leaf in own):
        return None
    if not any(leaf.dim() and leaf.shape[0] == rows for leaf in inputs):
        return None
    outputs = [allocate(leaf) for leaf in own]
    sums = [[0.0, 0.0] for _ in own]
    for start in range(0, rows, count):
        part = slice(start, min(start + count, rows))
        answer = call([leaf[part] if leaf.dim() and leaf.shape[0] == rows else leaf for leaf in inputs])
        if len(answer) != len(own):
            return None
        for truth, whole, output, total in zip(answer, own, outputs, sums, strict=True):
            if truth.shape != whole[part].shape:
                return None
            output[part] = truth
            finite = truth.isfinite()
            if not torch.equal(finite, whole[part].isfinite()):
                return None
            total[0] += float(torch.where(finite, whole[part] - truth, 0.0).square_().sum())
            total[1] += float(torch.where(finite, truth, 0.0).square_().sum())
    agrees = all(difference <= AGREEMENT**2 * norm for difference, norm in sums)
    return outputs if agrees else None

"""Compares an output tensor with the truth: real types by their errors, exact ones entry by entry.

Imports `model`, `precision`, `patterns`, `slicing`, `comparison_real` (which defines the errors) and torch. Pure:
tensors in, values out; trusted side.

**Exact types.** Integers and bools equal the truth, or the float32 reference where that is given: an index of a
maximum depends on ties that rounding makes.
"""

from __future__ import annotations

import torch

from harness.comparison_real import RealComparer
from harness.model import PrecisionClass
from harness.patterns import Marginals
from harness.precision import LIMITS, Limits, Place, TensorComparison
from harness.slicing import ENTRY_BYTES, TEMPORARY_BYTES, count_unwritten, slices, unravel


def compare(
    actual: torch.Tensor,
    truth: torch.Tensor,
    *,
    reference: torch.Tensor | None = None,
    limits: Limits | None = None,
    poison_byte: int | None = None,
) -> TensorComparison:
    """Compare an output with the truth, and with the float32 `reference` where those two differ in kind.

    All of one shape, on any devices (the work is done on `actual`'s); `truth` and `reference` float where
    `actual` is. `limits` are those that the answer must keep (`numerics.limits_for`; default: the fp32 class); only
    beyond them are places and a pattern looked for. `poison_byte` is what the output's bytes held before the call:
    entries that still hold it are counted as never written.

    Raises `ValueError` where shapes or kinds of dtype differ, which is to be judged before, or where the truth is
    too large for its square (beyond 1e150).
    """
    for name, other in (("truth", truth), ("reference", reference)):
        if other is None:
            continue
        if other.shape != actual.shape:
            raise ValueError(f"{name} has shape {tuple(other.shape)}, the output {tuple(actual.shape)}")
        if is_real(other) != is_real(actual) or other.is_complex() != actual.is_complex():
            raise ValueError(f"{name} is {other.dtype}, the output {actual.dtype}")
    if actual.is_complex():
        actual, truth = torch.view_as_real(actual.resolve_conj()), torch.view_as_real(truth.resolve_conj())
        reference = None if reference is None else torch.view_as_real(reference.resolve_conj())
    if is_real(actual):
        return RealComparer(actual, truth, reference, limits or LIMITS[PrecisionClass.FP32], poison_byte).run()
    return _compare_exact(actual, truth, reference, poison_byte)


def is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _compare_exact(
    actual: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor | None, poison_byte: int | None
) -> TensorComparison:
    """Integers and bools, entry by entry; int64 on both sides so that types of different width compare."""
    marginals = Marginals(actual.shape)
    borrowed = torch.zeros((), dtype=torch.int64, device=actual.device)
    step = max(1, TEMPORARY_BYTES // ENTRY_BYTES)
    for start, (a, t, r) in slices(step, actual, truth, reference) if actual.numel() else ():
        assert a is not None
        assert t is not None
        a64 = a.to(torch.int64)
        off = a64 != t.to(device=a.device, dtype=torch.int64)
        if r is not None:
            lent = off & (a64 == r.to(device=a.device, dtype=torch.int64))
            borrowed += lent.sum()
            off &= ~lent
        marginals.add(off, start)

    def place(flat: int) -> Place:
        index = unravel(flat, actual.shape)
        return Place(index=index, got=int(actual[index]), expected=int(truth[index]))

    wrong = marginals.wrong > 0
    return TensorComparison(
        dtype=str(actual.dtype).removeprefix("torch."),
        shape=tuple(actual.shape),
        count=actual.numel(),
        compared=actual.numel(),
        exact=True,
        borrowed=int(borrowed),
        wrong=marginals.wrong,
        unwritten=count_unwritten(actual, poison_byte, step) if wrong else None,
        first=None if marginals.first is None else place(marginals.first),
        pattern=marginals.describe(),
    )

"""Wrong answers made without the call's inputs, or right ones misplaced.

Trusted side. `other` is always the reference's output on other inputs: an old result, or one prepared by an author who
knows the problem but not the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from harness.referee.soundness.samples import Leaves, ReferenceCall
from harness.referee.soundness.wrong import Wrong

MAX_TILE = 32
"""Largest number of entries of a missing last tile along a dimension."""

ONE = Callable[[torch.Tensor, torch.Tensor], "torch.Tensor | None"]
"""Makes one output from the right output and another call's."""


def blind(outputs: int) -> list[Wrong]:
    """The cheap wrong answers for a problem with this many output tensors.

    All outputs are replaced at once.
    """
    found = [
        _everywhere("constants", "zeros", lambda own, other: torch.zeros_like(own)),
        _everywhere("constants", "ones", lambda own, other: torch.ones_like(own)),
        _everywhere("constants", "the mean of another output, everywhere", _mean),
        _everywhere("previous_output", "the output of another call on other inputs", lambda own, other: other.clone()),
        _everywhere("half_written", "the first half only, the rest zero", _half(zero=True, first=True)),
        _everywhere("half_written", "the first half only, the rest from another call", _half(zero=False, first=True)),
        _everywhere("half_written", "the second half only, the rest from another call", _half(zero=False, first=False)),
    ]
    return found if outputs else []


def blind_thorough(own: Leaves) -> list[Wrong]:
    """Wrong answers with one output replaced, rows averaged, or an index off by one."""
    found: list[Wrong] = []
    for i, leaf in enumerate(own):
        where = f"output {i}: " if len(own) > 1 else ""
        if len(own) > 1:
            found += [
                _single(i, "constants", f"{where}zeros", lambda own, other: torch.zeros_like(own)),
                _single(i, "constants", f"{where}the mean of another call's", _mean),
                _single(i, "previous_output", f"{where}another call's", lambda own, other: other.clone()),
            ]
        if leaf.dim() > 1:
            found.append(_single(i, "constants", f"{where}the average row of another call, in every row", _average_row))
            found.append(
                _single(i, "neighbouring_index", f"{where}transposed", _transposed, may_agree=True),
            )
        for dim, size in enumerate(leaf.shape):
            if size < 2:
                continue
            found += [
                _single(i, "neighbouring_index", f"{where}shifted by one along dimension {dim}", _rolled(dim)),
                _single(i, "neighbouring_index", f"{where}last tile of dimension {dim} zero", _tile(dim, zero=True)),
                _single(
                    i,
                    "neighbouring_index",
                    f"{where}last tile of dimension {dim} from another call",
                    _tile(dim, zero=False),
                    may_agree=True,  # for instance a total that is always the same; output buffers are poisoned anyway
                ),
            ]
    return found


def tile_of(size: int) -> int:
    """Entries of the last tile along a dimension.

    For a short dimension it is an eighth, so that most of it stays right.
    """
    return max(1, min(MAX_TILE, size // 8))


def _everywhere(rule: str, name: str, make: ONE) -> Wrong:
    def answer(sample: ReferenceCall, other: Leaves) -> Sequence[torch.Tensor] | None:
        made = [make(o, e) for o, e in zip(sample.own, other, strict=True)]
        if all(item is None for item in made):
            return None
        return [o if m is None else m for m, o in zip(made, sample.own, strict=True)]

    return Wrong(rule=rule, name=name, answer=answer)


def _single(index: int, rule: str, name: str, make: ONE, *, may_agree: bool = False) -> Wrong:
    def answer(sample: ReferenceCall, other: Leaves) -> Sequence[torch.Tensor] | None:
        made = make(sample.own[index], other[index])
        return None if made is None else [made if i == index else leaf for i, leaf in enumerate(sample.own)]

    return Wrong(rule=rule, name=name, answer=answer, may_agree=may_agree)


def _mean(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if own.dtype is torch.bool:
        return torch.full_like(own, bool(other.double().mean() >= 0.5)) if own.numel() else own.clone()
    held = other if other.is_floating_point() or other.is_complex() else other.double()
    mean = held.double().mean() if not held.is_complex() else held.mean()
    return (
        mean.to(own.dtype).expand(own.shape).clone()
        if own.is_floating_point() or own.is_complex()
        else (mean.round().to(own.dtype).expand(own.shape).clone())
    )


def _average_row(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    if not own.is_floating_point() or own.shape[0] < 2:
        return None
    # In float64, because a mean of many half-precision values in their own type would be inexact.
    return other.mean(dim=0, keepdim=True, dtype=torch.float64).to(own.dtype).expand(own.shape).clone()


def _half(*, zero: bool, first: bool) -> ONE:
    def make(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
        count = own.numel()
        if count < 2:
            return None
        made = own.contiguous().view(-1).clone()
        rest = slice(count // 2, None) if first else slice(0, count // 2)
        made[rest] = 0 if zero else other.contiguous().view(-1)[rest]
        return made.view(own.shape)

    return make


def _rolled(dim: int) -> ONE:
    return lambda own, other: own.roll(1, dim)


def _transposed(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    return own.mT.contiguous().view(own.shape) if min(own.shape[-2:]) > 1 else None


def _tile(dim: int, *, zero: bool) -> ONE:
    def make(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        size = tile_of(own.shape[dim])
        made = own.clone()
        tail = made.narrow(dim, own.shape[dim] - size, size)
        tail.copy_(torch.zeros_like(tail) if zero else other.narrow(dim, own.shape[dim] - size, size))
        return made

    return make

"""Stress variants: input transformations that expose nearly correct answers.

Trusted side. Variants change floating-point tensors in place and keep shape, dtype and strides. Values in float8 are
changed in float32 and then rounded, up to the type's largest number:

* `own`: inputs as `get_inputs` returns them.
* `zero_mean`: shifted to mean zero. Long sums of uniform values in [0, 1) are nearly constant; around zero a lost term,
  a lower precision or a constant answer shows.
* `large_values`: one value in 10,000 (at least 16) is multiplied by 100 to 1,000 and exceeds all usual values. Exposes
  overflow in exponentials and squares, and sums that lose small terms.
* `structured`: one tensor is one-hot along its longest dimension, the others are ramps with a distinct value at each
  coordinate. Products then copy single values, so an index that is off by one, transposed or past the last tile shows.

A tensor that looks restricted (many zeros, few distinct values, symmetric, rows that sum to one) stays as drawn, and a
label says so. See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import torch

from harness.core.problem import Problem

OWN = "own"
LARGE_VALUES = "large_values"
STRUCTURED = "structured"

STRESS_DRAWS = 2
"""Draws of each stress variant: one draw may hide a mistake (a lost term that happens to be near zero)."""

OUTLIER_SHARE = 1e-4
"""Share of the values that `large_values` multiplies."""

LEAST_OUTLIERS = 16
"""At least this many, so that also in small tensors some are positive and overflow an exponential.

But at most one in `OUTLIER_SPACING` values, and at least one.
"""

OUTLIER_SPACING = 64

OUTLIER_DECADES = (2.0, 3.0)
"""Outliers are multiplied by ten to a random power in this range."""

LEAST_BASE = 0.05
"""Smallest base of an outlier, as a share of the largest usual value.

Multiplied small values would lie among the usual ones and sometimes equal one; if the answer is an index, both places
would be correct then.
"""

MAX_OUTLIERS = 2**20
"""Most outliers of a tensor: bounds the index tensors."""

SAMPLE = 2**14
"""Values sampled to determine range and restrictions of a tensor."""

_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)

_TRANSFORMABLE = (torch.float64, torch.float32, torch.float16, torch.bfloat16, *_EIGHT_BITS)


_PRIMES = (2, 3, 5, 7, 11, 13)
"""Their square roots are the steps of the ramps, one per dimension: no two coincide for long."""

_GOLDEN = 0.6180339887498949
"""Fractional part of the golden ratio: its multiples modulo 1 spread evenly (Weyl), so neighbours differ."""

Named: TypeAlias = "Sequence[tuple[str, torch.Tensor]]"
"""Tensors with their paths, which labels use."""


def checked_variants(problem: Problem, own_draws: int) -> list[tuple[str, int]]:
    """List variant and part of each call of the correctness stage.

    Args:
        problem: Names the stress variants that it allows.
        own_draws: Number of draws of the problem's own inputs.

    Returns:
        Pairs (variant, part): the problem's own inputs first, then each stress variant twice.
    """
    stress = [(variant, part) for variant in problem.rules.stress for part in range(STRESS_DRAWS)]
    return [(OWN, part) for part in range(own_draws)] + stress


def check_variant(variant: str) -> None:
    """Raise `ValueError` unless the variant exists."""
    if variant != OWN and variant not in _TRANSFORMS:
        raise ValueError(f"unknown input variant {variant!r}; use one of {', '.join((OWN, *_TRANSFORMS))}")


def transform(variant: str, named: Named, seed: int) -> list[str]:
    """Change tensors in place into a variant of themselves.

    Draws from the global generators, which the caller seeds. Needs little extra memory: index tensors and one mean.

    Returns:
        Labels: what was done to each tensor, or why it stays as drawn.

    Raises:
        ValueError: The variant is unknown.
    """
    check_variant(variant)
    if variant == OWN:
        return []
    labels: list[str] = []
    free: list[tuple[str, torch.Tensor]] = []
    with torch.no_grad():
        given = [(path, tensor) for path, tensor in named if tensor.dtype in _TRANSFORMABLE and tensor.numel() >= 2]
        named = [(path, _wide(tensor)) for path, tensor in given]
        for (path, tensor), reason in zip(named, restrictions([tensor for _, tensor in given]), strict=True):
            if reason is None:
                free.append((path, tensor))
            else:
                labels.append(f"{path}: left as drawn, {reason}")
        labels += _TRANSFORMS[variant](free, seed)
        for (_, tensor), (_, changed) in zip(given, named, strict=True):
            if changed is not tensor:
                top = torch.finfo(tensor.dtype).max
                tensor.copy_(changed.clamp(-top, top))
        return labels


def _zero_mean(changeable: Named, seed: int) -> list[str]:
    for _, leaf in changeable:
        # In the tensor's own precision: a float64 mean would copy the whole tensor. The mean of a half-precision tensor
        # is coarse, so the remaining mean is subtracted again.
        for _ in range(1 if leaf.dtype.itemsize >= 4 else 2):
            leaf.sub_(leaf.mean())
    return [f"{path}: shifted to mean zero" for path, _ in changeable]


def _large_values(changeable: Named, seed: int) -> list[str]:
    labels = []
    low, high = OUTLIER_DECADES
    for path, leaf in changeable:
        least = max(1, min(LEAST_OUTLIERS, leaf.numel() // OUTLIER_SPACING))
        count = min(max(least, round(leaf.numel() * OUTLIER_SHARE)), MAX_OUTLIERS)
        smallest = LEAST_BASE * _sample(leaf).double().abs().amax()
        at = torch.randint(leaf.numel(), (count,), device=leaf.device)
        # The factor depends only on the place: a place that is drawn twice gets the same value from both writes.
        factor = 10.0 ** (low + (high - low) * (at.double() * _GOLDEN).frac())
        limit = torch.finfo(leaf.dtype).max / 64
        view, index = _indexed(leaf, at)
        base = view[index].double()
        base = torch.where(base.abs() < smallest, smallest * base.sign(), base)
        view[index] = (base * factor).clamp_(-limit, limit).to(leaf.dtype)
        labels.append(f"{path}: {count} values multiplied by 100 to 1000")
    return labels


def _structured(changeable: Named, seed: int) -> list[str]:
    labels = []
    # Of several tensors the seed selects one to be one-hot; a single tensor is one-hot for every other seed.
    hot = seed % max(len(changeable), 2)
    ranges = _ranges([leaf for _, leaf in changeable])
    for i, ((path, leaf), (low, high)) in enumerate(zip(changeable, ranges, strict=True)):
        if i == hot:
            along = _one_hot(leaf, 0.0 if low < 0 < high else low, high, seed)
            labels.append(f"{path}: one-hot along dimension {along}")
        else:
            _ramp(leaf, low, high)
            labels.append(f"{path}: coordinate ramp")
    return labels


def _one_hot(leaf: torch.Tensor, low: float, high: float, seed: int) -> int:
    """Set one `high` per line along the longest dimension, else `low`; return it.

    First and last place are always among the hot ones.
    """
    longest = [dim for dim, size in enumerate(leaf.shape) if size == max(leaf.shape)]
    along = longest[(seed // 4) % len(longest)]
    size = leaf.shape[along]
    lines = leaf.numel() // size
    edges = [size - 1, 0] if seed & 2 else [0, size - 1]
    start = seed % size
    at = ((torch.arange(lines, device=leaf.device, dtype=torch.float64) * _GOLDEN).frac() * size).long()
    at = (at + start) % size
    at[:2] = torch.tensor(edges[:lines], device=leaf.device)
    index_shape = [1 if dim == along else extent for dim, extent in enumerate(leaf.shape)]
    leaf.fill_(low).scatter_(along, at.view(index_shape), high)
    return along


def _ramp(leaf: torch.Tensor, low: float, high: float) -> None:
    """Fill with the sum of a code of each coordinate, from `low` to `high`."""
    leaf.fill_(low)
    weights = [1.0 / (dim + 1) for dim in range(leaf.dim())]
    for dim, weight in enumerate(weights):
        step = math.sqrt(_PRIMES[dim % len(_PRIMES)]) % 1
        code = (torch.arange(1, leaf.shape[dim] + 1, device=leaf.device, dtype=torch.float64) * step).frac()
        code *= (high - low) * weight / sum(weights)
        shape = [-1 if other == dim else 1 for other in range(leaf.dim())]
        leaf.add_(code.to(leaf.dtype).view(shape))


def restrictions(tensors: Sequence[torch.Tensor]) -> list[str | None]:
    """Return for each tensor why its values look restricted.

    Samples `SAMPLE` evenly spread places, and up to eight rows for sums. Synchronises with the device once.

    Args:
        tensors: Floating-point tensors of two elements or more, whose elements do not overlap.

    Returns:
        For each tensor the reason, or None if its values look unrestricted.
    """
    return [
        next((why for why, holds in _FORMS.items() if holds(of, tensor)), None)
        for tensor, of in zip(tensors, _read([_figures(_wide(tensor)) for tensor in tensors]), strict=True)
    ]


_Figures: TypeAlias = "dict[str, float]"


def _figures(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Compute the figures that decide, as scalars on the tensor's device."""
    sample = _sample(tensor).double()
    found = {
        "finite": torch.isfinite(sample).all(),
        "zeros": (sample == 0).double().mean(),
        "distinct": 1 + (sample.sort().values.diff() != 0).sum(),
    }
    if tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 2:
        rows = min(tensor.shape[-1], 128)
        corner = tensor[(0,) * (tensor.dim() - 2)][:rows, :rows]
        found["symmetric"] = (corner == corner.mT).all()
    if tensor.dim() >= 2 and tensor.shape[-1] > 2:
        lines = torch.arange(min(8, tensor.numel() // tensor.shape[-1]), device=tensor.device)
        rows_of = tensor[torch.unravel_index(lines, tensor.shape[:-1])].double()
        if len(rows_of) > 1:
            found |= {"from_one": (rows_of.sum(-1) - 1).abs().max(), "least": rows_of.min()}
    return found


_FORMS: dict[str, Callable[[_Figures, torch.Tensor], bool]] = {
    "it holds values that are not finite": lambda of, _: not of["finite"],
    "more than a tenth of it is zero": lambda of, _: of["zeros"] > 0.1,
    "it has few distinct values": lambda of, tensor: _few(of["distinct"], tensor),
    "it is symmetric": lambda of, _: bool(of.get("symmetric", False)),
    "its rows sum to one": lambda of, _: of.get("from_one", 1.0) < 1e-3 and of["least"] >= 0,
}
"""Text of the label, and a test of the figures; the first match counts."""


def _few(distinct: float, tensor: torch.Tensor) -> bool:
    looked_at = min(tensor.numel(), SAMPLE)
    most = 8 if tensor.dtype in _EIGHT_BITS else max(4, looked_at // 64)  # an 8-bit type has at most 256 values
    return looked_at >= 16 and distinct <= most


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return an 8-bit tensor in float32, as torch has no arithmetic for it."""
    return tensor.float() if tensor.dtype in _EIGHT_BITS else tensor


def _read(scalars: Sequence[dict[str, torch.Tensor]]) -> list[_Figures]:
    """Copy scalars from the device as numbers, in one transfer."""
    flat = [value.double() for found in scalars for value in found.values()]
    numbers = iter(torch.stack(flat).tolist() if flat else ())
    return [{name: next(numbers) for name in found} for found in scalars]


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return evenly spread values of a tensor, all of a small one."""
    if tensor.numel() <= SAMPLE:
        return tensor.reshape(-1)
    view, index = _indexed(tensor, _places(tensor.numel(), tensor.device))
    return view[index]


def _indexed(tensor: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return a view, and an index of it for flat places in logical order."""
    if tensor.is_contiguous():
        return tensor.view(-1), (places,)
    return tensor, torch.unravel_index(places, tensor.shape)


@lru_cache(maxsize=32)
def _places(count: int, device: torch.device) -> torch.Tensor:
    """Return `SAMPLE` evenly spread indices; cached."""
    at = torch.arange(SAMPLE, device=device, dtype=torch.float64) * (count / SAMPLE)
    jitter = (torch.arange(SAMPLE, device=device, dtype=torch.float64) * _GOLDEN).frac()
    return (at + jitter * (count / SAMPLE)).long().clamp_(max=count - 1)


def _ranges(tensors: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """Return rough minimum and maximum of each; a minimum near 0 becomes 0."""
    samples = [_sample(tensor).double() for tensor in tensors]
    ranges = []
    for of in _read([{"low": sample.min(), "high": sample.max()} for sample in samples]):
        low, high = of["low"], of["high"]
        if 0 <= low < 0.05 * high:
            low = 0.0
        ranges.append((low, high if high > low else low + 1.0))
    return ranges


_TRANSFORMS: dict[str, Callable[[Named, int], list[str]]] = {
    "zero_mean": _zero_mean,
    LARGE_VALUES: _large_values,
    STRUCTURED: _structured,
}

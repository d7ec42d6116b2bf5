"""The stress variants of inputs: transformations that tell right answers from nearly right ones.

Pure; trusted side. Imports torch and nothing of the harness.

Variants change floating-point tensors in place, keep shape, dtype and strides, and leave all else alone:

* `own`: as `get_inputs` gives them.
* `zero_mean`: shifted so that the mean is zero. Uniform values in [0, 1) make every long sum nearly the same number;
  around zero a lost term, a lower precision or a constant answer shows.
* `large_values`: about one value in ten thousand (sixteen at least) is multiplied by 100 to 1,000, its sign kept; small
  ones are taken for larger, so that each ends beyond all that is usual. Finds overflow in exponentials and squares, and
  sums that lose small terms beside large ones.
* `structured`: one tensor becomes one-hot along its longest dimension (background 0, or the least value where all are
  positive; first and last place always among the hot ones), the others ramps in which every coordinate has its own
  value. Products then copy single values, so that an index that is off by one, transposed, or past the last tile
  shows undiluted.

A tensor that looks restricted (many zeros, few distinct values, symmetric, sums that are all alike) is left as drawn
by the variants, and a label says so: shifting a triangular matrix or a probability would leave the
problem's domain, even where its declaration forgot to say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import torch

OWN = "own"

OUTLIER_SHARE = 1e-4
"""Part of the values that `large_values` multiplies."""

LEAST_OUTLIERS = 16
"""At least so many, so that in small tensors too some are positive and large enough to overflow an exponential; but no
more than one in `OUTLIER_SPACING` values, and at least one."""

OUTLIER_SPACING = 64

OUTLIER_DECADES = (2.0, 3.0)
"""Outliers are multiplied by ten to a power between these."""

LEAST_BASE = 0.05
"""Part of the usual largest value that an outlier is made of at least. Small values multiplied would lie among the
usual ones and now and then equal one of them: where an index is the answer, either place would be right then."""

MAX_OUTLIERS = 2**20
"""Bound on the index tensors for outliers: a million places are as good as a hundred million."""

SAMPLE = 2**14
"""Values looked at to tell the range and the restrictions of a tensor."""

_TRANSFORMABLE = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

_PRIMES = (2, 3, 5, 7, 11, 13)
"""Their square roots are the steps of the ramps, one a dimension: no two of them agree for long."""

_GOLDEN = 0.6180339887498949
"""Fractional part of the golden ratio: its multiples modulo 1 spread evenly (Weyl), so codes of neighbours differ."""

Named: TypeAlias = "Sequence[tuple[str, torch.Tensor]]"
"""Tensors with the paths by which labels name them."""


def check_variant(variant: str) -> None:
    """Raise `ValueError` unless there is such a variant."""
    if variant != OWN and variant not in _TRANSFORMS:
        raise ValueError(f"there is no input variant {variant!r}; known are {', '.join((OWN, *_TRANSFORMS))}")


def transform(variant: str, named: Named, seed: int) -> list[str]:
    """Change contiguous tensors in place into `variant` of themselves; say what was done to which, and what not.

    Draws from the global generators, which the caller seeds; `seed` decides which tensor plays which part. Needs
    little memory beside the tensors: index tensors, and one mean.
    """
    check_variant(variant)
    if variant == OWN:
        return []
    labels: list[str] = []
    free: list[tuple[str, torch.Tensor]] = []
    with torch.no_grad():
        named = [(path, tensor) for path, tensor in named if tensor.dtype in _TRANSFORMABLE and tensor.numel() >= 2]
        for (path, tensor), reason in zip(named, restrictions([tensor for _, tensor in named]), strict=True):
            if reason is None:
                free.append((path, tensor))
            else:
                labels.append(f"{path}: left as drawn, {reason}")
        return labels + _TRANSFORMS[variant](free, seed)


def _zero_mean(changeable: Named, seed: int) -> list[str]:
    for _, leaf in changeable:
        # In the tensor's own precision: asking for a float64 mean would copy the whole tensor into one. The mean of
        # a half-precision tensor is rounded coarsely, so what is left of it is taken off once more.
        for _ in range(1 if leaf.dtype.itemsize >= 4 else 2):
            leaf.sub_(leaf.mean())
    return [f"{path}: shifted to mean zero" for path, _ in changeable]


def _large_values(changeable: Named, seed: int) -> list[str]:
    labels = []
    low, high = OUTLIER_DECADES
    for path, leaf in changeable:
        least = max(1, min(LEAST_OUTLIERS, leaf.numel() // OUTLIER_SPACING))
        count = min(max(least, round(leaf.numel() * OUTLIER_SHARE)), MAX_OUTLIERS)
        flat = leaf.view(-1)
        smallest = LEAST_BASE * _sample(leaf).double().abs().amax()
        at = torch.randint(leaf.numel(), (count,), device=leaf.device)
        # The factor depends on the place alone: a place drawn twice gets one value, whichever write comes last.
        factor = 10.0 ** (low + (high - low) * (at.double() * _GOLDEN).frac())
        limit = torch.finfo(leaf.dtype).max / 64
        base = flat[at].double()
        base = torch.where(base.abs() < smallest, smallest * base.sign(), base)
        flat[at] = (base * factor).clamp_(-limit, limit).to(leaf.dtype)
        labels.append(f"{path}: {count} values multiplied by 100 to 1000")
    return labels


def _structured(changeable: Named, seed: int) -> list[str]:
    labels = []
    # Among several tensors one is one-hot, which one depends on the seed; a lone tensor is so every other time.
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
    """One `high` in every line along the longest dimension, `low` elsewhere. Returns the dimension."""
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
    """Sum over the dimensions of a code of the coordinate, each dimension with its own code, within `low` to `high`."""
    leaf.fill_(low)
    weights = [1.0 / (dim + 1) for dim in range(leaf.dim())]
    for dim, weight in enumerate(weights):
        step = math.sqrt(_PRIMES[dim % len(_PRIMES)]) % 1
        code = (torch.arange(1, leaf.shape[dim] + 1, device=leaf.device, dtype=torch.float64) * step).frac()
        code *= (high - low) * weight / sum(weights)
        shape = [-1 if other == dim else 1 for other in range(leaf.dim())]
        leaf.add_(code.to(leaf.dtype).view(shape))


def restrictions(tensors: Sequence[torch.Tensor]) -> list[str | None]:
    """Why the values of each of these contiguous floating-point tensors, of two elements or more, look bound to a form,
    or None where they look free.

    Looks at `SAMPLE` evenly spread places; up to eight slices for the sums. Synchronises with the device, once.
    """
    return [
        next((why for why, holds in _FORMS.items() if holds(of, tensor)), None)
        for tensor, of in zip(tensors, _read([_figures(tensor) for tensor in tensors]), strict=True)
    ]


_Figures: TypeAlias = "dict[str, float]"


def _figures(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """What tells a form, as scalars on the tensor's device."""
    sample = _sample(tensor).double()
    found = {
        "finite": torch.isfinite(sample).all(),
        "zeros": (sample == 0).double().mean(),
        "distinct": 1 + (sample.sort().values.diff() != 0).sum(),
    }
    if tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 2:
        rows = min(tensor.shape[-1], 128)
        corner = tensor.view(-1, *tensor.shape[-2:])[0][:rows, :rows]
        found["symmetric"] = (corner == corner.mT).all()
    if tensor.dim() >= 2 and tensor.shape[-1] > 2:
        rows_of = tensor.view(-1, tensor.shape[-1])[:8].double()
        if len(rows_of) > 1:
            found |= {"from_one": (rows_of.sum(-1) - 1).abs().max(), "least": rows_of.min()}
    return found


_FORMS: dict[str, Callable[[_Figures, torch.Tensor], bool]] = {
    "it holds values that are not finite": lambda of, _: not of["finite"],
    "more than a tenth of it is zero": lambda of, _: of["zeros"] > 0.1,
    "it has few distinct values": lambda of, tensor: _few(of["distinct"], min(tensor.numel(), SAMPLE)),
    "it is symmetric": lambda of, _: bool(of.get("symmetric", False)),
    "its rows sum to one": lambda of, _: of.get("from_one", 1.0) < 1e-3 and of["least"] >= 0,
}
"""What a label says of a form, and whether figures show it; the first one is told."""


def _few(distinct: float, looked_at: int) -> bool:
    return looked_at >= 16 and distinct <= max(4, looked_at // 64)


def _read(scalars: Sequence[dict[str, torch.Tensor]]) -> list[_Figures]:
    """Scalars on a device as numbers, in one copy."""
    flat = [value.double() for found in scalars for value in found.values()]
    numbers = iter(torch.stack(flat).tolist() if flat else ())
    return [{name: next(numbers) for name in found} for found in scalars]


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Evenly spread values of a contiguous tensor, all of a small one."""
    flat = tensor.view(-1)
    return flat if flat.numel() <= SAMPLE else flat[_places(flat.numel(), tensor.device)]


@lru_cache(maxsize=32)
def _places(count: int, device: torch.device) -> torch.Tensor:
    """`SAMPLE` of that many places, evenly spread. Kept: the same ones are looked at again and again."""
    at = torch.arange(SAMPLE, device=device, dtype=torch.float64) * (count / SAMPLE)
    jitter = (torch.arange(SAMPLE, device=device, dtype=torch.float64) * _GOLDEN).frac()
    return (at + jitter * (count / SAMPLE)).long().clamp_(max=count - 1)


def _ranges(tensors: Sequence[torch.Tensor]) -> list[tuple[float, float]]:
    """About the least and the greatest value of each, from a sample; the least is 0 where it is near it."""
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
    "large_values": _large_values,
    "structured": _structured,
}

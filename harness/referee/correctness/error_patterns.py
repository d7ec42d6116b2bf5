"""Name the pattern of wrong entries: "every 33rd column", "the last partial tile".

Trusted side; pure. A pattern is a hint for the author and never decides a verdict. Costs are bounded: counts per
coordinate of each dimension, and a sample of `SAMPLE` places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

SAMPLE = 16_384
"""Places that the rearrangement tests check."""

MATCH = 1e-2
"""Relative difference up to which a sampled place holds another place's value."""

MAX_MARGINAL = 2**24
"""Longest dimension whose counts are kept (int64)."""

TILES = (256, 128, 64, 32, 16, 8)
"""Tile widths that kernels use; a remainder of one of them is called a partial tile."""

PERIOD = 256
"""Elements in memory after which errors of a warp's or block's threads repeat; a power of two."""

LEAST = 4
"""Fewer wrong places form no pattern: the first one's index is enough."""

EVERYTHING = 0.999
"""Share of wrong places from which the pattern is "everything"."""

DENSE, SPARSE = 0.5, 0.1
"""Shares of a grid's places that must be wrong for the grid to be the pattern; some are right by chance, or not wrong
enough. The lower share counts if there are `OFTEN` wrong places for each row and column, which does not happen by
chance.
"""

OFTEN = 4

NEAR = 0.1
"""Largest difference of counts from a triangle's, as a mean share of its side. Counts that are equal everywhere differ
by a quarter.
"""


class Marginals:
    """Counts of wrong places along each dimension of `shape`.

    They are collected chunk by chunk in flat order.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.wrong = 0
        self.first: int | None = None
        self.last: int | None = None
        self._steps: set[int] = set()
        self._residues = np.zeros(PERIOD, dtype=np.bool_)
        self._counts: list[torch.Tensor | None] = [None] * len(self.shape)

    def add(self, mask: torch.Tensor, offset: int) -> None:
        """Add a 1-d bool `mask`; its first place has the flat index `offset`.

        This synchronises once.
        """
        places = mask.nonzero().view(-1)
        if places.numel() == 0:
            return
        places = places + offset
        self.wrong += places.numel()
        ends = places[[0, -1]].tolist()
        if self.last is not None:
            self._steps.add(ends[0] - self.last)
        if places.numel() > 1 and len(self._steps) < 2:
            steps = places.diff()
            self._steps.update(torch.stack((steps.min(), steps.max())).tolist())
        self._residues |= torch.bincount(places % PERIOD, minlength=PERIOD).cpu().numpy() > 0
        self.first = ends[0] if self.first is None else self.first
        self.last = ends[1]
        stride = math.prod(self.shape)
        for dim, size in enumerate(self.shape):
            stride //= size
            if size > MAX_MARGINAL:
                continue
            found = torch.bincount(places // stride % size, minlength=size)
            held = self._counts[dim]
            self._counts[dim] = found if held is None else held + found

    def describe(self) -> str:
        """Return the pattern in words; empty if there is none."""
        counts = [None if held is None else held.cpu().numpy() for held in self._counts]
        step = next(iter(self._steps)) if len(self._steps) == 1 else None
        return describe_counts(
            self.shape,
            counts,
            wrong=self.wrong,
            first=self.first,
            last=self.last,
            step=step,
            residues=np.flatnonzero(self._residues).tolist(),
        )


def describe_counts(
    shape: Sequence[int],
    counts: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None],
    *,
    wrong: int,
    first: int | None,
    last: int | None,
    step: int | None = None,
    residues: Sequence[int] = (),
) -> str:
    """Return the pattern in words, from counts at each coordinate of each dimension.

    Args:
        shape: Shape of the tensor.
        counts: `counts[d]` has `shape[d]` entries; None if not kept.
        wrong: Number of wrong places.
        first: Flat index of the first wrong place.
        last: Flat index of the last wrong place.
        step: Distance between neighbouring wrong places, if it is always the same.
        residues: Remainders of the flat indices modulo `PERIOD`.

    Returns:
        The pattern; empty if there is none.
    """
    total = math.prod(shape)
    if wrong == 0 or first is None or last is None:
        return ""
    if wrong >= EVERYTHING * total:
        return "everything" if total > 1 else ""
    if borders := _borders(shape, counts, wrong):
        return borders
    if wrong < LEAST:
        return ""
    if triangle := _triangle(shape, counts, wrong):
        return triangle
    run = last - first + 1 == wrong
    grid, filled, lines = _grid(shape, counts)
    if grid and wrong >= DENSE * filled and not (run and wrong < filled):
        return grid
    if run:
        return _run(wrong, total, to_the_end=last == total - 1)
    if step is not None:
        if len(shape) == 2 and step == shape[1] + 1:
            return "the diagonal" if first == 0 else "a diagonal"
        return f"every {_ordinal(step)} element in memory order, from element {first}"
    if (lanes := _lanes(residues)) and wrong >= OFTEN * len(residues):
        return lanes
    if grid and wrong >= max(SPARSE * filled, OFTEN * lines):
        return grid
    percent = 100 * wrong / total
    return f"scattered over {percent:.{2 if percent < 99.5 else 3}g} % of the places"


def _grid(
    shape: Sequence[int], counts: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None]
) -> tuple[str, int, int]:
    """Describe the rows and columns (and slices) that contain wrong places.

    Returns the words, the number of their crossings, and the number of lines of the most frequent kind named.
    """
    parts = []
    filled, lines = 1, 0
    for dim in reversed(range(len(shape))):
        held = counts[dim]
        hit = None if held is None or shape[dim] < 2 else np.flatnonzero(held)
        filled *= shape[dim] if hit is None else int(hit.size)
        if (
            hit is not None
            and hit.size < shape[dim]
            and (words := _describe_hits(hit, shape[dim], _name(dim, len(shape))))
        ):
            parts.append(words)
            lines = max(lines, int(hit.size))
    return " of ".join(parts), filled, lines


def _run(wrong: int, total: int, *, to_the_end: bool) -> str:
    """Describe one contiguous stretch of memory that is no whole number of rows."""
    if not to_the_end:
        return "one unbroken run"
    tile = next((tile for tile in TILES if wrong == total % tile and total > tile), None)
    if tile is None:
        return "one unbroken run up to the end"
    return f"the last {wrong} elements in memory order (the last partial tile of {tile})"


def _lanes(residues: Sequence[int]) -> str:
    """Describe places that repeat in memory, whatever the row length.

    For example, some threads of each warp or block cause such a pattern.
    """
    held = set(residues)
    for period in (2**power for power in range(1, PERIOD.bit_length())):
        own = sorted({place % period for place in held})
        if len(own) == period or len(own) * (PERIOD // period) != len(held):
            continue
        if len(own) == 1:
            return f"element {own[0]} of every {period} in memory order"
        if own[-1] - own[0] == len(own) - 1:
            return f"elements {own[0]} to {own[-1]} of every {period} in memory order"
        if len(own) <= 4:
            return f"elements {', '.join(map(str, own))} of every {period} in memory order"
        return ""
    return ""


def _triangle(
    shape: Sequence[int], counts: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None], wrong: int
) -> str:
    """Recognise the part above or below the diagonal of square matrices.

    The counts along both dimensions show it.
    """
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < LEAST:
        return ""
    rows, columns = counts[-2], counts[-1]
    if rows is None or columns is None:
        return ""
    size, matrices = shape[-1], math.prod(shape[:-2])
    on = wrong > matrices * size * (size - 1) / 2
    rising = np.arange(size) + on
    share = wrong / (matrices * float(rising.sum()))
    if not SPARSE <= share <= 1.0:
        return ""
    for words, across, down in (("above", rising[::-1], rising), ("below", rising, rising[::-1])):
        off = [np.abs(held / matrices - share * wanted).mean() for held, wanted in ((rows, across), (columns, down))]
        if max(off) <= NEAR * share * size:
            return f"{'on and ' if on else ''}{words} the diagonal"
    return ""


def _borders(
    shape: Sequence[int],
    counts: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None],
    wrong: int,
) -> str:
    """Recognise the L-shaped remainder of a matrix.

    It consists of whole last rows and whole last columns, and nothing else.
    """
    if len(shape) != 2 or counts[0] is None or counts[1] is None:
        return ""
    rows = np.flatnonzero(counts[0] == shape[1])
    columns = np.flatnonzero(counts[1] == shape[0])
    if not (rows.size and columns.size):
        return ""
    if rows.size * shape[1] + columns.size * shape[0] - rows.size * columns.size != wrong:
        return ""
    return (
        f"{_describe_hits(rows, shape[0], 'row') or 'some rows'} and "
        f"{_describe_hits(columns, shape[1], 'column') or 'some columns'}"
    )


def _describe_hits(hit: np.ndarray[tuple[int, ...], np.dtype[np.intp]], size: int, name: str) -> str:
    """Describe the coordinates `hit` (sorted, not all of `size`) of one dimension."""
    low, high, count = int(hit[0]), int(hit[-1]), int(hit.size)
    if count == 1:
        return f"the last {name}" if low == size - 1 else f"{name} {low}"
    steps = np.diff(hit)
    if int(steps.max()) == 1:
        if high == size - 1:
            tile = next((t for t in TILES if count == size % t and size > t), None)
            return f"the last {count} {name}s" + (f" (the last partial tile of {tile})" if tile else "")
        if low == 0:
            return f"the first {count} {name}s"
        return f"{name}s {low} to {high}"
    step = int(steps.min())
    if step == int(steps.max()) and count >= 3:
        start = f", from {name} {low}" if low else ""
        stop = f" to {high}" if high + step < size else ""
        return f"every {_ordinal(step)} {name}{start}{stop}"
    if repeated := _repeated(hit, size, name):
        return repeated
    if count <= 4:
        return f"{name}s {', '.join(str(int(place)) for place in hit)}"
    return f"{count} of {size} {name}s" if count < size // 2 else ""


def _repeated(hit: np.ndarray[tuple[int, ...], np.dtype[np.intp]], size: int, name: str) -> str:
    """Recognise stretches of one length at one distance throughout.

    Examples are half of each warp and the edge of each tile.
    """
    breaks = np.flatnonzero(np.diff(hit) > 1)
    starts = hit[np.concatenate(([0], breaks + 1))]
    lengths = np.diff(np.concatenate(([-1], breaks, [hit.size - 1])))
    period = int(starts[1] - starts[0]) if starts.size > 1 else 0
    low, length = int(starts[0]), int(lengths[0])
    whole = period and (np.diff(starts) == period).all() and (lengths[:-1] == length).all() and lengths[-1] <= length
    # Two stretches form a pattern only if neither is cut short and more than one line lies between them.
    often = starts.size > 2 or (lengths[-1] == length and period > length + 1)
    if not whole or not often or low >= period or int(starts[-1]) + period < size:
        return ""
    return f"{length} {name}s in every {period}" + (f", from {name} {low}" if low else "")


def _name(dim: int, dims: int) -> str:
    if dims == 1:
        return "element"
    return {dims - 1: "column", dims - 2: "row"}.get(dim, f"dimension-{dim} slice")


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def moments(a: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return the sums for `describe_transformation`.

    They are the sums of a, t, a*a, t*t and a*t, and the number of nonzero a.
    """
    sums: torch.Tensor = torch.stack(
        (a.sum(), t.sum(), torch.dot(a, a), torch.dot(t, t), torch.dot(a, t), a.count_nonzero().double())
    )
    return sums


def describe_transformation(sums: Sequence[float], count: int) -> str:
    """Recognise an answer that is a simple transformation of the truth.

    It is all zero, one value, or the truth times a constant or plus a constant.
    """
    a, t, aa, tt, at, nonzero = sums
    if count < 2:
        return ""
    if nonzero == 0:
        return "all zero"
    variance_a, variance_t = aa / count - (a / count) ** 2, tt / count - (t / count) ** 2
    if variance_a <= 1e-12 * aa / count:
        return f"the same value everywhere, {a / count:.2g}"
    if tt > 0.0 and at * at >= (1 - 1e-6) * aa * tt and abs(at / tt - 1) > 1e-3 and variance_t > 1e-6 * tt / count:
        return f"a constant factor: everything is {at / tt:.4g} times what is expected"
    offset = (a - t) / count
    rest = (aa - 2 * at + tt) / count - offset * offset
    if abs(offset) > 1e-3 * math.sqrt(tt / count) and rest <= 1e-6 * offset * offset:
        return f"a constant offset: everything is off by {offset:.2g}"
    return ""


def describe_rearrangement(actual: torch.Tensor, truth: torch.Tensor, rms: float) -> str:
    """Recognise the truth's values in other places.

    Examples are "transposed" and "shifted by one element". Checks at most `SAMPLE` places, spread over the whole
    tensor.

    Args:
        actual: The output, with real values.
        truth: The truth, of the same shape, on any device.
        rms: The truth's root mean square.

    Returns:
        The rearrangement in words; empty if there is none.
    """
    count = actual.numel()
    if count < 8:
        return ""
    # An odd stride near the golden ratio of the range samples rows and columns evenly.
    stride = max(1, int(count * 0.6180339887)) | 1
    flat = torch.arange(min(SAMPLE, count), dtype=torch.int64) * stride % count
    got = _at(actual, flat)
    here = _at(truth, flat)

    def agrees(want: torch.Tensor) -> float:
        close = (got - want).abs() <= MATCH * want.abs().clamp(min=rms)
        return float(close.double().mean())

    if agrees(here) > 0.5:
        return ""
    if actual.dim() >= 2:
        rows, columns = actual.shape[-2:]
        if rows > 1 and columns > 1:
            inner = flat % (rows * columns)
            moved = flat - inner + inner % rows * columns + inner // rows
            if agrees(_at(truth, moved)) > EVERYTHING:
                return "transposed"
    for step, words in ((1, "shifted by one element"), (-1, "shifted back by one element")):
        if agrees(_at(truth, (flat - step) % count)) > 0.99:
            return words
    if agrees(_at(truth, count - 1 - flat)) > EVERYTHING:
        return "in reverse order"
    return ""


def _at(tensor: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Return the values at flat (logical) indices, as float64 on the CPU."""
    places = _unravel(flat.to(tensor.device), tensor.shape)
    if tensor.element_size() == 1:  # float8 can't be indexed
        return tensor.view(torch.uint8)[places].view(tensor.dtype).cpu().to(torch.float64)
    return tensor[places].cpu().to(torch.float64)


def _unravel(flat: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Do the same as `torch.unravel_index`, without its slow first call.

    That call imports torch's symbolic shapes, which takes seconds during a run.
    """
    places = []
    for size in reversed(shape):
        places.append(flat % size)
        flat = flat // size
    return tuple(reversed(places))

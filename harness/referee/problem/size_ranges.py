"""Draw secret shapes of a problem: sizes that no solution knows before its calls.

Trusted side. A shape is a workload whose sizes are drawn. A problem may declare ranges or a list (`ShapeRules`); else
ranges are derived as small sizes are (`derive.py`): each change runs the reference on tensors without data, and counts
if the reference keeps its operations. See guides/design/secret_shapes.md.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.core.atomic_file import replace_whole
from harness.core.json_value import from_json, to_json
from harness.core.problem import Problem, ShapeRules, SizeRange, Workload, digest_text
from harness.referee.problem.derive import DatalessCall, Place, places_of, trace, with_value
from harness.referee.problem.loader import ProblemError, load_reference

SECRET = "secret"
"""Beginning of the names of drawn workloads."""

SMALLER, LARGER = 8, 2
"""A size lies between its value at the shown workload divided by `SMALLER` and multiplied by `LARGER`."""

LEAST_FEATURE = 16
"""Integers below this at full size are no sizes unless they count samples: kernel sizes, strides, groups, heads."""

FEATURE_STEP = 16
"""Sizes of parameters and of the innermost dimension of an input keep the common divisor with this, so that honest code
may use wide loads. Other dimensions have any size.
"""

STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Steps that are tried until the reference accepts every probe."""

PROBES = 3
"""Values that are tried for one step."""

TRIES = 24
"""Draws for one shape, before the problem counts as having no more of them."""

FORMAT = 1
"""Version of the derivation; part of the key of its results."""

LIMIT_S = 60.0
"""Seconds after which no further ranges are derived."""


class NoShapes(ProblemError):
    """No secret shapes can be drawn. The message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRange:
    """One range, and the integers of the file that have the same value drawn from it."""

    places: tuple[Place, ...]
    range: SizeRange

    @property
    def title(self) -> str:
        """The range for readers, as `workloads.yaml` has it."""
        names = " = ".join(name + "".join(f"[{index}]" for index in path) for name, path in self.places)
        step = f", step {self.range.step}" if self.range.step > 1 else ""
        return f"{names}: {self.range.low} to {self.range.high}{step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnShape:
    """A workload with drawn sizes and its weight in the score."""

    workload: Workload
    weight: float = 1.0


class ShapeDrawer:
    """Secret shapes of one problem beside one shown workload.

    Args:
        problem: The problem.
        shown: The workload whose sizes everyone knows.
        cache_dir: Folder that keeps derived ranges, which take seconds for large models; None keeps none.

    Raises:
        ProblemError: The problem does not run without data at the shown workload, and declares no shapes.
        NoShapes: It declares no ranges that apply to this workload, and none can be derived.
    """

    def __init__(self, problem: Problem, shown: Workload, cache_dir: Path | None = None) -> None:
        self._problem = problem
        self._shown = shown
        self._base: DatalessCall | None = None
        """The reference at the shown shape; None if it needs data, for example to find a mask's entries."""
        try:
            self._base = trace(problem, shown.sizes)
            self._values = self._base.values
        except ProblemError:
            if problem.shapes == ShapeRules():
                raise
            self._values = load_reference(problem, shown).sizes
        self.ranges: tuple[PlacedRange, ...] = ()
        self.listed = problem.shapes.listed if shown.name == "full" else ()
        if self.listed:
            return
        if problem.shapes.ranges:
            self.ranges = tuple(self._declared())
        elif self._base is not None:
            self.ranges = self._kept(self._base, cache_dir)
        if not self.ranges:
            raise NoShapes(
                "no size of it can change: write its sizes as names at the top level (batch_size = 16) and use these "
                "in get_inputs and get_init_inputs, or declare shapes in workloads.yaml"
            )

    def draw(self, count: int, secret: random.Random) -> list[DrawnShape]:
        """Return up to `count` different shapes, fewer if there are no more.

        Args:
            count: Number of shapes.
            secret: Source of numbers that no solution can predict.

        Returns:
            The shapes. None has the sizes of a declared workload, and no call costs more than at the shown one, except
            from a declared list.

        Raises:
            NoShapes: There is not one.
        """
        found = list(self._from_list(count, secret) if self.listed else self._from_ranges(count, secret))
        if not found:
            raise NoShapes("no sizes in its ranges run, cost at most as much as the shown ones and differ from them")
        return found

    def _from_list(self, count: int, secret: random.Random) -> Iterator[DrawnShape]:
        """Draw entries of the list without repetition, in proportion to their calls."""
        left = [each for each in self.listed if self._sizes_of(each.sizes) != self._sizes_of(self._shown.sizes)]
        number = 0
        while left and number < count:
            entry = secret.choices(left, [each.calls for each in left])[0]
            left.remove(entry)
            number += 1
            yield DrawnShape(workload=self._workload(number, entry.sizes), weight=entry.calls)

    def _from_ranges(self, count: int, secret: random.Random) -> Iterator[DrawnShape]:
        known = [self._sizes_of(each.sizes) for each in (self._shown, *self._problem.workloads.values())]
        number = 0
        for _ in range(TRIES * count):
            if number == count:
                return
            sizes: dict[str, Any] = dict(self._shown.sizes)
            for each in self.ranges:
                self._set(sizes, each.places, _log_uniform(each.range, secret))
            if (held := self._sizes_of(sizes)) in known:
                continue
            if self._base is not None and self._tried(self._base, sizes) is None:
                continue
            known.append(held)
            number += 1
            yield DrawnShape(workload=self._workload(number, sizes))

    def _workload(self, number: int, sizes: Mapping[str, Any]) -> Workload:
        ordered = {name: sizes[name] for name in self._values if name in sizes}  # as in the file
        return Workload(name=f"{SECRET}-{number}", sizes=ordered, precision=self._shown.precision, derived=True)

    def _sizes_of(self, sizes: Mapping[str, object]) -> dict[str, object]:
        """Return comparable values of all constants that some workload changes."""
        return {name: _as_lists(value) for name, value in {**self._values, **sizes}.items()}

    def _set(self, sizes: dict[str, Any], places: Sequence[Place], value: int) -> None:
        for name, path in places:
            sizes[name] = with_value(sizes.get(name, self._values[name]), path, value)

    def _tried(self, base: DatalessCall, sizes: Mapping[str, object], *, costs: bool = True) -> DatalessCall | None:
        """Run the reference at these sizes; None if it fails, differs or costs too much."""
        try:
            tried = trace(self._problem, sizes)
        except ProblemError:
            return None
        if costs and (tried.operations > base.operations or tried.nbytes > base.nbytes):
            return None
        if base.kinds is not None and tried.kinds != base.kinds:
            return None
        if tried.state_shapes != base.state_shapes and tried.arguments == base.arguments:
            return None  # a solution can't know the size: its constructor's arguments do not tell it
        return tried

    def _declared(self) -> Iterator[PlacedRange]:
        for name, declared in self._problem.shapes.ranges.items():
            value = self._values[name]
            if not isinstance(value, int) or isinstance(value, bool):
                raise NoShapes(f"{name} is {value!r:.60}, and only whole numbers have ranges: correct workloads.yaml")
            larger = 1 if self._base is None else LARGER  # a call's costs are unknown without its shapes
            low, high = max(declared.low, -(-value // SMALLER)), min(declared.high, larger * value)
            low += (declared.low - low) % declared.step
            if low > high:
                raise NoShapes(
                    f"the range of {name}, {declared.low} to {declared.high}, has no value near the workload "
                    f"{self._shown.name}, where it is {value}: widen the range in workloads.yaml"
                )
            yield PlacedRange(places=((name, ()),), range=SizeRange(low=low, high=high, step=declared.step))

    def _kept(self, base: DatalessCall, cache_dir: Path | None) -> tuple[PlacedRange, ...]:
        """Return the derived ranges, from the cache if it has them."""
        if cache_dir is None:
            return tuple(self._derived(base))
        sizes = json.dumps([to_json(self._problem.shapes), dict(self._shown.sizes)], sort_keys=True)
        key = digest_text("size ranges", str(FORMAT), torch.__version__, self._problem.digest, sizes)
        path = cache_dir / "size_ranges" / f"{key}.json"
        with suppress(OSError, ValueError):
            return from_json(json.loads(path.read_text(encoding="utf-8")), tuple[PlacedRange, ...])
        found = tuple(self._derived(base))
        with suppress(OSError):  # an unwritable folder costs the next run the same seconds
            replace_whole(path, json.dumps(to_json(found)).encode())
        return found

    def _derived(self, base: DatalessCall) -> Iterator[PlacedRange]:
        deadline = time.monotonic() + LIMIT_S
        values = places_of(base.values)
        full = values
        if self._shown.sizes:
            with suppress(ProblemError):
                full = places_of(trace(self._problem, {}).values)
        only = {name for each in self._problem.shapes.listed for name in each.sizes}
        done: set[Place] = set()
        for place, value in values.items():
            if place in done or (only and place[0] not in only) or time.monotonic() > deadline:
                continue
            alike = tuple(other for other, held in values.items() if held == value and other not in done)
            for places in dict.fromkeys(((place,), alike)):
                at_full_size = min(full.get(each, value) for each in places)
                if (found := self._range_of(base, places, value, at_full_size)) is not None:
                    done.update(places)
                    yield PlacedRange(places=places, range=found)
                    break

    def _range_of(self, base: DatalessCall, places: Sequence[Place], value: int, at_full_size: int) -> SizeRange | None:
        """Return the values that these equal integers may have, or None if they are fixed."""
        low, high = max(2, value // SMALLER), LARGER * value
        for step in STEPS:
            probes = [number for number in _probes(low, high, step) if number != value]
            tried = [self._probe(base, places, number) for number in probes]
            if not tried or any(each is None for each in tried):
                continue
            traces = [each for each in tried if each is not None]
            if all(each.shapes == base.shapes for each in traces):
                return None  # not a size
            samples_only = all(_only_samples_differ(base, each) for each in traces)
            if at_full_size < LEAST_FEATURE and not samples_only:
                return None
            if step < math.gcd(value, FEATURE_STEP) and any(_is_feature(base, each) for each in traces):
                continue
            first = -(-low // step) * step
            return SizeRange(low=first, high=high // step * step, step=step)
        return None

    def _probe(self, base: DatalessCall, places: Sequence[Place], number: int) -> DatalessCall | None:
        sizes: dict[str, Any] = dict(self._shown.sizes)
        self._set(sizes, places, number)
        tried = self._tried(base, sizes, costs=False)
        if tried is None:
            return None
        before, after = places_of(base.values), places_of(tried.values)
        return tried if all(before.get(place) != after.get(place) for place in places) else None


def _probes(low: int, high: int, step: int) -> list[int]:
    """Return values in the range that are no multiples of twice the step."""
    first, last = -(-low // step), high // step
    count = last - first
    if count < 1:
        return []
    chosen = {first + count * share // 8 for share in (1, 3, 6)}
    return sorted({(number | 1 if number | 1 <= last else number) * step for number in chosen})[:PROBES]


def _log_uniform(held: SizeRange, secret: random.Random) -> int:
    value = math.exp(secret.uniform(math.log(held.low), math.log(held.high + held.step)))
    return min(held.low + int(value - held.low) // held.step * held.step, held.high)


def _only_samples_differ(one: DatalessCall, other: DatalessCall) -> bool:
    """Return whether only the first dimension of inputs differs."""
    pairs = zip(one.input_shapes, other.input_shapes, strict=False)
    same_rest = all(a[1:] == b[1:] for a, b in pairs) and one.input_shapes != other.input_shapes
    return same_rest and one.state_shapes == other.state_shapes


def _is_feature(one: DatalessCall, other: DatalessCall) -> bool:
    """Return whether parameters or the innermost dimension of an input differ."""
    pairs = zip(one.input_shapes, other.input_shapes, strict=False)
    return one.state_shapes != other.state_shapes or any(len(a) > 1 and a[-1:] != b[-1:] for a, b in pairs)


def _as_lists(value: object) -> object:
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value

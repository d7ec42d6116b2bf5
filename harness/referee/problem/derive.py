"""Derive small sizes of a problem: its constants shrink, its structure stays.

Trusted side. The file's top-level integers, and those in its tuples and lists, are candidates. No list of names says
which of them are sizes, and which relations they have: each change runs the reference on tensors without data, and
stays if the reference runs and keeps its operations (`DatalessCall.kinds`). Sizes that must be equal or divide each
other are found in the same way. See guides/design/derived_sizes.md.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from harness.core.problem import Problem, Workload
from harness.referee.problem.dataless import meta_tensors
from harness.referee.problem.flops import Counting
from harness.referee.problem.loader import ProblemError, describe, load_reference, state_of

SMALL_OPERATIONS = 4e6
"""A call below this many operations (flops, and elements of all results) is small: the declared small sizes of the
problems in `problems/` have at most 2e6. The CPU executes a CUDA kernel of this size in about a second.
"""

SMALL_BYTES = 1 << 19
"""A call below this many bytes of inputs, parameters, buffers and outputs is small."""

NEARLY = 4
"""Factor above these limits up to which the largest sizes are taken, if no sizes are below the limits: an image of a
few pixels has no inside.
"""

MOST_OPERATIONS = 2e11
"""No sizes above this are derived: the truth alone would take a minute on the CPU."""

MOST_BYTES = 2 << 30

CAPS = (1021, 509, 251, 127, 61, 37, 23, 13, 7, 5, 3)
"""Upper bounds of the sizes that are tried, until a call is small."""

FIRST_CAP = CAPS.index(37)

MOST_TRACED = 4_000
"""Operations of a call that are traced. Recurrent layers of long sequences have more."""

TRIES = 24
"""Values that are tried for one size and cap."""

LIMIT_S = 150.0
"""Seconds after which no further sizes are tried."""

Place = tuple[str, tuple[int, ...]]
"""A constant's name, and the position of an integer in it if it is a tuple or list."""


class NoSizes(ProblemError):
    """No small sizes can be derived. The message says why and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatalessCall:
    """One call of the reference without data.

    Attributes:
        operations: Flops, and elements of all results.
        nbytes: Bytes of inputs, parameters, buffers and outputs.
        kinds: Each operation with the dimensions of its results that are larger than 1; None if the call has too many
            operations to trace.
        input_shapes: Shapes of the inputs.
        state_shapes: Shapes of parameters and buffers.
        arguments: The constructor's arguments, as a text; of a tensor the shape.
        values: The file's constants.
    """

    operations: float
    nbytes: int
    kinds: frozenset[tuple[str, tuple[bool, ...]]] | None
    input_shapes: tuple[tuple[int, ...], ...]
    state_shapes: tuple[tuple[int, ...], ...]
    arguments: str
    values: Mapping[str, Any]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of inputs, parameters and buffers."""
        return (*self.input_shapes, *self.state_shapes)

    @property
    def small(self) -> bool:
        return self.operations <= SMALL_OPERATIONS and self.nbytes <= SMALL_BYTES

    @property
    def nearly_small(self) -> bool:
        return self.operations <= NEARLY * SMALL_OPERATIONS and self.nbytes <= NEARLY * SMALL_BYTES

    @property
    def possible(self) -> bool:
        return self.operations <= MOST_OPERATIONS and self.nbytes <= MOST_BYTES


class _TooLong(Exception):
    """The call has more than `MOST_TRACED` operations."""


class _Tracing(Counting):  # type: ignore[no-untyped-call]
    """Collects the operations of a call and counts their flops.

    An operation on tensors of the same form as before is not computed again, since its result has the same form:
    recurrent layers repeat theirs hundreds of times, and each takes torch half a millisecond.
    """

    def __init__(self) -> None:
        self.flops: dict[str, int] = {}
        super().__init__(self.flops)
        self.kinds: set[tuple[str, tuple[bool, ...]]] = set()
        self.elements = 0
        self.count = 0
        self._repeated = 0
        self._inside = False
        self._known: dict[object, tuple[Any, int]] = {}

    @property
    def operations(self) -> float:
        """Flops, and elements of all results."""
        return float(sum(self.flops.values()) + self._repeated + self.elements)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside:  # a part of a composite operation
            return super().__torch_dispatch__(func, types, args, kwargs)
        use = _use_of(func)
        form = (func, _form_of(args), _form_of(tuple((kwargs or {}).items())))
        known = None if use is _Use.OTHER else self._known.get(form)
        if known is not None:
            result = args[0] if use is _Use.WRITES else _of_form(known[0])
            self._repeated += known[1]
        else:
            before = sum(self.flops.values())
            self._inside = True
            try:
                result = super().__torch_dispatch__(func, types, args, kwargs)
            finally:
                self._inside = False
            if all(leaf.is_meta for leaf in _tensors(result)):
                self._known[form] = _form_of(result), sum(self.flops.values()) - before
        self.count += 1
        if self.count > MOST_TRACED:
            raise _TooLong
        for leaf in _tensors(result):
            self.elements += leaf.numel()
            self.kinds.add((func.name(), tuple(extent > 1 for extent in leaf.shape)))
        return result


@dataclass(frozen=True, slots=True)
class _Form:
    """All that the result of an operation depends on, of a tensor without data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def _form_of(value: Any) -> Any:
    """Return equal values for arguments of equal form.

    A tensor with data has a form of its own.
    """
    if isinstance(value, torch.Tensor):
        return _Form(tuple(value.shape), value.stride(), value.dtype) if value.is_meta else object()
    if isinstance(value, list | tuple):
        return tuple(map(_form_of, value))
    return type(value), value


def _of_form(form: Any) -> Any:
    """Return the result that has this form."""
    if isinstance(form, _Form):
        return torch.ops.aten.empty_strided.default(form.shape, form.strides, dtype=form.dtype, device="meta")
    return tuple(map(_of_form, form))


class _Use(Enum):
    """What an operation does with its tensors."""

    READS = "reads"
    WRITES = "writes"
    """Writes values into the first one and returns it."""
    OTHER = "other"
    """Returns a view, or no tensors."""


@functools.cache
def _use_of(func: Any) -> _Use:
    given, returned = func._schema.arguments, func._schema.returns
    aliases = [each.alias_info for each in (*given, *returned) if each.alias_info is not None]
    if not aliases:
        plain = all(str(each.type) in ("Tensor", "List[Tensor]") for each in returned)
        return _Use.READS if plain and returned else _Use.OTHER
    writes = len(aliases) == 2 and len(returned) == 1 and given[0].alias_info is not None and aliases[1].is_write
    return _Use.WRITES if writes and torch.Tag.inplace_view not in func.tags else _Use.OTHER


class _Loaded:
    """A problem's model and inputs, without data.

    Raises `ProblemError` if they can't be made.
    """

    def __init__(self, problem: Problem, sizes: Mapping[str, Any]) -> None:
        try:
            with meta_tensors():
                reference = load_reference(problem, Workload(name="small", sizes=sizes))
                inputs = list(reference.get_inputs())
                model = reference.model(0, None)
                self.arguments = repr(tree_map(_shape_of, reference.init_inputs()))
            self.values = dict(reference.sizes)
            self.inputs = tree_map(_on_meta, inputs)
            self.model = model.to("meta")
            self.state = state_of(model)
        except ProblemError:
            raise
        except (Exception, SystemExit) as error:
            raise ProblemError(f"it can't be loaded without data: {describe(error)}") from error
        self.input_shapes = [tuple(leaf.shape) for leaf in _tensors(self.inputs)]
        self.parameter_shapes = [tuple(value.shape) for value in self.state.values()]


def trace(problem: Problem, sizes: Mapping[str, Any]) -> DatalessCall:
    """Run the reference without data.

    Raises:
        ProblemError: The reference does not run at these sizes.
    """
    call = _Loaded(problem, sizes)
    tracing = _Tracing()
    results: list[Any] = []

    kinds: frozenset[tuple[str, tuple[bool, ...]]] | None = None
    operations = math.inf
    try:
        with meta_tensors(), tracing:
            results.append(call.model(*call.inputs))
        kinds, operations = frozenset(tracing.kinds), tracing.operations
    except _TooLong:
        pass
    except (Exception, SystemExit) as error:
        raise ProblemError(f"the reference can't run without data: {describe(error)}") from error
    tensors = _tensors((call.inputs, call.state, results))
    if any(tensor.numel() == 0 for tensor in tensors):
        raise ProblemError("a tensor is empty")
    return DatalessCall(
        operations=operations,
        nbytes=sum(tensor.nbytes for tensor in tensors),
        kinds=kinds,
        input_shapes=tuple(call.input_shapes),
        state_shapes=tuple(call.parameter_shapes),
        arguments=call.arguments,
        values=call.values,
    )


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _shape_of(leaf: Any) -> Any:
    return tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf


def _on_meta(leaf: Any) -> Any:
    return leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf


def places_of(values: Mapping[str, Any]) -> dict[Place, int]:
    """Return every integer above 1 among constants, the largest first."""
    found = {(name, path): value for name, held in values.items() for path, value in _integers(held, ())}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _integers(held: Any, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    if isinstance(held, list | tuple):
        for index, item in enumerate(held):
            yield from _integers(item, (*path, index))
    elif isinstance(held, int) and not isinstance(held, bool) and held > 1:
        yield path, held


def with_value(held: Any, path: tuple[int, ...], value: int) -> Any:
    """Return a constant with another integer at `path`."""
    if not path:
        return value
    items = list(held)
    items[path[0]] = with_value(items[path[0]], path[1:], value)
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class _Role:
    """How a constant of the file is used.

    Attributes:
        share: Its bound is the cap divided by this.
        least: Its smallest bound.
    """

    share: int
    least: int


_BATCH, _INPUT = _Role(share=8, least=2), _Role(share=1, least=3)
_FEATURE, _PARAMETER = _Role(share=3, least=3), _Role(share=3, least=9)


def _role(problem: Problem, values: Mapping[str, Any], place: Place) -> _Role:
    """Change one integer and see which dimensions of inputs and parameters change."""
    name, path = place
    value = places_of(values)[place]
    for other in (value // 2, value + 1, 2 * value):
        try:
            before, after = (_Loaded(problem, {name: with_value(values[name], path, to)}) for to in (value, other))
        except ProblemError:
            continue
        changed = [_differing(one, two) for one, two in zip(before.input_shapes, after.input_shapes, strict=False)]
        if not any(changed):
            return _PARAMETER
        if before.parameter_shapes != after.parameter_shapes:
            return _FEATURE
        return _BATCH if all(dimensions == {0} for dimensions in changed) else _INPUT
    return _INPUT


def _differing(one: Sequence[int], two: Sequence[int]) -> set[int]:
    """Return the dimensions in which two shapes differ."""
    return {index for index, (a, b) in enumerate(itertools.zip_longest(one, two)) if a != b}


class _Search:
    """Sizes that shrink step by step."""

    def __init__(self, problem: Problem, full: DatalessCall, deadline: float) -> None:
        self._problem = problem
        self._full = full
        self._deadline = deadline
        self._roles = {place: _role(problem, full.values, place) for place in places_of(full.values)}
        self._refused: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """Go back to the sizes of the file."""
        self.now = self._full
        self.sizes: dict[str, Any] = {}

    def shrink(self, cap: int) -> None:
        """Shrink every size above `cap`, again and again, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for place in places_of(self.now.values):
                changed |= self._shrink_one(place, cap)

    def _shrink_one(self, place: Place, cap: int) -> bool:
        """Shrink one integer, alone or with all equal ones; tell whether it changed."""
        values = places_of(self.now.values)
        role = self._roles.get(place)
        if role is None or place not in values:
            return False
        value = values[place]
        bound = max(cap // role.share, role.least)
        if value <= bound:
            return False
        alike = tuple(other for other, held in values.items() if held == value)
        for places in dict.fromkeys(((place,), alike)):
            others = {held for other, held in values.items() if other not in places}
            for candidate in _candidates(value, bound, others):
                if time.monotonic() > self._deadline:
                    return False
                if self._take(places, candidate):
                    return True
        return False

    def _take(self, places: Sequence[Place], value: int) -> bool:
        """Try a value at these places; keep it if the reference keeps its structure."""
        sizes = dict(self.sizes)
        for name, path in places:
            sizes[name] = with_value(sizes.get(name, self.now.values[name]), path, value)
        key = repr(sorted(sizes.items()))
        if key in self._refused:
            return False
        try:
            tried = trace(self._problem, sizes)
        except ProblemError:
            tried = None
        if tried is None or not self._keeps(tried):
            self._refused.add(key)
            return False
        if self._full.kinds is None:
            self._full = tried
        self.now, self.sizes = tried, sizes
        return True

    def _keeps(self, tried: DatalessCall) -> bool:
        now, full = self.now, self._full
        if tried.operations > now.operations or tried.nbytes > now.nbytes:
            return False
        if (tried.shapes, tried.operations) == (now.shapes, now.operations):
            return False  # not a size
        return full.kinds is None or tried.kinds == full.kinds


def _candidates(value: int, bound: int, others: set[int]) -> list[int]:
    """Return values to try instead of `value`, the best first.

    At first odd numbers up to `bound`, then multiples of other constants and of powers of two, then larger numbers. No
    value of another constant: a group of one channel is no group, and equal sizes hide a transposition.
    """
    odd = [number for number in range(bound - (bound + 1) % 2, 1, -2) if number not in others][:4]
    halves = [value >> shift for shift in range(1, value.bit_length())]
    units = sorted({unit for unit in others if 1 < unit < value and value % unit == 0} | {2, 4, 8, 16, 32})
    within = [times * unit for unit in units if (times := (bound // unit - 1) | 1) > 1 and times * unit <= bound]
    within += [times * unit for unit in units if (times := bound // unit) > 1]
    within += [half for half in halves if half <= bound]
    above = [cap for cap in reversed(CAPS) if bound < cap]
    above += [times * unit for unit in units for times in (3, 2, 5, 7) if times * unit > bound]
    above += [half for half in halves if half > bound]
    tried = dict.fromkeys([*odd, *within, bound, *sorted(set(above))])
    return [number for number in tried if 1 < number < value and number not in others][:TRIES]


def candidates(problem: Problem) -> list[dict[str, Any]]:
    """Return small sizes of a problem, the best first, as seen without data.

    Raises:
        ProblemError: The problem does not load or run.
        NoSizes: It has no small sizes.
    """
    deadline = time.monotonic() + LIMIT_S
    full = trace(problem, {})
    if full.small:
        return [{}]
    search = _Search(problem, full, deadline)
    found: list[tuple[DatalessCall, dict[str, Any]]] = []
    for cap in CAPS[FIRST_CAP:]:
        search.shrink(cap)
        found.insert(0, (search.now, search.sizes))
        if search.now.small:
            break
    if len(found) == 1:
        for cap in reversed(CAPS[:FIRST_CAP]):
            search.restart()
            search.shrink(cap)
            if not search.now.small:
                break
            found.insert(0, (search.now, search.sizes))
    if not search.sizes and not found[0][1]:
        raise NoSizes(
            "its sizes are not constants of the file: write them as names at the top level (batch_size = 16) and use "
            "these in get_inputs and get_init_inputs, or declare a workload small in workloads.yaml"
        )
    small = [each for each in found if each[0].small]
    nearly = [each for each in reversed(found) if each[0].nearly_small and each not in small]
    found = small + nearly + [each for each in found if not each[0].nearly_small]
    best, _ = found[0]
    if not best.possible:
        raise NoSizes(
            f"the least sizes found still need {best.operations / 1e9:.0f} billion operations and "
            f"{best.nbytes / 2**20:.0f} MiB: name more of its sizes at the top level of the file"
        )
    return [_needed(problem, sizes) for traced, sizes in found if traced.possible]


def _needed(problem: Problem, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out constants that follow from the others."""
    needed = dict(sizes)
    for name in sizes:
        others = {other: value for other, value in needed.items() if other != name}
        if _values(problem, others) == _values(problem, needed):
            needed = others
    return needed


def _values(problem: Problem, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the integers among the file's constants."""
    with meta_tensors():
        values = load_reference(problem, Workload(name="small", sizes=sizes)).sizes
    return dict(places_of(values))

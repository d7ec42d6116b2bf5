"""The reference at work: its outputs, its float64 truth, and what it does besides returning a value.

Trusted side; runs in the referee only and never sees a submission. Imports `reference`, `rounding`, `trees`,
`unregistered` and torch.
One `Reference` serves one problem at one workload on one device.

Truth is the reference in float64 (DESIGN section 5). Where float64 can't be had the record says what took its
place: the reference's own float32 result, if its forward draws random numbers (a float64 draw is another
draw) or refuses float64 inputs; the CPU, if the device lacks the memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from harness.core.choices import PrecisionClass
from harness.core.status import one_line
from harness.devices.device import Device
from harness.protocol.module_state import Attributes, fails_on_gpu, misplaced, times_written, unmoved
from harness.protocol.tensor_tree import TreeSpec, flatten, unflatten
from harness.referee.problem.loader import ProblemError, ReferenceModule, cuda_missed, state_of
from harness.referee.problem.rounding import Rounding, rounded
from harness.referee.problem.structure import same_structure
from harness.referee.problem.watchdog import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What one trial call of the reference showed."""

    draws_random: bool
    mutates_inputs: bool
    updates_state: tuple[str, ...]
    tree: TreeSpec
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    strides: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of the outputs, by their number, whose elements do not lie in order, or get their sign where they are read; in
    elements."""

    @property
    def contiguous(self) -> tuple[int, ...]:
        """Numbers of the outputs whose elements lie in order."""
        return tuple(number for number in range(len(self.shapes)) if number not in self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call gave: output tensors in slot order, updated state by name, inputs as they were left (if changed)."""

    leaves: tuple[torch.Tensor, ...]
    tree: TreeSpec
    state: Mapping[str, torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The answer to compare with, and where it comes from: `float64 cuda`, `float64 cpu`, `float32 reference`."""

    answer: Answer
    source: str


class Reference:
    """The reference of one problem and workload, constructed under `seed`."""

    def __init__(self, reference: ReferenceModule, device: Device, seed: int) -> None:
        self._reference = reference
        self._device = device
        self._seed = seed
        self.model = reference.model(seed, device.torch_device)
        self.initial_state = {name: value.clone() for name, value in state_of(self.model).items()}
        self._double: torch.nn.Module | None = None
        self._double_device = device.torch_device
        self._double_state: dict[str, torch.Tensor] = {}
        self._float32_because: str | None = None
        self._traits: Traits | None = None
        self._held = self._double_held = Attributes(self.model)
        self._standing = self._double_standing = _State(self.model)
        self._changing: tuple[str, ...] = ()
        """Plain attributes that the trial call changed: caches, counters."""

    @property
    def traits(self) -> Traits:
        if self._traits is None:
            raise RuntimeError("the reference has not been tried yet")
        return self._traits

    @property
    def float32_because(self) -> str | None:
        """Why the truth is the float32 reference; None where it is float64."""
        return self._float32_because

    @property
    def state_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        return sum(value.numel() * value.element_size() for value in self.initial_state.values())

    def forward(self, arguments: Sequence[object]) -> object:
        """The bare call, as it is timed."""
        return self.model(*arguments)

    def try_out(self, arguments: Sequence[object], seed: int) -> Traits:
        """Call the reference once and note what it does. Raises `ProblemError` where it fails or is not finite."""
        leaves, _ = flatten(list(arguments))
        before = [leaf.clone() for leaf in leaves]
        writes = [times_written(leaf) for leaf in leaves]
        held = self._held = Attributes(self.model)
        self._device.reseed(seed)
        random_before = self._random_state()
        try:
            with cuda_missed(), self._reference.at(Phase.FORWARD):
                with torch.no_grad():
                    result = self.forward(arguments)
                self._device.synchronize()
        except Exception as error:
            why = misplaced(self.model, error)
            said = one_line(str(error)) if why is None else f"{one_line(str(error), limit=200)}; {why}"
            raise ProblemError(f"the reference's forward failed: {said}") from error
        outputs, tree = flatten(result)
        if opaque := tree.opaque("output"):
            raise ProblemError(f"the reference returns a {opaque[0][1]} at {opaque[0][0]}, which can't be compared")
        if not outputs and not tree.floats():
            raise ProblemError("the reference returns no tensor")
        for path, leaf in zip(tree.paths("output"), outputs, strict=True):
            if leaf.layout is not torch.strided or leaf.is_quantized:
                kind = "quantised" if leaf.is_quantized else f"not dense ({leaf.layout})"
                raise ProblemError(f"the reference's {path} is {kind}, which can't be compared; return plain tensors")
            if leaf.is_floating_point() and not all_finite(leaf):
                raise ProblemError(f"the reference's {path} is not finite on its own inputs")
        state = state_of(self.model)
        for name, before_call in self.initial_state.items():
            if name not in state or state[name].shape != before_call.shape or state[name].dtype != before_call.dtype:
                raise ProblemError(f"the reference's state {name} is of another form after a call, so none can follow")
        if made := sorted(state.keys() - self.initial_state.keys()):
            raise ProblemError(f"the reference's state {made[0]} is made in a call; make it in the constructor")
        self._traits = Traits(
            draws_random=self._random_state() != random_before,
            # What writes to them without effect on this draw (a clamp) may have one on the next.
            mutates_inputs=writes != [times_written(leaf) for leaf in leaves]
            or any(not torch.equal(a, b) for a, b in zip(before, leaves, strict=True)),
            updates_state=tuple(
                name for name, value in state.items() if not torch.equal(value, self.initial_state[name])
            ),
            tree=tree,
            shapes=tuple(tuple(leaf.shape) for leaf in outputs),
            dtypes=tuple(leaf.dtype for leaf in outputs),
            strides={
                number: leaf.stride()
                for number, leaf in enumerate(outputs)
                if not leaf.is_contiguous() or leaf.is_neg() or leaf.is_conj()
            },
        )
        self._changing = held.changed()
        self._expect_on_gpu(arguments)
        if self._traits.draws_random:
            self._float32_because = "the reference draws random numbers in its forward"
        self.restore_state()
        return self._traits

    def _expect_on_gpu(self, arguments: Sequence[object]) -> None:
        """Raise `ProblemError` where the reference passes on the CPU alone, and nobody could do what it does."""
        if self._device.torch_device.type != "cpu" or (why := unmoved(self.model)) is None:
            return
        if said := fails_on_gpu(self._reference.model(self._seed, None), arguments):
            raise ProblemError(f"the reference's forward fails on a GPU: {one_line(said, limit=200)}; {why}")

    def restore_state(self) -> None:
        """Put parameters and buffers back to their values after construction, if the reference changes any."""
        if self._traits is None or self._traits.updates_state:
            _copy_state(self.initial_state, self.model)

    def answer(self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int) -> Answer:
        """The reference's own answer on `inputs` (slot order of `tree`), which are left as they are."""
        own = [leaf.clone() for leaf in inputs] if self.traits.mutates_inputs else list(inputs)
        with self._reference.at(Phase.FORWARD):
            return self._answer(self.model, self.initial_state, own, tree, seed)

    def truth(self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int) -> Truth:
        """The reference in float64 on `inputs`, or what takes its place."""
        for place in self._places() if self._float32_because is None else ():
            try:
                return Truth(answer=self._truth_on(place, inputs, tree, seed), source=f"float64 {place.type}")
            except torch.OutOfMemoryError:
                self._double = None
                torch.cuda.empty_cache()
            except MemoryError:  # says nothing of the reference
                raise
            except ProblemError as error:  # of its form: the answer in float32 has the last word on that
                self._float32_because = f"the reference's answer in float64 has another form: {one_line(str(error))}"
                self._double = None
                break
            except Exception as error:  # whatever a check of its own raises
                self._float32_because = f"the reference refuses float64: {one_line(str(error), limit=200)}"
                self._double = None
                break
        return Truth(answer=self.answer(inputs, tree, seed), source="float32 reference")

    def nearby(
        self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int, precision: PrecisionClass
    ) -> Iterator[tuple[float, Answer]]:
        """Truths of these inputs, and of the weights, rounded to a class in every way that changes them, with what
        their errors count for: where the last `truth` was had.

        Fewer or none where they can't be had: for want of memory, or because the reference refuses such inputs.
        """
        for way in Rounding:
            try:
                moved = _rounded(list(inputs), precision, way, seed)
                weights = _rounded(list(self.initial_state.values()), precision, way, seed + len(inputs))
                if moved is None and weights is None:
                    continue
                state = self.initial_state if weights is None else dict(zip(self.initial_state, weights, strict=True))
                answer = self._truth_if_any(list(inputs) if moved is None else moved, state, tree, seed)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                return
            if answer is None:
                return
            del moved, weights, state
            yield way.weight, answer

    def _truth_if_any(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor], tree: TreeSpec, seed: int
    ) -> Answer | None:
        """As `truth`, with other weights; but inputs that the reference can't take say nothing of those that it was
        made for, and the CPU is asked only where it gave the truth, too: it may take a thousand times as long.
        """
        if self._float32_because is not None:
            try:
                own = [leaf.clone() for leaf in inputs] if self.traits.mutates_inputs else list(inputs)
                _copy_state(state, self.model)
                with self._reference.at(Phase.TRUTH):
                    return self._answer(self.model, state, own, tree, seed)
            except torch.OutOfMemoryError:
                raise
            except Exception:  # whatever a check of its own raises
                return None
            finally:
                _copy_state(self.initial_state, self.model)
        for place in [place for place in self._places() if place.type == self._double_device.type]:
            try:
                return self._truth_on(place, inputs, tree, seed, state)
            except torch.OutOfMemoryError:
                self._double = None
                torch.cuda.empty_cache()
            except Exception:
                self._double = None
                return None
        return None

    def _places(self) -> list[torch.device]:
        """Where to try float64: on the device, once more there with all cached memory given back, on the CPU."""
        device = self._device.torch_device
        return [device] if device.type == "cpu" else [device, device, torch.device("cpu")]

    def _truth_on(
        self,
        place: torch.device,
        inputs: Sequence[torch.Tensor],
        tree: TreeSpec,
        seed: int,
        state: Mapping[str, torch.Tensor] | None = None,
    ) -> Answer:
        """The reference in float64, with `state` in place of its own where that is given."""
        if self._double is None or self._double_device != place:
            self._double = self._reference.model(self._seed, place)._apply(_doubled)  # type: ignore[no-untyped-call]
            self._double_state = {k: v.clone() for k, v in state_of(self._double).items()}
            self._double_device = place
            self._double_held, self._double_standing = Attributes(self._double), _State(self._double)
        doubled = [_as_double(leaf, place) for leaf in inputs]
        with _default_dtype(torch.float64), self._reference.at(Phase.TRUTH):
            if state is None:
                return self._answer(self._double, self._double_state, doubled, tree, seed)
            _copy_state(state, self._double)
            answer = self._answer(self._double, state, doubled, tree, seed)
        _copy_state(self._double_state, self._double)
        return answer

    def _answer(
        self,
        model: torch.nn.Module,
        initial: Mapping[str, torch.Tensor],
        inputs: list[torch.Tensor],
        tree: TreeSpec,
        seed: int,
    ) -> Answer:
        updates = self.traits.updates_state
        if updates:
            _copy_state(initial, model)
        self._device.reseed(seed)
        standing = self._standing if model is self.model else self._double_standing
        before = standing.written()
        with torch.no_grad():
            result = model(*unflatten(tree, inputs))
        self._check_left_alone(model, initial, before, standing.written())
        leaves, out_tree = flatten(result)
        self._check_form(leaves, out_tree)
        if updates:
            held = state_of(model)
            state = {name: value.clone() for name, value in held.items() if name in updates}
            # An output that is a buffer, or a view of one (a cache), would be put back with it.
            buffers = {value.untyped_storage().data_ptr() for value in held.values()}
            leaves = [leaf.clone() if leaf.untyped_storage().data_ptr() in buffers else leaf for leaf in leaves]
            _copy_state(initial, model)
        else:
            state = {}
        # An output that is an input, changed in place or passed through, is judged by its value at this moment.
        left = tuple(inputs) if self.traits.mutates_inputs else ()
        return Answer(leaves=tuple(leaves), tree=out_tree, state=state, inputs=left)

    def changed_inputs(self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int) -> tuple[int, ...]:
        """Numbers of those of `inputs`, which are left as they are, that a call of the reference changes."""
        own = [leaf.clone() for leaf in inputs]
        with self._reference.at(Phase.FORWARD):
            self._answer(self.model, self.initial_state, own, tree, seed)
        return tuple(n for n, (a, b) in enumerate(zip(inputs, own, strict=True)) if not torch.equal(a, b))

    def _check_left_alone(
        self,
        model: torch.nn.Module,
        initial: Mapping[str, torch.Tensor],
        before: Sequence[_Written],
        after: Sequence[_Written],
    ) -> None:
        """Raise `ProblemError` where a call changed what the trial call left alone: it is not put back before the next
        call, of the reference or a solution, whose calls are in another order.
        """
        only = "on some draws of its inputs only, so that its answers depend on which came before"
        for (name, old, times), (_, value, writes) in zip(before, after, strict=True):
            if (old is value and times == writes) or name in self.traits.updates_state or name not in initial:
                continue
            if value is None or not torch.equal(value, initial[name]):
                raise ProblemError(f"the reference changes its state {name} {only}; change it in every call, or never")
        # A table that is kept in the type of the inputs is another in float64.
        held = self._held.changed() if model is self.model else self._double_held.changed(tensors=False)
        if others := [name for name in held if name not in self._changing]:
            raise ProblemError(f"the reference changes its attribute {others[0]} {only}; keep it as it is")

    def _check_form(self, leaves: Sequence[torch.Tensor], tree: TreeSpec) -> None:
        """Raise `ProblemError` where an answer is built otherwise than that of the trial call: places for a solution's
        outputs are laid out once, and who does the same would be told that its shape is wrong.
        """
        ends = "what a problem returns has to have one form, whatever its inputs hold"
        if difference := same_structure(self.traits.tree, tree, values=False):
            raise ProblemError(f"the reference's answers differ in form from draw to draw: {difference}; {ends}")
        for path, leaf, shape in zip(tree.paths("output"), leaves, self.traits.shapes, strict=True):
            if tuple(leaf.shape) != shape:
                shapes = f"{list(shape)} on one draw of its inputs and {list(leaf.shape)} on another"
                raise ProblemError(f"the reference's {path} has shape {shapes}; {ends}")

    def _random_state(self) -> tuple[object, ...]:
        """Of every generator that `Device.reseed` seeds."""
        states = [torch.get_rng_state()]
        if self._device.torch_device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self._device.torch_device))
        numpys = np.random.get_state(legacy=False)
        return (*(state.numpy().tobytes() for state in states), random.getstate(), repr(numpys))


_Written: TypeAlias = "tuple[str, torch.Tensor | None, int]"


class _State:
    """Where a model's parameters and buffers are held. To look there takes a seventh of what it takes to name them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._places = [
            (f"{prefix}.{key}" if prefix else key, held, key)
            for prefix, module in model.named_modules()
            for held in (module._parameters, module._buffers)
            for key in held
        ]

    def written(self) -> list[_Written]:
        """Each as it stands (None: not there), and how often it was written to: takes no call of the device."""
        found = [(name, held.get(key)) for name, held, key in self._places]
        return [(name, value, 0 if value is None else times_written(value)) for name, value in found]


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether every value is a number. Of the types of eight bits torch says so in a wider one alone."""
    return bool(torch.isfinite(tensor.float() if tensor.element_size() == 1 else tensor).all())


def _rounded(
    tensors: list[torch.Tensor], precision: PrecisionClass, way: Rounding, seed: int
) -> list[torch.Tensor] | None:
    """These tensors rounded, each with a jitter of its own; None where none changes."""
    moved = [rounded(tensor, precision, way, seed + number) for number, tensor in enumerate(tensors)]
    same = all(a is b or torch.equal(a, b) for a, b in zip(moved, tensors, strict=True))
    return None if same else moved


def _as_double(leaf: torch.Tensor, device: torch.device) -> torch.Tensor:
    return leaf.to(device=device, dtype=_double_of(leaf), copy=True)


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    """For all of a model's: its own `to(dtype=torch.float64)` makes complex numbers real."""
    return tensor.to(_double_of(tensor))


def _double_of(tensor: torch.Tensor) -> torch.dtype:
    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype


def _copy_state(values: Mapping[str, torch.Tensor], model: torch.nn.Module) -> None:
    own = state_of(model)
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

"""Run the reference: outputs, float64 truth, and side effects of a call.

Trusted side. One `Reference` serves one problem at one workload on one device. Truth is the reference in float64. If
float64 is impossible, the record names the substitute: the float32 reference, if its forward draws random numbers or
refuses float64; the CPU, if the device lacks memory. See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

import numpy as np
import torch

from harness.core.choices import PrecisionClass
from harness.core.status import one_line
from harness.devices.device import Device
from harness.devices.layout import copied, with_strides_of
from harness.protocol.gradients import FORWARD, readable
from harness.protocol.module_state import Attributes, fails_on_gpu, misplaced, plain_tensors, times_written, unmoved
from harness.protocol.tensor_tree import TreeSpec, flatten, unflatten
from harness.referee.problem.answer import Answer, Traits, Truth
from harness.referee.problem.checksum import checksums
from harness.referee.problem.choices import Choices
from harness.referee.problem.chunks import TEMPORARY_BYTES, slices
from harness.referee.problem.convolution import MatrixConvolutions
from harness.referee.problem.kept_tensors import SavedTensors, StatePlaces, Written
from harness.referee.problem.loader import ProblemError, ReferenceModule, cuda_missed, state_of
from harness.referee.problem.longest_sum import LongestSum
from harness.referee.problem.rounding import Rounding, rounded
from harness.referee.problem.structure import same_structure
from harness.referee.problem.truth_by_rows import by_rows
from harness.referee.problem.watchdog import Phase

PARTS = (4, 16, 64)
"""Numbers of parts to try for a truth by rows."""


class Reference:
    """The reference of one problem and workload, constructed under `seed`."""

    def __init__(self, reference: ReferenceModule, device: Device, seed: int) -> None:
        self._reference = reference
        self._device = device
        self._seed = seed
        self.model = reference.model(seed, device.torch_device)
        self.initial_state = {name: value.clone() for name, value in state_of(self.model).items()}
        self.drawn = self._drawn()
        """Random tensors that the constructor keeps as plain attributes (hidden states), by name."""
        self._double: torch.nn.Module | None = None
        self._double_device = device.torch_device
        self._double_state: dict[str, torch.Tensor] = {}
        self._convolutions = MatrixConvolutions()
        self._parts = 0
        """Parts that a truth is computed in, once whole inputs did not fit."""
        self._float32_because: str | None = None
        self._traits: Traits | None = None
        self._held = self._double_held = Attributes(self.model)
        self._standing = self._double_standing = StatePlaces(self.model)
        self._changing: tuple[str, ...] = ()
        """Plain attributes that the trial call changed: caches, counters."""

    @property
    def traits(self) -> Traits:
        """Results of `try_out`; raises `RuntimeError` before it was called."""
        if self._traits is None:
            raise RuntimeError("the reference has no traits yet; call try_out first")
        return self._traits

    @property
    def float32_because(self) -> str | None:
        """Why the truth is the float32 reference; None if it is float64."""
        return self._float32_because

    def _drawn(self) -> dict[str, torch.Tensor]:
        """Return copies of the plain tensors whose values depend on the seed."""
        plain = plain_tensors(self.model)
        if not plain:
            return {}
        # Tables and masks are the same under every seed: a solution need not keep them.
        others = plain_tensors(self._reference.model(self._seed ^ 1, None))
        return {
            name: value.detach().clone()
            for name, value in plain.items()
            if name in others and not same_bits(value.cpu(), others[name].cpu())
        }

    @property
    def state_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        return sum(value.numel() * value.element_size() for value in self.initial_state.values())

    def forward(self, arguments: Sequence[object]) -> object:
        """Call the model, without anything else, as it is timed."""
        with self._reference.moves or nullcontext():
            return self.model(*arguments)

    @property
    def forward_model(self) -> torch.nn.Module:
        """The model with the problem's own forward, also if a call makes its backward."""
        return self._reference.forward_only(self.model)

    def with_backward(self, forward: Callable[..., object]) -> Callable[..., object]:
        """Return a form of the problem's forward with the backward, if it asks for one."""
        return self._reference.with_backward(forward, self.model)

    def try_out(self, arguments: Sequence[object], seed: int) -> Traits:
        """Call the reference once and record its behaviour.

        Args:
            arguments: Positional arguments of `forward`.
            seed: Seed of the generators for the call.

        Raises:
            ProblemError: The call fails, or its output is not dense or not comparable, or tells nothing: no tensor, no
                change of inputs or state, no finite value.
        """
        leaves, _ = flatten(list(arguments))
        before = [_mark(leaf) for leaf in leaves]  # no copies: large inputs leave no room for them
        after = [leaf.detach() for leaf in leaves]  # other tensor objects: the call may change a tensor's shape
        writes = [times_written(leaf) for leaf in leaves]
        held = self._held = Attributes(self.model)
        saved = SavedTensors()
        self._device.reseed(seed)
        random_before = self._random_state()
        try:
            with cuda_missed(), self._reference.at(Phase.FORWARD):
                with torch.no_grad(), saved.watched(), LongestSum() as counting, Choices() as choices:
                    result = self.forward(arguments)
                self._device.synchronize()
        except Exception as error:
            why = misplaced(self.model, error)
            said = one_line(str(error)) if why is None else f"{one_line(str(error), limit=200)}; {why}"
            raise ProblemError(f"the reference's forward failed: {said}") from error
        outputs, tree = flatten(result)
        if opaque := tree.opaque("output"):
            raise ProblemError(
                f"the reference returns a {opaque[0][1]} at {readable(opaque[0][0])}, which can't be compared; return "
                "tensors"
            )
        for path, leaf in zip(map(readable, tree.paths("output")), outputs, strict=True):
            if leaf.layout is not torch.strided or leaf.is_quantized:
                kind = "quantised" if leaf.is_quantized else f"not dense ({leaf.layout})"
                raise ProblemError(f"the reference's {path} is {kind}, which can't be compared; return plain tensors")
        if outputs and not any(any_finite(leaf) for leaf in outputs):
            raise ProblemError(
                "the reference returns no finite value on its own inputs, which any solution could return as well; "
                "change get_inputs or the formula"
            )
        state = state_of(self.model)
        for name, before_call in self.initial_state.items():
            if name not in state or state[name].shape != before_call.shape or state[name].dtype != before_call.dtype:
                raise ProblemError(
                    f"the reference's state {name} has another shape or dtype after a call; keep its shape and dtype"
                )
        if made := sorted(state.keys() - self.initial_state.keys()):
            raise ProblemError(f"the reference's state {made[0]} is created in a call; create it in the constructor")
        changed = [n for n, leaf in enumerate(after) if before[n] != _mark(leaf)]
        self._traits = Traits(
            draws_random=self._random_state() != random_before,
            # A write without effect on this draw (a clamp) may have one on the next.
            mutates_inputs=writes != [times_written(leaf) for leaf in leaves] or bool(changed),
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
            counters=self._counters(state),
            destinations=tuple(changed) if not outputs else (),
            reshaped={
                number: tuple(leaf.shape)
                for number, (leaf, (shape, _)) in enumerate(zip(leaves, before, strict=True))
                if leaf.shape != shape
            },
            longest_sum=counting.terms,
            choosing=tuple(choices.of(outputs)),
            held_bytes=None
            if self._reference.gradients is None
            else saved.bytes_beyond([*leaves, *state.values()], flatten(result[FORWARD])[0]),  # type: ignore[index]
        )
        if not (outputs or tree.floats() or self._traits.mutates_inputs or self._traits.updates_state):
            raise ProblemError(
                "the reference returns no tensor and changes neither an input nor its state; return at least one tensor"
            )
        self._changing = held.changed()
        self._expect_on_gpu(arguments)
        if self._traits.draws_random:
            self._float32_because = "the reference draws random numbers in its forward"
        self.restore_state()
        return self._traits

    def _counters(self, state: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """Return the batch counters that the call advanced, if nothing reads them."""
        found = {}
        for name, value in state.items():
            module, _, last = name.rpartition(".")
            if last != "num_batches_tracked" or torch.equal(value, self.initial_state[name]):
                continue
            if getattr(self.model.get_submodule(module), "momentum", None) is not None:
                found[name] = int(value)
        return found

    def _expect_on_gpu(self, arguments: Sequence[object]) -> None:
        """Raise `ProblemError` if the reference works on the CPU but would fail on a GPU."""
        if self._device.torch_device.type != "cpu" or (why := unmoved(self.model)) is None:
            return
        if said := fails_on_gpu(self._reference.model(self._seed, None), arguments):
            raise ProblemError(f"the reference's forward fails on a GPU: {one_line(said, limit=200)}; {why}")

    def restore_state(self) -> None:
        """Reset parameters and buffers to their initial values, if calls change any."""
        if self._traits is None or self._traits.updates_state:
            _copy_state(self.initial_state, self.model)

    def answer(self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int) -> Answer:
        """Call the reference itself.

        Args:
            inputs: Tensors in the order of `tree`; not changed.
            tree: Structure of the arguments.
            seed: Seed of the generators for the call.

        Returns:
            The answer in the reference's own types.
        """
        # Choices keep inputs, which a solution's late write must not reach.
        keeps = self.traits.mutates_inputs or self.traits.choosing
        own = [copied(leaf) for leaf in inputs] if keeps else list(inputs)
        with self._reference.at(Phase.FORWARD):
            return self._answer(self.model, self.initial_state, own, tree, seed)

    def truth(self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int) -> Truth:
        """Call the reference in float64, or its substitute.

        Args:
            inputs: Tensors in the order of `tree`; not changed.
            tree: Structure of the arguments.
            seed: Seed of the generators for the call.
        """
        for place, in_parts in self._places() if self._float32_because is None else ():
            try:
                answer = (self._truth_by_rows if in_parts else self._truth_on)(place, inputs, tree, seed)
                if answer is None:
                    continue
                how = ", convolutions as matrix products" if place.type == "cuda" and self._convolutions.used else ""
                how += ", by rows" if in_parts else ""
                return Truth(answer=answer, source=f"float64 {place.type}{how}")
            except torch.OutOfMemoryError:
                self._double = None
                torch.cuda.empty_cache()
            except MemoryError:  # not a property of the reference
                raise
            except ProblemError as error:  # another form than in float32: the float32 answer decides
                self._float32_because = f"in float64 the reference's output has another form: {one_line(str(error))}"
                self._double = None
                break
            except Exception as error:  # for example an assertion of the problem's
                self._float32_because = f"the reference refuses float64: {one_line(str(error), limit=200)}"
                self._double = None
                break
        return Truth(answer=self.answer(inputs, tree, seed), source="float32 reference")

    def nearby(
        self,
        inputs: Sequence[torch.Tensor],
        tree: TreeSpec,
        seed: int,
        precision: PrecisionClass,
        only: int | None = None,
    ) -> Iterator[tuple[float, Answer]]:
        """Yield the truth of rounded inputs and weights, for each way of rounding.

        Yields fewer or none if memory is short or the reference refuses rounded inputs.

        Args:
            inputs: As in `truth`.
            tree: As in `truth`.
            seed: As in `truth`.
            precision: The class to round to.
            only: Round this one alone, counted through the inputs and then the weights.

        Yields:
            Weight of the error, and the answer, computed where the last truth was.
        """
        for way in Rounding:
            try:
                own, among = list(self.initial_state.values()), None if only is None else only - len(inputs)
                moved = _rounded(list(inputs), precision, way, seed, only)
                weights = _rounded(own, precision, way, seed + len(inputs), among)
                if moved is None and weights is None:
                    continue
                state = self.initial_state if weights is None else dict(zip(self.initial_state, weights, strict=True))
                near = list(inputs) if moved is None else list(map(with_strides_of, moved, inputs))
                answer = self._truth_if_any(near, state, tree, seed)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                return
            if answer is None:
                return
            del moved, weights, state, near
            yield way.weight, answer

    def _truth_if_any(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor], tree: TreeSpec, seed: int
    ) -> Answer | None:
        """Return the truth with other weights, or None.

        A failure here does not affect later truths: rounded inputs may lie outside the reference's domain. The CPU is
        used only if the truth itself came from it; it may take a thousand times as long.
        """
        if self._float32_because is not None:
            try:
                own = [copied(leaf) for leaf in inputs] if self.traits.mutates_inputs else list(inputs)
                _copy_state(state, self.model)
                with self._reference.at(Phase.TRUTH):
                    return self._answer(self.model, state, own, tree, seed)
            except torch.OutOfMemoryError:
                raise
            except Exception:  # for example an assertion of the problem's
                return None
            finally:
                _copy_state(self.initial_state, self.model)
        for place in [place for place, in_parts in self._places() if place == self._double_device and not in_parts]:
            try:
                return self._truth_on(place, inputs, tree, seed, state)
            except torch.OutOfMemoryError:
                self._double = None
                torch.cuda.empty_cache()
            except Exception:
                self._double = None
                return None
        return None

    def _places(self) -> list[tuple[torch.device, bool]]:
        """List the places to try float64, and whether by rows.

        Device, device after freeing its cache, device by rows, CPU.
        """
        device, cpu = self._device.torch_device, torch.device("cpu")
        if device.type == "cpu":
            return [(device, False)]
        whole = [] if self._parts else [(device, False), (device, False)]
        return [*whole, (device, True), (cpu, False)]

    def _another(self, place: torch.device) -> torch.nn.Module:
        """Return a second model with the same state.

        It is a copy if possible: constructing draws all weights on the CPU, 5 s for 10^9 of them. What a call keeps in
        plain attributes (tables made at the first call) has to be made anew.
        """
        if not self._changing:
            with suppress(Exception):  # models need not be copyable
                return copy.deepcopy(self.model).to(place)
        return self._reference.model(self._seed, place)

    def _truth_by_rows(
        self, place: torch.device, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int
    ) -> Answer | None:
        """Call the reference in float64 on fewer and fewer rows, until that fits.

        Returns:
            The answer, its larger outputs in the host's memory; None if rows can't be computed alone.
        """
        traits = self.traits
        if traits.updates_state or traits.mutates_inputs or traits.choosing or self._reference.gradients is not None:
            return None
        own = self.answer(inputs, tree, seed)
        room = self._device.free_bytes() // 4

        def allocate(like: torch.Tensor) -> torch.Tensor:
            fits = 8 * like.numel() <= room
            return torch.empty(like.shape, dtype=torch.float64, device=place if fits else "cpu")

        def call(part: list[torch.Tensor]) -> list[torch.Tensor]:
            doubled = [_as_double(leaf, place) for leaf in part]
            with default_dtype(torch.float64), self._convolutions, self._reference.at(Phase.TRUTH), torch.no_grad():
                return flatten(model(*unflatten(tree, doubled)))[0]

        model = self._double_model(place)
        rows = own.leaves[0].shape[0] if own.leaves and own.leaves[0].dim() else 0
        for parts in (number for number in PARTS if number >= self._parts):
            try:
                leaves = by_rows(call, inputs, own.leaves, -(-rows // parts), allocate)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                continue
            except Exception:  # for example a batch size that the reference insists on
                return None
            if leaves is None:
                return None
            self._parts = parts
            return replace(own, leaves=tuple(leaves))
        return None

    def _double_model(self, place: torch.device) -> torch.nn.Module:
        """Return the reference in float64 on a device, made at the first call."""
        if self._double is None or self._double_device != place:
            self._double = self._another(place)._apply(_doubled)  # type: ignore[no-untyped-call]
            self._double_state = {k: v.clone() for k, v in state_of(self._double).items()}
            self._double_device = place
            self._double_held, self._double_standing = Attributes(self._double), StatePlaces(self._double)
        return self._double

    def _truth_on(
        self,
        place: torch.device,
        inputs: Sequence[torch.Tensor],
        tree: TreeSpec,
        seed: int,
        state: Mapping[str, torch.Tensor] | None = None,
    ) -> Answer:
        """Call the reference in float64, with `state` instead of its own if given."""
        model = self._double_model(place)
        doubled = [_as_double(leaf, place) for leaf in inputs]
        convolutions = self._convolutions if place.type == "cuda" else nullcontext()  # the CPU's own are as fast
        with default_dtype(torch.float64), convolutions, self._reference.at(Phase.TRUTH):
            if state is None:
                return self._answer(model, self._double_state, doubled, tree, seed)
            _copy_state(state, model)
            answer = self._answer(model, state, doubled, tree, seed)
        _copy_state(self._double_state, model)
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
        # Other tensor objects: the call may change a tensor's shape.
        left = tuple(leaf.detach() for leaf in inputs) if self.traits.mutates_inputs else ()
        choices = Choices() if self.traits.choosing else None
        with torch.no_grad(), choices or nullcontext():
            result = model(*unflatten(tree, inputs))
        self._check_left_alone(model, initial, before, standing.written())
        leaves, out_tree = flatten(result)
        self._check_form(leaves, out_tree)
        chosen = {} if choices is None else choices.of(leaves)
        if updates:
            held = state_of(model)
            state = {name: value.clone() for name, value in held.items() if name in updates}
            # An output that is a buffer or a view of one would be reset with it.
            buffers = {value.untyped_storage().data_ptr() for value in held.values()}
            leaves = [leaf.clone() if leaf.untyped_storage().data_ptr() in buffers else leaf for leaf in leaves]
            _copy_state(initial, model)
        else:
            state = {}
        # An output that is an input counts with its value at this moment.
        return Answer(leaves=tuple(leaves), tree=out_tree, state=state, inputs=left, choices=chosen)

    def told(self, answer: Answer) -> tuple[torch.Tensor, ...]:
        """Return the outputs, or the inputs that hold the results if there are none."""
        return tuple(answer.inputs[number] for number in self.traits.destinations) or answer.leaves

    def changed_inputs(self, inputs: Sequence[torch.Tensor], tree: TreeSpec, seed: int) -> tuple[int, ...]:
        """Return the numbers of the inputs that a call of the reference changes.

        Args:
            inputs: As in `answer`; not changed.
            tree: As in `answer`.
            seed: As in `answer`.
        """
        own = [copied(leaf) for leaf in inputs]
        with self._reference.at(Phase.FORWARD):
            self._answer(self.model, self.initial_state, own, tree, seed)
        return tuple(n for n, (a, b) in enumerate(zip(inputs, own, strict=True)) if not same_bits(a, b))

    def _check_left_alone(
        self,
        model: torch.nn.Module,
        initial: Mapping[str, torch.Tensor],
        before: Sequence[Written],
        after: Sequence[Written],
    ) -> None:
        """Raise `ProblemError` if a call changed state that the trial call did not.

        Such state is not reset before the next call, and reference and solution are called in different orders.
        """
        only = "on some draws of its inputs only, so its output depends on earlier calls"
        for (name, old, times), (_, value, writes) in zip(before, after, strict=True):
            if (old is value and times == writes) or name in self.traits.updates_state or name not in initial:
                continue
            if value is None or not torch.equal(value, initial[name]):
                raise ProblemError(f"the reference changes its state {name} {only}; change it in every call, or never")
        # A table in the type of the inputs differs in float64, so tensors are not compared there.
        held = self._held.changed() if model is self.model else self._double_held.changed(tensors=False)
        if others := [name for name in held if name not in self._changing]:
            raise ProblemError(f"the reference changes its attribute {others[0]} {only}; do not change it in forward")

    def _check_form(self, leaves: Sequence[torch.Tensor], tree: TreeSpec) -> None:
        """Raise `ProblemError` if the output's form differs from the trial call's.

        Memory for a solution's outputs is laid out once; a correct solution would fail with a wrong shape.
        """
        ends = "return the same structure and shapes for all inputs"
        if difference := same_structure(self.traits.tree, tree, values=False):
            difference = readable(difference)
            raise ProblemError(f"the structure of the reference's output depends on the draw: {difference}; {ends}")
        for path, leaf, shape in zip(self.traits.output_names, leaves, self.traits.shapes, strict=True):
            if tuple(leaf.shape) != shape:
                shapes = f"{list(shape)} on one draw of its inputs and {list(leaf.shape)} on another"
                raise ProblemError(f"the reference's {path} has shape {shapes}; {ends}")

    def _random_state(self) -> tuple[object, ...]:
        """Return the state of every generator that `Device.reseed` seeds."""
        states = [torch.get_rng_state()]
        if self._device.torch_device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self._device.torch_device))
        numpys = np.random.get_state(legacy=False)
        return (*(state.numpy().tobytes() for state in states), random.getstate(), repr(numpys))


def all_finite(tensor: torch.Tensor) -> bool:
    """Return whether every value is finite; 8-bit types are converted first."""
    return bool(torch.isfinite(tensor.float() if tensor.element_size() == 1 else tensor).all())


def any_finite(tensor: torch.Tensor) -> bool:
    """Return whether any value is finite, or there are none."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    pieces = (piece for _, (piece,) in slices(TEMPORARY_BYTES // 16, tensor) if piece is not None)
    return any(bool(torch.isfinite(piece.float() if piece.element_size() == 1 else piece).any()) for piece in pieces)


def _mark(tensor: torch.Tensor) -> tuple[torch.Size, int]:
    """Return a tensor's shape and checksum, which differ if a call changed it."""
    return tensor.shape, int(checksums([tensor], salt="inputs of a call"))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have one shape and the same values; NaN equals NaN."""
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if torch.equal(a, b):
        return True
    return a.is_floating_point() and a.element_size() > 1 and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _rounded(
    tensors: list[torch.Tensor], precision: PrecisionClass, way: Rounding, seed: int, only: int | None
) -> list[torch.Tensor] | None:
    """Round tensors, or `only` one; return None if none changes.

    Each has its own jitter.
    """
    moved = [
        rounded(tensor, precision, way, seed + number) if only is None or number == only else tensor
        for number, tensor in enumerate(tensors)
    ]
    same = all(a is b or torch.equal(a, b) for a, b in zip(moved, tensors, strict=True))
    return None if same else moved


def _as_double(leaf: torch.Tensor, device: torch.device) -> torch.Tensor:
    return copied(leaf, device=device, dtype=_double_of(leaf))


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    """Convert a model's tensor to float64 or complex128.

    `Module.to(dtype=torch.float64)` would make complex tensors real.
    """
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
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make `dtype` torch's default in the block: models that widen inputs use it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

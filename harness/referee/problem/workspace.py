"""Workspace of one problem and workload: reference, shared memory, input sets.

Trusted side. It lays out shared memory, draws inputs into it, fills outputs with a pattern before each call, and
detects changed inputs. It decides no verdict. See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from harness.catalog.sizes import evaluate
from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Problem, Workload
from harness.devices.device import Arena, Device, DeviceError, aligned, tensor_bytes
from harness.devices.layout import kept_strides, memory_of
from harness.protocol.fields import MAX_ITEMS
from harness.protocol.messages import Gradients, Region
from harness.protocol.tensor_tree import flatten, unflatten
from harness.protocol.withheld_words import WORD_BYTES, HeldBack, Span, choose
from harness.referee.problem.answer import Answer, Truth
from harness.referee.problem.checksum import checksums
from harness.referee.problem.flops import FlopCount, Traffic, count_flops, least_traffic
from harness.referee.problem.inputs import draw, draw_into
from harness.referee.problem.keyed_random import KeyedRandom
from harness.referee.problem.loader import ProblemError, load_reference, state_of
from harness.referee.problem.truth import Reference
from harness.referee.problem.watchdog import NOWHERE, Phase, ProgressMarker

MORE_SETS_SHARE = 0.16
"""Share of the free GPU memory for input sets beyond the first. With torch's unused memory in the referee
(`KEPT_CACHE_SHARE`) it is a fifth, so a solution runs if its inputs, outputs and process take four fifths.
"""

HOST_SHARE = 0.2
"""Share of the free host memory for input sets."""
HOST_LIMIT_BYTES = 4 * 2**30
"""Most bytes for input sets on the host device."""

SMALL_SET_BYTES = 64 * 2**20
"""Sets up to this size may be many: their calls are so short that it takes many to measure one."""

HOST_GUARD_BYTES = 4096
"""Unused bytes behind each tensor on the host device, whose checks then find accesses out of bounds. On a GPU
compute-sanitizer finds them if each input has memory of its own.
"""

ROUNDED_ALONE = 8
"""Inputs and weights, the largest, whose rounding is looked at one by one: each costs a truth."""

POISON = 0xFF
"""Fill byte of output buffers: NaN in every float format, -1 in integers."""


class NoRoom(ProblemError):
    """The inputs do not fit the free memory; other processes may use some of it."""


NO_MEMORY = (NoRoom, torch.OutOfMemoryError, MemoryError)
"""Exceptions of a workspace that does not fit in memory."""


class TimeLedger:
    """Seconds of one evaluation by defence; nested blocks count for the outer one."""

    def __init__(self) -> None:
        self._spent_s: dict[str, float] = {}
        self._depth = 0

    @contextmanager
    def spend(self, name: str) -> Iterator[None]:
        """Add the block's seconds to `name`, unless an outer block counts them already."""
        self._depth += 1
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to `name`."""
        self._spent_s[name] = self._spent_s.get(name, 0.0) + seconds

    def close(self) -> dict[str, float]:
        """Return all seconds by name and empty the ledger."""
        held, self._spent_s = self._spent_s, {}
        return held


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """Regions of one call's inputs, outputs and updated state."""

    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]
    state: tuple[Region, ...]


def key_of(problem: Problem, workload: Workload) -> Hashable:
    """Return `Workspace.key` of a problem at a workload.

    It has the sizes, too: callers of the Python API may give several of them one name.
    """
    rules = problem.rules, problem.compare_state, problem.backward, problem.model_seed
    return problem.digest, problem.precision, rules, workload.name, str(sorted(workload.sizes.items()))


class Workspace:
    """A problem prepared on a device.

    Args:
        problem: The problem.
        workload: Its sizes.
        device: The device that solutions run on.
        sets_wanted: Number of input sets; fewer, but at least one, if memory is short.
        secret: Source of seeds.
        small_sets_wanted: Number of sets if one takes at most `SMALL_SET_BYTES`.
        progress_marker: Records when the problem's code runs.
        model_seed: Seed under which models are constructed, unless the problem names one; None draws one.

    Raises:
        ProblemError: The problem is at fault.
        NoRoom: Not one input set fits the memory.
    """

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        device: Device,
        *,
        sets_wanted: int,
        secret: random.Random,
        small_sets_wanted: int = 0,
        progress_marker: ProgressMarker = NOWHERE,
        model_seed: int | None = None,
    ) -> None:
        self.problem = problem
        self.workload = workload
        self.device = device
        self.secret = self._draws = secret
        """Source of choices that no contestant may foresee; `_draws` is that of seeds."""
        self._reference = load_reference(problem, workload, progress_marker)
        if device.kind is DeviceKind.HOST:
            self._refuse_what_has_no_room(progress_marker)
        given = model_seed if problem.model_seed is None else problem.model_seed
        self.model_seed = secret.getrandbits(48) if given is None else given
        self.oracle = Reference(self._reference, device, self.model_seed)
        first = draw(self._reference, seed=self._new_seed(), variant="own", device=device.torch_device)
        self.drawn_on = first.drawn_on
        self._layout_notes = first.labels
        leaves, self.tree = flatten(list(first.values))
        if opaque := self.tree.opaque("inputs"):
            raise ProblemError(
                f"get_inputs returns a {opaque[0][1]} at {opaque[0][0]}, which shared memory can't hold; return "
                "tensors and numbers"
            )
        self._input_metas = [(tuple(leaf.shape), leaf.dtype, kept_strides(leaf)) for leaf in leaves]
        arguments = unflatten(self.tree, leaves)
        self.traits = self.oracle.try_out(arguments, self._new_seed())
        counts = {
            "get_inputs": len(leaves),
            "forward": len(self.traits.shapes),
            "state": len(self.oracle.initial_state) + len(self.oracle.drawn),
        }
        if (most := max(counts, key=lambda what: counts[what])) and counts[most] > MAX_ITEMS:
            raise ProblemError(f"{most} has {counts[most]} tensors; at most {MAX_ITEMS} are supported")
        self.init_leaves, self.init_tree = flatten(list(self._reference.init_inputs()))
        del first, leaves, arguments
        self.sets: tuple[InputSet, ...] = ()
        self._views: dict[Region, torch.Tensor] = {}
        self.init_slots: tuple[Region, ...] = ()
        self.state_slots: Mapping[str, Region] = {}
        self.arena = self._lay_out(sets_wanted, small_sets_wanted)
        self._salt = secret.getrandbits(128)
        self._seeds: list[tuple[int, int, str]] = [(0, 0, "own")] * len(self.sets)
        self._drawn: dict[int, torch.Tensor] = {}
        self.ledger = TimeLedger()
        self.copy_aside_s = math.inf
        """Shortest time, in seconds, to copy the outputs of back-to-back calls (`timing/output_copies.py`)."""
        self.copying_s = math.inf
        """Seconds allowed for that behind queued calls, measured with trusted code."""
        self.reading_s: dict[tuple[int, ...], float] = {}
        """Shortest time, in seconds, to checksum the outputs of these sets (`contestants/client.py`)."""
        self._held_back: dict[int, tuple[HeldBack, int]] = {}
        self._words = self.arena.tensor(0, (self.arena.nbytes // WORD_BYTES,), torch.int32)
        # Compute a truth before any contestant exists: torch keeps that memory in this process, so no contestant can
        # take it later.
        self.draw(0)
        self.truth_source = self.truth(0).source

    @property
    def gradients(self) -> Gradients | None:
        """What a call differentiates; None if the problem asks for no backward."""
        return self._reference.gradients

    @property
    def input_notes(self) -> tuple[str, ...]:
        """Unusual facts about the inputs: layouts, devices, changes by calls."""
        paths = self.tree.paths("inputs")
        notes = list(self._layout_notes)
        if self._reference.moves is not None and self._reference.moves.moved:
            notes.append("the problem names the device cuda; its tensors are on the CPU here")
        notes += [f"{paths[n]}: a call changes its shape to {list(s)}" for n, s in self.traits.reshaped.items()]
        notes += [f"{paths[n]}: a call writes its results there" for n in self.traits.destinations]
        return tuple(notes)

    def _new_seed(self) -> int:
        return self._draws.getrandbits(62)

    @contextmanager
    def seeded(self, key: str) -> Iterator[None]:
        """Let inputs and choices within the block follow from a key.

        Args:
            key: As of `KeyedRandom`; secret until the verdict.
        """
        before = self.secret, self._draws
        # Two streams: how many input sets fit the memory decides in which order sets are drawn and words held back.
        self.secret, self._draws = KeyedRandom(key, "choices"), KeyedRandom(key, "inputs")
        try:
            yield
        finally:
            self.secret, self._draws = before

    def _refuse_what_has_no_room(self, progress_marker: ProgressMarker) -> None:
        """Raise `NoRoom` for inputs that can't fit, before drawing any.

        Otherwise drawing would go on until the kernel kills other programs for lack of memory. If the problem can't
        tell its shapes without data, drawing is tried.
        """
        try:
            # In a module of its own: tensors that its functions keep between calls must have data.
            with torch.device("meta"):
                leaves, _ = flatten(list(load_reference(self.problem, self.workload, progress_marker).get_inputs()))
            set_bytes = sum(tensor_bytes(tuple(leaf.shape), leaf.dtype, kept_strides(leaf)) for leaf in leaves)
        except (Exception, SystemExit):
            return
        budget, _ = self._budget_bytes()
        if set_bytes > budget:
            raise self._no_room(set_bytes, budget)

    def _budget_bytes(self, first: int = 0, more: int = 0) -> tuple[int, int]:
        """Return how many bytes all input sets, and those beyond the first, may take.

        These are shares of the memory that is free now. The rest is for the solution, and before and after its calls
        for truth: the reference's output, and inputs, state and output in float64. torch's unused memory stays in this
        process if `first` and `more` bytes are free anyway.
        """
        if self.device.torch_device.type == "cuda":
            free = self.device.free_bytes(first + math.ceil(more / MORE_SETS_SHARE))
            return free, int(free * MORE_SETS_SHARE)
        budget = min(int(self.device.free_bytes() * HOST_SHARE), HOST_LIMIT_BYTES)
        return budget, budget

    def _no_room(self, set_bytes: int, budget: int) -> NoRoom:
        what = f"inputs and outputs of {set_bytes / 2**20:.0f} MiB do not fit the {budget / 2**20:.0f} MiB"
        free = f"{self.device.free_bytes() / 2**20:.0f} MiB are free"
        advice = "a smaller --workload" + ("" if self.device.kind is DeviceKind.CUDA else ", or a GPU")
        return NoRoom(
            f"{what} that this device has for them ({free}; truth and the solution need several times as much): "
            f"take {advice}"
        )

    def _lay_out(self, wanted: int, small_wanted: int) -> Arena:
        state = self.oracle.initial_state
        offset = 0
        guard_bytes = HOST_GUARD_BYTES if self.device.kind is DeviceKind.HOST else 0

        def room(shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...] | None = None) -> int:
            return aligned(tensor_bytes(shape, dtype, strides)) + guard_bytes

        def place(shape: tuple[int, ...], dtype: torch.dtype, strides: tuple[int, ...] | None = None) -> Region:
            nonlocal offset
            slot = Region(offset=offset, shape=shape, dtype=str(dtype).removeprefix("torch."), strides=strides)
            offset += room(shape, dtype, strides)
            return slot

        self.init_slots = tuple(place(tuple(leaf.shape), leaf.dtype) for leaf in self.init_leaves)
        given = {**state, **self.oracle.drawn}
        self.state_slots = {name: place(tuple(value.shape), value.dtype) for name, value in given.items()}
        fixed_bytes = offset
        output_metas = list(zip(self.traits.shapes, self.traits.dtypes, strict=True))
        state_metas = [(tuple(state[name].shape), state[name].dtype) for name in self.traits.updates_state]
        set_bytes = sum(room(*meta) for meta in self._input_metas)
        set_bytes += sum(room(*meta) for meta in (*output_metas, *state_metas))
        if set_bytes <= SMALL_SET_BYTES:
            wanted = max(wanted, small_wanted)
        self.set_bytes = set_bytes
        budget, more = self._budget_bytes(fixed_bytes + set_bytes, (wanted - 1) * set_bytes)
        each = max(set_bytes, 1)
        count = min(wanted, (budget - fixed_bytes) // each, 1 + more // each)
        if count < 1:
            raise self._no_room(set_bytes, budget)
        self.sets = tuple(
            InputSet(
                inputs=tuple(place(*meta) for meta in self._input_metas),
                outputs=tuple(place(*meta) for meta in output_metas),
                state=tuple(place(*meta) for meta in state_metas),
            )
            for _ in range(count)
        )
        try:
            return self.device.allocate(max(offset, 1))
        except DeviceError as error:
            raise NoRoom(f"no room for the inputs: {error}") from error

    def tensor(self, slot: Region) -> torch.Tensor:
        """Return a new tensor over a region."""
        held = self._views.get(slot)
        if held is None:
            held = self._views[slot] = self.arena.tensor(
                slot.offset, slot.shape, getattr(torch, slot.dtype), slot.strides
            )
        return held.detach()  # a new tensor object: the problem's code may change its shape in place

    def tensors(self, slots: Sequence[Region]) -> list[torch.Tensor]:
        """Return new tensors over several regions."""
        return [self.tensor(slot) for slot in slots]

    @property
    def compared_state(self) -> tuple[str, ...]:
        """Names of the updated state that is compared.

        Batch counters are not, and no state is if the run's rules compare outputs only.
        """
        traits = self.traits
        if not self.problem.compare_state and (traits.tree.slots or traits.tree.floats() or traits.mutates_inputs):
            return ()
        return tuple(name for name in traits.updates_state if name not in traits.counters)

    def judged(self, index: int) -> dict[str, torch.Tensor]:
        """Return what is judged of a call: outputs, updated state, changeable inputs."""
        own, traits = self.sets[index], self.traits
        state = dict(zip(traits.updates_state, own.state, strict=True))
        names = [*traits.output_names, *(f"state {name}" for name in self.compared_state)]
        slots = [*own.outputs, *(state[name] for name in self.compared_state)]
        if traits.mutates_inputs:
            names += self.tree.paths("inputs")
            slots += own.inputs
        return dict(zip(names, self.tensors(slots), strict=True))

    def expected(self, answer: Answer) -> list[torch.Tensor]:
        """Return an answer's tensors in the order of `judged`."""
        return [*answer.leaves, *(answer.state[name] for name in self.compared_state), *answer.inputs]

    def wrong_counters(self, index: int) -> tuple[str, ...]:
        """Return the names of batch counters that differ from the reference's."""
        counters = self.traits.counters
        held = zip(self.traits.updates_state, self.sets[index].state, strict=True)
        return tuple(name for name, slot in held if name in counters and int(self.tensor(slot)) != counters[name])

    @property
    def call_bytes(self) -> int:
        """Bytes of one call's inputs and outputs."""
        return sum(tensor.nbytes for tensor in self.tensors((*self.sets[0].inputs, *self.sets[0].outputs)))

    @property
    def key(self) -> Hashable:
        """Equal for workspaces of the same problem and sizes."""
        return key_of(self.problem, self.workload)

    def publish(self) -> None:
        """Write constructor arguments and state, and clear what a contestant left."""
        for slot, leaf in zip(self.init_slots, self.init_leaves, strict=True):
            self.tensor(slot).copy_(leaf)
        given = {**self.oracle.initial_state, **self.oracle.drawn}
        for name, slot in self.state_slots.items():
            self.tensor(slot).copy_(given[name])
        slots = [slot for held in self.sets for slot in (*held.inputs, *held.outputs, *held.state)]
        self._region(slots).zero_()

    def draw(
        self,
        index: int,
        variant: str = "own",
        *,
        part: int = 0,
        into: Sequence[torch.Tensor] | None = None,
        call_seed: int | None = None,
    ) -> None:
        """Fill a set with new inputs.

        Args:
            index: Number of the set.
            variant: Name of the input variant.
            part: Draws with different `part` differ in kind: `structured` assigns roles by the seed's last bit.
            into: Tensors to fill instead, which are copied to the set later.
            call_seed: Seed of the generators for calls on this set, if a contestant knows it already; else a new one.
        """
        seed = self._new_seed() & ~1 | part & 1
        fresh = self._new_seed() % 2**31
        self._seeds[index] = (seed, fresh if call_seed is None else call_seed, variant)
        self.redraw(index, into)

    def redraw(self, index: int, into: Sequence[torch.Tensor] | None = None) -> None:
        """Draw the set's inputs again, and fill its outputs with the pattern.

        Args:
            index: Number of the set.
            into: Tensors to fill instead of the set's inputs.
        """
        seed, _, variant = self._seeds[index]
        held = self.sets[index]
        targets = self.tensors(held.inputs) if into is None else list(into)
        draw_into(
            unflatten(self.tree, targets), self._reference, seed=seed, variant=variant, device=self.device.torch_device
        )
        self.poison(index)
        self._note(index, targets)

    def drawn_elsewhere(self, variant: str) -> tuple[list[torch.Tensor], int]:
        """Return new inputs in memory of their own, and a new seed for calls on them."""
        values = draw(self._reference, seed=self._new_seed(), variant=variant, device=self.device.torch_device).values
        return flatten(list(values))[0], self._new_seed() % 2**31

    def redraw_all(self, indices: Iterable[int]) -> None:
        """Redraw these sets and wait for the device."""
        for index in indices:
            self.redraw(index)
        self.device.synchronize()

    def amend(self, index: int) -> None:
        """Accept the set's inputs as they are now; fill its outputs with the pattern."""
        self.poison(index)
        self._note(index, self.tensors(self.sets[index].inputs))

    def _note(self, index: int, drawn: Sequence[torch.Tensor]) -> None:
        """Store the checksums of the set's inputs, without waiting for the device."""
        with self.ledger.spend("digests"):
            self._drawn[index] = checksums([memory_of(tensor) for tensor in drawn], salt=self._salt)

    def poison(self, index: int) -> None:
        """Fill the set's outputs and state with the pattern."""
        held = self.sets[index]
        self._region((*held.outputs, *held.state)).fill_(POISON)

    def _region(self, slots: Sequence[Region]) -> torch.Tensor:
        """Return the bytes from the first to the last of these consecutive regions."""
        if not slots:
            return self._words[:0]
        begin, last = slots[0].offset, slots[-1]
        end = last.offset + tensor_bytes(last.shape, getattr(torch, last.dtype), last.strides)
        return self.tensor(Region(offset=begin, shape=(end - begin,), dtype="uint8"))

    def hold_back(self, indices: Sequence[int]) -> None:
        """Choose secret words of these sets' inputs, which only the calls deliver."""
        self.device.synchronize()  # drawing the inputs is not a cost of this defence
        with self.ledger.spend("held_back_words"):
            held = HeldBack(self._words, [choose(self._spans(index), self.secret) for index in indices])
            self._held_back |= {index: (held, number) for number, index in enumerate(indices)}

    def _spans(self, index: int) -> list[Span]:
        return [
            Span(
                first=slot.offset // WORD_BYTES,
                words=tensor_bytes(slot.shape, getattr(torch, slot.dtype), slot.strides) // WORD_BYTES,
                dtype=getattr(torch, slot.dtype),
            )
            for slot in self.sets[index].inputs
        ]

    def mask(self, indices: Sequence[int]) -> None:
        """Replace the held-back words of these sets by decoys until a call writes them."""
        wanted: dict[HeldBack, list[int]] = {}
        for index in indices:
            held, number = self._held_back[index]
            wanted.setdefault(held, []).append(number)
        for held, numbers in wanted.items():
            held.mask(numbers)

    def complete(self, index: int) -> None:
        """Write the held-back words of a set, in the current stream."""
        held, number = self._held_back[index]
        held.restore(number)

    def late_words(self, index: int) -> tuple[tuple[int, int], ...]:
        """Return place and value of each held-back word of a set; empty if there are none."""
        if index not in self._held_back:
            return ()
        held, number = self._held_back[index]
        return held.words(number)

    def output_digests(self, indices: Sequence[int]) -> list[int]:
        """Return a checksum of each output and state tensor of these sets.

        Synchronises with the device once.
        """
        slots = [slot for index in indices for slot in (*self.sets[index].outputs, *self.sets[index].state)]
        with self.ledger.spend("digests"):
            return [int(value) for value in checksums(self.tensors(slots), salt=self._salt).tolist()]

    def variant(self, index: int) -> str:
        """Return the variant of a set's inputs."""
        return self._seeds[index][2]

    def call_seed(self, index: int) -> int:
        """Return the seed of the generators for calls on a set."""
        return self._seeds[index][1]

    def compare_inputs(self, indices: Sequence[int]) -> torch.Tensor:
        """Return whether each input differs from the one drawn, without waiting.

        Returns:
            Bool tensor on the device: all inputs of the first set, then of the next.
        """
        with self.ledger.spend("digests"):
            tensors = [tensor for index in indices for tensor in self.tensors(self.sets[index].inputs)]
            now = checksums([memory_of(tensor) for tensor in tensors], salt=self._salt)
            before = torch.cat([self._drawn[index] for index in indices]) if indices else now
            return now != before

    def changed_inputs(self, indices: Sequence[int], compared: torch.Tensor | None = None) -> list[tuple[int, ...]]:
        """Return the numbers of changed inputs of each set. Synchronises once.

        Args:
            indices: Numbers of the sets.
            compared: Result of `compare_inputs` for them, if it was called before.

        Returns:
            For each set, the numbers of its changed inputs.
        """
        count = len(self._input_metas)
        with self.ledger.spend("digests"):
            differs = (self.compare_inputs(indices) if compared is None else compared).tolist()
        return [tuple(i for i in range(count) if differs[number * count + i]) for number in range(len(indices))]

    def arguments(self, index: int) -> list[object]:
        """Return the reference's positional arguments over a set, in place."""
        values: list[object] = unflatten(self.tree, self.tensors(self.sets[index].inputs))
        return values

    def pristine_inputs(self, index: int, changed: Sequence[int] | None = None) -> list[torch.Tensor]:
        """Return a set's inputs as drawn, even if a call changed them.

        Args:
            index: Number of the set.
            changed: Result of `changed_inputs`, if known: checksums of large inputs take time.

        Returns:
            The set's own tensors, or newly drawn ones if an input changed.
        """
        if not (self.changed_inputs([index])[0] if changed is None else changed):
            return self.tensors(self.sets[index].inputs)
        seed, _, variant = self._seeds[index]
        fresh = draw(self._reference, seed=seed, variant=variant, device=self.device.torch_device)
        return flatten(list(fresh.values))[0]

    def truth(self, index: int, changed: Sequence[int] | None = None) -> Truth:
        """Return the truth of a set; `changed` as in `pristine_inputs`."""
        return self.oracle.truth(self.pristine_inputs(index, changed), self.tree, self.call_seed(index))

    def inputs_changed_by_reference(self, index: int, changed: Sequence[int]) -> tuple[int, ...]:
        """Return which inputs of a set a call of the reference changes.

        `changed` as in `pristine_inputs`.
        """
        try:
            return self.oracle.changed_inputs(self.pristine_inputs(index, changed), self.tree, self.call_seed(index))
        except torch.OutOfMemoryError:  # unknown: assume none
            torch.cuda.empty_cache()
            return ()

    def nearby(
        self, index: int, changed: Sequence[int] | None, precision: PrecisionClass, only: int | None = None
    ) -> Iterator[tuple[float, Answer]]:
        """Yield the truths of a set rounded to a class; `only` as in the reference's."""
        inputs = self.pristine_inputs(index, changed)
        yield from self.oracle.nearby(inputs, self.tree, self.call_seed(index), precision, only)

    def nearby_each(self, index: int, changed: Sequence[int] | None, precision: PrecisionClass) -> Iterator[Answer]:
        """Yield the truth of a set for each input and weight that rounding changes.

        Each is rounded alone, to the nearest. Only the `ROUNDED_ALONE` largest are.
        """
        tensors = [*self.pristine_inputs(index, changed), *self.oracle.initial_state.values()]
        largest = sorted(range(len(tensors)), key=lambda number: -tensors[number].numel())
        for only in largest[:ROUNDED_ALONE]:
            for _, answer in itertools.islice(self.nearby(index, changed, precision, only), 1):
                yield answer

    def answer(self, index: int, changed: Sequence[int] | None = None) -> Answer:
        """Return the reference's own answer for a set; `changed` as in `pristine_inputs`."""
        return self.oracle.answer(self.pristine_inputs(index, changed), self.tree, self.call_seed(index))

    @functools.cached_property
    def costs(self) -> tuple[FlopCount, Traffic]:
        """Flops of one call and least bytes; the problem's declarations replace counts."""
        arguments = self.arguments(0)
        results: list[object] = []
        with self._reference.at(Phase.FORWARD):
            flops = count_flops(lambda: results.append(self.oracle.forward(arguments)))
        self.oracle.restore_state()
        traffic = least_traffic(arguments, list(state_of(self.oracle.model).values()), results[0])
        if (declared := self.problem.costs.flops) is not None:
            flops = replace(flops, total=int(evaluate(declared, self._reference.sizes)))
        if (declared := self.problem.costs.bytes) is not None:
            traffic = replace(traffic, declared_bytes=int(evaluate(declared, self._reference.sizes)))
        return flops, traffic

    def close(self) -> None:
        """Free the shared memory."""
        self._views.clear()
        self._held_back.clear()
        self.arena.close()

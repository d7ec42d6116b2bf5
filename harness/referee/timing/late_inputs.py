"""Draw inputs for back-to-back calls; complete them at the last moment.

Trusted side. A kernel left on the device could poll for inputs and begin before the clock does. So most of each input
is delivered early, and the rest of all sets follows in two short writes just before the gate opens. Work that began
earlier has used decoys of two kinds:

* A few secret words, as in other bursts (`withheld_words.py`); in floating-point tensors they are NaN until then.
* One sector of 32 bytes in sixteen, which holds another sector of the same input until then. Nothing marks these.

See guides/design/withheld_inputs.md.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from harness.devices.device import aligned, tensor_bytes
from harness.protocol.messages import Region
from harness.protocol.withheld_words import WORD_BYTES, HeldBack, Span, choose, writers
from harness.referee.problem.workspace import Workspace

SECTOR_WORDS = 8
"""Words in a sector, the 32 bytes that a GPU moves at once."""

SECTORS_FOR_ONE = 16
SECTORS_FOR_ONE_OF_MANY = 64
MANY_BYTES = 2**30
"""One in `SECTORS_FOR_ONE` sectors is withheld, drawn with repetition; at least one of an input that has two or more.
More sectors affect more of the result, also of products, which are linear in the difference. If all inputs together
exceed `MANY_BYTES`, fewer are withheld (`SECTORS_FOR_ONE_OF_MANY`): such calls are too long to be finished early, and
the memory for copies of the sectors matters.
"""


class _Sectors:
    """Withheld sectors of all inputs, in one list.

    `begins` holds for each input its first sector in the private copy, its first sector in the arena, and its number of
    sectors.
    """

    def __init__(self, begins: Sequence[tuple[int, int, int]], device: torch.device) -> None:
        self._begins = [held for held in begins if held[2] > 1]
        many = sum(number for _, _, number in self._begins) * SECTOR_WORDS * WORD_BYTES > MANY_BYTES
        one_in = SECTORS_FOR_ONE_OF_MANY if many else SECTORS_FOR_ONE
        self._counts = [max(1, number // one_in) for _, _, number in self._begins]
        self._generator = torch.Generator(device)
        total = sum(self._counts)
        # All memory is allocated here: later a contestant may have left none.
        self._places, self._own, self._others = torch.empty(3, total, dtype=torch.int64, device=device).unbind()
        self._true, self._decoys = torch.empty(2, total, SECTOR_WORDS, dtype=torch.int32, device=device).unbind()

    def choose(self, secret: random.Random) -> None:
        """Draw which sectors are withheld, and which others replace them for now."""
        self._generator.manual_seed(secret.getrandbits(62))
        first = 0
        for (private, arena, number), count in zip(self._begins, self._counts, strict=True):
            part = slice(first, first := first + count)
            torch.randint(number, (count,), generator=self._generator, out=self._own[part])
            torch.randint(1, number, (count,), generator=self._generator, out=self._others[part])
            self._others[part].add_(self._own[part]).remainder_(number)  # any but itself
            torch.add(self._own[part], arena, out=self._places[part])
            self._own[part] += private
            self._others[part] += private

    def mask(self, private: torch.Tensor) -> None:
        """Overwrite the withheld sectors in the `private` copy with other sectors.

        `private` is a copy of the inputs (int32, by sectors).
        """
        torch.index_select(private, 0, self._own, out=self._true)
        torch.index_select(private, 0, self._others, out=self._decoys)
        private.index_copy_(0, self._own, self._decoys)

    def restore(self, arena: torch.Tensor) -> None:
        """Write the true sectors to their places in the `arena` (int32, by sectors)."""
        arena.index_copy_(0, self._places, self._true)


class LateInputs:
    """Inputs of some sets, in memory that no contestant sees.

    Raises:
        torch.OutOfMemoryError: If there is no memory for the copies.
    """

    def __init__(self, workspace: Workspace, indices: Sequence[int]) -> None:
        self._workspace = workspace
        self._indices = tuple(indices)
        # A set's inputs are contiguous in the arena; this copy has the same layout.
        self._begins = [_begin(workspace.sets[index].inputs) for index in self._indices]
        sizes = [_end(workspace.sets[i].inputs) - begin for i, begin in zip(self._indices, self._begins, strict=True)]
        self._starts = [sum(sizes[:number]) for number in range(len(sizes))]
        # Zero, because gaps between elements are delivered, too, and freed memory might hold the judge's values.
        self._bytes = torch.zeros(sum(sizes), dtype=torch.uint8, device=workspace.device.torch_device)
        self._parts = list(torch.split(self._bytes, sizes))
        self._places = [
            workspace.arena.tensor(begin, (size,), torch.uint8) for begin, size in zip(self._begins, sizes, strict=True)
        ]
        self._late: list[tuple[int, int]] = []
        spans = [self._span(number, slot) for number, slot in self._slots()]
        self._sectors = _Sectors(
            [
                (span.first // SECTOR_WORDS, slot.offset // SECTOR_WORDS // WORD_BYTES, span.words // SECTOR_WORDS)
                for span, (_, slot) in zip(spans, self._slots(), strict=True)
            ],
            workspace.device.torch_device,
        )

    def _slots(self) -> list[tuple[int, Region]]:
        """Return all inputs, each with the number of its set here."""
        return [
            (number, slot) for number, index in enumerate(self._indices) for slot in self._workspace.sets[index].inputs
        ]

    def draw(self) -> None:
        """Draw all inputs anew and withhold some of each.

        The calls were requested before, so the seeds of their random generators stay the same.
        """
        for number, index in enumerate(self._indices):
            targets = [self._view(number, slot) for slot in self._workspace.sets[index].inputs]
            self._workspace.draw(index, into=targets, call_seed=self._workspace.call_seed(index))
        secret = random.SystemRandom()
        self._hold_back(secret)
        self._sectors.choose(secret)
        self._sectors.mask(self._bytes.view(torch.int32).view(-1, SECTOR_WORDS))
        self._workspace.device.synchronize()

    def deliver(self) -> None:
        """Copy the inputs to their places, except for the withheld parts."""
        if self._bytes.numel():
            torch._foreach_copy_(self._places, self._parts)
        self._workspace.device.synchronize()

    def complete(self) -> None:
        """Write the withheld parts."""
        words = self._workspace.arena.tensor(0, (self._workspace.arena.nbytes // WORD_BYTES,), torch.int32)
        (write,) = writers(words, [self._late])
        sectors = self._workspace.arena.nbytes // WORD_BYTES // SECTOR_WORDS
        by_sectors = self._workspace.arena.tensor(0, (sectors, SECTOR_WORDS), torch.int32)
        self._workspace.device.synchronize()
        self._sectors.restore(by_sectors)
        if write is not None:
            write()  # after the sectors: a withheld sector may contain a word that is still masked
        self._workspace.device.synchronize()

    def _view(self, number: int, slot: Region) -> torch.Tensor:
        dtype = getattr(torch, slot.dtype)
        first = self._starts[number] + slot.offset - self._begins[number]
        memory = self._bytes[first : first + tensor_bytes(slot.shape, dtype, slot.strides)].view(dtype)
        return memory.view(slot.shape) if slot.strides is None else memory.as_strided(slot.shape, slot.strides)

    def _hold_back(self, secret: random.Random) -> None:
        choices = [
            choose([self._span(number, slot) for slot in self._workspace.sets[index].inputs], secret)
            for number, index in enumerate(self._indices)
        ]
        held = HeldBack(self._bytes.view(torch.int32), choices)
        held.mask(range(len(choices)))
        self._late = [
            (place + (begin - start) // WORD_BYTES, value)
            for number, (begin, start) in enumerate(zip(self._begins, self._starts, strict=True))
            for place, value in held.words(number)
        ]

    def _span(self, number: int, slot: Region) -> Span:
        dtype = getattr(torch, slot.dtype)
        return Span(
            first=(self._starts[number] + slot.offset - self._begins[number]) // WORD_BYTES,
            words=tensor_bytes(slot.shape, dtype, slot.strides) // WORD_BYTES,
            dtype=dtype,
        )


def _begin(slots: Sequence[Region]) -> int:
    return min((slot.offset for slot in slots), default=0)


def _end(slots: Sequence[Region]) -> int:
    """Return the end of the last input, rounded up to the alignment.

    The padding belongs to no other tensor.
    """
    ends = [slot.offset + tensor_bytes(slot.shape, getattr(torch, slot.dtype), slot.strides) for slot in slots]
    return aligned(max(ends, default=0))

"""New inputs for calls back to back: drawn aside, delivered at once, and complete only at the last moment.

Trusted side; used by `nonstop`. A kernel that was left on the device may look out for inputs as they arrive and begin
before the clock does. So a few secret words of each input are held back once more (`holdback`): all the rest is in
place before, and the words of all sets come in one short write. Work that began earlier has used decoys.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from harness.bench import Bench
from harness.devices import aligned, tensor_bytes
from harness.holdback import WORD_BYTES, HeldBack, Span, choose, writers
from harness.messages import Slot


class Arrival:
    """Inputs of these sets, in memory that no contestant sees. Raises `torch.OutOfMemoryError` where there is none."""

    def __init__(self, bench: Bench, indices: Sequence[int]) -> None:
        self._bench = bench
        self._indices = tuple(indices)
        # A set's inputs lie behind one another in the arena, and here in the same way.
        self._begins = [_begin(bench.sets[index].inputs) for index in self._indices]
        sizes = [_end(bench.sets[i].inputs) - begin for i, begin in zip(self._indices, self._begins, strict=True)]
        self._starts = [sum(sizes[:number]) for number in range(len(sizes))]
        self._bytes = torch.empty(sum(sizes), dtype=torch.uint8, device=bench.device.torch_device)
        self._parts = list(torch.split(self._bytes, sizes))
        self._places = [
            bench.arena.tensor(begin, (size,), torch.uint8) for begin, size in zip(self._begins, sizes, strict=True)
        ]
        self._late: list[tuple[int, int]] = []

    def draw(self) -> None:
        """Draw all inputs anew, and hold secret words of them back. The calls on them were asked for before: what their
        generators are set to stays."""
        for number, index in enumerate(self._indices):
            targets = [self._view(number, slot) for slot in self._bench.sets[index].inputs]
            self._bench.draw(index, into=targets, call_seed=self._bench.call_seed(index))
        self._hold_back()
        self._bench.device.synchronize()

    def deliver(self) -> None:
        """Bring the inputs to their places, but for the words held back."""
        if self._bytes.numel():
            torch._foreach_copy_(self._places, self._parts)
        self._bench.device.synchronize()

    def complete(self) -> None:
        """Write the words held back."""
        words = self._bench.arena.tensor(0, (self._bench.arena.nbytes // WORD_BYTES,), torch.int32)
        (write,) = writers(words, [self._late])
        self._bench.device.synchronize()
        if write is not None:
            write()
        self._bench.device.synchronize()

    def _view(self, number: int, slot: Slot) -> torch.Tensor:
        dtype = getattr(torch, slot.dtype)
        first = self._starts[number] + slot.offset - self._begins[number]
        return self._bytes[first : first + tensor_bytes(slot.shape, dtype)].view(dtype).view(slot.shape)

    def _hold_back(self) -> None:
        secret = random.SystemRandom()
        choices = [
            choose([self._span(number, slot) for slot in self._bench.sets[index].inputs], secret)
            for number, index in enumerate(self._indices)
        ]
        held = HeldBack(self._bytes.view(torch.int32), choices)
        held.mask(range(len(choices)))
        self._late = [
            (place + (begin - start) // WORD_BYTES, value)
            for number, (begin, start) in enumerate(zip(self._begins, self._starts, strict=True))
            for place, value in held.words(number)
        ]

    def _span(self, number: int, slot: Slot) -> Span:
        dtype = getattr(torch, slot.dtype)
        return Span(
            first=(self._starts[number] + slot.offset - self._begins[number]) // WORD_BYTES,
            words=tensor_bytes(slot.shape, dtype) // WORD_BYTES,
            dtype=dtype,
        )


def _begin(slots: Sequence[Slot]) -> int:
    return min((slot.offset for slot in slots), default=0)


def _end(slots: Sequence[Slot]) -> int:
    """Behind the last of them, on a word's boundary at least: places are aligned, and what pads them is nobody's."""
    ends = [slot.offset + tensor_bytes(slot.shape, getattr(torch, slot.dtype)) for slot in slots]
    return aligned(max(ends, default=0))

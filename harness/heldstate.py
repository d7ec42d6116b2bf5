"""Parameters and buffers of a solution's model, beside those of the reference: taken over, put back, and copied out.

The untrusted side: runs in one process with a submission, and is imported by `contestant` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


class HeldState:
    """The state of `model` by name; none where it is no module. Names are those of `torch.nn.Module.state_dict`."""

    def __init__(self, model: Any = None) -> None:
        self._model = model
        self._initial: dict[str, torch.Tensor] = {}

    def take_over(self, wanted: Mapping[str, torch.Tensor]) -> tuple[list[str], list[str]]:
        """Copy these values where they differ from its own, and remember how it stands then. The names that were
        copied, and those that have no place of that shape and dtype."""
        own = self._own()
        copied, unmatched = [], []
        with torch.no_grad():
            for name, value in wanted.items():
                held = own.get(name)
                if held is None or held.shape != value.shape or held.dtype != value.dtype:
                    unmatched.append(name)
                elif not torch.equal(held, value):
                    held.copy_(value)
                    copied.append(name)
            self._initial = {name: own[name].clone() for name in wanted if name in own}
        return copied, unmatched

    def put_back(self) -> None:
        """As it stood after `take_over`."""
        own = self._own()
        with torch.no_grad():
            for name, value in self._initial.items():
                own[name].copy_(value)

    def copy_to(self, names: Sequence[str], slots: Sequence[torch.Tensor]) -> list[str]:
        """Copy what is held under these names to the slots; the names of which there is nothing like it."""
        own = self._own() if names else {}
        missing = []
        for name, slot in zip(names, slots, strict=True):
            held = own.get(name)
            if held is None or held.shape != slot.shape or held.dtype != slot.dtype:
                missing.append(name)
            else:
                slot.copy_(held)
        return missing

    def _own(self) -> dict[str, torch.Tensor]:
        return dict(self._model.state_dict()) if isinstance(self._model, torch.nn.Module) else {}

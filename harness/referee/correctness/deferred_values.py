"""Collect small results on a device and copy them to the host together.

Nothing waits between two copies, so the device works on one call's answer while the next one's work is enqueued.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class DeferredValues:
    """Results of one round of work, all on one device."""

    def __init__(self) -> None:
        self._rows: list[torch.Tensor] = []
        self._values: list[Sequence[float]] = []

    def add(self, row: torch.Tensor) -> int:
        """Add a result whose values are still being computed; return its number.

        The values are floats, or integers up to 2**53.
        """
        self._rows.append(row.detach().view(-1))
        return len(self._values) + len(self._rows) - 1

    def read(self) -> None:
        """Wait for the results that were added since the last call."""
        if not self._rows:
            return
        values = torch.cat([row.double() for row in self._rows]).tolist()
        begin = 0
        for row in self._rows:
            self._values.append(values[begin : begin + row.numel()])
            begin += row.numel()
        self._rows.clear()

    def __getitem__(self, number: int) -> Sequence[float]:
        """Return the values of result `number`, which was read."""
        return self._values[number]

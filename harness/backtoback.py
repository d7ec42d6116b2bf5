"""Calls made one after another without a pause: launched one by one, or as one CUDA graph.

Imports `devices`. Both sides of the trust boundary use it: the contestant for a solution, the referee for the
reference. Everything that can be done beforehand is done in the constructor, so that the referee's clock around `run`
sees the calls and next to nothing else.

Launched one by one, a short kernel takes as long as its launch; its outputs are copied out as each call returns, so
that a solution that returns the same memory every time can be verified too. As a graph the device makes the calls by
itself, behind a cache flush that hides the graph's own launch; outputs are copied out behind the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.devices import CallTime, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call: what has to be put in place before, the call, and what takes its result down."""

    before: Callable[[], None]
    forward: Callable[[], object]
    after: Callable[[object], None]

    def make(self) -> None:
        self.before()
        self.after(self.forward())


class BackToBack:
    """Steps made ready. With `graph` they are captured now; what prevents that is raised."""

    def __init__(self, device: Device, steps: Sequence[Step], *, graph: bool) -> None:
        self._device = device
        self._steps = steps
        self._results: list[object] = []
        self._replay: Callable[[], None] | None = None
        if graph:
            with torch.no_grad():
                self._replay = device.capture(self._forwards)

    def _forwards(self) -> None:
        self._results = [step.forward() for step in self._steps]

    def run(self) -> CallTime:
        """Make all calls; the times are of all of them together, of a graph without copying the outputs."""
        with torch.no_grad():
            if self._replay is None:
                return self._device.time_back_to_back([step.make for step in self._steps])
            return self._device.time_cold(self._replay, self._take_all)

    def _take_all(self, _: object) -> None:
        for step, result in zip(self._steps, self._results, strict=True):
            step.after(result)

"""Calls made one after another without a pause: launched one by one, queued behind a gate, or as one CUDA graph.

Imports `devices` and `messages`. Both sides of the trust boundary use it: the contestant for a solution, the referee
for the reference. Everything that can be done beforehand is done in the constructor, so that the referee's clock sees
the calls and next to nothing else.

Launched one by one, a short kernel takes as long as its launch. Queued, all launches were made before the gate opens,
and the device makes the calls by itself. In both, the outputs are copied out as each call ends, so that a solution that
returns the same memory every time can be verified too. As a graph, which has been replayed once before, the calls
follow a cache flush that hides the graph's own launch; it is replayed several times, and outputs are copied out behind
the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.devices.device import CallTime, Device
from harness.devices.stream_gate import StreamGate
from harness.protocol.messages import LaunchMode

REPLAYS = 5
"""Timed replays of a graph, of which the middle one counts: one alone may meet a hiccup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedStep:
    """One call: what has to be put in place before, the call, and what takes its result down."""

    before: Callable[[], None]
    forward: Callable[[], object]
    after: Callable[[object], None]

    def make(self) -> None:
        self.before()
        self.after(self.forward())


class BackToBack:
    """Steps made ready in one `launch_mode`. What prevents a graph from being captured is raised.

    `gate` and the number of its use are wanted for queued ones, which are submitted here.
    """

    def __init__(
        self,
        device: Device,
        steps: Sequence[QueuedStep],
        launch_mode: LaunchMode,
        gate: StreamGate | None = None,
        number: int = 0,
    ) -> None:
        self._device = device
        self._steps = steps
        self._results: list[object] = []
        self._replay: Callable[[], None] | None = None
        self._finish: Callable[[], CallTime] | None = None
        with torch.no_grad():
            if launch_mode is LaunchMode.GRAPH:
                self._replay = device.capture(self._forwards)
                # A graph's first launch brings it to the device, too. What it computes here is computed again.
                self._replay()
                device.synchronize()
            elif launch_mode is LaunchMode.QUEUED:
                assert gate is not None
                self._finish = device.queue([step.make for step in self._steps], gate, number)

    def _forwards(self) -> None:
        self._results = [step.forward() for step in self._steps]

    def run(self) -> CallTime:
        """Make all calls, or wait for those that are queued; the times are of all of them together, of a graph without
        copying the outputs.
        """
        if self._finish is not None:
            return self._finish()
        with torch.no_grad():
            if self._replay is None:
                return self._device.time_back_to_back([step.make for step in self._steps])
            took = [self._device.time_cold(self._replay, lambda _: None) for _ in range(REPLAYS - 1)]
            took.append(self._device.time_cold(self._replay, self._take_all))
            return sorted(took, key=lambda time: time.device_s)[REPLAYS // 2]

    def _take_all(self, _: object) -> None:
        for step, result in zip(self._steps, self._results, strict=True):
            step.after(result)

"""Back-to-back calls: launched singly, queued behind a gate, or as a CUDA graph.

Both sides: the contestant runs a solution, the referee runs the reference. The constructor does all preparation, so the
referee's clock sees little besides the calls.

* Launched one by one: a short kernel takes as long as its launch.
* Queued: all launches precede the opening of the gate, so the device makes the calls by itself.
* As a graph: after one warm-up replay, a cache flush hides the launch of each timed replay.

In the first two modes the outputs are copied after each call. So a solution that returns the same memory each time can
be verified. A graph's outputs are copied after the last replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from harness.devices.device import CallTime, Device
from harness.devices.stream_gate import StreamGate
from harness.protocol.messages import LaunchMode

REPLAYS = 5
"""Timed replays of a graph; the median counts, because a single replay may be disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedStep:
    """One call: `before` prepares it, `forward` makes it, `after` stores its result."""

    before: Callable[[], None]
    forward: Callable[[], object]
    after: Callable[[object], None]

    def make(self) -> None:
        self.before()
        self.after(self.forward())


class BackToBack:
    """A series of calls, prepared in one launch mode.

    The constructor raises the error that prevents a graph capture. The queued mode needs `gate` and the `number` of its
    use, and submits the calls in the constructor.
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
                # The first launch also uploads the graph to the device. Later replays compute the results again.
                self._replay()
                device.synchronize()
            elif launch_mode is LaunchMode.QUEUED:
                assert gate is not None
                self._finish = device.queue([step.make for step in self._steps], gate, number)

    def _forwards(self) -> None:
        self._results = [step.forward() for step in self._steps]

    def run(self) -> CallTime:
        """Make all calls, or wait for the queued ones; return their total time.

        The time of a graph excludes the copies of the outputs.
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

"""Copy a burst's outputs as soon as it ends, and limit how long that may take.

Trusted side. The copies reveal later writes to the outputs. If a contestant's stream reports the end of queued calls
too early, the work that is left delays the copies; the referee's clock sees that, compared with copies after trusted
calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress

import torch

from harness.core import runqueue_delay
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.late_inputs import LateInputs

COPY_NOISE_S = 200e-6
COPY_NOISE = 0.5
"""Most by which copying the outputs may exceed its shortest time: this share of it, plus `COPY_NOISE_S`."""

LEAST_COPY_NOISE_S = 150e-6
COPY_NOISE_FACTOR = 2.0
"""Most by which copying may exceed its time after queued calls of trusted code: this multiple of how far those times
differed, plus `LEAST_COPY_NOISE_S`. The device switches between the two processes' work in between, which takes a while
for all code alike.
"""


def copying_s(workspace: Workspace) -> float:
    """Return the longest time that copying the outputs may take, in seconds.

    A longer time shows that the device was still busy.
    """
    return min(workspace.copying_s, COPY_NOISE_S + (1.0 + COPY_NOISE) * workspace.copy_aside_s)


def learn_copying(workspace: Workspace, took_s: Sequence[float]) -> None:
    """Note how long the copies took after queued calls of trusted code, in seconds.

    Disturbance can only lengthen these times, so the least limit ever learnt for the problem counts.
    """
    middle_s = statistics.median(took_s)
    apart_s = max(abs(each_s - middle_s) for each_s in took_s)
    workspace.copying_s = min(workspace.copying_s, middle_s + COPY_NOISE_FACTOR * apart_s + LEAST_COPY_NOISE_S)


class OutputCopies:
    """Copies of the outputs and the state of some sets.

    Raises:
        torch.OutOfMemoryError: If there is no memory for the copies.
    """

    def __init__(self, workspace: Workspace, indices: Sequence[int]) -> None:
        self._workspace = workspace
        self._tensors = _answers(workspace, indices)
        self._copies = [torch.empty_like(tensor) for tensor in self._tensors]
        workspace.device.synchronize()
        self._copy()  # the first copy loads kernels
        # The shortest time of all solutions counts, the trusted one's first: a busy device cannot lengthen it.
        workspace.copy_aside_s = min(workspace.copy_aside_s, self._copy())

    def take(self) -> tuple[float, float]:
        """Make the copies; return their time and this thread's wait for a processor.

        Both are in seconds. The wait is a part of the time.
        """
        before_s = runqueue_delay.waited_s()
        took_s = self._copy()
        return took_s, min(took_s, runqueue_delay.waited_s() - before_s)

    def _copy(self) -> float:
        begin = time.perf_counter()
        if self._tensors:
            torch._foreach_copy_(self._copies, self._tensors)
        self._workspace.device.synchronize()
        return time.perf_counter() - begin

    def same(self) -> bool:
        return all(torch.equal(copy, tensor) for copy, tensor in zip(self._copies, self._tensors, strict=True))


def reserve(workspace: Workspace, indices: Sequence[int]) -> None:
    """Reserve the memory for one such burst's copies, before a contestant can take it.

    torch keeps freed memory in this process. If there is not enough memory, the burst itself reports it.
    """
    if not indices:
        return
    with suppress(torch.OutOfMemoryError):
        held = [LateInputs(workspace, indices), [torch.empty_like(tensor) for tensor in _answers(workspace, indices)]]
        del held


def _answers(workspace: Workspace, indices: Sequence[int]) -> list[torch.Tensor]:
    """Return outputs and state of these sets, as bytes."""
    return [
        tensor.view(-1).view(torch.uint8)
        for index in indices
        for tensor in workspace.tensors((*workspace.sets[index].outputs, *workspace.sets[index].state))
        if tensor.numel()
    ]

"""Copies of a burst's outputs, made aside as soon as it is over, and how long they may take.

Trusted side; used by `asker`, `nonstop`, `learning` and `session`. The copies show what is written later by the
difference. And what the device still had to do when a contestant's stream told the end of queued calls holds them up:
that is seen by the referee's own clock, against what copying takes behind calls of trusted code.
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
"""Seconds, and share of its shortest time, by which copying outputs aside may at most be longer behind a burst."""

LEAST_COPY_NOISE_S = 150e-6
COPY_NOISE_FACTOR = 2.0
"""By how much it may be longer than behind queued calls of trusted code: seconds, and multiples of how far those lay
apart. The device changes from one process's work to another's in between, which takes a while for all code alike."""


def copying_s(workspace: Workspace) -> float:
    """How long copying outputs aside may take, in seconds, before it shows that the device was still at work."""
    return min(workspace.copying_s, COPY_NOISE_S + (1.0 + COPY_NOISE) * workspace.copy_aside_s)


def learn_copying(workspace: Workspace, took_s: Sequence[float]) -> None:
    """Note how long the copies took behind bursts of queued calls of trusted code, in seconds. Who disturbs these can
    only make it more: the least that was ever learnt of the problem counts.
    """
    middle_s = statistics.median(took_s)
    apart_s = max(abs(each_s - middle_s) for each_s in took_s)
    workspace.copying_s = min(workspace.copying_s, middle_s + COPY_NOISE_FACTOR * apart_s + LEAST_COPY_NOISE_S)


class OutputCopies:
    """Copies of the outputs and the state of some sets. Raises `torch.OutOfMemoryError`."""

    def __init__(self, workspace: Workspace, indices: Sequence[int]) -> None:
        self._workspace = workspace
        self._tensors = _answers(workspace, indices)
        self._copies = [torch.empty_like(tensor) for tensor in self._tensors]
        workspace.device.synchronize()
        self._copy()  # loads what it needs
        # The shortest of all solutions', the trusted one's first: nobody can make it longer by keeping the device busy.
        workspace.copy_aside_s = min(workspace.copy_aside_s, self._copy())

    def take(self) -> tuple[float, float]:
        """Make the copies; the seconds that this took, and how many of them this thread waited for a processor."""
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
    """Have the memory that copies for such a burst take in this process's hands, before a contestant's code may take
    all there is: torch keeps what is let go of here. Where there is none, a burst finds out.
    """
    if not indices:
        return
    with suppress(torch.OutOfMemoryError):
        held = [LateInputs(workspace, indices), [torch.empty_like(tensor) for tensor in _answers(workspace, indices)]]
        del held


def _answers(workspace: Workspace, indices: Sequence[int]) -> list[torch.Tensor]:
    """Outputs and state of these sets, as bytes."""
    return [
        tensor.view(-1).view(torch.uint8)
        for index in indices
        for tensor in workspace.tensors((*workspace.sets[index].outputs, *workspace.sets[index].state))
        if tensor.numel()
    ]

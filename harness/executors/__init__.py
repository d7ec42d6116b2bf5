"""Executors: where judging happens, behind one Protocol.

Trusted side. An executor owns referees and their devices; whoever has a built solution hands it a `Task` and gets
an `Outcome`. The faults of an executor are the harness's, never a submission's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # so that a worker can start its zygote before it imports torch
    from harness.tasks import Outcome, Task


class ExecutorError(Exception):
    """No referee can be had: the device is missing or gone. The message says what to do."""


class Executor(Protocol):
    """Judges tasks, as many at once as it has devices. Safe to call from several threads."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        ...

    def wait_ready(self) -> None:
        """Return once every referee stands. Raises `ExecutorError` where a device is missing."""
        ...

    def judge(self, task: Task) -> Outcome:
        """The verdict. A referee that dies is replaced and the task tried once more; then `harness_error`."""
        ...

    def close(self) -> None:
        """End every referee and contestant."""
        ...

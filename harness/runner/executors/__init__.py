"""The Executor protocol: builds solutions and evaluates them on slots.

Trusted side. An executor owns builders, referees and their devices. The runner gives it sources to build, then a task
for one of its *slots*, and gets the verdict. An error of an executor is never a solution's fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.core.problem import Problem
from harness.core.status import Failure
from harness.core.task import Outcome, Task


class ExecutorError(Exception):
    """No referee is available: the device is missing or gone.

    The message says what to do.
    """


class SlotLost(ExecutorError):
    """One slot is out of service and gives no verdict on its current solution.

    Other slots may go on.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A device that evaluates one solution at a time.

    Attributes:
        name: Unique within the executor.
        title: Shown to users.
        environment: Copied into every record of this slot.
    """

    name: str
    title: str
    environment: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Sources to build.

    Attributes:
        source: Text of the solution's file.
        filename: Name of the solution's file.
        arguments: Signature of the problem: shapes and dtypes of the arguments of `ModelNew` and `forward`. None if it
            is not known.
        log_path: File to which the builders' output is appended.
    """

    source: str
    filename: str
    arguments: Mapping[str, Any] | None
    log_path: Path


class Built(Protocol):
    """Result of a build.

    It is `harness.toolchain.BuildOutcome` on this machine, and a reference to a remote one on a cluster.
    """

    @property
    def failure(self) -> Failure | None:
        """Why the build failed; None if it succeeded."""
        ...

    @property
    def wall_s(self) -> float:
        """Duration of the build in seconds."""
        ...

    @property
    def has_cuda_sources(self) -> bool:
        """Whether the solution brings CUDA sources."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the record's `build` field as a JSON object."""
        ...

    def release(self) -> None:
        """Release the modules, once no evaluation needs them."""
        ...


class Executor(Protocol):
    """Builds solutions and evaluates them.

    All methods may be called from several threads. The methods that take a slot are called from one thread per slot.
    """

    @property
    def slots(self) -> Sequence[Slot]:
        """The slots of this executor; the list stays the same even if a slot is lost."""
        ...

    @property
    def builders(self) -> int:
        """How many builds should run at once."""
        ...

    def expect(self, order: BuildRequest) -> None:
        """Start work in the background that the build of `order` will need.

        This is a hint: the build is probably not cached. `build` follows with the same request.

        Args:
            order: The request; its `arguments` may still be None.
        """
        ...

    def build(self, order: BuildRequest) -> Built:
        """Build every extension that can be compiled before the evaluation.

        Args:
            order: The sources and the log file.

        Returns:
            The build's result. A failed build is returned, not raised.

        Raises:
            ExecutorError: No node of a cluster can build.
            SandboxUnavailable: `--sandbox strict` is impossible on this machine.
            CacheError: The build cache can't be used.
            MachineError: A tool that builds need is missing.
        """
        ...

    def at_fault(self, problem: Problem) -> Outcome | None:
        """Return the outcome of all solutions to a faulty problem.

        A problem is faulty if its own code hung or ended the referees that ran it. Its solutions need not be built.

        Args:
            problem: The problem, identified by its digest.

        Returns:
            The outcome that each of its solutions gets; None if no fault is known.
        """
        ...

    def await_slot(self, slot: Slot) -> None:
        """Wait until the slot can take its first task, or is known to be lost.

        If the slot is lost, `judge` raises the reason. Builds go on meanwhile, so the caller can choose among more
        solutions.

        Args:
            slot: One of `slots`.
        """
        ...

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        """Start to load the problems of these tasks, and return at once.

        This is a hint for a slot that has nothing to evaluate. A task that comes to `judge` meanwhile waits for the
        current step only. Errors are not reported here: `judge` meets them again.

        Args:
            slot: An idle slot.
            tasks: Tasks without a solution, the likeliest first.
        """
        ...

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        """Evaluate one solution on a slot.

        If a referee dies, a new one replaces it and the task is tried once more. After that the outcome is
        `harness_error`. If the problem is faulty, the outcome is `harness_error` at once. See
        guides/design/scheduling.md.

        Args:
            slot: The slot to use.
            task: The task without modules; they come from `built`.
            built: The solution's build.
            ahead: Solutions that this slot will probably evaluate next: a hint to start their audits early.

        Returns:
            The outcome; None if the verdict waits for an audit. Then `settle` returns it, and the slot may evaluate
            other solutions before.

        Raises:
            SlotLost: The slot's device is missing, gone or faulty.
        """
        ...

    def due(self, slot: Slot, task: Task) -> bool:
        """Return whether `settle` would return the open verdict without a long wait.

        Never raises. An error counts as due, so that `settle` reports it.

        Args:
            slot: The slot that evaluated the task.
            task: A task for which `judge` returned None.

        Returns:
            True if the verdict is ready or can't come any more.
        """
        ...

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """Wait for the verdict that `judge` left open.

        Args:
            slot: The slot that evaluated the task.
            task: A task for which `judge` returned None.
            built: The solution's build, in case it has to be evaluated again.

        Returns:
            The outcome.

        Raises:
            SlotLost: The slot's device is missing, gone or faulty.
        """
        ...

    def close(self) -> None:
        """End every builder, referee and contestant."""
        ...

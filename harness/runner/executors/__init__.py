"""Executors: where building and judging happen, behind one Protocol.

Trusted side. An executor owns builders, referees and their devices. Whoever runs a pipeline hands it sources and gets
what came of their build, then a task for one of its *slots* (a device that judges one solution at a time) and gets
the verdict. The faults of an executor are the harness's, never a submission's.
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
    """No referee can be had: the device is missing or gone. The message says what to do."""


class SlotLost(ExecutorError):
    """One slot is out of service, and gives no verdict on what it was judging; others may go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A device that judges one solution at a time.

    `name` is unique in the executor, `title` is for people, `environment` is what every record of it carries.
    """

    name: str
    title: str
    environment: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Sources to build. `arguments` is the problem's signature; the builders' output is appended to `log_path`."""

    source: str
    filename: str
    arguments: Mapping[str, Any] | None
    log_path: Path


class Built(Protocol):
    """What came of a build: `harness.toolchain.BuildOutcome` on this machine, a reference to it elsewhere."""

    @property
    def failure(self) -> Failure | None: ...

    @property
    def wall_s(self) -> float: ...

    @property
    def has_cuda_sources(self) -> bool: ...

    def to_json(self) -> dict[str, Any]:
        """For the record's `build` field."""
        ...

    def release(self) -> None:
        """Called once nobody needs the modules any more."""
        ...


class Executor(Protocol):
    """Builds and judges. Safe to call from several threads, `judge` from one for each slot."""

    @property
    def slots(self) -> Sequence[Slot]:
        """What judges; fixed from the start, even where one is lost later."""
        ...

    @property
    def builders(self) -> int:
        """How many builds should be under way at once."""
        ...

    def expect(self, order: BuildRequest) -> None:
        """Begin, in the background, what this order's build will need, since it is likely to be new.

        Its `arguments` may be missing as yet; `build` comes with the same otherwise. No more than a hint.
        """
        ...

    def build(self, order: BuildRequest) -> Built:
        """Everything that can be built ahead. Raises what `harness.toolchain.build_solution` raises."""
        ...

    def at_fault(self, problem: Problem) -> Outcome | None:
        """What every solution to this problem gets, where its own code was found to hang or to end the referees that
        ran it: there is no use in building any. None where nothing is known against it.
        """
        ...

    def await_slot(self, slot: Slot) -> None:
        """Return once the slot can begin with a task, or never will: then `judge` says why.

        Meanwhile more is built, so that whoever waits before it chooses what to judge knows what comes next too.
        """
        ...

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        """Begin to get ready what solutions to the problems of these tasks will need, the likeliest first, and return.

        No more than a hint, for a slot that has nothing to judge; the tasks are without a solution. A task that is to
        be judged does not wait for more than the step that is under way. What goes wrong is told by `judge`, where it
        goes wrong again.
        """
        ...

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        """The verdict; `task` is without modules, which come from `built`.

        `ahead` are likely to come next for this slot: a hint, with which work may be begun early. None where the
        verdict waits for what goes on beside the slot's work: `settle` has it, and the slot may judge others before.

        A referee that dies is replaced and the task tried once more; then `harness_error`, as at once where the problem
        is at fault (`faults`). Raises `SlotLost` where the slot's device is missing, gone or ill.
        """
        ...

    def due(self, slot: Slot, task: Task) -> bool:
        """Whether the verdict that `judge` left open is there, so that `settle` does not wait for long; also where it
        has more to say than that. Raises nothing.
        """
        ...

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """The verdict that `judge` left open; waits for it. Raises as `judge` does."""
        ...

    def close(self) -> None:
        """End every builder, referee and contestant."""
        ...

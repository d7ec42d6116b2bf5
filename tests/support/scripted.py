"""An executor without processes, whose verdicts and losses come when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from harness.core.problem import Problem
from harness.core.status import Failure, Status
from harness.core.task import Outcome, Task
from harness.runner.executors import BuildRequest, Built, Slot

SOON_S = 60.0
"""What is waited for comes at once; a machine may be busy."""

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""

RIGHT = Outcome(status=Status.passed, reason="right")


class Made:
    """A build."""

    wall_s, has_cuda_sources = 0.0, False

    def __init__(self, source: str) -> None:
        self.source = source
        self.failure: Failure | None = None
        self.released = 0

    def to_json(self) -> dict[str, Any]:
        return {}

    def release(self) -> None:
        self.released += 1


class Scripted:
    """An executor: what `building`, `judging` and `settling` say of a source; by default, that it is right at once."""

    def __init__(self, slots: int = 1, builders: int = 2) -> None:
        self.slots = tuple(Slot(name=f"slot {n}", title=f"slot {n}") for n in range(slots))
        self.builders = builders
        self.made: list[Made] = []
        self.told: list[tuple[str, str]] = []
        self.ahead: dict[str, list[str]] = {}
        self.prepared: list[list[str]] = []
        self.opened = threading.Event()
        self.opened.set()
        self.building: Callable[[str], None] = lambda source: None
        self.judging: Callable[[Slot, str], Outcome | None] = lambda slot, source: RIGHT
        self.settling: Callable[[Slot, str], Outcome] = lambda slot, source: RIGHT
        self.preparing: Callable[[], None] = lambda: None
        self.is_due: Callable[[str], bool] = lambda source: True

    def expect(self, order: BuildRequest) -> None:
        pass

    def build(self, order: BuildRequest) -> Built:
        self.building(order.source)
        self.made.append(Made(order.source))
        return self.made[-1]

    def at_fault(self, problem: Problem) -> Outcome | None:
        return None

    def await_slot(self, slot: Slot) -> None:
        assert self.opened.wait(SOON_S)

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        self.prepared.append([task.problem.id for task in tasks])
        self.preparing()

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        self.ahead[task.source] = [coming.source for coming, _ in ahead]
        self.told.append(("judged", task.source))
        return self.judging(slot, task.source)

    def due(self, slot: Slot, task: Task) -> bool:
        return self.is_due(task.source)

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        outcome = self.settling(slot, task.source)
        self.told.append(("settled", task.source))
        return outcome

    def close(self) -> None:
        pass

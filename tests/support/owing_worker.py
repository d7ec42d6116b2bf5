"""A referee's process that leaves every verdict open, as audits do on a GPU, and dies once while it owes one.

Started by tests/integration/test_survival.py in the place of `harness.referee.worker`; OWING_MARK is where it notes
its death.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.core.task import Outcome, Task
from harness.referee import referee, worker


class Owing(referee.Referee):
    """Judges at once, and says so only when it is asked to settle."""

    held: ClassVar[dict[str, Outcome]] = {}

    def begin(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        mark = Path(os.environ["OWING_MARK"])
        if self.held and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.held[str(task.log_path)] = self.judge(task, ahead)
        return None

    def judge(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome:
        outcome = super().begin(task, ahead)
        return super().settle(task) if outcome is None else outcome

    def due(self, task: Task) -> bool:
        return Path(os.environ["OWING_MARK"]).exists()

    def settle(self, task: Task) -> Outcome:
        return self.held.pop(str(task.log_path))


referee.Referee = Owing  # type: ignore[misc]

if __name__ == "__main__":
    worker.main(int(sys.argv[1]))

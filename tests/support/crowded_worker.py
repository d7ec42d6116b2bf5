"""A referee's process that dies whenever it judges one certain solution while something of others goes on beside it.

Started by tests/integration/test_survival.py in the place of `harness.referee.worker`; CROWDED_MARK is where it notes
which solution that is: the first one that it is given with others ahead.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.core.task import Outcome, Task
from harness.referee import referee, worker


class Crowded(referee.Referee):
    def begin(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        mark = Path(os.environ["CROWDED_MARK"])
        if ahead and (not mark.exists() or mark.read_text() == task.filename):
            mark.write_text(task.filename)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().begin(task, ahead)


referee.Referee = Crowded  # type: ignore[misc]

if __name__ == "__main__":
    worker.main(int(sys.argv[1]))

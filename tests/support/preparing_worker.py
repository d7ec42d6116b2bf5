"""A referee's process that gets a problem ready as PREPARES says, and then creates the file PREPARED.

Started by tests/unit/runner/executors/test_preparing.py in the place of `harness.referee.worker`. `whole` is as ever;
`dies` is killed in the middle of its first preparation, `raises` fails in each, and `endless` is never done with one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.core.task import Task
from harness.referee import referee, worker


class Preparing(referee.Referee):
    def prepare(self, tasks: Sequence[Task]) -> Generator[None, None, None]:
        how, done = os.environ["PREPARES"], Path(os.environ["PREPARED"])
        first = not done.exists()
        if how != "whole":
            done.touch()
        if how == "dies" and first:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise RuntimeError("on purpose")
        while how == "endless":
            time.sleep(0.01)
            yield
        yield from super().prepare(tasks)
        done.touch()


referee.Referee = Preparing  # type: ignore[misc]

if __name__ == "__main__":
    worker.main(int(sys.argv[1]))

"""A referee's process that is lost in a problem's code as FAULTY says.

Started by tests/integration/test_problem_faults.py in the place of `harness.referee.worker`. `judging` dies in that
code whenever it judges, and comes through it alone; `kernels` has a device whose context a problem's forward breaks,
as one does on a GPU that reads past its memory: from then on every call on the device fails in this process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.core.choices import DeviceKind
from harness.core.task import Outcome, Task
from harness.referee import referee, worker
from harness.referee.problem.watchdog import Phase


class DiesJudging(referee.Referee):
    def begin(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        with self.progress_marker.at(task.problem, task.workload, Phase.FORWARD):
            os.kill(os.getpid(), signal.SIGKILL)
        return None


class Breaking:
    """A real host device until a problem sets BROKEN in its process's environment."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def synchronize(self) -> None:
        if "BROKEN" in os.environ:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self._real.synchronize()


def open_device(kind: DeviceKind, index: int) -> Any:
    from harness.devices.device import open_device as real

    return Breaking(real(kind, index))


if __name__ == "__main__":
    how = os.environ["FAULTY"]
    if how == "judging":
        referee.Referee = DiesJudging  # type: ignore[misc]
    worker.main(int(sys.argv[1]), open_device if how == "kernels" else None)

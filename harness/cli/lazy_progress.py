"""Show the progress of a run, importing the display only when the run has started.

Trusted side.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.output import say
from harness.core.record import Record

if TYPE_CHECKING:
    from harness.cli.progress import ProgressView


class LazyProgress(ExitStack):
    """A `ProgressView` that is made when the run starts: its imports take long.

    By then builders and referees are already working.
    """

    def __init__(self, *, quiet_stdout: bool) -> None:
        super().__init__()
        self._quiet_stdout = quiet_stdout
        self._shown: ProgressView | None = None
        self.began = False

    def started(self, run_dir: Path, total: int, skipped: int) -> None:
        self.began = True
        from harness.cli.progress import ProgressView

        self._shown = ProgressView(quiet_stdout=self._quiet_stdout)
        self.enter_context(self._shown.progress)
        self._shown.started(run_dir, total, skipped)

    def built(self) -> None:
        if self._shown is not None:
            self._shown.built()

    def finished(self, record: Record, slot: str | None = None) -> None:
        if self._shown is not None:
            self._shown.finished(record, slot)

    def noted(self, message: str) -> None:
        say(f"harness: {message}")

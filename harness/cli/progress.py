"""Show the progress of a run on the terminal.

Trusted side.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.output import console, say, to_standard_output
from harness.core.record import Record

if TYPE_CHECKING:
    from rich.progress import Progress

    from harness.report.pace import Pace

TOLD_EVERY_S = 60.0
"""Seconds between progress lines if the output is no terminal (a log file)."""


class ProgressView(ExitStack):
    """Progress bar, if there is a terminal, and one line for each finished solution.

    It is made when the run starts, because its imports take long. By then builders and referees are already working.
    """

    progress: Progress
    _pace: Pace

    def __init__(self, *, quiet_stdout: bool, brief_up_to: int = 0) -> None:
        """Show no progress yet.

        Args:
            quiet_stdout: Keep standard output free for the results.
            brief_up_to: Most solutions of a run whose lines have no results, because a page about each follows.
        """
        super().__init__()
        self._quiet_stdout = quiet_stdout
        self._brief_up_to = brief_up_to
        self.began = False

    def started(self, run_dir: Path, total: int, skipped: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from harness.report.pace import Pace

        self.began = True
        self._lines = console(stderr=self._quiet_stdout)
        # The bar and the lines must share a console: on one terminal, two consoles overwrite each other.
        bar = self._lines if self._lines.is_terminal else console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[pace]}"),
            TimeElapsedColumn(),
            console=bar,
            transient=True,
            disable=not bar.is_terminal,
        )
        self.enter_context(self.progress)
        self._task = self.progress.add_task("evaluating", total=None, pace="")
        self._told_s = time.monotonic()
        self._pace = Pace(total, self._told_s)
        self._update()
        already = f", {skipped} already done" if skipped else ""
        say(f"{total} to evaluate{already}; writing records to {run_dir}")

    def built(self) -> None:
        if self.began:
            self._pace.built += 1
            self._update()

    def finished(self, record: Record, slot: str | None = None) -> None:
        from harness.report import terminal

        if not self.began:
            return
        now_s = time.monotonic()
        self._pace.finished(record.status, slot, now_s)
        done, total = self._pace.done, max(self._pace.total, self._pace.done)
        errors: AbstractContextManager[None] = nullcontext() if self._quiet_stdout else to_standard_output()
        with errors:
            line = terminal.record_line(record, number=done, total=total, brief=total <= self._brief_up_to)
            self._lines.print(line, soft_wrap=not self._lines.is_terminal)
        self._update()
        if self.progress.disable and done < total and now_s - self._told_s >= TOLD_EVERY_S:
            self._told_s = now_s
            say(self._pace.line())

    def noted(self, message: str) -> None:
        say(f"harness: {message}")

    def _update(self) -> None:
        pace = self._pace
        shown = f"{pace.line()}, {pace.built} built"
        self.progress.update(self._task, total=pace.total or None, completed=pace.done, pace=shown)

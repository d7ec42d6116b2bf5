"""Show the progress of a run on the terminal.

Trusted side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from harness.cli.output import console, say, to_standard_output
from harness.core.record import Record
from harness.report import terminal
from harness.report.pace import Pace

TOLD_EVERY_S = 60.0
"""Seconds between progress lines if the output is no terminal (a log file)."""


class ProgressView:
    """Progress bar, if there is a terminal, and one line for each finished solution."""

    def __init__(self, *, quiet_stdout: bool) -> None:
        out, err = console(), console(stderr=True)
        self._lines = err if quiet_stdout else out
        self._told_of: Callable[[], AbstractContextManager[None]] = nullcontext if quiet_stdout else to_standard_output
        # The bar and the lines must share a console: on one terminal, two consoles overwrite each other.
        bar = self._lines if self._lines.is_terminal else err
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[pace]}"),
            TimeElapsedColumn(),
            console=bar,
            transient=True,
            disable=not bar.is_terminal,
        )
        self._task = self.progress.add_task("evaluating", total=None, pace="")
        self._pace = Pace(0, time.monotonic())
        self._told_s = time.monotonic()

    def started(self, run_dir: Path, total: int, skipped: int) -> None:
        self._pace = Pace(total, time.monotonic())
        self._update()
        already = f", {skipped} already done" if skipped else ""
        say(f"{total} to evaluate{already}; writing records to {run_dir}")

    def built(self) -> None:
        self._pace.built += 1
        self._update()

    def finished(self, record: Record, slot: str | None = None) -> None:
        now_s = time.monotonic()
        self._pace.finished(record.status, slot, now_s)
        done, total = self._pace.done, max(self._pace.total, self._pace.done)
        with self._told_of():
            self._lines.print(terminal.record_line(record, number=done, total=total), soft_wrap=True)
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

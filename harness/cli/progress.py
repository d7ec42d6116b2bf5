"""Show the progress of a run on the terminal.

Trusted side.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.output import console, say, to_standard_output
from harness.core.preparing import Preparing
from harness.core.record import Record
from harness.report import format as show

if TYPE_CHECKING:
    from rich.progress import Progress

    from harness.report.pace import Pace

PREPARING_EVERY_S = 10.0
"""Least seconds between lines of a preparation without a bar."""

TOLD_EVERY_S = 60.0
"""Seconds between progress lines if the output is no terminal (a log file)."""


class Preparation:
    """Progress of one preparation: a bar on a terminal, else a line now and then.

    With `bar=False` lines, too, because a terminal has place for one bar.
    """

    def __init__(self, what: str, *, bar: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.what = what
        self._begin_s = self._told_s = time.monotonic()
        screen = console(stderr=True)
        columns = (TextColumn("preparing"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=screen, transient=True, disable=not (bar and screen.is_terminal))
        self._task = self._bar.add_task("", total=1)
        say(f"preparing {what}; this takes one to three minutes")
        self._bar.start()

    def update(self, event: Preparing) -> None:
        """Show this state; after the last one, the duration."""
        now_s = time.monotonic()
        self._bar.update(self._task, completed=event.done, total=event.total)
        if event.done >= event.total:
            self.close()
            say(f"prepared after {show.duration(now_s - self._begin_s)}")
        elif self._bar.disable and now_s - self._told_s >= PREPARING_EVERY_S:
            self._told_s = now_s
            say(f"preparing: {event.done} of {event.total} steps after {show.duration(now_s - self._begin_s)}")

    def close(self) -> None:
        """Remove the bar. May be called again."""
        self._bar.stop()


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
        self._preparation: Preparation | None = None

    def preparing(self, event: Preparing) -> None:
        """Show the progress of files that are made once for a machine."""
        if self._preparation is None or self._preparation.what != event.what:
            self._preparation = Preparation(event.what, bar=not self.began)
        self._preparation.update(event)

    def __exit__(self, *error: Any) -> Any:
        if self._preparation is not None:
            self._preparation.close()
        return super().__exit__(*error)

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

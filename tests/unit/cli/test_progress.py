"""The progress of what is prepared once for a machine, as a log file and a terminal show it."""

from __future__ import annotations

import io
import sys

import pytest

from harness.cli import progress
from harness.cli.progress import ProgressView
from harness.core.preparing import Preparing

WHAT = "the host device, once for torch 2.13.0 and g++ 12.2.0"


def feed(view: ProgressView, total: int) -> None:
    view.preparing(Preparing(what=WHAT, done=0, total=1))
    for done in range(total + 1):
        view.preparing(Preparing(what=WHAT, done=done, total=total))


def test_a_log_says_what_is_prepared_and_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProgressView(quiet_stdout=False) as view:
        feed(view, 3)
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"preparing {WHAT}; this takes one to three minutes"
    assert last.startswith("prepared after ")
    monkeypatch.setattr(progress, "PREPARING_EVERY_S", 0.0)
    with ProgressView(quiet_stdout=True) as view:
        feed(view, 3)
    out, err = capsys.readouterr()
    assert not out, "standard output is for results"
    assert "preparing: 2 of 3 steps after " in err


def test_a_terminal_has_a_bar_with_steps_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with ProgressView(quiet_stdout=False) as view:
        view.preparing(Preparing(what=WHAT, done=0, total=1))
        view.preparing(Preparing(what=WHAT, done=7, total=36))
        assert view._preparation is not None
        view._preparation._bar.refresh()
    shown = screen.getvalue()
    assert "7/36" in shown
    assert "0:00:0" in shown
    assert shown.count("preparing the host device") == 1


def test_another_preparation_during_the_run_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressView(quiet_stdout=False) as view:
        feed(view, 1)
        view.preparing(Preparing(what="further headers", done=0, total=1))
        view.preparing(Preparing(what="further headers", done=1, total=1))
    said = capsys.readouterr().err
    assert "preparing further headers" in said
    assert said.count("prepared after") == 2

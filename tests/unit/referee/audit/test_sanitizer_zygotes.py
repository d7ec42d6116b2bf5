"""Audits held still together: none begins in a silence, whatever is done meanwhile with those that are under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.executables import find_gxx
from harness.referee.audit.sanitizer import SanitizerTool
from harness.referee.audit.zygotes import SanitizerZygotes
from harness.sandbox import SandboxPolicy, suspend
from harness.sandbox.limits import descendants
from harness.sandbox.zygote import Child
from tests.support.paths import SUPPORT

SOON_S = 60.0
STILL_S = 0.2
"""How long is looked whether something begins that must not."""


class Reader(threading.Thread):
    """One that reads an audit's results as soon as it may."""

    def __init__(self, sanitizer_zygotes: SanitizerZygotes) -> None:
        super().__init__(daemon=True)
        self._sanitizer_zygotes = sanitizer_zygotes
        self.begun, self.over = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._sanitizer_zygotes.reading():
            self.begun.set()
            assert self.over.wait(SOON_S)


def test_nothing_is_read_in_a_silence_which_waits_for_what_is_being_read(sanitizer_zygotes: SanitizerZygotes) -> None:
    early = Reader(sanitizer_zygotes)
    assert early.begun.wait(SOON_S)
    held = threading.Event()
    holder = threading.Thread(target=lambda: (sanitizer_zygotes.hold(), held.set()), daemon=True)
    holder.start()
    assert not held.wait(STILL_S), "the silence began while something was read"
    late = Reader(sanitizer_zygotes)
    assert not late.begun.wait(STILL_S)
    early.over.set()
    assert held.wait(SOON_S)
    assert not late.begun.wait(STILL_S)
    sanitizer_zygotes.loosen()  # running audits go on, so their results are read
    assert late.begun.wait(SOON_S)
    late.over.set()
    assert sanitizer_zygotes.hold() is False
    sanitizer_zygotes.release()


class Audit(threading.Thread):
    """One that has its turn as soon as it may, and gives it up when it is told to."""

    def __init__(self, sanitizer_zygotes: SanitizerZygotes) -> None:
        super().__init__(daemon=True)
        self._sanitizer_zygotes = sanitizer_zygotes
        self.begun, self.over = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._sanitizer_zygotes.turn():
            self.begun.set()
            assert self.over.wait(SOON_S)

    def end(self) -> None:
        self.over.set()
        self.join(SOON_S)


@contextmanager
def under_way(sanitizer_zygotes: SanitizerZygotes) -> Iterator[Audit]:
    audit = Audit(sanitizer_zygotes)
    try:
        assert audit.begun.wait(SOON_S)
        yield audit
    finally:
        audit.end()


TOOL = """#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
shift 2
exec "$@"
"""
"""Stands in for compute-sanitizer: starts what it is given."""

TARGETS = SUPPORT / "sandboxed"
TOOLS = (SanitizerTool.MEMCHECK, SanitizerTool.MEMCHECK, SanitizerTool.RACECHECK)


@contextmanager
def watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SanitizerZygotes, list[Child]]]:
    """Zygotes under tools, and below each a child in system calls that no stop interrupts, as in a GPU driver's."""
    monkeypatch.setenv("PYTHONPATH", str(TARGETS))
    tool = folder / "compute-sanitizer"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    sanitizer_zygotes = SanitizerZygotes(
        str(tool), preload=("busy",), logs=folder, most=dict.fromkeys(SanitizerTool, 2), again=lambda tool: None
    )
    children: list[Child] = []
    try:
        children += [in_long_calls(sanitizer_zygotes, tool, folder) for tool in TOOLS]
        assert [child.channel.receive(SOON_S).message for child in children] == [{"ready": True}] * len(TOOLS)
        yield sanitizer_zygotes, children
    finally:
        sanitizer_zygotes.release()
        for child in children:
            child.close()
        sanitizer_zygotes.close()


def in_long_calls(sanitizer_zygotes: SanitizerZygotes, tool: SanitizerTool, folder: Path) -> Child:
    policy = SandboxPolicy(readable=(TARGETS,), under_tool=True)
    return sanitizer_zygotes.take(tool).zygote.spawn("busy:in_long_calls", policy, folder / "log")


def states(child: Child) -> set[str]:
    """Of all processes of a sandbox."""
    assert child.pid is not None
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in descendants(child.pid)}


def come_to(children: Sequence[Child], *, still: bool) -> bool:
    """Whether all of them stand still, or go on, in a while."""
    deadline = time.monotonic() + SOON_S
    while any((states(child) == {"T"}) is not still for child in children) and time.monotonic() < deadline:
        time.sleep(0.005)
    return all((states(child) == {"T"}) is still for child in children)


@pytest.fixture
def sanitizer_zygotes(tmp_path: Path) -> SanitizerZygotes:
    return SanitizerZygotes(
        "no tool", preload=(), logs=tmp_path, most=dict.fromkeys(SanitizerTool, 1), again=lambda tool: None
    )


def test_what_is_let_go_on_in_a_silence_lets_no_other_begin(sanitizer_zygotes: SanitizerZygotes) -> None:
    with under_way(sanitizer_zygotes) as first:
        assert sanitizer_zygotes.hold()
        second = Audit(sanitizer_zygotes)
        sanitizer_zygotes.loosen()
        assert not second.begun.wait(STILL_S)
        assert sanitizer_zygotes.hold()
        first.end()
        assert not sanitizer_zygotes.hold()  # none is left to be seen off
        assert not second.begun.wait(STILL_S)
        sanitizer_zygotes.release()
        assert second.begun.wait(SOON_S)
        second.end()
    assert sanitizer_zygotes.active == 0


@pytest.mark.skipif(find_gxx() is None, reason="no C++ compiler here")
def test_what_racecheck_watches_has_large_pages_and_nothing_else_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch) as (_, children):
        for tool, child in zip(TOOLS, children, strict=True):
            assert child.pid is not None
            maps = [Path(f"/proc/{pid}/maps").read_text() for pid in descendants(child.pid)]
            assert maps
            assert all(("large_pages.so" in text) is (tool is SanitizerTool.RACECHECK) for text in maps)


def test_waiting_for_the_end_of_what_is_under_way_lets_no_other_begin(sanitizer_zygotes: SanitizerZygotes) -> None:
    with under_way(sanitizer_zygotes) as first:
        assert sanitizer_zygotes.hold()
        second = Audit(sanitizer_zygotes)
        drained = threading.Thread(target=sanitizer_zygotes.drain, daemon=True)
        drained.start()
        first.end()
        drained.join(SOON_S)
        assert sanitizer_zygotes.active == 0
        assert not second.begun.wait(STILL_S)
    sanitizer_zygotes.release()
    assert second.begun.wait(SOON_S)
    second.end()


def test_all_are_told_to_stop_before_any_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one tool, and of all: what is waited for later must not begin another long call meanwhile."""
    stop, first = suspend.stop, threading.Event()
    with watched(tmp_path, monkeypatch) as (sanitizer_zygotes, children), under_way(sanitizer_zygotes):

        def stop_alone(root: int, known: Sequence[int] = ()) -> suspend.Stopped:
            if not first.is_set():
                first.set()
                assert come_to(children, still=True)
            return stop(root, known)

        monkeypatch.setattr(suspend, "stop", stop_alone)
        assert sanitizer_zygotes.hold()
        assert first.is_set()
        assert [states(child) for child in children] == [{"T"}] * len(TOOLS)
        sanitizer_zygotes.release()
        assert come_to(children, still=False)


def test_what_is_announced_stops_while_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path, monkeypatch) as (sanitizer_zygotes, children), under_way(sanitizer_zygotes):
        sanitizer_zygotes.announce()
        sanitizer_zygotes.announce()
        assert come_to(children, still=True)
        sanitizer_zygotes.withdraw()
        assert come_to(children, still=False)
        sanitizer_zygotes.announce()
        assert sanitizer_zygotes.hold()
        assert [states(child) for child in children] == [{"T"}] * len(TOOLS)
        sanitizer_zygotes.withdraw()  # it is no more than announced no longer
        sanitizer_zygotes.announce()
        sanitizer_zygotes.withdraw()
        assert [states(child) for child in children] == [{"T"}] * len(TOOLS)
        sanitizer_zygotes.loosen()
        assert come_to(children, still=False)
        sanitizer_zygotes.announce()  # what is let go on in a silence goes on
        sanitizer_zygotes.withdraw()
        second = Audit(sanitizer_zygotes)
        assert not second.begun.wait(STILL_S)
        assert come_to(children, still=False)
        sanitizer_zygotes.release()
        assert second.begun.wait(SOON_S)
        second.end()


def test_what_begins_below_a_tool_is_held_when_that_was_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a zygote that is begun meanwhile, too."""
    with watched(tmp_path, monkeypatch) as (sanitizer_zygotes, _), under_way(sanitizer_zygotes):
        sanitizer_zygotes.announce()
        with in_long_calls(sanitizer_zygotes, SanitizerTool.SYNCCHECK, tmp_path) as late:
            assert states(late) == {"T"}
            sanitizer_zygotes.withdraw()
            assert come_to([late], still=False)


@pytest.mark.parametrize("undone_by", ["withdraw", "release"])
def test_no_audit_begins_while_silence_is_announced(sanitizer_zygotes: SanitizerZygotes, undone_by: str) -> None:
    sanitizer_zygotes.announce()
    first = Audit(sanitizer_zygotes)
    assert not first.begun.wait(STILL_S)
    getattr(sanitizer_zygotes, undone_by)()
    assert first.begun.wait(SOON_S)
    before_s = sanitizer_zygotes.clock()
    sanitizer_zygotes.announce()
    held_s = sanitizer_zygotes.clock()
    threading.Event().wait(0.05)
    assert before_s <= sanitizer_zygotes.clock() == held_s  # none of its time, as if it stood still already
    sanitizer_zygotes.hold()
    assert sanitizer_zygotes.clock() == held_s
    sanitizer_zygotes.release()
    first.end()
    sanitizer_zygotes.announce()
    sanitizer_zygotes.loosen()
    sanitizer_zygotes.withdraw()
    second = Audit(sanitizer_zygotes)
    assert not second.begun.wait(STILL_S)
    sanitizer_zygotes.release()
    assert second.begun.wait(SOON_S)
    second.end()


def test_tools_have_their_time_where_they_are_let_go_on_alone(sanitizer_zygotes: SanitizerZygotes) -> None:
    """By that clock an audit's patience counts: a silence is none of its time, and being let go on in one is."""
    with under_way(sanitizer_zygotes):
        sanitizer_zygotes.hold()
        before_s = sanitizer_zygotes.clock()
        threading.Event().wait(0.05)
        assert sanitizer_zygotes.clock() == before_s
        sanitizer_zygotes.loosen()
        threading.Event().wait(0.05)
        sanitizer_zygotes.hold()
        held_s = sanitizer_zygotes.clock()
        assert held_s >= before_s + 0.05
        threading.Event().wait(0.05)
        assert sanitizer_zygotes.clock() == held_s
        sanitizer_zygotes.release()

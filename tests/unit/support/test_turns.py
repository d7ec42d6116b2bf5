"""Turns on a GPU: who wants it alone has it alone, others share it, and nobody waits for ever. Real processes."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.support.turns import Turns

LONG_S = 60.0
"""For what must happen; a failure takes as long."""

A_WHILE_S = 0.3
"""For what must not happen, of a process that has begun and could do it at once."""

SPAWN = multiprocessing.get_context("spawn")


def stay(base: Path, alone: bool, begun: Event, inside: Event, leave: Event) -> None:
    turns = Turns(base)
    begun.set()
    with turns.turn(alone=alone):
        inside.set()
        leave.wait(LONG_S)


class Visitor:
    """A process that takes a turn and keeps it until it is told to leave."""

    def __init__(self, base: Path, *, alone: bool) -> None:
        self.begun, self.inside, self.leave = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
        args = (base, alone, self.begun, self.inside, self.leave)
        self._process = SPAWN.Process(target=stay, args=args, daemon=True)
        self._process.start()

    def end(self) -> None:
        self.leave.set()
        self._process.join(LONG_S)
        assert self._process.exitcode == 0


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "gpu"


def test_some_share_it_and_one_has_it_alone(base: Path) -> None:
    first, second = Visitor(base, alone=False), Visitor(base, alone=False)
    assert first.inside.wait(LONG_S)
    assert second.inside.wait(LONG_S), "both are in"
    third = Visitor(base, alone=True)
    wait_in_the_gate(base, third)
    first.end()
    assert not third.inside.wait(A_WHILE_S), "the second is still in"
    second.end()
    assert third.inside.wait(LONG_S)
    late = [Visitor(base, alone=False), Visitor(base, alone=True)]
    wait_in_the_gate(base, *late)
    assert not late[0].inside.wait(A_WHILE_S)
    assert not late[1].inside.is_set()
    third.end()
    for visitor in late:  # whichever came first: told to leave one after another, the first could wait for the second
        visitor.leave.set()
    for visitor in late:
        visitor.end()
        assert visitor.inside.is_set()


def test_who_wants_it_alone_comes_before_those_who_share_it_and_come_later(base: Path) -> None:
    first = Visitor(base, alone=False)
    assert first.inside.wait(LONG_S)
    alone = Visitor(base, alone=True)
    wait_in_the_gate(base, alone)
    late = Visitor(base, alone=False)
    assert late.begun.wait(LONG_S)
    assert not late.inside.wait(A_WHILE_S), "it could share with the first, and does not"
    first.end()
    assert alone.inside.wait(LONG_S)
    alone.end()
    assert late.inside.wait(LONG_S)
    late.end()


def wait_in_the_gate(base: Path, *visitors: Visitor) -> None:
    """Until one stands in the gate and all of them have begun, none of which may be inside."""
    for visitor in visitors:
        assert visitor.begun.wait(LONG_S)
    deadline_s = time.monotonic() + LONG_S
    while not _standing_in_the_gate(base):
        assert not any(visitor.inside.is_set() for visitor in visitors)
        assert time.monotonic() < deadline_s, "nobody stands there"
        time.sleep(0.01)


def _standing_in_the_gate(base: Path) -> bool:
    import fcntl

    with base.with_name("gpu.gate").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


def test_whose_process_dies_leaves_it_to_the_next(base: Path) -> None:
    dying = Visitor(base, alone=True)
    assert dying.inside.wait(LONG_S)
    dying._process.kill()
    after = Visitor(base, alone=True)
    assert after.inside.wait(LONG_S)
    after.end()


def test_names_may_be_removed_while_others_are_in(base: Path) -> None:
    mine, other = Turns(base), Visitor(base, alone=False)
    assert other.inside.wait(LONG_S)
    Turns(base).remove()
    mine.remove()
    with mine.turn(alone=False):
        assert other.inside.is_set()
    other.end()
    with mine.turn(alone=True):
        pass

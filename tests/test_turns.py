"""Turns on a GPU: who wants it alone has it alone, others share it, and nobody waits for ever. Real processes."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from turns import Turns

LONG_S = 60.0
"""For what must happen; a failure takes as long."""

SPAWN = multiprocessing.get_context("spawn")


def stay(base: Path, alone: bool, inside: Event, leave: Event) -> None:
    with Turns(base).turn(alone=alone):
        inside.set()
        leave.wait(LONG_S)


class Visitor:
    """A process that takes a turn and keeps it until it is told to leave."""

    def __init__(self, base: Path, *, alone: bool) -> None:
        self.inside, self.leave = SPAWN.Event(), SPAWN.Event()
        self._process = SPAWN.Process(target=stay, args=(base, alone, self.inside, self.leave), daemon=True)
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
    first.end()
    assert not third.inside.wait(1.0), "the second is still in"
    second.end()
    assert third.inside.wait(LONG_S)
    late = [Visitor(base, alone=False), Visitor(base, alone=True)]
    assert not late[0].inside.wait(1.0)
    assert not late[1].inside.is_set()
    third.end()
    for visitor in late:
        visitor.leave.set()
        visitor.end()
        assert visitor.inside.is_set()


def test_who_wants_it_alone_comes_before_those_who_share_it_and_come_later(base: Path) -> None:
    first = Visitor(base, alone=False)
    assert first.inside.wait(LONG_S)
    alone = Visitor(base, alone=True)
    while not _standing_in_the_gate(base):
        assert not alone.inside.wait(0.01)
    late = Visitor(base, alone=False)
    assert not late.inside.wait(1.0), "it could share with the first, and does not"
    first.end()
    assert alone.inside.wait(LONG_S)
    alone.end()
    assert late.inside.wait(LONG_S)
    late.end()


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

"""Audits held still together: none begins in a silence, whatever is done meanwhile with those that are under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.posts import Posts
from harness.sanitizers import Tool

SOON_S = 60.0
STILL_S = 0.2
"""How long is looked whether something begins that must not."""


class Audit(threading.Thread):
    """One that has its turn as soon as it may, and gives it up when it is told to."""

    def __init__(self, posts: Posts) -> None:
        super().__init__(daemon=True)
        self._posts = posts
        self.begun, self.over = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._posts.turn():
            self.begun.set()
            assert self.over.wait(SOON_S)

    def end(self) -> None:
        self.over.set()
        self.join(SOON_S)


@contextmanager
def under_way(posts: Posts) -> Iterator[Audit]:
    audit = Audit(posts)
    try:
        assert audit.begun.wait(SOON_S)
        yield audit
    finally:
        audit.end()


@pytest.fixture
def posts(tmp_path: Path) -> Posts:
    return Posts("no tool", preload=(), logs=tmp_path, most=dict.fromkeys(Tool, 1), again=lambda tool: None)


def test_what_is_let_go_on_in_a_silence_lets_no_other_begin(posts: Posts) -> None:
    with under_way(posts) as first:
        assert posts.hold()
        second = Audit(posts)
        posts.loosen()
        assert not second.begun.wait(STILL_S)
        assert posts.hold()
        first.end()
        assert not posts.hold()  # none is left to be seen off
        assert not second.begun.wait(STILL_S)
        posts.release()
        assert second.begun.wait(SOON_S)
        second.end()
    assert posts.active == 0


def test_waiting_for_the_end_of_what_is_under_way_lets_no_other_begin(posts: Posts) -> None:
    with under_way(posts) as first:
        assert posts.hold()
        second = Audit(posts)
        drained = threading.Thread(target=posts.drain, daemon=True)
        drained.start()
        first.end()
        drained.join(SOON_S)
        assert posts.active == 0
        assert not second.begun.wait(STILL_S)
    posts.release()
    assert second.begun.wait(SOON_S)
    second.end()


def test_tools_have_their_time_where_they_are_let_go_on_alone(posts: Posts) -> None:
    """By that clock an audit's patience counts: a silence is none of its time, and being let go on in one is."""
    with under_way(posts):
        posts.hold()
        before_s = posts.clock()
        threading.Event().wait(0.05)
        assert posts.clock() == before_s
        posts.loosen()
        threading.Event().wait(0.05)
        posts.hold()
        held_s = posts.clock()
        assert held_s >= before_s + 0.05
        threading.Event().wait(0.05)
        assert posts.clock() == held_s
        posts.release()

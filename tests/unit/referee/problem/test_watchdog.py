"""Where a problem's code is, as another process reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from harness.core.problem import Workload
from harness.referee.problem import watchdog
from harness.referee.problem.watchdog import Phase, ProgressMarker, ProgressPage
from tests.unit.referee.test_referee import problem


@pytest.fixture
def page() -> Iterator[ProgressPage]:
    held = ProgressPage()
    yield held
    held.close()


def test_the_step_is_read_while_it_lasts_and_the_enclosing_one_afterwards(page: ProgressPage) -> None:
    marker = ProgressMarker(page.descriptor)
    assert page.read() is None
    with marker.at(problem(), Workload(name="full"), Phase.FORWARD):
        outer = page.read()
        with marker.at(problem(), Workload(name="full"), Phase.INPUTS):
            inner = page.read()
        again = page.read()
    assert page.read() is None
    assert outer is not None
    assert inner is not None
    assert again is not None
    assert (outer.step, inner.step, again.step) == (Phase.FORWARD, Phase.INPUTS, Phase.FORWARD)
    assert again.since_s >= inner.since_s >= outer.since_s


def test_what_is_half_written_is_read_again(page: ProgressPage, monkeypatch: pytest.MonkeyPatch) -> None:
    marker, reads, real = ProgressMarker(page.descriptor), 0, os.pread

    def half_written_at_first(descriptor: int, count: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        data = real(descriptor, count, offset)
        return data[:20].ljust(count) if reads == 1 else data

    with marker.at(problem(), Workload(name="full"), Phase.FORWARD):
        monkeypatch.setattr(watchdog.os, "pread", half_written_at_first)
        held = page.read()
    assert held is not None
    assert held.step is Phase.FORWARD
    assert reads == 3

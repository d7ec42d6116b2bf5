"""The ledger of the defences: added up by name, nothing counted twice."""

from __future__ import annotations

import time

import pytest

from harness.defences import Ledger


def test_what_is_nested_counts_once_towards_the_outer_name() -> None:
    ledger = Ledger()
    begin = time.perf_counter()
    for _ in range(2):
        with ledger.spend("refresh"), ledger.spend("digests"):
            pass
    with ledger.spend("digests"):
        pass
    took_s = time.perf_counter() - begin
    held = ledger.close()
    assert held.keys() == {"refresh", "digests"}
    assert 0 < sum(held.values()) <= took_s


def test_what_fails_counts_too_and_a_closed_ledger_is_empty() -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="no"), ledger.spend("digests"):
        raise ValueError("no")
    ledger.add("digests", 2.0)
    assert ledger.close()["digests"] >= 2.0
    assert ledger.close() == {}


def test_what_is_left_out_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0

    def wait(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr("harness.defences.time.perf_counter", lambda: now_s)
    ledger = Ledger()
    with ledger.spend("calibration"):
        wait(1.0)
        with ledger.left_out():
            wait(2.0)
            with ledger.spend("digests"):
                wait(4.0)
        with ledger.spend("digests"):
            wait(8.0)
    assert ledger.close() == {"calibration": 9.0, "digests": 4.0}
    with ledger.spend("refresh"):
        wait(16.0)
    assert ledger.close() == {"refresh": 16.0}, "what was left out before is no part of it"

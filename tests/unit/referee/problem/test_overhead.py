"""The ledger of the defences: added up by name, nothing counted twice."""

from __future__ import annotations

import time

import pytest

from harness.referee.problem.workspace import TimeLedger


def test_what_is_nested_counts_once_towards_the_outer_name() -> None:
    ledger = TimeLedger()
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
    ledger = TimeLedger()
    with pytest.raises(ValueError, match="no"), ledger.spend("digests"):
        raise ValueError("no")
    ledger.add("digests", 2.0)
    assert ledger.close()["digests"] >= 2.0
    assert ledger.close() == {}

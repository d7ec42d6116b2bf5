"""The evidence that one evaluation collects."""

from __future__ import annotations

import time

import pytest

from harness.referee.context import EvidenceLog
from harness.referee.problem.workspace import TimeLedger


def test_a_stage_takes_as_long_as_its_block() -> None:
    log, defences = EvidenceLog(), TimeLedger()
    begin = time.perf_counter()
    with log.stage("open"):
        time.sleep(0.02)
    with log.stage("audit", defences):
        time.sleep(0.02)
    spent_s = time.perf_counter() - begin
    assert 0.02 <= log.stages_s["open"] <= spent_s
    assert 0.02 <= log.stages_s["audit"] <= spent_s
    assert defences.close() == {"audit": pytest.approx(log.stages_s["audit"], abs=0.01)}


def test_a_stage_that_fails_is_noted_too() -> None:
    log = EvidenceLog()
    with pytest.raises(ValueError, match="no"), log.stage("load"):
        raise ValueError("no")
    assert 0.0 <= log.stages_s["load"] < 60.0

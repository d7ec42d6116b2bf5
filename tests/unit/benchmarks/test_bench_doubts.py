"""The table of doubted bursts: what counts in a run's records."""

from __future__ import annotations

from dataclasses import replace

from harness.results.writer import RunStore
from tests.benchmarks import bench_doubts
from tests.support.paths import ROOT

RESULTS = ROOT / "results"


def test_doubted_and_charged_evaluations_are_counted() -> None:
    record = next(
        held for held in RunStore.open(RESULTS / "h200-transcripts-warm").records() if held.timing and held.speedup
    )
    assert record.timing is not None
    claims = {**record.timing["claims"], "bursts": 4, "accepted": 4, "worst": {"unexplained_s": 1e-3}}
    calm = replace(record, labels=(), timing={**record.timing, "claims": claims})
    doubted = {**claims, "accepted": 3, "worst": {"unexplained_s": 3e-3}}
    charged = replace(calm, labels=("unexplained_time",), timing={**record.timing, "claims": doubted})
    untimed = replace(calm, timing=None, speedup=None)
    assert bench_doubts.row("mine", [calm, charged, calm, untimed]) == "| mine | 3 | 1 | 1 | 1.00 | 3.00 |"


def test_a_run_without_times_has_no_row() -> None:
    records = RunStore.open(RESULTS / "h200-transcripts-warm").records()
    assert bench_doubts.row("none", [replace(record, timing=None, speedup=None) for record in records]) is None

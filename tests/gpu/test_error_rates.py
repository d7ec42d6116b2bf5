"""Twins measured on a GPU: none is faster, and a planted slowdown is as long as it says."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from harness.core.status import Status
from harness.results.compare import Change
from harness.results.reader import read_records
from tests.benchmarks import bench_error_rates as command
from tests.benchmarks import error_rates as rates

pytestmark = [pytest.mark.gpu, pytest.mark.exclusive_gpu]


def test_measured_twins_are_as_fast_as_their_references_and_slowed_ones_2_percent_slower(tmp_path: Path) -> None:
    command.measure(tmp_path / "run", twins=20, slower=16, shard=(1, 1))
    records, _, _ = read_records(tmp_path / "run")
    assert [record.status for record in records] == [Status.passed] * 36
    counts = rates.measured([records])
    for long in (False, True):
        assert counts[rates.Row("measured", long, "eager", 0.0)][Change.faster] == 0
    for kernel in {record.problem for record in records if record.evidence[rates.PLANTED]}:
        medians = [
            statistics.median(
                math.log(record.speedup)
                for record in records
                if record.speedup is not None and (record.problem, record.evidence[rates.PLANTED]) == (kernel, share)
            )
            for share in (0.0, 0.02)
        ]
        assert medians[0] - medians[1] == pytest.approx(math.log(1.02), abs=0.006)

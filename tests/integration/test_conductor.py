"""A run of many solutions whose conductor is killed and whose slots are lost; and which clocks decide anything.

The executor is simulated (`tests.benchmarks.bench_conductor`); the run, its threads and its store are real. Real
builders, referees and contestants that are killed: test_survival.py and `tests.benchmarks.bench_faults`.
"""

from __future__ import annotations

import ast
import random
from pathlib import Path

from tests.benchmarks.bench_conductor import conducted
from tests.support.paths import ROOT


def test_a_conductor_that_is_killed_leaves_one_record_for_each_solution(tmp_path: Path) -> None:
    found = conducted(tmp_path, 3000, a_problem=250, kills=4, losing=0.002, every_s=0.2, chance=random.Random(1))
    assert found.exact, found
    assert found.kills >= 2
    assert found.kills - found.kills_at_start >= 1
    assert found.starts == 1 + found.kills + found.without_device


CLOCK_OF_THE_DAY = {
    "harness/cli/serve.py": "times of log lines",
    "harness/devices/measured_peaks.py": "NVML has samples by this clock; a jump hides a neighbour, and times stay",
    "harness/devices/nvml.py": "as above",
    "harness/referee/referee.py": "when something was prepared, for `harness timeline`",
    "harness/results/latest.py": "records of other machines, by the times that they state",
    "harness/results/reader.py": "names of runs, and times in records",
    "harness/runner/record_builder.py": "when a solution ran, for `harness timeline`; durations are monotonic",
    "harness/api/servers/http/dispatcher.py": "age of a job, which may be older than this process",
    "harness/api/servers/http/job_store.py": "leases and ages of jobs, which outlive this process",
    "harness/api/servers/http/tenants.py": "days until which a token is valid",
}
"""Modules that read it, and what for. Limits, waits and retries of a run use monotonic clocks: the day's may jump."""


def test_no_limit_wait_or_retry_depends_on_the_clock_of_the_day() -> None:
    readers = set()
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                continue
            name = f"{node.value.id}.{node.attr}"
            if name in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"):
                readers.add(path.relative_to(ROOT).as_posix())
    assert readers == set(CLOCK_OF_THE_DAY)

"""Shards: every item in exactly one part, neighbours together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.config import ConfigError, Machine, resolve
from harness.runner.plan import part, plan


@given(st.integers(0, 200), st.integers(1, 40))
def test_shards_are_a_partition_of_nearly_equal_parts(size: int, count: int) -> None:
    items = list(range(size))
    parts = [part(items, f"{n}/{count}") for n in range(1, count + 1)]
    assert [item for held in parts for item in held] == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert part(items, None) == items


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "1", "1/0", "a/b", "1/-2", 3])
def test_a_shard_that_can_not_be_is_said(wrong: object) -> None:
    machine = Machine(device=DeviceKind.HOST, cpu_count=1, memory_bytes=2**33)
    with pytest.raises(ConfigError, match=r"`shard` must be i/n"):
        resolve(machine=machine, run_id="r", options={"paths": ["x"], "shard": wrong})


def test_one_problem_without_the_workload_does_not_stop_the_others(tmp_path: Path) -> None:
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    for number in (1, 2):
        (level / f"{number}_x.py").write_text("N = 64\n")
        solution = tmp_path / "solutions" / "ann" / "level1" / f"{number}_naive.py"
        solution.parent.mkdir(parents=True, exist_ok=True)
        solution.write_text("class ModelNew: pass\n")
    (level / "workloads.yaml").write_text("format: 1\nproblems:\n  1: {workloads: {odd: {N: 7}}}\n")
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=1, memory_bytes=2**33),
        run_id="r",
        options={"paths": [tmp_path / "solutions"], "problems": tmp_path / "problems", "workload": "odd"},
    )
    with_odd, without = plan(config)
    assert with_odd.failure is None
    assert without.failure is not None
    assert "level1/2 declares no workload 'odd'; it has full" in without.failure.reason
    small = plan(replace(config, workload="small"))
    assert [(job.workload.derived, job.failure) for job in small] == [(True, None)] * 2


@pytest.mark.parametrize(
    ("workload", "asked", "expected"),
    [("full", None, "fp32"), ("half", None, "bf16"), ("half", "fp16", "fp16"), ("full", "tf32", "tf32")],
)
def test_the_class_asked_for_counts_then_the_workloads_then_the_problems(
    tmp_path: Path, workload: str, asked: str | None, expected: str
) -> None:
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "16_matmul.py").write_text("N = 64\n")
    (level / "workloads.yaml").write_text(
        "format: 1\nproblems:\n  16: {workloads: {half: {N: 7}}, precisions: {half: bf16}}\n"
    )
    solution = tmp_path / "solutions" / "ann" / "level1" / "16_naive.py"
    solution.parent.mkdir(parents=True)
    solution.write_text("class ModelNew: pass\n")
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=1, memory_bytes=2**33),
        run_id="r",
        options={"paths": [solution], "problems": tmp_path / "problems", "workload": workload, "precision": asked},
    )
    (job,) = plan(config)
    assert job.workload.name == workload
    assert job.problem.precision is PrecisionClass(expected)

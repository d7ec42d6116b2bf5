"""The committed findings and times of the shipped problems on an H200: there for every problem, as its size asks."""

from __future__ import annotations

import re

import pytest

from harness.catalog import load_problems
from harness.core.choices import Baseline
from harness.core.problem import Problem
from harness.report.baselines import LOST, from_csv, number
from tests.support.paths import ROOT

CATALOG = load_problems(ROOT / "problems")
ROWS = {
    (row["problem"], row["workload"], row["baseline"]): row
    for row in from_csv((ROOT / "results" / "h200-baselines" / "baselines.csv").read_text(encoding="utf-8"))
}
NOT_LINTED = {"backward/27"}
"""Problems whose lint was not repeated on a GPU since a rule changed: each leaves this set with its row on the page."""

LINT = (ROOT / "results" / "lint-h200.md").read_text(encoding="utf-8")


SHORTEST_S, LONGEST_S = 0.05e-3, 10e-3
"""Where eager should lie at full size: above, launches hide in noise; below, GPU time is wasted."""

FASTEST = 1.05
"""Largest share of the speed of light: the peak of products is one of cuBLAS in one order, and with a transposed factor
cuBLAS is 2.2 % faster than that."""


@pytest.mark.parametrize("problem", CATALOG.values(), ids=list(CATALOG))
def test_the_time_of_eager_is_there_and_in_bounds(problem: Problem) -> None:
    row = ROWS[(problem.id, "full", Baseline.EAGER.value)]
    time_s = number(row, "device_s")
    assert time_s is not None, row["reason"]
    assert SHORTEST_S <= time_s <= LONGEST_S


def test_every_row_is_of_the_problem_as_it_is() -> None:
    changed = {row["problem"] for row in ROWS.values() if row["problem_digest"] != CATALOG[row["problem"]].digest}
    assert not changed, "measure again: harness baseline --resume"
    # That torch can't compile a reference, or compiles it wrongly, is a result; that nothing is known is none.
    assert not [row["problem"] for row in ROWS.values() if row["outcome"] == LOST]
    compiled = {problem for problem, _, baseline in ROWS if baseline == Baseline.COMPILE.value}
    assert compiled == set(CATALOG)


def test_no_reference_passes_the_speed_of_light() -> None:
    for identity, row in ROWS.items():
        share = number(row, "sol_fraction")
        assert share is None or 0 < share <= FASTEST, identity


@pytest.mark.parametrize("workload", ["full", "odd", "half"])
def test_lint_found_nothing(workload: str) -> None:
    kept = set(re.findall(rf"^\| ([a-z]+\d?/\d+) \| {workload} \| ✓ \|", LINT, re.MULTILINE))
    assert kept == {key for key, problem in CATALOG.items() if key not in NOT_LINTED and workload in problem.workloads}

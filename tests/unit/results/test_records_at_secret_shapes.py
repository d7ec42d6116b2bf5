"""Records of runs with secret shapes: every table, comparison and export knows which speedup is which."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Workload
from harness.core.record import Record
from harness.core.stats import SpeedupEstimate, speedup_interval, summarise
from harness.core.status import Status
from harness.referee.problem.size_ranges import DrawnShape
from harness.referee.secret_shapes import ShapeVerdict, scored
from harness.report import board
from harness.report.csv import leaderboard as csv_of
from harness.report.feedback import feedback
from harness.results.compare import compare_records
from harness.results.frame import row_of
from harness.results.kernelbench import export_run
from harness.results.leaderboard import By, leaderboard
from harness.results.reward import RewardPolicy, reward_of
from harness.results.verify import _faults_of_times

SHOWN_S, REFERENCE_S = 1e-3, 4e-3


def estimate(speedup: float) -> dict[str, Any]:
    held = SpeedupEstimate(
        speedup=speedup, low=speedup * 0.98, high=speedup * 1.02, confidence=0.95, pairs=4, method="student-t"
    )
    return held.to_json()


def side(time_s: float) -> dict[str, Any]:
    bursts = [[time_s, time_s * 1.001], [time_s, time_s * 1.001]]
    return {"samples_s": bursts, "device": summarise([value for burst in bursts for value in burst]).to_json()}


def timing(at_secret_sizes: list[float]) -> tuple[float, dict[str, Any]]:
    """The score and the timing of a solution that is four times as fast at the shown sizes."""
    reference, solution = side(REFERENCE_S), side(SHOWN_S)
    shown = {
        "baseline": "eager",
        "reference": reference,
        "solution": solution,
        "speedup": speedup_interval(reference["samples_s"], solution["samples_s"]).to_json(),
    }
    if not at_secret_sizes:
        return float(shown["speedup"]["speedup"]), shown
    verdicts = [
        ShapeVerdict(
            shape=DrawnShape(workload=Workload(name="secret-1")),
            status=Status.passed,
            reason="right",
            timing={"speedup": estimate(speedup)},
        )
        for speedup in at_secret_sizes
    ]
    score, _, held = scored(shown, verdicts)
    return score.speedup, held


def record(name: str, at_secret_sizes: list[float], *, first_size: int = 5, **changes: Any) -> Record:
    """A record that passed."""
    speedup, held = timing(at_secret_sizes)
    verdicts = [
        {"sizes": {"N": first_size + number}, "status": "passed", "reason": "right", "speedup": estimate(each)}
        for number, each in enumerate(at_secret_sizes)
    ]
    shapes = {"secret_shapes": len(verdicts), "shapes": {"asked": len(verdicts), "verdicts": verdicts}}
    made = Record(
        problem="level1/1",
        author="ann",
        solution=f"ann/level1/1_{name}.py",
        device=DeviceKind.CUDA,
        workload="full",
        status=Status.passed,
        reason="right on every input variant",
        speedup=speedup,
        timing=held,
        evidence=shapes if at_secret_sizes else {},
        environment={"gpu": "NVIDIA H200", "driver": "580"},
        problem_digest="d" * 64,
    )
    return replace(made, **changes)


GENERAL, ONE = record("general", [1.0, 4.0]), record("one_shape", [])


def test_the_speedup_is_the_score_at_secret_sizes() -> None:
    assert GENERAL.speedup == pytest.approx(2.0)
    row = row_of(GENERAL, "run", "eager")
    assert row["speedup"] == pytest.approx(2.0)
    assert row["speedup_low"] < 2.0 < row["speedup_high"]
    assert (row["secret_shapes"], row["shown_speedup"]) == (2, pytest.approx(4.0))
    assert row["specialisation_gap"] == pytest.approx(2.0)
    assert row_of(ONE, "run", "eager")["specialisation_gap"] is None


def test_results_with_and_without_secret_shapes_are_ranked_apart() -> None:
    rows = leaderboard([GENERAL, ONE], by=By.solution)
    assert [(row.group.secret_shapes, row.rank) for row in rows] == [(0, 1), (2, 1)]
    lines = csv_of(rows).splitlines()
    assert lines[0].endswith(",secret_shapes,specialisation_gap")
    assert lines[1].endswith(",0,")
    assert float(lines[2].rpartition(",")[2]) == pytest.approx(2.0)


def test_an_authors_gap_is_a_geometric_mean() -> None:
    other = record("other", [8.0, 8.0], problem="level1/2")
    (row,) = leaderboard([GENERAL, other], by=By.author)
    assert row.speedup == pytest.approx(4.0)
    assert row.gap == pytest.approx(1.0)


def test_the_tables_name_the_shapes() -> None:
    text = board.markdown(leaderboard([GENERAL, ONE], by=By.solution), By.solution)
    assert "workload full and 2 secret shapes" in text
    one, general = text.split("**cuda")[1:]
    assert "at the shown sizes" not in one
    assert "2.00 times as fast" in general


def test_other_sizes_are_not_compared() -> None:
    assert compare_records(GENERAL, record("general", [1.0, 4.0])).unlike == ()
    (why,) = compare_records(GENERAL, record("general", [1.0, 4.0], first_size=9)).unlike
    assert why.startswith("secret sizes: ")
    assert any(each.startswith("secret shapes: none, 2") for each in compare_records(ONE, GENERAL).unlike)


def test_the_score_is_computed_again_from_the_record() -> None:
    assert [*_faults_of_times(GENERAL)] == []
    assert [*_faults_of_times(ONE)] == []
    forged = json.loads(json.dumps(GENERAL.timing))
    forged["speedup"]["speedup"] = 3.0
    faults = [*_faults_of_times(replace(GENERAL, timing=forged, speedup=3.0))]
    assert any(fault.startswith("timing.speedup.speedup is 3.0") for fault in faults)
    forged = json.loads(json.dumps(GENERAL.timing))
    forged["shapes"]["shown"]["speedup"] = 9.0
    faults = [*_faults_of_times(replace(GENERAL, timing=forged))]
    assert any(fault.startswith("timing.shapes.shown.speedup is 9.0") for fault in faults)


def test_a_reward_pays_for_secret_sizes() -> None:
    assert reward_of(GENERAL, RewardPolicy(cautious=False)) == pytest.approx(0.3 + 0.7 * 2 / 3)
    low = (GENERAL.timing or {})["speedup"]["low"]
    assert reward_of(GENERAL) == pytest.approx(0.3 + 0.7 * low / (1 + low))


def test_feedback_lists_every_shape() -> None:
    text = feedback(GENERAL)
    assert "At secret sizes" in text
    assert "N=5: passed, 1.00x" in text
    assert "N=6: passed, 4.00x" in text
    assert "At the shown sizes it is 4.00x, 2.00 times as much" in text
    assert "At secret sizes" not in feedback(ONE)


def test_kernelbench_files_have_both_speedups(tmp_path: Path) -> None:
    export_run([GENERAL], tmp_path, file_names={"level1/1": "1_x.py"})
    (entry,) = json.loads((tmp_path / "eval_results.json").read_text())["1"]
    assert entry["metadata"]["harness_secret_shapes"] == 2
    assert entry["metadata"]["harness_speedup"] == pytest.approx(2.0)
    assert entry["metadata"]["harness_shown_speedup"] == pytest.approx(4.0)
    assert math.isclose(entry["runtime"], 1e3 * SHOWN_S, rel_tol=0.01), "KernelBench's runtime is that at its own sizes"

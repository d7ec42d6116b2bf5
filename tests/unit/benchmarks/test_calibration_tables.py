"""The tables of calibrations: what counts as within, the verdicts, and rows that are missing or cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import calibration_tables as tables


def spin(length_s: float, *, reference_s: float, solution_s: float, **changes: Any) -> dict[str, Any]:
    """An evaluation of four rounds of two calls, with twice the known order A B, B A."""
    rounds = 4
    return {
        "part": "spin",
        "length_s": length_s,
        "speedup": reference_s / solution_s,
        "low": reference_s / solution_s * 0.999,
        "high": reference_s / solution_s * 1.001,
        "floor": 0.005,
        "measured_floor": 0.002,
        "order": ["AB", "BA"] * (rounds // 2),
        "reference_samples_s": [[reference_s, reference_s]] * rounds,
        "solution_samples_s": [[solution_s, solution_s]] * rounds,
        "reference_graph_s": None,
        "solution_graph_s": None,
        "labels": [],
        "took_s": 0.5,
        **changes,
    }


def test_a_known_length_is_that_beyond_the_call_that_spins_for_none() -> None:
    zero = [spin(0.0, reference_s=5e-6, solution_s=5e-6)]
    near = [spin(20e-6, reference_s=25.1e-6, solution_s=25e-6)]

    off_s = tables.known_off_s(20e-6, near, zero)

    assert off_s == pytest.approx(0.1e-6)
    assert tables.known_off_s(20e-6, near, []) is None


def test_calls_are_held_against_those_of_their_own_lane() -> None:
    """By way of lane 5 everything takes 0.4 us less; for lane 9 no call was made that spins for none."""
    lane = {number: {"empty_call_s": {"lane": number}} for number in (0, 5, 9)}
    zero = [
        spin(0.0, reference_s=5.4e-6, solution_s=5.4e-6, **lane[0]),
        spin(0.0, reference_s=5e-6, solution_s=5e-6, **lane[5]),
    ]
    slow = spin(20e-6, reference_s=25.5e-6, solution_s=25e-6, **lane[0])
    fast = [spin(20e-6, reference_s=24.9e-6, solution_s=25e-6, **lane[5])] * 3

    assert tables.known_off_s(20e-6, [slow, *fast], zero) == pytest.approx((0.1e-6 - 3 * 0.1e-6) / 4)
    assert tables.known_off_s(20e-6, [{**slow, **lane[9]}], zero) == pytest.approx(25.5e-6 - 5.2e-6 - 20e-6)


@pytest.mark.parametrize(("beyond_s", "verdict"), [(20.29e-6, "yes"), (20.5e-6, "no")])
def test_a_short_length_may_be_off_by_0_3_us(beyond_s: float, verdict: str) -> None:
    rows = [
        spin(0.0, reference_s=5e-6, solution_s=5e-6),
        spin(20e-6, reference_s=5e-6 + beyond_s, solution_s=5e-6 + beyond_s),
    ]

    assert f"within 2 % or 0.3 us: **{verdict}**" in tables.document(rows)


@pytest.mark.parametrize(("far", "verdict"), [(5, "yes"), (6, "no")])
def test_95_of_100_twins_are_enough_and_94_are_not(far: int, verdict: str) -> None:
    rows = [spin(100e-6, reference_s=100e-6, solution_s=100e-6) for _ in range(100 - far)]
    rows += [spin(100e-6, reference_s=102e-6, solution_s=100e-6) for _ in range(far)]

    text = tables.document(rows)

    assert f"Twins: {100 - far} of 100 within 1 %: **{verdict}**" in text
    assert f"{100 - far} called" in text  # 2 % is beyond the floor of 0.5 %


def test_an_evaluation_that_failed_is_no_twin_within_1_percent() -> None:
    rows = [
        *[spin(100e-6, reference_s=100e-6, solution_s=100e-6) for _ in range(3)],
        {"part": "spin", "length_s": 100e-6, "failed": "crashed: by a signal", "took_s": 1.0},
    ]

    text = tables.document(rows)

    assert "Twins: 3 of 4 within 1 %: **no**" in text
    assert "crashed: by a signal" in text


def test_the_order_of_bursts_shows_where_the_first_takes_longer() -> None:
    row = spin(10e-6, reference_s=10e-6, solution_s=10e-6)
    first, second = 10.2e-6, 10e-6
    row["reference_samples_s"] = [[first], [second]] * 2
    row["solution_samples_s"] = [[second], [first]] * 2

    text = tables.document([row])

    assert "1.0200 AB, 0.9804 BA" in text
    assert "round by +2.00 %" in text


def test_graphs_count_where_both_sides_have_one() -> None:
    rows = [
        spin(5e-6, reference_s=10e-6, solution_s=10e-6, reference_graph_s=7.0e-6, solution_graph_s=7.01e-6),
        spin(5e-6, reference_s=10e-6, solution_s=10e-6, reference_graph_s=7.0e-6, solution_graph_s=7.5e-6),
        spin(5e-6, reference_s=10e-6, solution_s=10e-6, reference_graph_s=7.0e-6),
    ]

    assert "In a graph (calls below 50 us): 1 of 2 within 1 %." in tables.document(rows)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    rows = [
        {"part": "machine", "gpu": "NVIDIA H200", "command": "`made so`", "rate_hz": 1.98e9},
        spin(2e-6, reference_s=7e-6, solution_s=7e-6),
    ]
    path, out = tmp_path / "rows.jsonl", tmp_path / "tables.md"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"part": "spin", "length_')

    tables.main([str(path), "--out", str(out)])

    assert out.read_text().startswith("# Calibration on NVIDIA H200\n")
    assert "Twins: 1 of 1 within 1 %" in out.read_text()

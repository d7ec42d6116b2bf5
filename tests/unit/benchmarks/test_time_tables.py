"""The page on time: each part from what it is made of, and what separate runs and evaluations are held to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import bench_cost, repeat_tables, time_tables
from tests.support.paths import ROOT

RESULTS = ROOT / "results"


def run_row(run: int, speedup: float | None, *, solution_s: float = 100e-6, status: str = "passed") -> dict[str, Any]:
    return {
        "run": run,
        "workload": "full",
        "problem": "level1/40",
        "solution": "somebody/level1/40_fast.py",
        "status": status,
        "speedup": speedup,
        "low": None if speedup is None else speedup * 0.999,
        "high": None if speedup is None else speedup * 1.001,
        "reference_s": 8e-3,
        "solution_s": solution_s,
        "labels": [],
    }


class TestRepeatability:
    @pytest.mark.parametrize(
        ("solution_s", "highest", "verdict"),
        [(100e-6, 2.018, "yes"), (100e-6, 2.03, "no"), (20e-6, 2.03, "yes"), (20e-6, 2.07, "no")],
    )
    def test_short_kernels_may_differ_by_3_percent_long_ones_by_1(
        self, solution_s: float, highest: float, verdict: str
    ) -> None:
        rows = [run_row(number, 2.0, solution_s=solution_s) for number in range(1, 5)]
        rows.append(run_row(5, highest, solution_s=solution_s))

        text = repeat_tables.document(rows)

        assert f"**{verdict}**" in text
        assert text.startswith("5 runs")

    def test_a_run_in_which_it_failed_is_told(self) -> None:
        rows = [run_row(1, 2.0), run_row(2, 2.0), run_row(3, None, status="timeout")]

        assert "(and 1 timeout)" in repeat_tables.document(rows)

    def test_one_run_alone_shows_nothing(self) -> None:
        assert "largest spread" not in repeat_tables.document([run_row(1, 2.0)])


class TestCost:
    def test_what_no_stage_counts_is_told_too(self) -> None:
        record = time_tables.records_of(RESULTS / "h200-transcripts-warm")[0]

        spent = bench_cost.stages_s(record)

        assert spent["total"] == pytest.approx(sum(seconds for name, seconds in spent.items() if name != "total"))
        assert spent["other"] >= 0.0

    @pytest.mark.parametrize(("total_s", "verdict"), [(0.9, "yes"), (1.1, "no")])
    def test_ordinary_problems_are_held_to_one_second(self, total_s: float, verdict: str) -> None:
        record = next(
            held
            for held in bench_cost.timed(time_tables.records_of(RESULTS / "h200-examples"))
            if bench_cost.slower_s(held) < bench_cost.ORDINARY_BELOW_S
        )
        stages = {"prepare": 0.2, "open": 0.05, "load": 0.1, "verify": 0.1, "measure": 0.3, "total": total_s}
        record = replace(record, evidence={**record.evidence, "stages_s": stages})

        text = bench_cost.document([record])

        assert f"**{verdict}**" in text
        assert "prepare 0.20, open 0.05, load 0.10" in text

    def test_records_without_a_time_on_a_gpu_make_no_table(self) -> None:
        record = time_tables.records_of(RESULTS / "h200-examples")[0]

        assert bench_cost.document([replace(record, speedup=None)]) == ""


class TestPage:
    def test_each_part_comes_from_what_is_there(self, tmp_path: Path) -> None:
        rows = tmp_path / "repeat.jsonl"
        rows.write_text("".join(json.dumps(run_row(number, 2.0)) + "\n" for number in range(1, 6)))
        page = tmp_path / "time"

        assert time_tables.main(["--folder", str(page), "--add", str(rows)]) == 0

        text = (page / "README.md").read_text()
        assert "## Calibration" not in text
        assert "| level1/40 | somebody/level1/40_fast.py | full | 5 |" in text
        assert "| level1/40 | optimised/level1/40_chunked_samples.py | memory |" in text
        assert "## Cost of an evaluation" in text

    def test_a_page_that_says_something_else_is_found(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["--folder", str(tmp_path / "time"), "--results", str(RESULTS)]
        time_tables.main(arguments)
        assert time_tables.main([*arguments, "--check"]) == 0

        page = tmp_path / "time" / "README.md"
        page.write_text(page.read_text().replace("Time on", "Times on"))

        assert time_tables.main([*arguments, "--check"]) == 1
        assert "run without --check" in capsys.readouterr().err

    def test_rows_of_another_name_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "other.jsonl").write_text("")

        with pytest.raises(SystemExit):
            time_tables.main(["--folder", str(tmp_path), "--add", str(tmp_path / "other.jsonl")])

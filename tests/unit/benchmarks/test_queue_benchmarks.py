"""The benchmarks of contexts and of places in the GPU's queue: what they plan and show; their committed tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import bench_contexts, place_tables
from tests.benchmarks.bench_contexts import Case, Opening, Row
from tests.benchmarks.place_tables import Series, series_of
from tests.support.paths import ROOT

RESULTS = ROOT / "results"


def opened(context_s: float, *, init_s: float = 0.1) -> Opening:
    return Opening(late_s=0.0, init_s=init_s, context_s=context_s, open_s=init_s + context_s + 0.001)


class TestContexts:
    def test_on_one_gpu_nothing_is_spread_over_several(self) -> None:
        found = bench_contexts.cases(["GPU-a"], "compute-sanitizer")

        assert {gpu for case in found for gpu in case.gpus} == {"GPU-a"}
        assert [len(case.gpus) for case in found[:3]] == [1, 1, 6]

    def test_on_several_gpus_processes_go_round_them(self) -> None:
        found = bench_contexts.cases(["GPU-a", "GPU-b"], None)

        spread_out = [case.gpus for case in found if len(set(case.gpus)) > 1]
        assert spread_out == [("GPU-a", "GPU-b") * 3] * len(bench_contexts.LIMITS)

    def test_without_compute_sanitizer_there_are_no_tools(self) -> None:
        assert not any(case.tool for case in bench_contexts.cases(["GPU-a"], None))
        tools = [case.tool for case in bench_contexts.cases(["GPU-a"], "cs") if case.tool]
        assert {tool[2] for tool in tools} == set(bench_contexts.TOOLS)

    def test_under_racecheck_the_same_is_measured_with_large_pages(self) -> None:
        pages = {"LD_PRELOAD": "pages.so"}
        found = bench_contexts.cases(["GPU-a"], "cs", pages)

        with_them = [case for case in found if pages.items() <= case.variables.items()]
        without = [case for case in found if case.title == "racecheck, one queue"]
        assert [len(case.gpus) for case in with_them] == [len(case.gpus) for case in without] == [1, 1, 4]
        assert {case.tool for case in with_them} == {("cs", "--tool", "racecheck")}
        assert not [case for case in bench_contexts.cases(["GPU-a"], "cs") if "large pages" in case.title]

    def test_a_line_of_a_tool_or_an_error_is_no_opening(self) -> None:
        said = bench_contexts.OPENED + '{"late_s": 0.0, "init_s": 0.1, "context_s": 0.25, "open_s": 0.375}\n'

        assert bench_contexts.opening("========= COMPUTE-SANITIZER\n") is None
        assert bench_contexts.opening("cuInit failed: CUDA error 100\n") is None
        assert bench_contexts.opening(said) == Opening(late_s=0.0, init_s=0.1, context_s=0.25, open_s=0.375)

    def test_a_row_has_the_slowest_process_and_the_median_context(self) -> None:
        case = Case(title="as usual", gpus=("GPU-a", "GPU-b", "GPU-a"))

        row = bench_contexts.row_of(case, [opened(0.2), opened(0.5, init_s=0.3), opened(0.3)], [0.05, 0.06, 0.12])

        assert bench_contexts.line(row) == (
            "| as usual | 3 | 2 | 0.801 | 0.267 | 0.300 | 0.300 (0.200 to 0.500) | 0.060 (0.050 to 0.120) |"
        )

    def test_under_a_tool_losing_the_context_was_not_measured(self) -> None:
        case = Case(title="memcheck", gpus=("GPU-a",), tool=("compute-sanitizer", "--tool", "memcheck"))

        row = bench_contexts.row_of(case, [opened(0.4)], [0.001])

        assert row.lost_s == ()
        assert bench_contexts.line(row).endswith("| 0.400 |  |")

    def test_a_row_without_contexts_or_with_some_unlost_is_refused(self) -> None:
        for contexts_s, lost_s in (((), ()), ((0.1, 0.2), (0.1,))):
            with pytest.raises(ValueError, match="contexts, of which"):
                Row(title="x", gpus=1, open_s=0.3, init_s=0.1, contexts_s=contexts_s, lost_s=lost_s)

    def test_a_process_that_opens_no_context_ends_the_benchmark_with_what_it_said(self, tmp_path: Path) -> None:
        """It takes a file that is no library for CUDA's, so that the same happens with and without a GPU."""
        (tmp_path / "libcuda.so.1").write_bytes(b"no library")
        case = Case(title="as usual", gpus=("",) * 2, variables={"LD_LIBRARY_PATH": str(tmp_path)}, lead_s=0.0)

        with pytest.raises(SystemExit, match=r"(?s)as usual: a context was not opened: .*libcuda\.so\.1"):
            bench_contexts.measure(case)

    def test_a_lost_process_is_gone(self) -> None:
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

        assert bench_contexts.lose(process) > 0
        assert process.returncode == -9
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)

    def test_the_committed_table_is_of_all_cases(self) -> None:
        text = (RESULTS / "contexts-h200.md").read_text()
        lines = [
            line.split(" | ")
            for line in text.split("\n\n")
            if line.startswith("| contexts")
            for line in line.splitlines()[2:]
        ]
        held = [(cells[0].removeprefix("| "), int(cells[1]), int(cells[2])) for cells in lines]

        planned = bench_contexts.cases(["GPU-a", "GPU-b"], "compute-sanitizer", {"LD_PRELOAD": "pages.so"})

        assert held == [(case.title, len(case.gpus), len(set(case.gpus))) for case in planned]


class TestPlaces:
    def test_quartiles_of_calls_that_take_one_of_two_times(self) -> None:
        times_s = [12.1e-6, 12.9e-6] * 12

        series = series_of("both", times_s, launches=3, read_from=0x1000, written_to=0x20200)

        assert place_tables.line(series) == "| both | 3 | 0x1000 | 0x20200 | 12.10 | 12.50 | 12.90 | 12.50 |"

    def test_without_an_address_its_cell_is_empty(self) -> None:
        series = series_of("spin alone", [9.5e-6] * 4, launches=2, read_from=None, written_to=None)

        assert place_tables.line(series) == "| spin alone | 2 |  |  | 9.50 | 9.50 | 9.50 | 9.50 |"

    def test_what_are_no_quartiles_is_refused(self) -> None:
        with pytest.raises(ValueError, match="are no quartiles"):
            Series(
                title="x", launches=3, read_from=None, written_to=None, low_s=2.0, median_s=1.0, high_s=3.0, mean_s=2.0
            )

    def test_the_committed_table_holds_what_the_page_says(self) -> None:
        """An odd number of launches a call: both times, 0.7 us and more between the quartiles; an even one: one."""
        text = (RESULTS / "time-h200" / "queue-places.md").read_text()
        rows = [line.strip("| ").split(" | ") for line in text.splitlines() if " | 0x" in line]

        assert len(rows) == 42
        for row in rows:
            launches, low, high = int(row[1]), float(row[4]), float(row[6])
            assert (high - low > 0.7) == (launches % 2 == 1), row

"""The leaderboard as table, Markdown and CSV, from the same rows."""

from __future__ import annotations

import csv as stdlib_csv
import io
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.report import board, table, terminal
from harness.report import csv as report_csv
from harness.results.leaderboard import By, leaderboard
from harness.results.scoring import THRESHOLDS


def record(author: str, problem: str, speedup: float | None, **changes: Any) -> Record:
    base: dict[str, Any] = {
        "problem": problem,
        "author": author,
        "solution": f"{author}/{problem}_x.py",
        "device": DeviceKind.CUDA,
        "workload": "full",
        "status": Status.passed if speedup else Status.wrong_value,
        "reason": "right" if speedup else "3 of 9 values off",
        "speedup": speedup,
        "timing": {"speedup": {"low": speedup * 0.99, "high": speedup * 1.01}} if speedup else None,
        "environment": {"gpu": "NVIDIA H200", "cpu": "Xeon"},
    }
    return Record(**{**base, **changes})


RECORDS = [
    record("ann", "level1/16", 2.0),
    record("ann", "level1/19", 0.5),
    record("bob", "level1/16", 1.5),
    record("bob", "level1/19", None),
    record("eve", "level1/16", None, status=Status.disqualified, reason="times the clock can't explain"),
    record("ann", "level1/16", None, status=Status.passed, reason="right", device=DeviceKind.HOST, workload="small"),
    record("bob", "level1/16", 1.25, device=DeviceKind.HOST, workload="small"),
]


def shown(records: list[Record], by: By) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=200, markup=False, highlight=False, emoji=False, color_system=None)
    console.print(board.table(leaderboard(records, by=by), by))
    return stream.getvalue()


def rows_of(text: str) -> list[list[str]]:
    return [" ".join(line.split()).split() for line in text.splitlines() if line.strip()]


def test_authors_are_ranked_and_hosts_stand_apart() -> None:
    text = shown(RECORDS, By.author)
    gpu, host = text.split("host: Xeon")
    assert "cuda: NVIDIA H200, workload full, speedup over eager" in gpu
    assert gpu.index("bob") < gpu.index("ann") < gpu.index("eve"), "geometric means 1.5 and 1.0; eve has none"
    assert "times the clock can't explain" in gpu
    assert "no GPU times" in host
    assert "not timed" in host
    assert "1.25x" in host
    assert "1.25x" not in gpu


def test_what_is_too_noisy_to_tell_is_not_ranked_and_has_no_number() -> None:
    noisy, narrow = record("ann", "level1/19", 7.75), record("bob", "level1/19", 1.1)
    wide = {**(noisy.timing or {}), "speedup": {"speedup": 7.75, "low": 0.04, "high": 1425.0}}
    records = [replace(noisy, timing=wide), narrow]
    for by in By:
        text = shown(records, by)
        assert "7.75" not in text, by
        assert "1.10x" in text
    rows = rows_of(shown(records, By.solution))
    assert ["1", "level1/19", "bob/level1/19_x.py"] in [row[:3] for row in rows]
    assert ["-", "level1/19", "ann/level1/19_x.py"] in [row[:3] for row in rows]
    assert "too noisy to tell" in " ".join(shown(records, By.author).split())
    assert terminal.result_of(records[0]) == "correct; its speedup is too noisy to tell"


def test_problems_and_solutions_have_rows_of_their_own() -> None:
    text = shown(RECORDS, By.problem)
    assert "ann/level1/16_x.py" in text
    assert "2.00x (1.98 to 2.02)" in text
    text = shown(RECORDS, By.solution)
    assert "disqualified" in text
    assert ["1", "level1/16", "ann/level1/16_x.py"] in [row[:3] for row in rows_of(text)]
    assert ["-", "level1/16", "eve/level1/16_x.py"] in [row[:3] for row in rows_of(text)]


def test_no_records_are_said_to_be_none() -> None:
    assert "no records" in shown([], By.author)
    assert "no records" in board.markdown([], By.author)


def test_a_long_board_is_cut_on_the_terminal_only() -> None:
    many = [record(f"a{n}", "level1/16", 1.0 + n) for n in range(board.MAX_ROWS + 5)]
    assert "5 more rows: harness leaderboard --by author with --csv or --json shows all" in shown(many, By.author)
    assert f"a{board.MAX_ROWS + 4}" in board.markdown(leaderboard(many), By.author)


@pytest.mark.parametrize("by", list(By))
def test_the_csv_has_the_columns_it_promises(by: By) -> None:
    rows = leaderboard(RECORDS, by=by)
    text = report_csv.leaderboard(rows)
    read = list(stdlib_csv.DictReader(io.StringIO(text)))
    assert tuple(read[0]) == report_csv.COLUMNS
    assert len(read) == len(rows)
    for row, cells in zip(rows, read, strict=True):
        assert set(row.to_json()) == set(report_csv.COLUMNS)
        for name, held in row.to_json().items():
            if held is None:
                assert cells[name] == ""
            elif isinstance(held, float):
                assert float(cells[name]) == held
            else:
                assert cells[name] == str(held)


def test_the_columns_are_these() -> None:
    assert ",".join(report_csv.COLUMNS) == (
        "device,processor,workload,baseline,rank,author,problem,solution,status,speedup,speedup_low,speedup_high,"
        "sol_fraction,results,passed,untimed,disqualified,unjudged,fast_0,fast_0.5,fast_0.8,fast_1,fast_1.5,fast_2,reason,"
        "precision,same_within,driver,display_name,model,kernelbench_rules,"
        "backward_s,reference_backward_s,held_bytes,reference_held_bytes,"
        "secret_shapes,specialisation_gap"
    )
    assert [name for name in report_csv.COLUMNS if name.startswith("fast_")] == [f"fast_{p:g}" for p in THRESHOLDS]


HOSTILE = '\x1b[31m=cmd|"/c calc"!A1\u202e, "[x](http://e.x)" <script>alert(1)</script> @all `x` ![i](//e.x) | * _'


@pytest.mark.parametrize("begins", [" =", "\u00a0+", "\uff1d", " \uff20"])
def test_blanks_and_full_widths_make_no_formula_either(begins: str) -> None:
    row = record("ann", "level1/1", None, status=Status.disqualified, reason=f"{begins}1+1")
    held = list(stdlib_csv.DictReader(io.StringIO(report_csv.leaderboard(leaderboard([row], by=By.author)))))
    assert held[-1]["reason"] == f"'{begins}1+1"


@pytest.mark.parametrize("by", list(By))
def test_hostile_names_act_in_no_form(by: By) -> None:
    bad = record(HOSTILE, "=1+1", 2.0, solution="=" + HOSTILE, reason="-1+1")
    cheat = record(HOSTILE, "=1+1", None, status=Status.disqualified, solution="+x", reason=HOSTILE)
    rows = leaderboard([bad, cheat], by=by)
    (head, *lines) = list(stdlib_csv.reader(io.StringIO(report_csv.leaderboard(rows))))
    assert len(lines) == len(rows)
    assert all(len(cells) == len(head) for cells in lines)
    assert not [cell for cells in lines for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    marked = board.markdown(rows, by)
    assert "<script>" not in marked
    assert "@all" not in marked
    assert "http://" not in marked
    cells = {line.replace("\\|", "").count("|") for line in marked.splitlines() if line.startswith("|")}
    assert len(cells) == 1, "every row has as many cells as the head"
    for text in (report_csv.leaderboard(rows), marked, shown([bad, cheat], by)):
        assert not {char for char in text if unicodedata.category(char) in ("Cc", "Cf")} - {"\n"}


def test_markdown_is_a_table_for_each_group() -> None:
    text = board.markdown(leaderboard(RECORDS), By.author)
    assert sum(line.startswith("| --- |") for line in text.splitlines()) == 2
    assert text.startswith("**cuda: NVIDIA H200")


def test_names_of_hosts_are_no_links() -> None:
    assert table.escape_markdown("see www.example.com") == "see www&#46;example.com"
    assert table.escape_markdown("WWW.example.com, awww. well") == "WWW&#46;example.com, awww. well"

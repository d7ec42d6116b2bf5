"""Records as a DataFrame, and leaderboards as Parquet files."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pandas
import pytest

from harness import load_records
from harness.cli import main
from harness.core.record import Record
from harness.report.csv import COLUMNS
from harness.results.frame import parquet_of
from harness.results.leaderboard import By, leaderboard
from harness.results.reader import DamagedRecord, StoreError, read_records
from harness.results.scoring import entries_of
from tests.support.paths import ROOT

RUN = ROOT / "results" / "h200-examples"
RECORDS = read_records(RUN)[0]


def test_a_row_has_the_values_of_its_record() -> None:
    frame = load_records(RUN)
    assert list(frame.solution) == [record.solution for record in RECORDS]
    for row, entry in zip(frame.to_dict("records"), entries_of(RECORDS), strict=True):
        got = [None if pandas.isna(row[name]) else row[name] for name in ("speedup", "speedup_low", "counted_speedup")]
        assert got == [entry.speedup, entry.low, entry.counted]
        assert (row["status"], row["labels"], row["processor"]) == (entry.status, entry.labels, entry.group.processor)
    assert frame.solution_s.notna().sum() == frame.speedup.notna().sum()


def test_the_columns_and_dtypes_are_the_documented_ones() -> None:
    frame = load_records([RUN])
    rows = [line.split("|")[1:3] for line in (load_records.__doc__ or "").splitlines() if line.startswith("    | `")]
    documented = {}
    for names, dtypes in rows:
        each = dtypes.strip().split(", ") if "[" not in dtypes else [dtypes.strip()]
        columns = [name.strip(" `") for name in names.split(",")]
        documented |= dict(zip(columns, each * len(columns), strict=False))
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == documented
    guide = (ROOT / "harness/guides/results.md").read_text()
    assert [name for name in documented if f"`{name}`" not in guide] == []


def test_nested_values_are_columns_on_demand(tmp_path: Path) -> None:
    frame = load_records(RUN, nested=["timing", "environment"])
    medians = [((record.timing or {}).get("solution") or {}).get("device", {}).get("median_s") for record in RECORDS]
    got = frame["timing.solution.device.median_s"]
    assert [None if pandas.isna(value) else value for value in got] == medians
    assert "environment.torch" in frame
    with pytest.raises(ValueError, match="nested takes evidence, timing, build, environment, not log"):
        load_records(RUN, nested=["log"])


def test_several_runs_and_one_baseline() -> None:
    frame = load_records(ROOT / "results", baseline="compile")
    assert set(frame.run) >= {"h200", "h200-examples"}
    assert set(frame.baseline) == {"compile"}


def test_no_records_give_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("format: 1\n")
    frame = load_records(tmp_path)
    assert len(frame) == 0
    assert list(map(str, frame.dtypes)) == list(map(str, load_records(RUN).dtypes))


def test_errors_are_those_of_the_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing: no such folder"):
        load_records(tmp_path / "missing")
    with pytest.raises(StoreError, match=r"holds no run: the folder of a run has run\.yaml or records\.jsonl"):
        load_records([RUN, tmp_path])
    path = tmp_path / "records.jsonl"
    line = json.dumps(RECORDS[0].to_json())
    path.write_text(f"{line}\n{{\n{line}\n")
    with pytest.warns(DamagedRecord, match=r"records\.jsonl:2: not JSON"):
        assert len(load_records(tmp_path)) == 1  # the line before and the line after are one record
    path.write_text(f"{line}\n{line[:40]}")
    frame = load_records(tmp_path)
    assert len(frame) == 1
    assert frame.attrs["notes"] == [f"{tmp_path}: the last line was cut short (40 bytes) and is ignored"]


def test_a_parquet_file_has_the_rows_of_the_csv_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed; `pip install -e .[parquet]` makes this run")
    target = tmp_path / "board.parquet"
    assert main(["leaderboard", str(RUN), "--by", "solution", "--parquet", str(target)]) == 0
    assert f"25 rows written to {target}" in capsys.readouterr().err
    frame = pandas.read_parquet(target)
    rows = leaderboard(RECORDS, by=By.solution)
    assert tuple(frame.columns) == COLUMNS
    got = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert got == [row.to_json() for row in rows]


def test_texts_that_are_no_unicode_are_escaped() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed; `pip install -e .[parquet]` makes this run")
    odd = Record.from_json({**RECORDS[0].to_json(), "author": "a\ud800", "reason": "=1+1 \ud800"})
    frame = pandas.read_parquet(io.BytesIO(parquet_of(leaderboard([odd], by=By.solution))))
    assert (frame.author[0], frame.reason[0]) == ("a\\ud800", "=1+1 \\ud800")


def test_without_pyarrow_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["leaderboard", str(RUN), "--parquet", str(tmp_path / "board.parquet")]) == 3
    assert "pip install 'kernel-harness[parquet]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

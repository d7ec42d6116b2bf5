"""Records as Arrow tables, polars frames and Parquet files: the same values as `load_records`, from parts of files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

import harness
from harness.cli import main
from harness.results import columns
from harness.results.frame import MissingParquet
from harness.results.reader import DamagedRecord, StoreError
from tests.support.paths import ROOT

pytest.importorskip("pyarrow")
import pyarrow.parquet

EXAMPLES = ROOT / "results" / "h200-examples"


def values_of(frame: object) -> dict[str, list[object]]:
    """A DataFrame's values as Python's, by column."""
    import pandas

    assert isinstance(frame, pandas.DataFrame)
    return {name: [None if item is pandas.NA or item is pandas.NaT else item for item in frame[name]] for name in frame}


def test_the_columns_hold_what_load_records_holds(tmp_path: Path) -> None:
    runs = [EXAMPLES, ROOT / "results" / "h200-transcripts-warm"]
    table = harness.to_arrow(runs, nested=["timing"])
    rows, notes = columns.write_parquet(runs, tmp_path / "all.parquet", nested=["timing"])
    assert (rows, notes) == (table.num_rows, [])
    written = pyarrow.parquet.read_table(tmp_path / "all.parquet").sort_by([("run", "ascending")])
    expected = values_of(harness.load_records(runs))
    timing = [json.loads(item) if item else None for item in table.column("timing").to_pylist()]
    assert [(item or {}).get("solution") is not None for item in timing] == [
        item is not None for item in expected["solution_s"]
    ]
    for name, values in expected.items():
        loaded = [tuple(item) if isinstance(item, list) else item for item in table.column(name).to_pylist()]
        assert loaded == values, name
        assert sorted(map(str, written.column(name).to_pylist())) == sorted(map(str, table.column(name).to_pylist()))
    assert harness.to_polars(runs).shape == (table.num_rows, table.num_columns - 1)
    assert [item.name for item in tmp_path.iterdir()] == ["all.parquet"]


def run_of(folder: Path, lines: list[bytes]) -> Path:
    folder.mkdir()
    (folder / "records.jsonl").write_bytes(b"".join(lines))
    return folder


@pytest.mark.parametrize("processes", [1, 2])
def test_parts_of_a_file_are_its_lines(tmp_path: Path, processes: int) -> None:
    """Whatever the size of a part, each line counts once, the last of an identity, and faults have their numbers."""
    whole = (EXAMPLES / "records.jsonl").read_bytes().splitlines(keepends=True)[:8]
    again = json.loads(whole[2]) | {"wall_s": 12345.0}
    lines = [*whole[:4], b"{]\n", b"\n", *whole[4:], b"\xff\n", json.dumps(again).encode() + b"\n", whole[0][:100]]
    folder = run_of(tmp_path / "run", lines)
    for size in (700, 9_000, 16 << 20):
        with (
            patch.object(columns, "PART_BYTES", size),
            pytest.warns(DamagedRecord) as damage,
        ):
            rows, notes = columns.write_parquet(folder, tmp_path / "out.parquet", processes=processes)
        assert (rows, len(notes)) == (8, 1)
        assert "cut short" in notes[0]
        found = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
        assert {item["solution"] for item in found} == {json.loads(line)["solution"] for line in whole}
        assert [item["solution"] for item in found if item["wall_s"] == 12345.0] == [again["solution"]]
        told = [str(item.message) for item in damage]
        assert [text.split(": ")[0].rpartition(":")[2] for text in told] == ["5", "11"]


def test_a_newer_record_and_wrong_names_are_refused(tmp_path: Path) -> None:
    newer = json.loads((EXAMPLES / "records.jsonl").read_bytes().splitlines()[0]) | {"format": 99}
    folder = run_of(tmp_path / "run", [json.dumps(newer).encode() + b"\n"])
    with pytest.raises(StoreError, match="update the harness"):
        columns.write_parquet(folder, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(ValueError, match="nested takes"):
        harness.to_arrow(folder, nested=["times"])
    with pytest.raises(StoreError, match="holds no run"):
        harness.to_arrow(ROOT / "tests")


def test_missing_packages_are_named(tmp_path: Path) -> None:
    with patch.dict(sys.modules, {"pyarrow.parquet": None}), pytest.raises(MissingParquet, match=r"\[parquet\]"):
        harness.to_arrow(EXAMPLES)
    with patch.dict(sys.modules, {"polars": None}), pytest.raises(columns.MissingPolars, match=r"\[polars\]"):
        harness.to_polars(EXAMPLES)


def test_the_command_writes_a_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sub" / "records.parquet"
    assert main(["export", "parquet", str(EXAMPLES), "--out", str(out), "--nested", "build", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"file": str(out), "rows": 25, "notes": []}
    assert pyarrow.parquet.read_schema(out).names[-1] == "build"
    for arguments, message in (
        (["--out", str(out)], "it exists; name another file, or pass --force"),
        (["--out", str(tmp_path)], "it is a folder"),
        (["--out", str(out), "--force", "--nested", "log"], "--nested must be"),
        (["--out", str(EXAMPLES / "run.yaml" / "x")], "can't be written"),
    ):
        assert main(["export", "parquet", str(EXAMPLES), *arguments]) == 2
        assert message in capsys.readouterr().err
    assert main(["export", "parquet", str(EXAMPLES), "--out", str(out), "--force"]) == 0
    assert main(["export", "parquet", str(tmp_path / "none"), "--out", str(tmp_path / "x.parquet")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert not (tmp_path / "x.parquet").exists()


def test_the_schema_is_printed_and_records_follow_it(capsys: pytest.CaptureFixture[str]) -> None:
    from jsonschema import Draft202012Validator

    assert main(["export", "schema"]) == 0
    validator = Draft202012Validator(json.loads(capsys.readouterr().out))
    for line in (EXAMPLES / "records.jsonl").read_text().splitlines():
        validator.validate(json.loads(line))
    assert main(["export", "schema", "run"]) == 0
    assert "RunHead" in json.loads(capsys.readouterr().out)["$defs"]
    assert main(["export", "schema", "rows"]) == 2
    assert "record" in capsys.readouterr().err

"""Runs as they are read: which folders are runs, and what files that somebody edited are told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.results.reader import (
    DamagedRecord,
    StoreError,
    find_runs,
    is_run,
    latest_run,
    log_name,
    new_run_id,
    read_head,
    read_records,
)

RECORD: dict[str, Any] = {
    "format": 1,
    "problem": "level1/16",
    "author": "a",
    "solution": "a/level1/16_x.py",
    "device": "host",
    "workload": "small",
    "status": "wrong_value",
    "reason": "off by one",
}


def run(folder: Path, *records: dict[str, Any], head: str = "format: 1\n") -> Path:
    folder.mkdir()
    (folder / "records.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))
    (folder / "run.yaml").write_text(head)
    return folder


def test_records_notes_and_how_far_the_file_is_good(tmp_path: Path) -> None:
    folder = run(tmp_path / "r", RECORD, RECORD | {"solution": "b.py"})
    path = folder / "records.jsonl"
    whole = path.read_bytes()
    records, notes, good_bytes = read_records(folder)
    assert [item.solution for item in records] == ["a/level1/16_x.py", "b.py"]
    assert (notes, good_bytes) == ([], len(whole))
    path.write_bytes(whole + whole[:20])
    records, notes, good_bytes = read_records(folder)
    assert len(records) == 2
    assert notes == ["the last line was cut short (20 bytes) and is ignored"]
    assert good_bytes == len(whole)


def test_a_run_may_lack_either_of_its_files(tmp_path: Path) -> None:
    folder = run(tmp_path / "r", RECORD)
    (folder / "run.yaml").unlink()
    assert read_head(folder) == {}
    assert is_run(folder)
    (folder / "records.jsonl").unlink()
    assert read_records(folder) == ([], [], 0)
    assert not is_run(folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"problem": 5},
        {"reason": 5},
        {"finished_at": 5},
        {"sample": "x"},
        {"speedup": "fast"},
        {"evidence": [1]},
        {"environment": []},
        {"timing": [1]},
        {"build": "x"},
        {"labels": "passed"},
        {"labels": [{}]},
        {"wall_s": {}},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_kind_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = run(tmp_path / "r", RECORD | wrong)
    with pytest.warns(DamagedRecord, match=f"records.jsonl:1: `{next(iter(wrong))}` must be .*; fix or remove it"):
        assert read_records(folder)[0] == []


def repeated(line: str) -> str:
    return "".join(line.replace("{i}", str(i)).replace("{j}", str(i - 1)) for i in range(1, 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 3000, "can't be read"),
        ("- a\n", "must hold `key: value` lines"),
        ("format: 7\n", "format 7; this harness reads 1 to 1"),
        ("format: one\n", "format 'one'; this harness reads 1 to 1"),
        ("format: 1\nconfig: &a\n  b: [*a]\n", "a value that contains itself"),
        ("a0: &a0 [1, 2, 3]\n" + repeated("a{i}: &a{i} [*a{j}, *a{j}, *a{j}]\n"), "when aliases are expanded"),
        ("a0: &a0 {b: 1, c: 2}\n" + repeated("a{i}: &a{i} {<<: [*a{j}, *a{j}, *a{j}]}\n"), "more than 100000 keys"),
    ],
    ids=["deep", "list", "newer", "word", "cycle", "aliases", "merges"],
)
def test_a_run_yaml_that_can_not_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    folder = run(tmp_path / "r", head=text)
    with pytest.raises(StoreError) as caught:
        read_head(folder)
    assert str(caught.value).startswith(f"{folder / 'run.yaml'}: ")
    assert said in str(caught.value)


def test_runs_are_found_and_the_latest_is_the_one_started_last(tmp_path: Path) -> None:
    assert latest_run(tmp_path) is None
    assert latest_run(tmp_path / "gone") is None
    for name, started in (("b", "2026-01-01"), ("a", "2026-01-02")):
        run(tmp_path / name, head=f"format: 1\nstarted_at: '{started}'\n")
    (tmp_path / "no-run").mkdir()
    assert find_runs(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert find_runs(tmp_path / "a") == [tmp_path / "a"]
    assert latest_run(tmp_path) == tmp_path / "a"
    run(tmp_path / "merged", head="format: 1\nstarted_at: '2026-01-03'\nmerged_from: []\n")
    run(tmp_path / "imported", head="format: 1\nstarted_at: '2026-01-03'\nconfig: {imported_from: kernelbench}\n")
    assert latest_run(tmp_path) == tmp_path / "a", "the others were never begun by an evaluation"
    assert not is_run(tmp_path)


def test_run_ids_differ_and_sort_by_time() -> None:
    ids = {new_run_id() for _ in range(50)}
    assert len(ids) > 45
    assert all(len(item) == len("20260131-235959-1f9c") for item in ids)


@given(st.text(min_size=1))
def test_a_log_name_is_one_safe_file_name(label: str) -> None:
    name = log_name(label)
    assert os.path.basename(name) == name
    assert name.isascii()
    assert not name.startswith((".", "-"))
    assert len(name) < 200


def test_labels_that_look_alike_have_logs_of_their_own() -> None:
    assert log_name("a/level1/16_x.py") != log_name("a_level1/16_x.py")
    assert log_name("a/level1/16_x.py").startswith("a_level1_16_x-")

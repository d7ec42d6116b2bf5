"""The committed JSON Schemas are those of the code; committed records and runs follow them; wrong records do not."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.core.record import Record
from harness.core.yaml_file import parse_yaml
from harness.results.schema import FOLDER, SCHEMAS
from tests.support.paths import ROOT

RUNS = sorted(path.parent for path in (ROOT / "results").rglob("records.jsonl"))
LINES = [(run.name, line) for run in RUNS for line in (run / "records.jsonl").read_text(encoding="utf-8").splitlines()]


@cache
def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(json.loads((FOLDER / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_committed_schema_is_that_of_the_code(name: str) -> None:
    text = json.dumps(SCHEMAS[name](), indent=2) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        (FOLDER / name).write_text(text, encoding="utf-8")
    assert (FOLDER / name).read_text(encoding="utf-8") == text
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_every_committed_record_follows_the_schema_and_is_read() -> None:
    assert len(LINES) > 100
    for run, line in LINES:
        errors = [f"{run}: {error.message}" for error in validator("record.json").iter_errors(json.loads(line))]
        assert errors == []
        assert Record.from_json(json.loads(line)).to_json() == json.loads(line)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_committed_run_follows_the_schema(run: Path) -> None:
    head = parse_yaml((run / "run.yaml").read_text(encoding="utf-8"))
    assert [error.message for error in validator("run.json").iter_errors(head)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": 2},
        {"format": 0},
        {"problem": ""},
        {"reason": "two\nlines"},
        {"reason": " "},
        {"device": "tpu"},
        {"status": "wrong_value", "speedup": 2.0},
        {"speedup": -1.0},
        {"timing": None, "speedup": 2.0},
        {"labels": [3]},
        {"sample": True},
        {"unknown": 1},
    ],
    ids=str,
)
def test_what_is_no_record_follows_neither_schema_nor_code(wrong: dict[str, Any]) -> None:
    passed = next(value for _, line in LINES if (value := json.loads(line))["speedup"] is not None)
    assert validator("record.json").is_valid(passed)
    assert not validator("record.json").is_valid(passed | wrong)
    with pytest.raises(ValueError, match=r"`|format|reason|speedup|record"):
        Record.from_json(passed | wrong)

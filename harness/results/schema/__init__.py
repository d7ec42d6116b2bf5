"""JSON Schemas of a record (`record.json`) and of `run.yaml` (`run.json`).

They are made from the declarations of both.

Trusted side. `UPDATE_GOLDEN=1 pytest tests/unit/results/test_schema.py` writes the files again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Required, TypedDict

import msgspec

from harness.core.config import KEYS, TIMING_KEYS, RunConfig
from harness.core.record import RECORD_FORMAT, RUN_FORMAT, Record

FOLDER = Path(__file__).parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class RunHead(TypedDict, total=False):
    """Content of `run.yaml`. `config` of a merged or imported run has other keys."""

    format: Required[int]
    run_id: str
    started_at: str
    solutions: int
    config: RunConfig
    environment: dict[str, Any]
    authors: dict[str, dict[str, str | None]]
    resumed_at: list[str]
    resumed_with: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    merged_from: list[Any]


def record_schema() -> dict[str, Any]:
    """Return the schema of a line of `records.jsonl`, with the rules of `Record`."""
    schema, named = _schema(Record)
    record = named["Record"]
    record["additionalProperties"] = False
    record["properties"]["format"] = {"type": "integer", "minimum": 1, "maximum": RECORD_FORMAT}
    record["required"].append("format")
    record["properties"]["reason"] |= {"pattern": r"^[^\n]*\S[^\n]*$"}
    for name in ("problem", "author", "solution"):
        record["properties"][name]["minLength"] = 1
    record["if"] = {"properties": {"speedup": {"type": "number"}}, "required": ["speedup"]}
    passed = {"status": {"const": "passed"}, "timing": {"type": "object"}, "speedup": {"exclusiveMinimum": 0}}
    record["then"] = {"properties": passed, "required": ["timing"]}
    return schema


def run_schema() -> dict[str, Any]:
    """Return the schema of `run.yaml`, with the help of each setting."""
    schema, named = _schema(RunHead)
    named["RunHead"]["properties"]["format"] = {"type": "integer", "minimum": 1, "maximum": RUN_FORMAT}
    for kind, settings in (("RunConfig", KEYS), ("TimingConfig", TIMING_KEYS)):
        named[kind]["required"] = []  # earlier formats have fewer settings
        for name, declared in settings.items():
            named[kind]["properties"][name]["description"] = declared.help
    return schema


def _schema(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a type's schema, and its definitions by name."""
    (reference,), named = msgspec.json.schema_components([kind], schema_hook=lambda _: {"type": "string"})
    for item in named.values():
        item["description"] = str(item.get("description", "")).partition("\n")[0]  # the first line of a docstring
    return {"$schema": DIALECT, **reference, "$defs": named}, named


SCHEMAS = {"record.json": record_schema, "run.json": run_schema}
"""File -> function that makes its content."""

"""Runs on disk, as they are read: which folders are runs, what their records and their `run.yaml` say, and whether that
can be. `harness.results.writer` writes them and describes the format.

Imports the vocabulary and `texts`; trusted side. Any file may have been edited by anybody: what is wrong is named by
its line, and numbers that JSON or float64 does not have are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import yaml

from harness.core.record import RECORD_FORMAT, RUN_FORMAT, Record
from harness.core.yaml_file import NotText, as_text, fault_of_yaml, parse_yaml, reason_of

Identity = tuple[str, str, str, str]


class StoreError(Exception):
    """A results folder can't be read, or can't be written as asked. The message names it and what to do."""


class StoreUnavailable(StoreError):
    """The machine can't write results (any more): the disk is full, read-only or broken. Not the call's fault."""


def new_run_id(now: datetime | None = None) -> str:
    """A run id that sorts by time (UTC) and does not collide: `20260131-235959-1f9c`."""
    return f"{now or datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def timestamp() -> str:
    """Now, UTC, ISO 8601, to the second: the form of every time in the results."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run's: it holds `records.jsonl` or `run.yaml`."""
    return (folder / "records.jsonl").is_file() or (folder / "run.yaml").is_file()


def find_runs(path: Path) -> list[Path]:
    """`path` itself where it is a run, else the runs directly below it, by name; empty where there are
    none.
    """
    if is_run(path):
        return [path]
    return sorted(item for item in path.iterdir() if item.is_dir() and is_run(item)) if path.is_dir() else []


def latest_run(out: Path) -> Path | None:
    """The run below `out` that was started last, or None. Those made of others' results (merged, imported) were begun
    by no evaluation, and none continues them unless it is told to.
    """
    heads = [(read_head(item), item) for item in find_runs(out) if item != out]
    runs = [(str(head.get("started_at", "")), item) for head, item in heads if not _made_of_others(head)]
    return max(runs)[1] if runs else None


def _made_of_others(head: Mapping[str, Any]) -> bool:
    config = head.get("config")
    return "merged_from" in head or (isinstance(config, dict) and "imported_from" in config)


def log_name(label: str) -> str:
    """A file name for the log of the solution called `label`: readable, safe, and distinct for distinct
    labels.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", label.removesuffix(".py")).strip("._-")[-80:] or "solution"
    return f"{readable}-{hashlib.sha256(label.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}.log"


def read_records(folder: Path) -> tuple[list[Record], list[str], int]:
    """Records, notes, and how many bytes of the file are good. Only a last line without its newline may be bad: a
    kill cut it short. Any other was whole once, and what it held is the user's to mend; empty ones, which editors leave
    behind, are passed over. Raises `StoreError`.
    """
    path = folder / "records.jsonl"
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror or error}") from error
    records: list[Record] = []
    start = 0
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        if not line.strip():
            start += len(line)
            continue
        try:
            # As text: of bytes, Python would take UTF-16 for meant, and speak of that where they are none of any.
            value = json.loads(as_text(line), parse_constant=_no_constant, parse_float=_finite, parse_int=_whole)
        except (ValueError, RecursionError) as error:
            if not line.endswith(b"\n"):
                return records, [f"the last line was cut short ({len(line)} bytes) and is left out"], start
            wrong = f"byte {error.byte} of it is not UTF-8" if isinstance(error, NotText) else f"not JSON: {error}"
            raise StoreError(f"{path}:{number}: {wrong}; {_MEND_LINE}") from error
        try:
            if not isinstance(value, dict):
                raise ValueError("a record is a JSON object")
            if isinstance(version := value.get("format"), int) and version > RECORD_FORMAT:
                newer = f"record format {version}; this harness reads 1 to {RECORD_FORMAT}: update the harness"
                raise StoreError(f"{path}:{number}: {newer}, or take that line out")
            records.append(Record.from_json(value))
        except ValueError as error:
            raise StoreError(f"{path}:{number}: {error}; {_MEND_LINE}") from error
        start += len(line)
    return records, [], start


_MEND_LINE = "mend that line or take it out"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    """A number with a point or an exponent; one beyond float64, which would become infinity, is an error."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text:.30} is out of range")
    return value


def _whole(text: str) -> int:
    """A whole number; one that no float64 could hold is an error, since means and quotients are made of it."""
    if abs(value := int(text)) > sys.float_info.max:
        raise ValueError(f"{text:.30} is out of range")
    return value


def read_head(folder: Path) -> dict[str, Any]:
    """What `run.yaml` holds; empty where there is none. Raises `StoreError`."""
    path = folder / "run.yaml"
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        raise StoreError(f"{path}: can't be read: {fault_of_yaml(error)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: can't be read: {' '.join(reason_of(error).split())}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path}: must hold `key: value` lines")
    version = value.get("format", RUN_FORMAT)
    if not isinstance(version, int) or not 1 <= version <= RUN_FORMAT:
        raise StoreError(f"{path}: format {version!r}; this harness reads 1 to {RUN_FORMAT}: update the harness")
    return value

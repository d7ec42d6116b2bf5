"""Read runs from disk: which folders are runs, their records and `run.yaml`.

Trusted side. `harness.results.writer` describes the format. Files may have been edited: an error names the line, and
numbers beyond JSON or float64 are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, overload

import msgspec
import yaml

from harness.core.record import RECORD_FORMAT, RUN_FORMAT, Record
from harness.core.yaml_file import NotText, as_text, fault_of_yaml, parse_yaml, reason_of

Identity = tuple[str, str, str, str]

_BLOCK = 150
"""Bytes; 300 digits, fewer than an integer beyond float64 has, cover a whole block."""


class StoreError(Exception):
    """A results folder can't be read, or can't be written as requested.

    The message names the folder and the remedy.
    """


class DamagedRecord(UserWarning):
    """A line of `records.jsonl` is no record; the others are read."""


class NotJson(ValueError):
    """A line of `records.jsonl` is not JSON."""


class NewerFormat(ValueError):
    """A newer harness wrote this record."""


class StoreUnavailable(StoreError):
    """The machine can't write results: the disk is full, read-only or broken.

    The call is not at fault.
    """


def new_run_id(now: datetime | None = None) -> str:
    """Return a unique run id that sorts by time (UTC): `20260131-235959-1f9c`."""
    return f"{now or datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def timestamp() -> str:
    """Return the current time in UTC, ISO 8601, to the second.

    All times in results have this form.
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_run(folder: Path) -> bool:
    """Return whether `folder` is a run: it holds `records.jsonl` or `run.yaml`."""
    return (folder / "records.jsonl").is_file() or (folder / "run.yaml").is_file()


def find_runs(path: Path) -> list[Path]:
    """Return `path` if it is a run, else the runs directly below it, by name."""
    if is_run(path):
        return [path]
    return sorted(item for item in path.iterdir() if item.is_dir() and is_run(item)) if path.is_dir() else []


def latest_run(out: Path, *, besides: Path | None = None) -> Path | None:
    """Return the run below `out` that started last, except `besides`, or None.

    Merged and imported runs do not count: no evaluation started them, so none continues them by default.
    """
    heads = [(read_head(item), item) for item in find_runs(out) if item not in (out, besides)]
    runs = [(str(head.get("started_at", "")), item) for head, item in heads if not _made_of_others(head)]
    return max(runs)[1] if runs else None


def _made_of_others(head: Mapping[str, Any]) -> bool:
    config = head.get("config")
    return "merged_from" in head or (isinstance(config, dict) and "imported_from" in config)


def log_name(label: str) -> str:
    """Return a readable, safe and unique file name for the log of this solution."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", label.removesuffix(".py")).strip("._-")[-80:] or "solution"
    return f"{readable}-{hashlib.sha256(label.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}.log"


class RecordLines(Sequence[Record]):
    """The records of a run, parsed from disk whenever they are iterated.

    So they take no memory, however many there are. A damaged line is skipped with the warning `DamagedRecord`. A last
    one without a newline is no damage: a kill truncated it. Empty lines are ignored.

    Args:
        folder: The run's folder.
        start: Where the first line begins in `records.jsonl`, in bytes.
        end: Where the last line ends; None for all lines that the file has when it is read.

    Raises:
        StoreError: During iteration: the file is unreadable, or a record has a newer format.
    """

    def __init__(self, folder: Path, *, start: int = 0, end: int | None = None) -> None:
        self._path = folder / "records.jsonl"
        self._start, self._end = start, end
        self._length: int | None = None
        self.notes: list[str] = []
        """Notes for the user; complete after an iteration."""
        self.good_bytes = start
        """Where the valid part of the file ends; known after an iteration."""

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(1 for _ in self)
        return self._length

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Record]:
        self.notes, self.good_bytes = [], self._start
        number = 0
        for line in self._lines():
            number += 1
            if not line.strip():
                self.good_bytes += len(line)
                continue
            try:
                record = parse_line(line)
            except NewerFormat as error:
                raise StoreError(f"{self._path}:{number}: {error}, or remove this line") from error
            except ValueError as error:
                if isinstance(error, NotJson) and not line.endswith(b"\n"):
                    self.notes = [cut_short(line)]
                    return
                _skip(f"{self._path}:{number}: {error}")
            else:
                yield record
            self.good_bytes += len(line)

    def newest(self) -> Iterator[Record]:
        """Yield the records that count: the last one of each identity."""
        last = {record.identity: number for number, record in enumerate(self)}
        yield from (record for number, record in enumerate(self) if last.get(record.identity) == number)

    def _lines(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as stream:
                begin = stream.seek(self._start)
                for text in stream:
                    if self._end is not None and begin >= self._end:
                        return
                    begin += len(text)
                    yield from text.splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self._path}: can't be read: {error.strerror or error}") from error


def read_records(folder: Path) -> tuple[list[Record], list[str], int]:
    """Read the records of a run, as `RecordLines`.

    Args:
        folder: The run's folder.

    Returns:
        The records, notes for the user, and the length of the file's valid part in bytes.

    Raises:
        StoreError: The file is unreadable, or a record has a newer format.
    """
    lines = RecordLines(folder)
    return list(iter(lines)), lines.notes, lines.good_bytes


def parse_line(line: bytes) -> Record:
    """Parse one line of `records.jsonl`.

    Raises:
        NotJson: The line is not JSON, not UTF-8, or has a number beyond float64.
        NewerFormat: A newer harness wrote the record.
        ValueError: The JSON value is no record.
    """
    try:
        # Faster than JSON's own module. It refuses more, but for integers beyond float64.
        value = _json_value(line) if _has_long_number(line) else msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        value = _json_value(line)
    if not isinstance(value, dict):
        raise ValueError("a record must be a JSON object")
    if isinstance(version := value.get("format"), int) and version > RECORD_FORMAT:
        raise NewerFormat(f"record format {version}; this harness reads 1 to {RECORD_FORMAT}: update the harness")
    return Record.from_json(value)


def _has_long_number(line: bytes) -> bool:
    return any(line[start : start + _BLOCK].isdigit() for start in range(0, len(line), _BLOCK))


def _json_value(line: bytes) -> Any:
    try:
        # As text: from bytes, Python would guess UTF-16 and report misleading errors.
        return json.loads(as_text(line), parse_constant=_no_constant, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        wrong = f"byte {error.byte} is not UTF-8" if isinstance(error, NotText) else f"not JSON: {error}"
        raise NotJson(wrong) from error


def cut_short(line: bytes) -> str:
    """Return the note on a last line that a kill truncated."""
    return f"the last line was cut short ({len(line)} bytes) and is ignored"


def _skip(fault: str) -> None:
    warnings.warn(f"{fault}; the line is skipped; fix or remove it", DamagedRecord, stacklevel=3)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    """Parse a float; raise for values beyond float64, which would become infinity."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text:.30} is out of range")
    return value


def _whole(text: str) -> int:
    """Parse an integer; raise for values beyond float64, since they enter means."""
    if abs(value := int(text)) > sys.float_info.max:
        raise ValueError(f"{text:.30} is out of range")
    return value


def source_folders(head: Mapping[str, Any]) -> list[Path]:
    """Return where a run's sources may be: `solutions`, and paths of `run.yaml`."""
    config = head.get("config")
    paths = config.get("paths") if isinstance(config, dict) else None
    named = paths if isinstance(paths, list) else []
    found = [Path(item).expanduser() for item in named if isinstance(item, str) and item not in ("", ".")]
    return list(dict.fromkeys([Path("solutions"), *found]))


def read_head(folder: Path) -> dict[str, Any]:
    """Return the content of `run.yaml`; empty if there is none.

    Args:
        folder: The run's folder.

    Raises:
        StoreError: The file is unreadable or has a newer format.
    """
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

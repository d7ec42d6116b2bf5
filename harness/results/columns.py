"""Records as Arrow tables and Parquet files, a part of a file at a time.

Trusted side. Several processes parse; memory holds a few parts, and eight bytes a record to drop superseded ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.results.frame import NESTED, MissingParquet, column_types, row_of, runs_in, storable
from harness.results.reader import DamagedRecord, NewerFormat, NotJson, StoreError, cut_short, parse_line
from harness.results.scoring import EAGER

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

PART_BYTES = 16 << 20
"""Bytes of a file that one process parses at a time."""


class MissingPolars(Exception):
    """polars is not installed."""

    def __init__(self) -> None:
        super().__init__("polars frames need polars: run `pip install 'kernel-harness[polars]'`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of bytes of a run's `records.jsonl`; it has the lines that begin there."""

    path: Path
    start: int
    end: int
    baseline: str
    nested: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Parsed:
    """What a part holds: rows, an identity for each, and faults by line of the part."""

    batch: Any
    identities: list[int]
    lines: int
    faults: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write_parquet(
    paths: str | Path | Iterable[str | Path],
    out: Path,
    *,
    baseline: str = EAGER,
    nested: Sequence[str] = (),
    processes: int | None = None,
) -> tuple[int, list[str]]:
    """Write the records of runs as a Parquet file, with the columns of `load_records`.

    A run of more than 16 MiB is written from its end, 16 MiB at a time.

    Args:
        paths: Folders of runs, or folders that hold runs.
        out: The file; it appears when it is complete.
        baseline: Baseline of the speedups.
        nested: Names from `NESTED`: each becomes a column of JSON texts.
        processes: Processes that parse; by default one a processor.

    Returns:
        The number of rows, and notes on defects of the files.

    Raises:
        MissingParquet: pyarrow is not installed.
        StoreError: As `load_records`.
        ValueError: `nested` has another name.
    """
    arrow = _arrow()
    notes: list[str] = []
    rows = 0
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with arrow.parquet.ParquetWriter(unfinished, _schema(arrow, nested), compression="zstd") as writer:
            for batch in _batches(paths, baseline, nested, notes, processes):
                writer.write_batch(batch)
                rows += batch.num_rows
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows, notes


def to_arrow(
    paths: str | Path | Iterable[str | Path], *, baseline: str = EAGER, nested: Sequence[str] = ()
) -> pyarrow.Table:
    """Load the records of runs as an Arrow table, with the columns of `load_records`.

    Texts are strings. Without pandas, and faster for many records.

    Args:
        paths: Folders of runs, or folders that hold runs.
        baseline: Baseline of the speedups.
        nested: Names from `NESTED`: each becomes a column of JSON texts.

    Raises:
        MissingParquet: pyarrow is not installed.
        StoreError: As `load_records`.
        ValueError: `nested` has another name.
    """
    arrow = _arrow()
    notes: list[str] = []
    batches = list(_batches(paths, baseline, nested, notes, None))
    table = arrow.Table.from_batches(batches[::-1], _schema(arrow, nested))
    return table.replace_schema_metadata({"notes": json.dumps(notes)})


def to_polars(paths: str | Path | Iterable[str | Path], *, baseline: str = EAGER, nested: Sequence[str] = ()) -> Any:
    """Load the records of runs as a polars DataFrame; see `to_arrow`.

    Args:
        paths: Folders of runs, or folders that hold runs.
        baseline: Baseline of the speedups.
        nested: Names from `NESTED`: each becomes a column of JSON texts.

    Raises:
        MissingPolars: polars is not installed.
        MissingParquet: pyarrow is not installed.
        StoreError: As `load_records`.
        ValueError: `nested` has another name.
    """
    try:
        import polars  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingPolars from error
    return polars.from_arrow(to_arrow(paths, baseline=baseline, nested=nested))


def _arrow() -> Any:
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingParquet from error
    return pyarrow


def _schema(arrow: Any, nested: Sequence[str]) -> Any:
    types = {
        "category": arrow.string(),
        "string": arrow.string(),
        "Int64": arrow.int64(),
        "Float64": arrow.float64(),
        "object": arrow.list_(arrow.string()),
        "datetime64[us, UTC]": arrow.timestamp("us", tz="UTC"),
    }
    known = {name: types[kind] for name, kind in column_types().items()}
    return arrow.schema(known | dict.fromkeys(nested, arrow.string()))


def _batches(
    paths: str | Path | Iterable[str | Path],
    baseline: str,
    nested: Sequence[str],
    notes: list[str],
    processes: int | None,
) -> Iterator[Any]:
    """Yield record batches, the last part of each run first, and add notes."""
    if unknown := sorted(set(nested) - set(NESTED)):
        raise ValueError(f"nested takes {', '.join(NESTED)}, not {', '.join(unknown)}")
    folders, lacking = runs_in([paths] if isinstance(paths, str | Path) else paths)
    if lacking:
        raise StoreError("\n".join(lacking))
    files = [folder / "records.jsonl" for folder in reversed(folders)]
    parts = {path: _parts(path, baseline, tuple(nested)) for path in files if path.exists()}
    count = sum(map(len, parts.values()))
    wanted = min(processes or os.cpu_count() or 1, count)
    if wanted < 2:
        for path, each in parts.items():
            yield from _newest(path, map(_parse, each), notes)
        return
    with ProcessPoolExecutor(wanted, mp_context=get_context("forkserver")) as pool:
        for path, each in parts.items():
            yield from _newest(path, _in_order(pool, each, ahead=2 * wanted), notes)


def _parts(path: Path, baseline: str, nested: tuple[str, ...]) -> list[Part]:
    size = path.stat().st_size
    starts = range(0, size, PART_BYTES)
    return [
        Part(path=path, start=start, end=min(start + PART_BYTES, size), baseline=baseline, nested=nested)
        for start in reversed(starts)
    ]


def _in_order(pool: ProcessPoolExecutor, parts: Sequence[Part], *, ahead: int) -> Iterator[Parsed]:
    """Yield results in the parts' order; only `ahead` of them wait in memory."""
    waiting = [pool.submit(_parse, part) for part in parts[:ahead]]
    for part in [*parts[ahead:], *[None] * len(waiting)]:
        yield waiting.pop(0).result()
        if part is not None:
            waiting.append(pool.submit(_parse, part))


def _newest(path: Path, parsed: Iterable[Parsed], notes: list[str]) -> Iterator[Any]:
    """Drop records that a later line supersedes; warn of faults by their lines."""
    seen: set[int] = set()
    faults: list[tuple[int, int, str]] = []
    counts = []
    for number, part in enumerate(parsed):
        counts.append(part.lines)
        notes += [f"{path.parent}: {note}" for note in part.notes]
        faults += [(number, line, text) for line, text in part.faults]
        kept = []
        for place in range(len(part.identities) - 1, -1, -1):
            if part.identities[place] not in seen:
                seen.add(part.identities[place])
                kept.append(place)
        if len(kept) == len(part.identities):
            yield part.batch
        elif kept:
            yield part.batch.take(kept[::-1])
    for line, text in sorted((sum(counts[number + 1 :]) + line, text) for number, line, text in faults):
        warnings.warn(f"{path}:{line}: {text}; the line is skipped; fix or remove it", DamagedRecord, stacklevel=3)


def _parse(part: Part) -> Parsed:
    arrow = _arrow()
    schema = _schema(arrow, part.nested)
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    parsed = Parsed(batch=None, identities=[], lines=0)
    run = part.path.parent.name
    for line in _lines(part):
        parsed.lines += 1
        if not line.strip():
            continue
        try:
            record = parse_line(line)
        except NewerFormat as error:
            raise StoreError(f"{part.path}: {error}, or remove this line") from error
        except ValueError as error:
            if isinstance(error, NotJson) and not line.endswith(b"\n"):
                parsed.notes.append(cut_short(line))
            else:
                parsed.faults.append((parsed.lines, str(error)))
            continue
        row = row_of(record, run, part.baseline)
        for name in part.nested:
            held = getattr(record, name)
            row[name] = None if held is None else json.dumps(held, separators=(",", ":"))
        for name, values in columns.items():
            values.append(storable(row.get(name)))
        identity = "\0".join((part.path.parent.as_posix(), *record.identity)).encode("utf-8", "surrogatepass")
        parsed.identities.append(int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest()))
    arrays = [arrow.array(columns[item.name], item.type) for item in schema]
    parsed.batch = arrow.RecordBatch.from_arrays(arrays, schema=schema)
    return parsed


def _lines(part: Part) -> Iterator[bytes]:
    """Yield the lines that begin in a part."""
    with part.path.open("rb") as file:
        file.seek(max(part.start - 1, 0))
        if part.start > 0:
            file.readline()  # the end of a line that began before
        while file.tell() < part.end and (line := file.readline()):
            yield line

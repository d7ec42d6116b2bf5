"""Read and write KernelBench's problems as its Hugging Face table has them.

Trusted side. One Parquet file a level, with the columns code, level, name and problem_id. The code is a problem file as
it stands. Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.catalog.foreign.shared import Conversion, ForeignProblem, NotConvertible, files, write_all
from harness.catalog.problems import CatalogError
from harness.catalog.source_files import MAX_SOURCE_BYTES, printable
from harness.core.atomic_file import replace_whole
from harness.core.problem import Problem
from harness.core.status import one_line

COLUMNS = ("code", "level", "name", "problem_id")
MAX_TABLE_BYTES = 256 * 2**20
"""Largest table in bytes, on disk and uncompressed; KernelBench has 0.6 MB."""


class MissingPyarrow(CatalogError):
    """pyarrow is not installed."""

    def __init__(self) -> None:
        super().__init__(["Parquet files need pyarrow: run `pip install 'kernel-harness[parquet]'`"])


def import_parquet(path: Path, out: Path) -> Conversion:
    """Write the problems of Parquet files as problem files.

    Args:
        path: A Parquet file, or a folder of them.
        out: New folder; the problems go to `problems/levelN` below it.

    Returns:
        What was written and skipped.

    Raises:
        CatalogError: There is no Parquet file, pyarrow is missing, or `out` is not empty.
    """
    skipped: dict[str, str] = {}
    found = [path] if path.is_file() else list(files(path, ".parquet", skipped))
    if not found:
        raise CatalogError([f"{path}: no .parquet file: pass one, or a folder of them"])
    problems: list[ForeignProblem] = []
    for file in found:
        name = printable(file.relative_to(path)) if file != path else file.name
        try:
            rows = _rows(file)
        except NotConvertible as error:
            skipped[name] = str(error)
            continue
        for number, row in enumerate(rows, 1):
            try:
                problems.append(_problem(row))
            except NotConvertible as error:
                skipped[f"{name}, row {number}"] = str(error)
    done = write_all(out, problems, [])
    done.skipped.update(skipped)
    return done


def export_parquet(problems: Iterable[Problem], out: Path) -> list[Path]:
    """Write problems as Parquet files, one a level (`level_1-00000-of-00001.parquet`).

    Args:
        problems: Readable problems; their levels must be `level1`, `level2`, ...
        out: Folder for the files.

    Raises:
        CatalogError: pyarrow is missing, or no problem has such a level.
        OSError: A file can't be written.
    """
    arrow = _pyarrow()
    rows: dict[int, list[dict[str, Any]]] = {}
    for problem in problems:
        level, _, number = problem.id.partition("/")
        if level.removeprefix("level").isdecimal() and number.isdecimal():
            row = {"code": problem.source, "name": problem.path.stem, "problem_id": int(number)}
            rows.setdefault(int(level.removeprefix("level")), []).append(row)
    if not rows:
        raise CatalogError(["no problem of a level like level1: KernelBench's table has numbers for levels only"])
    written = []
    for number_of_level, own in sorted(rows.items()):
        columns = {name: [row.get(name, number_of_level) for row in own] for name in COLUMNS}
        sink = arrow.BufferOutputStream()
        arrow.parquet.write_table(arrow.table(columns), sink)
        written.append(out / f"level_{number_of_level}-00000-of-00001.parquet")
        replace_whole(written[-1], sink.getvalue().to_pybytes())
    return written


def _pyarrow() -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPyarrow from error
    return pyarrow


def _rows(path: Path) -> list[dict[str, Any]]:
    arrow = _pyarrow()
    try:
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise NotConvertible(f"more than {MAX_TABLE_BYTES} bytes")
        with arrow.parquet.ParquetFile(path) as table:
            facts = table.metadata
            if sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)) > MAX_TABLE_BYTES:
                raise NotConvertible(f"more than {MAX_TABLE_BYTES} bytes uncompressed")
            if missing := sorted(set(COLUMNS) - set(table.schema_arrow.names)):
                raise NotConvertible(f"no column {', '.join(missing)}; the columns are {', '.join(COLUMNS)}")
            rows: list[dict[str, Any]] = table.read(columns=list(COLUMNS)).to_pylist()
            return rows
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, NotConvertible):
            raise
        raise NotConvertible(f"not a readable Parquet file: {one_line(str(error), limit=120)}") from error


def _problem(row: Mapping[str, Any]) -> ForeignProblem:
    code, level, name, number = (row.get(column) for column in COLUMNS)
    if not isinstance(code, str) or len(code) > MAX_SOURCE_BYTES:
        raise NotConvertible("code is not a text of a problem file")
    if type(level) is not int or not 1 <= level < 1000 or type(number) is not int or not 0 <= number < 10**6:
        raise NotConvertible(f"level {level!r:.20} and problem_id {number!r:.20} must be whole numbers")
    title = name.removeprefix(f"{number}_").removesuffix(".py") if isinstance(name, str) else "problem"
    return ForeignProblem(key=f"level{level}/{number}", level=f"level{level}", name=title, source=code, number=number)

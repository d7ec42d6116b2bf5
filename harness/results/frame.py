"""Records and leaderboards as pandas DataFrames, and as Parquet files.

A frame is a view for analysis: the harness itself reads records, so that no command and no process waits 0.4 s for
pandas. Only making a frame imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.record import Record
from harness.results.evidence import mapping, positive
from harness.results.latest import finished
from harness.results.leaderboard import COLUMNS, LeaderboardRow
from harness.results.reader import StoreError, find_runs
from harness.results.scoring import EAGER, scored
from harness.results.writer import RunStore

if TYPE_CHECKING:
    from pandas import DataFrame

NESTED = ("evidence", "timing", "build", "environment")
"""Fields of a record with nested values, which `load_records` adds as columns on demand."""

_OF_RECORDS = {
    **dict.fromkeys(("run", "problem", "author", "solution"), "category"),
    "sample": "Int64",
    **dict.fromkeys(("device", "processor", "driver", "workload", "baseline", "precision", "status"), "category"),
    "reason": "string",
    "labels": "object",
    **dict.fromkeys(("speedup", "speedup_low", "speedup_high", "counted_speedup", "same_within"), "Float64"),
    **dict.fromkeys(("noise_floor", "sol_fraction", "solution_s", "reference_s", "wall_s"), "Float64"),
    "finished_at": "datetime64[us, UTC]",
    **dict.fromkeys(("solution_digest", "problem_digest"), "string"),
    "secret_shapes": "Int64",
    **dict.fromkeys(("shown_speedup", "specialisation_gap"), "Float64"),
}
"""Column -> dtype of `load_records`."""

_OF_BOARDS = {
    **dict.fromkeys(COLUMNS, "Float64"),
    **{name: dtype for name, dtype in _OF_RECORDS.items() if name in COLUMNS},
    **dict.fromkeys(("rank", "results", "passed", "untimed", "disqualified", "unjudged", "secret_shapes"), "Int64"),
    **dict.fromkeys(("display_name", "model"), "string"),
}


class MissingParquet(Exception):
    """pyarrow is not installed."""

    def __init__(self) -> None:
        super().__init__("Parquet files need pyarrow: run `pip install 'kernel-harness[parquet]'`")


def load_records(
    paths: str | Path | Iterable[str | Path], *, baseline: str = EAGER, nested: Sequence[str] = ()
) -> DataFrame:
    """Load the records of runs as a DataFrame with one row for each record.

    | column | dtype | meaning |
    |---|---|---|
    | `run` | category | name of the run's folder |
    | `problem`, `author`, `solution` | category | as in the record |
    | `sample` | Int64 | sample number |
    | `device`, `processor`, `driver` | category | device kind, model of the GPU or CPU, GPU driver |
    | `workload`, `baseline`, `precision` | category | results that differ here can't be compared |
    | `status`, `reason` | category, string | the verdict |
    | `labels` | object | tuple of labels |
    | `speedup`, `speedup_low`, `speedup_high` | Float64 | over `baseline`, with its 95 % interval |
    | `counted_speedup` | Float64 | the speedup that fast_p counts: 1 inside the noise floor, `NA` if too noisy |
    | `same_within` | Float64 | share within which the speedup is 1, if it is |
    | `noise_floor` | Float64 | difference of logs |
    | `sol_fraction` | Float64 | reached share of the speed of light |
    | `solution_s`, `reference_s` | Float64 | median device time of a call, in seconds |
    | `wall_s` | Float64 | duration of the evaluation, in seconds |
    | `finished_at` | datetime64[us, UTC] | end of the evaluation |
    | `solution_digest`, `problem_digest` | string | SHA-256 |
    | `secret_shapes` | Int64 | number of secret shapes; `speedup` is the geometric mean over them |
    | `shown_speedup`, `specialisation_gap` | Float64 | the speedup at the shown sizes, and over that at secret ones |

    An absent value is `NA`. `frame.attrs["notes"]` lists defects of the files, such as a truncated last line.

    Args:
        paths: Folders of runs, or folders that hold runs.
        baseline: Baseline of the speedups.
        nested: Names from `NESTED`. Each value inside such a field gets a column, such as
            `timing.solution.device.median_s`. Lists stay lists.

    Raises:
        StoreError: A path does not exist or holds no run, or a run can't be read.
        ValueError: `nested` has another name.
    """
    if unknown := sorted(set(nested) - set(NESTED)):
        raise ValueError(f"nested takes {', '.join(NESTED)}, not {', '.join(unknown)}")
    folders, lacking = runs_in([paths] if isinstance(paths, str | Path) else paths)
    if lacking:
        raise StoreError("\n".join(lacking))
    stores = [RunStore.open(folder) for folder in folders]
    rows = [
        row_of(record, store.folder.name, baseline) | dict(_leaves({name: getattr(record, name) for name in nested}))
        for store in stores
        for record in store.records()
    ]
    frame = _frame(rows, _OF_RECORDS)
    frame.attrs["notes"] = [f"{store.folder}: {note}" for store in stores for note in store.notes]
    return frame


def runs_in(paths: Iterable[str | Path]) -> tuple[list[Path], list[str]]:
    """Return the runs in these folders, each once, and messages on paths without one.

    Raises:
        StoreError: A path does not exist.
    """
    runs: dict[Path, Path] = {}
    lacking = []
    for path in map(Path, paths):
        if not path.exists():
            raise StoreError(f"{path}: no such folder")
        inside = find_runs(path)
        runs |= {item.resolve(): item for item in inside}
        if not inside:
            lacking.append(f"{path} holds no run: the folder of a run has run.yaml or records.jsonl")
    return list(runs.values()), lacking


def parquet_of(rows: Iterable[LeaderboardRow]) -> bytes:
    """Return a leaderboard as a Parquet file with the columns of the CSV file.

    Raises:
        MissingParquet: pyarrow is not installed.
    """
    frame = _frame([row.to_json() for row in rows], _OF_BOARDS)
    try:
        return frame.to_parquet(engine="pyarrow")
    except ImportError as error:
        raise MissingParquet from error


def column_types() -> Mapping[str, str]:
    """Return column -> pandas dtype of `load_records`, in order."""
    return _OF_RECORDS


def _frame(rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str]) -> DataFrame:
    import pandas

    columns = dict.fromkeys([*dtypes, *(name for row in rows for name in row)])
    values = [[storable(row.get(name)) for name in columns] for row in rows]
    # As objects first, so that no number is rounded and no text is taken for a number.
    return pandas.DataFrame(values, columns=list(columns), dtype=object).astype(dtypes)


def storable(value: Any) -> Any:
    """Escape lone surrogates, which JSON files may contain and Arrow can't store."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def row_of(record: Record, run: str, baseline: str) -> dict[str, Any]:
    """Return a record's values by the columns of `load_records`."""
    entry = scored(record, baseline)
    times = {f"{side}_s": mapping(record.timing, side, "device").get("median_s") for side in ("solution", "reference")}
    values = {
        **{name: getattr(record, name) for name in _OF_RECORDS if hasattr(record, name)},
        **{name: getattr(entry.group, name) or None for name in entry.group.__slots__},
    }
    return values | {
        "run": run,
        "status": record.status.value,
        "speedup": entry.speedup,
        "speedup_low": entry.low,
        "speedup_high": entry.high,
        "counted_speedup": entry.counted,
        "same_within": entry.same_within,
        "noise_floor": entry.floor or None,
        "sol_fraction": entry.sol_fraction,
        **{name: positive(value) for name, value in times.items()},
        "finished_at": finished(record),
        "secret_shapes": entry.group.secret_shapes,
        "shown_speedup": positive(mapping(record.timing, "shapes", "shown").get("speedup")),
        "specialisation_gap": entry.gap,
    }


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value

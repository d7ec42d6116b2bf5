"""Parse KernelBench's result files.

Only this module knows their keys and variants. Other versions and forks write NaN, null entries, one object instead of
a list, or a level around the problems. An unreadable value is an error that names the file and the place; an absent
value becomes None.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.results.reader import StoreError

MAX_FILE_BYTES = 512 * 2**20
"""Limit of a file's size in bytes; real ones have some megabytes at most."""

MIN_TIME_MS, MAX_TIME_MS = 1e-4, 1e9
"""Limits of a plausible time in milliseconds: no kernel ends within 0.1 us, no call takes 11 days."""

MAX_NESTING = 20
"""Most levels of `metadata` and statistics; real ones have two."""

MAX_DIGITS = 20
"""Most characters of a whole number; longer ones are read as floating-point numbers, at most infinity."""

BASELINE_FILE = "baseline_time_torch"
BASELINE_SUFFIXES = {
    "eager": "",
    "compile": "_compile_inductor_default",
    "compile_max_autotune": "_compile_inductor_max-autotune",
}
"""This harness's baseline names -> suffixes of KernelBench's file names, which name backend and mode."""

_LEVEL = re.compile(r"level_?(\d{1,3})")
_PROBLEM_FILE = re.compile(r"0*(\d{1,6})_.*")


class KernelBenchError(StoreError):
    """A file of KernelBench can't be read, or a run can't be exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBenchSample:
    """One sample as KernelBench recorded it.

    Attributes:
        correct: Whether it was correct by KernelBench's rule.
        runtime_ms: Mean time in milliseconds; None if it was not timed (-1 in the file).
        stats: KernelBench's `runtime_stats`.
        metadata: KernelBench's `metadata`.
        absent: The entry is null: the evaluation left no result, so nothing is known.
        reference_ms: The reference's mean time in the same evaluation in milliseconds (`ref_runtime`); None if it was
            not timed.
        reference_stats: KernelBench's `ref_runtime_stats`.
        implausible_ms: A time outside `MIN_TIME_MS` to `MAX_TIME_MS`, its own or the reference's; it is then None in
            `runtime_ms` or `reference_ms`.
    """

    problem: int
    sample: int
    compiled: bool = False
    correct: bool = False
    runtime_ms: float | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    absent: bool = False
    reference_ms: float | None = None
    reference_stats: Mapping[str, Any] = field(default_factory=dict)
    implausible_ms: float | None = None

    @property
    def is_excessive(self) -> bool:
        """Whether KernelBench flags the speedup as excessive (more than 10x by default)."""
        return self.metadata.get("excessive_speedup") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBenchBaseline:
    """The reference's time for one problem; `name` is the problem's file.

    `mean_ms` is None if it could not be timed (null in the file).
    """

    name: str
    mean_ms: float | None
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hardware(self) -> str | None:
        held = self.stats.get("hardware")
        return held if isinstance(held, str) and held else None


def read_eval_results(path: Path, *, level: int) -> list[KernelBenchSample]:
    """Read the samples of one level from an `eval_results.json`, sorted.

    Raises:
        KernelBenchError: The file can't be read.
    """
    held = _object(path, _load(path))
    # Some versions put the level around the problems.
    for key in (f"level{level}", f"level_{level}"):
        if isinstance(held.get(key), dict):
            held = held[key]
    samples = [sample for key, value in held.items() for sample in _problem(path, key, value)]
    seen: set[tuple[int, int]] = set()
    for item in samples:
        if (item.problem, item.sample) in seen:
            raise KernelBenchError(f"{path}: problem {item.problem} has sample {item.sample} twice; remove one of them")
        seen.add((item.problem, item.sample))
    return sorted(samples, key=lambda item: (item.problem, item.sample))


def baseline_file(name: str) -> str:
    """Return the name of KernelBench's file for this baseline."""
    return f"{BASELINE_FILE}{BASELINE_SUFFIXES.get(name, f'_{name}')}.json"


def baseline_name(path: Path) -> str:
    """Return this harness's name of the baseline in a file; eager for unknown names."""
    suffix = path.stem.removeprefix(BASELINE_FILE) if path.stem.startswith(BASELINE_FILE) else ""
    known = {end: name for name, end in BASELINE_SUFFIXES.items()}
    return known.get(suffix) or re.sub(r"[^A-Za-z0-9]+", "_", suffix).strip("_") or "eager"


def read_baseline(path: Path) -> dict[int, dict[int, KernelBenchBaseline]]:
    """Read a `baseline_time_torch.json`: level -> problem number -> reference's time.

    Raises:
        KernelBenchError: The file can't be read.
    """
    levels: dict[int, dict[int, KernelBenchBaseline]] = {}
    for key, problems in _object(path, _load(path)).items():
        match = _LEVEL.fullmatch(key)
        if match is None:
            raise KernelBenchError(f"{path}: {key!r:.60} is no level; a file of baseline times has keys such as level1")
        where = f"{path}, {key}"
        found = levels.setdefault(int(match[1]), {})
        for name, stats in _object(where, problems).items():
            number = _PROBLEM_FILE.fullmatch(name)
            if number is None:
                raise KernelBenchError(f"{where}: {name!r:.80} is no file name of a problem, such as 16_name.py")
            given = {} if stats is None else _object(f"{where}, {name}", stats)
            mean_ms, implausible_ms = _time_ms(given.get("mean"))
            if implausible_ms is not None:
                raise KernelBenchError(
                    f"{where}, {name}: mean {implausible_ms:.3g} ms is no time of a reference (limits {MIN_TIME_MS:g} "
                    f"to {MAX_TIME_MS:g} ms); correct or remove it"
                )
            found[int(number[1])] = KernelBenchBaseline(
                name=name, mean_ms=mean_ms, stats=finite(f"{where}, {name}", given)
            )
    return levels


def read_pass_at_k(path: Path) -> dict[str, dict[str, Any]]:
    """Read `averages`, `metadata` and `problems` of a `pass_at_k_results.json`.

    Raises:
        KernelBenchError: The file can't be read.
    """
    held = _object(path, _load(path))
    if missing := [name for name in ("averages", "problems") if name not in held]:
        raise KernelBenchError(f"{path}: no key {' and no key '.join(missing)}; is this a pass_at_k_results.json?")
    parts = {name: (f"{path}, {name}", held.get(name, {})) for name in ("averages", "metadata", "problems")}
    return {name: finite(where, _object(where, value)) for name, (where, value) in parts.items()}


def finite(where: str, value: Any, nesting: int = MAX_NESTING) -> Any:
    """Return the JSON value with null for the NaN and infinity of these files.

    Raises:
        KernelBenchError: It nests more than `nesting` levels.
    """
    if isinstance(value, dict | list) and nesting == 0:
        raise KernelBenchError(f"{where}: nests more than {MAX_NESTING} levels; remove it")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(where, item, nesting - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(where, item, nesting - 1) for item in value]
    return value


def _time_ms(value: Any) -> tuple[float | None, float | None]:
    """Return a plausible time, and an implausible one.

    Both are None if the time is absent (-1, null, NaN).
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None, None
    return (float(value), None) if MIN_TIME_MS <= value <= MAX_TIME_MS else (None, float(value))


def _number(text: str) -> int | float:
    """Read a whole number of any length.

    Python takes seconds for millions of digits, and refuses more than 4,300.
    """
    return int(text) if len(text) <= MAX_DIGITS else float(text)


def _problem(path: Path, key: str, value: Any) -> Iterator[KernelBenchSample]:
    if not key.isascii() or not key.isdigit() or len(key) > 6:
        raise KernelBenchError(
            f'{path}: {key!r:.60} is no problem number; eval_results.json has keys such as "16" (one level per file)'
        )
    number = int(key)
    if value is None:
        yield KernelBenchSample(problem=number, sample=0, absent=True)
        return
    entries = value if isinstance(value, list) else [value]
    for index, entry in enumerate(entries):
        if entry is None:
            yield KernelBenchSample(problem=number, sample=index, absent=True)
        else:
            yield _sample(f"{path}, problem {number}, entry {index}", number, index, entry)


def _sample(where: str, number: int, index: int, entry: Any) -> KernelBenchSample:
    held = _object(where, entry)
    chosen = held.get("sample_id", index)
    if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 0:
        raise KernelBenchError(f"{where}: sample_id must be a whole number, at least 0, not {chosen!r:.40}")
    for name in ("compiled", "correctness"):
        if not isinstance(held.get(name), bool):
            raise KernelBenchError(f"{where}: {name} must be true or false, not {held.get(name)!r:.40}")
    runtime_ms, implausible_ms = _time_ms(held.get("runtime"))
    reference_ms, implausible_reference_ms = _time_ms(held.get("ref_runtime"))

    def part(name: str) -> Any:
        return finite(f"{where}, {name}", _object(f"{where}, {name}", held.get(name) or {}))

    return KernelBenchSample(
        problem=number,
        sample=chosen,
        compiled=held["compiled"],
        correct=held["correctness"] and held["compiled"],
        runtime_ms=runtime_ms,
        stats=part("runtime_stats"),
        metadata=part("metadata"),
        reference_ms=reference_ms,
        reference_stats=part("ref_runtime_stats"),
        implausible_ms=implausible_ms if implausible_ms is not None else implausible_reference_ms,
    )


def _load(path: Path) -> Any:
    def unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Python alone would keep the last value of a repeated key.
        value: dict[str, Any] = {}
        for key, item in pairs:
            if key in value:
                raise KernelBenchError(f"{path}: an object has the key {key!r:.80} twice; remove one of them")
            value[key] = item
        return value

    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise KernelBenchError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB; is this the right file?")
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unambiguous, parse_int=_number)
    except (OSError, UnicodeDecodeError) as error:
        raise KernelBenchError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    except RecursionError as error:
        raise KernelBenchError(f"{path}: nests more levels than Python reads; is this the right file?") from error
    except ValueError as error:
        raise KernelBenchError(f"{path}: not JSON: {error}") from error


def _object(where: object, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise KernelBenchError(f"{where}: must be a JSON object, not {type(value).__name__}")
    return value

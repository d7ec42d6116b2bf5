"""Export a run as KernelBench's result files, for its scripts and tools.

Trusted side. Writes three JSON files per author and level. Keys, units and special values are KernelBench's:
milliseconds, -1 for absent times, a list of samples per problem, file names as keys of the baseline. `correctness` is
this harness's verdict (`passed`), which is stricter; `metadata` keeps the exact status, and whether KernelBench's own
rule would have passed the solution.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.results.kernelbench.formats import KernelBenchError, KernelBenchSample, baseline_file, positive
from harness.results.kernelbench.metrics import pass_at_k_document
from harness.results.writer import write_whole

ABSENT_MS = -1.0
MS_PER_S = 1e3

NOT_COMPILED = frozenset(
    {
        Status.syntax_error,
        Status.no_model_new,
        Status.import_error,
        Status.compile_error,
        Status.compile_timeout,
    }
)
"""Statuses that correspond to `compiled: false`: KernelBench ends before it constructs `ModelNew`."""

_ID = re.compile(r"level(\d+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Result of `export_run`.

    Attributes:
        files: The files written.
        notes: Facts that the files can't express.
    """

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def export_run(
    records: Sequence[Record],
    into: Path,
    *,
    file_names: Mapping[str, str],
    author: str | None = None,
    level: int | None = None,
    ks: Sequence[int] = (1,),
    overwrite: bool = False,
) -> Exported:
    """Write records as KernelBench's files.

    A single author and level go into `into` itself, several into `into/<author>/level<n>` each: one such file holds one
    author and level. Records without a verdict are left out, as in KernelBench.

    Args:
        records: Records of one run, device and workload.
        into: Folder for the files.
        file_names: File name of each problem id.
        author: Author to export; None for all.
        level: Level to export; None for all.
        ks: The k of pass@k.
        overwrite: Replace existing files.

    Returns:
        The files written, and notes.

    Raises:
        KernelBenchError: No record is left, the records are of several devices or workloads, an author's name is no
            folder name, or a file exists and `overwrite` is not set.
        StoreError: A file can't be written.
    """
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    notes = []
    foreign = free = 0
    for record in records:
        match = _ID.fullmatch(record.problem)
        if match is None:
            foreign += 1
        elif (author is None or record.author == author) and (level is None or int(match[1]) == level):
            if record.status in VERDICT_FREE:
                free += 1
            else:
                groups[record.author, int(match[1])].append(record)
    if foreign:
        notes.append(f"{foreign} left out: their problems are not in folders level1, level2, ...")
    if free:
        notes.append(f"{free} left out: they have no verdict on the solution (such as harness_error)")
    if not groups:
        raise KernelBenchError("nothing to export: these runs have no record with a verdict for this author and level")
    several = {(record.device, record.workload) for held in groups.values() for record in held}
    if len(several) > 1:
        raise KernelBenchError(
            "the records are of several devices or workloads, which KernelBench's files can't distinguish; "
            "export one run at a time"
        )
    if len(groups) > 1:
        for who, _ in sorted(groups):
            # Records are not trusted here, and Python callers may choose any author name.
            if Path(who).is_absolute() or ".." in Path(who).parts or not Path(who).parts:
                raise KernelBenchError(f"author {who!r:.100} is no valid folder name; export this author with --author")
    if unknown := sorted({r.problem for held in groups.values() for r in held if r.problem not in file_names}):
        notes.append(
            f"file names of {len(unknown)} problems are unknown and invented; pass their folder with --problems"
        )
    times = _reference_times(held for group in groups.values() for held in group)
    documents: dict[Path, dict[str, Any]] = {}
    for (who, number), held in sorted(groups.items()):
        folder = into if len(groups) == 1 else into / who / f"level{number}"
        made = _documents(held, number, file_names, times, ks)
        documents |= {folder / name: document for name, document in made.items()}
    if not overwrite and (there := [path for path in documents if path.exists()]):
        raise KernelBenchError(f"{there[0]} exists; choose another folder, or pass --force to overwrite")
    for path, document in documents.items():
        write_whole(path, (json.dumps(document, indent=4, allow_nan=False) + "\n").encode("utf-8"))
    eager = times.get("eager", {})
    if untimed := len({record.problem for held in groups.values() for record in held} - set(eager)):
        notes.append(f"{untimed} problems have no baseline time: none of their solutions passed with a time")
    return Exported(files=tuple(documents), notes=tuple(notes))


def _reference_times(records: Iterable[Record]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return statistics by baseline and problem id.

    Of several for one problem the first counts: all are of one machine.
    """
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in records:
        for baseline, stats in _baselines(record).items():
            found[baseline].setdefault(record.problem, stats)
    return found


def _documents(
    records: Sequence[Record],
    level: int,
    file_names: Mapping[str, str],
    reference_times: Mapping[str, Mapping[str, dict[str, Any]]],
    ks: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Return the files of one author and level, by name."""
    results: dict[int, list[dict[str, Any]]] = defaultdict(list)
    samples = []
    for record, sample in _numbered(records):
        problem = _number(record.problem)
        entry = _entry(record, sample)
        results[problem].append(entry)
        samples.append(
            KernelBenchSample(problem=problem, sample=sample, compiled=entry["compiled"], correct=entry["correctness"])
        )
    documents: dict[str, Any] = {
        "eval_results.json": {str(problem): results[problem] for problem in sorted(results)},
        "pass_at_k_results.json": pass_at_k_document(samples, ks),
    }
    ids = sorted({record.problem for record in records}, key=_number)
    for baseline, times in sorted(reference_times.items()):
        named = {file_names.get(key, f"{_number(key)}_unknown.py"): times[key] for key in ids if key in times}
        if named:
            documents[baseline_file(baseline)] = {f"level{level}": named}
    return documents


def _number(problem_id: str) -> int:
    return int(problem_id.partition("/")[2])


def _numbered(records: Sequence[Record]) -> list[tuple[Record, int]]:
    """Return records with sample numbers.

    A missing or duplicate one becomes the lowest free.
    """
    by_problem: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_problem[record.problem].append(record)
    numbered = []
    for held in by_problem.values():
        taken: dict[int, Record] = {}
        waiting = []
        for record in sorted(held, key=lambda item: item.solution):
            if record.sample is not None and record.sample not in taken:
                taken[record.sample] = record
            else:
                waiting.append(record)
        free = (number for number in range(len(held) + len(taken)) if number not in set(taken))
        pairs = [(record, number) for number, record in taken.items()] + list(zip(waiting, free, strict=False))
        numbered += sorted(pairs, key=lambda pair: pair[1])
    return numbered


def _entry(record: Record, sample: int) -> dict[str, Any]:
    passed = record.status is Status.passed
    stats = _stats(record, (record.timing or {}).get("solution")) if passed else {}
    return {
        "sample_id": sample,
        "compiled": record.status not in NOT_COMPILED,
        "correctness": passed,
        "metadata": _metadata(record),
        "runtime": stats.get("mean", ABSENT_MS),
        "runtime_stats": stats,
    }


def _metadata(record: Record) -> dict[str, Any]:
    held: dict[str, Any] = _where(record)
    held["harness_status"] = record.status.value
    held["harness_reason"] = record.reason
    held["harness_solution"] = record.solution
    held["harness_labels"] = list(record.labels)
    if (would := record.evidence.get("kernelbench_would_pass")) is not None:
        held["kernelbench_would_pass"] = would
    if record.speedup is not None:
        held["harness_speedup"] = record.speedup
    if record.status is Status.passed:
        return held
    if record.status in NOT_COMPILED:
        kind = "compilation_error"
    elif record.status.value.startswith("wrong_") or record.status in (Status.non_finite, Status.low_precision):
        kind = "correctness_issue"
    else:
        kind = "runtime_error"
    held[f"{kind}_name"] = record.status.value
    held[kind] = record.reason
    return held


def _where(record: Record) -> dict[str, Any]:
    on_gpu = record.device is DeviceKind.CUDA
    name = record.environment.get("gpu" if on_gpu else "cpu")
    return {"hardware": str(name) if name else "unknown", "device": "cuda:0" if on_gpu else "cpu"}


def _baselines(record: Record) -> dict[str, dict[str, Any]]:
    """Return the reference's times in this record, by baseline."""
    timing = record.timing or {}
    found = {}
    if stats := _stats(record, timing.get("reference")):
        found["eager"] = stats
    others = timing.get("baselines")
    for name, held in others.items() if isinstance(others, Mapping) else ():
        if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", str(name)) and (stats := _stats(record, held)):
            found[str(name)] = stats
    return found


_LONGEST_S = 1e9
"""Upper limit of a plausible time in seconds: a larger one was edited, and its square may exceed float64."""


def _stats(record: Record, series: Any) -> dict[str, Any]:
    """Return KernelBench's `runtime_stats` in milliseconds over all timed calls.

    Without samples, return what is known.
    """
    if not isinstance(series, Mapping):
        return {}
    device = series.get("device")
    summary: Mapping[str, Any] = device if isinstance(device, Mapping) else {}
    bursts = series.get("samples_s")
    flat = [
        float(held) * MS_PER_S
        for burst in (bursts if isinstance(bursts, list | tuple) else ())
        for held in (burst if isinstance(burst, list | tuple) else (burst,))
        if (positive(held) or math.inf) < _LONGEST_S
    ]
    if flat:
        times = {"mean": statistics.fmean(flat), "std": statistics.pstdev(flat), "min": min(flat), "max": max(flat)}
        return {**times, "num_trials": len(flat), **_where(record)}
    # A record keeps only the median of baselines other than eager.
    mean = positive(summary.get("mean_s")) or positive(summary.get("median_s")) or positive(series.get("device_s"))
    return {"mean": mean * MS_PER_S, **_where(record)} if mean is not None else {}

"""Export a run as KernelBench's result files, for its scripts and tools.

Trusted side. Writes three JSON files per author and level. Keys, units and special values are KernelBench's:
milliseconds, -1 for absent times, a list of samples per problem, file names as keys of the baseline. `correctness` is
this harness's verdict (`passed`), which is stricter; `metadata` keeps the exact status, and whether KernelBench's own
rule would have passed the solution.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.record import SECRET_SHAPES, Record
from harness.core.status import VERDICT_FREE, Status
from harness.results.evidence import mapping, positive
from harness.results.kernelbench.formats import KernelBenchError, KernelBenchSample, baseline_file
from harness.results.kernelbench.metrics import pass_at_k_document
from harness.results.reward import NOT_BUILT
from harness.results.writer import write_whole

ABSENT_MS = -1.0
MS_PER_S = 1e3

_ID = re.compile(r"level(\d+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The files that `export_run` wrote, and notes on facts that they can't express."""

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
    """Write records of one device and workload as KernelBench's files.

    A single author and level go into `into` itself, several into `into/<author>/level<n>` each: one such file holds one
    author and level. Records without a verdict are left out, as in KernelBench. `file_names` has the file of each
    problem id; `author` and `level` select records; `ks` are the k of pass@k.

    Raises:
        KernelBenchError: No record is left, the records are of several devices or workloads, an author's name is no
            folder name, or a file exists and `overwrite` is not set.
        StoreError: A file can't be written.
    """
    known = [record for record in records if _ID.fullmatch(record.problem)]
    wanted = [r for r in known if author in (None, r.author) and level in (None, _level(r))]
    kept = [record for record in wanted if record.status not in VERDICT_FREE]
    notes = []
    if foreign := len(records) - len(known):
        notes.append(f"{foreign} left out: their problems are not in folders level1, level2, ...")
    if free := len(wanted) - len(kept):
        notes.append(f"{free} left out: they have no verdict on the solution (such as harness_error)")
    if not kept:
        raise KernelBenchError("nothing to export: these runs have no record with a verdict for this author and level")
    if len({(record.device, record.workload) for record in kept}) > 1:
        raise KernelBenchError(
            "the records are of several devices or workloads, which KernelBench's files can't distinguish; "
            "export one run at a time"
        )
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in kept:
        groups[record.author, _level(record)].append(record)
    for who, _ in sorted(groups) if len(groups) > 1 else ():
        # Records are not trusted here, and Python callers may choose any author name.
        if Path(who).is_absolute() or ".." in Path(who).parts or not Path(who).parts:
            raise KernelBenchError(f"author {who!r:.100} is no valid folder name; export this author with --author")
    if unknown := {record.problem for record in kept} - file_names.keys():
        notes.append(
            f"file names of {len(unknown)} problems are unknown and invented; pass their folder with --problems"
        )
    times: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in (record for group in groups.values() for record in group):
        for baseline, stats in _baselines(record).items():
            times[baseline].setdefault(record.problem, stats)  # all are of one machine
    documents: dict[Path, dict[str, Any]] = {}
    for (who, number), own in sorted(groups.items()):
        folder = into if len(groups) == 1 else into / who / f"level{number}"
        named = _documents(own, number, file_names, times, ks)
        documents |= {folder / name: document for name, document in named.items()}
    if not overwrite and (there := [path for path in documents if path.exists()]):
        raise KernelBenchError(f"{there[0]} exists; choose another folder, or pass --force to overwrite")
    for path, document in documents.items():
        write_whole(path, (json.dumps(document, indent=4, allow_nan=False) + "\n").encode("utf-8"))
    if untimed := len({record.problem for record in kept} - times["eager"].keys()):
        notes.append(f"{untimed} problems have no baseline time: none of their solutions passed with a time")
    return Exported(files=tuple(documents), notes=tuple(notes))


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
        entry = _entry(record, sample)
        results[_number(record)].append(entry)
        judged = {"compiled": entry["compiled"], "correct": entry["correctness"]}
        samples.append(KernelBenchSample(problem=_number(record), sample=sample, **judged))
    documents: dict[str, Any] = {
        "eval_results.json": {str(problem): results[problem] for problem in sorted(results)},
        "pass_at_k_results.json": pass_at_k_document(samples, ks),
    }
    numbers = {record.problem: _number(record) for record in sorted(records, key=_number)}
    for baseline, times in sorted(reference_times.items()):
        named = {file_names.get(key, f"{n}_unknown.py"): times[key] for key, n in numbers.items() if key in times}
        if named:
            documents[baseline_file(baseline)] = {f"level{level}": named}
    return documents


def _level(record: Record) -> int:
    return int(record.problem.partition("/")[0].removeprefix("level"))


def _number(record: Record) -> int:
    return int(record.problem.partition("/")[2])


def _numbered(records: Sequence[Record]) -> list[tuple[Record, int]]:
    """Return records with sample numbers; the lowest free for missing and repeated."""
    by_problem: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_problem[record.problem].append(record)
    numbered = []
    for own in by_problem.values():
        taken: dict[int, Record] = {}
        waiting = []
        for record in sorted(own, key=lambda item: item.solution):
            if record.sample is None or taken.setdefault(record.sample, record) is not record:
                waiting.append(record)
        free = (number for number in itertools.count() if number not in taken)
        taken |= dict(zip(free, waiting, strict=False))
        numbered += [(record, number) for number, record in sorted(taken.items(), key=lambda item: item[0])]
    return numbered


def _entry(record: Record, sample: int) -> dict[str, Any]:
    passed = record.status is Status.passed
    stats = _stats(record, (record.timing or {}).get("solution")) if passed else {}
    return {
        "sample_id": sample,
        "compiled": record.status not in NOT_BUILT,  # KernelBench ends before it constructs `ModelNew`
        "correctness": passed,
        "metadata": _metadata(record),
        "runtime": stats.get("mean", ABSENT_MS),
        "runtime_stats": stats,
    }


def _metadata(record: Record) -> dict[str, Any]:
    values: dict[str, Any] = {
        **_where(record),
        "harness_status": record.status.value,
        "harness_reason": record.reason,
        "harness_solution": record.solution,
        "harness_labels": list(record.labels),
    }
    optional = {
        "kernelbench_would_pass": record.evidence.get("kernelbench_would_pass"),
        "harness_speedup": record.speedup,
        # KernelBench's runtimes are those at the shown sizes.
        "harness_secret_shapes": record.evidence.get(SECRET_SHAPES),
        "harness_shown_speedup": positive(mapping(record.timing, "shapes", "shown").get("speedup")),
    }
    values |= {name: value for name, value in optional.items() if value is not None}
    if record.status is Status.passed:
        return values
    kind = "runtime_error"
    if record.status in NOT_BUILT:
        kind = "compilation_error"
    elif record.status.value.startswith("wrong_") or record.status in (Status.non_finite, Status.low_precision):
        kind = "correctness_issue"
    return {**values, f"{kind}_name": record.status.value, kind: record.reason}


def _where(record: Record) -> dict[str, Any]:
    on_gpu = record.device is DeviceKind.CUDA
    name = record.environment.get("gpu" if on_gpu else "cpu")
    return {"hardware": str(name) if name else "unknown", "device": "cuda:0" if on_gpu else "cpu"}


def _baselines(record: Record) -> dict[str, dict[str, Any]]:
    """Return the reference's times in this record, by baseline."""
    series = [("eager", mapping(record.timing, "reference")), *mapping(record.timing, "baselines").items()]
    known = ((str(name), _stats(record, times)) for name, times in series)
    return {name: stats for name, stats in known if stats and re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name)}


_LONGEST_S = 1e9
"""Upper limit of a plausible time in seconds: a larger one was edited, and its square may exceed float64."""


def _stats(record: Record, series: Any) -> dict[str, Any]:
    """Return KernelBench's `runtime_stats` in milliseconds over all timed calls."""
    if not isinstance(series, Mapping):
        return {}
    bursts = series.get("samples_s")
    flat_ms = [
        time_s * MS_PER_S
        for burst in (bursts if isinstance(bursts, list | tuple) else ())
        for value in (burst if isinstance(burst, list | tuple) else (burst,))
        if (time_s := positive(value)) is not None and time_s < _LONGEST_S
    ]
    if flat_ms:
        mean, std = statistics.fmean(flat_ms), statistics.pstdev(flat_ms)
        times = {"mean": mean, "std": std, "min": min(flat_ms), "max": max(flat_ms), "num_trials": len(flat_ms)}
        return {**times, **_where(record)}
    # A record keeps only the median of baselines other than eager.
    device = mapping(series, "device")
    known = map(positive, (device.get("mean_s"), device.get("median_s"), series.get("device_s")))
    mean_s = next((time_s for time_s in known if time_s is not None), None)
    return {} if mean_s is None else {"mean": mean_s * MS_PER_S, **_where(record)}

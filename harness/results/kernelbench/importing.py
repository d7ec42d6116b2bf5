"""Import KernelBench's result files as a run.

Trusted side. `show`, `leaderboard` and `report` read it. Verdicts and times are KernelBench's. Label
`kernelbench_verdict` and workload `kernelbench` say so, and no table ranks these records with others.
`evidence.kernelbench` and `timing.kernelbench` keep the original values and units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status, one_line
from harness.results.kernelbench.formats import (
    MAX_TIME_MS,
    MIN_TIME_MS,
    KernelBenchBaseline,
    KernelBenchError,
    KernelBenchSample,
    baseline_name,
    read_baseline,
    read_eval_results,
    read_pass_at_k,
)
from harness.results.kernelbench.metrics import Metrics, metrics_of, pass_at_k_document
from harness.results.writer import whole_run

LABEL = "kernelbench_verdict"
"""On every imported record: the verdict is KernelBench's own."""
OTHER_HARDWARE = "baseline_from_other_hardware"
"""The baseline was timed on another GPU than the solution, so the speedup also compares GPUs."""
EXCESSIVE_SPEEDUP = "excessive_speedup"
"""KernelBench flags the speedup as excessive: it asks for a second look."""
IMPLAUSIBLE_TIME = "implausible_time"
"""A time is shorter or longer than any call takes, so there is no speedup."""
WORKLOAD = "kernelbench"

MILLISECOND_S = 1e-3

_HARNESS_STATUS = "harness_status"
"""Key in `metadata` that keeps the exact status in an export of this harness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The new run, metrics over sample 0, pass@k (of its file, else computed), notes."""

    folder: Path
    records: tuple[Record, ...]
    metrics: Metrics
    pass_at_k: Mapping[str, Any]
    notes: tuple[str, ...]


def import_results(
    eval_results: Path,
    into: Path,
    *,
    level: int,
    author: str,
    baselines: Sequence[Path] = (),
    pass_at_k: Path | None = None,
    workload: str = WORKLOAD,
) -> Imported:
    """Create a run from one author's `eval_results.json` of one level.

    Kernels next to the file, with KernelBench's file names, are hashed into the records. If an error occurs, no part of
    the run is left.

    Args:
        eval_results: The `eval_results.json`.
        into: Folder of the new run.
        level: The level of the file.
        author: The author of the samples.
        baselines: Files of baseline times. The one for eager gives the speedup; others give `timing.baselines`, by
            their file names. The metrics use the first. Without one for eager, the reference's time in the sample's
            own evaluation (`ref_runtime`) gives the speedup.
        pass_at_k: The `pass_at_k_results.json`; None if there is none.
        workload: Workload of the records.

    Raises:
        KernelBenchError: A file can't be understood; nothing was written.
        StoreError: `into` can't be written.
    """
    samples = read_eval_results(eval_results, level=level)
    if not samples:
        raise KernelBenchError(f"{eval_results}: contains no results")
    times: dict[str, dict[int, KernelBenchBaseline]] = {}
    notes: list[str] = []
    for path in baselines:
        name = baseline_name(path)
        if name in times:
            raise KernelBenchError(
                f"{path}: a second file of baseline {name!r}; pass one of them, or rename it as KernelBench does"
            )
        times[name] = read_baseline(path).get(level, {})
        if not times[name]:
            raise KernelBenchError(f"{path}: contains no times for level{level}")
    of_samples = "eager" not in times and any(item.reference_ms is not None for item in samples)
    if of_samples:
        notes.append("the speedups over eager are over the reference's time in the same evaluation (ref_runtime)")
    elif times and "eager" not in times:
        notes.append(f"no eager times: speedups are over {', '.join(times)} (see leaderboard --baseline)")
    finished = datetime.fromtimestamp(eval_results.stat().st_mtime, UTC).isoformat(timespec="seconds")
    known = [item for item in samples if not item.absent]
    given = read_pass_at_k(pass_at_k) if pass_at_k is not None else None
    averages = given["averages"] if given is not None else {}
    ks = {int(k) for k in (name.rpartition("@")[2] for name in averages) if k.isdigit() and int(k) > 0}
    computed = pass_at_k_document(known, ks=sorted(ks) or (1,))
    differing = [name for name, value in computed["averages"].items() if not _alike(averages.get(name), value)]
    if given is not None and differing:  # the file was made before some of the results
        names = ", ".join(differing)
        notes.append(f"{pass_at_k}: {names} differ from the results, which give {computed['averages']}")
    named = {(_device(item), name) for item in known if (name := _hardware(item))}
    # Failures often name no GPU; if all others name the same one, it applies to them, too.
    usual = next(iter(named)) if len(named) == 1 else (DeviceKind.CUDA, "")
    records = [
        _record(
            item,
            _references(item, times),
            level=level,
            author=author,
            workload=workload,
            finished=finished,
            folder=eval_results.parent,
            place=(_device(item), _hardware(item)) if _hardware(item) else (_device(item, usual[0]), usual[1]),
        )
        for item in samples
    ]
    if untimed := sum(record.status is Status.passed and record.speedup is None for record in records):
        why = "the baseline has no time for them" if times or of_samples else "no baseline was passed"
        notes.append(f"{untimed} correct samples have no speedup over eager: they were not timed, or {why}")
    if absent := len(samples) - len(known):
        notes.append(f"null entries: {absent}; KernelBench left no result for them, so they count in no share")
    first = next(iter(times.values()), {})
    if lacking := len(first.keys() - {item.problem for item in samples}):
        notes.append(
            f"problems of the baseline without an entry: {lacking}; they get no record, and fast_p counts them "
            "as failures, as KernelBench does"
        )
    if other := sum(OTHER_HARDWARE in record.labels for record in records):
        notes.append(f"{other} speedups compare different GPUs: the baseline was timed on another GPU")
    if implausible := sum(IMPLAUSIBLE_TIME in record.labels for record in records):
        limits = f"{MIN_TIME_MS:g} to {MAX_TIME_MS:g} ms"
        notes.append(f"{implausible} samples have no speedup: their times are outside the plausible {limits}")
    if excessive := sum(EXCESSIVE_SPEEDUP in record.labels for record in records):
        notes.append(f"KernelBench flags {excessive} speedups as excessive: look at these solutions")
    figures = metrics_of(samples, first)
    head = {
        "imported_from": "kernelbench",
        "eval_results": eval_results.name,
        "baselines": {name: path.name for name, path in zip(times, baselines, strict=True)},
        "pass_at_k_results": pass_at_k.name if pass_at_k is not None else None,
        "level": level,
        "author": author,
        "workload": workload,
        "metrics": figures.to_json(),
        "pass_at_k": dict((given or computed)["averages"]),
    }
    with whole_run(into, config=head, environment={}) as store:
        for record in records:
            store.append(record)
    shown = given or computed
    return Imported(folder=into, records=tuple(records), metrics=figures, pass_at_k=shown, notes=tuple(notes))


def _references(
    item: KernelBenchSample, times: Mapping[str, Mapping[int, KernelBenchBaseline]]
) -> dict[str, KernelBenchBaseline]:
    """Return the reference's times for a sample, by baseline."""
    found = {name: held[item.problem] for name, held in times.items() if item.problem in held}
    if "eager" not in times and item.reference_ms is not None:
        found["eager"] = KernelBenchBaseline(
            name="ref_runtime", mean_ms=item.reference_ms, stats={**item.reference_stats, "hardware": _hardware(item)}
        )
    return found


def _record(
    item: KernelBenchSample,
    references: Mapping[str, KernelBenchBaseline],
    *,
    level: int,
    author: str,
    workload: str,
    finished: str,
    folder: Path,
    place: tuple[DeviceKind, str],
) -> Record:
    device, hardware = place
    status, reason = _verdict(item)
    runtime_s = item.runtime_ms * MILLISECOND_S if item.runtime_ms is not None else None
    labels, speedup = [LABEL], None
    if item.is_excessive:
        labels.append(EXCESSIVE_SPEEDUP)
        reason += "; KernelBench flags its speedup as excessive"
    timing: dict[str, Any] | None = None
    if status is Status.passed and runtime_s is not None:
        others = {name: _against(reference, runtime_s) for name, reference in references.items()}
        eager = others.pop("eager", None)
        timing = {
            "clock": "KernelBench's",
            "baseline": "eager",
            "solution": {"device": {"mean_s": runtime_s}},
            "reference": {"device": {"mean_s": eager["mean_s"]}} if eager is not None else None,
            "baselines": others,
            "kernelbench": {
                "runtime_stats_ms": dict(item.stats),
                "baseline_stats_ms": {name: dict(reference.stats) for name, reference in references.items()},
            },
        }
        if eager is not None and eager["speedup"] is not None:
            speedup = float(eager["speedup"])
            timing["speedup"] = {"speedup": speedup, "low": None, "high": None, "method": "ratio of means"}
        if hardware and any(reference.hardware not in (None, hardware) for reference in references.values()):
            labels.append(OTHER_HARDWARE)
    if status is Status.passed and speedup is None and item.implausible_ms is not None:
        labels.append(IMPLAUSIBLE_TIME)
        reason += (
            f"; no speedup, because {item.implausible_ms:.3g} ms is no time of a call (plausible: {MIN_TIME_MS:g} to "
            f"{MAX_TIME_MS:g} ms)"
        )
    file = f"level_{level}_problem_{item.problem}_sample_{item.sample}_kernel.py"
    return Record(
        problem=f"level{level}/{item.problem}",
        author=author,
        solution=f"{author}/{file}",
        sample=item.sample,
        device=device,
        workload=workload,
        status=status,
        reason=reason if speedup is None else one_line(f"{reason}; {speedup:.3g}x eager"),
        labels=tuple(labels),
        speedup=speedup,
        evidence={"kernelbench": {"compiled": item.compiled, "correctness": item.correct, **item.metadata}},
        timing=timing,
        environment={"gpu" if device is DeviceKind.CUDA else "cpu": hardware} if hardware else {},
        solution_digest=_digest(folder / file),
        finished_at=finished,
    )


def _against(reference: KernelBenchBaseline, runtime_s: float) -> dict[str, Any]:
    """Return mean time (seconds) and speedup of a baseline in the form of records."""
    mean_s = reference.mean_ms * MILLISECOND_S if reference.mean_ms is not None else None
    speedup = mean_s / runtime_s if mean_s is not None else None
    return {"device": {"mean_s": mean_s}, "mean_s": mean_s, "speedup": speedup, "low": None, "high": None}


def _verdict(item: KernelBenchSample) -> tuple[Status, str]:
    """Return the status closest to KernelBench's result, and a reason in its words."""
    held = item.metadata
    if item.absent:
        return Status.harness_error, "KernelBench has no result (null): the evaluation was not done or failed"
    if item.correct:
        return Status.passed, "correct by KernelBench's own rule"
    exact = held.get(_HARNESS_STATUS)
    if isinstance(exact, str) and exact in Status.__members__ and exact != Status.passed.value:
        return Status(exact), one_line(_text(held.get("harness_reason")) or exact)
    for key, status in (
        ("cuda_error", Status.cuda_error),
        ("gpu_error", Status.cuda_error),
        ("compilation_error", Status.compile_error),
        ("runtime_error", Status.runtime_error),
        ("correctness_issue", Status.wrong_value),
        ("other_error", Status.runtime_error if item.compiled else Status.compile_error),
    ):
        if held.get(key) or held.get(f"{key}_name"):
            said = _said(held, key)
            if status is Status.wrong_value and "shape mismatch" in said.lower():
                status = Status.wrong_shape
            return status, one_line(said)
    if not item.compiled:
        return Status.compile_error, "KernelBench could not compile or load it and gives no reason"
    differences = held.get("max_difference")
    largest = f"; largest differences {_text(differences)}" if differences else ""
    return Status.wrong_value, one_line(f"not correct by KernelBench's own rule{largest}")


def _device(item: KernelBenchSample, otherwise: DeviceKind = DeviceKind.CUDA) -> DeviceKind:
    """Return the device that a sample names, or `otherwise`."""
    said = _name(item, "device")
    return otherwise if not said else DeviceKind.HOST if said.lower().startswith("cpu") else DeviceKind.CUDA


def _hardware(item: KernelBenchSample) -> str:
    return _name(item, "hardware")


def _said(held: Mapping[str, Any], key: str) -> str:
    text, name = _text(held.get(key)), _text(held.get(f"{key}_name"))
    extra = _text(held.get("error_message")) if key == "gpu_error" else ""
    return ": ".join(part for part in (name if name not in text else "", text, extra) if part) or key.replace("_", " ")


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _name(item: KernelBenchSample, key: str) -> str:
    """Return a name in the metadata, else in the statistics, else the empty text."""
    found = (held.get(key) for held in (item.metadata, item.stats))
    return next((str(value) for value in found if isinstance(value, str | int) and value != ""), "")


def _digest(path: Path) -> str:
    """Return the digest of the kernel next to the results; empty if it is not there."""
    try:
        return digest_text(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return ""


def _alike(found: Any, value: float) -> bool:
    return isinstance(found, int | float) and abs(found - value) <= 1e-6

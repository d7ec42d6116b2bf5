"""Check a run's records offline: files, schema, digests, statistics, policy.

Trusted side. Nothing is executed: sources and problems are only read. Every finding is one line that says where and
what. See guides/results.md for what each check proves.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.catalog import CatalogError, load_problems
from harness.catalog.source_lookup import SourceFinder
from harness.core.config import KEYS, TORCH_TYPES
from harness.core.json_value import from_json
from harness.core.policy import Policy, apply, parse_policy
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.stats import (
    SpeedupEstimate,
    drift_of_bursts,
    geometric_mean,
    quotient,
    speedup_interval,
    summarise,
)
from harness.core.status import Status
from harness.core.task import Outcome
from harness.results.evidence import finite, mapping, number, text, whole
from harness.results.manifest import MANIFEST, changes_since
from harness.results.reader import DamagedRecord, StoreError, read_head, read_records, source_folders
from harness.results.schema import RunHead
from harness.results.scoring import EAGER

RELATIVE = 1e-9
"""Largest relative difference of a statistic that is computed again: other versions of numpy add in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of `verify_run`.

    Attributes:
        findings: What does not hold, a line each.
        notes: What could not be checked, a line each.
        records: Number of lines with a record.
        statistics: Number of records whose statistics were computed again.
        signed_by: Public key of the signature, in hex; None for an unsigned run.
    """

    findings: tuple[str, ...]
    notes: tuple[str, ...]
    records: int
    statistics: int
    signed_by: str | None


def verify_run(
    folder: Path, *, solutions: Sequence[Path] | None = None, problems: Path | None = None, key: str | None = None
) -> Verification:
    """Check everything about a run that its files can show.

    Args:
        folder: The run's folder.
        solutions: Folders with the sources of solutions, by default those of the run. A source that is not found is a
            note.
        problems: Folder of problems; by default the run's, if it is there.
        key: Public key that must have signed the run, in hex; None accepts any key, and unsigned runs.

    Returns:
        The findings.

    Raises:
        StoreError: A signature can't be checked without the package `cryptography`.
    """
    findings, signed_by = changes_since(folder)
    if key is not None and signed_by != key:
        findings.append(f"the run is {f'signed by {signed_by}' if signed_by else 'not signed'}, not by the key {key}")
    records: list[Record] = []
    head: Mapping[str, Any] = {}
    notes: list[str] = []
    try:
        head = read_head(folder)
        findings += _faults_of_head(head, folder)
    except StoreError as error:
        findings.append(str(error))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DamagedRecord)
            records, cut_off, _ = read_records(folder)
        findings += [f"records.jsonl: {note}" for note in cut_off] + [str(item.message) for item in caught]
    except StoreError as error:
        findings.append(str(error))
    # Runs without a manifest may be of an older harness, which had other formulas.
    again = (folder / MANIFEST).exists()
    statistics = 0
    for line, record in enumerate(records, start=1):
        where = f"records.jsonl, record {line} ({record.solution})"
        # A record is untrusted here: wrong types in its timing are findings, not errors of the harness.
        try:
            found = [*(_faults_of_times(record) if again else ()), *_faults_of_verdict(record, head)]
            statistics += again and bool(_bursts(record, "solution"))
        except (ArithmeticError, ValueError, TypeError, KeyError) as error:
            found = [f"its timing or evidence has a value of a wrong kind: {error}"]
        findings += [f"{where}: {fault}" for fault in found]
    latest = list({record.identity: record for record in records}.values())
    more, unknown = _faults_of_sources(latest, head, source_folders(head) if solutions is None else solutions, problems)
    findings += more
    notes += unknown
    return Verification(
        findings=tuple(findings),
        notes=tuple(notes),
        records=len(records),
        statistics=statistics,
        signed_by=signed_by,
    )


def _faults_of_head(head: Mapping[str, Any], folder: Path) -> Iterator[str]:
    if not head:
        yield "run.yaml: is missing or empty"
        return
    yield from (f"run.yaml: unknown key {name!r}" for name in head if name not in RunHead.__annotations__)
    config = mapping(head, "config")
    if "imported_from" not in config:
        yield from (f"run.yaml: unknown setting {name!r} in config" for name in config if name not in (*KEYS, "timing"))
    if "run_id" in head and not isinstance(head["run_id"], str):
        yield f"run.yaml: run_id is {head['run_id']!r}, not a text"
    try:
        parse_policy(config.get("policy"))
    except ValueError as error:
        yield f"run.yaml: policy must be {error}"


def _faults_of_times(record: Record) -> Iterator[str]:
    """Compute the statistics of the raw samples again; yield those that differ."""
    timing = record.timing
    if timing is None:
        return
    reference, solution = _bursts(record, "reference"), _bursts(record, "solution")
    for side, bursts in (("reference", reference), ("solution", solution)):
        if bursts:
            computed = summarise([time_s for burst in bursts for time_s in burst]).to_json()
            yield from _differs(f"timing.{side}.device", mapping(timing, side, "device"), computed)
    main = text(timing, "baseline") or EAGER
    rows = mapping(timing, "baselines")
    shapes = mapping(timing, "shapes")
    if shapes:
        yield from _faults_of_shapes(timing, shapes)
    if reference and solution:
        eager = speedup_interval(reference, solution)
        name = "timing.shapes.shown" if shapes else "timing.speedup"
        held = mapping(shapes, "shown") if shapes else mapping(timing, "speedup")
        held = held if main == EAGER else mapping(rows, EAGER)
        yield from _differs(name if main == EAGER else "timing.baselines.eager", held, eager.to_json())
        for name in rows:
            if name != EAGER and (over := mapping(rows, name, "over_eager")):
                estimate = quotient(eager, from_json(over, SpeedupEstimate)).to_json()
                row = {key: rows[name].get(key) for key in estimate}
                yield from _differs(f"timing.baselines.{name}", row, estimate)
                if name == main:
                    yield from _differs("timing.speedup", mapping(timing, "speedup"), estimate)
        for name, value in mapping(timing, "speedups").items():
            shown = mapping(shapes, "shown") if shapes else mapping(timing, "speedup")
            told = shown if name == main else mapping(rows, name)
            yield from _differs(f"timing.speedups.{name}", value, told.get("speedup"))
    claimed = mapping(record.evidence, "policy").get("speedup_without") if record.speedup is None else record.speedup
    if record.speedup is not None or claimed is not None:
        yield from _differs("speedup", claimed, mapping(timing, "speedup").get("speedup"))
    if reference and (drift := number(timing, "noise_floor", "drift_log_width")) is not None:
        yield from _differs("timing.noise_floor.drift_log_width", drift, drift_of_bursts(reference))
    light = number(timing, "speed_of_light", "sol_time_s")
    for side, name in (("solution", "fraction"), ("reference", "reference_fraction")):
        median_s = number(timing, side, "device", "median_s")
        if light is not None and median_s:
            share = mapping(timing, "speed_of_light").get(name)
            yield from _differs(f"timing.speed_of_light.{name}", share, light / median_s)


def _faults_of_shapes(timing: Mapping[str, Any], shapes: Mapping[str, Any]) -> Iterator[str]:
    """Compute the score over secret shapes again from the speedup at each."""
    estimates = [from_json(row, SpeedupEstimate) for row in shapes["speedups"]]
    score = geometric_mean(estimates, shapes["weights"])
    yield from _differs("timing.speedup", mapping(timing, "speedup"), score.to_json())
    gap = quotient(from_json(mapping(shapes, "shown"), SpeedupEstimate), score)
    yield from _differs("timing.shapes.gap", mapping(shapes, "gap"), gap.to_json())


def _bursts(record: Record, side: str) -> list[list[float]]:
    """Return the raw samples of one side; empty if it has none.

    Raises:
        ValueError: They are no lists of times.
    """
    held = mapping(record.timing, side).get("samples_s")
    if held is None:
        return []
    if not isinstance(held, list) or not all(isinstance(burst, list) and burst for burst in held):
        raise ValueError(f"timing.{side}.samples_s must be lists of times")
    if any(finite(value) is None for burst in held for value in burst):
        raise ValueError(f"timing.{side}.samples_s must be numbers of seconds")
    return [list(burst) for burst in held]


def _differs(name: str, recorded: Any, computed: Any) -> Iterator[str]:
    """Yield a line for each value that is not the one computed from other values."""
    if isinstance(computed, Mapping):
        for key in {**computed, **mapping(recorded)}:
            yield from _differs(f"{name}.{key}", mapping(recorded).get(key), computed.get(key))
        return
    a, b = finite(recorded), finite(computed)
    alike = recorded == computed if a is None or b is None else math.isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-15)
    if not alike:
        yield f"{name} is {recorded!r:.40}; computed from the recorded values it is {computed!r:.40}"


def _faults_of_verdict(record: Record, head: Mapping[str, Any]) -> Iterator[str]:
    """Yield what contradicts the run's policy and settings."""
    config = mapping(head, "config")
    for name, value in (("device", record.device.value), ("workload", record.workload)):
        if name in config and config[name] != value:
            yield f"{name} is {value}; the run has {config[name]}"
    if record.speedup is not None and not _bursts(record, "solution") and "imported_from" not in config:
        yield "it has a speedup but no raw samples"
    if "policy" not in config:
        return
    policy, entry = _policy(config), mapping(record.evidence, "policy")
    without = Outcome(
        status=record.status,
        reason=record.reason,
        speedup=record.speedup,
        evidence=record.evidence,
        labels=record.labels,
    )
    if entry:
        evidence = {key: value for key, value in record.evidence.items() if key != "policy"}
        status, speedup = Status(text(entry, "status_without")), finite(entry.get("speedup_without"))
        without = replace(without, status=status, speedup=speedup, evidence=evidence)
    judged = apply(policy, without)
    if (judged.status, judged.speedup) != (record.status, record.speedup):
        yield f"status is {record.status}; by the run's policy it is {judged.status}"
    elif entry and (judged.evidence.get("policy"), judged.reason) != (dict(entry), record.reason):
        yield f"the run's policy refuses it for another reason: {judged.reason}"


def _policy(config: Mapping[str, Any]) -> Policy:
    try:
        return parse_policy(config.get("policy"))
    except ValueError:
        return Policy()  # a finding about run.yaml


def _faults_of_sources(
    records: Sequence[Record], head: Mapping[str, Any], solutions: Sequence[Path], problems: Path | None
) -> tuple[list[str], list[str]]:
    """Compare digests with the files that are there; return findings and notes."""
    findings, notes = [], []
    finder = SourceFinder(solutions)
    missing = 0
    for record in records:
        if record.solution_digest and finder.source_of(record) is None:
            changed = next((path for path in _places(record, solutions) if path.is_file()), None)
            if changed is None:
                missing += 1
            else:
                findings.append(f"{record.solution}: {changed} is not the source that was judged: the digests differ")
    if missing:
        notes.append(f"the sources of {missing} of {len(records)} records were not found; pass --solutions DIR")
    root = problems or Path(text(head, "config", "problems") or "problems").expanduser()
    try:
        known = load_problems(root).known
    except CatalogError as error:
        return findings, [*notes, f"the digests of problems were not checked: {error}"]
    dtype = mapping(head, "config").get("dtype")
    convert = TORCH_TYPES.get(dtype) if isinstance(dtype, str) else None  # type: ignore[call-overload]
    absent = sorted({record.problem for record in records if record.problem not in known})
    if absent:
        notes.append(f"{root} has no problem {', '.join(absent[:5])}: {len(absent)} problems were not checked")
    for problem in sorted({record.problem for record in records} & set(known)):
        digest = known[problem].digest
        digest = digest if convert is None else digest_text(digest, convert)
        if any(record.problem == problem and record.problem_digest not in ("", digest) for record in records):
            findings.append(f"{problem}: {known[problem].path} is not the problem that was judged: the digests differ")
    if (asked := whole(head, "solutions")) is not None and len(records) > asked:
        findings.append(f"run.yaml: solutions is {asked}, but records.jsonl has records of more solutions")
    return findings, notes


def _places(record: Record, solutions: Sequence[Path]) -> Iterator[Path]:
    """Yield the paths at which a record's source may be."""
    for root in solutions:
        for base in (root, *root.absolute().parents):
            yield base / record.solution

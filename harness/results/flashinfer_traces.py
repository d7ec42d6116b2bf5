"""Import flashinfer-bench's traces as a run, and write records as traces.

Trusted side. Verdicts and times of imported records are flashinfer-bench's: the label `flashinfer_verdict` and a
workload that begins with `flashinfer_` say so, and no table ranks them with others. Times there are in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.catalog.foreign.flashinfer import trace_lines, workload_name
from harness.catalog.foreign.shared import files
from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status, one_line
from harness.results.evidence import mapping, number, positive, text
from harness.results.reward import NOT_BUILT
from harness.results.writer import whole_run

LABEL = "flashinfer_verdict"
"""On every imported record: the verdict is flashinfer-bench's own."""

MS_PER_S = 1e3

_STATUSES = {
    "PASSED": Status.passed,
    "INCORRECT_SHAPE": Status.wrong_shape,
    "INCORRECT_NUMERICAL": Status.wrong_value,
    "INCORRECT_DTYPE": Status.wrong_dtype,
    "RUNTIME_ERROR": Status.runtime_error,
    "COMPILE_ERROR": Status.compile_error,
    "TIMEOUT": Status.timeout,
}
_NUMERICAL = {Status.wrong_value, Status.low_precision, Status.non_finite, Status.wrong_state, Status.mutated_input}


def import_traces(
    path: Path, into: Path, *, problems: Mapping[str, str], solutions: Mapping[str, str], skipped: dict[str, str]
) -> int:
    """Create a run from the traces below a folder.

    Args:
        path: Folder with `.jsonl` files; lines without an evaluation are workloads, and ignored.
        into: Folder of the new run; it is not created if there is no trace.
        problems: Id of each imported definition.
        solutions: Label of each imported solution.
        skipped: Gets the reason for each trace that is left out.

    Returns:
        The number of records.

    Raises:
        StoreError: `into` can't be written.
    """
    records = []
    for file in files(path, ".jsonl", {}):
        for _, line, error in trace_lines(file):
            if error is not None or line.get("evaluation") is None:
                continue
            try:
                records.append(_record(line, problems, solutions))
            except ValueError as wrong:
                skipped[f"traces of {line.get('solution')!s:.100} for {line.get('definition')!s:.100}"] = str(wrong)
    if records:
        with whole_run(into, config={"imported_from": "flashinfer-bench"}, environment={}) as store:
            for record in records:
                store.append(record)
    return len(records)


def _record(line: Mapping[str, Any], problems: Mapping[str, str], solutions: Mapping[str, str]) -> Record:
    evaluation = mapping(line, "evaluation")
    definition, solution, uuid = text(line, "definition"), text(line, "solution"), text(line, "workload", "uuid")
    if definition not in problems or f"solution {solution}" not in solutions:
        raise ValueError("its definition or solution was not imported")
    status = _STATUSES.get(text(evaluation, "status"))
    if status is None or not uuid:
        raise ValueError("its evaluation has no known status, or its workload no uuid")
    label = solutions[f"solution {solution}"]
    performance = mapping(evaluation, "performance")
    latency, reference = positive(performance.get("latency_ms")), positive(performance.get("reference_latency_ms"))
    speedup = reference / latency if status is Status.passed and latency and reference else None
    errors = mapping(evaluation, "correctness")
    timing = {
        "clock": "flashinfer-bench's",
        "baseline": "eager",
        "solution": {"device": {"mean_s": latency / MS_PER_S}},
        "reference": {"device": {"mean_s": reference / MS_PER_S}},
        "speedup": {"speedup": speedup, "low": None, "high": None, "method": "ratio of means"},
    } if speedup is not None and latency and reference else None  # fmt: skip
    last_line = text(evaluation, "log").strip().rpartition("\n")[2]
    reason = f"{text(evaluation, 'status')} by flashinfer-bench" + (f": {last_line}" if last_line else "")
    hardware = text(evaluation, "environment", "hardware")
    finite = {name: number(errors, name) for name in ("max_relative_error", "max_absolute_error")}
    return Record(
        problem=problems[definition],
        author=label.partition("/")[0],
        solution=label,
        device=DeviceKind.CUDA,
        workload=f"flashinfer_{workload_name(uuid)}",
        status=status,
        reason=one_line(reason if speedup is None else f"{reason}; {speedup:.3g}x the reference", limit=300),
        labels=(LABEL,),
        speedup=speedup,
        evidence={"flashinfer": {"uuid": uuid, "definition": definition, "solution": solution, **finite}},
        timing=timing,
        environment={"gpu": hardware} if hardware else {},
        finished_at=text(evaluation, "timestamp"),
    )


def trace_of(record: Record, *, definition: str, workload: Mapping[str, Any], solution: str) -> dict[str, Any] | None:
    """Return a record as a trace.

    Args:
        record: The record.
        definition: Name of its problem's definition.
        workload: The workload as flashinfer-bench has it.
        solution: Name of the solution.

    Returns:
        The line, or None if the record has no verdict, or passed without a time.
    """
    if record.status in VERDICT_FREE or (record.status is Status.passed and record.speedup is None):
        return None
    status = _foreign_status(record.status)
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": {
            "hardware": text(record.environment, "gpu") or text(record.environment, "cpu") or "unknown",
            "libs": {name: held for name in ("torch", "driver") if (held := text(record.environment, name))},
        },
        "timestamp": record.finished_at or "unknown",
        "log": f"{record.status.value}: {record.reason}",
        "correctness": None,
        "performance": None,
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        errors = [error for name in mapping(record.evidence, "variants")
                  if (error := number(record.evidence, "variants", name, "max_error")) is not None]  # fmt: skip
        own = mapping(record.evidence, "flashinfer")
        evaluation["correctness"] = {
            "max_relative_error": max(errors) if errors else _nan(own.get("max_relative_error")),
            "max_absolute_error": _nan(own.get("max_absolute_error")),
            "extra": {"harness_status": record.status.value, "relative_to": "the output's RMS"},
        }
    if status == "PASSED":
        solution_ms = _milliseconds(record, "solution")
        reference_ms = _milliseconds(record, "reference")
        evaluation["performance"] = {
            "latency_ms": solution_ms,
            "reference_latency_ms": reference_ms,
            "speedup_factor": record.speedup,
        }
    return {"definition": definition, "workload": dict(workload), "solution": solution, "evaluation": evaluation}


def _milliseconds(record: Record, side: str) -> float:
    device = mapping(record.timing, side, "device")
    known = (positive(device.get(name)) for name in ("median_s", "mean_s"))
    return next((held * MS_PER_S for held in known if held is not None), 0.0)


def _nan(value: object) -> float | str:
    """Return the error, or `NaN` as flashinfer-bench writes it: it is not known."""
    return value if isinstance(value, float) and math.isfinite(value) else "NaN"


def _foreign_status(status: Status) -> str:
    if status in _NUMERICAL:
        return "INCORRECT_NUMERICAL"
    if status in NOT_BUILT:
        return "COMPILE_ERROR"
    if status is Status.wrong_structure:
        return "INCORRECT_SHAPE"
    return next((name for name, held in _STATUSES.items() if held is status), "RUNTIME_ERROR")

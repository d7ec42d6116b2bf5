"""Values of one baseline of one problem: times, key, rows of a record.

A baseline is timed in alternation with eager, and only its ratio to eager counts. A solution's speedup over the
baseline is its speedup over eager (measured in the run) divided by the baseline's speedup over eager. So a difference
between the two measurements, for instance a warmer GPU, cancels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.core.choices import Baseline
from harness.core.json_value import JsonObject
from harness.core.problem import Problem
from harness.core.stats import SpeedupEstimate, quotient
from harness.core.status import one_line

FORMAT = 1
"""Version of the entries and of the measuring method. Entries of another version are measured again."""


class BaselineOutcome(StrEnum):
    """How the measurement of a baseline ended."""

    measured = "measured"
    """Correct and timed."""
    wrong = "wrong"
    """Its outputs miss the problem's precision class, so its time means nothing."""
    failed = "failed"
    """It did not compile or run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKey(JsonObject):
    """What an entry is valid for.

    `processor` and `units` are the GPU's name and its number of multiprocessors (a slice of a GPU has fewer), or the
    CPU's name and torch's number of threads. `sizes` are those of the workload.
    """

    baseline: Baseline
    problem_digest: str
    sizes: Mapping[str, Any]
    precision: str
    device: str
    processor: str
    units: int
    driver: str | None
    torch: str

    def digest(self) -> str:
        told = json.dumps({"format": FORMAT, **self.to_json()}, sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEntry(JsonObject):
    """One baseline, measured or failed. Times are in seconds.

    `device` and `eager` summarise calls with a cold cache, measured side by side by the device's clock. `over_eager` is
    the speedup over eager. `held_to` is the precision class that the outputs must reach: the problem's, or tf32 if that
    is coarser and the baseline allows TF32. `graphs` is the number of pieces that torch compiled; more than one means
    that it returned to Python between them.
    """

    baseline: Baseline
    outcome: BaselineOutcome
    reason: str | None = None
    held_to: str
    matmul_tf32: bool
    cudnn_tf32: bool
    compile_s: float | None = None
    graphs: int | None = None
    device: Mapping[str, Any] | None = None
    eager: Mapping[str, Any] | None = None
    latency_s: float | None = None
    eager_latency_s: float | None = None
    over_eager: SpeedupEstimate | None = None
    samples_s: tuple[tuple[float, ...], ...] = ()
    eager_samples_s: tuple[tuple[float, ...], ...] = ()
    rounds: int = 0
    stopped_by: str | None = None
    measured_at: str = ""

    def __post_init__(self) -> None:
        timed = self.device is not None and self.eager is not None and self.over_eager is not None
        if timed != (self.outcome is BaselineOutcome.measured):
            raise ValueError(
                f"a baseline has times if and only if it was measured: {self.baseline} has the outcome {self.outcome}"
            )

    @property
    def median_s(self) -> float | None:
        return None if self.device is None else float(self.device["median_s"])

    @property
    def eager_s(self) -> float | None:
        return None if self.eager is None else float(self.eager["median_s"])


def with_baselines(
    timing: Mapping[str, Any],
    wanted: Sequence[Baseline],
    entries: Mapping[Baseline, BaselineEntry],
    checks: Mapping[Baseline, Mapping[str, Any]] | None = None,
) -> tuple[float | None, dict[str, Any]]:
    """Return the speedup for the record, and `timing` with a row per baseline.

    Args:
        timing: Timing of the bursts against eager; `timing["speedup"]` is the estimate over eager.
        wanted: The requested baselines. The first one decides the speedup and is named in `timing["baseline"]`.
        entries: The entries of the baselines.
        checks: Results of the spot check of eager (see `BaselineKeeper`).

    Returns:
        The speedup over the first baseline, None if that baseline has no time; and the extended timing, in which
        `speedups` has all speedups by name.
    """
    eager = SpeedupEstimate(**timing["speedup"])
    rows: dict[str, dict[str, Any]] = {}
    estimates: dict[Baseline, SpeedupEstimate | None] = {Baseline.EAGER: eager}
    for baseline in wanted:
        if baseline is not Baseline.EAGER and baseline in entries:
            entry = entries[baseline]
            estimates[baseline] = None if entry.over_eager is None else quotient(eager, entry.over_eager)
            rows[baseline.value] = _row(entry, estimates[baseline], (checks or {}).get(baseline))
    main = wanted[0]
    if main is not Baseline.EAGER:
        rows[Baseline.EAGER.value] = eager.to_json()
    chosen = estimates.get(main)
    told = dict(timing)
    told["baseline"] = main.value
    if rows:
        told["baselines"] = rows
        told["speedups"] = {name.value: None if held is None else held.speedup for name, held in estimates.items()}
    if main is not Baseline.EAGER:
        told["speedup"] = None if chosen is None else chosen.to_json()
    return None if chosen is None else chosen.speedup, told


def _row(entry: BaselineEntry, estimate: SpeedupEstimate | None, check: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        **({"speedup": None, "low": None, "high": None} if estimate is None else estimate.to_json()),
        "outcome": entry.outcome.value,
        "reason": entry.reason,
        "device_s": entry.median_s,
        "eager_s": entry.eager_s,
        "over_eager": None if entry.over_eager is None else entry.over_eager.to_json(),
        "compile_s": entry.compile_s,
        "graphs": entry.graphs,
        "held_to": entry.held_to,
        "matmul_tf32": entry.matmul_tf32,
        "cudnn_tf32": entry.cudnn_tf32,
        "measured_at": entry.measured_at,
        "spot_check": None if check is None else dict(check),
    }


def failed_entry(baseline: Baseline, problem: Problem, reason: str) -> BaselineEntry:
    """The entry of a baseline that could not be measured."""
    return BaselineEntry(
        baseline=baseline,
        outcome=BaselineOutcome.failed,
        reason=one_line(reason, limit=400),
        held_to=problem.precision.value,
        matmul_tf32=baseline.tf32 is True,
        cudnn_tf32=baseline.tf32 is not False,
    )

"""Record: one immutable line of results, validated at construction.

A record that contradicts itself (for example a speedup without timing) can't be constructed or read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.json_value import from_json, to_json
from harness.core.status import Status

RECORD_FORMAT = 1
"""Version of the record format; a reader accepts this and all smaller versions."""

RUN_FORMAT = 1
"""Version of `run.yaml` and of a run folder's layout; a reader accepts this and all smaller versions."""

DERIVED_SIZES = "derived_sizes"
"""Key in a record's evidence: the sizes of its workload `small`, if the harness derived them."""

SECRET_SHAPES = "secret_shapes"
"""Key in a record's evidence: the number of secret shapes that its run asks for; absent if none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of `records.jsonl`.

    The names of the fields are stable. The keys inside `evidence`, `timing`, `build` and `environment` may change with
    `format`.

    Attributes:
        problem: The problem's id, such as `level1/16`.
        author: The author's name.
        solution: The solution's label: its path below the solutions folder.
        device: Where the solution ran.
        workload: The workload's name.
        status: How the evaluation ended.
        reason: One line that explains the status.
        sample: The solution's number among several of its author for this problem.
        labels: Facts that do not decide the status.
        speedup: The reference's time over the solution's, against the first baseline (above 1 is faster); only for a
            passed and timed solution.
        evidence: JSON values that the status rests on.
        timing: Measured times, or None if nothing was timed.
        build: How the extensions were built, or None.
        environment: Machine and versions.
        solution_digest: SHA-256 of the solution's source.
        problem_digest: SHA-256 of the problem's file and declarations.
        finished_at: End of the evaluation, ISO 8601.
        wall_s: Duration of the evaluation in seconds.
        format: Version of the record format.
    """

    problem: str
    author: str
    solution: str
    device: DeviceKind
    workload: str
    status: Status
    reason: str
    sample: int | None = None
    labels: tuple[str, ...] = ()
    speedup: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] | None = None
    build: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    solution_digest: str = ""
    problem_digest: str = ""
    finished_at: str = ""
    wall_s: float | None = None
    format: int = RECORD_FORMAT

    def __post_init__(self) -> None:
        if self.speedup is not None:
            if self.status is not Status.passed:
                raise ValueError(f"a record with status {self.status} must not have a speedup")
            if not (math.isfinite(self.speedup) and self.speedup > 0.0):
                raise ValueError(f"a speedup must be a positive number, not {self.speedup}")
            if self.timing is None:
                raise ValueError("a record with a speedup needs `timing`")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"a reason must be one non-empty line, not {self.reason!r}")
        if not (self.problem and self.author and self.solution):
            raise ValueError("a record needs `problem`, `author` and `solution`")

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Problem, solution, device, workload: unique among a run's records."""
        return (self.problem, self.solution, self.device.value, self.workload)

    @property
    def workload_title(self) -> str:
        """The workload for readers: it says whether the harness derived its sizes."""
        return (
            f"{self.workload} (derived)"
            if self.workload == "small" and DERIVED_SIZES in self.evidence
            else self.workload
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `json.dumps(..., allow_nan=False)` accepts."""
        return {"format": self.format, **to_json(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Record:
        """Read a record written by this or an older harness.

        Raises:
            ValueError: The format is newer, a key is missing or unknown, or a value is wrong.
        """
        version = value.get("format")
        if not isinstance(version, int) or version > RECORD_FORMAT or version < 1:
            raise ValueError(f"record format {version!r}; this harness reads 1 to {RECORD_FORMAT}")
        if unknown := sorted(set(value) - {item.name for item in fields(cls)}):
            raise ValueError(f"not a record: unknown keys {', '.join(unknown)}")
        needed = {item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING}
        if missing := sorted(needed - set(value)):
            raise ValueError(f"not a record: missing {', '.join(f'`{name}`' for name in missing)}")
        return from_json(value, cls)

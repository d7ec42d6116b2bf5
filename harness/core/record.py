"""A record: one immutable line of results, checked when it is made and when it is read.

A `Record` that contradicts itself can't be constructed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.status import Status

RECORD_FORMAT = 1
"""Version of the record format; a reader accepts this and every smaller one."""

RUN_FORMAT = 1
"""Version of `run.yaml` and of a run folder's layout; a reader accepts this and every smaller one."""

_ABSENT = type(None)
_FORMS: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("problem", "author", "solution", "workload", "reason"), ((str,), "text")),
    **dict.fromkeys(("solution_digest", "problem_digest", "finished_at"), ((str,), "text")),
    **dict.fromkeys(("evidence", "environment"), ((dict,), "an object")),
    **dict.fromkeys(("timing", "build"), ((dict, _ABSENT), "an object or null")),
    **dict.fromkeys(("speedup", "wall_s"), ((int, float, _ABSENT), "a number or null")),
    "sample": ((int, _ABSENT), "a whole number or null"),
    "labels": ((list, tuple), "a list of texts"),
}
"""Field of a record -> what JSON may hold there, and in words. A file may have been edited by anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One immutable line of results, as written to `records.jsonl`.

    `evidence` holds what the verdict rests on, `timing` what was measured (null where nothing was), `build` how the
    module was made, `environment` where. `speedup` is against eager (above 1 is faster) and exists only for a
    passed, timed solution. Top-level names are a promise; inner ones are versioned by `format`.
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
                raise ValueError(f"a record with status {self.status} can't have a speedup")
            if not (math.isfinite(self.speedup) and self.speedup > 0.0):
                raise ValueError(f"a speedup is a positive number, not {self.speedup}")
            if self.timing is None:
                raise ValueError("a record with a speedup needs the timing it comes from")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"a reason is one line of text, not {self.reason!r}")
        if not (self.problem and self.author and self.solution):
            raise ValueError("a record names its problem, author and solution")

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What a run holds at most one record of: problem, solution, device, workload."""
        return (self.problem, self.solution, self.device.value, self.workload)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `json.dumps(..., allow_nan=False)` accepts it."""
        value: dict[str, Any] = {"format": self.format}
        for item in fields(self):
            held = getattr(self, item.name)
            if isinstance(held, StrEnum):
                held = held.value
            elif isinstance(held, tuple):
                held = list(held)
            elif isinstance(held, Mapping):
                held = dict(held)
            value[item.name] = held
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Record:
        """Read a record written by this or an older harness; unknown keys of a newer one are an error.

        Raises `ValueError` with what is wrong.
        """
        version = value.get("format")
        if not isinstance(version, int) or version > RECORD_FORMAT or version < 1:
            raise ValueError(f"record format {version!r}; this harness reads 1 to {RECORD_FORMAT}")
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise ValueError(f"unknown keys in a record: {', '.join(unknown)}")
        needed = {item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING}
        if lacking := sorted(needed - set(value)):
            raise ValueError(f"not a record: it has no {', '.join(f'`{name}`' for name in lacking)}")
        held = dict(value)
        for name, (kinds, wanted) in _FORMS.items():
            if name in held and not isinstance(held[name], kinds):
                raise ValueError(f"`{name}` must be {wanted}, not {held[name]!r:.60}")
        if not all(isinstance(label, str) for label in held.get("labels", ())):
            raise ValueError(f"`labels` must be a list of texts, not {held['labels']!r:.60}")
        try:
            held["device"] = DeviceKind(held["device"])
            held["status"] = Status(held["status"])
            held["labels"] = tuple(held.get("labels", ()))
            return cls(**held)
        except TypeError as error:
            raise ValueError(f"not a record: {error}") from error

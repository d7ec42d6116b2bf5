"""What the conductor hands to a referee and gets back: configuration, one task, one outcome, as JSON objects.

Trusted side; plain values without torch, so that a conductor that only passes them on starts at once. No contestant
ever sees one: a task holds the problem's source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.core.choices import Baseline, DeviceKind, PrecisionClass, SandboxMode
from harness.core.problem import Costs, InputRules, Problem, Workload
from harness.core.status import Status

MAX_TASK_BYTES = 64 * 2**20
"""Largest frame between executor and worker; a task holds the sources of problem and solution."""

DEVICE_INDEX = 0
"""Each referee sees one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefereeConfig:
    """What holds for every solution that a referee judges; the fields are `RunConfig`'s.

    `sanitizer` is the path of compute-sanitizer, None where nothing is audited. `cache_dir` is where peaks and
    baselines are kept, None where neither is wanted.
    """

    device: DeviceKind
    device_index: int
    sandbox: SandboxMode
    checked: bool
    device_policy: str
    seeds: int
    load_timeout_s: float
    call_timeout_s: float
    solution_timeout_s: float
    min_samples: int
    sets_per_burst: int
    relative_half_width: float
    budget_s: float
    memory_limit_bytes: int
    host_runtime: str | None = None
    sanitizer: str | None = None
    allow_degenerate: bool = False
    baselines: tuple[Baseline, ...] = (Baseline.EAGER,)
    cache_dir: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "baselines": [baseline.value for baseline in self.baselines]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RefereeConfig:
        baselines = tuple(Baseline(name) for name in value["baselines"])
        return cls(**{**value, "device": DeviceKind(value["device"]), "baselines": baselines})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """A text of the solution's inside a compiled file: from which line (from 1) of `file` it stands there."""

    file: str
    name: str
    text: str
    begin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One solution to judge. `modules` are its prebuilt extensions, `readable` the folders they lie in.

    `timed` is False where times would mean nothing: CUDA sources executed on the CPU. `small` is the workload for
    checks on the side, None where the problem has none; `parts` and `kernels` (names) say what compiled code is the
    solution's own.
    """

    problem: Problem
    workload: Workload
    source: str
    filename: str
    modules: tuple[Mapping[str, Any], ...]
    readable: tuple[Path, ...]
    log_path: Path
    timed: bool
    small: Workload | None = None
    parts: tuple[SourcePart, ...] = ()
    kernels: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": problem_json(self.problem),
            "workload": {"name": self.workload.name, "sizes": dict(self.workload.sizes)},
            "source": self.source,
            "filename": self.filename,
            "modules": [dict(module) for module in self.modules],
            "readable": [str(path) for path in self.readable],
            "log_path": str(self.log_path),
            "timed": self.timed,
            "small": None if self.small is None else {"name": self.small.name, "sizes": dict(self.small.sizes)},
            "parts": [asdict(part) for part in self.parts],
            "kernels": list(self.kernels),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Task:
        return cls(
            problem=problem_of(value["problem"]),
            workload=Workload(**value["workload"]),
            source=value["source"],
            filename=value["filename"],
            modules=tuple(value["modules"]),
            readable=tuple(Path(path) for path in value["readable"]),
            log_path=Path(value["log_path"]),
            timed=value["timed"],
            small=None if value["small"] is None else Workload(**value["small"]),
            parts=tuple(SourcePart(**part) for part in value["parts"]),
            kernels=tuple(value["kernels"]),
        )


def problem_json(problem: Problem) -> dict[str, Any]:
    """What another trusted process needs to make a problem ready. `problem_of` is the inverse."""
    return {
        "id": problem.id,
        "name": problem.name,
        "path": str(problem.path),
        "source": problem.source,
        "digest": problem.digest,
        "precision": problem.precision.value,
        "variants": list(problem.rules.variants),
        "costs": asdict(problem.costs),
    }


def problem_of(value: Mapping[str, Any]) -> Problem:
    return Problem(
        id=value["id"],
        name=value["name"],
        path=Path(value["path"]),
        source=value["source"],
        digest=value["digest"],
        precision=PrecisionClass(value["precision"]),
        rules=InputRules(variants=tuple(value["variants"])),
        costs=Costs(**value["costs"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict with its evidence, in the record's terms."""

    status: Status
    reason: str
    speedup: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Outcome:
        return cls(**{**value, "status": Status(value["status"]), "labels": tuple(value["labels"])})

"""Messages between runner and referee, as JSON objects: settings, task, outcome.

Trusted side. No import of torch, so that the runner starts at once. A contestant never sees a task, because a task
contains the problem's source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.choices import Baseline, DeviceKind, SandboxMode
from harness.core.json_value import JsonObject
from harness.core.problem import Problem, Workload
from harness.core.status import Status

MAX_TASK_BYTES = 64 * 2**20
"""Largest message between executor and worker, in bytes; a task contains the sources of problem and solution."""

DEVICE_INDEX = 0
"""Index of the device in a referee, which sees only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefereeConfig(JsonObject):
    """Settings of a referee, the same for all its solutions.

    The fields have the meaning of `RunConfig` and `TimingConfig`, except:

    Attributes:
        host_runtime: Folder of the host device's libraries; None on a GPU.
        sanitizer: Path of compute-sanitizer; None turns audits off.
        cache_dir: Folder for measured peaks and baselines; None measures neither.
        shapes: Number of secret shapes besides the shown one.
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
    gpu_memory_bytes: int | None = None
    host_runtime: str | None = None
    sanitizer: str | None = None
    allow_degenerate: bool = False
    baselines: tuple[Baseline, ...] = (Baseline.EAGER,)
    cache_dir: str | None = None
    shapes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """A part of a compiled file that is a text of the solution.

    `begin` is its first line in `file`, from 1.
    """

    file: str
    name: str
    text: str
    begin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledAt(JsonObject):
    """When more timing would change nothing for a group of solutions to one problem.

    Attributes:
        half_width: Half width of the speedup's interval (a difference of logs) at which timing may end if the interval
            meets none of the `rivals`.
        tied_half_width: The same, if it meets one.
        rivals: Intervals of the speedups of other solutions.
    """

    half_width: float
    tied_half_width: float
    rivals: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(JsonObject):
    """One solution to evaluate.

    Attributes:
        problem: Its problem.
        workload: Sizes to evaluate at.
        source: The solution's source.
        filename: The solution's file name, for tracebacks.
        modules: Its built extensions.
        readable: Folders that contain them.
        log_path: File for its output.
        timed: False if times mean nothing: CUDA sources that run on the CPU.
        small: Workload of the audit and other side checks; None if the problem has none.
        parts: Parts of compiled files that are the solution's own text.
        kernels: Names of the solution's own kernels.
        input_key: Key of the inputs, of an evaluation that is repeated; None draws one.
        checked_on_host: Whether the host device has checked its kernels at the small workload: no audit is needed.
        shape_key: Key of the secret shapes: 64 hex digits, the same for all solutions of one run; None draws one.
        settled_at: When timing may end earlier than for a single solution; None if it may not.
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
    checked_on_host: bool = False
    input_key: str | None = None
    shape_key: str | None = None
    settled_at: SettledAt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(JsonObject):
    """Result of one evaluation: the referee's verdict.

    The fields have the meaning of `Record`; `detail` is text for the log. The verdict is final, unless
    `policy_may_refuse`: then the run's policy has the last word (`core.policy.apply`).
    """

    status: Status
    reason: str
    speedup: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    detail: str = ""

    @property
    def policy_may_refuse(self) -> bool:
        """Whether the run's policy may still change the status."""
        return self.status is Status.passed

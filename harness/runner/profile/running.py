"""Run a solution and its reference as contestants and collect their kernels.

Trusted side. The reference also runs in a sandbox, in the form of a solution: its values do not matter here, and a
profiler must not be loaded into a trusted process.
"""

from __future__ import annotations

import ast
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.catalog.sizes import apply_sizes
from harness.core import python_ast
from harness.core.config import RunConfig
from harness.core.problem import Problem, Workload
from harness.core.task import RefereeConfig, Task
from harness.devices import measured_peaks
from harness.devices.device import Device, DeviceError
from harness.devices.gpu_specs import datasheet
from harness.devices.out_of_memory import advice, held_elsewhere_bytes, is_shortage, opened
from harness.referee.audit.small_workload import subject_of
from harness.referee.contestants.census_request import request_of, take_census
from harness.referee.contestants.client import attach_request
from harness.referee.contestants.kernel_census import KernelSources, conclude
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.roofline import speed_of_light
from harness.referee.problem.workspace import Workspace
from harness.referee.worker import PRELOADED, PRELOADED_CUDA
from harness.runner.executors.local import referee_config
from harness.runner.plan import PlannedSolution
from harness.runner.profile import ncu
from harness.sandbox import SandboxPolicy, SandboxUnavailable
from harness.sandbox.zygote import Zygote, ZygoteError
from harness.toolchain import BuildOutcome

WARM_UP_CALLS = 3
"""Calls before the measured one: they load code, open libraries and let autotuners finish."""

NCU_START_S = 120.0
NCU_CALL_S = 300.0
"""Limit of one call under ncu, in seconds. Each launch is replayed several times, with its memory restored in between.
"""

END_S = 30.0


class ProfileError(Exception):
    """Profiling is impossible, because of the machine or the problem.

    The message says what to do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledSide:
    """Profile of the solution or of the reference.

    Attributes:
        title: Name of the side.
        census: Kernel census, as in a record's `evidence.census`.
        labels: Labels of the solution.
        counters: Hardware counters per launch.
        counters_lack: Why there are no counters; None if there are.
        failure: Why the code failed; None if it ran.
    """

    title: str
    census: Mapping[str, Any]
    labels: tuple[str, ...] = ()
    counters: tuple[ncu.Counters, ...] = ()
    counters_lack: str | None = None
    failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "census": dict(self.census),
            "labels": list(self.labels),
            "counters": [launch.to_json() for launch in self.counters],
            "counters_lack": self.counters_lack,
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where the time of one call goes.

    Attributes:
        problem: The problem's id.
        workload: The workload's name.
        device: The device's name.
        solution: The solution's side.
        reference: The reference's side.
        speed_of_light: The least time on this GPU; None if its peak rates are unknown.
        flops: Floating-point operations of the reference.
        least_bytes: Bytes that a call has to read and write at least.
    """

    problem: str
    workload: str
    device: str
    solution: ProfiledSide
    reference: ProfiledSide
    speed_of_light: Mapping[str, Any] | None = None
    flops: int = 0
    least_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "workload": self.workload,
            "device": self.device,
            "flops": self.flops,
            "least_bytes": self.least_bytes,
            "speed_of_light": None if self.speed_of_light is None else dict(self.speed_of_light),
            "solution": self.solution.to_json(),
            "reference": self.reference.to_json(),
        }


@dataclass(slots=True, kw_only=True)
class _Stage:
    """The loaded problem and the settings that both sides need."""

    config: RefereeConfig
    workspace: Workspace
    logs: Path
    tool: str | None = None
    failures: list[str] = field(default_factory=list)


def profile(config: RunConfig, job: PlannedSolution, built: BuildOutcome, *, tool: str | None = None) -> Profile:
    """Profile a solution whose build succeeded.

    Args:
        config: The run's configuration.
        job: The solution with its problem and workload.
        built: Its build.
        tool: Path of ncu, to read hardware counters too; None for none.

    Returns:
        The profile. A solution that fails is reported in its `ProfiledSide`.

    Raises:
        ProfileError: The machine or the problem makes profiling impossible.
    """
    try:
        device = opened(config.device)
    except DeviceError as error:
        raise ProfileError(str(error)) from error
    elsewhere = held_elsewhere_bytes(device)
    place = f"problem {job.problem.id}, workload {job.workload.name}"
    try:
        return _profiled(config, job, built, device, tool)
    except Exception as error:
        if is_shortage(error):
            raise ProfileError(f"{place}: does not fit the free memory: {advice(device, elsewhere)}") from error
        if not isinstance(error, ProblemError):
            raise
        more = f"; {advice(device, elsewhere)}" if elsewhere else ""
        raise ProfileError(f"{place}: {error}{more}") from error


def _profiled(
    config: RunConfig, job: PlannedSolution, built: BuildOutcome, device: Device, tool: str | None
) -> Profile:
    settings = replace(referee_config(config, None), sanitizer=None)
    workspace = Workspace(job.problem, job.workload, device, sets_wanted=2, secret=random.Random())
    with tempfile.TemporaryDirectory(prefix="harness-profile-") as folder, ExitStack() as stack:
        stack.callback(workspace.close)
        stage = _Stage(config=settings, workspace=workspace, logs=Path(folder), tool=tool)
        tasks = (_task(job, built, stage.logs), _reference_task(job.problem, job.workload, stage.logs))
        try:
            noted = _censuses(stage, tasks)
            counted = _counters(stage, tasks) if tool is not None else [((), None), ((), None)]
        except (ZygoteError, SandboxUnavailable) as error:
            raise ProfileError(str(error)) from error
        builds: tuple[Mapping[str, Any] | None, ...] = (built.to_json(), None)
        sides = [
            _side(title, task, build, held, counters)
            for title, task, build, held, counters in zip(
                ("solution", "reference"), tasks, builds, noted, counted, strict=True
            )
        ]
        flops, traffic = workspace.costs
        rates = measured_peaks.ensure(device, config.cache_dir) or datasheet(device.name or "")
        light = None
        if rates is not None:
            precision = job.problem.costs.rate or job.problem.precision
            light = speed_of_light(flops.total, traffic.total_bytes, rates, precision).to_json()
        return Profile(
            problem=job.problem.id,
            workload=job.workload.name,
            device=device.name or device.kind.value,
            solution=sides[0],
            reference=sides[1],
            speed_of_light=light,
            flops=flops.total,
            least_bytes=traffic.total_bytes,
        )


def _task(job: PlannedSolution, built: BuildOutcome, logs: Path) -> Task:
    return Task(
        problem=job.problem,
        workload=job.workload,
        source=job.solution.source,
        filename=job.solution.path.name,
        modules=built.injected(),
        readable=built.readable,
        log_path=logs / "solution.log",
        timed=False,
        parts=built.parts,
        kernels=built.kernel_names,
    )


def _reference_task(problem: Problem, workload: Workload, logs: Path) -> Task:
    """Return a task with the reference as a solution, at the workload's sizes."""
    tree = apply_sizes(python_ast.parse(problem.source), workload.sizes)
    return Task(
        problem=problem,
        workload=workload,
        source=ast.unparse(tree) + "\n\nModelNew = Model\n",
        filename="reference.py",
        modules=(),
        readable=(),
        log_path=logs / "reference.log",
        timed=False,
    )


def _censuses(stage: _Stage, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Return the kernel census of one call of each."""
    with Zygote(preload=(*PRELOADED, *PRELOADED_CUDA), log_path=stage.logs / "zygote.log") as zygote:
        noted = []
        for task in tasks:
            try:
                with _started(stage, zygote, task, under_tool=False) as contestant:
                    timeout_s = stage.config.call_timeout_s
                    noted.append(take_census(contestant, stage.workspace, coerce=True, timeout_s=timeout_s))
            except ContestantFailed as failed:
                noted.append({"rows": [], "complete": False, "lack": failed.failure.reason, "failed": True})
        return noted


def _counters(stage: _Stage, tasks: Sequence[Task]) -> list[tuple[tuple[ncu.Counters, ...], str | None]]:
    """Return the hardware counters of each, or why there are none."""
    return [_count(stage, task) for task in tasks]


def _count(stage: _Stage, task: Task) -> tuple[tuple[ncu.Counters, ...], str | None]:
    """Measure one call under ncu, which wraps its own zygote.

    ncu writes its table when the zygote ends.
    """
    assert stage.tool is not None
    table = stage.logs / f"{task.filename}.ncu"
    said = stage.logs / f"{task.filename}.ncu.log"
    lack: str | None = None
    zygote = Zygote(
        preload=(*PRELOADED, *PRELOADED_CUDA), log_path=said, wrapper=ncu.command(stage.tool, table), enclosed=True
    )
    try:
        zygote.wait_ready(NCU_START_S)
        with _started(stage, zygote, task, under_tool=True) as contestant:
            contestant.census(request_of(stage.workspace, coerce=True, marked=True), NCU_CALL_S)
            contestant.finish(END_S)
    except (ContestantFailed, ZygoteError) as failed:
        lack = str(failed)
    finally:
        zygote.close()
    text = "".join(path.read_text(errors="replace")[: ncu.MAX_LOG_BYTES] for path in (table, said) if path.exists())
    launches = ncu.parse(text)
    return launches, None if launches else ncu.complaint(text) or lack or "ncu wrote no table; see its output"


def _started(stage: _Stage, zygote: Zygote, task: Task, *, under_tool: bool) -> ContestantProcess:
    """Start a contestant, load its solution and warm it up; the caller ends it.

    Raises `ContestantFailed`.
    """
    policy = SandboxPolicy(
        mode=stage.config.sandbox,
        gpu=True,
        readable=task.readable,
        max_memory_bytes=stage.config.memory_limit_bytes,
        under_tool=under_tool,
    )
    limit_s = stage.config.load_timeout_s
    attach = attach_request(stage.config, stage.workspace, own_allocations=under_tool)
    subject = subject_of(task, stage.workspace, attach, calls=1)
    contestant = ContestantProcess(zygote, policy, task.log_path, memory_limit_bytes=stage.config.memory_limit_bytes)
    try:
        contestant.attach(subject.attach, subject.arena_fd, limit_s)
        contestant.load(subject.load, limit_s)
        for _ in range(WARM_UP_CALLS):
            contestant.burst(subject.burst, stage.config.call_timeout_s)
    except BaseException:
        contestant.__exit__()
        raise
    return contestant


def _side(
    title: str,
    task: Task,
    build: Mapping[str, Any] | None,
    noted: Mapping[str, Any],
    counters: tuple[tuple[ncu.Counters, ...], str | None],
) -> ProfiledSide:
    concluded = conclude(noted, KernelSources.of(task.source, build))
    launches, lack = counters
    return ProfiledSide(
        title=title,
        census=concluded.evidence,
        labels=concluded.labels if build is not None else (),
        counters=launches,
        counters_lack=lack,
        failure=str(noted["lack"]) if noted.get("failed") else None,
    )

"""Messages between server and call as JSON: settings, solutions, results, errors.

Trusted side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.core.choices import PrecisionClass
from harness.core.config import Machine, RunConfig, TimingConfig, resolve
from harness.core.environment import MachineError
from harness.core.policy import Policy
from harness.core.problem import Problem, Solution, Workload
from harness.core.status import Failure
from harness.core.task import problem_json, problem_of
from harness.results.reader import StoreUnavailable
from harness.runner.executors import ExecutorError, SlotLost
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.service import ServiceError

OF_ONE_RUN: Mapping[str, Any] = {
    "paths": (Path(),),
    "problem": None,
    "author": None,
    "problems": Path("problems"),
    "out": Path("results"),
    "run_id": "served",
    "resume": False,
    "workload": "full",
    "shard": None,
}
"""Settings that select one run's solutions and folder; builds and evaluations do not depend on them."""


def shared_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that runs sharing builders and referees must have in common."""
    value: dict[str, Any] = {}
    for item in fields(RunConfig):
        held = getattr(replace(config, **OF_ONE_RUN), item.name)
        value |= asdict(held) if isinstance(held, TimingConfig) else {item.name: _plain(held)}
    return value


def config_of(settings: Mapping[str, Any], machine: Machine) -> RunConfig:
    """Invert `shared_settings`. Raises `ConfigError`."""
    return resolve(machine=machine, run_id="served", options=settings, source="harness serve")


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return value.to_json()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def work_json(work: PendingSolution) -> dict[str, Any]:
    """Return a solution as JSON; `work_of` is the inverse."""
    job, solution = work.job, work.job.solution
    return {
        "solution": {**asdict(replace(solution, failure=None)), "path": str(solution.path)},
        "solution_failure": _failure_json(solution.failure),
        "problem": problem_json(job.problem),
        "problem_failure": _failure_json(job.problem.failure),
        "workloads": [_workload_json(each) for each in job.problem.workloads.values()],
        "workload": _workload_json(job.workload),
        "log_path": str(work.log_path.absolute()),
    }


def work_of(value: Mapping[str, Any]) -> PendingSolution:
    held: dict[str, Any] = {**value["solution"], "path": Path(value["solution"]["path"])}
    workloads = [_workload_of(each) for each in value["workloads"]]
    problem: Problem = replace(
        problem_of(value["problem"]),
        workloads={each.name: each for each in workloads},
        failure=_failure_of(value["problem_failure"]),
    )
    solution = replace(Solution(**held), failure=_failure_of(value["solution_failure"]))
    job = PlannedSolution(solution=solution, problem=problem, workload=_workload_of(value["workload"]))
    return PendingSolution(job=job, log_path=Path(value["log_path"]))


def _failure_json(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else failure.to_json()


def _failure_of(value: Mapping[str, Any] | None) -> Failure | None:
    return None if value is None else Failure.from_json(value)


def _workload_json(workload: Workload) -> dict[str, Any]:
    return {**asdict(workload), "sizes": dict(workload.sizes), "precision": _plain(workload.precision)}


def _workload_of(value: Mapping[str, Any]) -> Workload:
    precision = None if value["precision"] is None else PrecisionClass(value["precision"])
    return Workload(name=value["name"], sizes=value["sizes"], precision=precision)


_ERRORS: Mapping[str, type[Exception]] = {
    **{kind.__name__: kind for kind in (ExecutorError, MachineError, ServiceError, SlotLost, StoreUnavailable)},
    **dict.fromkeys(("CacheError", "SandboxUnavailable"), MachineError),
}
"""Errors that are not the harness's own fault. A call has no use for the modules of the last two."""


def error_json(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON; `error_of` is the inverse."""
    if isinstance(error, OSError) and error.errno is not None:
        name = error.filename if isinstance(error.filename, str) else None
        return {"kind": "OSError", "errno": error.errno, "text": error.strerror or str(error), "filename": name}
    kind = next((held.__name__ for held in type(error).__mro__ if held.__name__ in _ERRORS), None)
    text = str(error) if kind is not None else f"{type(error).__name__}: {error}"
    return {"kind": kind, "text": text}


def error_of(value: Mapping[str, Any]) -> BaseException:
    """Return the exception that a call raises for an error of the server."""
    if value["kind"] == "OSError":
        return OSError(value["errno"], value["text"], value["filename"])
    return _ERRORS.get(value["kind"], ExecutorError)(value["text"])

"""Messages between server and call as JSON: settings, solutions, results, errors.

Trusted side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import MachineError
from harness.core.json_value import from_json, to_json
from harness.results.reader import StoreUnavailable
from harness.runner.executors import ExecutorError, SlotLost
from harness.runner.plan import PendingSolution
from harness.runner.service import ServiceError

OF_ONE_RUN: Mapping[str, Any] = {
    "paths": (Path(),),
    "problem": None,
    "author": None,
    "pattern": None,
    "status": None,
    "stop_at_failure": False,
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
    value: dict[str, Any] = to_json(replace(config, **OF_ONE_RUN))
    timing: dict[str, Any] = value.pop("timing")
    return value | timing


def config_of(settings: Mapping[str, Any], machine: Machine) -> RunConfig:
    """Invert `shared_settings`. Raises `ConfigError`."""
    return resolve(machine=machine, run_id="served", options=settings, source="harness serve")


def work_json(work: PendingSolution) -> dict[str, Any]:
    """Return a solution as JSON; `work_of` is the inverse."""
    value: dict[str, Any] = to_json(replace(work, log_path=work.log_path.absolute(), losses=0))
    return value


def work_of(value: Mapping[str, Any]) -> PendingSolution:
    return from_json(value, PendingSolution)


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

"""Open the executor of a run: this machine, or a Ray cluster. Trusted side."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from pathlib import Path

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.runner.executors import Executor, ExecutorError
from harness.runner.executors.local import LocalExecutor
from harness.runner.executors.prestart import Prestart


def open_executor(
    config: RunConfig, environment: Environment, logs: Path, ahead: Prestart | None = None
) -> AbstractContextManager[Executor]:
    """Open the executor that `config` names.

    `ahead` holds processes that were already started. Raises `ExecutorError` if Ray is not installed or its cluster
    can't be reached.
    """
    if config.executor == "local":
        return LocalExecutor(config, environment, logs, ahead=ahead)
    if importlib.util.find_spec("ray") is None:
        raise ExecutorError("--executor ray needs the package ray: pip install 'kernel-harness[ray]'")
    from harness.runner.executors.ray import RayExecutor

    return RayExecutor(config)

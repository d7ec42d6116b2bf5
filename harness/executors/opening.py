"""The executor that a run's configuration asks for.

Trusted side. Ray is imported only by the run that uses it.
"""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from pathlib import Path

from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.executors import Executor, ExecutorError
from harness.executors.ahead import Ahead
from harness.executors.local import LocalExecutor


def open_executor(
    config: RunConfig, environment: Environment, logs: Path, ahead: Ahead | None = None
) -> AbstractContextManager[Executor]:
    """This machine, with the processes that were started `ahead`, or a Ray cluster. Raises `ExecutorError` where Ray is
    not installed or can't be reached."""
    if config.executor == "local":
        return LocalExecutor(config, environment, logs, ahead=ahead)
    if importlib.util.find_spec("ray") is None:
        raise ExecutorError("--executor ray needs the package ray: pip install 'kernel-harness[ray]'")
    from harness.executors.ray import RayExecutor

    return RayExecutor(config)

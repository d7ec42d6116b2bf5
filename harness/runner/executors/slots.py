"""The slots of this machine, each with what its processes' environment must say.

Trusted side; reads nothing but the `Environment`, and starts nothing. On GPUs there is one slot for each that is
visible, and its processes see no other; on the host device there are as many as asked for.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.visible_gpus import visible_gpus
from harness.runner.executors import Executor, ExecutorError, Slot
from harness.runner.executors.local import LocalExecutor
from harness.runner.executors.prestart import Ahead


def open_executor(
    config: RunConfig, environment: Environment, logs: Path, ahead: Ahead | None = None
) -> AbstractContextManager[Executor]:
    """This machine, with the processes that were started `ahead`, or a Ray cluster. Raises `ExecutorError` where Ray is
    not installed or can't be reached."""
    if config.executor == "local":
        return LocalExecutor(config, environment, logs, ahead=ahead)
    if importlib.util.find_spec("ray") is None:
        raise ExecutorError("--executor ray needs the package ray: pip install 'kernel-harness[ray]'")
    from harness.runner.executors.ray import RayExecutor

    return RayExecutor(config)


def seats(config: RunConfig, environment: Environment) -> list[tuple[Slot, dict[str, str]]]:
    """The slots of this machine, each with what its processes' environment must say. Raises `ExecutorError`."""
    if config.device is DeviceKind.HOST:
        held = environment.for_record(DeviceKind.HOST)
        names = ["host"] if (config.workers or 1) == 1 else [f"host-{n}" for n in range(config.workers or 1)]
        return [(Slot(name=name, title=name, environment=held), {}) for name in names]
    gpus = visible_gpus(environment)
    if not gpus:
        raise ExecutorError("CUDA_VISIBLE_DEVICES names no GPU of this machine; unset it, or --device host")
    chosen = gpus[: config.workers]
    # Several referees at once would each start as many threads as there are processors.
    several = len(chosen) > 1 and "OMP_NUM_THREADS" not in os.environ
    threads = {"OMP_NUM_THREADS": str(max(1, environment.cpu_count // len(chosen)))} if several else {}
    return [
        (
            Slot(
                name=gpu.uuid,
                title=f"GPU {gpu.index} {gpu.name}",
                environment=environment.for_record(config.device, gpu_index=gpu.index),
            ),
            # By UUID, since numbers mean another order where CUDA sorts by speed. Every process sees one GPU, as 0.
            {"CUDA_VISIBLE_DEVICES": gpu.uuid, **threads},
        )
        for gpu in chosen
    ]

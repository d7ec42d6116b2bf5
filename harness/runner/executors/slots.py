"""The slots of this machine, with the environment variables of their processes.

Trusted side; starts nothing. With GPUs there is one slot per visible GPU, and its processes see no other. On the host
device the number of slots is `--workers`.
"""

from __future__ import annotations

import os

from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.visible_gpus import visible_gpus
from harness.runner.executors import ExecutorError, Slot


def seats(config: RunConfig, environment: Environment) -> list[tuple[Slot, dict[str, str]]]:
    """Return each slot with the environment variables of its processes.

    Raises `ExecutorError`.
    """
    if config.device is DeviceKind.HOST:
        held = environment.for_record(DeviceKind.HOST)
        names = ["host"] if (config.workers or 1) == 1 else [f"host-{n}" for n in range(config.workers or 1)]
        return [(Slot(name=name, title=name, environment=held), {}) for name in names]
    gpus = visible_gpus(environment)
    if not gpus:
        raise ExecutorError("CUDA_VISIBLE_DEVICES names no GPU of this machine; unset it, or pass --device host")
    chosen = gpus[: config.workers]
    # Otherwise each of several referees starts as many threads as there are processors.
    several = len(chosen) > 1 and "OMP_NUM_THREADS" not in os.environ
    threads = {"OMP_NUM_THREADS": str(max(1, environment.cpu_count // len(chosen)))} if several else {}
    return [
        (
            Slot(
                name=gpu.uuid,
                title=f"GPU {gpu.index} {gpu.name}",
                environment=environment.for_record(config.device, gpu_index=gpu.index),
            ),
            # By UUID: CUDA may number GPUs by speed, in another order than NVML. Every process sees one GPU, as 0.
            {"CUDA_VISIBLE_DEVICES": gpu.uuid, **threads},
        )
        for gpu in chosen
    ]

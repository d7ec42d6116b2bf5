"""The walls that a referee puts around a contestant, as a policy, and what a record says of them.

Trusted side; used by the referee. Imports `sandbox`, `queues` and `tasks`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.task import RefereeConfig, Task
from harness.devices.hardware_queues import ONE_QUEUE, queues_for
from harness.guest import Guest
from harness.sandbox import SandboxPolicy


def policy_for(task: Task, config: RefereeConfig, gpu_minor: int | None) -> SandboxPolicy:
    """For the solution of this task. `gpu_minor` is the number of the GPU's device file, where it is known."""
    return SandboxPolicy(
        mode=config.sandbox,
        gpu=config.device is DeviceKind.CUDA,
        gpu_minor=gpu_minor,
        readable=task.readable + ((Path(runtime),) if (runtime := config.host_runtime) else ()),
        max_memory_bytes=config.memory_limit_bytes,
        env=queues_for(task.source) if config.device is DeviceKind.CUDA else {},
    )


def trusted_policy_for(task: Task, config: RefereeConfig, gpu_minor: int | None) -> SandboxPolicy:
    """For the harness's own code, the same for every task: it uses one stream and reads nothing of a solution's."""
    own = policy_for(replace(task, readable=()), config, gpu_minor)
    return replace(own, env=ONE_QUEUE) if own.gpu else own


def told(guest: Guest) -> dict[str, Any]:
    """What a record says of the walls that stood around this contestant, and of its end."""
    held: dict[str, Any] = {**guest.sandbox.to_json(), "opened_ahead_s": guest.opened_s}
    ended = guest.exit_report
    if ended is not None:
        held["peak_memory_bytes"] = ended.peak_memory_bytes
        held["log_truncated"] = ended.log_truncated
    return held

"""GPUs that this process may use, in CUDA's order, and their compute capabilities.

Trusted side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.environment import Environment, Gpu

Capability = tuple[int, int]
"""A GPU's compute capability, major and minor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpu:
    """One visible GPU.

    `index` is its place in `Environment.gpus`, `uuid` its id in CUDA_VISIBLE_DEVICES.
    """

    index: int
    name: str
    uuid: str


def visible_gpus(environment: Environment) -> tuple[VisibleGpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, in its order.

    These are all GPUs if it is not set.

    As in CUDA, entries after an invalid one are ignored, and a prefix of a UUID is enough. Numbers count GPUs in bus
    order, as NVML does. CUDA may use another order, so pass UUIDs to processes that you start.
    """
    gpus = environment.gpus
    every = tuple(VisibleGpu(index=place, name=gpu.name, uuid=gpu.uuid) for place, gpu in enumerate(gpus))
    if environment.cuda_visible_devices is None:
        return every
    found: list[VisibleGpu] = []
    for token in environment.cuda_visible_devices.split(","):
        name = token.strip()
        if name.isdecimal() and int(name) < len(every):
            chosen = every[int(name)]
        elif name.startswith("MIG-") and every:
            # A MIG slice: NVML's list does not say of which GPU, and most machines with MIG show only one.
            chosen = VisibleGpu(index=0, name=every[0].name, uuid=name)
        else:
            fitting = [gpu for gpu in every if name.startswith("GPU-") and gpu.uuid.startswith(name)]
            if len(fitting) != 1:
                break
            chosen = fitting[0]
        if chosen in found:
            break
        found.append(chosen)
    return tuple(found)


def capability_of(gpu: Gpu) -> Capability | None:
    """Return a GPU's compute capability; None if NVML does not report it."""
    if gpu.compute_capability is None:
        return None
    major, minor = gpu.compute_capability.split(".")
    return int(major), int(minor)


def capabilities_of(gpus: Iterable[Gpu]) -> tuple[Capability, ...]:
    """Return the distinct compute capabilities of GPUs, in rising order."""
    return tuple(sorted({known for gpu in gpus if (known := capability_of(gpu)) is not None}))


def capabilities_in_use(environment: Environment, workers: int | None) -> tuple[Capability, ...]:
    """Return the distinct compute capabilities of GPUs in use, in rising order.

    These are the first `workers` visible GPUs; None is all.
    """
    used = visible_gpus(environment)[:workers]
    if any(gpu.uuid.startswith("MIG-") for gpu in used):
        return capabilities_of(environment.gpus)  # the slice may belong to any GPU
    return capabilities_of(environment.gpus[gpu.index] for gpu in used)

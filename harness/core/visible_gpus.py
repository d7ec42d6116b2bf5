"""Which of a machine's GPUs this process may use, in CUDA's order, and what has to be compiled for them.

Edge, trusted side; reads nothing but the `Environment`. Imports `environment` and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.environment import Environment, Gpu

Capability = tuple[int, int]
"""A GPU's compute capability, major and minor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpu:
    """One GPU: its place among `Environment.gpus`, its name, and what CUDA_VISIBLE_DEVICES calls it."""

    index: int
    name: str
    uuid: str


def visible_gpus(environment: Environment) -> tuple[VisibleGpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all of them where it is not set.

    As in CUDA, what follows an entry that names no GPU counts no more, and a UUID may be cut short. Numbers are taken
    in the order of the bus, which is NVML's; whoever starts a process should name the UUID instead.
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
            # A slice of some GPU: NVML's list does not say which, and on most machines there is only one.
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
    """Its compute capability as numbers; None where NVML does not say."""
    if gpu.compute_capability is None:
        return None
    major, minor = gpu.compute_capability.split(".")
    return int(major), int(minor)


def capabilities_of(gpus: Iterable[Gpu]) -> tuple[Capability, ...]:
    """Their compute capabilities, each once, the lowest first."""
    return tuple(sorted({known for gpu in gpus if (known := capability_of(gpu)) is not None}))


def capabilities_in_use(environment: Environment, workers: int | None) -> tuple[Capability, ...]:
    """Those of the first `workers` GPUs that are visible (None: of all), each once, the lowest first."""
    used = visible_gpus(environment)[:workers]
    if any(gpu.uuid.startswith("MIG-") for gpu in used):
        return capabilities_of(environment.gpus)  # it may be a slice of any
    return capabilities_of(environment.gpus[gpu.index] for gpu in used)

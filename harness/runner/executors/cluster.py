"""Resources that a run requests of a Ray cluster, and a check of its address.

Trusted side; does not import ray. Ray waits forever for resources that never become free. So reservations always leave
room for one build besides all judges, also after nodes were lost.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.runner.executors import ExecutorError

BUILD_CPUS = {DeviceKind.CUDA: 2.0, DeviceKind.HOST: 0.5}
"""Processors reserved per build.

A build for a GPU keeps two processors busy: nvcc and g++. On the host device a node may have a single processor, shared
by judge and builds.
"""

HOST_JUDGE_CPUS = 0.05
"""Processors reserved per judge on the host device.

More than zero keeps judges off nodes without processors; so little leaves room for builds on every other node.
"""

CONNECT_TIMEOUT_S = 5.0
"""How long a cluster's address may take to answer, in seconds. Ray itself tries for minutes."""

_MODEL = "accelerator_type:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A live node: its processors, GPUs, and GPU models by Ray's names."""

    cpus: float
    gpus: int = 0
    models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Resources to request.

    Attributes:
        judges: Number of slots; on CUDA each also reserves a GPU.
        judge_cpus: Processors reserved per slot.
        build_cpus: Processors reserved per build.
        builders: Builds that run at once.
    """

    judges: int
    judge_cpus: float
    build_cpus: float
    builders: int


def nodes_of(listing: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the live nodes in the list of `ray.nodes()`."""
    return [
        Node(
            cpus=float(item["Resources"].get("CPU", 0)),
            gpus=int(item["Resources"].get("GPU", 0)),
            models=frozenset(name.removeprefix(_MODEL) for name in item["Resources"] if name.startswith(_MODEL)),
        )
        for item in listing
        if item["Alive"]
    ]


def demand(nodes: Sequence[Node], device: DeviceKind, *, workers: int | None, model: str | None) -> Demand:
    """Return the resources to request.

    On CUDA there is one judge per GPU (of this `model`), at most `workers`. On the host device there are `workers`
    judges, or one per node that has processors. Raises `ExecutorError` if the cluster can't evaluate or build anything.
    """
    cpus = sum(node.cpus for node in nodes)
    largest = max((node.cpus for node in nodes), default=0.0)
    if largest < 1:
        raise ExecutorError("the Ray cluster has no CPU for builds; start its nodes with --num-cpus")
    if device is DeviceKind.HOST:
        judges = workers or sum(node.cpus >= 1 for node in nodes)
        return Demand(
            judges=judges,
            judge_cpus=HOST_JUDGE_CPUS,
            build_cpus=BUILD_CPUS[device],
            builders=max(1, int(cpus) - judges),
        )
    having = [node for node in nodes if node.gpus and (model is None or model in node.models)]
    if not having:
        known = ", ".join(sorted({name for node in nodes for name in node.models}))
        what = "no GPU" if model is None else f"no GPU of accelerator type {model} (available: {known or 'none'})"
        raise ExecutorError(f"the Ray cluster has {what}; pass --device host to use its CPUs")
    judges = min(sum(node.gpus for node in having), workers or sum(node.gpus for node in having))
    # Each of these nodes alone must have room for a build. Judges reserve a processor only if that leaves enough.
    build_cpus = min(BUILD_CPUS[device], max(1.0, float(int(min(node.cpus for node in having)))))
    own = all(node.cpus >= node.gpus + build_cpus for node in having)
    judge_cpus = 1.0 if own else 0.0
    builders = max(1, int((cpus - judges * judge_cpus) // build_cpus))
    return Demand(judges=judges, judge_cpus=judge_cpus, build_cpus=build_cpus, builders=builders)


def check_answers(address: str | None) -> None:
    """Check that a process answers at a cluster's address. Raises `ExecutorError`.

    `auto` means RAY_ADDRESS, else the cluster started last on this machine, whose address Ray keeps in a file. Returns
    without a check if there is no address of the form host:port.
    """
    meant = _started_last() if address == "auto" else address
    host, _, port = (meant or "").rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        named = meant if meant == address else f"{meant} ({address})"
        raise ExecutorError(
            f"no Ray cluster answers at {named}: {error}; start one with `ray start --head`, or pass another address"
        ) from error


def _started_last() -> str | None:
    if told := os.environ.get("RAY_ADDRESS"):
        return told
    try:
        return (Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster").read_text().strip()
    except (OSError, ValueError):
        return None

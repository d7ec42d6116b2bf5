"""What a Ray cluster is asked for: how many judges and builds at once, which processors each reserves, and whether
anybody answers at its address.

Trusted side; decides only, and does not import ray. Ray waits without end for room that never comes, so what is
reserved must always leave room for one build beside the judges, also after nodes were lost.
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
"""A build for a GPU keeps two processors busy: nvcc and g++. On the host device a node may have one processor only,
where judge and build take turns."""

HOST_JUDGE_CPUS = 0.05
"""Keeps judges off nodes that offer no processor, and leaves builds room on all others, wherever judges end up."""

CONNECT_TIMEOUT_S = 5.0
"""How long a cluster's address may take to answer. Ray itself tries one where nobody does for minutes."""

_MODEL = "accelerator_type:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is alive: processors, GPUs, and their models as Ray calls them."""

    cpus: float
    gpus: int = 0
    models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """`judges` slots that reserve `judge_cpus` each (on CUDA a GPU too), builds that reserve `build_cpus` each, of
    which `builders` are asked for at once.
    """

    judges: int
    judge_cpus: float
    build_cpus: float
    builders: int


def nodes_of(listing: Iterable[Mapping[str, Any]]) -> list[Node]:
    """What `ray.nodes()` says of those that are alive."""
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
    """What to ask for, with a judge a GPU (of this model), or on the host device a node that offers processors; at most
    `workers` judges, on the host device just as many. Raises `ExecutorError` where the cluster has nothing to judge or
    build on.
    """
    cpus = sum(node.cpus for node in nodes)
    largest = max((node.cpus for node in nodes), default=0.0)
    if largest < 1:
        raise ExecutorError("the Ray cluster offers no processor to build on: start its nodes with --num-cpus")
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
        what = "no GPU" if model is None else f"no GPU of accelerator type {model} (it has: {known or 'none'})"
        raise ExecutorError(f"the Ray cluster offers {what}; --device host runs on its CPUs")
    judges = min(sum(node.gpus for node in having), workers or sum(node.gpus for node in having))
    # Each of their nodes must do to build on by itself; judges have a processor of their own where that leaves enough.
    build_cpus = min(BUILD_CPUS[device], max(1.0, float(int(min(node.cpus for node in having)))))
    own = all(node.cpus >= node.gpus + build_cpus for node in having)
    judge_cpus = 1.0 if own else 0.0
    builders = max(1, int((cpus - judges * judge_cpus) // build_cpus))
    return Demand(judges=judges, judge_cpus=judge_cpus, build_cpus=build_cpus, builders=builders)


def check_answers(address: str | None) -> None:
    """Return where somebody answers at a cluster's address, or it names none that can be tried.

    Raises `ExecutorError` where nobody does. `auto` is the cluster that Ray was told of (RAY_ADDRESS), else the one
    that was started last on this machine, whose address Ray leaves in a file.
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
            f"no Ray cluster answers at {named}: {error}; start one by `ray start --head`, or name another"
        ) from error


def _started_last() -> str | None:
    if told := os.environ.get("RAY_ADDRESS"):
        return told
    try:
        return (Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster").read_text().strip()
    except (OSError, ValueError):
        return None

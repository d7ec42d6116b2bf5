"""A run on a real Ray cluster of several nodes on this machine, one of which is killed in the middle.

`python tests/support/ray_cluster.py FOLDER` with the tree of `tests/integration/test_survival.py` in it; prints one
JSON object. A process of its own, so that Ray's threads and warnings stay out of the tests'.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.runner.events import Event, Noted, SolutionFinished
from harness.runner.executors import BuildRequest, Slot
from harness.runner.executors.ray import RayExecutor
from harness.runner.plan import plan
from harness.runner.record_builder import OpenVerdict, begin
from harness.runner.run import evaluate_run
from tests.integration.test_survival import descendants

CPUS = 1
"""Of each node. After one is lost the other holds both judges and the builds, which must not wait for each other."""


def kill_machine(cluster: Cluster, node: Any) -> int:
    """End every process of a node at once, as a machine that is switched off does. How many there were."""
    doomed = {pid for _, process in node.live_processes() for pid in descendants(process.pid)}
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    return len(doomed)


def node_of(executor: RayExecutor, slot: Slot) -> str:
    """Ray's id of the node that judges for a slot, asked of the actor there."""
    actor = executor._ready(slot)
    return str(ray.get(actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())))


def built_anew(executor: RayExecutor, config: RunConfig, log_path: Path) -> dict[str, Any]:
    """The `build` of the record of a solution that was built for a GPU that the one that judges is not."""
    job = plan(config)[0]
    order = BuildRequest(source=job.solution.source, filename=job.solution.path.name, arguments=None, log_path=log_path)
    built = executor.build(order)
    built.outcome, built.capability = replace(built.outcome, notes=("for another GPU",)), (8, 0)
    (slot, *_) = executor.slots
    record = begin(executor, slot, job, built, config, log_path)
    assert not isinstance(record, OpenVerdict)  # nothing is audited on the host device
    return dict(record.build or {})


def main(folder: Path) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=CPUS) for _ in range(2)]
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [folder / "solutions"],
            "problems": folder / "problems",
            "out": folder / "results",
            "workload": "full",
            "seeds": 2,
            "min_samples": 4,
            "sets_per_burst": 3,
            "relative_half_width": 0.9,
            "budget_s": 0.6,
            "ray_address": cluster.address,
        },
    )
    killed: list[str] = []
    processes: list[int] = []
    notes: list[str] = []
    slots: list[str | None] = []

    with RayExecutor(config) as executor:
        # Asked before anything is judged: an actor answers one question after another.
        at = {slot.title: node_of(executor, slot) for slot in executor.slots}

        def watch(event: Event) -> None:
            if isinstance(event, Noted):
                notes.append(event.message)
            if isinstance(event, SolutionFinished):
                slots.append(event.slot)
                if not killed:
                    # The one that has begun with its next solution, which is lost with it.
                    busy = at[str(event.slot)]
                    killed.append(busy)
                    processes.append(kill_machine(cluster, next(node for node in nodes if node.node_id == busy)))

        summary = evaluate_run(config, environment=collect(), on_event=watch, executor=executor)
        left = sorted({node_of(executor, slot) for slot in executor.slots})
        anew = built_anew(executor, config, folder / "anew.log")
    cluster.shutdown()
    said = {"records": len(summary.records), "at": sorted(set(at.values())), "killed": killed, "left": left}
    told = {"processes": processes, "notes": notes, "judged_by": slots, "built_anew": anew}
    sys.stdout.write(json.dumps({**said, **told}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

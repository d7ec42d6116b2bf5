"""A run on a real Ray cluster of several nodes on this machine, one of which is killed in the middle.

`python tests/ray_cluster.py FOLDER` with the tree of `tests/test_survival.py` in it; prints one JSON object. A process
of its own, so that Ray's threads and warnings stay out of the tests'.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from harness.config import Machine, resolve
from harness.environment import collect
from harness.executors.ray import RayExecutor
from harness.model import DeviceKind
from harness.pipeline import Event, Noted, SolutionFinished, evaluate_run


def main(folder: Path) -> None:
    # Three processors a node: one for the slot, and after a node is lost one for each of two slots and one for builds.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=3) for _ in range(2)]
    config = resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
        run_id="run",
        options={
            "paths": [folder / "solutions"],
            "problems": folder / "problems",
            "out": folder / "results",
            "workload": "full",
            "min_samples": 4,
            "relative_half_width": 0.9,
            "budget_s": 2.0,
            "workers": 2,
            "ray_address": cluster.address,
        },
    )
    killed: list[str] = []
    notes: list[str] = []
    slots: list[str | None] = []

    with RayExecutor(config) as executor:

        def watch(event: Event) -> None:
            if isinstance(event, Noted):
                notes.append(event.message)
            if isinstance(event, SolutionFinished):
                slots.append(event.slot)
                if not killed:
                    # The one that is judging something: so its solution is lost with it.
                    busy = executor.node_of(next(slot for slot in executor.slots if slot.title == event.slot))
                    victim = next(node for node in nodes if node.node_id == busy)
                    killed.append(busy)
                    cluster.remove_node(victim, allow_graceful=False)

        summary = evaluate_run(config, environment=collect(), on_event=watch, executor=executor)
        left = sorted({executor.node_of(slot) for slot in executor.slots})
    cluster.shutdown()
    said = {"records": len(summary.records), "killed": killed, "left": left, "notes": notes, "judged_by": slots}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

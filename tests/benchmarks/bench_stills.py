"""How much longer a contestant takes to begin a burst for having stood still before it.

    python -m tests.benchmarks.bench_stills --device host --out results/stills-host.md
    python -m tests.benchmarks.bench_stills --device cuda --out results/stills-h200.md

Some 15 s. The harness's own solution (`idle`), which does nothing, in its sandbox; each row is what bursts take by the
referee's clock beside the windows of their calls, after the contestant stood still for so long. A solution's does so
while its answers are verified, and trusted code's, on which claims are calibrated, for `learning.STILL_S` before each
burst. What honest bursts take longer than those is let pass up to a point (`claims.Tolerance`).
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.environment import collect
from harness.core.problem import Problem, Workload, digest_text
from harness.devices.device import open_device
from harness.hostcuda.translate.build import prepare_headers
from harness.protocol.messages import Attach, Burst, CallMode, Load, Open
from harness.referee.contestants.process import ContestantProcess
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace
from harness.referee.timing import noop_solution
from harness.referee.worker import PRELOADED, PRELOADED_CUDA, PRELOADED_HOST
from harness.sandbox import SandboxPolicy
from harness.sandbox.zygote import Zygote
from harness.toolchain import default_root

SOURCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(64)]


def get_init_inputs():
    return []
"""

STILL_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
CALLS = (4, 10)
LEFT_OUT, BURSTS = 2, 10
LIMIT_S = 60.0


@contextmanager
def loaded(kind: DeviceKind) -> Iterator[tuple[Workspace, ContestantProcess]]:
    """A bench and a contestant with the harness's own solution over it."""
    host = kind is DeviceKind.HOST
    runtime = str(prepare_headers(default_root()).folder) if host else None
    problem = Problem(id="level1/1", name="twice", path=Path("1.py"), source=SOURCE, digest=digest_text(SOURCE))
    workspace = Workspace(
        problem, Workload(name="full"), open_device(kind), sets_wanted=max(CALLS), secret=random.Random(1)
    )
    extra = PRELOADED_HOST if host else PRELOADED_CUDA
    with tempfile.TemporaryDirectory() as logs:
        policy = SandboxPolicy(gpu=not host, readable=(Path(runtime),) if runtime else ())
        with (
            Zygote(preload=(*PRELOADED, *extra), log_path=Path(logs) / "zygote.log") as zygote,
            ContestantProcess(zygote, policy, Path(logs) / "log", memory_limit_bytes=32 * 2**30) as contestant,
        ):
            workspace.publish()
            opening = Open(device=kind.value, device_index=0, checked=False, host_runtime=runtime)
            contestant.attach(Attach(nbytes=workspace.arena.nbytes, opening=opening), workspace.arena.fd, LIMIT_S)
            contestant.load(
                Load(
                    source=noop_solution.source(workspace.traits, workspace.oracle.initial_state),
                    filename="idle.py",
                    modules=(),
                    init_tree=workspace.init_tree.to_json(),
                    init_slots=workspace.init_slots,
                    state=workspace.state_slots,
                    seed=1,
                ),
                LIMIT_S,
            )
            for index in range(max(CALLS)):
                workspace.draw(index)
            workspace.hold_back(range(max(CALLS)))
            yield workspace, contestant
    workspace.close()


def beside_s(workspace: Workspace, contestant: ContestantProcess, calls: int) -> float:
    """What a burst of so many calls takes beside their windows, by the referee's clock. Without flushes, which on the
    host device take most of the time."""
    planned_calls = [PlannedCall(index=index, mode=CallMode.LATENCY) for index in range(calls)]
    workspace.mask(range(calls))
    workspace.device.synchronize()
    request = Burst(
        calls=calls_of(workspace, planned_calls),
        input_tree=workspace.tree.to_json(),
        state_names=(),
        restore_state=False,
        coerce_device=False,
    )
    done, wall_s = contestant.burst(request, LIMIT_S)
    return wall_s - sum(claim.window_s for claim in done.claims)


def rows(workspace: Workspace, contestant: ContestantProcess) -> Iterator[str]:
    for still_s in STILL_S:
        found = []
        for calls in CALLS:
            took = []
            for _ in range(LEFT_OUT + BURSTS):
                time.sleep(still_s)
                took.append(beside_s(workspace, contestant, calls))
            found.append(took[LEFT_OUT:])
        shown = " | ".join(f"{statistics.median(took) * 1e3:.2f} | {min(took) * 1e3:.2f}" for took in found)
        yield f"| {still_s * 1e3:g} | {shown} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=DeviceKind, choices=list(DeviceKind), default=DeviceKind.HOST)
    parser.add_argument("--out", type=Path, help="where the table is written")
    given = parser.parse_args()
    machine = collect()
    name = machine.gpus[0].name if given.device is DeviceKind.CUDA and machine.gpus else machine.cpu
    head = " | ".join(f"{calls} calls | least" for calls in CALLS)
    lines = [
        "# Bursts of a contestant that stood still",
        "",
        f"{name}, {machine.cpu_count} processors, torch {machine.torch}; "
        f"`python -m tests.benchmarks.bench_stills --device {given.device.value}`. Milliseconds that a burst takes "
        f"beside the windows of its calls, medians of {BURSTS}.",
        "",
        f"| stood still, ms | {head} |",
        "|---" * (1 + 2 * len(CALLS)) + "|",
    ]
    with loaded(given.device) as (workspace, contestant):
        lines += list(rows(workspace, contestant))
    text = "\n".join(lines) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""What judging a round's answers takes: its calls together, and one by one.

`python -m tests.benchmarks.bench_verifying [PROBLEM...] [--device host --workload small]` prints a Markdown table. The
answers are the reference's own, so that they are right.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from harness.catalog import load_problems
from harness.core.choices import DeviceKind
from harness.devices.device import open_device
from harness.protocol.messages import BurstDone
from harness.referee.correctness import value_check
from harness.referee.correctness.verifier import Verifier
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.workspace import Workspace
from tests.support.answers import answer

PROBLEMS = ("level1/1", "level1/19", "level1/23", "level1/40", "level1/53", "level1/100")
CALLS = 12
REPEATS = 7


@contextmanager
def one_by_one() -> Iterator[None]:
    """As where no kernel is made for a call's tensors."""
    held = value_check.enqueue
    value_check.enqueue = lambda actual, truth, readings: None  # type: ignore[assignment]
    try:
        yield
    finally:
        value_check.enqueue = held


def seconds(
    workspace: Workspace, verifier: Verifier, planned_calls: Sequence[PlannedCall], done: BurstDone, *, wanted: bool
) -> float:
    """Of the median of several rounds."""
    taken = []
    for _ in range(REPEATS):
        workspace.device.synchronize()
        begin = time.perf_counter()
        findings = verifier.check(planned_calls, done, with_reference=wanted)
        taken.append(time.perf_counter() - begin)
        if any(finding.failure for finding in findings):
            raise SystemExit(f"{workspace.problem.id}: the reference's own answer is judged wrong")
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", default=PROBLEMS, help="of the folder problems")
    parser.add_argument("--device", default="cuda", choices=[kind.value for kind in DeviceKind])
    parser.add_argument("--workload", default="full")
    wanted = parser.parse_args()
    catalog = load_problems(Path("problems"))
    device = open_device(DeviceKind(wanted.device), 0)
    on_gpu = device.torch_device.type == "cuda"
    print("| problem | calls | MiB a call | timed calls, one by one | together | first calls, one by one | together |")
    print("|---|---|---|---|---|---|---|")
    for name in wanted.problems:
        problem = catalog[name]
        workspace = Workspace(
            problem, problem.workloads[wanted.workload], device, sets_wanted=CALLS, secret=random.Random(1)
        )
        planned_calls, done = answer(workspace, ("own",) * len(workspace.sets))
        row, peaks = [], []
        for with_reference in (False, True):
            for together in (False, True):
                verifier = Verifier(workspace, required=problem.precision, coerce=False)
                if on_gpu:
                    torch.cuda.reset_peak_memory_stats()
                if together:
                    row.append(seconds(workspace, verifier, planned_calls, done, wanted=with_reference))
                else:
                    with one_by_one():
                        row.append(seconds(workspace, verifier, planned_calls, done, wanted=with_reference))
                peaks.append(torch.cuda.max_memory_allocated() if on_gpu else math.nan)
        shown = " | ".join(f"{took * 1e3 / len(planned_calls):.3f} ms a call" for took in row)
        print(f"| {name} | {len(planned_calls)} | {workspace.set_bytes / 2**20:.1f} | {shown} |", flush=True)
        if peaks[1] > peaks[0] or peaks[3] > peaks[2]:
            print(f"\n{name}: taken together they need more memory: {peaks}\n")
        workspace.close()
        del workspace, verifier
        if on_gpu:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

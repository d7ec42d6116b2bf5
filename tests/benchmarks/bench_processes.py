"""By how much device times of short calls differ from process to process, and how much of it empty calls take away.

    python -m tests.benchmarks.bench_processes --rows processes.jsonl --out results/time-h200/processes.md
    python -m tests.benchmarks.bench_processes --from processes.jsonl --out results/time-h200/processes.md

Needs a GPU; some 25 s. Processes are forked from one that has torch and no context, as contestants are, some at a time
side by side; each makes the same calls with a cold cache, by turns, in rounds. For each kind of call the table has the
spread (standard deviation) of the processes' means, and how much of it is left over by their empty calls of many
launches (`harness.devices.empty_kernel`: one series, made first, as in an evaluation): about the straight line over
these. Then the empty calls of each process by lane (`Device.lanes`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import torch

from harness.core.environment import collect
from harness.core.stats import burst_time
from harness.devices.cuda import CudaDevice
from harness.devices.empty_kernel import FEW, MANY, empty_calls

CALLS = 24
"""Calls of a series, after `LEFT_OUT`."""

LEFT_OUT = 2

SPINS = (0, 4_000, 10_000, 20_000)
"""GPU cycles: some 2 us for every 4,000. Not seconds, whose rate each process would measure for itself."""

Row = dict[str, Any]


def calls_of(device: CudaDevice) -> dict[str, Callable[[], object]]:
    """Kinds of calls by name."""
    place = device.torch_device
    few, many = torch.rand(4096, device=place), torch.rand(1024, 1024, device=place)
    few_out, many_out = torch.empty_like(few), torch.empty_like(many)

    def spinning(cycles: int) -> Callable[[], object]:
        def call() -> None:
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
            torch.mul(few, 2, out=few_out)

        return call

    return {
        "4096 numbers doubled": lambda: torch.mul(few, 2, out=few_out),
        "1 Mi numbers clamped": lambda: torch.clamp(many, min=0, out=many_out),
        **{f"a spin of {cycles} cycles, then 4096 doubled": spinning(cycles) for cycles in SPINS},
    }


def serve(asked: Connection) -> None:
    """The life of one process: its empty calls by lane, then series as they are asked for."""
    device = CudaDevice()
    asked.send([empty_calls(device, lane).to_json() for lane in device.lanes])
    calls = calls_of(device)
    asked.send(list(calls))
    with torch.no_grad():
        while (name := asked.recv()) is not None:
            times = [device.time_cold(calls[name], lambda _: None).device_s for _ in range(LEFT_OUT + CALLS)]
            asked.send(burst_time(times[LEFT_OUT:]))


@contextmanager
def process() -> Iterator[Connection]:
    """A forked process that serves, until the block ends."""
    ours, theirs = Pipe()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    try:
        yield ours
    finally:
        ours.send(None)
        os.waitpid(pid, 0)


def measure(batches: int, side_by_side: int, rounds: int) -> Iterator[Row]:
    """One row a process: its empty calls by lane, and by kind of call the burst times of its rounds, in seconds."""
    chosen = random.Random(1)
    for batch in range(batches):
        with ExitStack() as stack:
            made = [stack.enter_context(process()) for _ in range(side_by_side)]
            held: list[Row] = [{"batch": batch, "empty_calls": each.recv(), "calls": {}} for each in made]
            names = [name for each in made for name in each.recv()]
            order = list(zip(made, held, strict=True))
            for _ in range(rounds):
                chosen.shuffle(order)
                for name in dict.fromkeys(names):
                    for each, row in order:
                        each.send(name)
                        row["calls"].setdefault(name, []).append(each.recv())
        yield from held


def left_over_s(means: Sequence[float], empty_s: Sequence[float]) -> float:
    """The standard deviation of `means` about the straight line over `empty_s` that lies nearest to them."""
    line = statistics.linear_regression(empty_s, means)
    return statistics.pstdev(y - line.slope * x - line.intercept for x, y in zip(empty_s, means, strict=True))


def document(rows: Sequence[Row], machine: str) -> str:
    """The table as Markdown."""
    lines = [
        "# Short calls from process to process",
        "",
        f"{machine}; `python -m tests.benchmarks.bench_processes`. {len(rows)} processes, "
        f"{1 + max(row['batch'] for row in rows)} batches one after another.",
        "",
        "Microseconds. Spreads are standard deviations between processes; within: of one series of "
        f"{CALLS} calls, in one process.",
        "",
        "| call | mean | farthest apart | within | between processes | left over by their empty calls |",
        "|---|---|---|---|---|---|",
    ]
    many_us = [row["empty_calls"][0]["many_s"] * 1e6 for row in rows]
    for name in rows[0]["calls"]:
        series = [[time_s * 1e6 for time_s in row["calls"][name]] for row in rows]
        means = [statistics.fmean(each) for each in series]
        within = statistics.fmean(statistics.pvariance(each) for each in series) ** 0.5
        lines.append(
            f"| {name} | {statistics.fmean(means):.2f} | {max(means) - min(means):.2f} | {within:.3f} | "
            f"{statistics.pstdev(means):.3f} | {left_over_s(means, many_us):.3f} |"
        )
    shown = [" ".join(f"{each['many_s'] * 1e6:.2f}" for each in row["empty_calls"]) for row in rows]
    lines += [
        "",
        f"Empty calls of {MANY} launches by process, on the default stream and by way of its other lanes: "
        + "; ".join(shown)
        + ".",
        "",
        f"Those of {' and '.join(str(each) for each in FEW)} launches in the mean, on the default stream: "
        + ", ".join(f"{row['empty_calls'][0]['few_s'] * 1e6:.2f}" for row in rows)
        + ".",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--side-by-side", type=int, default=6, help="processes of a batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=Path, help="where what was measured is written, as JSON lines")
    parser.add_argument("--from", dest="source", type=Path, help="make the table of these rows, and measure nothing")
    parser.add_argument("--out", type=Path, help="where the table is written")
    args = parser.parse_args()
    if args.source is not None:
        head, *rest = (json.loads(line) for line in args.source.read_text().splitlines())
        machine, rows = head["machine"], rest
    else:
        held = collect()  # by NVML: asked itself, CUDA could not be used in forked processes any more
        if not held.gpus:
            parser.error("there is no GPU here: `harness doctor` says why")
        rows = list(measure(args.batches, args.side_by_side, args.rounds))
        machine = f"{held.gpus[0].name}, driver {held.driver}, torch {held.torch}"
        if args.rows is not None:
            args.rows.write_text("".join(json.dumps(line) + "\n" for line in [{"machine": machine}, *rows]))
    text = document(rows, machine)
    if args.out is not None:
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

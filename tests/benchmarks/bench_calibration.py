"""Does the referee's clock tell the truth? Kernels of known length, twins of the reference, and the order of bursts.

    python -m tests.benchmarks.bench_calibration --rows rows.jsonl --out results/calibration-h200.md
    python -m tests.benchmarks.bench_calibration --only spin --scale 0.2

Needs a GPU, some minutes. Everything goes through a referee, with the defaults of `harness eval`, and real contestants
in their sandbox. Each evaluation is a row of the file as soon as it is made, and the tables (`calibration_tables`) are
written anew after each length, so that a cut-off loses nothing.

* `spin`: a call that spins for so many cycles, which is known by the host's clock to within 0.01 %, is judged against
  its identical twin again and again: 100 times over lengths from 2 us to 50 ms, and some times for no length. How
  far the reference is off the known length; how often the speedup lies within 1 % of 1; what the order of bursts does.
* `kernel`: the same for kernels of torch, whose memory lies elsewhere in each process.
* `work`: a copy and a product, against the mean of many by the host's clock.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.core.environment import query_gpus
from harness.core.problem import Problem
from harness.core.task import Outcome
from harness.referee.referee import Referee
from tests.benchmarks.calibration_tables import Row, document
from tests.benchmarks.spinning import AS_EVALUATED, SPIN, judge, problem_of, rate_hz, referee, twin, zygote

REPEATS = {
    0.0: 6,
    2e-6: 12,
    5e-6: 12,
    10e-6: 12,
    20e-6: 12,
    50e-6: 12,
    100e-6: 12,
    500e-6: 12,
    2e-3: 8,
    5e-3: 6,
    50e-3: 2,
}
"""Evaluations by known length in seconds: 100 twins from 2 us to 50 ms, and some of the call that spins for none."""

KERNELS = {
    "relu of 1 Mi": ("torch.relu(x)", "torch.rand(1024, 1024)"),
    "softmax of 16384 x 1024": ("torch.softmax(x, dim=1)", "torch.rand(16384, 1024)"),
    "product of 2048": ("x @ x", "torch.rand(2048, 2048)"),
}
KERNEL_REPEATS = 4

KNOWN = {
    "copy of 256 MiB": ("x.clone()", "torch.rand(64 * 2**20)"),
    "product of 4096": ("x @ x", "torch.rand(4096, 4096)"),
}


class Sheet:
    """Rows so far: each goes to the file at once, the tables to theirs when asked to."""

    def __init__(self, rows: Path | None, out: Path | None) -> None:
        self._path, self._out = rows, out
        self.held: list[Row] = []
        if rows is not None:
            rows.write_text("")

    def add(self, row: Row) -> None:
        self.held.append(row)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def write(self) -> None:
        if self._out is not None:
            self._out.write_text(document(self.held))


def source_of(forward: str, inputs: str) -> str:
    return (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {forward}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def row_of(outcome: Outcome, took_s: float, **what: Any) -> Row:
    """One evaluation as a row; why it has no speedup where it has none."""
    timing = outcome.timing
    if timing is None or outcome.speedup is None:
        return {**what, "failed": f"{outcome.status}: {outcome.reason}", "took_s": took_s}
    reference, solution, found = timing["reference"], timing["solution"], timing["speedup"]
    floor = timing.get("noise_floor") or {}
    return {
        **what,
        "speedup": outcome.speedup,
        "low": found["low"],
        "high": found["high"],
        "floor": floor.get("log_width", 0.0),
        "measured_floor": floor.get("measured_log_width", 0.0),
        "order": timing["order"],
        "labels": list(outcome.labels),
        "empty_call_s": timing.get("empty_call_s"),
        "took_s": took_s,
        **{
            f"{side}_{name}": held.get(name)
            for side, held in (("reference", reference), ("solution", solution))
            for name in ("samples_s", "queued_s", "graph_s")
        },
    }


def timed(held: Referee, problem: Problem, source: str, sizes: dict[str, int], **what: Any) -> Row:
    begin = time.perf_counter()
    outcome = judge(held, problem, source, **sizes)
    return row_of(outcome, time.perf_counter() - begin, **what)


def spin(held: Referee, sheet: Sheet, lengths: dict[float, int], hz: float) -> None:
    problem = problem_of(SPIN, "spin")
    for length_s, repeats in lengths.items():
        sizes = {"CYCLES": round(length_s * hz)}
        for _ in range(repeats):
            sheet.add(timed(held, problem, twin(SPIN, **sizes), sizes, part="spin", length_s=length_s))
        sheet.write()


def kernels(held: Referee, sheet: Sheet, repeats: int) -> None:
    for name, (forward, inputs) in KERNELS.items():
        source = source_of(forward, inputs)
        problem = problem_of(source, "twin")
        for _ in range(repeats):
            sheet.add(timed(held, problem, twin(source), {}, part="kernel", name=name))
        sheet.write()


def by_the_host_s(call: Callable[[], object], number: int = 200) -> float:
    """Seconds a call, by the host's clock over many."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(number):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / number


def work(held: Referee, sheet: Sheet) -> None:
    for name, (forward, inputs) in KNOWN.items():
        source = source_of(forward, inputs)
        with torch.no_grad():
            x = eval(inputs, {"torch": torch}).cuda()
            expected_s = by_the_host_s(lambda x=x, forward=forward: eval(forward, {"torch": torch, "x": x}))
            del x
        what = {"part": "work", "name": name, "expected_s": expected_s}
        row = timed(held, problem_of(source, "work"), twin(source), {}, **what)
        if "failed" not in row:
            for side in ("reference", "solution"):
                samples = sorted(time_s for burst in row[f"{side}_samples_s"] for time_s in burst)
                row[f"{side}_s"] = samples[len(samples) // 2]
        sheet.add(row)
        sheet.write()


def machine(hz: float, command: str) -> Row:
    """What all of it is measured on."""
    _, driver, _, _ = query_gpus()
    return {
        "part": "machine",
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "driver": driver,
        "torch": torch.__version__,
        "processors": os.cpu_count(),
        "rate_hz": hz,
        "command": command,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="file for the rows, appended as they come")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument("--only", choices=("spin", "kernel", "work"), action="append", help="some parts")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the repeats to make")
    given = parser.parse_args()
    parts, hz = given.only or ["spin", "kernel", "work"], rate_hz()
    sheet = Sheet(given.rows, given.out)
    sheet.add(machine(hz, "`python -m tests.benchmarks.bench_calibration`"))
    lengths = {length_s: max(1, round(repeats * given.scale)) for length_s, repeats in REPEATS.items()}
    with zygote() as forks, referee(forks, **AS_EVALUATED) as held:
        if "spin" in parts:
            spin(held, sheet, lengths, hz)
        if "kernel" in parts:
            kernels(held, sheet, max(1, round(KERNEL_REPEATS * given.scale)))
        if "work" in parts:
            work(held, sheet)
    print(document(sheet.held))


if __name__ == "__main__":
    main()

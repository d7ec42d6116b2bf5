"""Does the referee's clock tell the truth? Kernels of known length, twins of the reference, and the order of bursts.

    python -m tests.benchmarks.bench_calibration --out results/calibration-h200.md
    python -m tests.benchmarks.bench_calibration --repeats 20

Needs a GPU, about two minutes. Everything goes through a referee and real contestants in their sandbox.

* Known length: a call that spins for so many cycles, against the same call that spins for none: the difference is known
  by the host's clock to within 0.01 %. Also a copy and a product, against the mean of many by the host's clock.
* Twins: the reference's own code as the solution, again and again: how often the speedup lies within 1 % of 1, how
  often its interval holds 1, how often it is called the same.
* Order: the log ratio of rounds in which the reference was first, less that of the others: how much longer calls take
  in the first burst of a round. Orders stand equally often, so that a speedup does not feel it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.referee import Referee
from harness.stats import interval_of_logs, same_within
from tests.benchmarks.spinning import SPIN, judge, problem_of, rate_hz, referee, twin

LONG_S = 50e-6

LENGTHS_S = (2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 500e-6, 2e-3, 5e-3, 50e-3)

KNOWN = {
    "copy of 256 MiB": (
        "x.clone()",
        "torch.rand(64 * 2**20)",
    ),
    "product of 4096": (
        "x @ x",
        "torch.rand(4096, 4096)",
    ),
}

TWINS = {
    "relu of 1 Mi": ("torch.relu(x)", "torch.rand(1024, 1024)"),
    "softmax of 16384 x 1024": ("torch.softmax(x, dim=1)", "torch.rand(16384, 1024)"),
    "softmax of 65536 x 1024": ("torch.softmax(x, dim=1)", "torch.rand(65536, 1024)"),
    "product of 2048": ("x @ x", "torch.rand(2048, 2048)"),
}


def source_of(forward: str, inputs: str) -> str:
    return (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return {forward}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.2f}"


def known_lengths(held: Referee) -> tuple[list[str], bool]:
    """Rows of the first table, and whether every length is within 2 % or 0.3 us of the known one."""
    problem, hz = problem_of(SPIN, "spin"), rate_hz()
    rows = [
        f"GPU cycles: {hz / 1e6:.1f} MHz by the host's clock. Microseconds beyond the same call that spins for none.",
        "",
        "| known | reference | off | solution | off | queued, solution | in a graph, solution | speedup of the twin |",
        "|---|---|---|---|---|---|---|---|",
    ]
    zero: dict[str, float | None] = {}
    within = True
    for length_s in (0.0, *LENGTHS_S):
        cycles = round(length_s * hz)
        outcome = judge(held, problem, twin(SPIN, CYCLES=cycles), CYCLES=cycles)
        if outcome.timing is None or outcome.speedup is None:
            rows.append(f"| {us(length_s)} | {outcome.status}: {outcome.reason} |")
            within = False
            continue
        now = {
            "reference": outcome.timing["reference"]["device"]["median_s"],
            "solution": outcome.timing["solution"]["device"]["median_s"],
            "queued": outcome.timing["solution"].get("queued_s"),
            "graph": outcome.timing["solution"].get("graph_s"),
        }
        if not zero:
            zero = now
            rows.append(
                f"| 0 (all of the call) | {us(now['reference'])} | | {us(now['solution'])} | | {us(now['queued'])} | "
                f"{us(now['graph'])} | {outcome.speedup:.4f} |"
            )
            continue
        beyond = {
            name: None if value is None or zero[name] is None else value - zero[name] for name, value in now.items()
        }
        offs = []
        for name in ("reference", "solution"):
            off_s = (beyond[name] or 0.0) - length_s
            # Each row's solution is a process of its own, whose code and memory lie elsewhere: the clock is one
            # process's matter, the difference between processes another.
            if name == "reference":
                within &= abs(off_s) <= max(0.02 * length_s, 0.3e-6)
            offs.append(f"{off_s * 1e6:+.2f} ({off_s / length_s * 100:+.2f} %)")
        rows.append(
            f"| {us(length_s)} | {us(beyond['reference'])} | {offs[0]} | {us(beyond['solution'])} | {offs[1]} | "
            f"{us(beyond['queued'])} | {us(beyond['graph'])} | {outcome.speedup:.4f} |"
        )
    return rows, within


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


def known_work(held: Referee) -> list[str]:
    rows = ["| work | many by the host's clock | reference | off | solution |", "|---|---|---|---|---|"]
    for name, (forward, inputs) in KNOWN.items():
        source = source_of(forward, inputs)
        with torch.no_grad():
            x = eval(inputs, {"torch": torch}).cuda()
            expected_s = by_the_host_s(lambda x=x, forward=forward: eval(forward, {"torch": torch, "x": x}))  # type: ignore[misc]
            del x
        outcome = judge(held, problem_of(source, "work"), twin(source))
        if outcome.timing is None:
            rows.append(f"| {name} | {outcome.status}: {outcome.reason} |")
            continue
        reference_s = outcome.timing["reference"]["device"]["median_s"]
        rows.append(
            f"| {name} | {us(expected_s)} | {us(reference_s)} | {(reference_s / expected_s - 1) * 100:+.2f} % | "
            f"{us(outcome.timing['solution']['device']['median_s'])} |"
        )
    return rows


def twins(held: Referee, repeats: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Rows of the second table, and the raw speedups."""
    rows = [
        "| reference against itself | us | repeats | median | worst | within 1 % | interval holds 1 | called the same "
        "| noise floor | first by | s each |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    raw: list[dict[str, Any]] = []
    for name, (forward, inputs) in TWINS.items():
        source = source_of(forward, inputs)
        problem, mine = problem_of(source, "twin"), []
        judge(held, problem, twin(source))  # the problem is made ready
        begin = time.perf_counter()
        for _ in range(repeats):
            outcome = judge(held, problem, twin(source))
            if outcome.timing is None or outcome.speedup is None:
                raise SystemExit(f"{name}: {outcome.status}: {outcome.reason}")
            mine.append({"name": name, "speedup": outcome.speedup, "timing": outcome.timing})
        each_s = (time.perf_counter() - begin) / repeats
        raw += mine
        speedups = [item["speedup"] for item in mine]
        holds = sum(item["timing"]["speedup"]["low"] <= 1.0 <= item["timing"]["speedup"]["high"] for item in mine)
        same = sum(_same(item["timing"]) for item in mine)
        order = interval_of_logs([difference for item in mine for difference in _by_order(item["timing"])])
        device_s = mine[0]["timing"]["reference"]["device"]["median_s"]
        rows.append(
            f"| {name} | {us(device_s)} | {repeats} | {statistics.median(speedups):.4f} | "
            f"{max(speedups, key=lambda value: abs(math.log(value))):.4f} | "
            f"{sum(abs(value - 1) <= 0.01 for value in speedups)} | {holds} | {same} | "
            f"{mine[0]['timing']['noise_floor']['measured_log_width'] * 100:.2f} % | "
            f"{(order.speedup - 1) * 100:+.2f} % ({((order.low or 1) - 1) * 100:+.2f} to "
            f"{((order.high or 1) - 1) * 100:+.2f}) | {each_s:.2f} |"
        )
    return rows, raw


def _verdicts(raw: Sequence[dict[str, Any]]) -> list[str]:
    """How often twins lay within 1 %, for calls from `LONG_S` on and for shorter ones; and were called the same."""
    lines = []
    for words, long in ((f"from {LONG_S * 1e6:.0f} us on", True), ("below", False)):
        mine = [item for item in raw if (item["timing"]["reference"]["device"]["median_s"] >= LONG_S) is long]
        if not mine:
            continue
        within = sum(abs(item["speedup"] - 1) <= 0.01 for item in mine) / len(mine)
        same = sum(_same(item["timing"]) for item in mine) / len(mine)
        lines.append(
            f"Calls {words}: **{within * 100:.0f} %** of {len(mine)} twins within 1 %, **{same * 100:.0f} %** called "
            "the same as the reference."
        )
    return lines


def _same(timing: dict[str, Any]) -> bool:
    found, floor = timing["speedup"], timing["noise_floor"]["log_width"]
    return same_within(found["speedup"], found["low"], found["high"], floor=floor) is not None


def _by_order(timing: dict[str, Any]) -> list[float]:
    """Log ratio of each round with the reference first, less that of the round after it."""
    logs = [
        math.log(statistics.median(a) / statistics.median(b))
        for a, b in zip(timing["reference"]["samples_s"], timing["solution"]["samples_s"], strict=True)
    ]
    pairs = zip(timing["order"][0::2], logs[0::2], logs[1::2], strict=False)
    return [first - second if order == "AB" else second - first for order, first, second in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25, help="evaluations of each of four twins")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument("--only", choices=("lengths", "twins"), help="one part")
    parser.add_argument("--json", type=Path, help="raw speedups")
    given = parser.parse_args()
    begin = time.perf_counter()
    lines = [f"# Calibration on {torch.cuda.get_device_name()}", ""]
    raw: list[dict[str, Any]] = []
    if given.only != "twins":
        with referee() as held:
            lengths, exact = known_lengths(held)
            work = known_work(held)
        lines += [
            *lengths,
            "",
            f"All of the reference's within 2 % or 0.3 us of the known length: **{'yes' if exact else 'no'}**. It is "
            "one process; the solution of each row is another, and may be off by what processes differ by.",
            "",
            *work,
            "",
        ]
    if given.only != "lengths":
        with referee(min_samples=24, budget_s=0.25) as held:
            same, raw = twins(held, given.repeats)
        lines += [*same, "", *_verdicts(raw), ""]
        lines += ["`first by`: how much longer calls take in the first burst of a round.", ""]
    lines.append(f"All of it took {time.perf_counter() - begin:.0f} s.")
    text = "\n".join(lines) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text)
    if given.json:
        given.json.write_text(json.dumps(raw) + "\n")


if __name__ == "__main__":
    main()

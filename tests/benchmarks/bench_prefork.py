"""What it brings to begin contestants ahead: solutions of plain torch, judged one after another with and without it.

    python -m tests.benchmarks.bench_prefork --device cuda --out prefork.md
    python -m tests.benchmarks.bench_prefork --device host --solutions 3 --rounds 1

One referee, no audits, full sizes on a GPU and small ones on the host device; `--rounds` times both ways in turn, each
with a zygote of its own: `--solutions` to one problem, then as many to another. Prints medians in milliseconds: of the
first solution to a problem, whose turn the calibration's contestant is part of, and of those that follow. About 25 s
on a GPU, half of it importing torch. Exit code 1 where a solution did not pass.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.catalog import load_problems
from harness.core.choices import DeviceKind
from harness.core.problem import Problem
from harness.core.status import Status
from harness.core.task import Outcome, RefereeConfig, Task
from harness.hostcuda.translate.build import prepare_headers
from harness.referee.referee import Referee
from harness.referee.worker import PRELOADED, PRELOADED_CUDA, PRELOADED_HOST
from harness.sandbox.zygote import Zygote
from harness.toolchain import default_root

ROOT = Path(__file__).parent.parent.parent

SOLUTIONS = {"level1/19": "torch.relu(x)", "level1/23": "torch.softmax(x, dim=1)"}
"""Problem -> what a right solution returns."""

SOURCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {body}\n"

FIGURES = ("wall", "load", "verify", "prepare", "calibration", "silence", "head starts", "sandbox", "opened ahead")


def config(device: DeviceKind) -> RefereeConfig:
    host = device is DeviceKind.HOST
    return RefereeConfig(
        device=device,
        device_index=0,
        sandbox="auto",
        checked=False,
        device_policy="strict",
        seeds=2,
        load_timeout_s=60.0,
        call_timeout_s=60.0,
        solution_timeout_s=120.0,
        min_samples=8,
        sets_per_burst=4,
        relative_half_width=0.05,
        budget_s=0.2,
        memory_limit_bytes=(8 if host else 32) * 2**30,
        host_runtime=str(prepare_headers(default_root()).folder) if host else None,
    )


def tasks(problems: Mapping[str, Problem], count: int, logs: Path, *, small: bool) -> list[Task]:
    """`count` solutions to each problem, one problem after the other."""
    return [
        Task(
            problem=problems[name],
            workload=problems[name].workloads["small" if small else "full"],
            source=SOURCE.format(body=body),
            filename=f"{number}.py",
            modules=(),
            readable=(),
            log_path=logs / f"{name.replace('/', '_')}_{number}",
            timed=True,
        )
        for name, body in SOLUTIONS.items()
        for number in range(count)
    ]


def figures(outcome: Outcome, wall_s: float) -> dict[str, float]:
    """Milliseconds of one solution's turn, by `FIGURES`."""
    evidence: Mapping[str, Any] = outcome.evidence
    found = {"wall": wall_s, **evidence["stages_s"], **evidence["defences_s"]}
    found["opened ahead"] = evidence["sandbox"]["opened_ahead_s"] or 0.0
    return {name: 1e3 * found.get(name, 0.0) for name in FIGURES}


def judge_all(settings: RefereeConfig, wanted: Sequence[Task], logs: Path, *, ahead: bool) -> list[dict[str, float]]:
    """Each solution's figures, in order. Raises `SystemExit` where one did not pass."""
    preload = (*PRELOADED, *(PRELOADED_CUDA if settings.device is DeviceKind.CUDA else PRELOADED_HOST))
    found = []
    with Zygote(preload=preload, log_path=logs / "zygote.log") as zygote, Referee(settings, zygote) as referee:
        zygote.wait_ready()
        if not ahead:
            referee._prefork.close()  # from now on every contestant is made in its turn
        for number, task in enumerate(wanted):
            begin = time.perf_counter()
            outcome = referee.judge(task, wanted[number + 1 : number + 2])
            found.append(figures(outcome, time.perf_counter() - begin))
            if outcome.status is not Status.passed:
                sys.exit(f"{task.problem.id}: {outcome.status}: {outcome.reason}")
    return found


def row(title: str, held: Sequence[Mapping[str, float]]) -> str:
    medians = [statistics.median(one[name] for one in held) for name in FIGURES]
    return f"| {title} | {len(held)} | " + " | ".join(f"{median:.0f}" for median in medians) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=DeviceKind, default=DeviceKind.CUDA, choices=list(DeviceKind))
    parser.add_argument("--solutions", type=int, default=6, help="to each of two problems (default 6)")
    parser.add_argument("--rounds", type=int, default=2, help="times that each way is gone (default 2)")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    given = parser.parse_args()
    settings, problems = config(given.device), load_problems(ROOT / "problems")
    ways: dict[bool, list[list[dict[str, float]]]] = {False: [], True: []}
    for _ in range(given.rounds):
        for ahead in ways:
            with tempfile.TemporaryDirectory() as folder:
                wanted = tasks(problems, given.solutions, Path(folder), small=given.device is DeviceKind.HOST)
                ways[ahead].append(judge_all(settings, wanted, Path(folder), ahead=ahead))
    lines = [f"| milliseconds, medians | solutions | {' | '.join(FIGURES)} |", "|---" * (len(FIGURES) + 2) + "|"]
    for ahead, runs in ways.items():
        way = "begun ahead" if ahead else "made in its turn"
        first = [run[number] for run in runs for number in (0, given.solutions)]
        rest = [held for run in runs for number, held in enumerate(run) if number % given.solutions]
        lines.append(row(f"first to a problem, {way}", first))
        if rest:
            lines.append(row(f"one that follows, {way}", rest))
    text = "\n".join(lines) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()

"""Problems and solutions of known length, and a referee in this process that judges them: for benchmarks of its clock.

A call spins for a number of GPU cycles (`torch.cuda._sleep`) and then doubles a small tensor. The GPU's rate is
measured by the host's clock over a long spin, so that cycles are seconds by a clock that the harness does not use.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from harness.core.choices import DeviceKind
from harness.core.config import KEYS, TIMING_KEYS
from harness.core.environment import collect
from harness.core.problem import InputRules, Problem, Workload, digest_text
from harness.core.task import Outcome, RefereeConfig, Task
from harness.core.visible_gpus import visible_gpus
from harness.referee.referee import Referee
from harness.referee.worker import PRELOADED, PRELOADED_CUDA
from harness.sandbox.zygote import Zygote

SPIN = """
import torch

CYCLES = 0
COUNT = 4096


class Model(torch.nn.Module):
    def forward(self, x):
        if x.is_cuda:
            torch.cuda._sleep(CYCLES)
        return x * 2


def get_inputs():
    return [torch.rand(COUNT)]


def get_init_inputs():
    return []
"""

AS_EVALUATED: Mapping[str, Any] = {
    "seeds": KEYS["seeds"].default,
    **{name: item.default for name, item in TIMING_KEYS.items()},
}
"""Settings by which `harness eval` verifies and times, where nobody asks for others."""


def twin(problem: str, **values: int) -> str:
    """A solution that does what the problem does, with these module globals."""
    source = problem.split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    for name, value in values.items():
        source = source.replace(f"{name} = ", f"{name} = {value}  # ", 1)
    return source


def problem_of(source: str, name: str) -> Problem:
    return Problem(
        id="level1/1",
        name=name,
        path=Path(f"1_{name}.py"),
        source=source,
        digest=digest_text(source),
        rules=InputRules(variants=()),
    )


@contextmanager
def zygote() -> Iterator[Zygote]:
    """What contestants are forked from; it is ready while the first problem is being made ready.

    A GPU's number names none in a sandbox that has the node of one GPU: so it is named by its UUID.
    """
    env = {"CUDA_VISIBLE_DEVICES": visible_gpus(collect())[0].uuid}
    with (
        tempfile.TemporaryDirectory() as folder,
        Zygote(preload=(*PRELOADED, *PRELOADED_CUDA), log_path=Path(folder) / "zygote.log", env=env) as forks,
    ):
        yield forks


@contextmanager
def referee(forks: Zygote | None = None, **changes: Any) -> Iterator[Referee]:
    """A referee on the first GPU, with short measurements; `changes` are to its settings."""
    held: dict[str, Any] = {
        "host_runtime": None,
        "device": DeviceKind.CUDA,
        "device_index": 0,
        "sandbox": "auto",
        "checked": False,
        "device_policy": "strict",
        "seeds": 1,
        "load_timeout_s": 60.0,
        "call_timeout_s": 60.0,
        "solution_timeout_s": 120.0,
        "min_samples": 16,
        "sets_per_burst": 8,
        "relative_half_width": 0.005,
        "budget_s": 0.3,
        "memory_limit_bytes": 32 * 2**30,
    }
    config = RefereeConfig(**{**held, **changes})
    with nullcontext(forks) if forks is not None else zygote() as own, Referee(config, own) as judge:
        own.wait_ready()
        yield judge


def judge(referee: Referee, problem: Problem, source: str, **sizes: int) -> Outcome:
    """Judge and time one solution."""
    with tempfile.TemporaryDirectory() as folder:
        return referee.judge(
            Task(
                problem=problem,
                workload=Workload(name=f"w{abs(hash(tuple(sizes.items())))}", sizes=sizes),
                source=source,
                filename="1_solution.py",
                modules=(),
                readable=(),
                log_path=Path(folder) / "log",
                timed=True,
            )
        )


def rate_hz() -> float:
    """Cycles a second that a spinning kernel counts, by the host's clock."""
    torch.cuda.init()
    torch.cuda._sleep(10_000_000)
    rates = []
    for _ in range(3):
        lengths = []
        for cycles in (20_000_000, 220_000_000):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            torch.cuda._sleep(cycles)
            torch.cuda.synchronize()
            lengths.append(time.perf_counter() - begin)
        rates.append(200_000_000 / (lengths[1] - lengths[0]))
    return statistics.median(rates)

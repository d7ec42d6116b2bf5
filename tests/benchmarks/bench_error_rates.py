"""How often is a solution called faster that is not, and is a small slowdown found?

    python -m tests.benchmarks.bench_error_rates --measure runs/twins
    python -m tests.benchmarks.bench_error_rates runs/twins runs/long results/h200 --out results/error-rates.md

With `--measure`, needs a GPU, about six minutes: a referee with the defaults of `harness eval` judges twins of five
references, 500 identical ones and 208 slowed by 2 %, and writes their records as a run into the folder. Each
evaluation of an identical twin is a pair: none may be faster. `--shard 2/4` makes a quarter of them; start one for each
GPU, with CUDA_VISIBLE_DEVICES and a folder of its own. A run that is cut off keeps what was made.

Without, needs no GPU: reads runs of this command and of `harness eval`, counts the verdicts on twins, simulates pairs
from all recorded rounds (`error_rates`), and prints the page. Most evaluations end after four rounds, too few to draw
from; `harness eval PATHS --min-samples 320 --timing-budget 10 --audit never` records 40 rounds of each.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.results.reader import find_runs, read_records, timestamp
from harness.results.writer import RunStore
from tests.benchmarks.error_rates import (
    DRAWS,
    LEAST_RECORDED,
    PLANTED,
    PLANTED_SHARE,
    Source,
    measured,
    merged,
    page,
    simulate,
    sources_of,
)

PARTS = 10
"""Parts of a simulation, each with its own seed, whatever the number of processes."""

BATCHES = 4
"""Referees, one after another. Each measures the noise floors again."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A reference: it spins for `spin_s`, then computes `forward`."""

    name: str
    forward: str
    inputs: str
    spin_s: float

    @property
    def source(self) -> str:
        return (
            "import torch\n\nCYCLES = 0\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
            f"        if x.is_cuda:\n            torch.cuda._sleep(CYCLES)\n        return {self.forward}\n\n\n"
            f"def get_inputs():\n    return [{self.inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
        )


KERNELS = (
    Kernel("short", "x * 2", "torch.rand(4096)", 0.0),
    Kernel("spin_50us", "x * 2", "torch.rand(4096)", 46e-6),
    Kernel("softmax", "torch.softmax(x, dim=1)", "torch.rand(32768, 1024)", 1e-6),
    Kernel("spin_500us", "x * 2", "torch.rand(4096)", 496e-6),
    Kernel("product", "x @ x", "torch.rand(2048, 2048)", 1e-6),
)
"""Calls of some 6, 52, 80, 500 and 400 us: of launches, of memory, and of products. All but the first are slowed."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One twin to judge: the kernel's place in `KERNELS`, its slowdown, and its number."""

    batch: int
    kernel: int
    share: float
    number: int


def evaluations(twins: int, slower: int, shard: tuple[int, int]) -> Iterator[Evaluation]:
    """The evaluations of a shard, batch after batch, kernel after kernel; the first of a kernel is not slowed."""
    part, parts = shard
    for batch in range(BATCHES):
        for kernel in range(len(KERNELS)):
            for share, total, kernels in ((0.0, twins, len(KERNELS)), (PLANTED_SHARE, slower, len(KERNELS) - 1)):
                count = 0 if share and kernel == 0 else total // (BATCHES * kernels)
                for number in range(part - 1, count, parts):
                    yield Evaluation(batch, kernel, share, batch * count + number)


def measure(folder: Path, twins: int, slower: int, shard: tuple[int, int]) -> None:
    """Judge the twins of a shard, and append each record to the run in `folder`."""
    import torch

    from harness.core.environment import collect
    from tests.benchmarks.spinning import AS_EVALUATED, judge, problem_of, rate_hz, referee, twin, zygote

    hz, found = rate_hz(), collect()
    where = {"gpu": torch.cuda.get_device_name(), "driver": found.driver, "torch": str(torch.__version__)}
    config = {"twins": twins, "slower": slower, "shard": "{}/{}".format(*shard)}
    todo = list(evaluations(twins, slower, shard))
    with RunStore.create(folder, config=config, environment=where) as store, zygote() as forks:
        for batch in range(BATCHES):
            with referee(forks, **AS_EVALUATED) as held:
                call_s: dict[int, float] = {}
                for each in (item for item in todo if item.batch == batch):
                    kernel = KERNELS[each.kernel]
                    problem = replace(problem_of(kernel.source, kernel.name), id=f"level1/{each.kernel + 1}")
                    cycles = round(kernel.spin_s * hz)
                    more = round(each.share * call_s.get(each.kernel, 0.0) * hz)
                    if each.share and not more:
                        print(f"{kernel.name}: no twin passed, so no slowdown can be planted", flush=True)
                        continue
                    outcome = judge(held, problem, twin(kernel.source, CYCLES=cycles + more), CYCLES=cycles)
                    if outcome.timing is not None and not each.share:
                        call_s[each.kernel] = outcome.timing["reference"]["device"]["median_s"]
                    record = Record(
                        problem=f"{problem.id} {kernel.name}",
                        author="twins",
                        solution=f"twins/{problem.id}_{kernel.name}_{each.share:g}_{each.number}.py",
                        device=DeviceKind.CUDA,
                        workload="full",
                        status=outcome.status,
                        reason=outcome.reason,
                        labels=outcome.labels,
                        speedup=outcome.speedup,
                        evidence={PLANTED: each.share, "planted_cycles": more},
                        timing=outcome.timing,
                        environment=where,
                        problem_digest=problem.digest,
                        finished_at=timestamp(),
                    )
                    store.append(record)
                    if record.speedup is None:
                        print(f"{record.solution}: {record.status}: {record.reason}", flush=True)


def simulated(groups: Sequence[Sequence[Source]], pairs: int, seed: int, processes: int) -> Iterator[dict]:  # type: ignore[type-arg]
    """Simulate `pairs` pairs for each kind of draws, in `PARTS` parts."""
    with ProcessPoolExecutor(processes) as pool:
        for how in DRAWS:
            part = functools.partial(simulate, groups, how, pairs // PARTS)
            yield from pool.map(part, range(seed * PARTS, (seed + 1) * PARTS))


def shard_of(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"a shard is I/N with I from 1 to N, such as 2/4, not {text!r}")
    return int(part), int(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="folders of runs to count and to simulate from")
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help="judge twins on a GPU; a new run's folder")
    parser.add_argument("--shard", type=shard_of, default=(1, 1), metavar="I/N", help="with --measure: a part of it")
    parser.add_argument("--twins", type=int, default=500, help="with --measure: identical twins, all shards together")
    parser.add_argument("--slower", type=int, default=208, help="with --measure: twins slowed by 2 %%")
    parser.add_argument("--pairs", type=int, default=5000, help="pairs to simulate for each kind of draws")
    parser.add_argument(
        "--least-rounds", type=int, default=LEAST_RECORDED, help="leave out recorded evaluations of fewer rounds"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the simulation")
    parser.add_argument("--processes", type=int, default=2, help="of the simulation")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.twins, given.slower, given.shard)
        return
    folders = [folder for path in given.runs for folder in find_runs(path)]
    if not folders:
        sys.exit("name folders of runs, or measure some with --measure FOLDER")
    runs = [read_records(folder)[0] for folder in folders]
    groups = sources_of((record for run in runs for record in run), given.least_rounds)
    parts = list(simulated(groups, given.pairs, given.seed, given.processes)) if groups else []
    command = f"python -m tests.benchmarks.bench_error_rates {' '.join(sys.argv[1:])}"
    text = page(groups, runs, merged([*parts, measured(runs)]), command)
    if given.out is not None:
        given.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""How much timing does a group of solutions need until its ranking or its rewards are settled?

    python -m tests.benchmarks.bench_groups results/h200 [RUN ...] [--out PAGE.md]

Needs no GPU. Draws groups of recorded evaluations of one GPU, whose rounds are drawn as in `bench_error_rates`, and
ends each by the rules of `Harness.evaluate_group` and of single solutions. The speedups of a group lie as far apart
as asked (standard deviation of their logs); a fifth of its solutions repeat another one. Prints the timed seconds
relative to single solutions, the rank correlation with their true speedups and with full timing, changes of rewards,
and how often a solution that is as fast as the reference is called faster.

    python -m tests.benchmarks.bench_groups --live [--size 12] [--groups 2]

Needs a GPU. Evaluates groups of solutions that spin for as many cycles as their speedup asks: each alone, then by
`Harness.evaluate_group`. The seconds are those of the stage `measure`.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from harness.api.session import Harness
from harness.core.record import Record
from harness.core.stats import interval_of_logs
from harness.core.task import SettledAt
from harness.referee.timing.speedup import LEAST_ROUNDS
from harness.referee.timing.stopping import GROUP_FLOOR, GroupSettled, Stopping
from harness.results.compare import Change
from harness.results.reader import find_runs, read_records
from harness.results.reward import DEFAULT_POLICY, reward_of
from harness.runner.group import Group
from tests.benchmarks.error_rates import (
    BLOCK,
    BUDGET_S,
    MOST_ROUNDS,
    Source,
    against_eager,
    draw_rounds,
    slowed,
    sources_of,
    with_rounds,
)

SPREADS = (0.05, 0.2, 0.5)
REPEATED = 0.2
LEAST_RECORDED = 6
LIVE = ("spin_50us", "spin_500us")


@dataclass
class Tally:
    """Sums over the groups of one way and spread."""

    timed_s: float = 0.0
    correlations: list[float] = field(default_factory=list)
    with_full: list[float] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    twins: int = 0
    faster: int = 0


def timed(source: Source, places: Sequence[int], shift: float, settled_at: SettledAt | None) -> tuple[Record, float]:
    """Simulate an evaluation of a solution whose true log speedup is `shift`; return its record and seconds."""
    stopping = Stopping(budget_s=BUDGET_S, least_pairs=LEAST_ROUNDS, settled_at=settled_at)
    least = 2 if settled_at is not None else LEAST_ROUNDS
    rounds, rule = 0, None
    for rounds in range(1, MOST_ROUNDS + 1):
        logs = [source.logs[place] - math.log(source.ratio) + shift for place in places[:rounds]]
        rule = stopping.add(interval_of_logs(logs), source.round_s)
        if rule is not None and ((rule == "budget" and rounds >= 2) or (rounds >= least and rounds % 2 == 0)):
            break
    record = with_rounds(source, places[:rounds])
    assert record.timing is not None
    if rule == GroupSettled.name:
        floor = record.timing["noise_floor"]
        floor["log_width"] = max(floor["log_width"], GROUP_FLOOR)
    return slowed(record, math.expm1(-shift)), rounds * source.round_s


def group_of(rng: random.Random, sources: Sequence[Source], size: int, spread: float) -> list[tuple[Source, float]]:
    """Solutions of one problem: how each one's times scatter, and its log speedup."""
    members: list[tuple[Source, float]] = []
    for _ in range(size):
        again = members and rng.random() < REPEATED
        members.append(rng.choice(members) if again else (rng.choice(sources), rng.gauss(0.0, spread)))
    return members


def simulate(sources: Sequence[Source], groups: int, size: int, seed: int) -> dict[tuple[float, str], Tally]:
    rng = random.Random(seed)
    tallies: dict[tuple[float, str], Tally] = {}
    for spread in SPREADS:
        for _ in range(groups):
            members = group_of(rng, sources, size, spread)
            drawn = [draw_rounds(rng, len(source.logs), MOST_ROUNDS, block=BLOCK) for source, _ in members]
            true = pd.Series([shift for _, shift in members])
            full = [timed(source, places, shift, None) for (source, shift), places in zip(members, drawn, strict=True)]
            ways = {"full": None, "ranking": Group.ranking(), "reward": Group.rewards(DEFAULT_POLICY, 0.02)}
            for way, group in ways.items():
                tally = tallies.setdefault((spread, way), Tally())
                found = []
                for (source, shift), places in zip(members, drawn, strict=True):
                    record, spent_s = timed(source, places, shift, group.settled_at() if group else None)
                    if group:
                        group.add(record)
                    found.append(record)
                    tally.timed_s += spent_s
                speeds = pd.Series([record.speedup for record in found])
                tally.correlations.append(speeds.rank().corr(true.rank()))
                tally.with_full.append(speeds.rank().corr(pd.Series([each.speedup for each, _ in full]).rank()))
                pairs = ((reward_of(a), reward_of(b)) for a, (b, _) in zip(found, full, strict=True))
                tally.changes += [abs(a - b) for a, b in pairs if a is not None and b is not None]
                # One more, as fast as the reference: it may not be called faster.
                source = rng.choice(sources)
                places = draw_rounds(rng, len(source.logs), MOST_ROUNDS, block=BLOCK)
                twin, _ = timed(source, places, 0.0, group.settled_at() if group else None)
                tally.twins += 1
                tally.faster += against_eager(twin) is Change.faster
    return tallies


def live(groups: int, size: int, seed: int, device: str) -> str:
    """Evaluate so many groups of each spread, each solution alone and in its group; return the table.

    Prints each row when it is known.
    """
    from tests.benchmarks.bench_error_rates import KERNELS
    from tests.benchmarks.spinning import rate_hz, twin

    hz, rng = rate_hz() if device == "cuda" else 0.0, random.Random(seed)
    kernels = [kernel for kernel in KERNELS if kernel.name in LIVE]
    lines = [
        "| spread of log speedups | timing | rounds | measure s | of single | rank correlation with truth "
        "| with single timing | largest change of a reward | falsely faster |",
        "|---" * 9 + "|",
    ]
    print(*lines, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as name, Harness(device=device, timing="full", audit="never") as harness:
        for spread in SPREADS:
            found: dict[str, list[list[Record]]] = {way: [] for way in ("single", "ranking", "reward")}
            truths = []
            for number in range(groups):
                kernel = kernels[number % len(kernels)]
                file = Path(name) / f"{number + 1}_{kernel.name}.py"
                file.write_text(kernel.source.replace("CYCLES = 0", f"CYCLES = {round(kernel.spin_s * hz)}"))
                # The first is as fast as the reference.
                shifts = [0.0, *(rng.gauss(0.0, spread) for _ in range(size - 1))]
                cycles = [round(kernel.spin_s * hz * math.exp(-shift)) for shift in shifts]
                sources = [f"{twin(kernel.source, CYCLES=each)}\n# {place}\n" for place, each in enumerate(cycles)]
                truths.append(pd.Series(shifts))
                found["single"].append([each.result().record for each in [harness.submit(file, s) for s in sources]])
                for way in ("ranking", "reward"):
                    results = harness.evaluate_group(file, sources, until=way)  # type: ignore[arg-type]
                    found[way].append([result.record for result in results])
            rows = [_live_row(spread, way, found, truths) for way in found]
            print(*rows, sep="\n", flush=True)
            lines += rows
    return "\n".join(lines) + "\n"


def _live_row(spread: float, way: str, found: dict[str, list[list[Record]]], truths: Sequence[pd.Series]) -> str:
    def measured_s(way: str) -> float:
        return sum(record.evidence["stages_s"]["measure"] for group in found[way] for record in group)

    correlations: list[tuple[float, float]] = []
    changes, faster, rounds = [0.0], 0, 0
    for group, single, truth in zip(found[way], found["single"], truths, strict=True):
        speeds = pd.Series([record.speedup for record in group], dtype=float).rank()
        alone = pd.Series([record.speedup for record in single], dtype=float).rank()
        correlations.append((speeds.corr(truth.rank()), speeds.corr(alone)))
        rewards = [(reward_of(a), reward_of(b)) for a, b in zip(group, single, strict=True)]
        changes += [abs(a - b) for a, b in rewards if a is not None and b is not None]
        faster += against_eager(group[0]) is Change.faster
        rounds += sum(len(record.timing["solution"]["samples_s"]) for record in group if record.timing)
    means = [statistics.mean(each) for each in zip(*correlations, strict=True)]
    return (
        f"| {spread:g} | {way} | {rounds} | {measured_s(way):.2f} | {measured_s(way) / measured_s('single'):.2f} | "
        f"{means[0]:.3f} | {means[1]:.3f} | {max(changes):.4f} | {faster} of {len(found[way])} |"
    )


def page(tallies: dict[tuple[float, str], Tally], sources: Sequence[Source], groups: int, size: int) -> str:
    rounds = [len(source.logs) for source in sources]
    lines = [
        f"{groups} groups of {size} solutions each, rounds drawn from {len(sources)} recorded evaluations with "
        f"{min(rounds)} to {max(rounds)} rounds (median {statistics.median(rounds):g}).",
        "",
        "| spread of log speedups | timing | timed seconds / single | rank correlation with truth | with single timing "
        "| 99 % of rewards change by at most | falsely faster |",
        "|---" * 7 + "|",
    ]
    for (spread, way), tally in tallies.items():
        share = tally.timed_s / tallies[spread, "full"].timed_s
        changes = sorted(tally.changes)
        lines.append(
            f"| {spread:g} | {way} | {share:.2f} | {statistics.mean(tally.correlations):.4f} | "
            f"{statistics.mean(tally.with_full):.4f} | {changes[int(0.99 * (len(changes) - 1))]:.4f} | "
            f"{tally.faster} of {tally.twins} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--live", action="store_true", help="evaluate solutions instead of recorded ones")
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"), help="of --live")
    parser.add_argument("--groups", type=int, help="for each spread  [500, live 2]")
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.live == bool(given.runs):
        parser.error("give either --live or recorded runs")
    if given.live:
        text = live(given.groups or 2, given.size, given.seed, given.device)
    else:
        groups = given.groups or 500
        records = [record for path in given.runs for run in find_runs(path) for record in read_records(run)[0]]
        sources = [source for group in sources_of(records, LEAST_RECORDED) for source in group]
        text = page(simulate(sources, groups, given.size, given.seed), sources, groups, given.size)
        print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()

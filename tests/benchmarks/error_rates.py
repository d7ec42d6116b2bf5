"""How often verdicts on speed are wrong: pairs simulated from recorded rounds, pairs measured, and the page of both.

A *pair* is two evaluations of one solution. Neither may be called faster. In the second one a slowdown can be planted,
which has to be found. Three verdicts are counted, all by `harness.results.compare.decide`:

* `eager`: the second evaluation against the reference, the rule of fast_1 and "same as the reference";
* `one run`: the first against the second, as `harness compare` does with two solution files;
* `two runs`: the same, as `harness compare` does with two runs.

A *twin* does what its reference does (`PLANTED` in its evidence), so the verdict `eager` on it is one of a pair, too.

A simulated evaluation draws rounds of a recorded one, of the same order (A B or B A) each, until the harness's own
stopping rule ends it. Rounds are drawn one by one, or as blocks of `BLOCK` neighbours, so that drift stays.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.core.record import Record
from harness.core.stats import burst_time, drift_of_bursts, interval_of_logs
from harness.core.status import Status
from harness.referee.timing.speedup import LEAST_ROUNDS
from harness.referee.timing.stopping import Stopping
from harness.results.compare import SHORT_S, TOLERANCE, Change, compare_records, decide, estimate_of, solution_s
from harness.results.evidence import mapping
from harness.results.scoring import noise_floor_of

PLANTED = "planted_slowdown"
"""Key in the evidence of a twin: the share by which its calls take longer than the reference's; 0 is none."""

SLOWDOWNS = (0.01, 0.02, 0.05)
VERDICTS = ("eager", "one run", "two runs")

LEAST_RECORDED = 8
"""Rounds of a recorded evaluation from which others are drawn: fewer hold too little of the scatter."""

BLOCK = 4
"""Rounds that stay together: two of either order."""

DRAWS = {"independent rounds": 1, f"blocks of {BLOCK} rounds": BLOCK}

MOST_ROUNDS = 64
BUDGET_S = 3.0
"""Of `harness eval`."""

FALSE_FASTER = 1e-3
FOUND, PLANTED_SHARE = 0.99, 0.02
"""The promise: at most so many false "faster", and at least so many of such slowdowns found from `SHORT_S` on."""


@dataclass(frozen=True, slots=True)
class Source:
    """One recorded evaluation to draw rounds from.

    `logs` has the log ratio of each round, `ratio` the speedup that counts as the true one.
    """

    record: Record
    logs: tuple[float, ...]
    round_s: float
    ratio: float

    @property
    def call_s(self) -> float:
        return solution_s(self.record) or 0.0


def bursts_of(record: Record, side: str) -> list[list[float]]:
    return [list(burst) for burst in mapping(record.timing, side).get("samples_s") or []]


def sources_of(records: Iterable[Record], least: int = LEAST_RECORDED) -> list[list[Source]]:
    """Recorded evaluations with a noise floor and enough rounds, by solution; twins of one problem are one solution.

    The true speedup of a solution is 1 if it is a twin, else the median over its records.
    """
    groups: dict[tuple[str, ...], list[Source]] = defaultdict(list)
    for record in records:
        reference, solution = bursts_of(record, "reference"), bursts_of(record, "solution")
        if record.speedup is None or noise_floor_of(record) is None or record.evidence.get(PLANTED):
            continue
        if len(solution) < least:
            continue
        logs = tuple(math.log(burst_time(a) / burst_time(b)) for a, b in zip(reference, solution, strict=True))
        round_s = float((record.timing or {}).get("spent_s") or 0.0) / len(logs)
        name = "twins" if PLANTED in record.evidence else record.solution
        key = (record.device.value, str(record.environment.get("gpu")), record.problem, record.workload, name)
        groups[key].append(Source(record, logs, round_s, record.speedup))
    held = []
    for group in groups.values():
        twins = PLANTED in group[0].record.evidence
        ratio = 1.0 if twins else statistics.median(source.ratio for source in group)
        held.append([replace(source, ratio=ratio) for source in group])
    return held


def draw_rounds(rng: random.Random, count: int, wanted: int, *, block: int) -> list[int]:
    """`wanted` places in a recording of `count` rounds: blocks of neighbours, and even places at even ones.

    Rounds at even places have the order A B, the others B A. The last place is followed by the first.
    """
    whole = count - count % 2
    places: list[int] = []
    while len(places) < wanted:
        odd = len(places) % 2
        start = 2 * rng.randrange(whole // 2) + odd
        places += [(start + step) % whole for step in range(block)]
    return places[:wanted]


def evaluate(source: Source, rng: random.Random, *, block: int) -> Record:
    """Simulate an evaluation whose true speedup is 1."""
    places = draw_rounds(rng, len(source.logs), MOST_ROUNDS, block=block)
    stopping = Stopping(budget_s=BUDGET_S, least_pairs=LEAST_ROUNDS)
    rounds = 0
    for rounds in range(1, MOST_ROUNDS + 1):
        logs = [source.logs[place] for place in places[:rounds]]
        rule = stopping.add(interval_of_logs(logs), source.round_s)
        if rule is not None and ((rule == "budget" and rounds >= 2) or (rounds >= LEAST_ROUNDS and rounds % 2 == 0)):
            break
    return with_rounds(source, places[:rounds])


def with_rounds(source: Source, places: Sequence[int]) -> Record:
    timing, record = dict(source.record.timing or {}), source.record
    reference, solution = bursts_of(record, "reference"), bursts_of(record, "solution")
    estimate = interval_of_logs([source.logs[place] - math.log(source.ratio) for place in places])
    timing["reference"] = {**timing["reference"], "samples_s": [reference[place] for place in places]}
    timing["solution"] = {
        **timing["solution"],
        "samples_s": [[time_s * source.ratio for time_s in solution[place]] for place in places],
    }
    timing["speedup"] = estimate.to_json()
    floor = timing["noise_floor"]
    before = max(floor.get("measured_log_width", floor["log_width"]), floor.get("least_log_width", 0.0))
    timing["noise_floor"] = {"log_width": max(before, drift_of_bursts(timing["reference"]["samples_s"]))}
    return replace(record, timing=timing, speedup=estimate.speedup)


def slowed(record: Record, share: float) -> Record:
    """The same evaluation of a solution whose calls take longer by `share`."""
    timing = dict(record.timing or {})
    samples = [[time_s * (1.0 + share) for time_s in burst] for burst in bursts_of(record, "solution")]
    estimate = dict(timing["speedup"])
    for name in ("speedup", "low", "high"):
        if estimate[name] is not None:
            estimate[name] /= 1.0 + share
    timing |= {"solution": {**timing["solution"], "samples_s": samples}, "speedup": estimate}
    return replace(record, timing=timing, speedup=estimate["speedup"])


def against_eager(record: Record) -> Change:
    estimate = estimate_of(record)
    assert estimate is not None
    return decide(estimate, floor=noise_floor_of(record) or 0.0, tolerance=TOLERANCE)


def verdicts_of(first: Record, second: Record) -> dict[str, Change]:
    """All three verdicts on `second`."""
    return {
        "eager": against_eager(second),
        "one run": compare_records(first, second, within_run=True).outcome,
        "two runs": compare_records(first, second).outcome,
    }


@dataclass(frozen=True, slots=True)
class Row:
    """What the verdicts of one row of the page are about. `share` is the planted slowdown."""

    how: str
    long: bool
    verdict: str
    share: float


Counts = dict[Row, Counter[Change]]


def add(counts: Counts, how: str, first: Record, second: Record, share: float, verdicts: Sequence[str]) -> None:
    long = min(solution_s(record) or 0.0 for record in (first, second)) >= SHORT_S
    for verdict, outcome in verdicts_of(first, second).items():
        if verdict in verdicts:
            counts[Row(how, long, verdict, share)][outcome] += 1


def simulate(groups: Sequence[Sequence[Source]], how: str, pairs: int, seed: int) -> Counts:
    """Simulate `pairs` pairs, each solution equally often. If it was recorded several times, the two differ."""
    counts: Counts = defaultdict(Counter)
    rng = random.Random(f"{how} {seed}")
    for number in range(pairs):
        group = groups[(seed + number) % len(groups)]
        sources = rng.sample(list(group), 2) if len(group) > 1 else [group[0]] * 2
        first, second = (evaluate(source, rng, block=DRAWS[how]) for source in sources)
        add(counts, how, first, second, 0.0, VERDICTS)
        for share in SLOWDOWNS:
            add(counts, how, first, slowed(second, share), share, VERDICTS)
    return counts


def measured(runs: Iterable[Sequence[Record]]) -> Counts:
    """Count the verdicts on the twins of some runs.

    Each is judged against eager. Each but a problem's first is also compared with the unslowed one before it.
    """
    counts: Counts = defaultdict(Counter)
    for records in runs:
        before: dict[str, Record] = {}
        for record in records:
            share = record.evidence.get(PLANTED)
            if share is None or record.speedup is None:
                continue
            earlier = before.get(record.problem)
            add(counts, "measured", earlier or record, record, share, VERDICTS if earlier else ("eager",))
            if share == 0.0:
                before[record.problem] = record
    return counts


def merged(parts: Iterable[Counts]) -> Counts:
    counts: Counts = defaultdict(Counter)
    for part in parts:
        for row, counter in part.items():
            counts[row].update(counter)
    return counts


def at_most(events: int, trials: int) -> float:
    """Upper end of the one-sided 95 % interval of a rate (C. J. Clopper and E. S. Pearson, 1934), by bisection."""
    low, high = events / trials, 1.0
    while high - low > 1e-7:
        rate = (low + high) / 2
        logs = [
            math.log(math.comb(trials, k)) + k * math.log(rate) + (trials - k) * math.log1p(-rate)
            for k in range(events + 1)
        ]
        low, high = (rate, high) if math.fsum(map(math.exp, logs)) > 0.05 else (low, rate)
    return high


def page(groups: Sequence[Sequence[Source]], runs: Sequence[Sequence[Record]], counts: Counts, command: str) -> str:
    """The page in Markdown."""
    records = [record for run in runs for record in run]
    gpus = sorted({str(record.environment["gpu"]) for record in records if record.environment.get("gpu")})
    sources = [source for group in groups for source in group]
    rounds = [len(source.logs) for source in sources]
    lines = [
        "# Error rates of verdicts on speed",
        "",
        f"Written by `{command}`. GPU: {', '.join(gpus) or 'unknown'}.",
        "",
        "A pair is two evaluations of one solution; none of them is faster. `eager`: verdict of the second against the "
        "reference. `one run`, `two runs`: verdict of `harness compare` on both. A planted slowdown makes the second "
        "one's calls longer. `can't tell` includes results that are too noisy to tell.",
        "",
    ]
    if sources:
        lines += [
            f"Simulated: rounds drawn from {len(sources)} recorded evaluations of {len(groups)} solutions with "
            f"{min(rounds)} to {max(rounds)} rounds (median {statistics.median(rounds):g}), until the harness's own "
            f"stopping rule ends each. Evaluations of fewer rounds are left out; by default evaluations of quiet "
            "kernels end after four.",
            "",
        ]
    twins = [record for record in records if PLANTED in record.evidence]
    if twins:
        bad = Counter(record.status for record in twins if record.status is not Status.passed)
        lines += [
            f"Measured: {len(twins)} evaluations of twins of their references"
            + (f"; without a time: {', '.join(f'{count} {status}' for status, count in bad.items())}." if bad else "."),
            "",
            *planted_table(twins),
        ]
    lines += ["## Rates", "", *rates_table(counts), "", "## Promises", ""]
    lines += [f"* {line}" for line in promises(counts)]
    return "\n".join(lines) + "\n"


def planted_table(twins: Sequence[Record]) -> list[str]:
    """Median speedups of the measured twins, which show that a slowdown is what it says."""
    groups: dict[tuple[str, float], list[Record]] = defaultdict(list)
    for record in twins:
        if record.speedup is not None:
            groups[record.problem, record.evidence[PLANTED]].append(record)
    lines = [
        "| problem | slowdown | evaluations | call us | median speedup | lowest | highest | noise floors |",
        "|---" * 8 + "|",
    ]
    for (problem, share), held in sorted(groups.items()):
        speedups = sorted(record.speedup or 0.0 for record in held)
        floors = sorted(noise_floor_of(record) or 0.0 for record in held)
        call_us = 1e6 * statistics.median(solution_s(record) or 0.0 for record in held)
        lines.append(
            f"| {problem} | {share:.0%} | {len(held)} | {call_us:.1f} | {statistics.median(speedups):.4f} | "
            f"{speedups[0]:.4f} | {speedups[-1]:.4f} | {floors[0]:.2%} to {floors[-1]:.2%} |"
        )
    return [*lines, ""]


def rates_table(counts: Counts) -> list[str]:
    lines = [
        "| pairs | calls | verdict | slowdown | number | faster | slower | same | can't tell |",
        "|---" * 9 + "|",
    ]
    for row, counter in sorted(counts.items(), key=lambda item: _order(item[0])):
        number = counter.total()
        cells = [f"{counter[outcome] / number:.2%}" for outcome in (Change.slower, Change.same, Change.unclear)]
        calls = f"{'from' if row.long else 'below'} {SHORT_S * 1e6:g} us"
        lines.append(
            f"| {row.how} | {calls} | {row.verdict} | {row.share:.0%} | {number} | {counter[Change.faster]} | "
            f"{' | '.join(cells)} |"
        )
    return lines


def _order(row: Row) -> tuple[bool, str, int, bool, float]:
    return (row.how == "measured", row.how, VERDICTS.index(row.verdict), row.long, row.share)


def promises(counts: Counts) -> list[str]:
    """Say for each kind of pairs whether the promises hold."""
    lines = []
    for how in dict.fromkeys(row.how for row in sorted(counts, key=_order)):
        for verdict in VERDICTS:
            rows = {row: counter for row, counter in counts.items() if (row.how, row.verdict) == (how, verdict)}
            level = merged([{Row(how, True, verdict, 0.0): c} for row, c in rows.items() if row.share == 0.0])
            for counter in level.values():
                faster, number = counter[Change.faster], counter.total()
                lines.append(
                    f"{how}, {verdict}: {faster} of {number} falsely faster, a rate of at most "
                    f"{at_most(faster, number):.2%} at 95 % confidence; at most {FALSE_FASTER:.1%}: "
                    f"**{'yes' if faster <= FALSE_FASTER * number else 'no'}**"
                )
            for row, counter in rows.items():
                if row.long and row.share == PLANTED_SHARE:
                    slower, number = counter[Change.slower], counter.total()
                    lines.append(
                        f"{how}, {verdict}: {slower} of {number} slowdowns of {PLANTED_SHARE:.0%} found in calls of "
                        f"{SHORT_S * 1e6:g} us and more; at least {FOUND:.0%}: "
                        f"**{'yes' if slower >= FOUND * number else 'no'}**"
                    )
    return lines

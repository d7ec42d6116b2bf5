"""The smallest lie about a call's time that the referee's clock catches.

    python -m tests.benchmarks.bench_lies --out results/lies-h200.md

Needs a GPU, about two minutes; the file is written anew after each row. A submission does what the reference does and
takes as long, but replaces the harness's clock in its own process so that every call claims X microseconds less. Caught
is a lie that is charged to the calls (`unexplained_time`) or disqualified, or where claims do not decide. The second
kind of liar also waits for the device in its forward, so that its calls can't be queued, and claims that all of that is
launching: all of its calls count by the referee's clock, whatever they claim. Of calls on large tensors (`--large` asks
for those alone) few can be queued, or none, since there are copies of what they take and return.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from harness.core.task import Outcome
from harness.referee.referee import Referee
from harness.referee.timing.speedup import UNEXPLAINED
from tests.benchmarks.spinning import SPIN, judge, problem_of, rate_hz, referee, twin

LENGTHS_S = (2e-6, 20e-6, 200e-6, 1e-3, 4e-3)

LARGE_GIB = (2, 8, 12)
"""GiB that the input and the output of one call take together."""

LIES_S = tuple(1e-6 * value for value in (1, 2, 3, 5, 8, 12, 20, 40, 80, 160, 320, 640, 1280))

LARGE_LENGTH_S = 300e-6

LARGE_LIES_S = tuple(1e-6 * value for value in (20, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280))

LIAR = """

_elapsed_time = torch.cuda.Event.elapsed_time


def _lying(self, other):
    return max(_elapsed_time(self, other) - {lie_ms!r}, 5e-4)


torch.cuda.Event.elapsed_time = _lying
"""

HEAD = (
    "| spin | device time | proved by calls | honest speedup | smallest lie caught | best false speedup | "
    "by the formula | hidden at most | without rule 6 |",
    "|---" * 9 + "|",
)

WAITS = ("        return x * 2", "        y = x * 2\n        torch.cuda.synchronize()\n        return y")


def liar(cycles: int, lie_s: float, *, waits: bool) -> str:
    source = twin(SPIN, CYCLES=cycles)
    if waits:
        assert WAITS[0] in source
        source = source.replace(*WAITS)
    return source + LIAR.format(lie_ms=lie_s * 1e3)


def caught(outcome: Outcome) -> bool:
    """Whether a lie made no time count that was claimed."""
    if outcome.status.value != "passed" or UNEXPLAINED in outcome.labels:
        return True
    held = outcome.timing or {}
    return "claimed_samples_s" in held.get("solution", {})


def row(
    held: Referee, length_s: float, hz: float, *, waits: bool, count: int = 4096, lies: Sequence[float] = LIES_S
) -> str:
    """What is found out about calls that spin so long, over `count` numbers."""
    problem, sizes = problem_of(SPIN, "spin"), {"CYCLES": round(length_s * hz), "COUNT": count}
    honest = judge(held, problem, liar(sizes["CYCLES"], 0.0, waits=waits), **sizes)
    if honest.timing is None or honest.speedup is None:
        return f"| {length_s * 1e6:g} | {honest.status}: {honest.reason} |"
    proof = honest.timing.get("back_to_back") or {}
    found, speedup, how = None, honest.speedup, ""
    for lie_s in lies:
        if lie_s >= honest.timing["solution"]["device"]["median_s"]:
            break
        outcome = judge(held, problem, liar(sizes["CYCLES"], lie_s, waits=waits), **sizes)
        if caught(outcome):
            found, how = lie_s, outcome.status.value if outcome.status.value != "passed" else "charged"
            after = outcome.speedup
            break
        speedup = outcome.speedup or speedup
    shown = f"{found * 1e6:.0f} ({how}{'' if not found or after is None else f', {after:.3f}x'})" if found else "none"
    formula = proof.get("allowed_per_call_s")
    return (
        f"| {length_s * 1e6:g} | {honest.timing['solution']['device']['median_s'] * 1e6:.1f} | "
        f"{proof.get('manner', '-')} | {honest.speedup:.3f}{'' if not caught(honest) else ' (flagged!)'} | {shown} | "
        f"{speedup:.3f} | {'-' if formula is None else f'{formula * 1e6:.1f}'} | "
        f"{(honest.timing['hidden_per_call_s'] or 0) * 1e6:.1f} | "
        f"{honest.timing['claims']['worst']['hidden_per_call_s'] * 1e6:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument("--large", action="store_true", help="only calls on large tensors")
    given = parser.parse_args()
    begin, hz = time.perf_counter(), rate_hz()
    lines = [
        f"# The smallest lie that is caught, on {torch.cuda.get_device_name()}",
        "",
        "Microseconds a call. `by the formula`: what rule 6 of `harness/referee/timing/claims.py` grants; "
        "`hidden at most`: what the honest twin's record says a lie could be "
        "(`hidden_per_call_s`); `without rule 6`: the same by bursts alone.",
        "",
        *HEAD,
    ]

    def add(*more: str) -> None:
        lines.extend(more)
        if given.out:
            given.out.write_text("\n".join(lines) + "\n")

    with referee(min_samples=8, budget_s=0.1, relative_half_width=0.05) as held:
        if not given.large:
            for length_s in LENGTHS_S:
                add(row(held, length_s, hz, waits=False))
            add("", "The same where the forward waits for the device, and so can't be queued:", "", *HEAD)
            for length_s in LENGTHS_S[:3]:
                add(row(held, length_s, hz, waits=True))
        for size in LARGE_GIB:
            add("", f"Inputs and outputs of a call take {size} GiB:", "", *HEAD)
            add(row(held, LARGE_LENGTH_S, hz, waits=False, count=size * 2**27, lies=LARGE_LIES_S))
    add("", f"All of it took {time.perf_counter() - begin:.0f} s.")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

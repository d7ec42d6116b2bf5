"""Write results/low-precision.md: errors of formats of eight bits and less, and of solutions, without a GPU.

python -m tests.benchmarks.low_precision
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.devices.device import open_device
from harness.referee.correctness.precision import rounding_factor
from harness.referee.correctness.tolerance import UNLIMITED, compare, limits_for
from harness.referee.problem.rounding import Rounding, rounded
from harness.referee.soundness.samples import Leaves, ReferenceCall
from tests.support.low_precision import SPOILED, TORCH, calls_of, outputs_of, problem_of, source_of
from tests.support.paths import ROOT

PAGE = ROOT / "results" / "low-precision.md"

HEAD = """# Formats of eight bits and less: errors and limits

Written by `python -m tests.benchmarks.low_precision` on two processors, 29 November 2026, torch {torch}. It takes about
a minute.

## Classes

RMS errors of products of 96 x 96 values as shares of the RMS, median of {draws} draws with {terms} terms.
*Both* operands are rounded to the format, or one (*weights*). A class's limit lies between its errors and the next
coarser format's. Where inputs magnify rounding, the limit rises to the error of rounding them times the factor.

"""

PROBLEMS = """
## Problems

The largest error of any output as a share of its limit at the small sizes: below 1 passes.

* *Honest*: the solutions in `solutions/quantised`; the largest share on own and stress inputs.
* *bf16*: computes in bfloat16 what the problem quantises, or rounds to it before the codes; the smallest share on own
  inputs.
* *Coarser*: takes the next coarser format; likewise.

Packed bytes are compared exactly: 0, or wrong.

"""

DRAWS, TERMS = 5, (64, 1024, 8192)

DISTRIBUTIONS: dict[str, Callable[[int, torch.Generator], torch.Tensor]] = {
    "normal": lambda terms, generator: torch.randn(96, terms, generator=generator),
    "uniform about 0": lambda terms, generator: torch.rand(96, terms, generator=generator) - 0.5,
    "uniform 0 to 1": lambda terms, generator: torch.rand(96, terms, generator=generator),
}


def error(precision: PrecisionClass, name: str, terms: int, seed: int, *, both: bool) -> float:
    """Return the RMS error of a product whose operands are rounded to a class."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (DISTRIBUTIONS[name](terms, generator) for _ in range(2))
    left = rounded(a, precision, Rounding.NEAREST, 0) if both else a
    right = rounded(b, precision, Rounding.NEAREST, 0)
    found = compare(left.double() @ right.double().T, a.double() @ b.double().T, limits=UNLIMITED)
    assert found.rms_error is not None
    return found.rms_error


def classes() -> list[str]:
    """Return the table of the classes."""

    lines = [
        "| class | " + " | ".join(f"{name}, both" for name in DISTRIBUTIONS) + " | normal, weights | limit | factor |",
        "|---|" + "---:|" * (len(DISTRIBUTIONS) + 3),
    ]
    for precision in list(PrecisionClass)[2:]:
        cells = []
        for name, both in [*((name, True) for name in DISTRIBUTIONS), ("normal", False)]:
            found = [error(precision, name, terms, seed, both=both) for terms in TERMS for seed in range(DRAWS)]
            cells.append(f"{statistics.median(found):.2g}")
        limit, factor = limits_for(precision).rms, rounding_factor(precision)
        lines.append(f"| {precision.value} | {' | '.join(cells)} | {limit:.2g} | {factor:g} |")
    return lines


def share(call: ReferenceCall, outputs: Leaves) -> float:
    """Return the error of an answer as a share of its limit; infinite for wrong bytes."""
    worst = 0.0
    pairs = zip(call.answer.pointed(outputs), call.truth, call.own, call.limits, strict=True)
    for number, (got, truth, own, limits) in enumerate(pairs):
        reference = None if number in call.answer.choices else own
        found = compare(got.contiguous(), truth, reference=reference, limits=UNLIMITED)
        if found.exact:
            worst = max(worst, float("inf") if found.wrong else 0.0)
        elif found.rms_error is not None and found.max_error is not None:
            worst = max(worst, found.rms_error / limits.rms, found.max_error / limits.max)
    return worst


def problems() -> list[str]:
    """Return the table of the problems."""
    device = open_device(DeviceKind.HOST)
    lines = ["| problem | class | honest, at most | bf16, at least | coarser, at least |", "|---|---|---:|---:|---:|"]
    for label in TORCH:
        source = source_of(label)
        honest, wrong = 0.0, {"bf16": float("inf"), "coarser": float("inf")}
        for call in calls_of(problem_of(label), device):
            honest = max(honest, share(call, outputs_of(source, call)))
            if call.variant == "own":
                for name, spoiled in SPOILED[label].variants(source).items():
                    wrong[name] = min(wrong[name], share(call, outputs_of(spoiled, call)))
        cells = ["wrong" if value == float("inf") else f"{value:.2g}" for value in wrong.values()]
        lines.append(f"| {problem_of(label)} | {call.required.value} | {honest:.2g} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    torch.set_num_threads(1)
    head = HEAD.format(torch=torch.__version__, draws=DRAWS * len(TERMS), terms=", ".join(f"{n:,}" for n in TERMS))
    PAGE.write_text(head + "\n".join(classes()) + "\n" + PROBLEMS + "\n".join(problems()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

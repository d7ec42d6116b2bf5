"""Write results/yardstick.md: honest algorithms and small mistakes, without a GPU.

python -m tests.benchmarks.yardstick
"""

from __future__ import annotations

import torch

from harness.referee.correctness.tolerance import UNLIMITED, compare
from tests.support.paths import ROOT
from tests.support.yardstick import CASES, Call, Compute, calls

PAGE = ROOT / "results" / "yardstick.md"

HEAD = """# The yardstick: honest algorithms and small mistakes

Errors in fp32 as shares of their limits (of RMS and single entries the larger share): below 1 passes. Own inputs and
three stress variants, two draws each; the largest share. Written by `python -m tests.benchmarks.yardstick`, on a CPU.

Recorded on an H200 (`results/*/records.jsonl`): of 445 passed pairs of a solution and a variant, the largest RMS error
is 0.46 of its limit; the largest error of a single entry is 4.8e-4 of the output's RMS (limit 1e-3).
"""


def share(call: Call, compute: Compute) -> float:
    """Return the error of an answer as a share of its limit."""
    found, limits = compare(compute(*call.inputs), call.truth, reference=call.own, limits=UNLIMITED), call.limits()
    assert found.rms_error is not None
    assert found.max_error is not None
    return max(found.rms_error / limits.rms, found.max_error / limits.max)


def main() -> None:
    torch.set_num_threads(1)
    lines = [HEAD, "| problem | terms | answer | kind | largest share | on |", "|---|---:|---|---|---:|---|"]
    for name, case in CASES.items():
        worst: dict[tuple[str, str], tuple[float, str]] = {}
        for call in calls(case):
            for kind, answers in (("honest", case.honest), ("mistake", case.mistakes)):
                for answer, compute in answers.items():
                    worst[kind, answer] = max(
                        worst.get((kind, answer), (0.0, "")), (share(call, compute), call.variant)
                    )
        lines += [
            f"| {name} | {case.terms} | {answer} | {kind} | {value:.2g} | {variant.replace('_', ' ')} |"
            for (kind, answer), (value, variant) in worst.items()
        ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

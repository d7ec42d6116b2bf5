"""How long one evaluation takes inside a loop, once processes are warm: `Harness.evaluate` again and again.

    python tests/benchmarks/bench_api.py --device host
    python tests/benchmarks/bench_api.py --device cuda --repeats 20 --audit never --json api.json

For small problems, each case `--repeats` times after one evaluation that starts the processes: the same source, a new
source of plain torch every time, the same CUDA source, and (`--builds` times) a new CUDA source, which is compiled.
Prints median, 90 % quantile and largest wall seconds a case, the median of the build inside them, and what else took
long. Exit code 1 where a solution did not pass.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import Harness, Result

ROOT = Path(__file__).parent.parent.parent

TORCH = {
    "level1/19": "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    "        return torch.clamp(x, min=0)\n",
}
"""Problem -> a right solution without a build."""

CUDA = {"level1/36": ROOT / "solutions/examples/optimised/level1/36_one_thread_a_pixel.py"}
"""Problem -> a right solution with inline CUDA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case on one problem. Seconds; `stages_s` are medians of what the records say of their stages."""

    problem: str
    case: str
    repeats: int
    median_s: float
    p90_s: float
    max_s: float
    build_median_s: float
    statuses: list[str]
    stages_s: Mapping[str, float]


def measure(h: Harness, problem: str, case: str, sources: Sequence[str]) -> Case:
    walls, results = [], []
    for source in sources:
        begin = time.perf_counter()
        results.append(h.evaluate(problem, source, workload="small"))
        walls.append(time.perf_counter() - begin)
    ordered = sorted(walls)
    return Case(
        problem=problem,
        case=case,
        repeats=len(walls),
        median_s=statistics.median(walls),
        p90_s=ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
        max_s=ordered[-1],
        build_median_s=statistics.median(_build_s(result) for result in results),
        statuses=sorted({result.status.value for result in results}),
        stages_s=_stages(results),
    )


def _build_s(result: Result) -> float:
    held = (result.record.build or {}).get("wall_s")
    return float(held) if isinstance(held, int | float) else 0.0


def _stages(results: Sequence[Result]) -> dict[str, float]:
    seen: dict[str, list[float]] = {}
    for result in results:
        spent: Mapping[str, Any] = result.record.evidence.get("stages_s") or {}
        for name, value in spent.items():
            if isinstance(value, int | float):
                seen.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in seen.items()}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "host"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--builds", type=int, default=3, help="evaluations that compile something new")
    parser.add_argument("--kind", default="both", choices=["both", "torch", "cuda"])
    parser.add_argument("--audit", default=None, choices=["auto", "always", "never"])
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args(arguments)
    cases: list[Case] = []
    with Harness(device=options.device, problems=ROOT / "problems", audit=options.audit) as h:
        for problem, text in TORCH.items() if options.kind != "cuda" else ():
            cases += _cases(h, problem, text, options.repeats, options.repeats, "plain torch")
        for problem, path in CUDA.items() if options.kind != "torch" else ():
            cases += _cases(h, problem, path.read_text(encoding="utf-8"), options.repeats, options.builds, "CUDA")
        device = h.device.value
    print(
        f"device {device}, seconds a call of evaluate (workload small, timing quick, audit {options.audit or 'auto'})"
    )
    print(f"{'problem':10} {'case':24} {'n':>3} {'median':>7} {'p90':>7} {'max':>7} {'build':>7}  statuses; stages")
    for case in cases:
        stages = ", ".join(f"{name} {value:.3f}" for name, value in case.stages_s.items() if value >= 0.005)
        print(
            f"{case.problem:10} {case.case:24} {case.repeats:3} {case.median_s:7.3f} {case.p90_s:7.3f} "
            f"{case.max_s:7.3f} {case.build_median_s:7.3f}  {','.join(case.statuses)}; {stages}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(case) for case in cases], indent=2, allow_nan=False) + "\n")
    return 0 if all(case.statuses == ["passed"] for case in cases) else 1


def _cases(h: Harness, problem: str, text: str, repeats: int, fresh: int, kind: str) -> list[Case]:
    renamed: Callable[[int], str] = lambda number: f"# version {number}, made at {time.time_ns()}\n{text}"  # noqa: E731
    if kind == "CUDA":
        # Another comment in the CUDA text, since that is what is built.
        renamed = lambda number: text.replace("__global__", f"/* {number} {time.time_ns()} */ __global__", 1)  # noqa: E731
    cases = {
        "first (processes start)": [text],
        f"same {kind} again": [text] * repeats,
        f"new {kind}": [renamed(number) for number in range(fresh)],
    }
    return [measure(h, problem, case, sources) for case, sources in cases.items() if sources]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

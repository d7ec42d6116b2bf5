"""Whether the shipped problems have the right size and precision on this machine's GPU.

    python tests/benchmarks/bench_problems.py --json problems.json              # eager of all, at full size
    python tests/benchmarks/bench_problems.py --float64 level1 level3/102       # also against float64, on every variant
    python tests/benchmarks/bench_problems.py --check                           # which are too short or too long
    python tests/benchmarks/bench_problems.py --check --from results/h200-baselines/baselines.csv    # no GPU needed

Sizes are right where eager takes 0.05 to 10 ms; `--check` names the others, and with `--from` those whose time is not
there or is of an earlier version of the problem, and ends with exit code 1 where there are any. The times are this
script's quick ones, or those that `harness baseline` wrote. A call is timed by events after a write of 512 MiB has
emptied the L2 cache. `--float64` compares the reference with its float64 self on the problem's own inputs and on every
variant it allows: finite, and how much of its class's limit the error takes. Problems fail one by one, lack of memory
included.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.catalog import load_problems
from harness.core.choices import PrecisionClass
from harness.core.problem import Problem, Workload
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.correctness.tolerance import LIMITS, compare
from harness.referee.problem.inputs import draw
from harness.referee.problem.loader import ReferenceModule, load_reference
from harness.report.baselines import LONGEST_S, SHORTEST_S, from_csv, outside

ROOT = Path(__file__).parents[2] / "problems"
FLUSH_BYTES = 512 * 2**20
MODEL_SEED, INPUT_SEED, CALL_SEED = 1, 2, 3


def timed(reference: ReferenceModule, device: torch.device, calls: int) -> dict[str, Any]:
    """Median, least and most device time of `calls` calls, and the peak memory of one call beyond what was held."""
    model = reference.model(MODEL_SEED, device)
    values = draw(reference, seed=INPUT_SEED, device=device).values
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    with torch.no_grad():
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model(*values)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
        for _ in range(2):
            model(*values)
        events: Any = [torch.cuda.Event(enable_timing=True) for _ in range(2 * calls)]  # type: ignore[no-untyped-call]
        pairs = list(zip(events[::2], events[1::2], strict=True))
        for begin, end in pairs:
            flush.fill_(0)
            begin.record()
            model(*values)
            end.record()
        torch.cuda.synchronize()
    times = [begin.elapsed_time(end) * 1e-3 for begin, end in pairs]
    return {
        "median_s": statistics.median(times),
        "least_s": min(times),
        "most_s": max(times),
        "input_bytes": sum(leaf.nbytes for leaf in flatten(values)[0]),
        "call_bytes": peak - held,
        "peak_bytes": peak,
    }


def checked(
    problem: Problem, workload: Workload, reference: ReferenceModule, device: torch.device
) -> dict[str, dict[str, Any]]:
    """A variant's worst error of the reference against float64, as shares of its class's limits."""
    limits = LIMITS[workload.precision or problem.precision or PrecisionClass.FP32]
    found: dict[str, dict[str, Any]] = {}
    for variant in ("own", *problem.rules.variants):
        drawn = draw(reference, seed=INPUT_SEED, variant=variant, device=device).values
        leaves, spec = flatten(drawn)
        torch.manual_seed(CALL_SEED)
        model = reference.model(MODEL_SEED, device)
        with torch.no_grad():
            got = [leaf.clone() for leaf in flatten(model(*unflatten(spec, [leaf.clone() for leaf in leaves])))[0]]
        doubled = [leaf.double() if leaf.is_floating_point() else leaf for leaf in leaves]
        del leaves, drawn, model
        torch.manual_seed(CALL_SEED)
        exact = reference.model(MODEL_SEED, device).double()
        torch.set_default_dtype(torch.float64)
        try:
            with torch.no_grad():
                truth = flatten(exact(*unflatten(spec, doubled)))[0]
        finally:
            torch.set_default_dtype(torch.float32)
        results = [compare(g, t) for g, t in zip(got, truth, strict=True)]
        finite = all(bool(torch.isfinite(g).all()) for g in got if g.is_floating_point())
        found[variant] = {
            "finite": finite,
            "rms_of_limit": max((r.rms_error or 0.0) / limits.rms for r in results),
            "max_of_limit": max((r.max_error or 0.0) / limits.max for r in results),
            "wrong_integers": sum(r.wrong for r in results if r.exact),
        }
        del got, truth, doubled, exact
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wanted", nargs="*", help="level1, level1/16; default: all")
    parser.add_argument("--workload", default="full")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="name the problems outside 0.05 to 10 ms; exit code 1")
    parser.add_argument("--from", dest="given", type=Path, help="take the times from this baselines.csv")
    parser.add_argument("--float64", action="store_true", help="compare with float64 on every variant")
    parser.add_argument("--budget", type=float, default=85.0, help="seconds after which no further problem is begun")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    if options.given is not None:
        given = from_csv(options.given.read_text(encoding="utf-8"))
        untold = unknown(given, options.workload)
        print("".join(f"{key:12} no time of eager as it is now\n" for key in untold), end="")
        wrong = told(outside(given, workload=options.workload))
        sys.exit(wrong or int(bool(untold)) if options.check else 0)
    begin = time.perf_counter()
    device = torch.device("cuda", torch.cuda.current_device())
    rows: list[dict[str, Any]] = []
    for key, problem in load_problems(ROOT).items():
        workload = problem.workloads.get(options.workload)
        if workload is None or (
            options.wanted and key not in options.wanted and key.partition("/")[0] not in options.wanted
        ):
            continue
        row: dict[str, Any] = {"problem": key, "name": problem.name, "workload": workload.name}
        rows.append(row)
        if time.perf_counter() - begin > options.budget:
            row["error"] = "not begun: the budget was spent"
            print(f"{key:12} {row['error']}")
            continue
        start = time.perf_counter()
        try:
            reference = load_reference(problem, workload)
            row |= timed(reference, device, options.calls)
            if options.float64:
                row["check"] = checked(problem, workload, reference, device)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        gc.collect()
        torch.cuda.empty_cache()
        row["wall_s"] = time.perf_counter() - start
        print(line(row), flush=True)
    print(f"{len(rows)} problems, {sum('error' in row for row in rows)} failed, {time.perf_counter() - begin:.1f} s")
    if options.json:
        held = {"gpu": torch.cuda.get_device_name(device), "torch": torch.__version__, "problems": rows}
        options.json.write_text(json.dumps(held, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if options.check:
        times = [(row["problem"], row["median_s"]) for row in rows if "median_s" in row]
        sys.exit(told([(key, time_s) for key, time_s in times if not SHORTEST_S <= time_s <= LONGEST_S]))


def unknown(rows: Sequence[Mapping[str, str]], workload: str) -> list[str]:
    """Problems with this workload of which the rows have no time of eager, or one of another version."""
    known = {
        (row["problem"], row["problem_digest"])
        for row in rows
        if row["workload"] == workload and row["baseline"] == "eager" and row["device_s"]
    }
    shipped = load_problems(ROOT).items()
    return [key for key, held in shipped if workload in held.workloads and (key, held.digest) not in known]


def told(strays: list[tuple[str, float]]) -> int:
    """Print which problems are too short or too long; the exit code."""
    for key, time_s in strays:
        wrong = "shorter than 0.05 ms" if time_s < SHORTEST_S else "longer than 10 ms"
        print(f"{key:12} {time_s * 1e3:9.4f} ms: {wrong}")
    print(f"{len(strays)} problems outside 0.05 to 10 ms")
    return 1 if strays else 0


def line(row: dict[str, Any]) -> str:
    """One row of the table, with what is remarkable at its end."""
    if "error" in row and "median_s" not in row:
        return f"{row['problem']:12} {row['name']:38} {row['error']}"
    median_s = row["median_s"]
    remarks = [] if SHORTEST_S <= median_s <= LONGEST_S else ["OUTSIDE 0.05 to 10 ms"]
    for variant, held in row.get("check", {}).items():
        share = max(held["rms_of_limit"], held["max_of_limit"])
        if not held["finite"]:
            remarks.append(f"{variant} NOT FINITE")
        elif share > 0.5 or held["wrong_integers"]:
            remarks.append(f"{variant}: {share:.2f} of the limit, {held['wrong_integers']} other integers")
    memory = f"inputs {row['input_bytes'] / 2**20:8.1f} MiB  peak {row['peak_bytes'] / 2**20:8.1f} MiB"
    spread = f"({row['least_s'] * 1e3:.4f} to {row['most_s'] * 1e3:.4f})"
    rest = f"{'; '.join(remarks)} {row.get('error', '')}".strip()
    return (
        f"{row['problem']:12} {row['name']:38} {median_s * 1e3:9.4f} ms {spread:20}  {memory}  "
        f"wall {row['wall_s']:5.2f} s  {rest}"
    ).rstrip()


if __name__ == "__main__":
    main()

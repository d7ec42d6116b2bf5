"""Audit every problem of a KernelBench checkout, and write a page about all of them.

    python -m tests.benchmarks.bench_kernelbench_audit ../KernelBench/KernelBench --work FOLDER --out PAGE.md

It runs `harness problems lint` and `harness problems list`; again with the same FOLDER it continues. Problems are
checked at full size on a GPU, and at derived small sizes without one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.referee.soundness import ProblemReport

LEVELS = ("level1", "level2", "level3")

MOST_NAMES = 5
"""Wrong answers that are named in one cell of the page."""

REDUNDANT = ": equals the reference's output"

KINDS = {
    "zeros or another constant": ("constants",),
    "the output of another call": ("previous_output",),
    "a part left out": ("half_written", "neighbouring_index"),
    "an input or parameter not used": ("moves_with_inputs", "moves_with_parameters", "dropped_tile"),
    "an operation left out or replaced": ("dropped_operation",),
    "arithmetic of a coarser class": ("lower_precision",),
}
"""Wrong answers by kind, with the rules of lint that they belong to."""

PAGE = """# KernelBench, audited

Made by `python -m tests.benchmarks.bench_kernelbench_audit` from KernelBench at commit {commit}, on {device}:
{count} of {problems} problems of the levels 1 to 3, {tried} wrong answers tried.

* {loads} of {count} are loaded and run; for the others the table says why.
* {accepting} accept a wrong answer by the limits of this harness, {by_allclose} by KernelBench's own rule (`allclose`
  with 1e-4 on the problem's own inputs). An answer in coarser arithmetic is not counted in these two figures.
* {redundant} have an operation that changes no bit of the output on any input variant.

Problems that accept a wrong answer of a kind:

| wrong answer | problems, by the limits of this harness | problems, by KernelBench's rule |
|---|---:|---:|
{kinds}

## Problem by problem

The lower bound is that of `harness problems list` for one call at full size on an H200: bytes or operations, whichever
takes longer. A wrong answer is named once for each rule.

| problem | class | lower bound | does not load, or redundant | accepted here | accepted by KernelBench's rule |
|---|---|---:|---|---|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="Folder for what lint finds.")
    parser.add_argument("--out", type=Path, help="Page to write.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="As of `harness problems lint`.")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    found = arguments.work / "lint.jsonl"
    places = [*LEVELS, "--problems", str(arguments.problems)]
    resume = ["--resume"] if found.exists() else []
    budget = ["--budget", str(arguments.budget_s)] if arguments.budget_s < float("inf") else []
    _harness("lint", *places, "--device", arguments.device, "--out", str(found), *resume, *budget)
    reports = [ProblemReport.from_json(json.loads(line)) for line in found.read_text().splitlines()]
    listed = {item["id"]: item for item in json.loads(_harness("list", *places, "--json"))}
    commit = subprocess.run(
        ["git", "-C", str(arguments.problems), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    page = _page(reports, listed, commit.stdout.strip() or "unknown", len(listed))
    if arguments.out is not None:
        arguments.out.write_text(page, encoding="utf-8")
    print(page.partition("## Problem by problem")[0])


def _harness(*words: str) -> str:
    command = [sys.executable, "-m", "harness", "problems", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


def _page(reports: list[ProblemReport], listed: dict[str, dict[str, Any]], commit: str, problems: int) -> str:
    mistakes = [kind for kind in KINDS if kind != "arithmetic of a coarser class"]
    kinds = [
        f"| {kind} | {_count(_here(r, [kind]) for r in reports)} | {_count(_allclose(r, [kind]) for r in reports)} |"
        for kind in KINDS
    ]
    on_cpu = reports[0].device == "cpu"
    return PAGE.format(
        commit=commit,
        device=f"{os.cpu_count()} processors at derived small sizes" if on_cpu else f"one {reports[0].processor}",
        count=len(reports),
        problems=problems,
        tried=sum(report.tried for report in reports),
        loads=sum(_fault(report) is None for report in reports),
        accepting=_count(_here(report, mistakes) for report in reports),
        by_allclose=_count(_allclose(report, mistakes) for report in reports),
        redundant=_count(map(_redundant, reports)),
        kinds="\n".join(kinds),
        rows="\n".join(_row(report, listed[report.problem], mistakes) for report in reports),
    )


def _count(found: Iterable[list[str]]) -> int:
    return sum(map(bool, found))


def _row(report: ProblemReport, shown: dict[str, Any], mistakes: list[str]) -> str:
    bounds = [cost.get("speed_of_light") or {} for cost in shown["costs"] if cost["workload"] == "full"]
    bound_s = bounds[0].get("sol_time_s") if bounds else None
    cells = [
        f"{report.problem} {shown['name']}",
        shown["precision"],
        "" if bound_s is None else f"{bound_s * 1e6:.3g} µs",
        _fault(report) or _listed(_redundant(report)),
        _listed(_here(report, mistakes)),
        _listed(_allclose(report, mistakes)),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _listed(names: list[str]) -> str:
    more = f"; and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return "; ".join(names[:MOST_NAMES]) + more


def _fault(report: ProblemReport) -> str | None:
    return next((" ".join(check.details) for check in report.broken if check.rule == "loads"), None)


def _redundant(report: ProblemReport) -> list[str]:
    """The operations that may be left out or replaced without changing a bit of the output."""
    return [_name(detail) for detail in _details(report, ("dropped_operation",)) if REDUNDANT in detail]


def _here(report: ProblemReport, kinds: Iterable[str]) -> list[str]:
    redundant = _redundant(report)
    return [name for detail in _details(report, _rules(kinds)) if (name := _name(detail)) not in redundant]


def _allclose(report: ProblemReport, kinds: Iterable[str]) -> list[str]:
    rules, redundant = _rules(kinds), _redundant(report)
    accepted = [name for check in report.checks if check.rule in rules for name in check.kernelbench_accepts]
    return [name for name in accepted if name not in redundant]


def _rules(kinds: Iterable[str]) -> list[str]:
    return [rule for kind in kinds for rule in KINDS[kind]]


def _details(report: ProblemReport, rules: Iterable[str]) -> list[str]:
    chosen = set(rules)
    return [detail for check in report.broken if check.rule in chosen for detail in check.details]


def _name(detail: str) -> str:
    """The wrong answer that a line of lint is about."""
    return detail.partition(": ")[0]


if __name__ == "__main__":
    main()

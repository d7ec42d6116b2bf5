"""Which tests run: the fast tier, everything, or as much of the rest as a time limit allows.

The tier of a test follows from `tests/durations.tsv`, measured seconds of every test function that takes long. A test
that is not listed there is new, or short, and runs in the fast tier. To measure anew:

    pytest --write-durations FILE; python -m tests.support.tiers FILE

`--page` writes only `results/suite.md`: the committed durations come from one kind of machine.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.core.config import cache_root
from tests.support.paths import ROOT, TESTS

DURATIONS = TESTS / "durations.tsv"
SUITE = ROOT / "results" / "suite.md"
LONGEST = 40
"""Files that this page lists."""

TRUSTED = ("catalog", "core", "devices", "protocol", "referee", "results", "sandbox")
LEFT_TO_THE_REST = 10
"""Lines that only other tests than the fast ones reach, from which on the page lists a file."""

LISTED_S = 0.5
"""Test functions that take less, all their parameters together, are not listed."""

LIMIT_S = 2.5
"""Longest test function of the fast tier, and longest file of it whose tests share what is made once a file."""

REPRESENTATIVES = frozenset(
    {
        "tests/integration/test_architecture.py::test_no_process_that_has_executed_a_submission_has_imported_the_judge",
        "tests/integration/test_exploits.py::test_one_of_each_family_needs_no_gpu",
        "tests/integration/test_golden.py::test_an_evaluation_gives_the_golden_records",
    }
)
"""Long tests that run in the fast tier too: whole evaluations, and one of each family of the corpus."""

LAST_RUN = "tests-last-run.tsv"
"""In the cache folder: when each test function was last run on this machine."""


def function_of(nodeid: str) -> str:
    """A test's id without its parameters and without the group that pytest-xdist appends."""
    return nodeid.partition("@")[0].partition("[")[0]


@cache
def durations() -> Mapping[str, float]:
    """Measured seconds of each listed test function."""
    rows = (line.split("\t") for line in DURATIONS.read_text(encoding="utf-8").splitlines() if line)
    return {name: float(seconds) for seconds, name in rows}


def slow(functions: Mapping[str, bool]) -> set[str]:
    """Functions outside of the fast tier.

    Args:
        functions: Each collected test function, and whether it shares fixtures that are made once a file.
    """
    shared: dict[str, float] = defaultdict(float)
    for name, shares in functions.items():
        if shares:
            shared[name.partition("::")[0]] += durations().get(name, 0.0)
    return {
        name
        for name, shares in functions.items()
        if (shared[name.partition("::")[0]] if shares else durations().get(name, 0.0)) > LIMIT_S
    } - REPRESENTATIVES


def chosen_rest(names: Iterable[str], limit_s: float, workers: int, changed: Collection[str]) -> list[str]:
    """Of these slow functions as many as fit in `limit_s`: those in changed files first, then the least recently run.

    Args:
        names: Functions outside of the fast tier.
        limit_s: Seconds that they may take together, shared by `workers` processes.
        workers: Processes that run tests.
        changed: Test files to prefer.
    """
    before = last_runs()
    order = sorted(names, key=lambda name: (name.partition("::")[0] not in changed, before.get(name, 0.0), name))
    left_s, found = limit_s * workers, []
    for name in order:
        if (left_s := left_s - durations().get(name, 0.0)) >= 0.0:
            found.append(name)
    return found


def shard(files: Iterable[str], which: str) -> set[str]:
    """Return one of several parts of the test files that take about the same time.

    Args:
        files: Test files.
        which: `I/N`: part I of N, counted from 1.

    Raises:
        ValueError: `which` is something else.
    """
    index, _, parts = which.partition("/")
    if not (index.isdecimal() and parts.isdecimal() and 1 <= int(index) <= int(parts)):
        raise ValueError(f"a shard is I/N with 1 <= I <= N, such as 2/4, not {which!r}")
    seconds = dict.fromkeys(sorted(files), LISTED_S)
    for name, measured in durations().items():
        if (file := name.partition("::")[0]) in seconds:
            seconds[file] += measured
    sums = [0.0] * int(parts)
    part = set()
    for file in sorted(seconds, key=lambda file: -seconds[file]):
        least = sums.index(min(sums))
        sums[least] += seconds[file]
        if least == int(index) - 1:
            part.add(file)
    return part


def last_runs() -> dict[str, float]:
    """When each test function was last run on this machine, as Unix time."""
    try:
        rows = (line.split("\t") for line in (cache_root() / LAST_RUN).read_text(encoding="utf-8").splitlines())
        return {name: float(at) for at, name in rows}
    except (OSError, ValueError):
        return {}


def note_runs(names: Iterable[str]) -> None:
    """Keep that these test functions were run now."""
    now = time.time()
    rows = last_runs() | dict.fromkeys(map(function_of, names), now)
    path = cache_root() / LAST_RUN
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{at:.0f}\t{name}\n" for name, at in sorted(rows.items())), encoding="utf-8")


def changed_test_files(base: str) -> set[str]:
    """Test files that a change since the git revision `base` may affect, by imports.

    Args:
        base: A revision, such as `origin/main` or `HEAD~1`.

    Returns:
        Paths from the root of the checkout: changed test files, and those that import a changed module of the harness,
            or one that imports it.

    Raises:
        subprocess.CalledProcessError: git does not know `base`.
    """
    import grimp  # takes a second, and only this function needs it

    diff = ["git", "diff", "--name-only", base, "--"]
    paths = subprocess.run(diff, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    graph = grimp.build_graph("harness")
    affected: set[str] = set()
    for path in paths:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if path.endswith(".py") and module in graph.modules:
            affected |= {module} | graph.find_downstream_modules(module) - {"harness"}
    files = TESTS.rglob("test_*.py")
    found = {path.relative_to(ROOT).as_posix() for path in files if affected & imported(path)}
    return found | {path for path in paths if path.startswith("tests/") and Path(path).name.startswith("test_")}


def imported(path: Path) -> set[str]:
    """Modules of the harness that a test file names in its imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness"):
            found |= {str(node.module), *(f"{node.module}.{item.name}" for item in node.names)}
        elif isinstance(node, ast.Import):
            found |= {item.name for item in node.names if item.name.startswith("harness")}
    return found


def summed(lines: Iterable[str]) -> dict[str, float]:
    """Seconds of each test function from lines of `--write-durations`: seconds, tab, node id."""
    total: dict[str, float] = defaultdict(float)
    for line in lines:
        seconds, _, nodeid = line.rstrip("\n").partition("\t")
        total[function_of(nodeid)] += float(seconds)
    return dict(total)


def coverage_table(fast: Mapping[str, Any], rest: Mapping[str, Any]) -> list[str]:
    """Return lines of the page: what the fast tier leaves to the other tests, for each file of the trusted rooms.

    Args:
        fast: What `coverage json` wrote of the fast tier.
        rest: The same of the other tests.
    """
    rows, lines, covered, together = [], 0, 0, 0
    for path, found in sorted(fast["files"].items()):
        if path.split("/")[1] not in TRUSTED:
            continue
        executed = set(found["executed_lines"])
        both = executed | set(rest["files"].get(path, {}).get("executed_lines", ()))
        count = len(executed) + len(found["missing_lines"])
        lines, covered, together = lines + count, covered + len(executed), together + len(both)
        if len(both) - len(executed) >= LEFT_TO_THE_REST:
            rows.append((len(both) - len(executed), f"| `{path}` | {count} | {len(executed)} | {len(both)} |"))
    return [
        "",
        "## Coverage of the trusted rooms",
        "",
        f"Of {lines} lines the fast tier executes {covered / lines:.1%}, all tests {together / lines:.1%}. Only a",
        "test's own process is counted, not those that it starts (the referee's worker, builders, contestants), in",
        "which the fast tier's whole evaluations run. Files with",
        f"at least {LEFT_TO_THE_REST} lines that only other tests reach:",
        "",
        "| file | lines | fast tier | all |",
        "|---|---:|---:|---:|",
        *(row for _, row in sorted(rows, reverse=True)),
        "",
    ]


def suite_page(total: Mapping[str, float], before: str) -> str:
    """Return the page that shows how the suite grows: a line each time it is measured, and the longest files.

    Args:
        total: Seconds of each test function.
        before: The page as it was; its lines of earlier measurements are kept.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    earlier = [line for line in before.splitlines() if line.startswith("| 20")]
    measured = (
        f"| {time.strftime('%Y-%m-%d')} | {commit} | {os.cpu_count()} | {len(total)} | {sum(total.values()):.0f} |"
    )
    files: dict[str, list[float]] = defaultdict(list)
    for name, seconds in total.items():
        files[name.partition("::")[0]].append(seconds)
    order = sorted(files, key=lambda file: -sum(files[file]))
    return "\n".join(
        [
            "# How long the tests take",
            "",
            "Seconds of all test functions that need no GPU, added up over the workers that shared them; with more",
            "workers than processors each waits for the others. Written by `python -m tests.support.tiers FILE`.",
            "",
            "| measured | commit | processors | functions | seconds |",
            "|---|---|---:|---:|---:|",
            *earlier,
            measured,
            "",
            f"The {LONGEST} longest of {len(files)} files, last time:",
            "",
            "| file | functions | seconds |",
            "|---|---:|---:|",
            *(f"| `{file}` | {len(files[file])} | {sum(files[file]):.0f} |" for file in order[:LONGEST]),
            "",
        ]
    )


def main(arguments: Sequence[str]) -> int:
    """Write `tests/durations.tsv` and `results/suite.md` from measured lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.tiers")
    parser.add_argument("durations", nargs="+", type=Path, help="files of --write-durations")
    parser.add_argument("--page", action="store_true", help="write results/suite.md only")
    parser.add_argument(
        "--coverage", nargs=2, type=Path, metavar=("FAST", "REST"), help="what coverage json wrote of each"
    )
    options = parser.parse_args(arguments)
    total: dict[str, float] = {}
    for path in options.durations:
        with path.open(encoding="utf-8") as file:
            total |= summed(file)
    page = suite_page(total, SUITE.read_text(encoding="utf-8") if SUITE.exists() else "")
    if options.coverage:
        page += "\n".join(coverage_table(*(json.loads(path.read_text()) for path in options.coverage)))
    SUITE.write_text(page, encoding="utf-8")
    if options.page:
        return 0
    rows = [f"{seconds:.1f}\t{name}\n" for name, seconds in sorted(total.items()) if seconds >= LISTED_S]
    DURATIONS.write_text("".join(rows), encoding="utf-8")
    sys.stdout.write(f"{len(rows)} of {len(total)} test functions listed, {sum(total.values()):.0f} s in all\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Mutation testing of trusted code: which small changes of a module do its own tests not notice?

    make mutants MODULE=harness/referee/timing/claims.py      # all its mutants
    python -m tests.support.mutants harness/referee --sample 30 --workers 16 --table results/mutants.md

Cosmic Ray makes the mutants (operators and paths in `[tool.mutants]` of `pyproject.toml`). A mutant is killed if one of
the module's tests fails or takes more than three times as long as without it. The module's tests are those files below
`tests/unit` that import it, without tests that need a GPU and without slow ones (`tiers.py`); if there is none, the
files of its room. Each worker has a copy of the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from tests.support import tiers
from tests.support.paths import ROOT

COPIED = ("harness", "tests", "problems", "solutions", "results", "pyproject.toml", "README.md", "Makefile")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a mutant of a module is made: the occurrence of one of Cosmic Ray's operators."""

    module: str
    operator: str
    occurrence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        module: Path of the module, from the root of the checkout.
        line: Line of the change.
        operator: Cosmic Ray's name of the kind of change.
        before: The line, without indentation.
        after: The changed line.
        outcome: `killed`, `timeout` (which counts as killed) or `survived`.
    """

    module: str
    line: int
    operator: str
    before: str
    after: str
    outcome: str


def places(module: str) -> list[Place]:
    """Return where mutants of a module can be made; not in options of dataclasses, on which no caller depends."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    code = (ROOT / module).read_text(encoding="utf-8")
    lines, nodes = code.splitlines(), list(ast_nodes(get_ast(code)))
    found = []
    for name in operator_names():
        if name.removeprefix("core/").startswith(tuple(SETTINGS["operators"])):
            operator = get_operator(name)()
            starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            found += [
                Place(module=module, operator=name, occurrence=occurrence)
                for occurrence, (line, _) in enumerate(starts)
                if not lines[line - 1].lstrip().startswith("@dataclass")
            ]
    return found


def mutated(place: Place) -> tuple[str, int, str, str] | None:
    """Return a module's changed text, the line's number, and the line before and after; None if nothing changes."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = (ROOT / place.module).read_text(encoding="utf-8")
    changed = mutate_code(code, get_operator(place.operator)(), place.occurrence)
    if changed is None or changed == code:
        return None
    pairs = enumerate(zip(code.splitlines(), changed.splitlines(), strict=False), start=1)
    line, (before, after) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    return changed, line, before.strip(), after.strip()


@cache
def tests_of(module: str) -> list[str]:
    """Return the test files of a module: those that import it, or those of its room."""
    name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    files = [path for path in sorted((ROOT / "tests/unit").rglob("test_*.py")) if name in tiers.imported(path)]
    room = ROOT / "tests" / "unit" / module.split("/")[1]
    return [path.relative_to(ROOT).as_posix() for path in files or sorted(room.rglob("test_*.py"))]


_copy = Path()
"""The tree of this worker."""


def _begin(scratch: str) -> None:
    """Copy the tree for this worker."""
    global _copy
    _copy = Path(tempfile.mkdtemp(dir=scratch))
    for name in COPIED:
        if (source := ROOT / name).is_dir():
            shutil.copytree(source, _copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, _copy / name)


def _run(files: Sequence[str], limit_s: float) -> tuple[str, str]:
    """Run tests in this worker's tree; return `passed`, `failed` or `timeout`, and the end of the output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tier", "fast", *files]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{_copy}:{os.environ.get('PYTHONPATH', '')}",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with subprocess.Popen(
        command, cwd=_copy, env=environment | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as started:  # fmt: skip
        try:
            output, _ = started.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            return "timeout", ""
    return ("passed" if started.returncode == 0 else "failed"), output[-2000:]


def _unchanged_s(module: str) -> float:
    """Return the seconds that a module's tests take.

    Raises:
        ValueError: They fail without a change.
    """
    begin = time.monotonic()
    outcome, output = _run(tests_of(module), 600.0)
    if outcome != "passed":
        raise ValueError(f"{module}: its tests fail without any change:\n{output}")
    return time.monotonic() - begin


def _judge(place: Place, limit_s: float, until: float) -> Outcome | None:
    """Run a module's tests against one mutant; None after the Unix time `until`, or if nothing changes."""
    if time.time() > until or (change := mutated(place)) is None:
        return None
    text, line, before, after = change
    target = _copy / place.module
    original = target.read_bytes()
    try:
        target.write_text(text, encoding="utf-8")
        outcome, _ = _run(tests_of(place.module), limit_s)
    finally:
        target.write_bytes(original)
    word = {"passed": "survived", "failed": "killed"}.get(outcome, outcome)
    kind = place.operator.removeprefix("core/")
    return Outcome(module=place.module, line=line, operator=kind, before=before, after=after, outcome=word)


def _drawn(module: str, sample: int | None) -> list[Place]:
    every = places(module)
    return every if sample is None else random.Random(0).sample(every, min(sample, len(every)))


def examine(modules: Sequence[str], *, sample: int | None, workers: int, until: float) -> Iterator[Outcome]:
    """Run the tests of each module against its mutants, or against some drawn at random; yield each when it is done.

    Modules whose tests fail without a change are named and left out.

    Args:
        modules: Paths of modules.
        sample: Mutants per module; None for all.
        workers: Processes that run tests at the same time.
        until: Unix time after which no mutant is begun.
    """
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as scratch,
        ProcessPoolExecutor(workers, get_context("spawn"), _begin, (scratch,)) as pool,
    ):
        unchanged = {module: pool.submit(_unchanged_s, module) for module in modules}
        drawn = dict(zip(modules, pool.map(_drawn, modules, repeat(sample)), strict=True))
        limits_s: dict[str, float] = {}
        for module, future in unchanged.items():
            try:
                limits_s[module] = 3.0 * future.result() + 20.0
            except ValueError as error:
                sys.stderr.write(f"{error}\n")
        chosen = [place for module in limits_s for place in drawn[module]]
        random.Random(0).shuffle(chosen)  # so that the limit leaves out some of each module
        futures = [pool.submit(_judge, place, limits_s[place.module], until) for place in chosen]
        for number, judged in enumerate(as_completed(futures), start=1):
            if number % 10 == 0 or number == len(futures):
                sys.stderr.write(f"{number} of {len(futures)} mutants\n")
            if (outcome := judged.result()) is not None:
                yield outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown page: a row per module, and the survivors."""
    rows = ["| module | mutants | killed | |", "|---|---:|---:|---:|"]
    for module in [*sorted({outcome.module for outcome in outcomes}), ""]:
        own = [outcome for outcome in outcomes if not module or outcome.module == module]
        killed = sum(outcome.outcome != "survived" for outcome in own)
        share = f"{killed / len(own):.0%}" if own else ""
        rows.append(f"| {f'`{module}`' if module else 'all'} | {len(own)} | {killed} | {share} |")
    lines = ["", "## Survivors", "", "| where | before | after |", "|---|---|---|"]
    for outcome in sorted(outcomes, key=lambda outcome: (outcome.module, outcome.line)):
        if outcome.outcome == "survived":
            before, after = (text.replace("|", "\\|") for text in (outcome.before, outcome.after))
            lines.append(f"| `{outcome.module}:{outcome.line}` | `{before}` | `{after}` |")
    return "\n".join([*rows, *lines, ""])


def main(arguments: Sequence[str]) -> int:
    """Examine modules and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="modules or folders; default: `paths` of [tool.mutants]")
    parser.add_argument("--sample", type=int, help="mutants per module, drawn at random; default: all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin no mutant after so many seconds")
    parser.add_argument("--rows", type=Path, help="write the outcomes as JSON lines")
    parser.add_argument("--table", type=Path, help="write the table to this file")
    given = parser.parse_args(arguments)
    chosen = [ROOT / path for path in given.paths or SETTINGS["paths"]]
    if missing := [str(path) for path in chosen if not (path.exists() and path.is_relative_to(ROOT))]:
        parser.error(f"no module of this checkout: {', '.join(missing)}")
    files = [file for path in chosen for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    modules = [file.relative_to(ROOT).as_posix() for file in files]
    until = time.time() + given.limit_s
    outcomes = []
    with open(given.rows or os.devnull, "w", encoding="utf-8", buffering=1) as rows:
        for outcome in examine(modules, sample=given.sample, workers=given.workers, until=until):
            outcomes.append(outcome)
            rows.write(json.dumps(asdict(outcome)) + "\n")
    page = table(outcomes)
    (given.table.write_text(page, encoding="utf-8") if given.table else sys.stdout.write(page))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

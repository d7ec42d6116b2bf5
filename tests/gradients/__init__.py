"""Solutions with a backward of their own for the problems of `problems/backward`, and mutants of these backwards.

`solutions/` has a right solution for each problem. A comment `# mutant, KIND: CODE` stands above a line of it; the
mutant has CODE instead of that line. `python -m tests.gradients` judges all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

SOLUTIONS = Path(__file__).parent / "solutions"
PROBLEMS = ROOT / "problems" / "backward"

TORCH, OWN, MUTANTS = "torch", "own", "mutants"
"""Authors of the solutions: the reference's text, `solutions/`, and what is made of it."""

_MARK = "# mutant, "


def judged(names: frozenset[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield author, name and source of each solution.

    Args:
        names: Names of problems without `.py`, such as `5_softmax`; None takes all.
    """
    for path in sorted(PROBLEMS.glob("*.py"), key=lambda path: int(path.stem.partition("_")[0])):
        if names is not None and path.stem not in names:
            continue
        yield TORCH, path.stem, path.read_text().replace("class Model(", "class ModelNew(")
        source = (SOLUTIONS / path.name).read_text()
        yield OWN, path.stem, source
        for number, (kind, text) in enumerate(mutants(source), 1):
            yield MUTANTS, f"{path.stem}_{number}_{kind.replace(' ', '_')}", text


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield kind and source of each mutant of a solution."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(_MARK):
            continue
        kind, _, code = line.lstrip().removeprefix(_MARK).partition(": ")
        place = next(n for n in range(number, len(lines)) if not lines[n].lstrip().startswith(_MARK))
        indent = line[: len(line) - len(line.lstrip())]
        yield kind, "\n".join([*lines[:place], indent + code, *lines[place + 1 :], ""])

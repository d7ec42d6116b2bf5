"""The mutants of the project's sound kernels: which there are, and a sample that is even over operators and files.

A kernel's source is a string in the Python file of a solution, or an entry of `tests/hostcuda/corpus`. Mutants change
the text in place, so lines stay.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.catalog import Catalog, load_problems
from harness.core.problem import Problem
from tests.exploits import corpus
from tests.mutation import small_kernels
from tests.mutation.operators import Edit, mutations
from tests.support.paths import ROOT

SOLUTIONS = ("solutions/examples/naive", "solutions/examples/optimised", "solutions/tuned")
_CUDA = ("__global__", "__device__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed solution.

    Attributes:
        id: File, operator, line, column, and a number if the operator has several edits there.
        file: Path of the solution from the root of the checkout.
        operator: Name of the operator.
        edit: The mistake, as a change of the file.
        probe: Changes of the unchanged file that make a thread trap which reaches the mistake's statement.
    """

    id: str
    file: str
    operator: str
    edit: Edit
    probe: tuple[Edit, ...]

    def source(self) -> str:
        """Return the text of the changed solution."""
        return self.edit.applied(content(self.file)).decode()

    def probed(self) -> str:
        """Return the text of the sound solution that traps where the mistake would be."""
        text = content(self.file)
        for edit in reversed(self.probe):
            text = edit.applied(text)
        return text.decode()

    def line(self) -> int:
        """Return the line of the file that changes."""
        return content(self.file).count(b"\n", 0, self.edit.start) + 1

    def change(self) -> tuple[str, str]:
        """Return the changed lines before and after, each with single spaces."""
        text = content(self.file)
        start = text.rfind(b"\n", 0, self.edit.start) + 1
        end = text.find(b"\n", self.edit.end)
        before, after = text[start:end], text[start : self.edit.start] + self.edit.text + text[self.edit.end : end]
        return " ".join(before.decode().split()), " ".join(after.decode().split())


@cache
def content(file: str) -> bytes:
    """Return the text of a solution, or of the solution made of an entry of `tests/hostcuda/corpus`."""
    path = ROOT / file
    return small_kernels.solution(small_kernels.entry_of(path)).encode() if path.suffix == ".cu" else path.read_bytes()


def kernel_files() -> list[str]:
    """Return the solutions with CUDA sources that are called sound, as paths from the root."""
    found = [path for folder in SOLUTIONS for path in sorted((ROOT / folder).rglob("*.py"))]
    honest = [entry for entry in corpus.load() if entry.kind == "honest" and entry.expected == {"passed"}]
    found += [
        entry.path for entry in honest if set(entry.devices) == {"host", "cuda"} and not entry.expected_on["host"]
    ]
    found = [path for path in found if _literals(path.read_bytes())]
    entries = [small_kernels.entry_of(path) for path in sorted(small_kernels.FOLDER.glob("*.cu"))]
    found += [entry.path for entry in entries if not entry.header.get("sorted")]
    return [path.relative_to(ROOT).as_posix() for path in found]


@cache
def _problems(folder: Path) -> Catalog:
    return load_problems(folder)


def problem_of(file: str) -> Problem:
    """Return the problem that a solution solves."""
    path = ROOT / file
    if path.suffix == ".cu":
        return small_kernels.problem(small_kernels.entry_of(path))
    folder = corpus.PROBLEMS if path.is_relative_to(corpus.HERE) else ROOT / "problems"
    return _problems(folder).resolve(f"{path.parent.name}/{path.name.partition('_')[0]}")


def _literals(text: bytes) -> list[tuple[int, bytes]]:
    """Return where the CUDA sources of a Python file start, with the sources, if they stand there as they are."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and any(word in node.value for word in _CUDA):
            start, end = (
                lines[node.lineno - 1] + node.col_offset,
                lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0),
            )
            source = node.value.encode()
            inside = text.find(source, start, end)
            if inside >= 0:
                found.append((inside, source))
    return found


@cache
def mutants_of(file: str) -> tuple[Mutant, ...]:
    """Return all mutants of a solution, in order of place; each text once."""
    text, seen, found = content(file), Counter[str](), []
    for offset, source in _literals(text):
        for mutation in mutations(source):
            edit, *probe = (
                Edit(each.start + offset, each.end + offset, each.text) for each in (mutation.edit, *mutation.probe)
            )
            line, column = text.count(b"\n", 0, edit.start) + 1, edit.start - text.rfind(b"\n", 0, edit.start)
            name = f"{file}:{mutation.operator.replace(' ', '_')}:{line}:{column}"
            seen[name] += 1
            found.append(
                Mutant(
                    id=name if seen[name] == 1 else f"{name}:{seen[name]}",
                    file=file,
                    operator=mutation.operator,
                    edit=edit,
                    probe=tuple(probe),
                )
            )
    return tuple(found)


def sample(files: Iterable[str], count: int | None, seed: int) -> list[Mutant]:
    """Draw mutants evenly: the first of every operator in every file, then the second, and so on.

    A larger sample of the same seed begins with the smaller one.

    Args:
        files: Paths of solutions.
        count: Number of mutants; None for all.
        seed: Seed of the order.
    """
    draw, ranked = random.Random(seed), []
    for file in files:
        groups: dict[str, list[Mutant]] = {}
        for mutant in mutants_of(file):
            groups.setdefault(mutant.operator, []).append(mutant)
        for group in groups.values():
            draw.shuffle(group)
            ranked += [(rank, draw.random(), mutant) for rank, mutant in enumerate(group)]
    ranked.sort(key=lambda item: item[:2])
    return [mutant for _, _, mutant in ranked[:count]]


def chunks(chosen: Sequence[Mutant], size: int) -> list[list[Mutant]]:
    """Split a sample into groups of one file each: the first group of every file, then the second, and so on."""
    by_file: dict[str, list[Mutant]] = {}
    for mutant in chosen:
        by_file.setdefault(mutant.file, []).append(mutant)
    groups = [
        (start, mutants[start : start + size]) for mutants in by_file.values() for start in range(0, len(mutants), size)
    ]
    return [group for _, group in sorted(groups, key=lambda item: item[0])]

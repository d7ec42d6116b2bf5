"""Shared parts of the converters: bounded reading, names, writing of folders.

Trusted side. Foreign files are read as text and never executed here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.catalog.problems import WORKLOADS_FILE, WORKLOADS_FORMAT, CatalogError, load_problems
from harness.catalog.solutions import solution_path
from harness.catalog.source_files import RejectedFile, files_below, printable, read_bounded
from harness.core import python_ast
from harness.core.atomic_file import replace_whole
from harness.core.status import one_line
from harness.core.yaml_file import NotText, as_text

MAX_TEXT_BYTES = 64 * 2**20
"""Largest file of a foreign data set in bytes; files of traces have some megabytes."""

ADAPTER = "# ---- Adapter to this harness: everything below was added by the import ----"
"""Line between foreign text and the adapter; an export cuts the text here."""

DEPENDS_ON_VALUES = re.compile(r"\.item\(|\.tolist\(|\b(nonzero|bincount|geqrf)\b")
"""Matches code from which no sizes can be derived: torch can't run it without data."""

PROBLEMS, SOLUTIONS, RESULTS = "problems", "solutions", "results"
"""Folders below `--out`."""


class NotConvertible(ValueError):
    """One foreign problem or solution can't be converted; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignProblem:
    """A converted problem.

    Attributes:
        key: Its name in the foreign data set.
        level: Folder to write it to.
        name: Words for the file name.
        source: Text of the problem file.
        entry: Its entry in `workloads.yaml`.
        number: Its number; None takes the next free one.
    """

    key: str
    level: str
    name: str
    source: str
    entry: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSolution:
    """A converted solution: author, key of its problem, words for the file name, text."""

    key: str
    problem: str
    author: str
    name: str
    source: str


@dataclass(slots=True, kw_only=True)
class Conversion:
    """The result of an import.

    Attributes:
        ids: Foreign name of each written problem -> its id.
        solutions: Foreign name of each written solution -> its label.
        skipped: Foreign name of each other problem and solution -> the reason.
    """

    ids: dict[str, str] = field(default_factory=dict)
    solutions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def write_all(out: Path, problems: Sequence[ForeignProblem], solutions: Sequence[ForeignSolution]) -> Conversion:
    """Write problems and solutions into a new folder.

    Args:
        out: The folder; it must not exist or must be empty.
        problems: Problems; those of one level are numbered in this order.
        solutions: Solutions; those of problems that were not written are skipped.

    Raises:
        CatalogError: `out` is not empty.
        OSError: A file can't be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CatalogError([f"{out} exists and is not an empty folder: name another by --out"])
    done = Conversion()
    levels: dict[str, dict[int, ForeignProblem]] = {}
    for problem in problems:
        own = levels.setdefault(problem.level, {})
        number = problem.number if problem.number is not None else len(own) + 1
        if problem.key in done.ids or number in own:
            done.skipped[problem.key] = "another problem has the same name or number: remove one of them"
        elif (why := unparsable(problem.source)) is not None:
            done.skipped[problem.key] = why
        else:
            own[number] = problem
            done.ids[problem.key] = f"{problem.level}/{number}"
    for level, own in levels.items():
        folder = out / PROBLEMS / level
        for number, problem in own.items():
            write_text(folder / f"{number}_{words(problem.name)}.py", problem.source)
        entries = {number: dict(problem.entry) for number, problem in own.items() if problem.entry}
        if entries:
            text = yaml.safe_dump({"format": WORKLOADS_FORMAT, "problems": entries}, sort_keys=False, width=120)
            write_text(folder / WORKLOADS_FILE, text)
    if done.ids:
        keys = {problem_id: key for key, problem_id in done.ids.items()}
        for problem_id, held in load_problems(out / PROBLEMS).unreadable.items():
            done.skipped[keys[problem_id]] = held.failure.reason if held.failure else "can't be read"
            del done.ids[keys[problem_id]]
    for solution in solutions:
        if solution.problem not in done.ids:
            done.skipped[solution.key] = f"its problem {one_line(solution.problem, limit=80)!r} was not imported"
        elif (why := unparsable(solution.source)) is not None:
            done.skipped[solution.key] = why
        else:
            root = out / SOLUTIONS
            path = solution_path(root, solution.author, done.ids[solution.problem], name=solution.name)
            while path.exists():
                path = path.with_name(f"{path.stem}_b.py")
            write_text(path, solution.source)
            done.solutions[solution.key] = path.relative_to(root).as_posix()
    return done


def write_text(path: Path, text: str) -> None:
    """Write a file and the folders above it; lone surrogates are escaped."""
    replace_whole(path, text.encode("utf-8", "backslashreplace"))


def unparsable(source: str) -> str | None:
    """Return why a text is not Python, or None."""
    try:
        python_ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"not valid Python: {one_line(str(error) or type(error).__name__, limit=120)}"
    return None


def parsed(source: str) -> ast.Module:
    """Parse a foreign text.

    Raises:
        NotConvertible: It is not Python.
    """
    if (why := unparsable(source)) is not None:
        raise NotConvertible(why)
    return python_ast.parse(source)


def read_text(path: Path, limit_bytes: int | None = None) -> str:
    """Read a UTF-8 file of limited size.

    Raises:
        NotConvertible: The file can't be read, is too large, or is not UTF-8.
    """
    try:
        return as_text(read_bounded(path, limit_bytes or MAX_TEXT_BYTES))
    except (NotText, ValueError) as error:
        raise NotConvertible(f"{printable(path)}: {error}") from error


def load_json(text: str, where: str) -> dict[str, Any]:
    """Parse one JSON object.

    Raises:
        NotConvertible: The text is not a JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotConvertible(f"{where}: not valid JSON: {one_line(str(error), limit=100)}") from error
    if not isinstance(value, dict):
        raise NotConvertible(f"{where}: a JSON object is expected, not {type(value).__name__}")
    return value


def files(folder: Path, suffix: str, skipped: dict[str, str]) -> Iterator[Path]:
    """Yield the files below a folder; what can't be read goes to `skipped`."""
    for found in files_below(folder, {suffix}, re.compile(r"\..*")):
        if isinstance(found, RejectedFile):
            skipped[printable(found.path)] = found.reason
        else:
            yield found


def words(name: str) -> str:
    """Return a name as words for a file name."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:100] or "problem"


def folder_name(name: str) -> str:
    """Return a name as the name of a folder of problems."""
    text = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:60]
    return text if text[:1].isalpha() else f"set_{text}"


def comment(text: str) -> str:
    """Return a text as comment lines."""
    lines = [line.rstrip() for line in re.split(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+", text.strip())]
    return "".join(f"# {line}\n" for line in lines if line)


def top_level_names(tree: ast.Module) -> set[str]:
    """Return the names that a module binds at its top level."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(name.asname or name.name).partition(".")[0] for name in node.names}
        else:
            found |= {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return found


def foreign_part(source: str) -> tuple[str, str]:
    """Split an imported file into the foreign text, with its header, and the adapter.

    Returns:
        Both parts; the second is empty if the file was not imported.
    """
    text, _, adapter = source.partition(f"\n{ADAPTER}\n")
    return text, adapter

"""Read solution files into `Solution` values; their paths name the problem.

Trusted side. The files are untrusted: they are read as text of limited size, links that leave the given folder are
refused, and names must be safe to print and to use in a path. guides/commands.md says what a path means.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.catalog.authors import AUTHOR_TEXTS, Author, author_of
from harness.catalog.problems import PROBLEM_FILE, Catalog, CatalogError
from harness.core.problem import Solution
from harness.core.status import Failure, Status, one_line
from harness.core.yaml_file import NotText, as_text, read_yaml, reason_of

MAX_SOURCE_BYTES = 4 * 2**20
"""Largest solution file in bytes; real ones have a few kilobytes."""

LOCAL_AUTHOR = "local"
"""Author of a file whose path names no author."""

AUTHOR_FILE = "author.yaml"
MAX_AUTHOR_BYTES = 64 * 2**10
"""Largest `author.yaml` in bytes; real ones have a few lines."""

_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=-]{0,99}")
_KERNELBENCH_FILE = re.compile(r"level_?(\d+)_problem_(\d+)_sample_(\d+)(?:_kernel)?\.py")
_SAMPLE = re.compile(r"(?:^|[_-])sample[_-]?(\d{1,9})(?=$|[_-])")
_SKIPPED = re.compile(r"[._].*|conftest\.py")
_SHAPES = "<author>/level1/16_name.py or level_1_problem_16_sample_0_kernel.py"


@dataclass(frozen=True, slots=True)
class _Place:
    """Facts about a solution in its path."""

    problem_id: str | None
    author: str | None
    sample: int | None
    label: str


def find_solutions(
    paths: Sequence[Path], catalog: Catalog, problem_id: str | None = None, author: str | None = None
) -> list[Solution]:
    """Read all solutions in files and folders.

    A file found twice under one label counts once. If a link gives it another label, it is another solution. A file
    that is not UTF-8 is a solution with a `failure`.

    Args:
        paths: Python files, or folders of them.
        catalog: The problems.
        problem_id: Problem of files whose path names none; files in folders that name another problem are skipped.
        author: Author of all solutions instead of the author in their paths.

    Returns:
        The solutions, sorted by label.

    Raises:
        CatalogError: A path does not exist or can't be read, a folder has no solution, a file is not a Python file or
            is too large, a link leads out of its folder, a problem is unknown, or two solutions have one label or one
            sample number. It lists all errors.
    """
    findings: list[str] = []
    if not paths:
        raise CatalogError(["no solution given: pass files or folders of solutions"])
    if author is not None and not _AUTHOR.fullmatch(author):
        raise CatalogError([_bad_author(author)])
    wanted = catalog.locate(problem_id).id if problem_id is not None else None
    found: dict[tuple[Path, str], Solution] = {}
    for given in paths:
        seen = len(found)
        before = len(findings)
        skipped = 0
        for path in _files(given, findings):
            place = _place(path, catalog)
            if given.is_dir() and wanted and place.problem_id and place.problem_id != wanted:
                skipped += 1
                continue
            try:
                solution = _solution(path, place, catalog, wanted, author)
            except ValueError as error:
                findings.append(f"{_printable(path)}: {error}")
                continue
            found.setdefault((path.resolve(), solution.label), solution)
        if len(found) == seen and len(findings) == before and not any(_within(path, given) for path, _ in found):
            what = f"none of its {skipped} solutions is for {wanted}" if skipped else "no solution in it"
            findings.append(f"{_printable(given)}: {what}; solutions are files like {_SHAPES}")
    solutions = sorted(found.values(), key=lambda held: held.label)
    findings += _clashes(solutions)
    if findings:
        raise CatalogError(findings)
    return solutions


def find_authors(solutions: Sequence[Solution]) -> tuple[dict[str, Author], list[str]]:
    """Read the `author.yaml` of the solutions' authors.

    Never raises, because a wrong `author.yaml` must not prevent the evaluation. If two folders of one author's name
    differ, the file of the later solution counts.

    Returns:
        The authors with a readable file, by name; and one line for each file that can't be read.
    """
    places = {place: held.author for held in solutions if (place := _author_file(held)) is not None}
    authors: dict[str, Author] = {}
    findings = []
    for path, name in places.items():
        try:
            authors[name] = _read_author(path, name)
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link to itself
            findings.append(f"{_printable(path)}: {one_line(reason_of(error))}")
    return authors, findings


def solution_path(folder: Path, author: str, problem: str, *, name: str, sample: int | None = None) -> Path:
    """Return the path for a solution.

    From this path, `find_solutions` reads the same author, problem and sample.

    Args:
        folder: The solutions folder.
        author: Author's name.
        problem: Problem's id.
        name: Text for the file name.
        sample: Sample number, or None.

    Returns:
        The path below `folder`.

    Raises:
        CatalogError: The author's name is not usable as a folder name.
    """
    if not _AUTHOR.fullmatch(author):
        raise CatalogError([_bad_author(author)])
    level, _, number = problem.partition("/")
    words = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "solution"
    suffix = "" if sample is None else f"_sample{sample}"
    return folder / author / level / f"{number}_{words[:60]}{suffix}.py"


def _files(given: Path, findings: list[str]) -> Iterator[Path]:
    """Yield the solution files of one argument."""
    if given.is_dir():
        inside = given.resolve()

        def refused(error: OSError) -> None:
            findings.append(f"{_printable(Path(error.filename))}: can't be read: {error.strerror}")

        for folder, folders, names in os.walk(given, onerror=refused):
            folders[:] = sorted(name for name in folders if not _SKIPPED.fullmatch(name))
            files = [name for name in sorted(names) if name.endswith(".py") and not _SKIPPED.fullmatch(name)]
            # A link to a folder inside `given` is not followed, because the walk visits that folder anyway.
            for path in (Path(folder, name) for name in (*folders, *files)):
                if not path.resolve().is_relative_to(inside):
                    out = f"a link that leads out of {_printable(given)}: pass its target instead, or copy the target"
                    findings.append(f"{_printable(path)}: {out}")
                elif path.name in files:
                    yield path
    elif not given.exists():
        findings.append(f"{_printable(given)}: there is no such file or folder")
    elif given.suffix != ".py":
        findings.append(f"{_printable(given)}: a solution is a .py file or a folder of them")
    else:
        yield given


def _place(path: Path, catalog: Catalog) -> _Place:
    """Return the facts in a path."""
    parts = Path(os.path.abspath(path)).parts
    folder, name = parts[-2], parts[-1]
    if match := _KERNELBENCH_FILE.fullmatch(name):
        return _Place(f"level{int(match[1])}/{int(match[2])}", folder, int(match[3]), f"{folder}/{name}")
    match = PROBLEM_FILE.fullmatch(name)
    if match and (folder in catalog.levels or re.fullmatch(r"level\d+", folder)):
        sample = _SAMPLE.search(match[2])
        number = int(sample[1]) if sample else None
        author = parts[-3] if len(parts) > 3 else None
        return _Place(f"{folder}/{int(match[1])}", author, number, "/".join(parts[-3:]))
    return _Place(None, None, None, name)


def _solution(path: Path, place: _Place, catalog: Catalog, wanted: str | None, author: str | None) -> Solution:
    """Read one file. Raises `ValueError` with the error."""
    problem = place.problem_id or wanted
    if problem is None:
        raise ValueError(
            f"its path names no problem: use a path like {_SHAPES}, or name the problem by --problem level1/16"
        )
    if wanted is not None and problem != wanted:
        raise ValueError(f"its path names problem {problem}, but --problem names {wanted}")
    if problem not in catalog and problem not in catalog.unreadable:
        raise ValueError(catalog.missing(problem))
    if (catalog.problems.get(problem) or catalog.unreadable[problem]).path.resolve() == path.resolve():
        raise ValueError(f"it is problem {problem} itself, not a solution of it")
    name = author or place.author or LOCAL_AUTHOR
    if not _AUTHOR.fullmatch(name):
        raise ValueError(_bad_author(name))
    if not place.label.isprintable():
        raise ValueError("its name has characters that can't be printed: rename it")
    source, failure = bounded_source(path)
    return Solution(
        problem_id=problem,
        author=name,
        label=place.label,
        path=path,
        source=source,
        sample=place.sample,
        failure=failure,
    )


def bounded_source(path: Path) -> tuple[str, Failure | None]:
    """Read a solution's file.

    Returns:
        The source, and None. If the file is not UTF-8: its bytes decoded with `surrogateescape` (unequal to any
        valid text), and the failure.

    Raises:
        ValueError: The file can't be read, is not a regular file, or is larger than `MAX_SOURCE_BYTES`.
    """
    try:
        held = path.stat()
        if not stat.S_ISREG(held.st_mode):
            raise ValueError("it is not a regular file")
        if held.st_size > MAX_SOURCE_BYTES:
            raise ValueError(f"it has {held.st_size} bytes, more than {MAX_SOURCE_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from error
    try:
        return as_text(data), None
    except NotText as error:
        reason = f"{error}: save the file as UTF-8"
        evidence = {"phase": "read", "line": error.line, "byte": error.byte}
        failure = Failure(status=Status.syntax_error, reason=reason, evidence=evidence)
        return data.decode("utf-8", "surrogateescape"), failure


def _clashes(solutions: Sequence[Solution]) -> list[str]:
    """Return messages about pairs of solutions that the results could not tell apart."""
    findings = []
    labels: dict[str, Solution] = {}
    samples: dict[tuple[str, str, int], Solution] = {}
    for held in solutions:
        other = labels.setdefault(held.label, held)
        if other is not held:
            findings.append(f"{held.path} and {other.path} are both called {held.label}: rename one")
        elif held.sample is not None:
            other = samples.setdefault((held.problem_id, held.author, held.sample), held)
            if other is not held:
                what = f"sample {held.sample} of {held.problem_id} by {held.author}"
                findings.append(f"{held.path} and {other.path} are both {what}: renumber one")
    return findings


def _author_file(solution: Solution) -> Path | None:
    """Return the `author.yaml` in the folder with the author's name, or None."""
    # <author>/level1/16_naive.py, or <run>/level_1_problem_16_sample_0_kernel.py
    nearest = list(Path(os.path.abspath(solution.path)).parents)[:2]
    named = [folder / AUTHOR_FILE for folder in reversed(nearest) if folder.name == solution.author]
    return next((path for path in named if os.path.lexists(path)), None)


def _read_author(path: Path, name: str) -> Author:
    """Read an `author.yaml`. Raises `OSError`, or `ValueError` with the error."""
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise ValueError("it is a link out of its folder")
    if not path.is_file():
        raise ValueError("it is not a regular file")
    if path.stat().st_size > MAX_AUTHOR_BYTES:
        raise ValueError(f"it has more than {MAX_AUTHOR_BYTES} bytes")
    held = read_yaml(path)
    if not isinstance(held, dict) or any(
        key not in AUTHOR_TEXTS or not isinstance(text, str | None) for key, text in held.items()
    ):
        raise ValueError(f"it must have texts under {', '.join(AUTHOR_TEXTS)} and nothing else")
    return author_of(name, held)


def _within(path: Path, given: Path) -> bool:
    return path.is_relative_to(given.resolve())


def _bad_author(name: str) -> str:
    return (
        f"{name!r:.120} can't be an author's name: use letters, digits and . _ @ + = - only, at most 100; "
        "rename the folder, or name another by --author"
    )


def _printable(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else ascii(text)

"""Read solution files into `Solution` values; their paths name the problem.

Trusted side. The files are untrusted: `source_files` reads them within limits, and names must be safe to print and to
use in a path. guides/commands.md says what a path means.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.catalog.authors import AUTHOR_TEXTS, Author, author_of
from harness.catalog.problems import PROBLEM_FILE, Catalog, CatalogError, wanted_names
from harness.catalog.source_files import RejectedFile, bounded_source, files_below, printable
from harness.core.problem import Solution
from harness.core.status import one_line
from harness.core.yaml_file import read_yaml, reason_of

LOCAL_AUTHOR = "local"
"""Author of a file whose path names no author."""

AUTHOR_FILE = "author.yaml"
MAX_AUTHOR_BYTES = 64 * 2**10
"""Largest `author.yaml` in bytes; real ones have a few lines."""

_AUTHOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=-]{0,99}")
_KERNELBENCH_FILE = re.compile(r"level_?(\d+)_problem_(\d+)_sample_(\d+)(?:_kernel)?\.py")
_SAMPLE = re.compile(r"(?:^|[_-])sample[_-]?(\d{1,9})(?=$|[_-])")
_IGNORED = re.compile(r"[._].*|conftest\.py")
_SHAPES = "<author>/level1/16_name.py or level_1_problem_16_sample_0_kernel.py"


@dataclass(frozen=True, slots=True)
class _Place:
    """Facts about a solution in its path."""

    problem_id: str | None
    author: str | None
    sample: int | None
    label: str


def find_solutions(
    paths: Sequence[Path],
    catalog: Catalog,
    problem_id: str | None = None,
    author: str | None = None,
    on_rejected: Callable[[RejectedFile], None] | None = None,
) -> list[Solution]:
    """Read all solutions in files and folders.

    A solution's label is its path below the outermost given folder that holds it, and the first part of the label is
    its author. If the path names no problem, the label is the file's name, and the author `local`. A file that is not
    UTF-8 is a solution with a `failure`.

    Args:
        paths: Python files, or folders of them.
        catalog: The problems.
        problem_id: Problem of files whose path names none, as `Catalog.locate` takes it. Files in folders that name
            another problem are skipped. Several, separated by commas, only select.
        author: Author of all solutions instead of the author in their paths.
        on_rejected: Called for each file that can't be evaluated, so that the others are: a link, a pipe, a file that
            is too large, a name that can't be printed, an unknown problem, a label or sample number that another
            solution has. If None, each is an error.

    Returns:
        The solutions, sorted by label.

    Raises:
        CatalogError: A path does not exist or is not a Python file, a given folder has no solution, or a file can't be
            evaluated and `on_rejected` is None. It lists all errors.
    """
    if not paths:
        raise CatalogError(["no solution given: pass files or folders of solutions"])
    if author is not None and not _AUTHOR.fullmatch(author):
        raise CatalogError([_bad_author(author)])
    wanted = tuple(catalog.locate(name).id for name in wanted_names(problem_id))
    errors: list[str] = []
    found: dict[str, Solution | RejectedFile] = {}
    for given in sorted(paths, key=lambda path: len(Path(os.path.abspath(path)).parts)):
        if (wrong := _wrong_argument(given)) is not None:
            errors.append(f"{printable(given)}: {wrong}")
            continue
        files, others = 0, 0
        for path in _files(given):
            files += 1
            if isinstance(path, RejectedFile):
                found.setdefault(os.path.abspath(path.path), path)
                continue
            place = _place(path, given, catalog)
            if given.is_dir() and wanted and place.problem_id and place.problem_id not in wanted:
                others += 1
                continue
            key = os.path.abspath(path)
            if key not in found:
                try:
                    found[key] = _solution(path, place, catalog, wanted, author)
                except ValueError as error:
                    found[key] = RejectedFile(path=path, reason=str(error))
        if files == others:
            what = f"none of its {others} solutions is for {' or '.join(wanted)}" if others else "no solution in it"
            errors.append(f"{printable(given)}: {what}; solutions are files like {_SHAPES}")
    solutions, clashing = _distinct([item for item in found.values() if isinstance(item, Solution)])
    rejected = [*(item for item in found.values() if isinstance(item, RejectedFile)), *clashing]
    if errors or (rejected and on_rejected is None):
        raise CatalogError([*errors, *map(str, rejected)])
    if on_rejected is not None:
        for file in rejected:
            on_rejected(file)
    return sorted(solutions, key=lambda solution: solution.label)


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
            findings.append(f"{printable(path)}: {one_line(reason_of(error))}")
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


def _wrong_argument(given: Path) -> str | None:
    """Return what is wrong with a given path, or None."""
    if given.is_dir():
        return None
    if not os.path.lexists(given):
        return "there is no such file or folder"
    return None if given.suffix == ".py" else "a solution is a .py file or a folder of them"


def _files(given: Path) -> Iterator[Path | RejectedFile]:
    """Yield the solution files of one argument."""
    return files_below(given, {".py"}, _IGNORED) if given.is_dir() else iter([given])


def label_of(path: Path, given: Path) -> str:
    """Return a solution's name in results, which begins with its author.

    It is the path below the given folder. If no folder of an author is on that path, or a file was given, the label
    begins with the folder that would be the author's.
    """
    absolute = Path(os.path.abspath(path)).parts
    below = len(absolute) - len(Path(os.path.abspath(given)).parts)
    least = 2 if _KERNELBENCH_FILE.fullmatch(path.name) else 3
    return "/".join(absolute[-max(below, least) :])


def _place(path: Path, given: Path, catalog: Catalog) -> _Place:
    """Return the facts in a path."""
    label = label_of(path, given)
    author, folder, name = label.partition("/")[0], Path(os.path.abspath(path)).parent.name, path.name
    if match := _KERNELBENCH_FILE.fullmatch(name):
        return _Place(f"level{int(match[1])}/{int(match[2])}", author, int(match[3]), label)
    match = PROBLEM_FILE.fullmatch(name)
    if match and (folder in catalog.levels or re.fullmatch(r"level\d+", folder)):
        sample = _SAMPLE.search(match[2])
        number = int(sample[1]) if sample else None
        return _Place(f"{folder}/{int(match[1])}", author, number, label)
    return _Place(None, None, None, name)


def _solution(path: Path, place: _Place, catalog: Catalog, wanted: Sequence[str], author: str | None) -> Solution:
    """Read one file. Raises `ValueError` with the error."""
    problem = place.problem_id or (wanted[0] if len(wanted) == 1 else None)
    if problem is None:
        which = "only one" if wanted else "the"
        raise ValueError(
            f"its path names no problem: use a path like {_SHAPES}, or name {which} problem by --problem, for example "
            "level1/16 or my_problem.py"
        )
    if wanted and problem not in wanted:
        raise ValueError(f"its path names problem {problem}, but --problem names {' or '.join(wanted)}")
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


def _distinct(solutions: Sequence[Solution]) -> tuple[list[Solution], list[RejectedFile]]:
    """Return solutions that the results can tell apart, and the others."""
    labels: dict[str, Solution] = {}
    samples: dict[tuple[str, str, int], Solution] = {}
    rejected: list[RejectedFile] = []
    for held in solutions:
        number = (held.problem_id, held.author, held.sample) if held.sample is not None else None
        if (other := labels.get(held.label)) is not None:
            what = f"it and {printable(other.path)} are both called {held.label}: rename one"
        elif number is not None and (other := samples.get(number)) is not None:
            same = f"sample {held.sample} of {held.problem_id} by {held.author}"
            what = f"it and {printable(other.path)} are both {same}: renumber one"
        else:
            labels[held.label] = held
            if number is not None:
                samples[number] = held
            continue
        rejected.append(RejectedFile(path=held.path, reason=what))
    return list(labels.values()), rejected


def _author_file(solution: Solution) -> Path | None:
    """Return the `author.yaml` in the folder with the author's name, or None."""
    # <author>/level1/16_naive.py, or <run>/level_1_problem_16_sample_0_kernel.py
    above = list(Path(os.path.abspath(solution.path)).parents)[: max(2, solution.label.count("/"))]
    named = [folder / AUTHOR_FILE for folder in reversed(above) if folder.name == solution.author]
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


def _bad_author(name: str) -> str:
    return (
        f"{name!r:.120} can't be an author's name: use letters, digits and . _ @ + = - only, at most 100; "
        "rename the folder, or name another by --author"
    )

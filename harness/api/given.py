"""Check the arguments of `Harness` calls: problems, solutions, names, workloads.

Trusted side; reads untrusted files. A wrong argument raises at once: later it would cost an evaluation, or write a
record that no command can read.
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Mapping
from pathlib import Path

from harness.catalog import CatalogError, UnreadableProblem, bounded_source
from harness.catalog.problems import problem_in_file
from harness.catalog.sizes import SizeError, check_size, constants
from harness.catalog.source_files import MAX_SOURCE_BYTES, other_encoding
from harness.core import python_ast
from harness.core.choices import PrecisionClass
from harness.core.problem import InputRules, Problem, Solution, Workload, digest_text
from harness.referee.small_sizes import SMALL, UNDERIVED

MAX_NAME_CHARS = 80
"""Characters of a solution's name that its file name keeps."""

MAX_SAMPLE = 2**63 - 1

_BYTE_ORDER_MARK = "\ufeff"
_ENDS_LIKE_A_SAMPLE = re.compile(r"_sample\d+\Z")


def given_problem(wanted: str | Path) -> Problem | None:
    """Return the problem in a source text or a file.

    Args:
        wanted: An id, the source of a problem (several lines), or the path of a problem file.

    Returns:
        The problem, or None if `wanted` may be an id.

    Raises:
        CatalogError: The file is no problem, or can't be read.
        TypeError: `wanted` has another type.
    """
    if not isinstance(wanted, str | Path):
        raise TypeError(f"`problem` must be an id, a source text, a Path or a Problem, not {type(wanted).__name__}")
    if isinstance(wanted, str) and ("\n" in wanted or "\r" in wanted):
        source = wanted.removeprefix(_BYTE_ORDER_MARK)
        digest = digest_text(source, "{}")
        return Problem(
            id=f"inline/{digest[:12]}",
            name="inline",
            path=Path(f"{digest[:12]}.py"),
            source=source,
            digest=digest,
            rules=InputRules(),
        )
    path = Path(wanted)
    if path.suffix != ".py" or not os.path.isfile(path):  # `os.path` accepts names that no file can have
        return None
    held = problem_in_file(path)
    if held.failure is not None:
        raise UnreadableProblem([held.failure.reason])
    return held


def given_solution(
    problem: Problem, source: str | Path, *, author: str, name: str | None, sample: int | None
) -> Solution:
    """Return the solution in a source text or a file.

    Args:
        problem: The problem that it solves.
        source: Its source text (`str`) or its file (`Path`).
        author: Name of its author.
        name: Its name in results; None means a digest of the text.
        sample: Its number among several samples (0 or more), or None.

    Raises:
        CatalogError: The file can't be read, or a value is invalid.
        TypeError: An argument has another type.
    """
    failure = None
    if isinstance(source, Path):
        try:
            text, failure = bounded_source(source)
        except ValueError as error:
            raise CatalogError([f"{source}: {error}"]) from error
    elif isinstance(source, str):
        text = source.removeprefix(_BYTE_ORDER_MARK)  # as reading a file does
        failure = other_encoding(text)
    else:
        raise TypeError(f"`source` must be a source text or a Path, not {type(source).__name__}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise CatalogError([f"a solution of {problem.id} has more than {MAX_SOURCE_BYTES} bytes: make it shorter"])
    for what, value in (("author", author), ("name", name)):
        if not isinstance(value, str) and (what, value) != ("name", None):
            raise TypeError(f"`{what}` must be a text, not {value!r:.60}")
    if not author or not author.isprintable():
        raise CatalogError([f"`author` {author!r:.120} is invalid: it is empty or not printable"])
    if "/" in author or author in (".", ".."):
        said = f"`author` {author!r:.120} is invalid: it would name another folder of solutions"
        raise CatalogError([said + (f"; use {author.replace('/', '_')!r:.120}" if author.strip("./") else "")])
    number_of_sample = _whole(sample)
    level, _, number = problem.id.partition("/")
    file = f"{number}_{_called(name, text, number_of_sample)}.py"
    return Solution(
        problem_id=problem.id,
        author=author,
        label=f"{author}/{level}/{file}",
        path=Path(file),
        source=text,
        sample=number_of_sample,
        failure=failure,
    )


def _called(name: str | None, text: str, sample: int | None) -> str:
    """Return a file name that differs for solutions that differ in name or sample.

    A run keeps one record and one log for each file name: two solutions with the same one would overwrite each other.
    """
    said = name or digest_text(text)[:12]
    called = re.sub(r"[^A-Za-z0-9._-]+", "_", said)[:MAX_NAME_CHARS]
    if called != said or (sample is None and _ENDS_LIKE_A_SAMPLE.search(said)):
        called += f"-{digest_text(said)[:8]}"
    return called if sample is None else f"{called}_sample{sample}"


def _whole(sample: int | None) -> int | None:
    """Convert a sample number to `int`: JSON has no integers of numpy and torch."""
    if sample is None:
        return None
    try:
        number = operator.index(sample)
    except TypeError:
        raise TypeError(f"`sample` must be an integer or None, not {sample!r:.60}") from None
    if not 0 <= number <= MAX_SAMPLE:
        raise CatalogError([f"`sample` must be from 0 to 2**63 - 1, not {number if number < 0 else 'more'}"])
    return number


def named_workload(problem: Problem, name: str) -> Workload:
    """Return the workload of a name; `small` may be derived.

    Args:
        problem: The problem.
        name: A workload that it declares, or `small`.

    Raises:
        CatalogError: It declares no such workload.
    """
    found = problem.workloads.get(name)
    if found is None and name == SMALL:
        return UNDERIVED
    if found is None:
        known = ", ".join(problem.workloads)
        raise CatalogError([f"{problem.id} declares no workload {name!r:.60}; it has {known}"])
    return found


def given_workload(problem: Problem, workload: Workload) -> Workload:
    """Check a workload of the caller and return it.

    Args:
        problem: The problem that it is for.
        workload: Its name, sizes and precision class.

    Raises:
        CatalogError: The problem has no such sizes, a value can't be sent to a referee, or the problem declares other
            sizes by this name.
    """
    name, precision, sizes = _parts(workload)
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise CatalogError([f"{name!r:.60} is no name for a workload: it must be a text, not blank, and printable"])
    if not isinstance(precision, PrecisionClass | None):
        known = ", ".join(f"PrecisionClass.{item.name}" for item in PrecisionClass)
        raise _unusable(workload, f"precision {precision!r:.60} must be None or one of {known}")
    if not isinstance(sizes, Mapping):
        raise _unusable(workload, f"{sizes!r:.60}; {_SIZES}")
    declared = problem.workloads.get(name)
    if declared is not None and declared != workload:
        raise _unusable(
            workload, f"{problem.id} declares other sizes or another precision by this name; use another name"
        )
    try:
        held = constants(python_ast.parse(problem.source)) if declared is None else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        held = None  # the evaluation reports the broken problem
    for size, value in sizes.items():
        try:
            if held is not None:
                check_size(size, value, held)
            json.dumps({size: value}, allow_nan=False)
        except (SizeError, TypeError, ValueError) as error:
            raise _unusable(workload, f"{error}; {_SIZES}") from error
    return workload


def _parts(workload: Workload) -> tuple[object, object, object]:
    """Return name, precision and sizes as unchecked objects."""
    return workload.name, workload.precision, workload.sizes


_SIZES = "sizes must map names of constants in the problem file to numbers, booleans or texts"


def _unusable(workload: Workload, why: str) -> CatalogError:
    return CatalogError([f"workload {workload.name!r} is invalid: {why}"])

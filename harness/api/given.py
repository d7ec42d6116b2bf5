"""What callers of `Harness` hand over, checked before anything starts: problems, solutions and their names, sizes.

Outside layer; trusted side, reading untrusted files. Whatever is wrong here is the call's fault and is raised at once:
later it would cost an evaluation, or leave a record that no command reads.
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Mapping
from pathlib import Path

from harness.catalog import CatalogError, UnreadableProblem, bounded_source, load_problems
from harness.catalog.problems import PROBLEM_FILE
from harness.catalog.sizes import SizeError, check_size, constants
from harness.catalog.solutions import MAX_SOURCE_BYTES
from harness.core import python_ast
from harness.core.choices import PrecisionClass
from harness.core.problem import InputRules, Problem, Solution, Workload, digest_text

MAX_NAME_CHARS = 80
"""So much of a solution's name is seen in its file's."""

MAX_SAMPLE = 2**63 - 1

_BYTE_ORDER_MARK = "\ufeff"
_ENDS_LIKE_A_SAMPLE = re.compile(r"_sample\d+\Z")


def given_problem(wanted: str | Path) -> Problem | None:
    """The problem in the text or the file `wanted`; None where it may be an id. Raises `CatalogError`, and `TypeError`
    for what is of another kind than `Harness.submit` says.
    """
    if not isinstance(wanted, str | Path):
        raise TypeError(f"a problem is an id, a text, the Path of a file or a Problem, not {type(wanted).__name__}")
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
    if path.suffix != ".py" or not os.path.isfile(path):  # also where no file can have that name
        return None
    if PROBLEM_FILE.fullmatch(path.name) is None:
        raise CatalogError([f"{path}: a problem's file is called like 16_matmul.py; or hand over its text"])
    folder = path.parent.resolve()
    held = next(held for held in load_problems(folder).known.values() if held.path == folder / path.name)
    if held.failure is not None:
        raise UnreadableProblem([held.failure.reason])
    return held


def given_solution(
    problem: Problem, source: str | Path, *, author: str, name: str | None, sample: int | None
) -> Solution:
    """The solution in the text or the file `source`. Raises `CatalogError`, and `TypeError` for what is of another
    kind than `Harness.submit` says.
    """
    failure = None
    if isinstance(source, Path):
        try:
            text, failure = bounded_source(source)
        except ValueError as error:
            raise CatalogError([f"{source}: {error}"]) from error
    elif isinstance(source, str):
        text = source.removeprefix(_BYTE_ORDER_MARK)  # as of a file
    else:
        raise TypeError(f"a solution is a text, or the Path of a file, not {type(source).__name__}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise CatalogError([f"a solution of {problem.id} has more than {MAX_SOURCE_BYTES} bytes"])
    for what, value in (("author", author), ("name", name)):
        if not isinstance(value, str) and (what, value) != ("name", None):
            raise TypeError(f"`{what}` is a text, not {value!r:.60}")
    if not author or not author.isprintable():
        raise CatalogError([f"{author!r:.120} can't be an author: it is empty, or can't be printed"])
    if "/" in author or author in (".", ".."):
        said = f"{author!r:.120} can't be an author: it would be another folder of solutions"
        raise CatalogError([said + (f"; {author.replace('/', '_')!r:.120} can" if author.strip("./") else "")])
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
    """What its file is called: where two differ in name or sample, these do. A run holds one record and one log of
    each, and who shares them loses them.
    """
    said = name or digest_text(text)[:12]
    called = re.sub(r"[^A-Za-z0-9._-]+", "_", said)[:MAX_NAME_CHARS]
    if called != said or (sample is None and _ENDS_LIKE_A_SAMPLE.search(said)):
        called += f"-{digest_text(said)[:8]}"
    return called if sample is None else f"{called}_sample{sample}"


def _whole(sample: int | None) -> int | None:
    """A plain number, which a record can hold, of any whole one: numpy's and torch's are not JSON."""
    if sample is None:
        return None
    try:
        number = operator.index(sample)
    except TypeError:
        raise TypeError(f"`sample` is a whole number or None, not {sample!r:.60}") from None
    if not 0 <= number <= MAX_SAMPLE:
        raise CatalogError([f"a sample's number is from 0 to 2**63 - 1, not {number if number < 0 else 'more'}"])
    return number


def given_workload(problem: Problem, workload: Workload) -> Workload:
    """`workload`, if the problem has such sizes, a referee can be told of them, and their name means no others. Raises
    `CatalogError`.
    """
    name, precision, sizes = _parts(workload)
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise CatalogError([f"{name!r:.60} can't be a workload's name: it is no text, is blank, or can't be printed"])
    if not isinstance(precision, PrecisionClass | None):
        known = ", ".join(f"PrecisionClass.{item.name}" for item in PrecisionClass)
        raise _unusable(workload, f"precision {precision!r:.60}; it is None or one of {known}")
    if not isinstance(sizes, Mapping):
        raise _unusable(workload, f"{sizes!r:.60}; {_SIZES}")
    declared = problem.workloads.get(name)
    if declared is not None and declared != workload:
        raise _unusable(workload, f"{problem.id} means other sizes by that name, or another precision; take another")
    try:
        held = constants(python_ast.parse(problem.source)) if declared is None else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        held = None  # a verdict on the problem is to come
    for size, value in sizes.items():
        try:
            if held is not None:
                check_size(size, value, held)
            json.dumps({size: value}, allow_nan=False)
        except (SizeError, TypeError, ValueError) as error:
            raise _unusable(workload, f"{error}; {_SIZES}") from error
    return workload


def _parts(workload: Workload) -> tuple[object, object, object]:
    """Its name, class and sizes: nobody has looked at what a caller made it of."""
    return workload.name, workload.precision, workload.sizes


_SIZES = "sizes are plain numbers, truth values or texts, by the names of the file's constants"


def _unusable(workload: Workload, why: str) -> CatalogError:
    return CatalogError([f"workload {workload.name!r} can't be used: {why}"])

"""What callers of `Harness` hand over, checked before anything starts: a solution's text or file and its name, sizes.

Outside layer; trusted side, reading untrusted files. Whatever is wrong here is the call's fault and is raised at once:
later it would cost an evaluation, or leave a record that no command reads.
"""

from __future__ import annotations

import json
import operator
import re
from pathlib import Path

from harness.catalog import CatalogError, bounded_source
from harness.catalog.solutions import MAX_SOURCE_BYTES
from harness.model import Problem, Solution, Workload, digest_text


def given_solution(
    problem: Problem, source: str | Path, *, author: str, name: str | None, sample: int | None
) -> Solution:
    """The solution in the text or the file `source`. Raises `CatalogError`, and `TypeError` for what is of another
    kind than `Harness.submit` says."""
    failure = None
    if isinstance(source, Path):
        try:
            text, failure = bounded_source(source)
        except ValueError as error:
            raise CatalogError([f"{source}: {error}"]) from error
    elif isinstance(source, str):
        text = source
    else:
        raise TypeError(f"a solution is a text, or the Path of a file, not {type(source).__name__}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise CatalogError([f"a solution of {problem.id} has more than {MAX_SOURCE_BYTES} bytes"])
    for what, value in (("author", author), ("name", name)):
        if not isinstance(value, str) and (what, value) != ("name", None):
            raise TypeError(f"`{what}` is a text, not {value!r:.60}")
    if not author or not author.isprintable():
        raise CatalogError([f"{author!r:.120} can't be an author: it is empty, or can't be printed"])
    level, _, number = problem.id.partition("/")
    file = f"{number}_{re.sub(r'[^A-Za-z0-9._-]+', '_', name or digest_text(text)[:12])[:80]}.py"
    return Solution(
        problem_id=problem.id,
        author=author,
        label=f"{author}/{level}/{file}",
        path=Path(file),
        source=text,
        sample=_whole(sample),
        failure=failure,
    )


def _whole(sample: int | None) -> int | None:
    """A plain number, which a record can hold, of any whole one: numpy's and torch's are not JSON."""
    if sample is None:
        return None
    try:
        return operator.index(sample)
    except TypeError:
        raise TypeError(f"`sample` is a whole number or None, not {sample!r:.60}") from None


def portable(workload: Workload) -> Workload:
    """`workload`, if a referee can be told of it. Raises `CatalogError`."""
    try:
        json.dumps(dict(workload.sizes), allow_nan=False)
    except (TypeError, ValueError) as error:
        why = f"{error}; sizes are plain numbers, truth values or texts"
        raise CatalogError([f"workload {workload.name!r} can't be used: {why}"]) from error
    return workload

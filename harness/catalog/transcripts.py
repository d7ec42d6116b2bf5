"""Extract solutions from raw model responses and write them as files.

Trusted side. Responses are untrusted: they are parsed, never executed, and have no influence on paths.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.catalog import Catalog, CatalogError, solution_path
from harness.catalog.extract import Extraction, extract
from harness.core.atomic_file import replace_whole
from harness.core.problem import Problem
from harness.core.yaml_file import NotText, as_text

MAX_RESPONSE_BYTES = 64 * 2**20
"""Largest response in bytes; real ones have some hundred kilobytes, with reasoning."""

MAX_SAMPLES = 100_000

STDIN = Path("-")

_KERNELBENCH_NAME = re.compile(r"level_?(\d+)_problem_(\d+)(?:_sample_(\d+))?(?:\D.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Result for one response.

    Attributes:
        response: The response's file.
        path: The solution's file; None if the response has no solution.
        written: False if the file had this content before.
        extraction: The solution and how it was found.
    """

    response: Path
    path: Path | None
    written: bool
    extraction: Extraction

    def to_json(self) -> dict[str, Any]:
        return {
            "response": str(self.response),
            "path": None if self.path is None else str(self.path),
            "written": self.written,
            "reason": self.extraction.reason,
        }


@dataclass(frozen=True, slots=True)
class _Response:
    path: Path
    problem: Problem
    sample: int | None
    text: str
    fault: str
    """Why the response is not UTF-8; empty if it is."""


def place(
    responses: Sequence[Path], catalog: Catalog, *, problem: str | None, author: str, out: Path, force: bool
) -> list[Placed]:
    """Extract the solution of each response and write it below `out`.

    The file is `<author>/level1/16_<problem's name>.py`.

    If that file has other content, or several responses answer one problem, the files get numbers (`…_sample0.py`,
    `…_sample1.py`), beginning with the first free one. All responses are read before anything is written.

    Args:
        responses: Files with responses; `STDIN` reads standard input.
        catalog: The problems.
        problem: Problem of all responses; None takes it from KernelBench's file names.
        author: Author of the solutions.
        out: The solutions folder.
        force: Overwrite files with other content instead of numbering.

    Returns:
        One result for each response.

    Raises:
        CatalogError: Responses can't be read, or their problem is unknown. It lists all errors.
        OSError: The folder can't be written.
    """
    held = _read(responses, catalog, problem)
    responses_of = Counter(item.problem.id for item in held)
    taken: set[Path] = set()
    placed = []
    for item in held:
        found = extract(item.text)
        if found.source is None:
            told = replace(found, reason=f"{item.fault}; {found.reason}") if item.fault else found
            placed.append(Placed(response=item.path, path=None, written=False, extraction=told))
            continue
        numbered = responses_of[item.problem.id] > 1
        for path in _candidates(out, author, item, numbered=numbered):
            if path not in taken and (written := _write(path, found.source, force=force)) is not None:
                taken.add(path)
                placed.append(Placed(response=item.path, path=path, written=written, extraction=found))
                break
    return placed


def _read(responses: Sequence[Path], catalog: Catalog, problem: str | None) -> list[_Response]:
    findings: list[str] = []
    held = []
    wanted = catalog.locate(problem) if problem is not None else None
    for path in responses:
        match = _KERNELBENCH_NAME.fullmatch(path.name)
        try:
            if path != STDIN:
                path.stat()  # report a mistyped name before any other error
                if path.is_dir():
                    findings.append(f"{path}: is a folder: pass the files in it, such as {path}/*.txt")
                    continue
            named = catalog.locate(f"level{match[1]}/{match[2]}") if match and wanted is None else wanted
            if named is None:
                findings.append(f"{path}: its name contains no problem: name one by --problem level1/16")
                continue
            sample = int(match[3]) if match and match[3] else None
            held.append(_Response(path, named, sample, *_text(path)))
        except CatalogError as error:
            findings.append(f"{path}: {error}")
        except OSError as error:
            findings.append(f"{path}: can't be read: {error.strerror or error}")
    if findings:
        raise CatalogError(findings)
    return held


def _text(path: Path) -> tuple[str, str]:
    """Return the response and its first error of encoding.

    Wrong bytes are replaced, because the solution may be intact.
    """
    if path == STDIN:
        data = sys.stdin.buffer.read(MAX_RESPONSE_BYTES + 1)
    else:
        with path.open("rb") as stream:
            data = stream.read(MAX_RESPONSE_BYTES + 1)
    if len(data) > MAX_RESPONSE_BYTES:
        raise CatalogError([f"larger than the limit of {MAX_RESPONSE_BYTES} bytes"])
    try:
        as_text(data)
    except NotText as error:
        return data.decode("utf-8", "replace"), str(error)
    return data.decode("utf-8"), ""


def _candidates(out: Path, author: str, item: _Response, *, numbered: bool) -> Iterator[Path]:
    """Yield possible paths of the solution, the best first."""
    if item.sample is not None:
        yield solution_path(out, author, item.problem.id, name=item.problem.name, sample=item.sample)
    elif not numbered:
        yield solution_path(out, author, item.problem.id, name=item.problem.name)
    for sample in range(MAX_SAMPLES):
        yield solution_path(out, author, item.problem.id, name=item.problem.name, sample=sample)


def _write(path: Path, source: str, *, force: bool) -> bool | None:
    """Write a file unless it has other content.

    True: written. False: it had this content. None: it has other content, which is kept.
    """
    if path.exists() and path.read_bytes() == source.encode("utf-8", "surrogatepass"):
        return False
    if path.exists() and not force:
        return None
    # Atomically: on a full disk, a partial solution would be evaluated like a complete one.
    replace_whole(path, source.encode("utf-8", "surrogatepass"))
    return True

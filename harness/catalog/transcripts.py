"""Raw model responses in, solution files out: where each extracted solution goes, without overwriting another.

Outside layer; trusted side. Imports `extract` and `catalog`. Responses are untrusted text: they are parsed, never
executed, and decide nothing about where they are written.
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
"""Largest response read; real ones have some hundred kilobytes, reasoning included."""

MAX_SAMPLES = 100_000

STDIN = Path("-")

_KERNELBENCH_NAME = re.compile(r"level_?(\d+)_problem_(\d+)(?:_sample_(\d+))?(?:\D.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What became of one response. `path` is None where it holds no solution; `written` is False where the file held
    exactly this already.
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
    """Why it is not the text that it should be; empty where it is."""


def place(
    responses: Sequence[Path], catalog: Catalog, *, problem: str | None, author: str, out: Path, force: bool
) -> list[Placed]:
    """Extract each response and write its solution below `out`, as `<author>/level1/16_<problem's name>.py`.

    Where that file holds something else, or several responses answer one problem, the files are numbered
    (`…_sample0.py`, `…_sample1.py`), the first free number first; `force` overwrites instead. `problem` may be None
    where KernelBench's file names say it. Everything is read before anything is written. Raises `CatalogError` that
    lists all that is wrong with the arguments, `OSError` where the folder can't be written.
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
                path.stat()  # a name mistyped is told as such, whatever else is wrong with it
                if path.is_dir():
                    findings.append(f"{path}: a folder: name the files in it, as {path}/*.txt")
                    continue
            named = catalog.locate(f"level{match[1]}/{match[2]}") if match and wanted is None else wanted
            if named is None:
                findings.append(f"{path}: its name says no problem: give one by --problem level1/16")
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
    """The response, and where it is not UTF-8; such bytes are replaced, since a solution may stand beside them."""
    if path == STDIN:
        data = sys.stdin.buffer.read(MAX_RESPONSE_BYTES + 1)
    else:
        with path.open("rb") as stream:
            data = stream.read(MAX_RESPONSE_BYTES + 1)
    if len(data) > MAX_RESPONSE_BYTES:
        raise CatalogError([f"larger than {MAX_RESPONSE_BYTES} bytes"])
    try:
        as_text(data)
    except NotText as error:
        return data.decode("utf-8", "replace"), str(error)
    return data.decode("utf-8"), ""


def _candidates(out: Path, author: str, item: _Response, *, numbered: bool) -> Iterator[Path]:
    """Where it may go, best first."""
    if item.sample is not None:
        yield solution_path(out, author, item.problem.id, name=item.problem.name, sample=item.sample)
    elif not numbered:
        yield solution_path(out, author, item.problem.id, name=item.problem.name)
    for sample in range(MAX_SAMPLES):
        yield solution_path(out, author, item.problem.id, name=item.problem.name, sample=sample)


def _write(path: Path, source: str, *, force: bool) -> bool | None:
    """True: written. False: it held exactly this. None: it holds something else, which is kept."""
    if path.exists() and path.read_bytes() == source.encode("utf-8", "surrogatepass"):
        return False
    if path.exists() and not force:
        return None
    # Whole or not at all: half a solution, on a full disk, would be judged like a whole one.
    replace_whole(path, source.encode("utf-8", "surrogatepass"))
    return True

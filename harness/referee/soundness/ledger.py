"""Keep lint reports in a file, one JSON line per problem.

An interrupted lint resumes from it.

Files of several machines or GPUs are joined by concatenation. Of two lines on the same problem (by digest), workload
and device, the later one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from harness.referee.soundness.problem_report import ProblemReport

FORMAT = 1
"""Version of a line."""

Key = tuple[str, str, str]
"""Digest of the problem with its declarations, workload, device."""


class LedgerError(ValueError):
    """The file is not a file of lint reports."""


def key_of(report: ProblemReport) -> Key:
    """Return the key by which the ledger identifies a report."""
    return report.digest, report.workload, report.device


def read_ledger(path: Path) -> Mapping[Key, ProblemReport]:
    """Read all reports of a file.

    Args:
        path: The file. A last line cut off by the end of its writer is skipped.

    Returns:
        Reports by key; empty if the file does not exist.

    Raises:
        LedgerError: A line is not a report; the message has its number.
        OSError: The file can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise LedgerError(f"{path}: the file is not UTF-8") from error
    found: dict[Key, ProblemReport] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            held = json.loads(line)
            if held["format"] > FORMAT:
                raise LedgerError(f"{path}, line {number}: format {held['format']} is of a newer harness")
            report = ProblemReport.from_json(held)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, LedgerError):
                raise
            if number == len(lines):
                break  # no newline follows, so its writer was interrupted
            raise LedgerError(f"{path}, line {number}: not a report of `harness problems lint`") from error
        found.pop(key_of(report), None)
        found[key_of(report)] = report
    return found


def append_to_ledger(path: Path, report: ProblemReport) -> None:
    """Append one report as a line, and flush it to disk.

    Args:
        path: The file; missing folders are created.
        report: The report.

    Raises:
        OSError: The file can't be written.
    """
    line = json.dumps({"format": FORMAT, **report.to_json()}, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                _drop_cut_line(file.fileno())
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _drop_cut_line(descriptor: int) -> None:
    """Shorten a file to its last complete line."""
    size = os.fstat(descriptor).st_size
    whole = os.pread(descriptor, size, 0).rfind(b"\n") + 1
    os.ftruncate(descriptor, whole)

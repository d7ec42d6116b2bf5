"""Walk folders of untrusted files and read the files, within limits.

Trusted side. A folder may hold anything: links, pipes, huge files, names that can't be printed, thousands of levels.
Each of these is a `RejectedFile`, and the walk goes on. No link is followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core import python_ast
from harness.core.status import Failure, Status
from harness.core.yaml_file import NotText, as_text

MAX_SOURCE_BYTES = 4 * 2**20
"""Largest source file in bytes; real ones have a few kilobytes."""

MAX_PATH_CHARS = 400
"""Longest path below the given folder in characters: it becomes a name in results. Systems end at about 4,000."""

A_LINK = "it is a link, not a plain file: pass its target instead, or copy the target"

_NO_NAME = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedFile:
    """A file or folder that is not evaluated.

    Attributes:
        path: Its path.
        reason: What is wrong with it, and what to do.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        """Return one printable line."""
        return f"{printable(self.path)}: {self.reason}"

    def to_json(self) -> dict[str, str]:
        return {"path": printable(self.path), "reason": self.reason}


def files_below(
    folder: Path, suffixes: Collection[str], ignored: re.Pattern[str] = _NO_NAME
) -> Iterator[Path | RejectedFile]:
    """Yield the files below a folder, and what in it can't be one.

    Args:
        folder: The folder; it may be a link itself.
        suffixes: Suffixes of files to yield, such as `.py`; other files are ignored.
        ignored: Names of files and folders that are ignored.

    Returns:
        Regular files in the order of their paths, among them rejected links, pipes, folders that can't be read, and
        paths of more than `MAX_PATH_CHARS` characters. Never raises.
    """
    longest = len(str(folder)) + MAX_PATH_CHARS
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(here) as opened:
                entries = sorted(opened, key=lambda entry: entry.name)
        except OSError as error:
            yield RejectedFile(path=here, reason=f"can't be read: {error.strerror}")
            continue
        folders: list[Path] = []
        for entry in entries:
            if ignored.fullmatch(entry.name):
                continue
            path = here / entry.name
            is_source = path.suffix in suffixes
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.is_symlink():
                    if is_source or os.path.isdir(path):
                        yield RejectedFile(path=path, reason=A_LINK)
                elif not (is_folder or is_source):
                    continue
                elif len(str(path)) > longest:
                    yield RejectedFile(path=path, reason=f"its path has more than {MAX_PATH_CHARS} characters: move it")
                elif is_folder:
                    folders.append(path)
                else:
                    regular = entry.is_file(follow_symlinks=False)
                    yield path if regular else RejectedFile(path=path, reason="it is not a regular file")
            except OSError as error:
                yield RejectedFile(path=path, reason=f"can't be read: {error.strerror}")
        pending += reversed(folders)


def read_bounded(path: Path, limit_bytes: int = MAX_SOURCE_BYTES, *, follow_link: bool = True) -> bytes:
    """Read a regular file of limited size; never waits for a pipe.

    Raises:
        ValueError: The file can't be read, is not a regular file, is larger than the limit, or is a link that must not
            be followed.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_link else os.O_NOFOLLOW)
    try:
        with open(os.open(path, flags), "rb") as stream:
            facts = os.fstat(stream.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise ValueError("it is not a regular file")
            data = stream.read(limit_bytes + 1)
            if len(data) > limit_bytes:
                raise ValueError(f"it has {max(facts.st_size, len(data))} bytes, more than {limit_bytes}")
            return data
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from error


def bounded_source(path: Path, *, follow_link: bool = True) -> tuple[str, Failure | None]:
    """Read a Python file.

    Returns:
        The source, and None. If the file is not UTF-8 or declares another encoding: a text that is unique to its bytes,
        and the failure.

    Raises:
        ValueError: As `read_bounded`.
    """
    data = read_bounded(path, follow_link=follow_link)
    try:
        source = as_text(data)
    except NotText as error:
        evidence = {"phase": "read", "line": error.line, "byte": error.byte}
        reason = f"{error}: save the file as UTF-8"
        failure = Failure(status=Status.syntax_error, reason=reason, evidence=evidence)
        return data.decode("utf-8", "surrogateescape"), failure
    return source, other_encoding(source)


def other_encoding(source: str) -> Failure | None:
    """Return the failure if a source declares another encoding than UTF-8.

    Python would decode the file by that declaration, so that another program ran than the one that was read.
    """
    declared = python_ast.declared_encoding(source)
    if declared is None or python_ast.is_utf8(declared.name):
        return None
    reason = (
        f"line {declared.line}: the file declares the encoding {declared.name[:40]}: save it as UTF-8 and remove the "
        "declaration"
    )
    return Failure(status=Status.syntax_error, reason=reason, evidence={"phase": "read", "line": declared.line})


def printable(path: Path) -> str:
    """Return the path as text that can be printed and encoded."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def listed(rejected: Sequence[RejectedFile], most: int) -> list[str]:
    """Return lines for `most` of the rejected files, and the number of the others."""
    more = [f"and {len(rejected) - most} more"] if len(rejected) > most else []
    return [*map(str, rejected[:most]), *more]

"""Find the source of a record's solution by its digest.

An edited file has another digest, so it is never used instead.

Trusted side. Reads regular files below given folders and follows no name that a submission chose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.catalog.source_files import files_below, read_bounded
from harness.core.problem import digest_text
from harness.core.record import Record

MAX_FILES = 100_000


class SourceFinder:
    """Index of the Python files in `roots` (files or folders) by digest.

    Missing ones are ignored.

    The first lookup reads all files, each once.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._found: dict[str, Path] | None = None

    def source_of(self, record: Record) -> str | None:
        """Return the source with the record's digest, or None if no file has it."""
        path = self.path_of(record)
        source = _read(path) if path is not None else None
        return source if source is not None and digest_text(source) == record.solution_digest else None

    def path_of(self, record: Record) -> Path | None:
        """Return the file that had the record's digest when it was indexed, or None."""
        if not record.solution_digest:
            return None
        if self._found is None:
            self._found = self._index()
        return self._found.get(record.solution_digest)

    def _index(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for number, path in enumerate(self._files()):
            if number >= MAX_FILES:
                break
            source = _read(path)
            if source is not None:
                found.setdefault(digest_text(source), path)
        return found

    def _files(self) -> Iterator[Path]:
        for root in self._roots:
            if root.is_file():
                yield root
            elif root.is_dir():
                below = files_below(root, {".py"}, re.compile(r"\..*"))
                yield from (path for path in below if isinstance(path, Path))


def _read(path: Path) -> str | None:
    try:
        return read_bounded(path, follow_link=False).decode("utf-8-sig")
    except ValueError:  # also `UnicodeDecodeError`
        return None

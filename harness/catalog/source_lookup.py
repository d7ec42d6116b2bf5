"""Find the source of a record's solution by its digest.

An edited file has another digest, so it is never used instead.

Trusted side. Reads regular files below given folders and follows no name that a submission chose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.core.problem import digest_text
from harness.core.record import Record

MAX_SOURCE_BYTES = 4 * 2**20
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
            for folder, folders, names in os.walk(root):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                yield from (Path(folder) / name for name in sorted(names) if name.endswith(".py"))


def _read(path: Path) -> str | None:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_SOURCE_BYTES:
            return None
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None

"""Compare revisions of a git repository and read their files, without a checkout.

Trusted side. Files come from git's objects, so the working tree, its filters and its links have no influence. Names
of files in a branch are untrusted.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.core.config import ConfigError

REGULAR = frozenset({"100644", "100755"})
"""Git's modes of regular files; links and submodules have others."""

MAX_BLOB_BYTES = 256 * 2**20
"""Largest file in bytes that `Repository.write` writes."""


MAX_PARTS = 100
"""Most parts of a path that `Repository.write` writes: making and removing folders recurses."""

_UNUSABLE_NAME = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}
"""Errors of a file system that can't have a file of this name or path; git's trees have no such limits."""


class RevisionError(ConfigError):
    """The repository or a revision can't be read. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that differs between two revisions.

    `kind` is `added`, `modified` or `deleted`.
    """

    path: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file of a revision. `size_bytes` is None if it is not a regular file."""

    path: str
    mode: str
    oid: str
    size_bytes: int | None


class Repository:
    """The git repository that contains a folder.

    All methods raise `RevisionError` if git fails.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.root = Path(self._text("rev-parse", "--show-toplevel"))

    def commit(self, name: str) -> str:
        """Return the full id of the commit with this name."""
        try:
            return self._text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except RevisionError:
            raise RevisionError(
                f"{name!r:.200} is not a commit of this repository; if CI fetched only the newest commit, fetch all "
                "(actions/checkout: fetch-depth: 0; GitLab: GIT_DEPTH: 0)"
            ) from None

    def merge_base(self, one: str, other: str) -> str:
        """Return the newest common ancestor of two commits."""
        try:
            return self._text("merge-base", one, other)
        except RevisionError:
            raise RevisionError(
                f"{one[:12]} and {other[:12]} have no common ancestor in this clone; fetch the whole history"
            ) from None

    def changes(self, before: str, after: str) -> list[FileChange]:
        """Return all files that differ; a renamed file is one deleted and one added."""
        fields = self._bytes("diff", "--name-status", "-z", "--no-renames", "--no-ext-diff", before, after).split(b"\0")
        kinds = {b"A": "added", b"M": "modified", b"T": "modified", b"D": "deleted"}
        pairs = zip(fields[:-1:2], fields[1::2], strict=True)
        return [FileChange(path=os.fsdecode(path), kind=kinds.get(kind[:1], "modified")) for kind, path in pairs]

    def entries(self, commit: str, paths: Sequence[str]) -> list[TreeEntry]:
        """Return the files of a revision at and below these paths.

        Paths that do not exist there are ignored.
        """
        found = []
        for line in self._bytes("ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", *paths).split(b"\0"):
            if line:
                head, _, name = line.partition(b"\t")
                mode, _, oid, size = head.decode().split()
                length = int(size) if mode in REGULAR and size.isdigit() else None
                found.append(TreeEntry(path=os.fsdecode(name), mode=mode, oid=oid, size_bytes=length))
        return found

    def read(self, commit: str, path: str) -> bytes | None:
        """Return a regular file's content in a revision; None if there is no such file."""
        held = [entry for entry in self.entries(commit, [path]) if entry.path == path and entry.size_bytes is not None]
        return next((data for _, data in self._blobs(held)), None)

    def write(self, entries: Sequence[TreeEntry], into: Path) -> list[str]:
        """Write regular files below `into`, under their paths.

        Returns:
            Paths of entries that were not written: not a regular file, larger than `MAX_BLOB_BYTES`, a path that leads
            out of `into`, has more than `MAX_PARTS` parts, or that the file system can't have.
        """
        plain: list[TreeEntry] = []
        odd: list[TreeEntry] = []
        for entry in entries:
            safe = _is_safe(entry.path) and entry.size_bytes is not None and entry.size_bytes <= MAX_BLOB_BYTES
            (plain if safe else odd).append(entry)
        for entry, data in self._blobs(plain):
            path = into / entry.path
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            except OSError as error:
                if error.errno not in _UNUSABLE_NAME:
                    raise
                odd.append(entry)
        return [entry.path for entry in odd]

    def differs_from(self, commit: str, folder: Path) -> bool:
        """Tell whether the working tree below `folder` differs from the revision."""
        inside = folder.resolve().relative_to(self.root.resolve()).as_posix()
        return bool(self._bytes("diff", "--name-only", "-z", "--no-ext-diff", commit, "--", inside))

    def _blobs(self, entries: Sequence[TreeEntry]) -> Iterator[tuple[TreeEntry, bytes]]:
        if not entries:
            return
        # One request at a time: each answer is read completely before the next request, so the pipes can't deadlock.
        command = self._command("cat-file", "--batch")
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for entry in entries:
                process.stdin.write(entry.oid.encode() + b"\n")
                process.stdin.flush()
                head = process.stdout.readline().split()
                if len(head) != 3:
                    raise RevisionError(f"{entry.path}: git can't read it; check that the clone is complete")
                data = process.stdout.read(int(head[2]))
                process.stdout.read(1)
                yield entry, data
            process.stdin.close()

    def _command(self, *arguments: str) -> list[str]:
        return ["git", "-C", str(self.root), "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments]

    def _text(self, *arguments: str) -> str:
        return os.fsdecode(self._bytes(*arguments)).rstrip("\n")

    def _bytes(self, *arguments: str) -> bytes:
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                self._command(*arguments), capture_output=True, check=False, stdin=subprocess.DEVNULL, env=environment
            )
        except OSError as error:
            raise RevisionError(f"git does not run: {error.strerror}; install it") from error
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split()) or f"exit code {done.returncode}"
            raise RevisionError(f"git {arguments[0]} in {self.root}: {said}")
        return done.stdout


def _is_safe(path: str) -> bool:
    """Tell whether a path stays inside its folder and is not too deep.

    Git trees can be forged.
    """
    parts = path.split("/")
    return (
        len(parts) <= MAX_PARTS
        and not PurePosixPath(path).is_absolute()
        and not any(part in ("", ".", "..", ".git") for part in parts)
    )

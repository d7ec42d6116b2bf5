"""Reading two revisions of a git repository: what changed between them, and files of either, without a checkout.

Outside layer; trusted side. Files are taken from git's objects, so that neither the working tree, nor its filters and
links, nor anything that was not committed has a say. Names of files in a branch are untrusted.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.core.config import ConfigError

REGULAR = frozenset({"100644", "100755"})
"""Modes of plain files; links and submodules have others."""

MAX_BLOB_BYTES = 256 * 2**20
"""Larger files of the base (results) are left out, and said to be."""


class RevisionError(ConfigError):
    """The repository or a revision can't be read as asked. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that differs between two revisions; `kind` is `added`, `modified` or `deleted`."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file of a revision. `size_bytes` is None for what is no plain file."""

    path: str
    mode: str
    oid: str
    size_bytes: int | None


class Repository:
    """The git repository around a folder. Raises `RevisionError` where there is none."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.root = Path(self._text("rev-parse", "--show-toplevel"))

    def commit(self, name: str) -> str:
        """The full id of the commit that a name stands for."""
        try:
            return self._text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except RevisionError:
            raise RevisionError(
                f"{name!r:.200} is no commit of this repository; where CI fetched only the newest one, fetch them all "
                "(actions/checkout: fetch-depth: 0; GitLab: GIT_DEPTH: 0)"
            ) from None

    def merge_base(self, one: str, other: str) -> str:
        """The commit at which a branch left another."""
        try:
            return self._text("merge-base", one, other)
        except RevisionError:
            raise RevisionError(
                f"{one[:12]} and {other[:12]} have no common ancestor here; fetch the whole history"
            ) from None

    def changes(self, before: str, after: str) -> list[FileChange]:
        """Every file that differs; a renamed one is one deleted and one added."""
        fields = self._bytes("diff", "--name-status", "-z", "--no-renames", "--no-ext-diff", before, after).split(b"\0")
        kinds = {b"A": "added", b"M": "modified", b"T": "modified", b"D": "deleted"}
        pairs = zip(fields[:-1:2], fields[1::2], strict=True)
        return [FileChange(path=os.fsdecode(path), kind=kinds.get(kind[:1], "modified")) for kind, path in pairs]

    def entries(self, commit: str, paths: Sequence[str]) -> list[TreeEntry]:
        """The files of a revision at and below these paths; none of a path that does not exist there."""
        found = []
        for line in self._bytes("ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", *paths).split(b"\0"):
            if line:
                head, _, name = line.partition(b"\t")
                mode, _, oid, size = head.decode().split()
                length = int(size) if mode in REGULAR and size.isdigit() else None
                found.append(TreeEntry(path=os.fsdecode(name), mode=mode, oid=oid, size_bytes=length))
        return found

    def read(self, commit: str, path: str) -> bytes | None:
        """A plain file's content in a revision; None where there is no such file."""
        held = [entry for entry in self.entries(commit, [path]) if entry.path == path and entry.size_bytes is not None]
        return next((data for _, data in self._blobs(held)), None)

    def write(self, entries: Sequence[TreeEntry], into: Path) -> list[str]:
        """Write plain files below `into` under their paths; the paths of those that are none, or too large, or whose
        name leads elsewhere.
        """
        plain: list[TreeEntry] = []
        odd: list[TreeEntry] = []
        for entry in entries:
            safe = _is_safe(entry.path) and entry.size_bytes is not None and entry.size_bytes <= MAX_BLOB_BYTES
            (plain if safe else odd).append(entry)
        for entry, data in self._blobs(plain):
            path = into / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return [entry.path for entry in odd]

    def differs_from(self, commit: str, folder: Path) -> bool:
        """Whether plain files below `folder`, as they lie in the working tree, differ from the revision's."""
        inside = folder.resolve().relative_to(self.root.resolve()).as_posix()
        return bool(self._bytes("diff", "--name-only", "-z", "--no-ext-diff", commit, "--", inside))

    def _blobs(self, entries: Sequence[TreeEntry]) -> Iterator[tuple[TreeEntry, bytes]]:
        if not entries:
            return
        # Asked one after another over a pipe: a file that is written whole before its answer is read can't block it.
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
                    raise RevisionError(f"{entry.path}: git can't read it; is the clone complete?")
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
            raise RevisionError(f"git can't be run: {error.strerror}; install it") from error
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split()) or f"exit code {done.returncode}"
            raise RevisionError(f"git {arguments[0]} in {self.root}: {said}")
        return done.stdout


def _is_safe(path: str) -> bool:
    """Whether a path of a tree stays inside the folder that it is written to: trees can be made by hand."""
    parts = path.split("/")
    return not PurePosixPath(path).is_absolute() and not any(part in ("", ".", "..", ".git") for part in parts)

"""Cache of built modules on disk, by content address, shared by concurrent runs.

Trusted side. An entry is a folder `entries/ab/abcd…/` with `entry.json` (metadata, size and SHA-256 of the module) and,
for a build, `module.so`. It appears whole, by renaming, and never changes. An entry whose module does not match its
metadata is removed and counts as a miss.

A user of an entry holds a shared lock on its folder. Eviction removes the least recently used folders that it can lock
exclusively. A builder holds a lock on the key, so that concurrent runs compile it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.atomic_file import open_to_others
from harness.core.config import CACHE_LIMIT_BYTES
from harness.sandbox import cleanup

MAX_MODULE_BYTES = 2**30
MIN_FREE_BYTES = 2 * 2**20
"""With less free space on the cache's disk, a compiler error says nothing about the solution."""
_MODULE = "module.so"
_ENTRY = "entry.json"
_KEY = re.compile(r"[0-9a-f]{64}")
_PUBLISH_TRIES = 100
_PUTS_A_LOOK = 128
_KEPT_AFTER_EVICTION = 0.9
"""Share of the limit down to which eviction removes entries, so that it does not run for every new entry."""


class CacheError(Exception):
    """The cache can't be read or written. The message says where and why."""


class _Lease:
    """A shared lock on an entry's folder, until it is closed or garbage-collected."""

    def __init__(self, folder: Path) -> None:
        self._fd: int | None = None
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def holds(self, folder: Path) -> bool:
        """Whether the locked folder is still at this path."""
        return self._fd is not None and _same(self._fd, folder)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModule:
    """An entry in use, which stays on disk until `release`.

    Attributes:
        key: Content address.
        path: The module; None if the entry has none.
        metadata: The stored JSON object.
    """

    key: str
    path: Path | None
    metadata: Mapping[str, Any]
    _lease: _Lease

    def release(self) -> None:
        """Allow eviction. Idempotent; garbage collection does the same."""
        self._lease.close()


class BuildCache:
    """A cache below one folder. Safe for concurrent threads and processes.

    Args:
        root: The cache's folder, created if missing.
        max_bytes: Approximate limit of all entries together.

    Raises:
        CacheError: The folder can't be created.
    """

    def __init__(self, root: Path, max_bytes: int = CACHE_LIMIT_BYTES) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self._total_bytes: int | None = None
        self._puts = 0
        self._entries = root / "entries"
        self._locks = root / "locks"
        self._drafts = root / "drafts"
        try:
            for folder in (self._entries, self._locks, self._drafts):
                folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            self._in_use = _Lease(self._drafts)
            """So that no other process removes the drafts of this one."""
        except OSError as error:
            raise CacheError(
                f"the build cache {root} can't be created ({error.strerror}); choose another folder with --cache"
            ) from error

    def get(self, key: str) -> CachedModule | None:
        """Return the entry with its module verified, or None. The caller must release it."""
        folder = self._folder(key)
        try:
            lease = _Lease(folder)
        except OSError:
            return None
        if not lease.holds(folder):
            return None  # evicted while waiting for the lock
        value = _verified(folder)
        if value is None:
            lease.close()
            self._remove(folder, even_in_use=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / _ENTRY)
        path = folder / _MODULE if value["module"] is not None else None
        return CachedModule(key=key, path=path, metadata=value["metadata"], _lease=lease)

    def put(self, key: str, module: Path | None, metadata: Mapping[str, Any]) -> CachedModule:
        """Add an entry with a copy of `module`, and evict old entries if necessary.

        Args:
            key: Content address.
            module: File that untrusted code may have written: it is copied only if it is a regular file of at most
                `MAX_MODULE_BYTES`, without following links. None stores metadata only.
            metadata: JSON object to store.

        Returns:
            The entry; the caller must release it.

        Raises:
            CacheError: The cache can't be written.
            ValueError: `module` is not such a file.
        """
        folder = self._folder(key)
        try:
            draft = Path(tempfile.mkdtemp(dir=self._drafts))
            try:
                described = None if module is None else _copy(module, draft / _MODULE)
                value = {"key": key, "module": described, "metadata": dict(metadata)}
                with (draft / _ENTRY).open("w", encoding="utf-8") as file:
                    json.dump(value, file, allow_nan=False)
                    os.fsync(file.fileno())
                open_to_others(draft)
                folder.parent.mkdir(exist_ok=True)
                held = self._publish(draft, folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        except OSError as error:
            raise CacheError(f"the build cache {self.root} can't be written: {error.strerror or error}") from error
        self._evict_if_due(folder)
        return held

    def recall(self, key: str) -> Mapping[str, Any] | None:
        """Return the metadata of an entry without a module, or None."""
        found = self.get(key)
        if found is None:
            return None
        found.release()
        return found.metadata

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Hold the lock for building a key.

        Others wait. After acquiring the lock, call `get` again: the entry may exist by then.
        """
        self._folder(key)
        path = self._locks / f"{key[:2]}.{key}"
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _same(fd, path):
                break
            os.close(fd)  # the previous holder removed the file
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(fd)

    def scratch(self) -> Path:
        """Create an empty folder on the cache's file system. The caller removes it."""
        return Path(tempfile.mkdtemp(prefix="work-", dir=self._drafts))

    def lacks_room(self) -> str | None:
        """Return an error message if the disk is full, else None."""
        disk = os.statvfs(self.root)
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
            return f"the disk of the build cache {self.root} is full: free space, or choose another folder with --cache"
        return None

    def size_bytes(self) -> int:
        """Return the size of all entries in bytes."""
        return sum(size for _, size, _ in self._listing())

    def evict(self) -> int:
        """Remove the least recently used entries until the limit holds.

        Entries in use stay.

        Returns:
            The number of removed entries.
        """
        listing = self._listing()
        total = sum(size for _, size, _ in listing)
        removed = 0
        self._total_bytes = total
        if total <= self.max_bytes:
            return 0
        for _, size, folder in sorted(listing):
            if total <= self.max_bytes * _KEPT_AFTER_EVICTION:
                break
            if self._remove(folder):
                total -= size
                removed += 1
        self._total_bytes = total
        return removed

    def _evict_if_due(self, added: Path) -> None:
        """Evict if the limit may be exceeded, and every `_PUTS_A_LOOK` entries.

        Other processes add entries too.
        """
        self._puts += 1
        if self._total_bytes is not None and self._puts % _PUTS_A_LOOK:
            with contextlib.suppress(OSError):
                self._total_bytes += sum(item.stat().st_size for item in added.iterdir())
            if self._total_bytes <= self.max_bytes:
                return
        self.evict()

    def _sweep(self) -> None:
        """Remove drafts of killed processes, unless others use the cache."""
        folder = os.open(self._drafts, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in self._drafts.iterdir():
                with contextlib.suppress(OSError):
                    cleanup.remove(path)
        except BlockingIOError:
            pass
        finally:
            os.close(folder)

    def _folder(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a cache key must be a SHA-256 in hex, not {key!r:.80}")
        return self._entries / key[:2] / key

    def _publish(self, draft: Path, folder: Path) -> CachedModule:
        """Move a draft to its place, or use the entry that is there; locked throughout."""
        lease = _Lease(draft)
        for _ in range(_PUBLISH_TRIES):
            try:
                draft.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
                if (held := self.get(folder.name)) is not None:
                    return held
                continue  # the entry was damaged or has been removed: try again
            _sync_folder(folder.parent)
            value = json.loads((folder / _ENTRY).read_text(encoding="utf-8"))
            path = folder / _MODULE if value["module"] is not None else None
            return CachedModule(key=folder.name, path=path, metadata=value["metadata"], _lease=lease)
        raise CacheError(f"the build cache can't replace the damaged entry {folder}: remove it by hand")

    def _listing(self) -> list[tuple[float, int, Path]]:
        """Return last use, size and folder of every entry."""
        found = []
        for folder in self._entries.glob("??/*"):
            try:
                size = sum(item.stat().st_size for item in folder.iterdir())
                found.append(((folder / _ENTRY).stat().st_mtime, size, folder))
            except OSError:
                continue  # another process is removing it
        return found

    def _remove(self, folder: Path, *, even_in_use: bool = False) -> bool:
        """Remove an entry unless it is in use. A damaged entry is removed in any case."""
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            if not even_in_use:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _same(fd, folder):
                return False
            grave = Path(tempfile.mkdtemp(prefix="old-", dir=self._drafts))
            folder.rename(grave / "entry")
            shutil.rmtree(grave, ignore_errors=True)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _same(fd: int, path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        held, now = os.fstat(fd), os.stat(path)
    except OSError:
        return False
    return (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino)


def _verified(folder: Path) -> dict[str, Any] | None:
    """Return the content of `entry.json` if it is well-formed and matches the module."""
    try:
        value = json.loads((folder / _ENTRY).read_text(encoding="utf-8"))
        if type(value) is not dict or value["key"] != folder.name or type(value["metadata"]) is not dict:
            return None
        described = value["module"]
        if described is not None and described != _describe(folder / _MODULE):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return value


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _copy(source: Path, target: Path) -> dict[str, Any]:
    """Copy an untrusted file and describe the copy."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"the build produced no module: {error.strerror}") from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_MODULE_BYTES:
        os.close(fd)
        raise ValueError(f"the built module is not a regular file of at most {MAX_MODULE_BYTES} bytes")
    with os.fdopen(fd, "rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer)
        os.fsync(writer.fileno())
    return _describe(target)

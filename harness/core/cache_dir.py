"""Remove old cache folders that no process uses.

Trusted side. Each change of torch, the compiler or our headers adds a set of folders `KIND-KEY` below the cache root,
up to 2 GiB a set. A process that uses a folder holds a shared lock on a file in it until it and its children end.
Removal needs the exclusive lock and skips folders that are locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from harness.core.atomic_file import FULL_OR_BROKEN
from harness.core.config import ConfigError
from harness.core.environment import MachineError

KEPT = 3
"""Folders of one kind to keep, including those in use: a CPU and a CUDA build of torch, and the previous version."""

_LEASE = "in-use"
_TRASH = "removed-"
_held: dict[Path, int] = {}


def hold(folder: Path) -> bool:
    """Lock `folder` against removal until this process and its children end.

    A read-only folder, as inside a sandbox, is not locked: the process that started the sandbox holds the lock.

    Args:
        folder: A folder `KIND-KEY` below the cache root.

    Returns:
        False if the folder has been removed.
    """
    held = _held.get(folder)
    if held is None:
        try:
            held = os.open(folder / _LEASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return folder.is_dir()
        fcntl.flock(held, fcntl.LOCK_SH)
        _held[folder] = held
    if not _is_there(held, folder):
        os.close(_held.pop(folder))
        return False
    os.utime(held)
    return True


def _is_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder / _LEASE))
    except OSError:
        return False


def remove_old(root: Path, kinds: Collection[str], *, kept: int = KEPT) -> list[str]:
    """Remove old folders of these kinds, except those in use.

    The caller holds the lock under which folders are created.

    Args:
        root: Folder that contains the folders `KIND-KEY`.
        kinds: Kinds to clean up.
        kept: Number of last used folders of each kind to keep.

    Returns:
        Names of the removed folders.
    """
    gone = []
    for kind in kinds:
        folders = [path for path in root.glob(f"{kind}-*") if path.is_dir()]
        folders.sort(key=_last_use, reverse=True)
        gone += [folder.name for folder in folders[kept:] if _remove(folder)]
    for rest in root.glob(f"{_TRASH}*"):
        shutil.rmtree(rest, ignore_errors=True)
    return gone


def _last_use(folder: Path) -> float:
    for path in (folder / _LEASE, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _remove(folder: Path) -> bool:
    if folder in _held:
        return False
    try:
        descriptor = os.open(folder / _LEASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Rename it first, so that no process finds a folder that is removed in part.
        folder.rename(folder.with_name(_TRASH + folder.name))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kind_of(error: OSError) -> type[ConfigError] | type[MachineError]:
    """Return the exception class of a failed write.

    It is `MachineError` if the disk is full or broken.
    """
    return MachineError if error.errno in FULL_OR_BROKEN else ConfigError


def ready_cache(folder: Path, named_by: str = "--cache or HARNESS_CACHE") -> Path:
    """Create `folder` if it is missing, and check that files can be written in it.

    Args:
        folder: The cache folder.
        named_by: How the user names another folder, for the message.

    Returns:
        The folder.

    Raises:
        ConfigError: The folder can't be created or written.
        MachineError: The disk is full or broken.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        why = error.strerror or error
        raise kind_of(error)(f"{folder}: can't hold caches: {why}; name another by {named_by}") from error
    return folder


def cache_fault(folder: Path) -> str | None:
    """Return the message that `ready_cache` would raise for `folder`, or None.

    Folders that the check creates are removed.
    """
    lacking = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        ready_cache(folder)
    except (ConfigError, MachineError) as error:
        return str(error)
    finally:
        with suppress(OSError):  # another process may use it by now
            for path in lacking:
                path.rmdir()
    return None

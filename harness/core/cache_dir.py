"""Keeps the prepared folders of the host device few: each change of torch, compiler or our headers leaves a set of them
behind, and a set takes up to two GiB.

Charter: folders `KIND-KEY` below one root. Whoever uses one holds a shared lock on a file in it as long as its process
lives, children included; removal takes the exclusive one and passes by what it can't get. Trusted side; imports the
standard library.
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

__all__ = ["hold", "remove_old"]


KEPT = 3
"""Folders of one kind that stay, the ones in use included: a CPU and a CUDA build of torch, and the last change."""

_LEASE = "in-use"
_TRASH = "removed-"
_held: dict[Path, int] = {}


def hold(folder: Path) -> bool:
    """Note that `folder` is used now, and keep it from being removed while this process (or a child of it) lives.

    False where it was removed meanwhile. A folder that can't be written, as inside a sandbox, is used without a note:
    whoever started the sandbox holds it.
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
    """Remove folders of these kinds below `root` but the `kept` last used of each, and but those in use. Names of what
    went. Call it with the lock under which folders are made.
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
        # Out of sight first: a folder is there as a whole or not at all.
        folder.rename(folder.with_name(_TRASH + folder.name))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kind_of(error: OSError) -> type[ConfigError] | type[MachineError]:
    """What a file that can't be written is: the machine's fault, or the call's that names it."""
    return MachineError if error.errno in FULL_OR_BROKEN else ConfigError


def ready_cache(folder: Path, named_by: str = "--cache or HARNESS_CACHE") -> Path:
    """`folder`, made where it lacks, once a file could be written in it. Raises `ConfigError`; `MachineError` where the
    disk is full or broken. `named_by` says how a caller names another one.
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
    """Why `folder` can't hold caches, as `ready_cache` would say; None where it can. Leaves no folder behind that was
    not there.
    """
    lacking = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        ready_cache(folder)
    except (ConfigError, MachineError) as error:
        return str(error)
    finally:
        with suppress(OSError):  # somebody else may use it by now
            for path in lacking:
                path.rmdir()
    return None

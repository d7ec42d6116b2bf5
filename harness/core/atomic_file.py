"""Files written whole or not at all, errors that say that a disk is full or broken, and trees that other users read.

Edge; imports nothing of the harness.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

FULL_OR_BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""`OSError.errno` where the machine is at fault, and no other file name would help."""


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file, its folder made where it lacks: all of it, or what stood there before stays. Who may read it stays
    as it was, too. What is no regular file (a pipe, /dev/stdout) is written to as it is. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    draft = target.with_name(f".{os.getpid()}.draft")
    try:
        draft.touch()
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))  # before anything is in it; read-only refuses here, too
        draft.write_bytes(data)
        draft.replace(target)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def open_to_others(root: Path) -> None:
    """Let every user read what lies at `root`, and enter its folders, whatever the umask has taken from them: sandboxed
    processes are other users. What belongs to somebody else is left as it is, and what goes meanwhile is passed by.
    For trees that no untrusted process writes to. Raises `OSError`.
    """
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            open_one_to_others(path)


def open_one_to_others(path: Path) -> None:
    """As `open_to_others`, for this file or folder alone. Raises `OSError`."""
    with suppress(PermissionError, FileNotFoundError):
        mode = path.lstat().st_mode
        wanted = 0o555 if stat.S_ISDIR(mode) else 0o444
        if not stat.S_ISLNK(mode) and mode & wanted != wanted:
            path.chmod(stat.S_IMODE(mode) | wanted)

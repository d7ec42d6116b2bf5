"""Files written whole or not at all, and the errors that say that a disk is full or broken.

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
    as it was, too. What is no regular file (a pipe, /dev/stdout) is written to as it is. Raises `OSError`."""
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

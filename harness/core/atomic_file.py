"""Replace files atomically, name disk faults, let sandboxed users read files."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

FULL_OR_BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Values of `OSError.errno` for faults of the machine, which another file name would not avoid."""


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file completely, or leave its old content unchanged.

    Missing folders are created, and an existing file keeps its permissions. A pipe or device (/dev/stdout) is written
    directly.

    Args:
        path: File to write.
        data: Its content.

    Raises:
        OSError: The file can't be written.
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
            draft.chmod(stat.S_IMODE(target.stat().st_mode))  # while it is empty; a read-only file fails here
        draft.write_bytes(data)
        draft.replace(target)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def open_to_others(root: Path) -> None:
    """Let every user read all files below `root` and enter its folders.

    Sandboxed processes run as other users. Files of another owner stay as they are, and files that disappear meanwhile
    are skipped. Use it only for trees that no untrusted process writes to.

    Raises:
        OSError: Permissions can't be changed.
    """
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            open_one_to_others(path)


def open_one_to_others(path: Path) -> None:
    """Do the same as `open_to_others` for one file or folder.

    Raises:
        OSError: Permissions can't be changed.
    """
    with suppress(PermissionError, FileNotFoundError):
        mode = path.lstat().st_mode
        wanted = 0o555 if stat.S_ISDIR(mode) else 0o444
        if not stat.S_ISLNK(mode) and mode & wanted != wanted:
            path.chmod(stat.S_IMODE(mode) | wanted)

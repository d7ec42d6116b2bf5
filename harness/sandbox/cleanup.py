"""Remove folders with arbitrary contents written by untrusted code.

Trusted code; no process that could change the folder may be alive. `shutil.rmtree` recurses for every level (Python
3.11 and 3.12), so a thousand nested folders ended a whole run. This code looks at most two levels deep and moves deeper
folders up (pinned by `test_folders_in_one_another_without_end_are_removed`).
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path) -> None:
    """Remove a folder and its contents; links are not followed, errors are ignored."""
    try:
        top = os.open(folder, _FOLDER)
    except OSError:
        return
    prefix = secrets.token_hex(16)
    names = (f"{prefix}-{number}" for number in itertools.count())
    moved = True
    with suppress(OSError):
        while moved:
            moved = False
            for name in os.listdir(top):
                moved = _emptied(top, name, names) or moved
    os.close(top)
    with suppress(OSError):
        os.rmdir(folder)


def _emptied(top: int, name: str, names: Iterator[str]) -> bool:
    """Remove the entry `name` of the folder `top`.

    Folders inside it move into `top` under the next of `names`; returns True if there were any.
    """
    moved = False
    with suppress(OSError):
        if _unlinked(top, name):
            return False
        with suppress(OSError):
            os.chmod(name, 0o700, dir_fd=top)  # not a link: links were unlinked above
        inner = os.open(name, _FOLDER, dir_fd=top)
        try:
            for held in os.listdir(inner):
                if not _unlinked(inner, held):
                    with suppress(OSError):
                        os.chmod(held, 0o700, dir_fd=inner)  # else an ordinary user cannot move it
                    os.rename(held, next(names), src_dir_fd=inner, dst_dir_fd=top)
                    moved = True
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)
    return moved


def _unlinked(folder: int, name: str) -> bool:
    """Remove anything but a folder; return False for a folder. Raises `OSError`."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    return True

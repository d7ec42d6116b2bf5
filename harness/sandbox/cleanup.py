"""Removes folders that untrusted code has written, whatever they hold.

Imports nothing of the harness. Trusted code; nothing that could change the folder may be alive any more.

Decision: not `shutil.rmtree`, which calls itself for every level (Python 3.11 and 3.12): a thousand folders in one
another, which a compiler can be made to leave, ended the run of everybody (pinned by
`test_folders_in_one_another_without_end_are_removed`). Here nothing is ever looked at deeper than two levels: what lies
deeper is moved up.
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
    """Remove a folder and all that lies in it; links are not followed. What can't be removed stays, without a word."""
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
    """Remove what is called `name` in the folder `top`. True where folders were found in it, which now lie in `top`
    themselves, under the next of `names`.
    """
    moved = False
    with suppress(OSError):
        if _unlinked(top, name):
            return False
        with suppress(OSError):
            os.chmod(name, 0o700, dir_fd=top)  # no link: that would have been unlinked
        inner = os.open(name, _FOLDER, dir_fd=top)
        try:
            for held in os.listdir(inner):
                if not _unlinked(inner, held):
                    with suppress(OSError):
                        os.chmod(held, 0o700, dir_fd=inner)  # else it can't be moved by an ordinary user
                    os.rename(held, next(names), src_dir_fd=inner, dst_dir_fd=top)
                    moved = True
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)
    return moved


def _unlinked(folder: int, name: str) -> bool:
    """Remove what is no folder. False where it is one. Raises `OSError`."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    return True

"""How the harness starts another Python: with its own code, and with nothing out of the folder that somebody works in;
and how that one ends with whoever started it.

Imports nothing of the harness. Python looks for modules in the current folder first (`-m`, `-c`), and that folder may
be a submission's: a `torch.py` or a `harness` in it would be imported by a referee.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

PACKAGE_PARENT = str(Path(__file__).resolve().parent.parent)
"""The folder that leads to this package."""


def python(*arguments: str) -> list[str]:
    """The command line of this Python with `arguments`, which does not look for modules in the current folder."""
    return [sys.executable, "-P", *arguments]


def search_path(environment: Mapping[str, str]) -> dict[str, str]:
    """`PYTHONPATH` by which the other Python finds this very package, then the absolute folders that `environment` has
    there."""
    # An empty entry stands for the current folder, and others may lie below or above it. Python makes them absolute,
    # and what it looks for modules in, sandboxes show.
    given = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    return {"PYTHONPATH": os.pathsep.join([PACKAGE_PARENT, *given])}


def end_with(sock: socket.socket, end: Callable[[], object] = lambda: os._exit(0)) -> None:
    """For the other Python: `end` this process at once when the owner's end of the connection closes, by whatever
    means, even in the middle of a task."""

    def watch() -> None:
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        poll.poll()
        end()

    threading.Thread(target=watch, name="watch", daemon=True).start()

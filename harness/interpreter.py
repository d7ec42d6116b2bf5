"""How the harness starts another Python: with its own code, and with nothing out of the folder that somebody works in.

Imports nothing. Python looks for modules in the current folder first (`-m`, `-c`), and that folder may be a
submission's: a `torch.py` or a `harness` in it would be imported by a referee.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
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

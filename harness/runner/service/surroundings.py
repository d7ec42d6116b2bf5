"""The parts of a process's environment that builds and evaluations depend on.

Trusted side. A server's must equal a call's: otherwise it would answer for another machine. Takes milliseconds: a
compiler is identified by its file, packages by the names and versions in Python's folders.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.core.executables import find_gxx, find_nvcc
from harness.sandbox.environment import scrub

_OTHERWISE_TOLD = frozenset({"PATH", "PYTHONPATH"})
"""Covered by the compilers and packages that are found through them."""

_WORDS = frozenset({"LANG", "LANGUAGE", "TZ"})
_WORDS_PREFIX = "LC_"
"""Variables that only change the language or format of messages."""

_SHOWN_CHARS = 200


def surroundings() -> dict[str, str]:
    """Return the variables that reach builds and solutions, compilers and packages."""
    held = {
        name: value
        for name, value in scrub(os.environ).items()
        if name not in _OTHERWISE_TOLD | _WORDS and not name.startswith(_WORDS_PREFIX)
    }
    for name, found in (("nvcc", find_nvcc()), ("the C++ compiler", find_gxx())):
        if found is not None:
            held[name] = _file(found)
    held["the packages"] = _packages()
    return held


def differing(ours: Mapping[str, str], theirs: Any) -> str | None:
    """Say how a call's surroundings differ from a server's (`ours`).

    None if they don't.
    """
    if not isinstance(theirs, dict):
        return "it runs other code than this call"
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if not names:
        return None
    name = names[0]
    more = f" (also different: {', '.join(names[1:4])}{', ...' if len(names) > 4 else ''})" if names[1:] else ""
    if name == "the packages":
        return f"it was started with other packages installed or on its path{more}"
    return f"it was started with {name}={_shown(ours.get(name))}, but this call has {_shown(theirs.get(name))}{more}"


def _shown(value: object) -> str:
    return "(not set)" if value is None else str(value)[:_SHOWN_CHARS]


def _file(path: Path) -> str:
    """Identify a program by its path, size and modification time."""
    real = path.resolve()
    try:
        held = real.stat()
    except OSError:
        return str(real)
    return f"{real} ({held.st_size} bytes of {held.st_mtime_ns})"


def _packages() -> str:
    """Hash the names and versions of installed packages.

    Their contents are not read.
    """
    state = hashlib.sha256()
    for folder in dict.fromkeys(sys.path[1:]):
        with suppress(OSError):
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
            if names:
                state.update(repr((os.path.realpath(folder), names)).encode())
    return state.hexdigest()

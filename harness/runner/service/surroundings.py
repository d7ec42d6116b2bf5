"""What of a process's environment builds and judgements depend on: a server's must be a call's, or it would answer for
another machine than the one that the call was made on.

Outside layer; trusted side. Takes some milliseconds: compilers are told apart by their files, and packages by the names
and versions in the folders that Python finds them in.
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
"""By the compilers and packages that are found with them."""

_WORDS = frozenset({"LANG", "LANGUAGE", "TZ"})
_WORDS_PREFIX = "LC_"
"""Variables that change words at most."""

_SHOWN_CHARS = 200


def surroundings() -> dict[str, str]:
    """Of this process, by name: the variables that reach builds and solutions, compilers, packages."""
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
    """How a call's surroundings, as it told them, differ from a server's `ours`, in words; None where they don't."""
    if not isinstance(theirs, dict):
        return "it was started by other code than this call's"
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if not names:
        return None
    name = names[0]
    more = f" (and {', '.join(names[1:4])}{', ...' if len(names) > 4 else ''} differ, too)" if names[1:] else ""
    if name == "the packages":
        return f"other packages are installed since it was started, or it was started with others on its path{more}"
    return f"it was started with {name}={_shown(ours.get(name))}, and this call has {_shown(theirs.get(name))}{more}"


def _shown(value: object) -> str:
    return "(not set)" if value is None else str(value)[:_SHOWN_CHARS]


def _file(path: Path) -> str:
    """A program by where it lies and what lies there."""
    real = path.resolve()
    try:
        held = real.stat()
    except OSError:
        return str(real)
    return f"{real} ({held.st_size} bytes of {held.st_mtime_ns})"


def _packages() -> str:
    """Names and versions of what is installed, without looking into it."""
    state = hashlib.sha256()
    for folder in dict.fromkeys(sys.path[1:]):
        with suppress(OSError):
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
            if names:
                state.update(repr((os.path.realpath(folder), names)).encode())
    return state.hexdigest()

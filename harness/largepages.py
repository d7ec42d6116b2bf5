"""Large pages for the memory that racecheck has pinned as it opens a GPU (`largepages.cpp` says why).

Trusted side; used by `posts`. Nothing depends on it but how long others wait: where it can't be built, racecheck goes
without.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from harness.environment import find_gxx
from harness.sanitizers import Tool

SOURCE = Path(__file__).with_suffix(".cpp")

BUILD_LIMIT_S = 60.0
"""It takes 0.2 s."""

_FLAGS = ("-shared", "-fPIC", "-O2", "-std=c++17", "-fno-exceptions", "-fno-threadsafe-statics", "-Wl,--as-needed")
"""So that nothing of the compiler's C++ library is needed: it would be loaded before an interpreter's own, which may be
newer."""


class LargePages:
    """The library to preload, built in `folder` when it is first asked for. Safe for threads."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "_large_pages.so"
        self._lock = threading.Lock()
        self._built: bool | None = None

    def variables(self, tool: Tool) -> Mapping[str, str]:
        """What the environment of a zygote under `tool` is to say; nothing where it has no use for them, or there is
        no compiler."""
        return {"LD_PRELOAD": str(self._library)} if tool is Tool.RACECHECK and self._is_built() else {}

    def close(self) -> None:
        """Remove the library. Those who have it loaded keep it."""
        self._library.unlink(missing_ok=True)

    def _is_built(self) -> bool:
        with self._lock:
            if self._built is None:
                self._built = _build(self._library)
            return self._built


def _build(library: Path) -> bool:
    if (gxx := find_gxx()) is None:
        return False
    command = [str(gxx), *_FLAGS, "-o", str(library), str(SOURCE), "-ldl"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, timeout=BUILD_LIMIT_S, check=False)
        return done.returncode == 0 and library.is_file()
    return False

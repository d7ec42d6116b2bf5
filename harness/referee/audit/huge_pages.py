"""Large pages for the memory that racecheck pins when it opens a GPU.

Trusted side. `huge_pages.cpp` gives the reason. Only waiting times depend on it: without a compiler, racecheck runs
with ordinary pages.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.core.executables import find_gxx
from harness.referee.audit.sanitizer import SanitizerTool

SOURCE = Path(__file__).with_suffix(".cpp")

BUILD_LIMIT_S = 60.0
"""The build takes 0.2 s."""

_FLAGS = ("-shared", "-fPIC", "-O2", "-std=c++17", "-fno-exceptions", "-fno-threadsafe-statics", "-Wl,--as-needed")
"""Flags that avoid the compiler's C++ library, which may be older than the interpreter's and would be loaded first."""


class HugePages:
    """The library to preload, built at the first request. Thread-safe.

    It lies in a folder of its own, because auditors of several GPUs share a run's log folder.
    """

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._library: Path | None = None
        self._lock = threading.Lock()

    def variables(self, tool: SanitizerTool) -> Mapping[str, str]:
        """Environment variables for a zygote under `tool`.

        Empty if the tool does not need the library or there is no compiler.
        """
        if tool is not SanitizerTool.RACECHECK:
            return {}
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="harness-pages-", ignore_cleanup_errors=True)
                self._library = _build(Path(self._folder.name) / "large_pages.so")
        return {} if self._library is None else {"LD_PRELOAD": str(self._library)}

    def close(self) -> None:
        """Remove the library; processes that loaded it keep it. Idempotent."""
        if self._folder is not None:
            self._folder.cleanup()


def _build(library: Path) -> Path | None:
    """Build `library`; None if that fails."""
    if (gxx := find_gxx()) is None:
        return None
    command = [str(gxx), *_FLAGS, "-o", str(library), str(SOURCE), "-ldl"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, timeout=BUILD_LIMIT_S, check=False)
        return library if done.returncode == 0 and library.is_file() else None
    return None

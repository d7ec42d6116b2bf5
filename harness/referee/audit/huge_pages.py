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
from tempfile import TemporaryDirectory

from harness.core.executables import find_gxx
from harness.referee.audit.sanitizer import SanitizerTool

SOURCE = Path(__file__).with_suffix(".cpp")

BUILD_LIMIT_S = 60.0
"""It takes 0.2 s."""

_FLAGS = ("-shared", "-fPIC", "-O2", "-std=c++17", "-fno-exceptions", "-fno-threadsafe-statics", "-Wl,--as-needed")
"""So that nothing of the compiler's C++ library is needed: it would be loaded before an interpreter's own, which may be
newer."""


class HugePages:
    """The library to preload, built when it is first asked for, in a folder of its own: auditors of several GPUs share
    the folder of a run's logs. Safe for threads.
    """

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._library: Path | None = None
        self._lock = threading.Lock()

    def variables(self, tool: SanitizerTool) -> Mapping[str, str]:
        """What the environment of a zygote under `tool` is to say; nothing where it has no use for them, or there is
        no compiler.
        """
        if tool is not SanitizerTool.RACECHECK:
            return {}
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="harness-pages-", ignore_cleanup_errors=True)
                self._library = _build(Path(self._folder.name) / "large_pages.so")
        return {} if self._library is None else {"LD_PRELOAD": str(self._library)}

    def close(self) -> None:
        """Remove the library. Those who have it loaded keep it. Idempotent."""
        if self._folder is not None:
            self._folder.cleanup()


def _build(library: Path) -> Path | None:
    """`library`, built; None where that can't be."""
    if (gxx := find_gxx()) is None:
        return None
    command = [str(gxx), *_FLAGS, "-o", str(library), str(SOURCE), "-ldl"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, timeout=BUILD_LIMIT_S, check=False)
        return library if done.returncode == 0 and library.is_file() else None
    return None

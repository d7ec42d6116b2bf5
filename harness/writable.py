"""Whether files can be written where they are to go, and whose fault it is where they can't.

Edge; imports `config`, `disk` and `environment`.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from harness.config import ConfigError
from harness.disk import FULL_OR_BROKEN
from harness.environment import MachineError


def kind_of(error: OSError) -> type[ConfigError] | type[MachineError]:
    """What a file that can't be written is: the machine's fault, or the call's that names it."""
    return MachineError if error.errno in FULL_OR_BROKEN else ConfigError


def ready_cache(folder: Path, named_by: str = "--cache or HARNESS_CACHE") -> Path:
    """`folder`, made where it lacks, once a file could be written in it. Raises `ConfigError`; `MachineError` where the
    disk is full or broken. `named_by` says how a caller names another one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        why = error.strerror or error
        raise kind_of(error)(f"{folder}: can't hold caches: {why}; name another by {named_by}") from error
    return folder


def cache_fault(folder: Path) -> str | None:
    """Why `folder` can't hold caches, as `ready_cache` would say; None where it can. Leaves no folder behind that was
    not there."""
    lacking = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        ready_cache(folder)
    except (ConfigError, MachineError) as error:
        return str(error)
    finally:
        with suppress(OSError):  # somebody else may use it by now
            for path in lacking:
                path.rmdir()
    return None

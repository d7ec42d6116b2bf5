"""Create stub libraries: empty libraries with the names of torch's, for linking.

A linker reads all names that torch's own libraries define: 0.27 s for a module of one kernel, 0.06 s with stubs (torch
2.13, GNU ld 2.40, two cores). Symbols are resolved when the module is loaded in either case; torch's libraries are in
the process by then, under the names that the stubs have.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.core.atomic_file import open_to_others

Run = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]

_SONAME = re.compile(r"\(SONAME\).*\[(.+)\]")


def make(run: Run, compiler: str, originals: Path, folder: Path, names: Sequence[str]) -> bool:
    """Create `folder` with a stub for each library `libNAME.so` in `originals`.

    `run` runs a command. Returns False, and creates nothing, if a library has no SONAME or a tool fails.
    """
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    draft.mkdir(parents=True, exist_ok=True)
    try:
        for name in names:
            said = run(["readelf", "-d", str(originals / f"lib{name}.so")])
            found = _SONAME.search(said.stdout) if said.returncode == 0 else None
            if found is None:
                return False
            made = ["-o", str(draft / f"lib{name}.so"), "-x", "c", os.devnull]
            if run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{found[1]}", *made]).returncode != 0:
                return False
        open_to_others(draft)  # before other processes can find it
        draft.rename(folder)
    except (OSError, subprocess.SubprocessError):  # a tool is missing, or another process was faster
        return folder.is_dir()
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def flags(folder: Path, names: Sequence[str]) -> list[str] | None:
    """Return flags to link with these stubs, or None if one is missing."""
    if not all((folder / f"lib{name}.so").exists() for name in names):
        return None
    # Some distributions' linkers default to --as-needed, which drops libraries that define no used symbol.
    return ["-Wl,--push-state,--no-as-needed", f"-L{folder}", *(f"-l{name}" for name in names), "-Wl,--pop-state"]

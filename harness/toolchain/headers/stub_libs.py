"""Stub libraries: torch's by name, with nothing in them, from which a linker takes down what a module needs.

Edge; imports `disk`. A linker that is given torch's own reads the names of all that they define: 0.27 s
for a module of one kernel, and 0.06 s with stubs (torch 2.13, GNU ld 2.40, two cores). What a shared module lacks is
looked for when it is loaded, in either case: torch's libraries are in the process by then, and are known by the names
that the stubs have.
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
    """Make `folder`, with a stub for each of the libraries `libNAME.so` in `originals`. False, and no folder, where one
    has no name of its own, or a tool fails. `run` runs a command.
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
        open_to_others(draft)  # before anybody can find them
        draft.rename(folder)
    except (OSError, subprocess.SubprocessError):  # no such tool, or somebody else's are there by now
        return folder.is_dir()
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def flags(folder: Path, names: Sequence[str]) -> list[str] | None:
    """What links with these stubs; None where one is not there."""
    if not all((folder / f"lib{name}.so").exists() for name in names):
        return None
    # Distributions have their linkers leave out what defines nothing that is missing, as stubs do.
    return ["-Wl,--push-state,--no-as-needed", f"-L{folder}", *(f"-l{name}" for name in names), "-Wl,--pop-state"]

"""Headers that all builds with one torch and one compiler share: lean stand-ins, and a precompiled one.

Trusted side. Imports `build.lean` and `build.torchinfo`. Writes below the cache folder; runs the compiler on torch's
own headers only. Several processes may do this at the same time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.build import lean
from harness.build.torchinfo import TorchBuild, python_include
from harness.environment import MachineError
from harness.model import digest_text

_HEADER = "harness_python.h"
_TIMEOUT_S = 300.0

VARIANTS: Mapping[str, tuple[str, ...]] = {"plain": (), "optimised": ("-O2",)}
"""g++ takes a precompiled header only where code generation is set alike; -O1 to -O3 are alike (tried with 12.2)."""


class SharedHeaders:
    """Stand-ins and precompiled headers for one torch and one C++ compiler, in a folder below `root`.

    `fingerprint` says which torch and compiler; the folder is made when something needs it.
    """

    def __init__(self, root: Path, torch: TorchBuild, cxx: Path, fingerprint: str) -> None:
        self.folder = root / digest_text("headers", f"{lean.FORMAT} {fingerprint}")[:24]
        self._torch = torch
        self._cxx = cxx
        self._lean = lean.LeanHeaders(torch.include)

    def unit(self, text: str, *, python: bool) -> str | None:
        """As `LeanHeaders.unit`, with the shared part in place."""
        found = self._lean.unit(text, python=python)
        if found is not None:
            self._stand_ins()
        return found

    def flags(self, unit_folder: str, *, precompiled_for: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Compiler flags that put the stand-ins first; to be followed by torch's own include folders.

        `precompiled_for` holds a g++ unit's flags, which decide on whether a precompiled header fits.
        """
        found = [lean.DEFINE]
        if precompiled_for is not None and (variant := variant_for(precompiled_for)) is not None:
            header = self._precompiled(variant)
            if header.exists():
                found += ["-include", str(header.with_suffix(""))]
        return (*found, "-isystem", unit_folder, "-isystem", str(self.folder / "lean"))

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        """Precompile what all bindings include: about 8 s and 220 MB for each of two variants (torch 2.13, g++ 12).

        Where another process is at it: waits, or with `wait=False` returns at once. Raises `MachineError`.
        """
        begin = time.perf_counter()
        done = []
        with _locked(self.folder / "warm_up.lock", wait=wait) as mine:
            for variant in VARIANTS:
                if mine and not self._precompiled(variant).exists():
                    self._precompile(variant)
                    done.append(variant)
        return {"precompiled": done, "wall_s": time.perf_counter() - begin, "folder": str(self.folder)}

    def _stand_ins(self) -> Path:
        """The folder of shared stand-ins, written by whoever comes first."""
        folder = self.folder / "lean"
        if folder.is_dir():
            return folder
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="lean-", dir=self.folder))
        for name, text in self._lean.shared().items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        draft.chmod(0o755)  # mkdtemp makes it private, and the sandbox has another user
        try:
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft)  # somebody else's are there now
        return folder

    def _precompiled(self, variant: str) -> Path:
        return self.folder / "precompiled" / variant / f"{_HEADER}.gch"

    def _precompile(self, variant: str) -> None:
        target = self._precompiled(variant)
        target.parent.mkdir(parents=True, exist_ok=True)
        header = target.with_suffix("")
        header.write_text(self._lean.precompiled(), encoding="utf-8")
        draft = target.with_suffix(f".{os.getpid()}.tmp")
        includes = (self._stand_ins(), *self._torch.include_folders(), python_include())
        command = [
            *(str(self._cxx), *VARIANTS[variant], lean.DEFINE),
            *(item for path in includes for item in ("-isystem", str(path))),
            *(word for flag in self._torch.defines() for word in shlex.split(flag)),
            *("-fPIC", f"-std={self._torch.cxx_standard}", "-x", "c++-header", str(header), "-o", str(draft)),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S, text=True)
            draft.rename(target)
        except (OSError, subprocess.SubprocessError) as error:
            draft.unlink(missing_ok=True)
            output = getattr(error, "stderr", None) or ""
            raise MachineError(f"torch's headers can't be precompiled: {error}: {output[:400]}") from error


def variant_for(flags: tuple[str, ...]) -> str | None:
    """The precompiled header that fits a g++ unit with these flags of its own; None where none would be taken."""
    optimised = False
    for word in (word for flag in flags for word in flag.split()):
        if re.fullmatch(r"-O[123]?", word):
            optimised = True
        elif not re.fullmatch(r"-W(?!p,)[\w=+-]*|-I\S*|-w|-pipe|-funroll-loops", word):
            return None
    return "optimised" if optimised else "plain"


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a file lock; yields whether it was had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True

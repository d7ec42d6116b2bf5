"""Create the files that all builds with one torch and compiler share.

Trusted side. These are lean headers, precompiled headers, compiled bindings and stub libraries, below the cache folder.
The compiler runs on torch's own headers only. Several processes may do this at the same time.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harness.core import cache_dir
from harness.core.atomic_file import open_one_to_others, open_to_others
from harness.core.environment import MachineError
from harness.core.preparing import Preparing, TellPreparing, untold
from harness.core.problem import digest_text
from harness.core.subprocesses import CommandPool, CommandPoolClosed
from harness.toolchain.headers import lean, stub_libs
from harness.toolchain.torchinfo import TorchBuild, python_include

_TIMEOUT_S = 300.0
_FOLDERS = "shared"
"""Prefix of the folders. Only a few are kept: each has up to 1 GB."""

VARIANTS: Mapping[str, tuple[str, ...]] = {"plain": (), "optimised": ("-O2",)}
"""g++ accepts a precompiled header only for equal code generation; -O1 to -O3 count as equal (tried with g++ 12.2)."""

KINDS = ("core", "cuda", "python")
"""Kinds for `LeanHeaders.precompiled`. Including pybind11 costs a unit 1.5 s, used or not (g++ 12.2, two cores)."""

BINDINGS = Path(__file__).parents[1] / "bindings"
"""Header and source of the bindings that are compiled once."""


class SharedHeaders:
    """Shared files for one torch and one C++ compiler, in a folder below `root`.

    `fingerprint` identifies torch and compiler; the folder is created when it is needed. `cuda` is the toolkit's header
    folder and version, if there is a toolkit.
    """

    def __init__(
        self, root: Path, torch: TorchBuild, cxx: Path, fingerprint: str, cuda: tuple[Path, str] | None = None
    ) -> None:
        sources = "".join(path.read_text(encoding="utf-8") for path in sorted(BINDINGS.iterdir()))
        self._root = root
        self.folder = root / f"{_FOLDERS}-{digest_text('headers', f'{lean.FORMAT} {fingerprint}', sources)[:20]}"
        self._torch = torch
        self._cxx = cxx
        self._cuda = cuda
        self._lean = lean.LeanHeaders(torch.include)

    def unit(self, text: str, *, python: bool) -> str | None:
        """Return the text of a unit's lean header, and create the shared headers."""
        found = self._lean.unit(text, python=python)
        if found is not None:
            self._stand_ins()
        return found

    @property
    def bindings(self) -> Path | None:
        """The library of compiled bindings, or None if it is not built yet."""
        return self._library if self._library.exists() else None

    def link_flags(self, names: Sequence[str]) -> list[str] | None:
        """Return flags to link with stubs of torch's libraries, or None without stubs."""
        return stub_libs.flags(self._stubs, names)

    def flags(self, unit_folder: str, *, kind: str, precompiled_for: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Return compiler flags that put lean headers before torch's include folders.

        `precompiled_for` are the flags of a g++ unit, to choose a precompiled header that fits.
        """
        found = [lean.DEFINE]
        if (
            precompiled_for is not None
            and (variant := variant_for(precompiled_for, self._torch.cxx_standard)) is not None
        ):
            header = self._precompiled(variant, kind)
            if header is not None and header.exists():
                found += ["-include", str(header.with_suffix(""))]
        return (*found, "-isystem", unit_folder, "-isystem", str(self.folder / "lean"))

    def warm_up(self, *, wait: bool = True, tell: TellPreparing = untold) -> Mapping[str, Any]:
        """Precompile the headers of each kind, and compile bindings and stubs.

        Takes some 10 s on 16 cores and 1 GB (torch 2.13, g++ 12).

        Args:
            wait: If another process is doing this, wait for it; otherwise return at once.
            tell: Receives the progress, if something is made.

        Raises:
            MachineError: The compiler fails on torch's headers.
        """
        begin = time.perf_counter()
        done: list[str] = []
        lacking: list[str] = []
        what = f"headers and bindings for builds, once for torch {self._torch.version} and {self._cxx.name}"
        with _locked(self._root / "warm_up.lock", wait=wait) as mine:
            self._hold()
            if mine:
                cache_dir.remove_old(self._root, (_FOLDERS,))
            work: dict[str, Callable[[CommandPool], None]] = {}
            if mine and not self._library.exists():
                work["bindings"] = self._compile_bindings
            if mine and not self._stubs.exists():
                work["stubs"] = self._make_stubs
            for variant in VARIANTS if mine else ():
                for kind in KINDS:
                    target = self._precompiled(variant, kind)
                    if target is not None and not target.exists():
                        work[f"{kind} {variant}"] = partial(self._precompile, variant, kind, target)
            self._stand_ins()
            if work:
                tell(Preparing(what=what, done=0, total=len(work)))
            with CommandPool(os.cpu_count() or 1) as crew:
                steps = {crew.submit(partial(step, crew)): name for name, step in work.items()}
                for count, ended in enumerate(as_completed(steps), 1):
                    name = steps[ended]
                    try:
                        ended.result()
                        done.append(name)
                    except MachineError as error:
                        if name not in ("bindings", "stubs"):
                            raise
                        lacking.append(str(error))  # an unusual torch: its own pybind11 and libraries are used instead
                    tell(Preparing(what=what, done=count, total=len(work)))
        told = {"lacking": lacking} if lacking else {}
        made = [name for name in work if name in done]
        return {"precompiled": made, "wall_s": time.perf_counter() - begin, "folder": str(self.folder), **told}

    def _stand_ins(self) -> Path:
        """Return the folder of shared lean headers; the first caller writes it."""
        folder = self.folder / "lean"
        if folder.is_dir():
            self._hold()
            return folder
        self._hold()
        draft = Path(tempfile.mkdtemp(prefix="lean-", dir=self.folder))
        for name, text in self._lean.shared().items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        open_to_others(draft)
        try:
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft)  # another process was faster
        return folder

    def _hold(self) -> None:
        """Protect the folder from removal while this process lives."""
        for _ in range(2):  # again, if it was removed meanwhile
            self.folder.mkdir(parents=True, exist_ok=True)
            if cache_dir.hold(self.folder):
                open_one_to_others(self.folder)  # the sandbox runs as another user
                return

    @property
    def _stubs(self) -> Path:
        return self.folder / "stubs"

    def _make_stubs(self, crew: CommandPool) -> None:
        names = self._torch.libraries(cuda=self._torch.has_cuda_libraries)
        run = partial(crew.run, timeout_s=_TIMEOUT_S)
        if not stub_libs.make(run, str(self._cxx), self._torch.lib, self._stubs, names):
            raise MachineError(
                "can't create stubs of torch's libraries; modules are linked with the libraries themselves"
            )

    @property
    def _library(self) -> Path:
        return self.folder / "bindings" / "libharness_bindings.a"

    def _precompiled(self, variant: str, kind: str) -> Path | None:
        if kind == "python" and variant != "plain":
            return None  # rarely used
        if kind == "cuda":
            if self._cuda is None:
                return None
            kind += "-" + re.sub(r"[^\w.]", "_", self._cuda[1])
        return self.folder / "precompiled" / variant / f"harness_{kind}.h.gch"

    def _precompile(self, variant: str, kind: str, target: Path, crew: CommandPool) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        header = target.with_suffix("")
        header.write_text(self._lean.precompiled(kind), encoding="utf-8")
        draft = target.with_suffix(f".{os.getpid()}.tmp")
        cuda = (self._cuda[0],) if kind == "cuda" and self._cuda is not None else ()
        open_to_others(self.folder / "precompiled")
        self._compile(crew, [*VARIANTS[variant], "-x", "c++-header", str(header)], draft, cuda)
        draft.rename(target)

    def _compile_bindings(self, crew: CommandPool) -> None:
        folder = self._library.parent
        folder.mkdir(parents=True, exist_ok=True)
        made, draft = folder / "harness_bindings.o", folder / f"{os.getpid()}.tmp"
        self._compile(crew, ["-O2", "-c", str(BINDINGS / "harness_bindings.cpp")], made)
        self._run(crew, ["ar", "rcs", str(draft), str(made)])
        made.unlink()
        open_to_others(folder)
        draft.rename(self._library)

    def _compile(self, crew: CommandPool, arguments: Sequence[str], made: Path, more: Sequence[Path] = ()) -> None:
        includes = (self._stand_ins(), *self._torch.include_folders(), *more, python_include())
        command = [
            *(str(self._cxx), lean.DEFINE),
            *(item for path in includes for item in ("-isystem", str(path))),
            *(word for flag in self._torch.defines() for word in shlex.split(flag)),
            *("-fPIC", f"-std={self._torch.cxx_standard}", *arguments, "-o", str(made)),
        ]
        try:
            self._run(crew, command)
        except (MachineError, CommandPoolClosed):
            made.unlink(missing_ok=True)
            raise

    def _run(self, crew: CommandPool, command: Sequence[str]) -> None:
        try:
            crew.run(command, timeout_s=_TIMEOUT_S).check_returncode()
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or ""
            raise MachineError(f"compiling torch's headers failed: {error}: {output[:400]}") from error


def variant_for(flags: tuple[str, ...], standard: str) -> str | None:
    """Return the variant of precompiled header that fits a g++ unit, or None.

    `flags` are the unit's own flags, `standard` is the language standard of the precompiled headers.
    """
    optimised = False
    for word in (word for flag in flags for word in flag.split()):
        if re.fullmatch(r"-O[123]?", word):
            optimised = True
        elif word != f"-std={standard}" and not re.fullmatch(r"-W(?!p,)[\w=+-]*|-I\S*|-w|-pipe|-funroll-loops", word):
            return None
    return "optimised" if optimised else "plain"


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a file lock; yield whether it was acquired."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True

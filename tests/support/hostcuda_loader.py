"""Compile CUDA source for the host device and import it in this process."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.hostcuda.translate import build


class CompileError(RuntimeError):
    """The source does not compile; `log` is the compiler's output."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    name: str
    cpp_sources: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    functions: tuple[str, ...]
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()


_loaded: dict[str, Any] = {}


def load(
    cuda_source: str | Sequence[str],
    cpp_source: str | Sequence[str] | None = None,
    functions: Sequence[str] = (),
    *,
    checked: bool = True,
    name: str | None = None,
    flags: Sequence[str] = (),
    folder: Path | None = None,
    cache_dir: Path | None = None,
) -> Any:
    """Build an extension for the host device and import it.

    Equal sources give the same module within a process.

    Args:
        cuda_source: One or more CUDA texts.
        cpp_source: One or more C++ texts; None: the declarations of `functions`.
        functions: Names of functions to bind.
        checked: Whether kernels are built with checks.
        name: Name of the extension; None: from a digest.
        flags: Extra compiler flags.
        folder: Keeps the files; None: a folder that is removed with the process.
        cache_dir: Folder of prepared headers; None: the default one.

    Returns:
        The module; the bound functions are its attributes.

    Raises:
        CompileError: The source does not compile.
        BuildError: The source can't be translated (`hostcuda.translate.build`).
    """
    from harness.untrusted.contestant.hostcuda import shim

    cuda = (cuda_source,) if isinstance(cuda_source, str) else tuple(cuda_source)
    if cpp_source is None:
        cpp_source = declarations_of("\n".join(cuda), functions)
    cpp = (cpp_source,) if isinstance(cpp_source, str) else tuple(cpp_source)
    key = hashlib.sha256(json.dumps([cuda, cpp, list(functions), checked, list(flags), name]).encode()).hexdigest()
    if key in _loaded:
        return _loaded[key]
    headers = build.prepare_headers(cache_dir)
    spec = _Spec(
        name=name or f"hostcuda_{key[:12]}",
        cpp_sources=cpp,
        cuda_sources=cuda,
        functions=tuple(functions),
        extra_cuda_cflags=tuple(flags),
    )
    place = folder or _own_folder()
    log = ""
    for command in build.prepare(spec, place, checked=checked, headers=headers):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        log += done.stdout + done.stderr
        if done.returncode != 0:
            error = build.interpret(log)
            where = f"{error.file}:{error.line}: {error.message}" if error else f"exit code {done.returncode}"
            raise CompileError(f"{spec.name} does not compile: {where}\n{log[-3000:]}", log)
    shim.activate(headers, checked=checked)
    module = shim.load_module(spec.name, build.module_path(spec, place))
    _loaded[key] = module
    return module


def declarations_of(cuda_source: str, functions: Sequence[str]) -> str:
    """The declarations of functions that a CUDA source defines at the start of a line, as for `cpp_sources`."""
    found = []
    for name in functions:
        match = re.search(rf"^(?!return\b|static\b)[\w:][\w:<>,&* ]*\b{name}\([^)]*\)(?=\s*\{{)", cuda_source, re.M)
        if match is not None:
            found.append(f"{match[0]};\n")
    return "".join(found)


def _own_folder() -> Path:
    """Make a folder that is removed when this process ends.

    The end of a fork of this process does not remove it.
    """
    place, owner = Path(tempfile.mkdtemp(prefix="hostcuda-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(place, ignore_errors=True)

    atexit.register(remove)
    return place

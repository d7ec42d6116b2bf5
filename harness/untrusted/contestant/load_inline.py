"""The contestant's `load_inline` and `load`.

They load prebuilt extensions and build others here.

Runs in the solution's process, before its first line. The functions are replaced in `torch.utils.cpp_extension` itself,
so every way of importing them works. This module knows only paths of the solution's own modules.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension

from harness.hostcuda.toolchain import HostToolchain
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import Toolchain
from harness.untrusted.builder.load_inline_calls import Unforeseen, bind, read_files, read_inline

_Read = Callable[[Mapping[str, Any]], ExtensionSpec]
BuildHere = Callable[[ExtensionSpec, Path], Path]
"""Builds a specification in an empty folder and returns the module; raises `RuntimeError` with the error."""


def install(
    modules: Sequence[Mapping[str, Any]], *, fallback: bool = True, build_here: BuildHere | None = None
) -> list[str]:
    """Replace torch's functions.

    `modules` is the result of `BuildOutcome.injected()`: extensions with their paths, or with their build errors, which
    are raised as torch raises them. With `fallback=False`, any other extension raises `RuntimeError`; otherwise torch
    builds it in a private folder, or `build_here` does (host device).

    Returns a list, to which a note is added for each extension that was not prebuilt.
    """
    injector = _Injector({str(module["digest"]): module for module in modules}, fallback, build_here)
    extension = torch.utils.cpp_extension
    for name, read in (("load_inline", read_inline), ("load", read_files)):
        setattr(extension, name, injector.replacement(getattr(extension, name), read))
    return injector.notes


def build_with(toolchain: Toolchain) -> BuildHere:
    """Return a `build_here` that runs a toolchain's commands in this sandbox.

    Their output goes to stderr.
    """

    def build_here(spec: ExtensionSpec, folder: Path) -> Path:
        if (failure := toolchain.refuse(spec)) is not None:
            raise RuntimeError(f"Error building extension '{spec.name}': {failure.reason}")
        plan = toolchain.prepare(spec, folder)
        environ = os.environ | plan.environ
        for command in plan.commands:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            sys.stderr.write(done.stdout)
            if done.returncode != 0:
                error = toolchain.interpret(spec, done.stdout).error
                said = error.sentence() if error is not None else f"exit code {done.returncode}"
                raise RuntimeError(f"Error building extension '{spec.name}': {said}")
        return folder / plan.product

    return build_here


def host_builder(host_runtime: Path, *, checked: bool) -> BuildHere:
    """Return `build_here` for the host device.

    `host_runtime` is the folder of its libraries (one of `BuildOutcome.runtime`).
    """
    # This process can't write to the cache, so it can't create lean headers: it uses the full ones.
    return build_with(HostToolchain(host_runtime.parent, checked=checked, lean_headers=False))


class _Injector:
    def __init__(self, known: Mapping[str, Mapping[str, Any]], fallback: bool, build_here: BuildHere | None) -> None:
        self.notes: list[str] = []
        self._known = known
        self._fallback = fallback
        self._build_here = build_here
        self._loaded: dict[str, types.ModuleType | str] = {}
        self._lock = threading.RLock()

    def replacement(self, original: Callable[..., Any], read: _Read) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(*args: Any, **kwargs: Any) -> Any:
            given = bind(original, args, kwargs)
            try:
                spec = read(given)
            except Unforeseen as reason:
                return self._original(original, given, str(reason))
            with self._lock:
                digest = spec.digest
                if digest not in self._loaded:
                    self._loaded[digest] = self._load(original, given, spec)
                return self._loaded[digest]

        return load

    def _load(self, original: Callable[..., Any], given: dict[str, Any], spec: ExtensionSpec) -> Any:
        known = self._known.get(spec.digest)
        if known is None:
            if self._build_here is None:
                return self._original(original, given, "not found by the discovery")
            self._refuse_or_note(spec.name, "not found by the discovery")
            begin = time.perf_counter()
            path = self._build_here(spec, Path(tempfile.mkdtemp(prefix="extension-")))
            self.notes.append(f"built {spec.name} in {time.perf_counter() - begin:.1f} s")
            return _import(spec.name, path, spec.is_python_module)
        if "error" in known:
            raise RuntimeError(f"Error building extension '{spec.name}': {known['error']}")
        return _import(spec.name, Path(known["path"]), spec.is_python_module)

    def _original(self, original: Callable[..., Any], given: dict[str, Any], reason: str) -> Any:
        """Let torch build it, in a private folder."""
        name = str(given.get("name"))
        self._refuse_or_note(name, reason)
        given["build_directory"] = tempfile.mkdtemp(prefix="extension-")
        # torch looks for ninja on PATH, which lacks the folder of an environment that is not activated.
        os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)))
        begin = time.perf_counter()
        found = original(**given)
        self.notes.append(f"built {name} in {time.perf_counter() - begin:.1f} s")
        return found

    def _refuse_or_note(self, name: str, reason: str) -> None:
        if not self._fallback:
            raise RuntimeError(f"extension {name!r} was not built ahead ({reason})")
        self.notes.append(f"building {name} where the solution runs: {reason}")


def _import(name: str, path: Path, is_python_module: bool) -> types.ModuleType | str:
    """Load the module as torch does after a build."""
    if not is_python_module:
        load_library: Callable[[str], None] = torch.ops.load_library
        load_library(os.fspath(path))
        return os.fspath(path)
    loader = importlib.machinery.ExtensionFileLoader(name, os.fspath(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module

"""Build extensions for the host device.

Trusted side. Plain C++ is compiled as for any device. CUDA sources are compiled for the CPU: this module only writes
command lines, and the builder's sandbox translates and compiles.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.choices import Syntax
from harness.core.environment import MachineError
from harness.core.preparing import TellPreparing, untold
from harness.core.status import Failure, Status, one_line
from harness.core.subprocesses import CommandPool, CommandPoolClosed
from harness.hostcuda.translate import ask_nvcc
from harness.hostcuda.translate import build as hostcuda
from harness.toolchain.diagnostics import Diagnostics, first_error, not_emulated, own_fault
from harness.toolchain.nvcc_toolchain import NvccToolchain
from harness.toolchain.spec import ExtensionSpec, is_cuda_file
from harness.toolchain.toolchain import EMULATED, Command, Plan
from harness.toolchain.units import texts_of

MANY_FULL = 3
"""Number of extensions that need all of torch's headers from which these are precompiled.

Precompiling takes 48 s on two processors and then saves 16 s of 32 s per extension (torch 2.13, g++ 12.2).
"""


ASKED_CAPABILITY = (9, 0)
"""Compute capability for which nvcc is asked, unless the extension's own flags say another."""

_LIBRARY_TYPES = Path(__file__).resolve().with_name("library_types")
_INCLUDE = Path(__file__).resolve().with_name("include")


class HostToolchain:
    """Toolchain for the host device: g++ for one CPU.

    `checked` compiles CUDA sources with the memory and race checks. The prepared headers and libraries lie below
    `cache` too; `tell` receives the progress of their preparation. Modules are linked against the libraries there, so
    the process that loads them must have activated these. With `syntax="nvcc"`, nvcc compiles CUDA sources first, as
    for a GPU, and they fail if it refuses them.

    Raises:
        MachineError: A compiler is missing; with `syntax="nvcc"` also nvcc.
    """

    def __init__(
        self,
        cache: Path,
        *,
        checked: bool = False,
        syntax: Syntax = "host",
        lean_headers: bool = True,
        tell: TellPreparing = untold,
    ) -> None:
        self._tell = tell
        self._native = NvccToolchain((), cache, lean_headers=lean_headers, tell=tell)
        self._asked = (
            NvccToolchain(
                (ASKED_CAPABILITY,), cache, lean_headers=lean_headers, last_includes=(_LIBRARY_TYPES,), tell=tell
            )
            if syntax == "nvcc"
            else None
        )
        self._cache = cache
        self._checked = checked
        self._crew = CommandPool(1)
        self._counting = threading.Lock()
        self._full = 0
        """Extensions so far that need all of torch's headers."""

    @functools.cached_property
    def fingerprint(self) -> str:
        asked = "" if self._asked is None else f" asked {self._asked.fingerprint}"
        return f"host checked {self._checked} {hostcuda.fingerprint()} {self._native.fingerprint}{asked}"

    @property
    def runtime(self) -> tuple[Path, ...]:
        return (self._prepared.folder, self._prepared.headers)

    def key(self, spec: ExtensionSpec) -> str:
        return spec.key(self.fingerprint) if spec.uses_cuda else self._native.key(spec)

    def refuse(self, spec: ExtensionSpec) -> Failure | None:
        if spec.uses_cuda and re.fullmatch(r"[A-Za-z_]\w*", spec.name, re.ASCII) is None:
            reason = one_line(f"the extension name {spec.name} is not a valid C++ identifier; rename the extension")
            return Failure(status=Status.compile_error, reason=reason, evidence={"extension": spec.name})
        return None

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        if not spec.uses_cuda:
            return self._native.prepare(spec, folder)
        for file in spec.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, encoding="utf-8", errors="surrogatepass")
        inline = _inline(spec, folder)
        own = [file.text for file in spec.files if file.path not in spec.compiled]
        prepared = self._prepared
        self._precompile_for(inline)
        commands = hostcuda.prepare(inline, folder, checked=self._checked, headers=prepared, own_headers=own)
        ask: tuple[Command, ...] = ()
        readable = self.runtime
        if self._asked is not None and spec.has_cuda_sources:
            (folder / "nvcc").mkdir()
            plan = self._asked.prepare_cuda(spec, folder / "nvcc")
            words = ("nvcc", _INCLUDE, _LIBRARY_TYPES, self._asked.cuda_include, *plan.commands[0])
            ask = ((sys.executable, "-B", ask_nvcc.__file__, *map(str, words)),)
            readable += plan.readable
        return Plan(
            commands=(*ask, *commands),
            product=hostcuda.module_path(inline, folder).name,
            headers={"cuda.cu": EMULATED},
            readable=readable,
        )

    def _precompile_for(self, spec: ExtensionSpec) -> None:
        """Precompile the extension's headers if that pays off.

        Otherwise its units parse them again.
        """
        kind = hostcuda.kind_of(spec)
        if kind is hostcuda.Precompiled.FULL:
            with self._counting:
                self._full += 1
                if self._full < MANY_FULL:
                    return
        kinds = {kind}
        if kind is not hostcuda.Precompiled.FULL and any("{" in text for text in spec.cpp_sources):
            kinds.add(hostcuda.Precompiled.SWITCHED)  # C++ code is a unit of its own
        with suppress(hostcuda.BuildError, CommandPoolClosed):
            for needed in sorted(kinds):
                hostcuda.precompile(self._crew, self._prepared, needed, checked=self._checked, tell=self._tell)

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        if not spec.uses_cuda:
            return self._native.interpret(spec, log, solution=solution)
        if self._asked is not None and ask_nvcc.REFUSED in log:
            return self._asked.interpret(spec, log, solution=solution)
        maps = texts_of(spec)
        return Diagnostics(
            error=first_error(log, maps, solution), not_emulated=not_emulated(log, maps, solution), fault=own_fault(log)
        )

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        """Warm up plain C++, and prepare the host device's runtime and headers.

        The first time this takes most of a minute.
        """
        done = dict((self._asked or self._native).warm_up(wait=wait))
        try:
            prepared = hostcuda.prepare_headers(self._cache, self._tell)
        except hostcuda.BuildError as error:
            raise MachineError(str(error)) from error
        return done | {"hostcuda": str(prepared.folder)}

    def close(self) -> None:
        self._crew.end()
        self._native.close()

    @functools.cached_property
    def _prepared(self) -> hostcuda.PreparedHeaders:
        try:
            return hostcuda.prepare_headers(self._cache, self._tell)
        except hostcuda.BuildError as error:
            raise MachineError(str(error)) from error


def _inline(spec: ExtensionSpec, folder: Path) -> ExtensionSpec:
    """The same extension with its files as texts; its own headers are in `folder`."""
    if not spec.compiled:
        return spec
    texts = {file.path: file.text for file in spec.files}
    return replace(
        spec,
        cpp_sources=tuple(texts[name] for name in spec.compiled if not is_cuda_file(name)),
        cuda_sources=tuple(texts[name] for name in spec.compiled if is_cuda_file(name)),
        compiled=(),
        no_implicit_headers=True,
        extra_include_paths=(str(folder), *(str(folder / path) for path in spec.extra_include_paths)),
    )

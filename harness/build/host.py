"""Extensions for the host device: plain C++ as it is, CUDA sources for the CPU.

Trusted side. Imports `build.native` for the former and `hostcuda` for the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.build.diagnostics import Diagnostics
from harness.build.native import NvccToolchain
from harness.build.spec import ExtensionSpec
from harness.build.toolchain import Plan
from harness.model import Failure, Status, one_line


class HostToolchain:
    """g++ for one CPU. `checked` compiles CUDA sources with the memory and race checks."""

    def __init__(self, cache: Path, *, checked: bool = False) -> None:
        self._native = NvccToolchain(None, cache)
        self._checked = checked

    @property
    def fingerprint(self) -> str:
        return f"host checked {self._checked} {self._native.fingerprint}"

    def key(self, spec: ExtensionSpec) -> str:
        return self._native.key(spec)

    def refuse(self, spec: ExtensionSpec) -> Failure | None:
        if not spec.uses_cuda:
            return None
        return Failure(
            status=Status.not_emulated,
            reason=one_line(f"extension {spec.name} has CUDA sources, which can't be run on the CPU yet"),
            evidence={"extension": spec.name},
        )

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        return self._native.prepare(spec, folder)

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        return self._native.interpret(spec, log, solution=solution)

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        return self._native.warm_up(wait=wait)

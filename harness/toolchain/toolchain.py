"""Protocol of a toolchain, which turns a specification into a loadable module.

Trusted side. A toolchain writes sources and a list of commands into a folder, and runs none of them. `BuildAttempt`
runs them in a sandbox; the toolchain then reads their log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.core.json_value import JsonObject
from harness.core.status import Failure
from harness.toolchain.diagnostics import NOTE, Diagnostics
from harness.toolchain.spec import ExtensionSpec

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to build one extension in a folder that holds its sources.

    Attributes:
        commands: Commands that run one after another in the folder; each must exit with 0.
        product: Name of the module's file in the folder.
        headers: The way that each unit is tried first, as in `BuildReport.headers`.
        second_try: Commands that build with full headers, run if the module has undefined symbols of torch. May be
            empty.
        readable: Paths outside the folder and the system that the commands read.
        environ: Added to the commands' environment.
    """

    commands: tuple[Command, ...]
    product: str
    headers: Mapping[str, str] = field(default_factory=dict)
    second_try: tuple[Command, ...] = ()
    readable: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


class Toolchain(Protocol):
    """A way to build extensions for one device."""

    @property
    def fingerprint(self) -> str:
        """Everything except the specification that changes the result.

        Compilers, torch, architectures, flags.
        """

    @property
    def runtime(self) -> tuple[Path, ...]:
        """Folders outside the system that must be readable where modules are loaded."""

    def key(self, spec: ExtensionSpec) -> str:
        """Return the content address of the module for `spec`."""

    def refuse(self, spec: ExtensionSpec) -> Failure | None:
        """Return why this toolchain can't build `spec`, or None."""

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        """Write sources and build files.

        Returns:
            The commands to run in `folder`.
        """

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        """Parse what the commands printed. The text comes from a sandbox and is a claim.

        Args:
            spec: The extension.
            log: The commands' output.
            solution: Text of the solution's file, to find errors in it.
        """

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        """Create the files that builds share, once per torch and compiler.

        These are lean and precompiled headers, bindings and stub libraries.

        Args:
            wait: If another process is creating them, wait for it; otherwise return at once.

        Returns:
            The steps that were done, JSON-able.
        """

    def close(self) -> None:
        """End the toolchain's own processes. Idempotent; no build may follow."""


QUICK_FAILED = f"{NOTE} no quick build of"
"""Printed by a build before the name of a unit whose fast path failed."""

LEAN_FAILED = f"{NOTE} lean headers did not suffice for"
"""Printed by a build before the name of a unit that is compiled again with the full headers."""


EMULATED = "emulated"
"""Value in `BuildReport.headers` for CUDA sources that were compiled for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport(JsonObject):
    """Facts about one build, stored with the module.

    Attributes:
        wall_s: Seconds that the commands took.
        headers: How each unit was compiled: with `lean` or `full` headers, by a fast path (`split`: CUDA in two parts;
            `prebuilt`: compiled bindings), or `emulated` (host device).
        diagnostics: The parsed log.
    """

    wall_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

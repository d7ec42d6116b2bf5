"""What turns a specification into a loadable module: the interface, and the values that pass through it.

Trusted side. A toolchain writes sources and a list of commands into a folder; it runs no command on them itself.
Whoever does (`build.builder`) does so in a sandbox, and hands the log back to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.core.status import Failure
from harness.toolchain.diagnostics import NOTE, Diagnostics
from harness.toolchain.spec import ExtensionSpec

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to build one extension in a folder that holds its sources.

    `commands` run one after another in the folder, each must exit with 0; then `product`, a file name in the
    folder, is the module. Where it has undefined symbols, `second_try` (commands that start over by the slow and
    sure way; empty where there is none) gets a chance. `headers` says how each unit is tried first, in the words of
    `BuildReport`. `readable` are paths outside the folder that the commands need beside the system's own; `environ` is
    added to their environment.
    """

    commands: tuple[Command, ...]
    product: str
    headers: Mapping[str, str] = field(default_factory=dict)
    second_try: tuple[Command, ...] = ()
    readable: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


class Toolchain(Protocol):
    """One way of building extensions for one device."""

    @property
    def fingerprint(self) -> str:
        """Everything beside the specification that decides what comes out: compilers, torch, architecture, flags."""

    @property
    def runtime(self) -> tuple[Path, ...]:
        """Folders that have to be readable where built modules are loaded, beside the system's own."""

    def key(self, spec: ExtensionSpec) -> str:
        """Content address of what this toolchain makes of `spec`."""

    def refuse(self, spec: ExtensionSpec) -> Failure | None:
        """Why this toolchain can't build `spec` at all; None where it can try."""

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        """Write sources and build files into `folder`, which exists and is empty."""

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        """Read what the commands printed. The text is a claim: it comes from a sandbox.

        With the text of the solution's file, errors are placed in that too.
        """

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        """Make what builds share (precompiled headers), once per torch and compiler; returns what was done.

        Where another process is at it: waits for it, or with `wait=False` returns.
        """

    def close(self) -> None:
        """End what it runs of its own at this moment: nothing is built with it any more. Idempotent."""


QUICK_FAILED = f"{NOTE} no quick build of"
"""Printed by a build, before the name of the unit that is then compiled as torch does it."""

LEAN_FAILED = f"{NOTE} lean headers did not suffice for"
"""Printed by a build, before the name of the unit that starts over with the full headers."""


EMULATED = "emulated"
"""What `BuildReport.headers` says of CUDA sources that were compiled for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What is kept of one build beside the module, in the cache too. `wall_s` is what the commands took.

    `headers` says for each compiled unit which of torch's headers served: `lean`, `full`, or `emulated` (host); and of
    units with lean headers which were built the quick way: `split` (CUDA in two parts), `prebuilt` (bindings).
    """

    wall_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "wall_s": self.wall_s,
            "headers": dict(self.headers),
            "diagnostics": self.diagnostics.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BuildReport:
        """The inverse of `to_json`. Raises `ValueError`, `KeyError` or `TypeError` where it is none."""
        return cls(
            wall_s=float(value["wall_s"]),
            headers={str(unit): str(which) for unit, which in value["headers"].items()},
            diagnostics=Diagnostics.from_json(value["diagnostics"]),
        )

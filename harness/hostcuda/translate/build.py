"""Command lines that build an extension with CUDA sources for the CPU.

Trusted side. Writes files only into the given folder. Nothing of a solution is parsed or executed here: `compile.py`
does that, as the command that `prepare` returns, in the builder's sandbox.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.hostcuda.translate import kinds
from harness.hostcuda.translate.kinds import Precompiled, header_name
from harness.hostcuda.translate.preparation import (
    BuildError,
    PreparedHeaders,
    default_cache,
    fingerprint,
    precompile,
    prepare_headers,
    variant_flags,
)

__all__ = [
    "BuildError",
    "ExtensionSpecLike",
    "HostCompilerError",
    "Precompiled",
    "PreparedHeaders",
    "default_cache",
    "findings",
    "fingerprint",
    "interpret",
    "kind_of",
    "module_path",
    "precompile",
    "prepare",
    "prepare_headers",
]

_COMPILE = Path(__file__).resolve().with_name("compile.py")


class ExtensionSpecLike(Protocol):
    """The fields used of an extension's specification, for instance `ExtensionSpec`."""

    @property
    def name(self) -> str: ...
    @property
    def cpp_sources(self) -> Sequence[str]: ...
    @property
    def cuda_sources(self) -> Sequence[str]: ...
    @property
    def extra_cflags(self) -> Sequence[str]: ...
    @property
    def extra_cuda_cflags(self) -> Sequence[str]: ...
    @property
    def extra_include_paths(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCompilerError:
    """The first error in a compiler's output.

    `line` is the solution's own if `file` is `cuda.cu` or `main.cpp`.
    """

    file: str
    line: int
    message: str


def module_path(spec: ExtensionSpecLike, folder: Path) -> Path:
    """Path of the built module after the commands of `prepare` have succeeded."""
    return folder / f"{spec.name}.so"


def kind_of(spec: ExtensionSpecLike) -> Precompiled:
    """The kind of precompiled headers for this extension, by its flags and texts."""
    return kinds.kind_of([*spec.cpp_sources, *spec.cuda_sources], spec.extra_cuda_cflags)


def prepare(
    spec: ExtensionSpecLike,
    folder: Path,
    *,
    checked: bool,
    headers: PreparedHeaders,
    functions: Mapping[str, str] | Sequence[str] | None = None,
    own_headers: Sequence[str] = (),
) -> list[tuple[str, ...]]:
    """Write the files for the build into `folder`, and return the commands.

    Run in order in `folder`, the commands make `module_path(spec, folder)`. They read `folder`, the prepared headers
    and torch's installation, and write only `folder`.

    Args:
        spec: The extension.
        folder: The build folder.
        checked: Whether to compile with the memory and race checks.
        headers: The prepared headers of this machine.
        functions: Functions to bind, with docstrings if a mapping; None takes `spec.functions`. Without any, the
            sources
            bind by themselves.
        own_headers: Texts of the headers that the sources include from the extension's own folders.

    Returns:
        Command lines, to be run in the builder's sandbox.
    """
    wanted = functions if functions is not None else getattr(spec, "functions", None)
    if not wanted:
        names: dict[str, str] | None = None
    elif isinstance(wanted, Mapping):
        names = {str(k): str(v) for k, v in wanted.items()}
    else:
        names = {}
        for item in wanted:
            if isinstance(item, str):
                names[item] = item
            else:
                names[str(item[0])] = str(item[1])
    job = {
        "name": spec.name,
        "cpp_sources": list(spec.cpp_sources),
        "cuda_sources": list(spec.cuda_sources),
        "functions": names,
        "cpp_flags": list(spec.extra_cflags),
        "cuda_flags": list(spec.extra_cuda_cflags),
        "include_paths": [str(p) for p in spec.extra_include_paths],
        "no_implicit_headers": bool(getattr(spec, "no_implicit_headers", False)),
        "own_headers": [str(text) for text in own_headers],
        "checked": checked,
        "mode_flags": list(variant_flags(checked=checked)),
        "headers": {k: (str(v) if isinstance(v, Path) else v) for k, v in asdict(headers).items()},
        "precompiled": {kind.value: header_name(kind, checked=checked) for kind in Precompiled},
        "module": str(module_path(spec, folder)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(job))
    return [(sys.executable, str(_COMPILE), str(folder))]


def findings(folder: Path) -> dict[str, Any]:
    """Return what the rewriter found in the sources built in `folder`.

    Keys: `not_emulated` (a list of line and construct), `kernels`. Both are empty if there is no valid
    file. The sandboxed command wrote them, so only their form is checked.
    """
    try:
        raw = json.loads((folder / "findings.json").read_text())
        return {
            "not_emulated": [
                {"line": int(x["line"]), "construct": str(x["construct"])[:300]} for x in raw["not_emulated"]
            ],
            "kernels": [str(x)[:300] for x in raw["kernels"]],
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {"not_emulated": [], "kernels": []}


_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<message>.*)$", re.M)


def interpret(log: str) -> HostCompilerError | None:
    """Return the first compiler or linker error in a log, or None."""
    found = list(_ERROR.finditer(log))
    own = next((m for m in found if m["file"] in ("cuda.cu", "main.cpp")), None)
    match = own or (found[0] if found else None)
    if match is not None:
        return HostCompilerError(file=match["file"], line=int(match["line"]), message=match["message"].strip())
    undefined = re.search(r"undefined (?:reference to|symbol:?) [`']?([^'\n]+)", log)
    if undefined:
        return HostCompilerError(file="", line=0, message=f"undefined reference to {undefined[1]}")
    return None

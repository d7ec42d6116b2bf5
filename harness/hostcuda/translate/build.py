"""Builds an extension with CUDA sources for the CPU: the command lines, and how to read what they left.

Charter: pure but for the files it writes into the folder it is given. Trusted side; nothing of a solution's is
parsed or executed here: `compile.py` does that, as the command that `prepare` returns, inside the builder's
sandbox. Imports `kinds` and `preparation` beside it.
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
    """What is read of an extension's specification (harness.toolchain's ExtensionSpec has these and more)."""

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
    """The first error in a compiler's output. `line` is the solution's own where `file` is `cuda.cu` or `main.cpp`."""

    file: str
    line: int
    message: str


def module_path(spec: ExtensionSpecLike, folder: Path) -> Path:
    """Where the built module lies once the commands of `prepare` have succeeded."""
    return folder / f"{spec.name}.so"


def kind_of(spec: ExtensionSpecLike) -> Precompiled:
    """What units of this extension take of what can be precompiled, as far as its flags and texts say."""
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
    """Writes what compiling needs into `folder`; returns the commands that, run in order there, make
    `module_path(spec, folder)`.

    `functions` are those to bind (with docstrings, if a mapping); left out, `spec.functions` is taken; without any,
    the sources bind for themselves. `own_headers` are texts of headers that the sources include from the
    extension's own folders. The commands read `folder`, the preparation and torch's installation, and write
    `folder` only. Nothing of the solution is parsed here.
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
    """What the rewriter found in the sources built in `folder`: `not_emulated` (a list of line and construct),
    `kernels`, `subscript_lines`. Written by the sandboxed command, so only its form is vouched for; empty where
    there is none.
    """
    try:
        raw = json.loads((folder / "findings.json").read_text())
        return {
            "not_emulated": [
                {"line": int(x["line"]), "construct": str(x["construct"])[:300]} for x in raw["not_emulated"]
            ],
            "kernels": [str(x)[:300] for x in raw["kernels"]],
            "subscript_lines": [int(x) for x in raw["subscript_lines"]],
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {"not_emulated": [], "kernels": [], "subscript_lines": []}


_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<message>.*)$", re.M)


def interpret(log: str) -> HostCompilerError | None:
    """The first compiler or linker error in a log, None where there is none."""
    found = list(_ERROR.finditer(log))
    own = next((m for m in found if m["file"] in ("cuda.cu", "main.cpp")), None)
    match = own or (found[0] if found else None)
    if match is not None:
        return HostCompilerError(file=match["file"], line=int(match["line"]), message=match["message"].strip())
    undefined = re.search(r"undefined (?:reference to|symbol:?) [`']?([^'\n]+)", log)
    if undefined:
        return HostCompilerError(file="", line=0, message=f"undefined reference to {undefined[1]}")
    return None

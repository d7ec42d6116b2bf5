"""Fast paths to compile the units of an extension, tried before lean headers.

Trusted side. There are three: generated bindings without pybind11 in the unit, linked with a library that
`SharedHeaders` compiled once; a CUDA source compiled in two parts (`split`); and both in one unit. A fast path that
fails falls back in the build itself, so these checks only avoid useless attempts. See guides/design/split_builds.md.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
from harness.toolchain.cuda_source.main_declarations import declarations
from harness.toolchain.headers.shared import BINDINGS
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.split import flags
from harness.toolchain.units import Unit

WAYS = ("prebuilt", "split", "joined")
"""`prebuilt`: bindings from a compiled library. `split`: CUDA sources in two parts. As in `BuildReport.headers`.
`joined`, beside both: a `main.cpp` that only declares functions is compiled with the host part of `cuda.cu`."""

_UNIT_SCRIPT = Path(harness.__file__).parent / "untrusted" / "builder" / "split_compile.py"
_CHANGES_ABI = re.compile(r"_GLIBCXX_|-fno-|-fsanitize|-flto|-m32|-include|-x$|-fabi|-std=.*98")
_MENTIONS_PYTHON = re.compile(r"\bpybind11|\bPYBIND11|\bpy::|\bPyObject\b|\bTHP|torch/python\.h|wrap_pybind_function")


_HARMLESS_FLAG = re.compile(r"-(?:[OWwgmf].*|std=.+)")
"""Flags that change nothing in declarations and bindings."""

_MAIN = "harness_main"
"""Namespace of the functions that `main.cpp` declares, in a joined unit."""


def joined_bindings(spec: ExtensionSpec, main: Unit, cuda: Unit) -> dict[str, Any] | None:
    """Return how the host part of `cuda` binds the functions that `main` declares.

    That saves a compiler run. `before` and `after` are texts around the source. `names` are functions that the source
    must define for other units: only then is the result that of two units. None if `main` is more than declarations,
    or its flags may matter.
    """
    words = [word for flag in spec.extra_cflags for word in flag.split()]
    names = [name for name, _ in spec.functions or ()]
    plain = all(re.fullmatch(r"\w+", name) and not _defines(cuda.text, name) for name in names)
    if spec.no_implicit_headers or bound_text(spec, main) is None or not plain:
        return None
    declared = declarations(main.text.removesuffix(main.parts[-1][1]))
    if declared is None or not all(map(_HARMLESS_FLAG.fullmatch, words)):
        return None
    after, listed = "\n", []
    guarded = "true" if spec.with_pytorch_error_handling else "false"
    for number, (name, doc) in enumerate(spec.functions or ()):
        # The bound function has the type that `main.cpp` declares: another one is not found, as with two units.
        chosen = f"harness_bound{number}"
        after += f"static constexpr auto {chosen} = static_cast<decltype(&{_MAIN}::{name})>(&::{name});\n"
        listed.append(f'::harness_bindings::bound<{chosen}>("{name}", "{doc}", {guarded})')
    before = f'#include <torch/types.h>\n#include "{BINDINGS}/harness_bindings.h"\n'
    before += f"namespace {_MAIN} {{\n{declared}\n}}\n"
    after += "HARNESS_BINDINGS_MODULE(TORCH_EXTENSION_NAME,\n" + ",\n".join(listed) + ")\n"
    return {"before": before, "after": after, "names": names, "marker": f"{cuda.object}.joined"}


def joined_command(cuda: Unit, main: Unit, command: str) -> str:
    """Return ninja's command for a `main` that may have been joined to `cuda`.

    `command` compiles it alone.
    """
    return f"{{ cp {cuda.object}.joined {main.object} 2>/dev/null || {command}; }}"


def _defines(text: str, name: str) -> bool:
    """Whether a text defines a macro of that name."""
    return re.search(rf"#[ \t]*define[ \t]+{name}\b", text) is not None


def bound_text(spec: ExtensionSpec, unit: Unit) -> str | None:
    """Return the unit's text with bindings that need no pybind11.

    None if the unit has no generated bindings or uses Python's API itself.
    """
    if spec.functions is None or not unit.parts or not spec.functions or not spec.is_python_module:
        return None
    name, tail, _ = unit.parts[-1]
    own = unit.text.removesuffix(tail)
    words = [word for flag in spec.extra_cflags for word in flag.split()]
    if name != "generated bindings" or _MENTIONS_PYTHON.search(own) or any(map(_CHANGES_ABI.search, words)):
        return None
    guarded = "true" if spec.with_pytorch_error_handling else "false"
    listed = ",\n".join(
        f'::harness_bindings::bound<&{function}>("{function}", "{doc}", {guarded})' for function, doc in spec.functions
    )
    return (
        f'#include "{BINDINGS}/harness_bindings.h"\n'
        f'#line 1 "{unit.file}"\n'
        f"{own}\nHARNESS_BINDINGS_MODULE(TORCH_EXTENSION_NAME,\n{listed})\n"
    )


def host_flags(nvcc_flags: Sequence[str]) -> tuple[str, ...] | None:
    """Return the author's nvcc flags for g++; None if one is unknown."""
    try:
        return tuple(flags.for_host([word for flag in nvcc_flags for word in flag.split()]))
    except flags.UnknownFlag:
        return None


def split_settings(
    cxx: Path,
    lean_flags: Sequence[str],
    torch: Sequence[Path],
    include: Sequence[Path],
    bindings: Mapping[str, Any] | None,
) -> str:
    """Return the settings file for `untrusted/builder/split_compile.py`."""
    value = {
        "cxx": str(cxx),
        "host_flags": list(lean_flags),
        "torch": [str(path) for path in torch],
        "include": [str(path) for path in include],
        "bindings": bindings,
    }
    return json.dumps(value, indent=1)


def split_command(unit: Unit, settings: str) -> str:
    """Return ninja's command for a CUDA unit in two parts."""
    script = shlex.join([sys.executable, "-B", str(_UNIT_SCRIPT)]).replace("$", "$$")
    return f"{script} {unit.file} {unit.object} {settings} $nvcc $cuda_cflags"


def bound_command(unit: Unit, options: str, text: str) -> str:
    """Return ninja's command for a unit with compiled bindings.

    `options` is a file of flags, `text` the file to compile.
    """
    return f"$cxx @{options} $cflags -c {text} -o {unit.object}"

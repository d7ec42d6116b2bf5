"""Fast paths to compile the units of an extension, tried before lean headers.

Trusted side. There are two: generated bindings without pybind11 in the unit, linked with a library that
`SharedHeaders` compiled once; and a CUDA source compiled in two parts (`split`). A fast path that fails falls back in
the build itself, so these checks only avoid useless attempts. See guides/design/split_builds.md.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import harness
from harness.toolchain.headers.shared import BINDINGS
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.split import flags
from harness.toolchain.units import Unit

WAYS = ("prebuilt", "split")
"""`prebuilt`: bindings from a compiled library. `split`: CUDA sources in two parts. As in `BuildReport.headers`."""

_UNIT_SCRIPT = Path(harness.__file__).parent / "untrusted" / "builder" / "split_compile.py"
_CHANGES_ABI = re.compile(r"_GLIBCXX_|-fno-|-fsanitize|-flto|-m32|-include|-x$|-fabi|-std=.*98")
_MENTIONS_PYTHON = re.compile(r"\bpybind11|\bPYBIND11|\bpy::|\bPyObject\b|\bTHP|torch/python\.h|wrap_pybind_function")


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


def split_settings(cxx: Path, lean_flags: Sequence[str], torch: Sequence[Path], include: Sequence[Path]) -> str:
    """Return the settings file for `untrusted/builder/split_compile.py`."""
    value = {
        "cxx": str(cxx),
        "host_flags": list(lean_flags),
        "torch": [str(path) for path in torch],
        "include": [str(path) for path in include],
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

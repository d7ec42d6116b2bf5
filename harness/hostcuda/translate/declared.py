"""Decide which names a unit of `load_inline` sees, where no compiler can tell.

Runs in the builder's sandbox; text in, text out. torch compiles `main.cpp`, with the bindings, apart from `cuda.cu`,
and each sees only what it includes. The host device joins a `main.cpp` that only declares functions to `cuda.cu`,
which saves a compiler run; the checks here give such a unit the errors of two. See guides/design/host_device.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.hostcuda.translate.kinds import binds
from harness.toolchain.cuda_source.main_declarations import blanked, declarations

__all__ = [
    "MAIN",
    "has_torch",
    "joined_declarations",
    "torch_includes",
    "undeclared",
    "undefined",
    "unexported",
]

MAIN = "hostcuda_main"
"""Namespace of the functions that `main.cpp` declares, in a joined unit. `cuda.cu` does not see them there."""

_BOUND = "bound_functions"
"""Name for the lines of a joined unit that find the definition of each declared function, one a line."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.M)
_UMBRELLA = re.compile(r"torch/(?:extension|torch|all|types|script|python)\.h")
"""Headers that include all of torch that lean headers stand for."""

_OF_TORCH = re.compile(r"(?:torch|ATen|c10)/.+")
_OF_PYTHON = re.compile(r"torch/(?:extension|python)\.h|torch/csrc/.+|pybind11/.+|Python\.h")
_PYTHON = re.compile(r"\b(?:PYBIND11_MODULE|pybind11)\b|\bpy(?=::)")
_WITHOUT_HALVES = re.compile(
    r"cuda(?:_runtime(?:_api)?)?\.h|math_constants\.h|(?:assert|float|limits|math|std(?:io|int|lib)|string)\.h|[a-z_]+"
)
"""Headers that declare none of CUDA's small floating-point types. torch's include those."""

_HALVES = re.compile(
    r"\b(?:__half2?|half2|__(?:float2half|half2float)\w*|__nv_(?:bfloat162?|fp8_\w+)|__float2bfloat16\w*)\b"
)

_ANY_ERROR = re.compile(r"^\S+:\d+:(?:\d+:)? (?:fatal )?error: ", re.M)
_ROOT = re.compile(r"\b(?:torch|at|c10)(?=\s*::)")


def has_torch(text: str, job: Mapping[str, Any]) -> bool:
    """Whether a unit includes all of torch.

    torch itself adds an umbrella header, or the text has one.
    """
    included = _INCLUDE.findall("\n".join([text, *job["own_headers"]]))
    return not job["no_implicit_headers"] or any(_UMBRELLA.fullmatch(name) for name in included)


def torch_includes(text: str, installed: Path) -> str:
    """The includes of torch's headers in a text, as text.

    A unit without umbrella headers has them first: torch's headers must be read before the words of a CUDA compiler
    are defined.
    """
    names = dict.fromkeys(name for name in _INCLUDE.findall(text) if _OF_TORCH.fullmatch(name))
    roots = (installed, installed / "torch" / "csrc" / "api" / "include")
    return "".join(f"#include <{name}>\n" for name in names if any((root / name).exists() for root in roots))


def joined_declarations(declared: str, functions: Iterable[str]) -> tuple[str, str, dict[str, str]]:
    """Text for a joined unit: before `cuda.cu`, after it, names to bind.

    The bound function has the type that `main.cpp` declares, as with torch, so a definition with other parameters is
    not found. `cuda.cu` may overload the name.
    """
    before = f'namespace {MAIN} {{\n#line 1 "main.cpp"\n{declared}\n}}\n'
    after, names = f'#line 1 "{_BOUND}"\n', {}
    for number, function in enumerate(dict.fromkeys(functions)):
        names[function] = f"hostcuda_bound{number}"
        after += (
            f"static constexpr auto& {names[function]} = *static_cast<decltype(&{MAIN}::{function})>(&::{function});\n"
        )
    return before, after + '#line 1 "bindings"\n', names


def undeclared(texts: Mapping[str, str], job: Mapping[str, Any]) -> str:
    """Errors of g++ for names that a unit uses but does not see.

    Args:
        texts: `main.cpp` and `cuda.cu`.
        job: The build's job.

    Returns:
        Lines of a compiler's log; empty if the compiler decides.
    """
    main, functions = texts["main.cpp"], job["functions"]
    end = main.count("\n") + 1
    log = ""
    for file, text in texts.items():
        log += _without_python(file, text, job) + _without_halves(file, text, job)
    if functions is None:
        return log
    if any(re.search(r"\bPYBIND11_MODULE\b", blanked(text)) and binds(text) for text in texts.values()):
        log += (
            f"main.cpp:{end}:1: error: redefinition of ‘PyInit_{job['name']}’: the sources define a module themselves,"
            " so functions= must be left out\n"
        )
    if job["no_implicit_headers"] and not _includes(main, job, _OF_PYTHON):
        log += (
            f"main.cpp:{end}:1: error: expected constructor, destructor, or type conversion before ‘(’ token:"
            " PYBIND11_MODULE of functions= needs #include <torch/extension.h> in cpp_sources\n"
        )
    said = declarations(main)
    if said is None:
        return log
    if job["no_implicit_headers"] and not has_torch(main, job) and (found := _ROOT.search(said)):
        log += f"main.cpp:{said.count(chr(10), 0, found.start()) + 1}:1: error: ‘{found[0]}’ has not been declared\n"
    for function in functions:
        if re.fullmatch(r"\w+", function) and not re.search(rf"\b{function}\s*\(", said):
            log += (
                f"main.cpp:{end}:1: error: ‘{function}’ was not declared in this scope: cpp_sources must declare it,"
                " because functions= lists it\n"
            )
    return log


def _includes(text: str, job: Mapping[str, Any], pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(name) for name in _INCLUDE.findall("\n".join([text, *job["own_headers"]])))


def _without_python(file: str, text: str, job: Mapping[str, Any]) -> str:
    """The error for names of pybind11 or Python in a unit that includes neither.

    torch adds `torch/extension.h` to `main.cpp` only; `torch/types.h` has neither.
    """
    if (file == "main.cpp" and not job["no_implicit_headers"]) or _includes(text, job, _OF_PYTHON):
        return ""
    if re.search(r'^[ \t]*#[ \t]*include[ \t]*"', text, re.M):
        return ""  # a header of the author's may include them
    said = blanked(text)
    found = _PYTHON.search(said)
    if found is None or re.search(r"\bnamespace\s+py\b|^[ \t]*#[ \t]*define[ \t]+PYBIND11", said, re.M):
        return ""
    line = said.count("\n", 0, found.start()) + 1
    return (
        f"{file}:{line}:1: error: ‘{found[0]}’ was not declared in this scope: this unit does not include"
        " <torch/extension.h>\n"
    )


def _without_halves(file: str, text: str, job: Mapping[str, Any]) -> str:
    """The error for half types of CUDA in a unit without their headers.

    The host device's own headers need these types, so the compiler knows them.
    """
    names = _INCLUDE.findall("\n".join([text, *job["own_headers"]]))
    if not job["no_implicit_headers"] or not all(_WITHOUT_HALVES.fullmatch(name) for name in names):
        return ""
    said = blanked(text)
    found = _HALVES.search(said)
    if found is None or re.search(rf"#[ \t]*define[ \t]+{found[0]}\b", said):
        return ""
    return f"{file}:{said.count(chr(10), 0, found.start()) + 1}:1: error: ‘{found[0]}’ was not declared in this scope\n"


def undefined(log: str, functions: Iterable[str]) -> str:
    """The linker's error for a declared function that `cuda.cu` does not define."""
    found = re.search(rf"^{_BOUND}:(\d+):\d+: error: ", log, re.M)
    error = _ANY_ERROR.search(log)
    if found is None or error is None or error.start() < found.start():
        return ""
    name = list(functions)[int(found[1]) - 1]
    return (
        f"undefined reference to `{name}': cuda_sources define no function with the parameters and the result that"
        " cpp_sources declare\n"
    )


def unexported(unit: Path, functions: Iterable[str]) -> str:
    """The linker's error for functions that `cuda.cu` defines for itself only.

    That is: as static, inline or a template. A function that it does not define at all remains undefined in the
    module, as with torch.
    """
    wanted = list(functions)
    tool = shutil.which("nm")
    if tool is None or not wanted:
        return ""
    done = subprocess.run([tool, "-C", str(unit)], capture_output=True, text=True, check=False)
    seen = {found[1] for found in re.finditer(r"^[0-9a-f ]+ [TU] (\w+)(?:\[abi:\w+\])?\(", done.stdout, re.M)}
    return "".join(
        f"undefined reference to `{name}': cuda_sources define it, but static, inline or as a template; cpp_sources"
        " declare a function that other units see\n"
        for name in wanted
        if name not in seen
    )

"""Read how the installed torch builds extensions: headers, libraries, flags.

Trusted side. Torch is not imported, because that takes seconds. The flags are read from the text of
`torch.utils.cpp_extension`, so that torch 2.6 (C++17) and torch 2.13 (C++20) each get their own.
"""

from __future__ import annotations

import ast
import collections
import functools
import importlib.util
import json
import re
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from harness.core import python_ast
from harness.core.environment import MachineError, torch_build
from harness.core.subprocesses import python

_ASK_TIMEOUT_S = 120.0

_PYBIND_TAGS = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
"""Macros by which torch up to 2.8 makes extensions share its pybind11 types."""


Parameter = tuple[str, bool, object]
"""A parameter's name, whether it is required, and its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """One installed torch. `cuda` is its CUDA version (None: a CPU build)."""

    version: str
    cuda: str | None
    folder: Path
    cxx_standard: str
    nvcc_flags: tuple[str, ...]
    cxx11_abi: bool | None
    tags_pybind: bool
    names_th: bool
    """Whether the folders of the old TH and THC headers are searched (torch 2.6)."""
    inline_parameters: tuple[Parameter, ...] = ()
    """Parameters of `load_inline`, in order; empty if its text could not be read."""

    @property
    def include(self) -> Path:
        return self.folder / "include"

    @property
    def lib(self) -> Path:
        return self.folder / "lib"

    @property
    def has_cuda_libraries(self) -> bool:
        """Whether an extension can be linked with torch's CUDA libraries."""
        return (self.lib / "libtorch_cuda.so").exists()

    def libraries(self, *, cuda: bool) -> tuple[str, ...]:
        """Return the names of the libraries of torch to link with, in torch's order."""
        if cuda and self.has_cuda_libraries:
            return ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")
        return ("c10", "torch_cpu", "torch", "torch_python")

    def include_folders(self) -> tuple[Path, ...]:
        """Return torch's own include folders, in torch's order."""
        older = (self.include / "TH", self.include / "THC") if self.names_th else ()
        return (self.include, self.include / "torch" / "csrc" / "api" / "include", *older)

    def defines(self) -> tuple[str, ...]:
        """Return the macros that every unit is compiled with, except the extension's name."""
        found = ["-DTORCH_API_INCLUDE_EXTENSION_H"]
        if self.tags_pybind:
            found += _pybind_defines(str(self.folder))
        return (*found, *self.abi_defines())

    def abi_defines(self) -> tuple[str, ...]:
        """Return the part of `defines` that selects the C++ ABI.

        Torch puts it after the include folders.
        """
        return () if self.cxx11_abi is None else (f"-D_GLIBCXX_USE_CXX11_ABI={int(self.cxx11_abi)}",)


def python_include() -> Path:
    """Return the folder of Python.h."""
    return Path(sysconfig.get_path("include", scheme="posix_prefix"))


@functools.cache
def find_torch() -> TorchBuild:
    """Return the torch of this interpreter. Raises `MachineError` if there is none."""
    version, cuda = torch_build()
    spec = importlib.util.find_spec("torch")
    if version is None or spec is None or spec.origin is None:
        raise MachineError("torch is not installed for this Python: run make install")
    folder = Path(spec.origin).parent
    text = (folder / "utils" / "cpp_extension.py").read_text(encoding="utf-8")
    return TorchBuild(
        version=version,
        cuda=cuda,
        folder=folder,
        cxx_standard=standard_of(text),
        nvcc_flags=nvcc_flags_of(text),
        cxx11_abi=_cxx11_abi(folder) if "_GLIBCXX_USE_CXX11_ABI" in text else None,
        tags_pybind="_PYBIND11_" in text,
        names_th="'THC')" in text,
        inline_parameters=inline_parameters_of(text),
    )


def standard_of(text: str) -> str:
    """Return the C++ standard that torch's extension builder names most often.

    `c++20` or `c++17`.
    """
    names = collections.Counter(re.findall(r"-std=(c\+\+\d\d)", text))
    return names.most_common(1)[0][0] if names else "c++17"


def nvcc_flags_of(text: str) -> tuple[str, ...]:
    """Return the list `COMMON_NVCC_FLAGS` of torch's extension builder."""
    found = re.search(r"^COMMON_NVCC_FLAGS = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise MachineError("this torch's extension builder has no COMMON_NVCC_FLAGS; use torch 2.6 to 2.13")
    return tuple(str(flag) for flag in ast.literal_eval(found[1]))


def inline_parameters_of(text: str) -> tuple[Parameter, ...]:
    """Return the parameters of `load_inline`; empty if their form is unknown."""
    found = re.search(r"^def load_inline\(.*?\)(?: *->.*?)?:$", text, re.MULTILINE | re.DOTALL)
    try:
        given = python_ast.parse(f"{found[0]} pass").body[0].args if found else None  # type: ignore[attr-defined]
        if given is None or given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
            return ()
        required = len(given.args) - len(given.defaults)
        defaults = [*([None] * required), *(ast.literal_eval(item) for item in given.defaults)]
    except (SyntaxError, ValueError):
        return ()
    names = [item.arg for item in given.args]
    return tuple((name, index < required, held) for index, (name, held) in enumerate(zip(names, defaults, strict=True)))


def _cxx11_abi(folder: Path) -> bool:
    text = (folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake").read_text(encoding="utf-8")
    found = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", text)
    return found is None or found[1] == "1"


@functools.cache
def _pybind_defines(folder: str) -> list[str]:
    """Ask torch for its pybind11 tags in another process: only its binary has them."""
    names = [f"_PYBIND11_{tag}" for tag in _PYBIND_TAGS]
    question = f"import json, torch._C as c; print(json.dumps([getattr(c, n, None) for n in {names!r}]))"
    try:
        done = subprocess.run(
            python("-c", f"import torch; {question}"),
            capture_output=True,
            check=True,
            timeout=_ASK_TIMEOUT_S,
            text=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"importing torch from {folder} failed: {error}") from error
    values = json.loads(done.stdout.splitlines()[-1])
    return [f'-DPYBIND11_{tag}=\\"{value}\\"' for tag, value in zip(_PYBIND_TAGS, values, strict=True) if value]

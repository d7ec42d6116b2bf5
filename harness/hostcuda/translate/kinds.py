"""Decide which precompiled headers a unit uses, by its flags and texts.

Both sides: the sandboxed `compile` decides by it, and the trusted toolchain precompiles what `compile` will ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from harness.hostcuda.translate.macros import TORCH_SWITCHES, defines, is_switch, macros
from harness.toolchain.headers import lean

__all__ = ["Precompiled", "binds", "header_name", "kind_of", "needs_full", "switches", "without_names_of_pybind11"]


class Precompiled(StrEnum):
    """The sets of headers that are precompiled, each in both modes."""

    LEAN = "lean"
    """The parts of torch that lean units share, and CUDA's headers with torch's own switches."""
    SWITCHED = "switched"
    """The same without CUDA's headers: for units with other switches, and for `main.cpp`, which g++ compiles."""
    FULL = "full"
    """All of torch."""


_NEEDS_FULL = re.compile(
    r"\bpy::|\bpybind11\b|TORCH_LIBRARY|torch::nn\b|torch::jit\b|torch::autograd\b"
    r"|torch/script\.h|torch/library\.h|\brequires_grad\((?!\s*+(?:false|0)?+\s*+\))"
)
"""Runs in linear time, because the trusted process applies it to untrusted text."""
_NAMES_OF_PYBIND11 = re.compile(
    r"#[ \t]*+include[ \t]*+<pybind11/(?:pybind11|stl)\.h>|\bnamespace\s++py\s*+=\s*+pybind11\s*+;"
    r"|\busing\s++namespace\s++(?:pybind11|py)::literals\s*+;"
)
_ARGUMENTS = re.compile(r'\b(?:py|pybind11)::(?:arg\s*+\(\s*+"\w*+"\s*+\)|none\s*+\(\s*+\))')
"""Text of pybind11 before and in a module definition that only names functions; `bindings` replaces it."""
_BINDS = re.compile(r"PYBIND11_MODULE|TORCH_EXTENSION_NAME")


def header_name(kind: Precompiled, *, checked: bool) -> str:
    """Folder of these headers in a preparation."""
    return f"{kind}-{'checked' if checked else 'unchecked'}"


def needs_full(text: str) -> bool:
    """Whether a source needs more than lean headers, besides its own binding.

    Comments do not count.
    """
    said = _ARGUMENTS.sub(" ", without_names_of_pybind11(lean.without_comments(text)))
    return lean.needs_full(text) or _NEEDS_FULL.search(said) is not None


def without_names_of_pybind11(text: str) -> str:
    """A source without pybind11's includes and namespace aliases; lines stay."""
    return _NAMES_OF_PYBIND11.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def binds(text: str) -> bool:
    """Whether a source defines a module of its own."""
    return _BINDS.search(lean.without_comments(text)) is not None


def switches(cuda_flags: Sequence[str]) -> str:
    """The switches that decide what CUDA's headers declare, as directives.

    These are torch's own flags, then the solution's.
    """
    given = macros([*TORCH_SWITCHES, *cuda_flags])
    return defines({name: value for name, value in sorted(given.items()) if is_switch(name)})


def kind_of(texts: Iterable[str], cuda_flags: Sequence[str]) -> Precompiled:
    """The kind of headers for units of these texts.

    Sources that bind by themselves are assumed to only name functions, which lean units can bind (`bindings`). A
    failure of the lean compilation can't be foreseen here.
    """
    if any(needs_full(text) for text in texts):
        return Precompiled.FULL
    return Precompiled.LEAN if switches(cuda_flags) == switches(()) else Precompiled.SWITCHED

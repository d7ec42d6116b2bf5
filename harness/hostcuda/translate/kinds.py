"""Which precompiled headers a unit of the host device is compiled with, as its flags and its texts say.

Charter: pure. Both sides: the builder's command decides by it (`compile`), and the trusted toolchain has made what will
be asked for (`preparation.precompile`). Imports `macros` beside it, and `harness.toolchain.headers.lean`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from harness.hostcuda.translate.macros import TORCH_SWITCHES, defines, is_switch, macros
from harness.toolchain.headers import lean

__all__ = ["Precompiled", "binds", "header_name", "kind_of", "needs_full", "switches", "without_names_of_pybind11"]


class Precompiled(StrEnum):
    """What is precompiled, for each of the two modes."""

    LEAN = "lean"
    """What lean units share of torch, and CUDA's headers as torch's own switches leave them."""
    SWITCHED = "switched"
    """The same without CUDA's headers, for units whose switches are others."""
    FULL = "full"
    """All of torch."""


_NEEDS_FULL = re.compile(
    r"\bpy::|\bpybind11\b|TORCH_LIBRARY|torch::nn\b|torch::jit\b|torch::autograd\b"
    r"|torch/script\.h|torch/library\.h|\brequires_grad\((?!\s*+(?:false|0)?+\s*+\))"
)
"""In time that grows with the text alone: the trusted process reads by it what anybody may have written."""
_NAMES_OF_PYBIND11 = re.compile(
    r"#[ \t]*+include[ \t]*+<pybind11/(?:pybind11|stl)\.h>|\bnamespace\s++py\s*+=\s*+pybind11\s*+;"
    r"|\busing\s++namespace\s++(?:pybind11|py)::literals\s*+;"
)
_ARGUMENTS = re.compile(r'\b(?:py|pybind11)::(?:arg\s*+\(\s*+"\w*+"\s*+\)|none\s*+\(\s*+\))')
"""What stands before a module definition, and in one that only names functions and their arguments: `bindings` does
without pybind11 there."""
_BINDS = re.compile(r"PYBIND11_MODULE|TORCH_EXTENSION_NAME")


def header_name(kind: Precompiled, *, checked: bool) -> str:
    """Its folder in a preparation."""
    return f"{kind}-{'checked' if checked else 'unchecked'}"


def needs_full(text: str) -> bool:
    """Whether a source says that lean headers won't do, beside what it binds by itself. A comment says nothing."""
    said = _ARGUMENTS.sub(" ", without_names_of_pybind11(lean.without_comments(text)))
    return lean.needs_full(text) or _NEEDS_FULL.search(said) is not None


def without_names_of_pybind11(text: str) -> str:
    """A source without what only lets it speak of pybind11 more briefly, line for line."""
    return _NAMES_OF_PYBIND11.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def binds(text: str) -> bool:
    """Whether a source defines a module of its own."""
    return _BINDS.search(lean.without_comments(text)) is not None


def switches(cuda_flags: Sequence[str]) -> str:
    """As directives, what decides what CUDA's headers declare, behind torch's own flags."""
    given = macros([*TORCH_SWITCHES, *cuda_flags])
    return defines({name: value for name, value in sorted(given.items()) if is_switch(name)})


def kind_of(texts: Iterable[str], cuda_flags: Sequence[str]) -> Precompiled:
    """The kind for units of these texts. Of those that bind by themselves it is taken that they only name functions,
    which lean ones do (`bindings`); what shows only when a lean unit does not compile, nobody can tell here.
    """
    if any(needs_full(text) for text in texts):
        return Precompiled.FULL
    return Precompiled.LEAN if switches(cuda_flags) == switches(()) else Precompiled.SWITCHED

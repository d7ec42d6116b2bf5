"""The macros that compiler flags set and unset, as preprocessor directives. Pure.

torch compiles CUDA sources with four switches that remove the operators and conversions of half types
(COMMON_NVCC_FLAGS of torch.utils.cpp_extension). A solution may undo them with `-U` in `extra_cuda_cflags`. A source
must compile here if and only if it compiles for a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["TORCH_SWITCHES", "defines", "is_switch", "macros"]

TORCH_SWITCHES = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
"""Defined before the flags of a solution (torch 2.6 to 2.13)."""

_NAME = re.compile(r"[A-Za-z_]\w*(?:\([^)]*\))?")
_FORWARDED = ("-Xcompiler", "--compiler-options")


def macros(flags: Sequence[str]) -> dict[str, str | None]:
    """Return the final macros: name to value, None if a flag undefined it.

    The last flag for a name counts. Understands `-DNAME`, `-DNAME=VALUE`, `-D NAME`, `-UNAME`, nvcc's `--define-macro`
    and `--undefine-macro`, and each of them behind `-Xcompiler`.
    """
    out: dict[str, str | None] = {}
    for kind, text in _given(flags):
        name, equals, value = text.partition("=")
        if _NAME.fullmatch(name) is None:
            continue
        out.pop(name, None)
        out[name] = None if kind == "U" else value if equals else "1"
    return out


def _given(flags: Sequence[str]) -> list[tuple[str, str]]:
    words = [word for flag in flags for word in _split(flag)]
    found = []
    for position, word in enumerate(words):
        for kind, names in (("D", ("--define-macro", "-D")), ("U", ("--undefine-macro", "-U"))):
            for name in names:
                if word == name and position + 1 < len(words):
                    found.append((kind, words[position + 1]))
                elif word.startswith(name) and word != name:
                    found.append((kind, word[len(name) :].removeprefix("=")))
                else:
                    continue
                break
    return found


def _split(flag: str) -> list[str]:
    for name in _FORWARDED:
        if flag.startswith(name):
            return [word.strip("'\"") for word in flag[len(name) :].lstrip("= ").split(",") if word.strip()]
    return [flag]


def is_switch(name: str) -> bool:
    """Whether CUDA's headers test this macro."""
    return name.startswith("__CUDA_NO_")


def defines(given: Mapping[str, str | None]) -> str:
    """`#define` lines for the defined macros."""
    return "".join(
        f"#define {name} {value}\n".replace(" \n", "\n") for name, value in given.items() if value is not None
    )

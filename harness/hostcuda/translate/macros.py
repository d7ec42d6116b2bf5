"""The macros that compiler flags set and unset, as the preprocessor's own directives. Pure; imports nothing.

torch compiles CUDA sources with four switches that take the operators and conversions of half types away
(COMMON_NVCC_FLAGS of torch.utils.cpp_extension); a solution may take them back with `-U` in `extra_cuda_cflags`. What
does not compile for a GPU must not compile here either, and the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["TORCH_SWITCHES", "defines", "is_switch", "macros", "undefines"]

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
    """What is defined in the end: name to value, None where a flag undefined it. The last flag of a name counts.

    Understands `-DNAME`, `-DNAME=VALUE`, `-D NAME`, `-UNAME`, nvcc's `--define-macro` and `--undefine-macro`, and any
    of them behind `-Xcompiler`.
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
    """Whether CUDA's own headers ask for this macro."""
    return name.startswith("__CUDA_NO_")


def defines(given: Mapping[str, str | None]) -> str:
    """`#define` lines for what is defined."""
    return "".join(
        f"#define {name} {value}\n".replace(" \n", "\n") for name, value in given.items() if value is not None
    )


def undefines(given: Mapping[str, str | None]) -> str:
    """`#undef` lines that take those definitions back."""
    return "".join(f"#undef {name.partition('(')[0]}\n" for name, value in given.items() if value is not None)

"""Divide nvcc's arguments between device part and host part of a split build.

The device part gets the arguments of the ordinary build. The host part gets those that nvcc passes to the host
compiler. An unknown argument raises `UnknownFlag`, because it might change the code.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence

__all__ = ["UnknownFlag", "for_device", "for_host"]


class UnknownFlag(Exception):
    """An argument of nvcc that the split build does not know."""


_FORWARD = ("-Xcompiler", "--compiler-options")
_HOST_COMPILER = ("-ccbin", "--compiler-bindir")
_WITH_VALUE = ("-D", "-U", "-I", "-isystem")
_SAME = re.compile(r"-(?:[DUI].+|O[0-3]?|std=.+|w|g|m64)")
_LONG = {"--define-macro": "-D", "--undefine-macro": "-U", "--include-path": "-I", "--optimize": "-O", "--std": "-std"}
_DEVICE_ONLY = re.compile(
    r"-{1,2}(?:use_fast_math|lineinfo|generate-line-info|expt-relaxed-constexpr|expt-extended-lambda|extended-lambda"
    r"|resource-usage|res-usage|restrict|extra-device-vectorization|Wno-deprecated-gpu-targets"
    r"|(?:ftz|prec-div|prec-sqrt|fmad|arch|gpu-architecture|code|gpu-code|gencode|generate-code|maxrregcount"
    r"|ptxas-options|Xptxas|Xcudafe|cudafe-options|diag-suppress|diag-warn|threads|split-compile|t)=.+|t\d+)"
)
_DEVICE_ONLY_VALUE = re.compile(
    r"-{1,2}(?:arch|gpu-architecture|code|gpu-code|gencode|generate-code|maxrregcount|ptxas-options|Xptxas|Xcudafe"
    r"|cudafe-options|diag-suppress|diag-warn|threads|split-compile|ftz|prec-div|prec-sqrt|fmad|t)"
)


def for_device(arguments: Sequence[str], without: Sequence[str]) -> list[str]:
    """Return the arguments for the device part: all but some header folders.

    Args:
        arguments: nvcc's arguments.
        without: Folders whose `-I` and `-isystem` options are dropped.
    """
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("-isystem", "-I"):
            folder = next(words, "")
            if folder not in without:
                kept += [word, folder]
        else:
            kept.append(word)
    return kept


def for_host(arguments: Sequence[str], compiler: str | None = None) -> list[str]:
    """Return the arguments for the host part.

    Args:
        arguments: nvcc's arguments.
        compiler: The g++ that will compile the host part. If None, no argument may name a host compiler.

    Raises:
        UnknownFlag: An argument is unknown, or names a different host compiler.
    """
    return list(_for_host(iter(arguments), compiler))


def _for_host(words: Iterator[str], compiler: str | None) -> Iterator[str]:
    for word in words:
        name, equals, value = word.partition("=")
        if name in _HOST_COMPILER:
            chosen = value if equals else next(words, "")
            if compiler is None or not _of_one_installation(chosen, compiler):
                raise UnknownFlag(f"the argument {name} {chosen}, a host compiler of its own")
        elif word in _WITH_VALUE:
            yield from (word, next(words, ""))
        elif name in _FORWARD:
            text = value if equals else next(words, "")
            yield from (item for item in text.strip("'\"").split(",") if item)
        elif name in _LONG:
            text = value if equals else next(words, "")
            yield f"{_LONG[name]}={text}" if name == "--std" else f"{_LONG[name]}{text}"
        elif _SAME.fullmatch(word):
            yield word
        elif _DEVICE_ONLY_VALUE.fullmatch(word):
            next(words, "")
        elif not _DEVICE_ONLY.fullmatch(word):
            raise UnknownFlag(f"the argument {word}")


def _of_one_installation(chosen: str, compiler: str) -> bool:
    """Whether nvcc's host compiler and `compiler` belong to one installation.

    `chosen` is gcc, g++, or the folder that contains it.
    """
    real = os.path.realpath(shutil.which(chosen) or chosen)
    folder = real if os.path.isdir(real) else os.path.dirname(real)
    own = os.path.realpath(shutil.which(compiler) or compiler)
    name = os.path.basename(real)
    plain = os.path.isdir(real) or "clang" not in name
    version, same = (re.sub(r"^.*?(?:gcc|g\+\+)", "", os.path.basename(path)) for path in (real, own))
    return plain and folder == os.path.dirname(own) and (os.path.isdir(real) or version == same)

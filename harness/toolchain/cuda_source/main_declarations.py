"""Recognise a `main.cpp` that only declares functions, and join it to `cuda.cu`.

torch compiles `main.cpp`, with the bindings, apart from `cuda.cu`. Both toolchains join such a `main.cpp` to the other
unit, which saves a compiler run. Text in, text out.
"""

from __future__ import annotations

import re

from harness.toolchain.cuda_source.tokens import code

_HARMLESS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<(?:torch/(?:extension|torch|all|types)\.h|ATen/ATen\.h|pybind11/(?:pybind11|stl)\.h"
    r"|[a-z_]+)>[ \t]*$",
    re.M,
)
"""Includes of what a unit with torch's headers has anyway."""

_MORE_THAN_DECLARATIONS = re.compile(
    r"[{}#\"']|\b(?:using|namespace|template|extern|inline|static|typedef|struct|class|enum|constexpr|auto|operator)\b"
)
_TYPE = re.compile(r"(?:^|[(,;<])\s*+((?:(?:const|unsigned|signed)\s++)*+[A-Za-z_]\w*+)")
_KNOWN_TYPE = re.compile(
    r"(?:(?:const|unsigned|signed)\s+)*"
    r"(?:torch|at|c10|std|void|bool|char|short|int|long|float|double|unsigned|signed|size_t|u?int(?:8|16|32|64)_t)"
)


def blanked(text: str) -> str:
    """Return the text without comments and literals; places stay."""
    return code(text.encode(errors="surrogatepass")).decode(errors="replace")


def declarations(text: str) -> str | None:
    """Return the declarations of a `main.cpp` that holds nothing else.

    Includes and comments are blanked; lines stay. None if it holds more, or a type that is not of torch, the
    standard library or the language.
    """
    said = _HARMLESS.sub("", blanked(text))
    if _MORE_THAN_DECLARATIONS.search(said):
        return None
    if not all(_KNOWN_TYPE.fullmatch(found[1]) for found in _TYPE.finditer(said)):
        return None
    return said

"""Join the parts of a split source by the device symbols that host code uses.

Reads the output of `nm` and `ptxas -v`, and writes assembler text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.toolchain.split.stubs import MARK

_MARK = re.compile(rf"_ZZ(?P<function>.+)E{len(MARK)}{MARK.decode()}")
_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '([^'\n]+)'", re.MULTILINE)
_FATBIN_MAGIC = 0x466243B1


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A kernel or device variable that host code names.

    Attributes:
        name: Mangled name.
        bytes: Size; 0 for a kernel.
        constant: Whether it is a `__constant__` variable.
    """

    name: str
    bytes: int = 0
    constant: bool = False


def kernels_in(listing: str) -> list[str]:
    """Return the mangled names of the kernels whose stubs are in `nm`'s listing."""
    names = {line.split()[-1] for line in listing.splitlines() if line.strip()}
    found = []
    for name in sorted(names):
        if (match := _MARK.fullmatch(name)) is None:
            continue
        mangled = f"_Z{match['function']}"
        plain = re.sub(r"^\d+", "", match["function"])
        found.append(plain if mangled not in names and plain in names else mangled)
    return found


def variables_in(listing: str, wanted: Mapping[str, bool]) -> list[Symbol]:
    """Find the variables with these plain names in the listing of `nm -S`.

    Raises:
        LookupError: The object does not define exactly one variable of a name.
    """
    found = []
    for name, constant in wanted.items():
        pattern = re.compile(rf"[0-9a-f]+ ([0-9a-f]+) [BD] ((?:_ZN\w*{len(name)})?{re.escape(name)}E?)")
        hits = [match for line in listing.splitlines() if (match := pattern.fullmatch(line)) is not None]
        if len(hits) != 1:
            raise LookupError(f"the host part defines {len(hits)} variables named {name}, not one")
        found.append(Symbol(name=hits[0][2], bytes=int(hits[0][1], 16), constant=constant))
    return found


def linkage(listing: str, function: str) -> list[str]:
    """Return the letters of `nm` for global functions of a plain name, no templates."""
    pattern = re.compile(rf"(?m) (\w) _ZL?{len(function)}{function}(?!I)[^\s.]*$")
    return pattern.findall(listing)


def entries_in(log: str) -> set[str]:
    """Return the mangled names of the kernels in ptxas's report."""
    return set(_ENTRY.findall(log))


def instances(demangled: Sequence[str]) -> str:
    """Declare instances of kernel templates, so that nvcc compiles them."""
    return "".join(f"template __global__ {text};\n" for text in demangled if _is_template(text))


def _is_template(demangled: str) -> bool:
    """Whether a name reads `void name<...>(...)`.

    Names come from solutions and may be of any length, so each character is read once.
    """
    opened = demangled.find("<", len("void ") + 1)
    closed = demangled.find(">(", opened + 1)
    return demangled.startswith("void ") and 0 <= opened < closed < len(demangled) - 2 and demangled.endswith(")")


def assembler(fatbin: Path, symbols: Sequence[Symbol]) -> str:
    """Return assembler text that holds the fatbin and its symbol table.

    They go to the sections that CUDA's tools read; `harness_split.h` registers the table.
    """
    lines = [
        '.section .nv_fatbin,"a",@progbits',
        ".balign 8",
        "harness_split_image:",
        f'.incbin "{fatbin}"',
        '.section .nvFatBinSegment,"aw",@progbits',
        ".balign 8",
        ".globl harness_split_fatbin",
        ".hidden harness_split_fatbin",
        "harness_split_fatbin:",
        f".long {_FATBIN_MAGIC}, 1",
        ".quad harness_split_image, 0",
        '.section .rodata.harness_split,"a",@progbits',
    ]
    for number, symbol in enumerate(symbols):
        lines += [f".Lname{number}:", f'.asciz "{symbol.name}"']
    lines += [
        '.section .data.rel.ro.harness_split,"aw",@progbits',
        ".balign 8",
        ".globl harness_split_symbols",
        ".hidden harness_split_symbols",
        "harness_split_symbols:",
    ]
    for number, symbol in enumerate(symbols):
        lines.append(f".quad {symbol.name}, .Lname{number}, {symbol.bytes}, {int(symbol.constant)}")
    lines += [".quad 0, 0, 0, 0", '.section .note.GNU-stack,"",@progbits', ""]
    return "\n".join(lines)

"""Ties the parts of a split source together: which kernels and variables does host code use, what are they called.

Pure; reads what `nm` and `ptxas -v` print, writes assembler text.
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
    """Something of the device that host code names: its mangled name, its size in bytes (0: a kernel)."""

    name: str
    bytes: int = 0
    constant: bool = False


def kernels_in(listing: str) -> list[str]:
    """Mangled names of the kernels whose stubs an object holds; `listing` is `nm`'s."""
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
    """The variables of these plain names that an object defines, in `nm -S`'s listing. Raises `LookupError`."""
    found = []
    for name, constant in wanted.items():
        pattern = re.compile(rf"[0-9a-f]+ ([0-9a-f]+) [BD] ((?:_ZN\w*{len(name)})?{re.escape(name)}E?)")
        hits = [match for line in listing.splitlines() if (match := pattern.fullmatch(line)) is not None]
        if len(hits) != 1:
            raise LookupError(f"{len(hits)} variables {name} in the host part")
        found.append(Symbol(name=hits[0][2], bytes=int(hits[0][1], 16), constant=constant))
    return found


def entries_in(log: str) -> set[str]:
    """Mangled names of the kernels that ptxas reports."""
    return set(_ENTRY.findall(log))


def instances(demangled: Sequence[str]) -> str:
    """Declarations that make nvcc compile these instances of kernel templates. Plain kernels need none."""
    return "".join(f"template __global__ {text};\n" for text in demangled if _is_template(text))


def _is_template(demangled: str) -> bool:
    """Whether it reads `void name<...>(...)`. Names are a submission's, of any length: each character is seen once."""
    opened = demangled.find("<", len("void ") + 1)
    closed = demangled.find(">(", opened + 1)
    return demangled.startswith("void ") and 0 <= opened < closed < len(demangled) - 2 and demangled.endswith(")")


def assembler(fatbin: Path, symbols: Sequence[Symbol]) -> str:
    """The fatbin with the table that `harness_split.h` registers, where CUDA's tools look for both."""
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

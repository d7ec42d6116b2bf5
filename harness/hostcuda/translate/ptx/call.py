"""One PTX instruction during its translation, and the table of emitters.

Pure. An emitter turns opcode and operands into a C++ statement on `hostcuda/ptx_table.h`. `arithmetic`, `conversion`,
`memory` and `warp` register emitters by mnemonic; a mnemonic without one raises NotEmulatedError. Registers are C++
variables of raw bits (`bool`, `std::uint16_t` to `std::uint64_t`), independent of the instruction's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class NotEmulatedError(Exception):
    """A PTX construct without an emitter; the message is the construct as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxRegister:
    """A C++ variable for a PTX register; `width` in bits, 1 for a predicate."""

    code: str
    width: int


@dataclass(slots=True, kw_only=True)
class PtxScope:
    """The registers by name at one point of a PTX body."""

    operands: dict[str, PtxRegister]
    frames: list[dict[str, PtxRegister]] = field(default_factory=lambda: [{}])
    count: int = 0

    def push(self) -> None:
        self.frames.append({})

    def pop(self) -> None:
        if len(self.frames) == 1:
            raise NotEmulatedError("unbalanced braces")
        self.frames.pop()

    def declare(self, name: str, width: int) -> PtxRegister:
        self.count += 1
        register = PtxRegister(code=f"hc_r{self.count}_{re.sub(r'[^0-9A-Za-z]', '_', name)}", width=width)
        self.frames[-1][name] = register
        return register

    def find(self, name: str) -> PtxRegister:
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        if name in self.operands:
            return self.operands[name]
        raise NotEmulatedError(f"operand {name}")

    @staticmethod
    def label(name: str) -> str:
        return "hc_l_" + name.replace("$", "_")


TYPES = {
    **{f"s{n}": f"std::int{n}_t" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"std::uint{n}_t" for n in (8, 16, 32, 64)},
    **{f"b{n}": f"std::uint{n}_t" for n in (8, 16, 32, 64)},
    "b128": "unsigned __int128",
    "f32": "float",
    "f64": "double",
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f16x2": "__half2",
    "bf16x2": "__nv_bfloat162",
    "pred": "bool",
}
RAW = {1: "bool", 16: "std::uint16_t", 32: "std::uint32_t", 64: "std::uint64_t", 128: "unsigned __int128"}
_SPECIAL = {
    "%laneid": "static_cast<std::uint32_t>(::hostcuda::lane_id())",
    "%warpid": "static_cast<std::uint32_t>(::hostcuda::warp_id())",
    "%nwarpid": "64u",
    "%smid": "0u",
    "%nsmid": "132u",
    "%clock": "static_cast<std::uint32_t>(clock64())",
    "%clock64": "static_cast<std::uint64_t>(clock64())",
    "%globaltimer": "::hostcuda::ptx::globaltimer()",
    "%globaltimer_lo": "static_cast<std::uint32_t>(::hostcuda::ptx::globaltimer())",
    "%globaltimer_hi": "static_cast<std::uint32_t>(::hostcuda::ptx::globaltimer() >> 32)",
    "%lanemask_eq": "(1u << ::hostcuda::lane_id())",
    "%lanemask_lt": "((1u << ::hostcuda::lane_id()) - 1u)",
    "%lanemask_le": "(0xffffffffu >> (31 - ::hostcuda::lane_id()))",
    "%lanemask_gt": "~(0xffffffffu >> (31 - ::hostcuda::lane_id()))",
    "%lanemask_ge": "~((1u << ::hostcuda::lane_id()) - 1u)",
    "WARP_SZ": "32u",
    **{
        f"%{ptx}.{axis}": f"static_cast<std::uint32_t>({name}.{axis})"
        for axis in "xyz"
        for ptx, name in (
            ("tid", "threadIdx"),
            ("ctaid", "blockIdx"),
            ("ntid", "blockDim"),
            ("nctaid", "gridDim"),
            ("clusterid", "::hostcuda::cluster_place().index"),
            ("nclusterid", "::hostcuda::cluster_place().count"),
            ("cluster_ctaid", "::hostcuda::cluster_place().block"),
            ("cluster_nctaid", "::hostcuda::cluster_place().extent"),
        )
    },
    "%cluster_ctarank": "::hostcuda::cluster_place().rank",
    "%cluster_nctarank": "::hostcuda::cluster_place().size",
    "%is_explicit_cluster": "::hostcuda::cluster_place().explicitly",
}


@dataclass(slots=True, kw_only=True)
class PtxInstruction:
    """One instruction during translation: remaining modifiers, operands, names."""

    opcode: str
    parts: list[str]
    operands: list[str]
    scope: PtxScope

    def refuse(self) -> NotEmulatedError:
        return NotEmulatedError(self.opcode)

    def need(self, least: int, most: int | None = None) -> None:
        if not least <= len(self.operands) <= (least if most is None else most):
            raise self.refuse()

    def only(self, *allowed: str) -> set[str]:
        """Return the modifiers between mnemonic and type; others refuse the instruction."""
        given = set(self.parts)
        if given - set(allowed):
            raise self.refuse()
        return given

    def type(self, *allowed: str) -> str:
        """Take the last modifier as the operand type."""
        if not self.parts or self.parts[-1] not in (allowed or TYPES):
            raise self.refuse()
        return self.parts.pop()

    def value(self, index: int | str, kind: str) -> str:
        """An operand as a C++ expression of the type for PTX type `kind`."""
        name = self.operands[index] if isinstance(index, int) else index
        ctype = TYPES[kind]
        if name.startswith("!") and kind == "pred":
            return f"!({self.value(name[1:].strip(), kind)})"
        if name.startswith("-") and not re.match(r"-[\d.]", name):
            raise self.refuse()
        if name in _SPECIAL:
            return f"::hostcuda::ptx::as<{ctype}>({_SPECIAL[name]})"
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", name):
            return f"::hostcuda::ptx::immediate<{ctype}>(::hostcuda::float_of_bits(0x{name[2:]}u))"
        if re.fullmatch(r"0[dD][0-9A-Fa-f]{16}", name):
            return f"::hostcuda::ptx::immediate<{ctype}>(::hostcuda::double_of_bits(0x{name[2:]}ull))"
        if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+", name):
            return f"::hostcuda::ptx::immediate<{ctype}>({name})"
        if re.fullmatch(r"-?(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)U?", name):
            return f"::hostcuda::ptx::immediate<{ctype}>({name.rstrip('U')}ll)"
        return f"::hostcuda::ptx::as<{ctype}>({self.scope.find(name).code})"

    def store(self, index: int | str, expression: str) -> str:
        """A statement that stores a typed C++ expression in a destination operand."""
        name = self.operands[index] if isinstance(index, int) else index
        if name == "_":
            return f"(void)({expression});"
        register = self.scope.find(name)
        return f"{register.code} = ::hostcuda::ptx::raw<{RAW[register.width]}>({expression});"

    def group(self, index: int) -> list[str]:
        """The names in `{a, b}`, or the single name."""
        text = self.operands[index]
        return [part.strip() for part in text.strip("{}").split(",")] if text.startswith("{") else [text]

    def pair(self, index: int) -> tuple[str, str | None]:
        """`d|p`: the destination and its optional predicate."""
        first, bar, second = self.operands[index].partition("|")
        return first.strip(), second.strip() if bar else None

    def address(self, index: int, space: str) -> str:
        """`[a+16]` as a generic `char*`."""
        match = re.fullmatch(r"\[\s*(.+?)\s*(?:\+\s*(-?\w+)|(-\s*\d+))?\s*\]", self.operands[index], re.S)
        if match is None:
            raise self.refuse()
        base = self.value(match[1], "u32" if self._narrow(match[1], space) else "u64")
        offset = (match[2] or match[3] or "0").replace(" ", "")
        if offset in self.scope.operands or offset.startswith("%"):
            offset = self.value(offset, "s64")
        pointer = "shared" if space.startswith("shared") else "generic"
        return f"::hostcuda::ptx::{pointer}({base}, {offset})"

    def _narrow(self, name: str, space: str) -> bool:
        return space.startswith("shared") and not re.match(r"\d", name) and self.scope.find(name).width == 32


EMITTERS: dict[str, Callable[[PtxInstruction], str]] = {}


def emits(*mnemonics: str) -> Callable[[Callable[[PtxInstruction], str]], Callable[[PtxInstruction], str]]:
    def register(function: Callable[[PtxInstruction], str]) -> Callable[[PtxInstruction], str]:
        for mnemonic in mnemonics:
            EMITTERS[mnemonic] = function
        return function

    return register


def emit(opcode: str, operands: Sequence[str], scope: PtxScope) -> str:
    """C++ statements of one instruction.

    Raises NotEmulatedError with the opcode if there is no translation.
    """
    mnemonic, *parts = opcode.split(".")
    emitter = EMITTERS.get(mnemonic)
    if emitter is None:
        raise NotEmulatedError(opcode)
    return emitter(PtxInstruction(opcode=opcode, parts=parts, operands=list(operands), scope=scope))


def flag(given: set[str], name: str) -> str:
    """The C++ literal for whether this modifier is given."""
    return "true" if name in given else "false"

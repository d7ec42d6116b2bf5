"""PTX instructions: arithmetic, comparison, selection and bits.

Pure; importing this module registers its emitters. Semantics are those of NVIDIA's "Parallel Thread Execution ISA". An
emitter refuses a modifier that it does not know.
"""

from __future__ import annotations

from harness.hostcuda.translate.ptx.call import TYPES, PtxInstruction, emits, flag

# ---- arithmetic

_FLOATING = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
_INTEGERS = tuple(f"{kind}{bits}" for kind in "su" for bits in (16, 32, 64))


def _float_function(call: PtxInstruction, kind: str, function: str, count: int) -> str:
    """A call of `function<rounding, ftz, saturate, relu, type>` on `count` sources.

    The destination is the first operand.
    """
    given = call.only("rn", "rz", "rm", "rp", "ftz", "sat", "relu", "approx", "full")
    rounding = next((name for ptx, name in (("rz", "zero"), ("rm", "down"), ("rp", "up")) if ptx in given), "nearest")
    if rounding != "nearest" and kind not in ("f32", "f64"):
        raise call.refuse()
    call.need(count + 1)
    arguments = ", ".join(call.value(i, kind) for i in range(1, count + 1))
    flags = f"::hostcuda::Round::{rounding}, {flag(given, 'ftz')}, {flag(given, 'sat')}, {flag(given, 'relu')}"
    return call.store(0, f"::hostcuda::ptx::{function}<{flags}>({arguments})")


_CHAINED = ("u32", "s32", "u64", "s64")


def _carried(call: PtxInstruction) -> str:
    """Whether a carry goes in (`addc`) and out (`.cc`), as C++ template arguments.

    Removes `cc` from the modifiers.
    """
    goes_in, goes_out = call.opcode.split(".")[0] in ("addc", "subc", "madc"), "cc" in call.parts
    call.parts = [part for part in call.parts if part != "cc"]
    return f"{'true' if goes_in else 'false'}, {'true' if goes_out else 'false'}"


@emits("addc", "subc")
def _add_carried(call: PtxInstruction) -> str:
    kind = call.type(*_CHAINED)
    carried = _carried(call)
    call.only()
    call.need(3)
    function = "add_carry" if call.opcode.startswith("add") else "sub_borrow"
    return call.store(0, f"::hostcuda::ptx::{function}<{carried}>({call.value(1, kind)}, {call.value(2, kind)})")


@emits("madc")
def _multiply_carried(call: PtxInstruction) -> str:
    kind = call.type(*_CHAINED)
    carried = _carried(call)
    given = call.only("lo", "hi")
    call.need(4)
    if len(given) != 1:
        raise call.refuse()
    product = f"::hostcuda::ptx::mul_{given.pop()}({call.value(1, kind)}, {call.value(2, kind)})"
    return call.store(0, f"::hostcuda::ptx::add_carry<{carried}>({product}, {call.value(3, kind)})")


@emits("add", "sub")
def _add(call: PtxInstruction) -> str:
    if "cc" in call.parts:
        return _add_carried(call)
    kind = call.type(*_FLOATING, *_INTEGERS)
    mnemonic = call.opcode.split(".")[0]
    if kind in _FLOATING:
        return _float_function(call, kind, mnemonic, 2)
    saturating = "sat" in call.only("sat")
    call.need(3)
    if saturating and kind != "s32":
        raise call.refuse()
    function = "wrapping_" if not saturating else "saturating_"
    return call.store(0, f"::hostcuda::ptx::{function}{mnemonic}({call.value(1, kind)}, {call.value(2, kind)})")


_WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


@emits("mul", "mad")
def _multiply(call: PtxInstruction) -> str:
    if call.opcode.startswith("mad") and "cc" in call.parts:
        return _multiply_carried(call)
    kind = call.type(*_FLOATING, *_INTEGERS)
    is_mad = call.opcode.startswith("mad")
    if kind in _FLOATING:
        return _float_function(call, kind, "fma" if is_mad else "mul", 3 if is_mad else 2)
    call.need(4 if is_mad else 3)
    given = call.only("lo", "hi", "wide")
    if len(given) != 1:
        raise call.refuse()
    (part,) = given
    if part == "wide" and kind not in _WIDER:
        raise call.refuse()
    result = _WIDER[kind] if part == "wide" else kind
    product = f"::hostcuda::ptx::mul_{part}({call.value(1, kind)}, {call.value(2, kind)})"
    if is_mad:
        product = f"::hostcuda::ptx::wrapping_add({product}, {call.value(3, result)})"
    return call.store(0, product)


@emits("mul24", "mad24")
def _multiply24(call: PtxInstruction) -> str:
    kind = call.type("s32", "u32")
    if call.only("lo", "hi") != {"lo"}:
        raise call.refuse()
    is_mad = call.opcode.startswith("mad")
    call.need(4 if is_mad else 3)
    product = f"{'__mul24' if kind == 's32' else '__umul24'}({call.value(1, kind)}, {call.value(2, kind)})"
    return call.store(0, f"::hostcuda::ptx::wrapping_add({product}, {call.value(3, kind)})" if is_mad else product)


@emits("fma")
def _fused(call: PtxInstruction) -> str:
    return _float_function(call, call.type(*_FLOATING), "fma", 3)


@emits("div")
def _divide(call: PtxInstruction) -> str:
    kind = call.type("f32", "f64", *_INTEGERS)
    if kind in _FLOATING:
        return _float_function(call, kind, "div", 2)
    call.only()
    call.need(3)
    return call.store(0, f"::hostcuda::ptx::divide({call.value(1, kind)}, {call.value(2, kind)})")


@emits("rem")
def _remainder(call: PtxInstruction) -> str:
    kind = call.type(*_INTEGERS)
    call.only()
    call.need(3)
    return call.store(0, f"::hostcuda::ptx::remainder({call.value(1, kind)}, {call.value(2, kind)})")


@emits("min", "max")
def _extreme(call: PtxInstruction) -> str:
    kind = call.type(*_FLOATING, *_INTEGERS, "s16x2", "u16x2") if call.parts[-1:] != ["s16x2"] else call.parts.pop()
    mnemonic = call.opcode.split(".")[0]
    if kind in ("s16x2", "u16x2"):
        call.only()
        call.need(3)
        name = f"__v{mnemonic}{kind[0]}2"
        return call.store(0, f"{name}({call.value(1, 'u32')}, {call.value(2, 'u32')})")
    given = call.only("ftz", "NaN", "relu")
    call.need(3)
    if "relu" in given and kind not in ("s32",):
        raise call.refuse()
    flags = f"{flag(given, 'ftz')}, {flag(given, 'NaN')}"
    function = f"::hostcuda::ptx::{mnemonic}<{flags}>" if kind in _FLOATING else f"::hostcuda::ptx::integer_{mnemonic}"
    result = f"{function}({call.value(1, kind)}, {call.value(2, kind)})"
    return call.store(0, f"::hostcuda::ptx::integer_max({result}, 0)" if "relu" in given else result)


@emits("neg", "abs")
def _sign(call: PtxInstruction) -> str:
    kind = call.type(*_FLOATING, "s16", "s32", "s64")
    call.only("ftz")
    call.need(2)
    return call.store(0, f"::hostcuda::ptx::{call.opcode.split('.')[0]}({call.value(1, kind)})")


@emits("rcp", "sqrt")
def _rooted(call: PtxInstruction) -> str:
    return _float_function(call, call.type("f32", "f64"), call.opcode.split(".")[0], 1)


@emits("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _approximate(call: PtxInstruction) -> str:
    kind = call.type("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
    given = call.only("approx", "ftz")
    call.need(2)
    return call.store(0, f"::hostcuda::ptx::{call.opcode.split('.')[0]}<{flag(given, 'ftz')}>({call.value(1, kind)})")


@emits("copysign")
def _copysign(call: PtxInstruction) -> str:
    kind = call.type("f32", "f64")
    call.only()
    call.need(3)
    return call.store(0, f"std::copysign({call.value(2, kind)}, {call.value(1, kind)})")


@emits("testp")
def _test_property(call: PtxInstruction) -> str:
    kind = call.type("f32", "f64")
    given = call.only("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    if len(given) != 1:
        raise call.refuse()
    return call.store(0, f"::hostcuda::ptx::is_{given.pop()}({call.value(1, kind)})")


# ---- comparison and selection

_COMPARISONS = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "lo",
    "ls",
    "hi",
    "hs",
    "equ",
    "neu",
    "ltu",
    "leu",
    "gtu",
    "geu",
    "num",
    "nan",
)
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@emits("setp", "set")
def _compare(call: PtxInstruction) -> str:
    kind = call.type()
    result = call.type("u32", "s32", "f32", "f16", "bf16") if call.opcode.startswith("set.") else None
    given = call.only("ftz", "and", "or", "xor", *_COMPARISONS)
    comparison = next((name for name in call.parts if name in _COMPARISONS), None)
    combine = next((sign for name, sign in (("and", "&&"), ("or", "||"), ("xor", "!=")) if name in given), None)
    if comparison is None:
        raise call.refuse()
    call.need(4 if combine else 3)
    name = _UNSIGNED_NAMES.get(comparison, comparison)
    test = f"::hostcuda::ptx::compare_{name}({call.value(1, kind)}, {call.value(2, kind)})"
    also = call.value(3, "pred") if combine else ""
    if result is not None:
        value = f"(({test}) {combine} ({also}))" if combine else f"({test})"
        one = "-1" if result in ("u32", "s32") else "1.0f"
        zero = "0" if result in ("u32", "s32") else "0.0f"
        return call.store(0, f"::hostcuda::ptx::immediate<{TYPES[result]}>({value} ? {one} : {zero})")
    first, second = call.pair(0)
    code = f"const bool hc_t = {test}; " + (f"const bool hc_c = {also}; " if combine else "")
    code += call.store(first, f"(hc_t {combine} hc_c)" if combine else "hc_t")
    if second is not None:
        code += " " + call.store(second, f"(!hc_t {combine} hc_c)" if combine else "!hc_t")
    return code


@emits("selp")
def _select(call: PtxInstruction) -> str:
    kind = call.type()
    call.only()
    call.need(4)
    return call.store(0, f"{call.value(3, 'pred')} ? {call.value(1, kind)} : {call.value(2, kind)}")


@emits("slct")
def _select_sign(call: PtxInstruction) -> str:
    test = call.type("s32", "f32")
    kind = call.type()
    call.only("ftz")
    call.need(4)
    return call.store(0, f"{call.value(3, test)} >= 0 ? {call.value(1, kind)} : {call.value(2, kind)}")


# ---- bits


@emits("and", "or", "xor")
def _logic(call: PtxInstruction) -> str:
    kind = call.type("pred", "b16", "b32", "b64")
    call.only()
    call.need(3)
    sign = {"and": "&", "or": "|", "xor": "^"}[call.opcode.split(".")[0]]
    return call.store(0, f"static_cast<{TYPES[kind]}>({call.value(1, kind)} {sign} {call.value(2, kind)})")


@emits("not", "cnot")
def _complement(call: PtxInstruction) -> str:
    kind = call.type("pred", "b16", "b32", "b64")
    call.only()
    call.need(2)
    sign = "!" if kind == "pred" or call.opcode.startswith("cnot") else "~"
    return call.store(0, f"static_cast<{TYPES[kind]}>({sign}{call.value(1, kind)})")


@emits("shl", "shr")
def _shift(call: PtxInstruction) -> str:
    kind = call.type("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
    call.only()
    call.need(3)
    return call.store(0, f"::hostcuda::ptx::{call.opcode.split('.')[0]}({call.value(1, kind)}, {call.value(2, 'u32')})")


@emits("shf")
def _funnel(call: PtxInstruction) -> str:
    call.type("b32")
    given = call.only("l", "r", "wrap", "clamp")
    call.need(4)
    name = f"__funnelshift_{'l' if 'l' in given else 'r'}{'c' if 'clamp' in given else ''}"
    return call.store(0, f"{name}({call.value(1, 'u32')}, {call.value(2, 'u32')}, {call.value(3, 'u32')})")


@emits("lop3")
def _lookup3(call: PtxInstruction) -> str:
    call.type("b32")
    call.only()
    call.need(5)
    arguments = ", ".join(call.value(i, "u32") for i in (1, 2, 3, 4))
    return call.store(0, f"::hostcuda::ptx::lop3({arguments})")


@emits("prmt")
def _permute(call: PtxInstruction) -> str:
    mode = call.parts.pop() if call.parts and call.parts[-1] in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") else "index"
    call.type("b32")
    call.only()
    call.need(4)
    arguments = ", ".join(call.value(i, "u32") for i in (1, 2, 3))
    return call.store(0, f"::hostcuda::ptx::prmt_{mode}({arguments})")


@emits("bfe")
def _extract(call: PtxInstruction) -> str:
    kind = call.type("u32", "s32", "u64", "s64")
    call.only()
    call.need(4)
    return call.store(0, f"::hostcuda::ptx::bfe({call.value(1, kind)}, {call.value(2, 'u32')}, {call.value(3, 'u32')})")


@emits("bfi")
def _insert(call: PtxInstruction) -> str:
    kind = call.type("b32", "b64")
    call.only()
    call.need(5)
    arguments = f"{call.value(1, kind)}, {call.value(2, kind)}, {call.value(3, 'u32')}, {call.value(4, 'u32')}"
    return call.store(0, f"::hostcuda::ptx::bfi({arguments})")


@emits("popc", "clz", "brev", "bfind")
def _bit_count(call: PtxInstruction) -> str:
    mnemonic = call.opcode.split(".")[0]
    kind = call.type("u32", "u64", "s32", "s64") if mnemonic == "bfind" else call.type("b32", "b64")
    given = call.only("shiftamt")
    call.need(2)
    result = f"::hostcuda::ptx::{mnemonic}({call.value(1, kind)})"
    if given:
        result = f"::hostcuda::ptx::bfind_shift({call.value(1, kind)})"
    return call.store(0, result)


@emits("fns")
def _nth_set(call: PtxInstruction) -> str:
    call.type("b32")
    call.only()
    call.need(4)
    return call.store(0, f"__fns({call.value(1, 'u32')}, {call.value(2, 'u32')}, {call.value(3, 's32')})")


@emits("sad")
def _absolute_difference(call: PtxInstruction) -> str:
    kind = call.type("u32", "s32")
    call.only()
    call.need(4)
    name = "__sad" if kind == "s32" else "__usad"
    return call.store(0, f"{name}({call.value(1, kind)}, {call.value(2, kind)}, {call.value(3, 'u32')})")


@emits("dp4a", "dp2a")
def _dot(call: PtxInstruction) -> str:
    second = call.type("u32", "s32")
    first = call.type("u32", "s32")
    if first != second:
        raise call.refuse()
    given = call.only("lo", "hi")
    call.need(4)
    mnemonic = call.opcode.split(".")[0]
    name = "__dp4a" if mnemonic == "dp4a" else f"__dp2a_{'hi' if 'hi' in given else 'lo'}"
    return call.store(0, f"{name}({call.value(1, first)}, {call.value(2, first)}, {call.value(3, first)})")

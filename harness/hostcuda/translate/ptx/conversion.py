"""PTX instructions: moves and conversions.

Pure; importing this module registers its emitters. Semantics are those of NVIDIA's "Parallel Thread Execution ISA". An
emitter refuses a modifier that it does not know.
"""

from __future__ import annotations

from harness.hostcuda.translate.ptx.call import TYPES, PtxInstruction, emits, flag


@emits("mov")
def _move(call: PtxInstruction) -> str:
    kind = call.type()
    call.only()
    call.need(2)
    target, source = call.group(0), call.group(1)
    if len(target) == 1 and len(source) == 1:
        return call.store(0, call.value(1, kind))
    if kind not in ("b32", "b64", "u32", "u64", "b128"):
        raise call.refuse()
    bits = int(kind[1:])
    parts = target if len(target) > 1 else source
    width = bits // len(parts)
    if width not in (8, 16, 32, 64) or (len(target) > 1 and len(source) > 1):
        raise call.refuse()
    if len(source) > 1:
        joined = " | ".join(
            f"(static_cast<{TYPES[kind]}>({call.value(name, f'b{width}')}) << {width * i})"
            for i, name in enumerate(source)
        )
        return call.store(0, f"static_cast<{TYPES[kind]}>({joined})")
    code = f"const {TYPES[kind]} hc_t = {call.value(1, kind)};"
    for i, name in enumerate(target):
        code += " " + call.store(name, f"static_cast<{TYPES[f'b{width}']}>(hc_t >> {width * i})")
    return code


_FP8 = {"e4m3x2": "__NV_E4M3", "e5m2x2": "__NV_E5M2"}


@emits("cvt")
def _convert(call: PtxInstruction) -> str:
    given = [part for part in call.parts if part in TYPES or part in _FP8 or part == "tf32"]
    modifiers = {part for part in call.parts if part not in given}
    if len(given) != 2 or modifiers - {
        "rn",
        "rz",
        "rm",
        "rp",
        "rna",
        "rni",
        "rzi",
        "rmi",
        "rpi",
        "ftz",
        "sat",
        "satfinite",
        "relu",
    }:
        raise call.refuse()
    to, source = given
    if to == "tf32":
        if source != "f32" or modifiers not in ({"rna"}, {"rn"}, {"rz"}, {"rna", "satfinite"}):
            raise call.refuse()
        name = {"rna": "to_tf32", "rn": "nearest_tf32", "rz": "truncated_tf32"}[(modifiers - {"satfinite"}).pop()]
        return call.store(0, f"::hostcuda::bits_of(::hostcuda::{name}({call.value(1, 'f32')}))")
    rounding = next(
        (
            name
            for key, name in (
                ("rz", "zero"),
                ("rzi", "zero"),
                ("rm", "down"),
                ("rmi", "down"),
                ("rp", "up"),
                ("rpi", "up"),
            )
            if key in modifiers
        ),
        "nearest",
    )
    if to in _FP8 or source in _FP8:
        return _convert_fp8(call, to, source, modifiers)
    if to in ("f16x2", "bf16x2"):
        if source != "f32" or "rna" in modifiers:
            raise call.refuse()
        call.need(3)  # the first source becomes the upper half
        element = "__half" if to == "f16x2" else "__nv_bfloat16"
        flags = f"{element}, ::hostcuda::Round::{rounding}, {flag(modifiers, 'relu')}"
        halves = [f"::hostcuda::ptx::narrowed<{flags}>({call.value(i, 'f32')})" for i in (2, 1)]
        return call.store(0, f"{TYPES[to]}({halves[0]}, {halves[1]})")
    if {"satfinite", "relu", "rna"} & modifiers and not (modifiers == {"rn", "relu"} and to in ("f16", "bf16")):
        raise call.refuse()
    call.need(2)
    if source not in TYPES or to == "pred" or source == "pred" or "x2" in source:
        raise call.refuse()
    integral = bool({"rni", "rzi", "rmi", "rpi"} & modifiers)
    switches = f"{'true' if integral else 'false'}, {flag(modifiers, 'ftz')}, {flag(modifiers, 'sat')}"
    flags = f"{TYPES[to]}, ::hostcuda::Round::{rounding}, {switches}"
    result = f"::hostcuda::ptx::cvt<{flags}>({call.value(1, source)})"
    return call.store(0, f"::hostcuda::rectified({result})" if "relu" in modifiers else result)


def _convert_fp8(call: PtxInstruction, to: str, source: str, modifiers: set[str]) -> str:
    if to in _FP8 and source == "f32" and modifiers == {"rn", "satfinite"}:
        call.need(3)
        pair = f"make_float2({call.value(2, 'f32')}, {call.value(1, 'f32')})"
        return call.store(0, f"__nv_cvt_float2_to_fp8x2({pair}, __NV_SATFINITE, {_FP8[to]})")
    if to in _FP8 and source == "f16x2" and modifiers == {"rn", "satfinite"}:
        call.need(2)
        return call.store(0, f"__nv_cvt_halfraw2_to_fp8x2({call.value(1, 'f16x2')}, __NV_SATFINITE, {_FP8[to]})")
    if source in _FP8 and to == "f16x2" and modifiers == {"rn"}:
        call.need(2)
        return call.store(0, f"__half2(__nv_cvt_fp8x2_to_halfraw2({call.value(1, 'u16')}, {_FP8[source]}))")
    raise call.refuse()


@emits("cvta")
def _convert_address(call: PtxInstruction) -> str:
    kind = call.type("u64", "u32")
    given = call.only("to", "shared", "global", "local", "const", "shared::cta", "shared::cluster", "param")
    call.need(2)
    shared = given & {"shared", "shared::cta", "shared::cluster"}
    if not shared:
        return call.store(0, call.value(1, kind))
    if "to" in given:
        pointer = f"::hostcuda::ptx::generic({call.value(1, 'u64')}, 0)"
        return call.store(0, f"static_cast<{TYPES[kind]}>(::hostcuda::shared_address({pointer}))")
    pointer = f"::hostcuda::shared_pointer({call.value(1, 'u32')})"
    return call.store(0, f"reinterpret_cast<std::uintptr_t>({pointer})")

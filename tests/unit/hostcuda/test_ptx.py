"""Inline PTX: the translator on text, and what it writes, compiled and run against Python's arithmetic and torch."""

from __future__ import annotations

import ctypes
import math
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from harness.hostcuda.translate import ptx
from tests.support.paths import ROOT, TESTS

INCLUDE = ROOT / "harness" / "hostcuda" / "include"
HERE = TESTS / "hostcuda"
U16, U32, S32, U64, S64, F32, F64 = np.uint16, np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float64
_CTYPES = {
    U16: "std::uint16_t",
    U32: "std::uint32_t",
    S32: "std::int32_t",
    U64: "std::uint64_t",
    S64: "std::int64_t",
    F32: "float",
    F64: "double",
}
_LETTERS = {U32: "r", S32: "r", U64: "l", S64: "l", F32: "f", F64: "d", U16: "h"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One PTX body on registers: `%0` is the result, `%1`... the inputs; and the same in Python."""

    body: str
    out: Any
    ins: tuple[Any, ...]
    want: Callable[..., Any]
    exact: bool = True


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _s(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _half_bits(*values: float) -> int:
    return sum(int(np.array(value, np.float16).view(np.uint16)) << (16 * i) for i, value in enumerate(values))


def _halves(word: int) -> tuple[np.float16, np.float16]:
    low, high = np.array([word], np.uint32).view(np.float16)
    return low, high


def _lop3(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))


def _prmt(a: int, b: int, selector: int) -> int:
    data = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    out = []
    for i in range(4):
        pick = selector >> (4 * i) & 15
        byte = data[pick & 7]
        out.append((255 if byte & 128 else 0) if pick & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def _bfe(value: int, position: int, length: int, signed: bool) -> int:
    position, length = position & 255, length & 255
    if length == 0:
        return 0
    sign = (value >> min(position + length - 1, 31)) & 1 if signed else 0
    bits = [(value >> (position + i)) & 1 if position + i < 32 and i < length else sign for i in range(32)]
    return sum(bit << i for i, bit in enumerate(bits))


def _bfi(inserted: int, base: int, position: int, length: int) -> int:
    for i in range(min(length & 255, 32)):
        if (position & 255) + i < 32:
            at = (position & 255) + i
            base = base & ~(1 << at) | (inserted >> i & 1) << at
    return base


CASES: dict[str, Case] = {
    "add_u32": Case(body="add.u32 %0, %1, %2;", out=U32, ins=(U32, U32), want=lambda a, b: (a + b) % 2**32),
    "sub_s64": Case(body="sub.s64 %0, %1, %2;", out=S64, ins=(S64, S64), want=lambda a, b: _s(a - b, 64)),
    "add_sat": Case(
        body="add.sat.s32 %0, %1, %2;", out=S32, ins=(S32, S32), want=lambda a, b: max(-(2**31), min(2**31 - 1, a + b))
    ),
    "mul_lo": Case(body="mul.lo.s32 %0, %1, %2;", out=S32, ins=(S32, S32), want=lambda a, b: _s(a * b)),
    "mul_hi": Case(body="mul.hi.u32 %0, %1, %2;", out=U32, ins=(U32, U32), want=lambda a, b: a * b >> 32),
    "mul_hi64": Case(body="mul.hi.u64 %0, %1, %2;", out=U64, ins=(U64, U64), want=lambda a, b: a * b >> 64),
    "mul_wide": Case(body="mul.wide.s32 %0, %1, %2;", out=S64, ins=(S32, S32), want=lambda a, b: a * b),
    "mad_lo": Case(
        body="mad.lo.u32 %0, %1, %2, %3;", out=U32, ins=(U32, U32, U32), want=lambda a, b, c: (a * b + c) % 2**32
    ),
    "mad_wide": Case(
        body="mad.wide.u32 %0, %1, %2, %3;", out=U64, ins=(U32, U32, U64), want=lambda a, b, c: (a * b + c) % 2**64
    ),
    "add_chain": Case(
        body="{.reg .u32 a, b, c, d; mov.b64 {a, b}, %1; mov.b64 {c, d}, %2; "
        "add.cc.u32 a, a, c; addc.u32 b, b, d; mov.b64 %0, {a, b};}",
        out=U64,
        ins=(U64, U64),
        want=lambda a, b: (a + b) % 2**64,
    ),
    "sub_chain": Case(
        body="{.reg .u32 a, b, c, d; mov.b64 {a, b}, %1; mov.b64 {c, d}, %2; "
        "sub.cc.u32 a, a, c; subc.cc.u32 b, b, d; mov.b64 %0, {a, b};}",
        out=U64,
        ins=(U64, U64),
        want=lambda a, b: (a - b) % 2**64,
    ),
    "carry_out": Case(
        body="{.reg .u64 t; add.cc.u64 t, %1, %2; addc.u64 %0, 0, 0;}",
        out=U64,
        ins=(U64, U64),
        want=lambda a, b: a + b >> 64,
    ),
    "borrow_out": Case(
        body="{.reg .s32 t; sub.cc.s32 t, %1, %2; subc.s32 %0, 0, 0;}",
        out=S32,
        ins=(S32, S32),
        want=lambda a, b: -int(a % 2**32 < b % 2**32),
    ),
    "mad_chain": Case(  # the high word of a 32 by 64 bit product and sum
        body="{.reg .u32 a, b, t; mov.b64 {a, b}, %2; "
        "mad.lo.cc.u32 t, %1, a, a; madc.hi.u32 t, %1, a, b; mov.b32 %0, t;}",
        out=U32,
        ins=(U32, U64),
        want=lambda x, y: (x * (y % 2**32) + y >> 32) % 2**32,
    ),
    "max_s32": Case(body="max.s32 %0, %1, %2;", out=S32, ins=(S32, S32), want=max),
    "min_u32": Case(body="min.u32 %0, %1, %2;", out=U32, ins=(U32, U32), want=min),
    "abs_s32": Case(body="abs.s32 %0, %1;", out=S32, ins=(S32,), want=lambda a: _s(abs(a))),
    "neg_s32": Case(body="neg.s32 %0, %1;", out=S32, ins=(S32,), want=lambda a: _s(-a)),
    "div_s32": Case(body="div.s32 %0, %1, 7;", out=S32, ins=(S32,), want=lambda a: int(math.copysign(abs(a) // 7, a))),
    "rem_u32": Case(body="rem.u32 %0, %1, 10;", out=U32, ins=(U32,), want=lambda a: a % 10),
    "and_hex": Case(body="and.b32 %0, %1, 0xff00;", out=U32, ins=(U32,), want=lambda a: a & 0xFF00),
    "xor_b64": Case(body="xor.b64 %0, %1, %2;", out=U64, ins=(U64, U64), want=lambda a, b: a ^ b),
    "not_b32": Case(body="not.b32 %0, %1;", out=U32, ins=(U32,), want=lambda a: a ^ 0xFFFFFFFF),
    "shl_clamps": Case(
        body="shl.b32 %0, %1, %2;", out=U32, ins=(U32, U32), want=lambda a, n: 0 if n > 31 else (a << n) % 2**32
    ),
    "shr_s32_clamps": Case(body="shr.s32 %0, %1, %2;", out=S32, ins=(S32, U32), want=lambda a, n: a >> min(n, 31)),
    "shf_l_wrap": Case(
        body="shf.l.wrap.b32 %0, %1, %2, %3;",
        out=U32,
        ins=(U32, U32, U32),
        want=lambda a, b, n: ((b << 32 | a) << (n & 31)) >> 32 & 0xFFFFFFFF,
    ),
    "shf_r_clamp": Case(
        body="shf.r.clamp.b32 %0, %1, %2, %3;",
        out=U32,
        ins=(U32, U32, U32),
        want=lambda a, b, n: (b << 32 | a) >> min(n, 32) & 0xFFFFFFFF,
    ),
    "lop3": Case(
        body="lop3.b32 %0, %1, %2, %3, 0xea;", out=U32, ins=(U32, U32, U32), want=lambda a, b, c: _lop3(a, b, c, 0xEA)
    ),
    "lop3_table": Case(
        body="lop3.b32 %0, %1, %2, %3, 0x96;", out=U32, ins=(U32, U32, U32), want=lambda a, b, c: a ^ b ^ c
    ),
    "prmt": Case(body="prmt.b32 %0, %1, %2, %3;", out=U32, ins=(U32, U32, U32), want=_prmt),
    "prmt_rc16": Case(
        body="prmt.b32.rc16 %0, %1, %2, 1;", out=U32, ins=(U32, U32), want=lambda a, b: _prmt(a, b, 0x3232)
    ),
    "bfe_u32": Case(
        body="bfe.u32 %0, %1, %2, %3;", out=U32, ins=(U32, U32, U32), want=lambda v, p, n: _bfe(v, p, n, False)
    ),
    "bfe_s32": Case(body="bfe.s32 %0, %1, 4, 9;", out=U32, ins=(U32,), want=lambda v: _bfe(v, 4, 9, True)),
    "bfi": Case(body="bfi.b32 %0, %1, %2, %3, 5;", out=U32, ins=(U32, U32, U32), want=lambda a, b, p: _bfi(a, b, p, 5)),
    "popc": Case(body="popc.b32 %0, %1;", out=U32, ins=(U32,), want=int.bit_count),
    "clz64": Case(body="clz.b64 %0, %1;", out=U32, ins=(U64,), want=lambda a: 64 - a.bit_length()),
    "bfind": Case(body="bfind.u32 %0, %1;", out=U32, ins=(U32,), want=lambda a: a.bit_length() - 1 if a else 2**32 - 1),
    "bfind_s32": Case(
        body="bfind.s32 %0, %1;", out=U32, ins=(S32,), want=lambda a: (~a if a < 0 else a).bit_length() - 1 & 0xFFFFFFFF
    ),
    "brev": Case(body="brev.b32 %0, %1;", out=U32, ins=(U32,), want=lambda a: int(f"{a:032b}"[::-1], 2)),
    "sad": Case(
        body="sad.s32 %0, %1, %2, %3;", out=U32, ins=(S32, S32, U32), want=lambda a, b, c: (abs(a - b) + c) % 2**32
    ),
    "dp4a": Case(
        body="dp4a.s32.s32 %0, %1, %2, %3;",
        out=S32,
        ins=(S32, S32, S32),
        want=lambda a, b, c: _s(sum(_s(a >> 8 * i, 8) * _s(b >> 8 * i, 8) for i in range(4)) + c),
    ),
    "fma_f64": Case(
        body="fma.rn.f64 %0, %1, %2, %3;", out=F64, ins=(F64, F64, F64), want=lambda a, b, c: a * b + c, exact=False
    ),
    "ex2": Case(body="ex2.approx.ftz.f32 %0, %1;", out=F32, ins=(F32,), want=lambda a: 2.0**a, exact=False),
    "tanh": Case(body="tanh.approx.f32 %0, %1;", out=F32, ins=(F32,), want=math.tanh, exact=False),
    "rcp": Case(body="rcp.approx.ftz.f32 %0, %1;", out=F32, ins=(F32,), want=lambda a: 1 / a, exact=False),
    "copysign": Case(body="copysign.f32 %0, %1, %2;", out=F32, ins=(F32, F32), want=lambda a, b: math.copysign(b, a)),
    "max_f32_literal": Case(body="max.f32 %0, %1, 0f3F800000;", out=F32, ins=(F32,), want=lambda a: max(a, 1.0)),
    "mov_bits": Case(body="mov.b32 %0, %1;", out=U32, ins=(F32,), want=_bits),
    "mov_pack": Case(body="mov.b64 %0, {%1, %2};", out=U64, ins=(U32, U32), want=lambda a, b: b << 32 | a),
    "mov_unpack": Case(
        body="{ .reg .b32 lo, hi; mov.b64 {lo, hi}, %1; xor.b32 %0, lo, hi; }",
        out=U32,
        ins=(U64,),
        want=lambda a: a >> 32 ^ a & 0xFFFFFFFF,
    ),
    "mov_halves": Case(
        body="{ .reg .b16 l, h;\n mov.b32 {l, h}, %1;\n mov.b32 %0, {h, l}; }",
        out=U32,
        ins=(U32,),
        want=lambda a: a >> 16 | (a & 0xFFFF) << 16,
    ),
    "selp": Case(
        body="{ .reg .pred p; setp.gt.s32 p, %1, %2; selp.s32 %0, %1, %2, p; }", out=S32, ins=(S32, S32), want=max
    ),
    "setp_both": Case(
        body="{ .reg .pred p, q; setp.lt.and.u32 p|q, %1, %2, 1; selp.u32 %0, 1, 2, p; @q add.u32 %0, %0, 10; }",
        out=U32,
        ins=(U32, U32),
        want=lambda a, b: 1 if a < b else 12,
    ),
    "guard": Case(
        body=".reg .pred p; setp.ne.u32 p, %1, 0; mov.u32 %0, 5; @!p mov.u32 %0, 9;",
        out=U32,
        ins=(U32,),
        want=lambda a: 5 if a else 9,
    ),
    "loop": Case(
        body="{ .reg .pred p; .reg .u32 i; mov.u32 i, 0; mov.u32 %0, 0;\nAGAIN:\n add.u32 %0, %0, i; "
        "add.u32 i, i, 1; setp.lt.u32 p, i, 10; @p bra AGAIN; }",
        out=U32,
        ins=(U32,),
        want=lambda a: 45,
    ),
    "set_u32": Case(
        body="set.ge.u32.s32 %0, %1, %2;", out=U32, ins=(S32, S32), want=lambda a, b: 2**32 - 1 if a >= b else 0
    ),
    "cvt_rni": Case(body="cvt.rni.s32.f32 %0, %1;", out=S32, ins=(F32,), want=lambda a: round(a)),
    "cvt_rzi_sat": Case(body="cvt.rzi.u32.f32 %0, %1;", out=U32, ins=(F32,), want=lambda a: max(0, int(a))),
    "cvt_floor": Case(body="cvt.rmi.f32.f32 %0, %1;", out=F32, ins=(F32,), want=math.floor),
    "cvt_s64_s32": Case(body="cvt.s64.s32 %0, %1;", out=S64, ins=(S32,), want=lambda a: a),
    "cvt_u8": Case(body="cvt.u32.u8 %0, %1;", out=U32, ins=(U32,), want=lambda a: a & 255),
    "cvt_s8": Case(body="cvt.s32.s8 %0, %1;", out=S32, ins=(U32,), want=lambda a: _s(a, 8)),
    "cvt_sat_s8": Case(body="cvt.sat.s8.s32 %0, %1;", out=S32, ins=(S32,), want=lambda a: max(-128, min(127, a))),
    "cvt_rn_u64": Case(body="cvt.rn.f32.u64 %0, %1;", out=F32, ins=(U64,), want=lambda a: float(np.float32(a))),
    "cvt_half": Case(body="cvt.rn.f16.f32 %0, %1;", out=np.uint16, ins=(F32,), want=lambda a: _half_bits(a)),
    "cvt_from_half": Case(
        body="cvt.f32.f16 %0, %1;",
        out=F32,
        ins=(np.uint16,),
        want=lambda a: float(np.array(a, np.uint16).view(np.float16)),
    ),
    "cvt_pair": Case(body="cvt.rn.f16x2.f32 %0, %1, %2;", out=U32, ins=(F32, F32), want=lambda a, b: _half_bits(b, a)),
    "cvt_tf32": Case(
        body="cvt.rna.tf32.f32 %0, %1;", out=U32, ins=(F32,), want=lambda a: (_bits(a) + 0x1000) & 0xFFFFE000
    ),
    "half2_add": Case(
        body="add.f16x2 %0, %1, %2;",
        out=U32,
        ins=(U32, U32),
        want=lambda a, b: _half_bits(*(x + y for x, y in zip(_halves(a), _halves(b), strict=True))),
    ),
    "half2_relu": Case(
        body="fma.rn.relu.f16x2 %0, %1, %1, %2;",
        out=U32,
        ins=(U32, U32),
        want=lambda a, b: _half_bits(
            *(
                max(np.float16(float(x) * float(x) + float(y)), np.float16(0))
                for x, y in zip(_halves(a), _halves(b), strict=True)
            )
        ),
    ),
    "e4m3_pair": Case(
        body="{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, %1, %2; cvt.u32.u16 %0, t; }",
        out=U32,
        ins=(F32, F32),
        want=lambda a, b: int.from_bytes(
            torch.tensor([b, a]).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes(), "little"
        ),
    ),
    "testp": Case(
        body="{ .reg .pred p; testp.infinite.f32 p, %1; selp.u32 %0, 1, 0, p; }", out=U32, ins=(F32,), want=lambda a: 0
    ),
    "named_operand": Case(body="add.u32 %[o], %[x], %[x];", out=U32, ins=(U32,), want=lambda a: 2 * a % 2**32),
}

MEMORY_SOURCE = r"""
extern "C" void vector_copy(float* to, const float* from, std::size_t) {
    float a, b, c, d;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4+16];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(from));
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(to), "f"(d), "f"(c), "f"(b), "f"(a) : "memory");
    asm volatile("{\n"
                 "  .reg .pred p;\n"
                 "  setp.eq.s32 p, %2, 0;   // a guarded load leaves its target alone\n"
                 "  mov.f32 %0, 0f42280000;\n"
                 "  @p ld.global.f32 %0, [%1];\n"
                 "}\n" : "=f"(to[4]) : "l"(from), "r"(1));
    signed char byte = -3;
    int wide;
    asm("ld.s8 %0, [%1];" : "=r"(wide) : "l"(&byte));
    to[5] = static_cast<float>(wide);
}
extern "C" void async_copy(float* to, const float* from, std::size_t) {
    float* tile = reinterpret_cast<float*>(lanes::window + 64);
    std::memset(tile, 0x7f, 64);
    unsigned address = hostcuda::shared_address(tile);
    CP_ASYNC(address, from, 16);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(address + 16), "l"(from), "r"(4));
    asm volatile("cp.async.commit_group;\n" ::);
    to[6] = tile[0];
    asm volatile("cp.async.wait_group %0;\n" :: "n"(0));
    for (int i = 0; i < 6; ++i) to[i] = tile[i];
}
"""

WARP_SOURCE = r"""
extern "C" void shuffles(std::uint32_t* out, const std::uint32_t* in, std::size_t) {
    lanes::run([&](int lane) {
        unsigned value = in[lane], got;
        asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 0x1f, 0xffffffff;" : "=r"(got) : "r"(value));
        out[lane] = got;
        asm volatile("{ .reg .pred p; shfl.sync.up.b32 %0|p, %1, 3, 0x0, 0xffffffff; @!p mov.u32 %0, 77; }"
                     : "=r"(got) : "r"(value));
        out[32 + lane] = got;
        asm volatile("shfl.sync.down.b32 %0, %1, 2, 0x1807, 0xffffffff;" : "=r"(got) : "r"(value));
        out[64 + lane] = got;
        asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(got) : "r"(value), "r"(31 - lane));
        out[96 + lane] = got;
    });
}
extern "C" void matrix_loads(std::uint32_t* out, const std::uint16_t* in, std::size_t) {
    std::memcpy(lanes::window, in, 512);
    lanes::run([&](int lane) {
        const unsigned address = hostcuda::shared_address(lanes::window) + 16 * lane;
        unsigned r0, r1, r2, r3;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(address));
        out[lane] = r0; out[32 + lane] = r1; out[64 + lane] = r2; out[96 + lane] = r3;
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(r0), "=r"(r1) : "r"(address));
        out[128 + lane] = r0; out[160 + lane] = r1;
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r2) : "r"(r0));
        out[192 + lane] = r2;
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
                     :: "r"(hostcuda::shared_address(lanes::window + 1024) + 16 * (lane % 8)), "r"(r0));
        std::memcpy(&out[224 + lane], lanes::window + 1024 + 4 * lane, 4);
    });
}
"""


def _function(name: str, case: Case) -> str:
    body = case.body
    template = body.replace("\n", "\\n")
    if "%[" in body:
        outputs, inputs = f'[o] "={_LETTERS[case.out]}"(o)', '[x] "r"(x0)'
    else:
        sign = "+" if "%0, %0" in body else "="
        outputs = f'"{sign}{_LETTERS[case.out]}"(o)'
        inputs = ", ".join(f'"{_LETTERS[kind]}"(x{i})' for i, kind in enumerate(case.ins))
    arrays = ", ".join(f"const {_CTYPES[kind]}* p{i}" for i, kind in enumerate(case.ins))
    loads = " ".join(f"{_CTYPES[kind]} x{i} = p{i}[i];" for i, kind in enumerate(case.ins))
    return (
        f'extern "C" void case_{name}({_CTYPES[case.out]}* out, {arrays}, std::size_t n) {{ '
        "for (std::size_t i = 0; i < n; ++i) "
        f'{{ {loads} {_CTYPES[case.out]} o{{}}; asm volatile("{template}" : {outputs} : {inputs}); out[i] = o; }} }}\n'
    )


MMA = {
    "m16n8k16_f16": ("m16n8k16", "f32.f16.f16.f32", 4, 2, 4),
    "m16n8k8_f16": ("m16n8k8", "f32.f16.f16.f32", 2, 1, 4),
    "m16n8k16_half_sum": ("m16n8k16", "f16.f16.f16.f16", 4, 2, 2),
    "m16n8k16_bf16": ("m16n8k16", "f32.bf16.bf16.f32", 4, 2, 4),
    "m16n8k8_tf32": ("m16n8k8", "f32.tf32.tf32.f32", 4, 2, 4),
    "m16n8k4_tf32": ("m16n8k4", "f32.tf32.tf32.f32", 2, 1, 4),
    "m16n8k32_s8": ("m16n8k32", "s32.s8.s8.s32", 4, 2, 4),
    "m16n8k16_u8": ("m16n8k16", "s32.u8.u8.s32", 2, 1, 4),
}


def _mma_function(name: str, shape: str, types: str, a: int, b: int, c: int) -> str:
    kind = "f" if types.startswith("f32") else "r"
    ctype = "float" if kind == "f" else "std::uint32_t"
    numbers = iter(range(100))
    groups = ["{" + ",".join(f"%{next(numbers)}" for _ in range(count)) + "}" for count in (c, a, b)]
    text = f"mma.sync.aligned.{shape}.row.col.{types} {groups[0]}, {groups[1]}, {groups[2]}, {groups[0]};"
    outputs = ", ".join(f'"+{kind}"(d[{i}])' for i in range(c))
    inputs = ", ".join(f'"r"(x[{i}])' for i in range(a)) + ", " + ", ".join(f'"r"(y[{i}])' for i in range(b))
    return f"""
extern "C" void {name}({ctype}* out, const std::uint32_t* as, const std::uint32_t* bs, const {ctype}* cs) {{
    lanes::run([&](int lane) {{
        const std::uint32_t* x = as + {a} * lane; const std::uint32_t* y = bs + {b} * lane;
        {ctype} d[{c}]; for (int i = 0; i < {c}; ++i) d[i] = cs[{c} * lane + i];
        asm volatile("{text}" : {outputs} : {inputs});
        for (int i = 0; i < {c}; ++i) out[{c} * lane + i] = d[i];
    }});
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All cases as CUDA text, through the translator, compiled in one go."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is needed to compile what the translator writes")
    text = '#include "hostcuda/ptx_table.h"\n#include "lanes.h"\n'
    text += "#define CP_ASYNC(dst, src, bytes) \\\n"
    text += '    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\\n" \\\n'
    text += '                 :: "r"(dst), "l"(src), "n"(bytes))\n'
    text += "".join(_function(name, case) for name, case in CASES.items())
    text += MEMORY_SOURCE + WARP_SOURCE + "".join(_mma_function(name, *shape) for name, shape in MMA.items())
    rewritten = ptx.rewrite(text)
    assert rewritten.refused == ()
    assert rewritten.text.count("\n") == text.count("\n")
    folder = tmp_path_factory.mktemp("ptx")
    source = folder / "cases.cpp"
    source.write_text(rewritten.text)
    command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", f"-I{INCLUDE}", f"-I{HERE}"]
    done = subprocess.run([*command, str(source), "-o", str(folder / "cases.so")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "cases.so"))


def _call(function: Any, *arrays: np.ndarray) -> None:
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    function(*pointers, ctypes.c_size_t(arrays[1].size))


def _inputs(kind: Any, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if kind in (F32, F64):
        return np.concatenate([generator.uniform(-9, 9, 60), generator.standard_normal(60)]).astype(kind)
    if kind == np.uint16:
        return generator.integers(0, 0x7BFF, 120).astype(np.uint16)
    bits = 64 if kind in (U64, S64) else 32
    values = generator.integers(0, 2**bits, 120, dtype=np.uint64) >> generator.integers(
        0, bits - 2, 120, dtype=np.uint64
    )
    if seed == 2:
        values[:60] = generator.integers(0, 40, 60)  # shift amounts, positions
    values[-4:] = [0, 1, 2**bits - 1, 2 ** (bits - 1)]
    return values.astype(U64 if bits == 64 else U32).view(kind)


@pytest.mark.parametrize("name", CASES)
def test_instruction_computes_what_the_manual_says(library: ctypes.CDLL, name: str) -> None:
    case = CASES[name]
    arrays = [_inputs(kind, seed + 1) for seed, kind in enumerate(case.ins)]
    if name.startswith("half2"):
        generator = np.random.default_rng(5)
        arrays = [(generator.standard_normal(240) * 3).astype(np.float16).view(U32) for _ in case.ins]
    out = np.zeros(arrays[0].size, dtype=case.out)
    _call(getattr(library, f"case_{name}"), out, *arrays)
    for index in range(out.size):
        given = [array[index].item() for array in arrays]
        want = case.want(*given)
        if case.exact:
            assert out[index].item() == want, given
        else:
            assert out[index].item() == pytest.approx(want, rel=1e-6, abs=1e-6), given


def test_vectors_guards_and_narrow_loads(library: ctypes.CDLL) -> None:
    source = np.arange(8, dtype=F32)
    buffer = np.zeros(16, dtype=F32)
    offset = (-buffer.ctypes.data % 16) // 4
    aligned = np.zeros(16, dtype=F32)
    start = (-aligned.ctypes.data % 16) // 4
    aligned[start : start + 8] = source
    _call(library.vector_copy, buffer[offset:], aligned[start:])
    assert list(buffer[offset : offset + 6]) == [7, 6, 5, 4, 42, -3]


def test_cp_async_copies_and_fills_with_zeros(library: ctypes.CDLL) -> None:
    memory = np.zeros(16, dtype=F32)
    start = (-memory.ctypes.data % 16) // 4
    memory[start : start + 4] = [1, 2, 3, 4]
    out = np.full(7, -1, dtype=F32)
    _call(library.async_copy, out, memory[start:])
    assert list(out[:6]) == [1, 2, 3, 4, 1, 0]
    assert out[6] != 1  # before the wait there is what was there


def test_shuffles(library: ctypes.CDLL) -> None:
    values = np.arange(100, 132, dtype=U32)
    out = np.zeros(128, dtype=U32)
    _call(library.shuffles, out, values)
    bfly, up, down, idx = out.reshape(4, 32)
    assert list(bfly) == [100 + (lane ^ 5) for lane in range(32)]
    assert list(up) == [77, 77, 77] + [100 + lane - 3 for lane in range(3, 32)]
    # 0x1807: segments of 8 lanes; the last two of each keep their own
    assert list(down) == [100 + (lane + 2 if lane % 8 < 6 else lane) for lane in range(32)]
    assert list(idx) == [131 - lane for lane in range(32)]


def test_matrices_of_halfwords(library: ctypes.CDLL) -> None:
    elements = np.arange(256, dtype=np.uint16)
    tiles = elements.reshape(4, 8, 8)
    out = np.zeros(256, dtype=U32)
    _call(library.matrix_loads, out, elements)

    def held(tile: np.ndarray) -> list[int]:  # what the lanes hold of an 8 x 8 tile
        return [
            int(tile[lane // 4, 2 * (lane % 4)]) | int(tile[lane // 4, 2 * (lane % 4) + 1]) << 16 for lane in range(32)
        ]

    rows = out.reshape(8, 32)
    for index in range(4):
        assert list(rows[index]) == held(tiles[index])
    assert list(rows[4]) == held(tiles[0].T)
    assert list(rows[5]) == held(tiles[1].T)
    assert list(rows[6]) == held(tiles[0])
    assert list(rows[7]) == list(tiles[0].reshape(-1).view(U32))


def _number(kind: str, generator: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, torch.Tensor]:
    """Random elements of one type as raw codes and as numbers."""
    if kind in ("s8", "u8"):
        codes = generator.integers(0, 256, shape).astype(np.uint8)
        return codes, torch.from_numpy(codes.view(np.int8) if kind == "s8" else codes).to(torch.float64)
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}[kind]
    values = torch.from_numpy(generator.standard_normal(shape)).to(dtype)
    if kind == "tf32":
        codes = values.numpy().view(U32).copy()
        return codes, torch.from_numpy((codes & U32(0xFFFFE000)).view(F32)).to(torch.float64)
    return values.view(torch.int16).numpy().view(np.uint16), values.to(torch.float64)


@pytest.mark.parametrize("name", MMA)
def test_mma_is_the_matrix_product_in_the_documented_layout(library: ctypes.CDLL, name: str) -> None:
    shape, types, words_a, words_b, sums = MMA[name]
    kind = types.split(".")[1]
    k = int(shape.split("k")[1])
    per_word = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4}[kind]
    generator = np.random.default_rng(14)
    a_codes, a = _number(kind, generator, (16, k))
    b_codes, b = _number(kind, generator, (k, 8))
    start = torch.from_numpy(generator.integers(-4, 5, (16, 8))).to(torch.float64)
    a_words = np.zeros((32, words_a * per_word), dtype=a_codes.dtype)
    b_words = np.zeros((32, words_b * per_word), dtype=b_codes.dtype)
    for lane in range(32):
        group, thread = divmod(lane, 4)
        for word in range(words_a):
            for j in range(per_word):
                row, column = group + 8 * (word % 2), 4 * per_word * (word // 2) + per_word * thread + j
                a_words[lane, word * per_word + j] = a_codes[row, column]
        for word in range(words_b):
            for j in range(per_word):
                b_words[lane, word * per_word + j] = b_codes[4 * per_word * word + per_word * thread + j, group]
    places = [[(lane // 4 + 8 * (e // 2), 2 * (lane % 4) + e % 2) for e in range(4)] for lane in range(32)]
    dtype = np.float16 if sums == 2 else F32 if types.startswith("f32") else S32
    c_values = np.array([[float(start[place]) for place in lane] for lane in places]).astype(dtype)
    out = np.zeros_like(c_values)
    _call(getattr(library, name), out.view(U32 if dtype != F32 else F32), a_words.view(U32), b_words.view(U32),
          c_values.view(U32 if dtype != F32 else F32))  # fmt: skip
    want = a @ b + start
    for lane in range(32):
        for element, place in enumerate(places[lane]):
            exact = float(want[place])
            if dtype == S32:
                assert out[lane, element] == exact
            else:
                assert float(out[lane, element]) == pytest.approx(
                    exact, rel=1e-3 if dtype == np.float16 else 1e-6, abs=1e-5
                )


# ---- the translator on text


def test_lines_keep_their_numbers() -> None:
    source = 'int a;\nasm volatile(\n  "add.u32 %0,\\n"\n  " %1, 1;"\n  : "=r"(x)\n  : "r"(y));\nint b;\n'
    lines = ptx.rewrite(source).text.split("\n")
    assert lines[0] == "int a;"
    assert lines[6] == "int b;"
    assert lines[1].startswith("do {")


def test_asm_in_strings_comments_and_names_is_left_alone() -> None:
    source = 'const char* s = "asm(x)"; // asm("y")\n/* asm("z") */ int asm_count = 1\'000; R"(asm("w"))";\n'
    assert ptx.rewrite(source).text == source


def test_a_compiler_barrier_becomes_nothing() -> None:
    assert ptx.rewrite('asm volatile("" ::: "memory");').text == "((void)0);"


@pytest.mark.parametrize(
    ("statement", "construct"),
    [
        ('asm volatile("wgmma.fence.sync.aligned;");', "wgmma.fence.sync.aligned"),
        ('asm volatile("mbarrier.init.shared.b32 [%0], %1;" :: "r"(a), "r"(1));', "mbarrier.init.shared.b32"),
        (
            'asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0];" :: "r"(a));',
            "mbarrier.arrive.expect_tx.shared.b64",
        ),
        ('asm("add.cc.f32 %0, %1, %2;" : "=f"(a) : "f"(b), "f"(c));', "add.cc.f32"),
        ('asm("add.sat.cc.s32 %0, %1, %2;" : "=r"(a) : "r"(b), "r"(c));', "add.sat.cc.s32"),
        ('asm("mov.u32 %0, %%pm0;" : "=r"(a));', "operand %pm0"),
        ('asm("ld" MODE ".f32 %0, [%1];" : "=f"(a) : "l"(p));', "asm text assembled by a macro (MODE)"),
        ('asm("fma.rn.f32 %0, %1, %2, %9;" : "=f"(a) : "f"(a), "f"(a));', "operand %9"),
        ('asm("bar.arrive 1;");', "bar.arrive"),
        ('asm("bar.red.popc.pred p, 1, q;");', "bar.red.popc.pred"),
        (
            'asm("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes'
            ' [%0], [%1, {0, 0}], [%2];" :: "r"(a), "l"(b), "r"(c));',
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
        ),
        (
            'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster'
            ' [%0], [%1], %2, [%3], %4;" :: "r"(a), "l"(p), "r"(b), "r"(c), "h"(m));',
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        ),
        (
            'asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes'
            ' [%0], [%1], %2, [%3];" :: "r"(a), "r"(d), "r"(b), "r"(c));',
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes",
        ),
        (
            'asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"'
            ' :: "r"(a), "r"(b), "r"(c));',
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32",
        ),
        ('asm volatile("barrier.cluster.sync;");', "barrier.cluster.sync"),
        ('asm volatile("barrier.cluster.wait.release;");', "barrier.cluster.wait.release"),
        ('asm("mapa.shared.u32 %0, %1, 1;" : "=r"(a) : "r"(b));', "mapa.shared.u32"),
        ('asm("mov.u32 %0, 1;" : "=x"(a));', 'operand constraint "=x"'),
        (
            'asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"'
            ' : "+r"(a), "+r"(b) : "r"(c), "r"(d));',
            "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",
        ),
    ],
)
def test_what_is_not_emulated_is_named_with_its_line(statement: str, construct: str) -> None:
    rewritten = ptx.rewrite("\n\n" + statement)
    assert rewritten.refused == (ptx.PtxRefusal(line=3, construct=f"inline PTX: {construct}"),)
    assert "::hostcuda::not_emulated(" in rewritten.text


def test_registers_of_inner_scopes_hide_outer_ones() -> None:
    body = "{ .reg .b32 t; mov.b32 t, 1; { .reg .b32 t; mov.b32 t, 2; } mov.b32 %0, t; }"
    code = ptx.translate(f'asm("{body}" : "=r"(x))')
    outer, inner = (f"hc_r{i}_t" for i in (1, 2))
    assert f"hc_0 = ::hostcuda::ptx::raw<std::uint32_t>(::hostcuda::ptx::as<std::uint32_t>({outer}))" in code
    assert f"{inner} = " in code


def test_barrier_0_of_all_is_that_of_the_block_and_others_have_their_number() -> None:
    code = ptx.translate('asm volatile("bar.sync 1, %0;" :: "r"(threads))')
    assert "::hostcuda::ptx::bar_sync(" in code
    assert "__syncthreads()" not in code
    assert ptx.translate('asm volatile("barrier.sync.aligned 0;")').count("__syncthreads();") == 1


def test_the_barrier_of_a_cluster_is_not_that_of_the_block() -> None:
    code = ptx.translate(
        'asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")'
    )
    assert "__cluster_barrier_arrive();" in code
    assert "__cluster_barrier_wait();" in code
    assert "relaxed" not in code
    assert "_relaxed();" in ptx.translate('asm volatile("barrier.cluster.arrive.relaxed;")')


def test_special_registers_of_the_thread() -> None:
    code = ptx.translate('asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane))')
    assert "::hostcuda::lane_id()" in code
    assert "threadIdx.x" in ptx.translate('asm("mov.u32 %0, %%tid.x;" : "=r"(lane))')

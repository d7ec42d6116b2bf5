"""PTX instructions: collectives of warps and blocks, and jumps.

Pure; importing this module registers its emitters. Semantics are those of NVIDIA's "Parallel Thread Execution ISA". An
emitter refuses a modifier that it does not know.
"""

from __future__ import annotations

import re

from harness.hostcuda.translate.ptx.call import TYPES, PtxInstruction, emits, flag

# ---- warps and blocks


@emits("shfl")
def _shuffle(call: PtxInstruction) -> str:
    call.type("b32")
    given = call.only("sync", "up", "down", "bfly", "idx") - {"sync"}
    if len(given) != 1 or "sync" not in call.parts:
        raise call.refuse()
    call.need(5)
    value, predicate = call.pair(0)
    arguments = ", ".join(call.value(i, "u32") for i in (1, 2, 3, 4))
    code = f"bool hc_p; const std::uint32_t hc_t = ::hostcuda::ptx::shfl_{given.pop()}({arguments}, hc_p);"
    code += " " + call.store(value, "hc_t")
    return code + (" " + call.store(predicate, "hc_p") if predicate else "")


@emits("vote")
def _vote(call: PtxInstruction) -> str:
    kind = call.type("pred", "b32")
    given = call.only("sync", "all", "any", "uni", "ballot") - {"sync"}
    if "sync" not in call.parts or len(given) != 1:
        raise call.refuse()
    call.need(3)
    mode = given.pop()
    predicate, mask = call.value(1, "pred"), call.value(2, "u32")
    if (mode == "ballot") != (kind == "b32"):
        raise call.refuse()
    if mode == "uni":
        return call.store(0, f"::hostcuda::ptx::vote_uniform({mask}, {predicate})")
    result = f"__{mode}_sync({mask}, {predicate})"
    return call.store(0, result if mode == "ballot" else f"({result} != 0)")


@emits("match")
def _match(call: PtxInstruction) -> str:
    kind = call.type("b32", "b64")
    given = call.only("sync", "any", "all") - {"sync"}
    if len(given) != 1:
        raise call.refuse()
    call.need(3)
    value, mask = call.value(1, kind), call.value(2, "u32")
    ctype = "unsigned" if kind == "b32" else "unsigned long long"
    if given == {"any"}:
        return call.store(0, f"__match_any_sync({mask}, static_cast<{ctype}>({value}))")
    target, predicate = call.pair(0)
    code = f"int hc_p = 0; const unsigned hc_t = __match_all_sync({mask}, static_cast<{ctype}>({value}), &hc_p);"
    return code + " " + call.store(target, "hc_t") + (" " + call.store(predicate, "(hc_p != 0)") if predicate else "")


@emits("redux")
def _reduce(call: PtxInstruction) -> str:
    kind = call.type("u32", "s32", "b32")
    given = call.only("sync", "add", "min", "max", "and", "or", "xor") - {"sync"}
    if len(given) != 1:
        raise call.refuse()
    call.need(3)
    ctype = "int" if kind == "s32" else "unsigned"
    return call.store(
        0, f"__reduce_{given.pop()}_sync({call.value(2, 'u32')}, static_cast<{ctype}>({call.value(1, kind)}))"
    )


@emits("activemask")
def _active(call: PtxInstruction) -> str:
    call.type("b32")
    return call.store(0, "__activemask()")


@emits("elect")
def _elect(call: PtxInstruction) -> str:
    call.only("sync")
    call.need(2)
    target, predicate = call.pair(0)
    code = f"const unsigned hc_t = static_cast<unsigned>(__ffs(static_cast<int>({call.value(1, 'u32')})) - 1);"
    code += f" __syncwarp({call.value(1, 'u32')}); " + call.store(target, "hc_t")
    return code + (
        " " + call.store(predicate, "(hc_t == static_cast<unsigned>(::hostcuda::lane_id()))") if predicate else ""
    )


@emits("bar", "barrier")
def _barrier(call: PtxInstruction) -> str:
    if call.parts[:1] == ["cluster"]:
        return _cluster_barrier(call)
    parts = [part for part in call.parts if part not in ("cta", "aligned")]
    if call.opcode == "bar.warp.sync":
        call.need(1)
        return f"__syncwarp({call.value(0, 'u32')});"
    if parts == ["sync"] and call.operands == ["0"]:
        return "__syncthreads();"
    if parts in (["sync"], ["arrive"]):
        call.need(1 if parts == ["sync"] else 2, 2)
        count = call.value(1, "u32") if len(call.operands) == 2 else "0u"
        return f"::hostcuda::ptx::bar_{parts[0]}({call.value(0, 'u32')}, {count});"
    answers = {"popc": ("count", "u32"), "and": ("all", "pred"), "or": ("any", "pred")}
    if len(parts) != 3 or parts[0] != "red" or parts[1] not in answers or parts[2] != answers[parts[1]][1]:
        raise call.refuse()
    call.need(3, 4)
    number, predicate = call.value(1, "u32"), call.value(len(call.operands) - 1, "pred")
    count = call.value(2, "u32") if len(call.operands) == 4 else "0u"
    answer, kind = answers[parts[1]]
    result = f"::hostcuda::ptx::bar_red({number}, {count}, {predicate}, ::hostcuda::BarrierAnswer::{answer})"
    return call.store(0, f"static_cast<std::uint32_t>({result})" if kind == "u32" else f"({result} != 0)")


def _cluster_barrier(call: PtxInstruction) -> str:
    what, *given = (part for part in call.parts[1:] if part != "aligned")
    call.need(0)
    if what == "arrive" and given in ([], ["release"], ["relaxed"]):
        return "__cluster_barrier_arrive_relaxed();" if given == ["relaxed"] else "__cluster_barrier_arrive();"
    if what == "wait" and given in ([], ["acquire"]):
        return "__cluster_barrier_wait();"
    raise call.refuse()


@emits("membar", "fence")
def _fence(call: PtxInstruction) -> str:
    if call.parts[:1] == ["proxy"]:  # here memory looks the same through every proxy
        return "__threadfence();"
    given = call.only("cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release", "mbarrier_init")
    if given & {"sys"}:
        return "__threadfence_system();"
    return "__threadfence_block();" if "cta" in given else "__threadfence();"


@emits("nanosleep", "griddepcontrol", "setmaxnreg", "pmevent")
def _nothing(call: PtxInstruction) -> str:
    return ";"


@emits("trap", "brkpt")
def _trap(call: PtxInstruction) -> str:
    return "__trap();"


@emits("bra")
def _branch(call: PtxInstruction) -> str:
    call.only("uni")
    call.need(1)
    return f"goto {call.scope.label(call.operands[0])};"


# ---- matrices


@emits("ldmatrix", "stmatrix")
def _matrix_memory(call: PtxInstruction) -> str:
    is_load = call.opcode.startswith("ld")
    call.type("b16")
    given = call.only("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta")
    count = next((int(part[1]) for part in ("x1", "x2", "x4") if part in given), 0)
    group, where = (0, 1) if is_load else (1, 0)
    call.need(2)
    names = call.group(group)
    if not count or len(names) != count or not {"sync", "aligned", "m8n8"} <= given:
        raise call.refuse()
    space = "shared" if given & {"shared", "shared::cta"} else "generic"
    flags = f"{count}, {flag(given, 'trans')}"
    if is_load:
        code = f"std::uint32_t hc_t[{count}]; ::hostcuda::ptx::ldmatrix<{flags}>(hc_t, {call.address(where, space)});"
        return code + "".join(" " + call.store(name, f"hc_t[{i}]") for i, name in enumerate(names))
    values = ", ".join(call.value(name, "u32") for name in names)
    code = f"const std::uint32_t hc_t[{count}] = {{{values}}};"
    return code + f" ::hostcuda::ptx::stmatrix<{flags}>(hc_t, {call.address(where, space)});"


@emits("movmatrix")
def _matrix_transpose(call: PtxInstruction) -> str:
    if call.opcode != "movmatrix.sync.aligned.m8n8.trans.b16":
        raise call.refuse()
    call.need(2)
    return call.store(0, f"::hostcuda::ptx::movmatrix({call.value(1, 'u32')})")


_MMA_SHAPES = {
    # (shape, A type): words of A, of B
    ("m16n8k8", "f16"): (2, 1),
    ("m16n8k16", "f16"): (4, 2),
    ("m16n8k8", "bf16"): (2, 1),
    ("m16n8k16", "bf16"): (4, 2),
    ("m16n8k4", "tf32"): (2, 1),
    ("m16n8k8", "tf32"): (4, 2),
    ("m16n8k16", "s8"): (2, 1),
    ("m16n8k32", "s8"): (4, 2),
    ("m16n8k16", "u8"): (2, 1),
    ("m16n8k32", "u8"): (4, 2),
    ("m16n8k32", "e4m3"): (4, 2),
    ("m16n8k32", "e5m2"): (4, 2),
    ("m8n8k4", "f64"): (1, 1),
}
_MMA_ELEMENTS = {
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "tf32": "::hostcuda::ptx::Tf32",
    "s8": "std::int8_t",
    "u8": "std::uint8_t",
    "e4m3": "__nv_fp8_e4m3",
    "e5m2": "__nv_fp8_e5m2",
    "f64": "double",
}


@emits("mma")
def _matrix_multiply(call: PtxInstruction) -> str:
    parts = [part for part in call.parts if part not in ("sync", "aligned", "satfinite")]
    if len(parts) != 7 or parts[1:3] != ["row", "col"]:
        raise call.refuse()
    shape, _, _, d, a, b, c = parts
    if "satfinite" in call.parts and d != "s32":
        raise call.refuse()
    words = _MMA_SHAPES.get((shape, a))
    sums = {"s8": "s32", "u8": "s32", "f64": "f64"}.get(a, "f32")
    if words is None or d != c or (d != sums and not (d == "f16" and a in ("f16", "e4m3", "e5m2"))):
        raise call.refuse()
    if a != b and {a, b} not in ({"s8", "u8"}, {"e4m3", "e5m2"}):
        raise call.refuse()
    call.need(4)
    m, n, k = (int(number) for number in re.findall(r"\d+", shape))
    groups = [call.group(i) for i in range(4)]
    accumulators = 2 if d == "f16" or a == "f64" else 4
    if [len(group) for group in groups] != [accumulators, *words, accumulators]:
        raise call.refuse()
    word = "u64" if a == "f64" else "u32"
    lines = []
    for name, group, count in (("a", groups[1], words[0]), ("b", groups[2], words[1]), ("c", groups[3], accumulators)):
        values = ", ".join(call.value(register, word) for register in group)
        lines.append(f"const {TYPES[word]} hc_{name}[{count}] = {{{values}}};")
    lines.append(f"{TYPES[word]} hc_d[{accumulators}];")
    types = f"{m}, {n}, {k}, {_MMA_ELEMENTS[a]}, {_MMA_ELEMENTS[b]}, {TYPES[d]}, {flag(set(call.parts), 'satfinite')}"
    lines.append(f"::hostcuda::ptx::mma<{types}>(hc_d, hc_a, hc_b, hc_c);")
    lines += [call.store(register, f"hc_d[{i}]") for i, register in enumerate(groups[0])]
    return " ".join(lines)

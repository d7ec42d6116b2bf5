"""PTX instructions: loads, stores, atomics, asynchronous copies, barriers.

Pure; importing this module registers its emitters. Semantics are those of NVIDIA's "Parallel Thread Execution ISA". An
emitter refuses a modifier that it does not know.
"""

from __future__ import annotations

from harness.hostcuda.translate.ptx.call import TYPES, PtxInstruction, emits

# ---- memory

_CACHE_HINTS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak", "evict_last", "evict_first", "no_allocate"}
_SPACES = ("global", "shared::cta", "shared::cluster", "shared", "local", "const")
_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}
_SCOPES = {"cta", "cluster", "gpu", "sys"}


def _memory(call: PtxInstruction) -> tuple[str, int, str, bool]:
    """Type, vector length, state space and atomicity of `ld` and `st`."""
    kind = call.type()
    count = 1
    if call.parts and call.parts[-1] in ("v2", "v4", "v8"):
        count = int(call.parts.pop()[1:])
    rest = set(call.parts)
    space = next((name for name in _SPACES if name in rest), "generic")
    hints = {part for part in rest if part.startswith(("L1::", "L2::"))}
    if rest - hints - _CACHE_HINTS - _STRONG - _SCOPES - {space}:
        raise call.refuse()
    return kind, count, space, bool(rest & _STRONG)


@emits("ld", "ldu")
def _load(call: PtxInstruction) -> str:
    kind, count, space, strong = _memory(call)
    call.need(2, 3)
    target = call.group(0)
    if len(target) != count or (strong and kind in ("f16", "bf16")):
        raise call.refuse()
    ctype = TYPES[kind]
    if strong and count == 1:
        return call.store(0, f"::hostcuda::ptx::load_strong<{ctype}>({call.address(1, space)})") + _fence_after(call)
    if count == 1:
        return call.store(0, f"::hostcuda::ptx::load<{ctype}>({call.address(1, space)})")
    code = f"const auto hc_t = ::hostcuda::ptx::load_vector<{ctype}, {count}>({call.address(1, space)});"
    return code + "".join(" " + call.store(name, f"hc_t.element[{i}]") for i, name in enumerate(target))


@emits("st")
def _store(call: PtxInstruction) -> str:
    kind, count, space, strong = _memory(call)
    call.need(2, 3)
    source = call.group(1)
    if len(source) != count:
        raise call.refuse()
    ctype = TYPES[kind]
    values = ", ".join(call.value(name, kind) for name in source)
    if count == 1:
        function = "store_strong" if strong else "store"
        return f"{_fence_before(call)}::hostcuda::ptx::{function}<{ctype}>({call.address(0, space)}, {values});"
    return f"::hostcuda::ptx::store_vector<{ctype}, {count}>({call.address(0, space)}, {{{{{values}}}}});"


def _scope(call: PtxInstruction) -> str:
    return "::hostcuda::Scope::block" if "cta" in call.parts else "::hostcuda::Scope::device"


def _fence_before(call: PtxInstruction) -> str:
    """The fence before a releasing access; the access itself is then relaxed."""
    return f"::hostcuda::fence({_scope(call)}, false, true); " if {"release", "acq_rel"} & set(call.parts) else ""


def _fence_after(call: PtxInstruction) -> str:
    """The fence behind an acquiring access."""
    return f" ::hostcuda::fence({_scope(call)}, true, false);" if {"acquire", "acq_rel"} & set(call.parts) else ""


@emits("prefetch", "prefetchu", "applypriority", "discard")
def _nothing_with_memory(call: PtxInstruction) -> str:
    return ";"


@emits("createpolicy")
def _cache_policy(call: PtxInstruction) -> str:
    return call.store(0, "std::uint64_t(0)")


_ATOMICS = {
    "add": "atomicAdd",
    "min": "atomicMin",
    "max": "atomicMax",
    "and": "atomicAnd",
    "or": "atomicOr",
    "xor": "atomicXor",
    "exch": "atomicExch",
    "inc": "atomicInc",
    "dec": "atomicDec",
    "cas": "atomicCAS",
}
_ATOMIC_TYPES = {
    "u32": "unsigned",
    "b32": "unsigned",
    "s32": "int",
    "u64": "unsigned long long",
    "b64": "unsigned long long",
    "s64": "long long",
    "f32": "float",
    "f64": "double",
    "f16": "__half",
    "f16x2": "__half2",
    "bf16": "__nv_bfloat16",
    "bf16x2": "__nv_bfloat162",
    "b16": "unsigned short",
    "b128": "unsigned __int128",
}


@emits("atom", "red")
def _atomic(call: PtxInstruction) -> str:
    kind = call.type(*_ATOMIC_TYPES)
    count = int(call.parts.pop()[1:]) if call.parts and call.parts[-1] in ("v2", "v4", "v8") else 1
    rest = set(call.parts)
    operation = next((name for name in _ATOMICS if name in rest), None)
    space = next((name for name in _SPACES if name in rest), "generic")
    known = {
        "relaxed",
        "acquire",
        "release",
        "acq_rel",
        "noftz",
        "global",
        "shared",
        "shared::cta",
        "shared::cluster",
        *_SCOPES,
        *_ATOMICS,
    }
    if operation is None or {part for part in rest - known if not part.startswith("L2::")}:
        raise call.refuse()
    is_atom = call.opcode.startswith("atom")
    if kind == "b128" and (not is_atom or operation not in ("exch", "cas")):
        raise call.refuse()
    if kind == "s64" and operation == "add":
        kind = "u64"
    ctype = _ATOMIC_TYPES[kind]
    where = 1 if is_atom else 0
    pointer = call.address(where, space)
    if count > 1:
        if is_atom or operation != "add":
            raise call.refuse()
        values = [f"::hostcuda::bits_cast<{ctype}>({call.value(name, kind)})" for name in call.group(1)]
        return " ".join(
            f"(void)atomicAdd(reinterpret_cast<{ctype}*>({pointer}) + {i}, {value});" for i, value in enumerate(values)
        )
    call.need(where + (3 if operation == "cas" else 2), where + (4 if operation == "cas" else 3))
    values = [f"static_cast<{ctype}>({call.value(where + 1, kind)})"]
    if operation == "cas":
        values.append(f"static_cast<{ctype}>({call.value(where + 2, kind)})")
    scoped = "_block" if "cta" in rest and kind not in ("f16x2", "bf16x2", "b128") else ""
    expression = f"{_ATOMICS[operation]}{scoped}(reinterpret_cast<{ctype}*>({pointer}), {', '.join(values)})"
    if not is_atom:
        return f"{_fence_before(call)}(void){expression};"
    return _fence_before(call) + call.store(0, expression) + _fence_after(call)


# ---- asynchronous copies


@emits("cp")
def _copy(call: PtxInstruction) -> str:
    parts = [part for part in call.parts if not part.startswith(("L2::", "L1::"))]
    if parts[:2] == ["async", "mbarrier"]:
        return _bound_copies(call, set(parts[2:]))
    if parts[:2] == ["async", "bulk"]:
        return _bulk_copy(call, parts[2:])
    if parts == ["async", "commit_group"]:
        return "::hostcuda::ptx::cp_async_commit();"
    if parts == ["async", "wait_all"]:
        return "::hostcuda::ptx::cp_async_wait_all();"
    if parts == ["async", "wait_group"]:
        call.need(1)
        return f"::hostcuda::ptx::cp_async_wait({call.value(0, 's32')});"
    if parts[:1] != ["async"] or set(parts[1:]) - {"ca", "cg", "shared", "shared::cta", "global"}:
        raise call.refuse()
    call.need(3, 5)
    size = call.operands[2]
    target, source = call.address(0, "shared"), call.address(1, "global")
    if not {"shared", "shared::cta"} & set(parts) or "global" not in parts:
        raise call.refuse()
    kept = call.value(2, "s32")
    if len(call.operands) >= 4:
        third = call.operands[3]
        is_predicate = not third[0].isdigit() and call.scope.find(third).width == 1
        hinted = "cache_hint" in call.opcode and len(call.operands) == 4
        if is_predicate:
            kept = f"({call.value(3, 'pred')} ? 0 : {call.value(2, 's32')})"
        elif not hinted:
            kept = call.value(3, "s32")
    bytes_ = size if size.isdigit() else call.value(2, "s32")
    return f"::hostcuda::ptx::cp_async({target}, {source}, {bytes_}, {kept}, {'16' if 'cg' in parts else '0'});"


def _bound_copies(call: PtxInstruction, given: set[str]) -> str:
    call.need(1)
    if not {"arrive", "b64"} <= given or given - {"arrive", "noinc", "b64", *_SHARED}:
        raise call.refuse()
    function = "bind_and_arrive" if "noinc" in given else "async_bind"
    return f"::hostcuda::{'ptx::' if 'noinc' in given else ''}{function}({call.address(0, 'shared')});"


_SHARED = {"shared", "shared::cta", "shared::cluster"}
_COUNTED = "mbarrier::complete_tx::bytes"


def _bulk_copy(call: PtxInstruction, parts: list[str]) -> str:
    if parts == ["commit_group"]:
        return "::hostcuda::async_bulk_commit();"
    if parts in (["wait_group"], ["wait_group", "read"]):
        call.need(1)
        return f"::hostcuda::async_bulk_wait({call.value(0, 'u32')});"
    if parts == ["prefetch", "L2", "global"]:
        return ";"
    hinted = "L2::cache_hint" in call.opcode
    if parts[1:] == ["global", _COUNTED] and parts[0] in _SHARED:
        call.need(5 if hinted else 4)
        target, source, barrier = call.address(0, "shared"), call.address(1, "global"), call.address(3, "shared")
        return f"::hostcuda::ptx::bulk_load({barrier}, {target}, {source}, {call.value(2, 'u32')});"
    if parts == ["global", "shared::cta", "bulk_group"]:
        call.need(4 if hinted else 3)
        target, source = call.address(0, "global"), call.address(1, "shared")
        return f"::hostcuda::ptx::bulk_store({target}, {source}, {call.value(2, 'u32')});"
    raise call.refuse()


# ---- other blocks of the cluster


@emits("mapa")
def _map_to_block(call: PtxInstruction) -> str:
    kind = call.type("u32", "u64")
    given = call.only("shared::cluster")
    call.need(3)
    if not given and kind != "u64":
        raise call.refuse()
    function = "map_shared" if given else "map_generic"
    address = call.value(1, "u32" if given else "u64")
    return call.store(0, f"static_cast<{TYPES[kind]}>(::hostcuda::ptx::{function}({address}, {call.value(2, 'u32')}))")


@emits("getctarank")
def _rank_of_block(call: PtxInstruction) -> str:
    kind = call.type("u32", "u64")
    given = call.only("shared::cluster")
    call.need(2)
    if not given and kind != "u64":
        raise call.refuse()
    place = (
        f"::hostcuda::shared_pointer({call.value(1, 'u32')})"
        if given
        else f"::hostcuda::ptx::generic({call.value(1, 'u64')}, 0)"
    )
    return call.store(0, f"::hostcuda::cluster_rank_of({place})")


# ---- barriers in shared memory

_ORDERS = {"relaxed", "acquire", "release", "cta", "cluster"}


@emits("mbarrier")
def _mbarrier(call: PtxInstruction) -> str:
    call.type("b64")
    what, *rest = call.parts
    given = set(rest) - _SHARED - _ORDERS
    space = "shared" if set(rest) & _SHARED else "generic"
    relaxed = "true" if "relaxed" in rest else "false"
    if what in ("arrive", "arrive_drop"):
        call.need(2, 3)
        if given - {"expect_tx", "noComplete"} or ({"expect_tx", "noComplete"} <= given):
            raise call.refuse()
        number = call.value(2, "u32") if len(call.operands) == 3 else "1u"
        if "expect_tx" in given and len(call.operands) != 3:
            raise call.refuse()
        count, bytes_ = ("1u", number) if "expect_tx" in given else (number, "0u")
        dropped = count if what == "arrive_drop" else "0u"
        given_all = f"{call.address(1, space)}, {count}, {dropped}, {bytes_}, {relaxed}"
        return call.store(0, f"::hostcuda::ptx::mbarrier_come({given_all})")
    if what in ("test_wait", "try_wait"):
        call.need(3, 4)
        if given - {"parity"}:
            raise call.refuse()
        function = "passed_parity" if given else "passed_since"
        known = f"({call.value(2, 'u32')} & 1u) != 0" if given else call.value(2, "u64")
        place = f"::hostcuda::ptx::barrier_at({call.address(1, space)})"
        return call.store(0, f"::hostcuda::mbarrier::{function}({place}, {known}, __builtin_LINE(), {relaxed})")
    if what == "pending_count":
        call.need(2)
        return call.store(0, f"static_cast<std::uint32_t>(::hostcuda::mbarrier::pending_of({call.value(1, 'u64')}))")
    if given or what not in ("init", "inval", "expect_tx", "complete_tx"):
        raise call.refuse()
    call.need(1 if what == "inval" else 2)
    place = f"::hostcuda::ptx::barrier_at({call.address(0, space)})"
    if what == "inval":
        return f"::hostcuda::sync_begin({place});"
    number = call.value(1, "u32")
    if what == "init":
        return f"::hostcuda::mbarrier::begin({place}, {number});"
    sign = "-" if what == "complete_tx" else ""
    return f"::hostcuda::mbarrier::announce({place}, {sign}static_cast<long long>({number}));"

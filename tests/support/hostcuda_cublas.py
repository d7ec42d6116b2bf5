"""What the tests of cuBLAS on the host device run in a process of its own, since activating the device changes torch.

`python tests/support/hostcuda_cublas.py` prints one JSON object: {"products": [...], "broken": {case: ...}, ...}.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from harness.untrusted.contestant.hostcuda import shim
from tests.support.hostcuda_loader import load

SOURCE = Path(__file__).with_name("hostcuda_cublas.cu").read_text()
FUNCTIONS = re.findall(r"^(?!static)(?:void|int64_t|std::string|std::vector<\w+>) (\w+)\(", SOURCE, re.M)

F, D, H, B, I8, I32 = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32
COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_32I = 64, 68, 70, 72
FAST_16F, FAST_16BF, FAST_TF32, PEDANTIC = 74, 75, 77, 69
KINDS = [
    (F, F, COMPUTE_32F),
    (D, D, COMPUTE_64F),
    (H, H, COMPUTE_32F),
    (H, F, COMPUTE_32F),
    (B, B, COMPUTE_32F),
    (B, F, COMPUTE_32F),
    (H, H, COMPUTE_16F),
    (I8, I32, COMPUTE_32I),
    (I8, F, COMPUTE_32F),
]
"""Factors, result, compute type."""


def drawn(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype in (I8, I32):
        return torch.randint(-9, 10, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def columns(matrix: torch.Tensor, leading: int) -> torch.Tensor:
    """`[count, rows, cols]` in columns, `leading` apart; what lies between is 77."""
    count, rows, cols = matrix.shape
    held = torch.full((count, cols, leading), 77, dtype=matrix.dtype)
    held[:, :, :rows] = matrix.transpose(1, 2)
    return held


def product(
    m: Any, form: int, ta: int, tb: int, kind: tuple[Any, Any, int], alpha: float, beta: float, *, typed: bool
) -> dict[str, Any]:
    """One product against float64: the error over the spread of the truth, and whether gaps stay as they were."""
    inner, outer, compute = kind
    rows, cols, depth, count = 7, 12, 20, 1 if form == 0 else 3
    a, b = (drawn(count, rows, depth, dtype=inner, seed=1), drawn(count, depth, cols, dtype=inner, seed=2))
    c = drawn(count, rows, cols, dtype=outer, seed=3)
    held_a = columns(a.transpose(1, 2) if ta else a, 24)
    held_b = columns(b.transpose(1, 2) if tb else b, 28)
    held_c = columns(c if beta else torch.full_like(c, torch.iinfo(outer).max if outer is I32 else float("nan")), 9)
    sizes = [rows, cols, depth, 24, 28, 9, *(h[0].numel() for h in (held_a, held_b, held_c)), count]
    on = [held.cuda() for held in (held_a, held_b, held_c)]
    if typed:
        status = m.gemm(form, ta, tb, sizes, alpha, on[0], on[1], beta, on[2])
    else:
        status = m.gemm_ex(form, ta, tb, sizes, alpha, on[0], on[1], beta, on[2], compute, -1, 0)
    truth = alpha * (a.double() @ b.double()) + (beta * c.double() if beta else 0)
    got = on[2].cpu()
    error = (got[:, :, :rows].transpose(1, 2).double() - truth).abs().max() / truth.square().mean().sqrt()
    return {
        "case": [form, ta, tb, str(inner), str(outer), compute, alpha, beta, typed],
        "status": status,
        "error": error.item(),
        "gaps": bool((got[:, :, rows:] == 77).all()),
    }


def products(m: Any) -> list[dict[str, Any]]:
    scalars = ((1.0, 0.0), (2.0, 0.0), (1.0, 1.0), (2.0, -3.0), (0.0, 2.0))
    rows = [
        product(m, form, ta, tb, kind, alpha, beta, typed=False)
        for form, ta, tb, kind, (alpha, beta) in itertools.product((0, 1, 2), (0, 1), (0, 1), KINDS, scalars)
    ]
    typed = [kind for kind in KINDS if kind in ((F, F, COMPUTE_32F), (D, D, COMPUTE_64F), (H, H, COMPUTE_16F))]
    return rows + [
        product(m, form, ta, tb, kind, alpha, beta, typed=True)
        for form, ta, tb, kind, (alpha, beta) in itertools.product((0, 1, 2), (0, 1, 2), (0, 1), typed, scalars[:4])
    ]


def precision(m: Any) -> dict[str, float]:
    """The error of a long float32 product by compute type, math mode and algorithm."""
    a, b = drawn(64, 512, dtype=F, seed=4), drawn(512, 64, dtype=F, seed=5)
    truth = a.double() @ b.double()
    ways = {
        "plain": (COMPUTE_32F, -1, 0),
        "pedantic": (PEDANTIC, -1, 3),
        "tf32": (FAST_TF32, -1, 0),
        "tf32 mode": (COMPUTE_32F, -1, 3),
        "half": (FAST_16F, -1, 0),
        "old algorithm": (COMPUTE_32F, 99, 0),
        "bfloat": (FAST_16BF, -1, 0),
    }
    out = {}
    for name, (compute, algo, math) in ways.items():
        c = torch.empty(64, 64, device="cuda")
        sizes = [64, 64, 512, 64, 512, 64, 0, 0, 0, 1]
        columns_of = [t.t().contiguous().cuda() for t in (a, b)]
        status = m.gemm_ex(0, 0, 0, sizes, 1.0, *columns_of, 0.0, c, compute, algo, math)
        assert status == 0
        out[name] = ((c.cpu().t().double() - truth).abs().max() / truth.square().mean().sqrt()).item()
    return out


def statuses(m: Any) -> dict[str, int]:
    """What bad arguments are answered with; each changes one thing of a product that works."""
    a = torch.ones(64, device="cuda")

    def call(
        *, form: int = 0, ta: int = 0, tb: int = 0, dtype: Any = F, compute: int = COMPUTE_32F, **changed: int
    ) -> int:
        sizes = {
            "m": 4,
            "n": 4,
            "k": 4,
            "lda": 4,
            "ldb": 4,
            "ldc": 4,
            "sa": 16,
            "sb": 16,
            "sc": 16,
            "count": 1,
        } | changed
        x, y, z = (a.to(dtype).clone() for _ in range(3))
        return int(m.gemm_ex(form, ta, tb, [*sizes.values()], 1.0, x, y, 0.0, z, compute, -1, 0))

    vectors = [torch.ones(64, device="cuda") for _ in range(3)]
    return {
        "good": call(),
        "nothing": call(m=0),
        "no depth": call(k=0),
        "m": call(m=-1),
        "lda": call(lda=3),
        "lda transposed": call(ta=1, k=8, lda=7),
        "lda transposed good": call(ta=1, k=8, lda=8, ldb=8),
        "ldb": call(ldb=3),
        "ldc": call(ldc=3),
        "count": call(form=1, count=-1),
        "no batch": call(form=1, count=0),
        "half as double": call(dtype=H, compute=COMPUTE_64F),
        "float by half": call(compute=COMPUTE_16F),
        "compute": call(compute=1),
        "gemv lda": m.routine("gemv", [0, 4, 4, 3, 1, 1], 1.0, 0.0, *vectors),
        "gemv increment": m.routine("gemv", [0, 4, 4, 4, 0, 1], 1.0, 0.0, *vectors),
        "geam in place": m.routine("geam", [1, 0, 4, 4, 4, 4, 4], 1.0, 1.0, vectors[0], vectors[1], vectors[0]),
        "trsm ldb": m.routine("trsm", [0, 0, 0, 0, 4, 4, 4, 3], 1.0, 0.0, *vectors),
    }


def vectors(m: Any) -> dict[str, float]:
    """Largest differences from the same in torch, in float64 by `D` and in float32 by `S`."""
    out: dict[str, float] = {}
    for letter, dtype in (("S", F), ("D", D)):
        x, y = drawn(30, dtype=dtype, seed=6), drawn(30, dtype=dtype, seed=7)
        a, b, c = (drawn(5, 6, dtype=dtype, seed=seed) for seed in (8, 9, 10))

        def call(name: str, numbers: list[int], *tensors: torch.Tensor, alpha: float = 1.5, beta: float = -0.5) -> Any:
            on = [t.clone().cuda() for t in tensors]
            on += [on[0]] * (3 - len(on))
            assert m.routine(name, numbers, alpha, beta, *on) == 0, name
            return [t.cpu() for t in on]

        def note(name: str, got: torch.Tensor, want: torch.Tensor, letter: str = letter) -> None:
            out[letter + name] = (got.double() - want.double()).abs().max().item()

        note("axpy", call("axpy", [30, 1, 1], x, y)[1], 1.5 * x + y)
        backwards = y.clone()
        backwards[0:20:2] += 1.5 * x[0:10].flip(0)
        note("axpy back", call("axpy", [10, -1, 2], x, y)[1], backwards)
        scaled = x.clone()
        scaled[::3] *= 1.5
        note("scal", call("scal", [10, 3], x)[0], scaled)
        note("copy", call("copy", [30, 1, 1], x, y)[1], x)
        swapped = call("swap", [30, 1, 1], x, y)
        note("swap", torch.cat(swapped[:2]), torch.cat([y, x]))
        held = a.t().contiguous()  # 5 x 6 in columns
        note("gemv", call("gemv", [0, 5, 6, 5, 1, 1], held, x, y[:5])[2], 1.5 * (a @ x[:6]) - 0.5 * y[:5])
        note(
            "gemv t",
            call("gemv", [1, 5, 6, 5, -1, 1], held, x[:5], y[:6])[2],
            1.5 * (a.t() @ x[:5].flip(0)) - 0.5 * y[:6],
        )
        note("ger", call("ger", [5, 6, 1, 1, 5], x[:5], y[:6], held)[2].t(), a + 1.5 * torch.outer(x[:5], y[:6]))
        fresh = torch.full((6, 5), float("nan"), dtype=dtype)
        note("geam", call("geam", [0, 0, 5, 6, 5, 5, 5], held, b.t().contiguous(), fresh)[2].t(), 1.5 * a - 0.5 * b)
        note("geam t", call("geam", [1, 0, 5, 6, 6, 5, 5], a, b.t().contiguous(), fresh)[2].t(), 1.5 * a - 0.5 * b)
        note("geam one", call("geam", [1, 0, 5, 6, 6, 5, 5], a, fresh, fresh, beta=0.0)[2].t(), 1.5 * a)
        note("dgmm left", call("dgmm", [0, 5, 6, 5, 1, 5], held, x[:5], fresh)[2].t(), torch.diag(x[:5]) @ a)
        note("dgmm right", call("dgmm", [1, 5, 6, 5, 1, 5], held, x[:6], fresh)[2].t(), a @ torch.diag(x[:6]))
        square = (c @ c.t()).contiguous()
        for name, upper in (("syrk lower", 0), ("syrk upper", 1)):
            want = torch.where(torch.ones(5, 5).tril().bool() == (upper == 0), 1.5 * (a @ a.t()) - 0.5 * square, square)
            want.diagonal().copy_((1.5 * (a @ a.t()) - 0.5 * square).diagonal())
            note(name, call("syrk", [upper, 0, 5, 6, 5, 5], held, held, square)[2].t(), want)
        factor = torch.eye(5, dtype=dtype) * 4 + a[:, :5]
        for side, upper, t, unit in itertools.product((0, 1), (0, 1), (0, 1), (0, 1)):
            triangle = factor.triu() if upper else factor.tril()
            if unit:
                triangle = triangle - torch.diag(triangle.diagonal()) + torch.eye(5, dtype=dtype)
            by = triangle.t() if t else triangle
            right = b if side == 0 else b.t()  # 5 x 6 or 6 x 5
            rows, cols = right.shape
            numbers = [side, upper, t, unit, rows, cols, 5, rows]
            got = call("trsm", numbers, factor.t().contiguous(), factor, right.t().contiguous())[2].t()
            note(f"trsm {side}{upper}{t}{unit}", by @ got if side == 0 else got @ by, 1.5 * right)
    return out


BROKEN: dict[str, Callable[[Any], Any]] = {
    "m": lambda m: m.past_the_end(*blocks(8, 3), 9, 8, 8),
    "n": lambda m: m.past_the_end(*blocks(8, 3), 8, 9, 8),
    "k": lambda m: m.past_the_end(*blocks(8, 3), 8, 8, 9),
    "batch": lambda m: m.strided_past_the_end(
        torch.ones(3, 4, 4).cuda(), *blocks(4, 1), torch.ones(2, 4, 4).cuda(), 4, 3
    ),
    "vector": lambda m: m.vector_past_the_end(torch.ones(10).cuda(), 5, 3),
    "unwritten": lambda m: m.accumulates_into_nothing(*blocks(4, 1)),
    "in place": lambda m: m.in_place(*blocks(4, 2)),
    "one result": lambda m: m.one_result(torch.ones(2, 4, 4).cuda(), *blocks(4, 1)),
    "complex": lambda m: m.complex_product(*blocks(4, 1)),
    "host scalar": lambda m: m.host_scalar_in_device_mode(torch.ones(10).cuda()),
    "device scalar": lambda m: m.device_scalar_in_host_mode(torch.ones(10).cuda()),
    "on the host": lambda m: m.on_the_host(torch.ones(10)),
    "pointers on the host": lambda m: m.pointers_on_the_host(*blocks(4, 2)),
}


def blocks(size: int, count: int) -> list[torch.Tensor]:
    return [torch.ones(size, size).cuda() for _ in range(count)]


def broken(m: Any) -> dict[str, Any]:
    out = {}
    for name, call in BROKEN.items():
        shim.clear()
        failure = None
        try:
            call(m)
            torch.cuda.synchronize()
        except RuntimeError as error:
            failure = str(error).splitlines()[0]
        out[name] = {"failure": failure, "reports": shim.collect_reports()}
    return out


def main() -> None:
    shim.activate()
    m = load(SOURCE, functions=FUNCTIONS, checked=True)
    x = torch.tensor([3.0, -1.0, 2.0, 9.0, -4.0, 0.5])
    scalars, norm = torch.tensor([2.0, -1.0]).cuda(), torch.zeros(1).cuda()
    one, two, z = blocks(4, 3)
    found: dict[str, Any] = {
        "products": products(m),
        "precision": precision(m),
        "vectors": vectors(m),
        "statuses": statuses(m),
        "sums": m.sums(x.cuda(), 3, 2, x.cuda(), -1),
        "no sums": m.sums(x.cuda(), 0, 1, x.cuda(), 1),
        "device scalars": [m.device_scalars(one, two, z, scalars, norm), z.flatten().tolist(), norm.item()],
        "handles": m.handles(),
        "text": m.status_text(7),
    }
    modes = [m.torchs_math_mode()]
    torch.backends.cuda.matmul.allow_tf32 = True
    found["math modes"] = [*modes, m.torchs_math_mode()]
    try:
        m.torchs_check()
    except RuntimeError as error:
        found["check"] = str(error).splitlines()[0]
    found["reports"] = shim.collect_reports()
    found["launches"] = [launch[0] for launch in shim.launches_of_call()]
    found["broken"] = broken(m)
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

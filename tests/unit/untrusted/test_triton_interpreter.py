"""Triton kernels on the host device, in Triton's own interpreter. Triton is no dependency: where it is missing, only
what is said of that is tested."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.runner.record_builder import brings_gpu_code
from tests.support.paths import ROOT

TIMEOUT_S = 900

SOLUTION = """
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BM": 32, "BN": 32, "BK": 16}), triton.Config({"BM": 16, "BN": 16, "BK": 32})], key=["M"]
)
@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        y = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def row_softmax(x, y, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * n + columns, e / tl.sum(e, axis=0), mask=columns < n)


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)
"""

RUN = """
import json, sys
from pathlib import Path
import torch
from harness.hostcuda.translate import build
from harness.untrusted.contestant.hostcuda import shim
shim.activate(build.prepare_headers())
path = Path(sys.argv[1])
scope = {"__file__": str(path), "__name__": "solution"}
exec(compile(path.read_text(), str(path), "exec"), scope)
triton = scope["triton"]
torch.manual_seed(0)
a, b, c = torch.randn(40, 70).cuda(), torch.randn(70, 50).cuda(), torch.empty(40, 50, device="cuda")
scope["matmul"][lambda meta: (triton.cdiv(40, meta["BM"]), triton.cdiv(50, meta["BN"]))](a, b, c, 40, 50, 70)
y = torch.empty_like(a)
scope["row_softmax"][(40,)](a, y, 70, BLOCK=128)
x, bins = torch.randint(0, 8, (1000,), dtype=torch.int32).cuda(), torch.zeros(8, dtype=torch.int32, device="cuda")
scope["histogram"][(triton.cdiv(1000, 256),)](x, bins, 1000, BLOCK=256)
driver = triton.runtime.driver.active
print(json.dumps({
    "device": str(c.device),
    "matmul": (c.cpu() - a.cpu() @ b.cpu()).abs().max().item(),
    "softmax": (y.cpu() - torch.softmax(a.cpu(), 1)).abs().max().item(),
    "bins": bins.tolist() == torch.bincount(x.cpu(), minlength=8).tolist(),
    "chosen": scope["matmul"].best_config.kwargs["BM"],
    "target": driver.get_current_target().arch,
    "processors": driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"],
    "reports": shim.collect_reports(),
}))
"""

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed; `pip install triton` makes this run"
)


@cache
def _run(folder: Path) -> dict[str, Any]:
    path = folder / "solution.py"
    path.write_text(SOLUTION)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("triton")


@needs_triton
def test_kernels_compute_what_torch_computes(folder: Path) -> None:
    answer = _run(folder)
    assert answer["device"] == "cuda:0"
    assert answer["matmul"] < 1e-4
    assert answer["softmax"] < 1e-6
    assert answer["bins"]
    assert answer["reports"] == []


@needs_triton
def test_autotuning_takes_the_first_configuration_and_needs_no_driver(folder: Path) -> None:
    answer = _run(folder)
    assert (answer["chosen"], answer["target"], answer["processors"]) == (32, 90, 132)


@needs_triton
def test_races_and_accesses_out_of_bounds_are_found_by_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostcuda.triton_kernels", "--json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
    )
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    assert sum(row["kind"] == "sound" for row in rows) >= 40
    assert sum(row["kind"] != "sound" for row in rows) >= 20
    assert [row["name"] for row in rows if not row["ok"]] == []


GPU_ONLY = """
from harness.untrusted.contestant.hostcuda.torch_lacking import refuse_absent
notes = []
refuse_absent(notes.append)
for name in ("cutlass.cute", "tilelang"):
    try:
        __import__(name)
    except NotImplementedError as error:
        print(error)
print(notes)
"""


def test_packages_that_compile_for_gpus_only_are_refused_by_name() -> None:
    done = subprocess.run([sys.executable, "-c", GPU_ONLY], cwd=ROOT, capture_output=True, text=True, check=True)
    refused = [f"{name} (it compiles for GPUs only)" for name in ("CuTe DSL", "TileLang")]
    assert done.stdout.splitlines() == [*(f"not emulated on the host device: {what}" for what in refused), str(refused)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch\nimport triton\n", True),
        ("    from triton import language as tl\n", True),
        ('later = "__global__ void k(float* x) {}"\n', True),
        ("import cutlass.cute as cute\n", True),
        ("import tilelang\n", True),
        ("import tritonic\n# import triton\n", False),
    ],
)
def test_a_solution_with_kernels_is_known_and_so_is_not_timed_on_the_cpu(source: str, expected: bool) -> None:
    assert brings_gpu_code(source) is expected

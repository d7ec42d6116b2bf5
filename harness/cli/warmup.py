"""Evaluate a test solution, so that the first real one starts faster.

Trusted side. After its start, a machine reads gigabytes from its disk when torch, cuBLAS, the CUDA compiler and
compute-sanitizer are first used; the evaluation also shows whether they work. Only caches keep its results: the
compiled extension, the shapes of the problem and the peak rates of the GPU.

It is a whole evaluation, not a list of libraries to read, because such a list would become wrong with new versions. It
takes seconds, so it runs once for each start of the machine (`once`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.api import Harness
from harness.core.atomic_file import replace_whole
from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import Environment, cuda_unusable
from harness.core.executables import find_nvcc
from harness.core.json_value import JsonObject
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Status, one_line
from harness.referee.audit.auditor import find_sanitizer

STAMP = "rehearsed.json"
"""File in the cache folder: machine start, device, torch, driver and sanitizer of the last passed rehearsal."""

_REFERENCE = """
import torch

SIZE = 1024


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [torch.rand(SIZE, SIZE) - 0.5, torch.rand(SIZE, SIZE) - 0.5]


def get_init_inputs():
    return []
"""

PROBLEM = Problem(
    id="rehearsal/1",
    name="product",
    path=Path("1_product.py"),
    source=_REFERENCE,
    digest=digest_text(_REFERENCE),
    workloads={
        "full": Workload(name="full"),
        "small": Workload(name="small", sizes={"SIZE": 40}),
    },
)

SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

#define TILE 16

__global__ void product(const float* a, const float* b, float* c, int size) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (int k = 0; k < size; k += TILE) {
        as[y][x] = row < size && k + x < size ? a[row * size + k + x] : 0.0f;
        bs[y][x] = k + y < size && column < size ? b[(k + y) * size + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += as[y][i] * bs[i][x];
        __syncthreads();
    }
    if (row < size && column < size) c[row * size + column] = fmaxf(sum, 0.0f);
}

torch::Tensor product_relu(torch::Tensor a, torch::Tensor b) {
    int size = a.size(0), blocks = (size + TILE - 1) / TILE;
    auto c = torch::empty_like(a);
    product<<<dim3(blocks, blocks), dim3(TILE, TILE)>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), size);
    return c;
}
"""

module = load_inline(
    name="rehearsal",
    cpp_sources="torch::Tensor product_relu(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA,
    functions=["product_relu"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return module.product_relu(a, b)
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup(JsonObject):
    """Result of a rehearsal.

    `status` is None if nothing was evaluated, and `reason` then says why. `audited` says whether compute-sanitizer was
    used.
    """

    status: Status | None
    reason: str
    wall_s: float = 0.0
    audited: bool = False


def rehearse(config: RunConfig) -> Warmup:
    """Evaluate the test solution on the device of this configuration (the first GPU).

    It raises nothing: an error here would also occur in an evaluation, which reports it.
    """
    begin = time.perf_counter()
    try:
        with Harness(
            device=config.device,
            timing="quick",
            sandbox=config.sandbox,
            audit=config.audit,
            checked=config.checked,
            jobs=config.jobs,
            workers=1,
            cache_dir=config.cache_dir,
        ) as harness:
            record = harness.evaluate(PROBLEM, SOLUTION, author="harness", name="rehearsal").record
        status, reason = record.status, record.reason
    except Exception as error:
        status, reason = None, one_line(f"{type(error).__name__}: {error}")
    audited = status is not None and _sanitizer(config) is not None
    return Warmup(status=status, reason=reason, wall_s=time.perf_counter() - begin, audited=audited)


def once(config: RunConfig, found: Environment, before: Callable[[], None] = lambda: None) -> Warmup:
    """Call `before` and `rehearse`, unless that is unnecessary or impossible.

    It is unnecessary if a rehearsal has passed since the machine's start, and impossible without a usable GPU.
    """
    why = cuda_unusable(found) if config.device is DeviceKind.CUDA else None
    if why is not None:
        return Warmup(status=None, reason=why)
    stamp = {
        "machine_start": _machine_start(),
        "device": config.device.value,
        "torch": found.torch,
        "driver": found.driver,
        "sanitizer": _sanitizer(config),
    }
    path = config.cache_dir / STAMP
    with suppress(OSError, ValueError):
        if stamp["machine_start"] is not None and json.loads(path.read_text(encoding="utf-8")) == stamp:
            return Warmup(status=None, reason="it has already passed since the start of this machine")
    before()
    made = rehearse(config)
    if made.status is Status.passed:
        with suppress(OSError):
            replace_whole(path, json.dumps(stamp).encode())
    return made


def _sanitizer(config: RunConfig) -> str | None:
    """Return the path of compute-sanitizer, if this configuration audits with it."""
    wanted = config.device is DeviceKind.CUDA and config.audit != "never"
    return find_sanitizer(find_nvcc()) if wanted else None


def _machine_start() -> str | None:
    """Return Linux's id of this start of the machine, or None."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None

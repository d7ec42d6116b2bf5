"""The inner sum of `digest` as one CUDA kernel, compiled at first use; six times as fast as torch's operations.

Imports `nvrtc` and torch. Trusted side. Where no kernel can be had, `digest` does the same sum with torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from harness import nvrtc

Sums = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of `words` (int32, a multiple of the keys' number, contiguous) and `keys` (int64): the sums of their products
modulo 2**64 over each run of as many words as there are keys (int64, one a run)."""

_THREADS = 256
_PIECES = 16
"""Blocks that share a run, so that few runs fill the GPU too."""

_SOURCE = """
extern "C" __global__ void keyed_sums(const int *words, const long long *keys, unsigned long long *sums,
                                      long long keys_count)
{
    const long long piece = keys_count / gridDim.y;
    const long long first = (long long)blockIdx.x * keys_count + (long long)blockIdx.y * piece;
    const int4 *from = reinterpret_cast<const int4 *>(words + first);
    const longlong2 *with = reinterpret_cast<const longlong2 *>(keys + (long long)blockIdx.y * piece);
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < piece / 4; i += blockDim.x) {
        const int4 word = __ldcs(from + i);
        const longlong2 a = with[2 * i], b = with[2 * i + 1];
        sum += (unsigned long long)word.x * (unsigned long long)a.x;
        sum += (unsigned long long)word.y * (unsigned long long)a.y;
        sum += (unsigned long long)word.z * (unsigned long long)b.x;
        sum += (unsigned long long)word.w * (unsigned long long)b.y;
    }
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sums + blockIdx.x, sum);
}
"""


@lru_cache(maxsize=16)
def load(device_index: int) -> Sums | None:
    """The kernel for a GPU, or None where it can't be had. The GPU's primary context must be current."""
    loaded = nvrtc.load(_SOURCE, ("keyed_sums",), device_index)
    if loaded is None:
        return None
    (launch,) = loaded

    def sums(words: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        if words.data_ptr() % 16:
            words = words.clone()
        runs = words.numel() // keys.numel()
        found = torch.zeros(runs, dtype=torch.int64, device=words.device)
        arguments = [
            nvrtc.pointer(words),
            nvrtc.pointer(keys),
            nvrtc.pointer(found),
            nvrtc.integer(keys.numel()),
        ]
        launch((runs, _PIECES, 1), _THREADS, arguments)
        return found

    return sums

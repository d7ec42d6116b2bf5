"""Checksums of many tensors by two CUDA kernels, compiled at first use.

Trusted side. If no kernel can be compiled, `checksum.py` computes the same sums with torch. The first kernel reads all
data once, at memory speed: a thread keeps its keys in registers for all runs, since loading them again for each word
would double the traffic from the L2 cache. The second kernel sums the rest, one block per tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch

from harness.devices import nvrtc

Span = tuple[int, int]
"""Address and bytes of one contiguous tensor; the address is a multiple of `ALIGNMENT_BYTES`."""

Checksums = Callable[[Sequence[Span], torch.Tensor, torch.Tensor], torch.Tensor]
"""Called with spans and the keys of both levels (int64, equally many, on the device); returns one int64 per span."""

ALIGNMENT_BYTES = 16

_THREADS = 256
_PIECE_WORDS = 16 * _THREADS
_BLOCKS_A_PROCESSOR = 3

_SOURCE = """
__device__ unsigned long long block_sum(unsigned long long sum, unsigned long long *of_warps)
{
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    if (threadIdx.x == 0)
        for (int warp = 0; warp < blockDim.x / 32; ++warp)
            sum += of_warps[warp];
    return sum;
}

__device__ unsigned long long product(int word, long long key)
{
    return (unsigned long long)(long long)word * (unsigned long long)key;
}

// The word that begins at a byte; bytes beyond the end count as zero.
__device__ int word_at(const unsigned char *bytes, long long at, long long end)
{
    if (at + 4 <= end)
        return *reinterpret_cast<const int *>(bytes + at);
    unsigned int word = 0;
    for (int i = 0; i < 4 && at + i < end; ++i)
        word |= (unsigned int)bytes[at + i] << (8 * i);
    return (int)word;
}

// spans: address, bytes and number of the first run of each. A run has as many words as there are keys; a block has
// one piece of the keys, and processes that piece of every run in turn.
extern "C" __global__ void __launch_bounds__(256, 3)
run_sums(const long long *spans, long long count, const long long *keys, long long keys_count, unsigned long long *sums)
{
    __shared__ unsigned long long of_warps[2][8];
    const int lane = threadIdx.x;
    const long long piece = (long long)blockIdx.x * PIECE;
    long long key[16];
    #pragma unroll
    for (int group = 0; group < 4; ++group)
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            key[4 * group + i] = keys[piece + 4ll * (group * 256 + lane) + i];
    int turn = 0;
    for (int span = 0; span < count; ++span) {
        const unsigned char *bytes = reinterpret_cast<const unsigned char *>(spans[3 * span]);
        const long long end = spans[3 * span + 1], first = spans[3 * span + 2], run_bytes = 4 * keys_count;
        // Runs are numbered through all spans, so that many small tensors keep as many blocks busy as a large one.
        long long run = ((long long)blockIdx.y - first) % gridDim.y;
        if (run < 0)
            run += gridDim.y;
        for (long long begin = run * run_bytes + 4 * piece; begin < end; begin += gridDim.y * run_bytes) {
            unsigned long long sum = 0;
            if (begin + 4 * PIECE <= end) {
                const int4 *from = reinterpret_cast<const int4 *>(bytes + begin);
                int4 word[4];
                #pragma unroll
                for (int group = 0; group < 4; ++group)
                    word[group] = __ldcs(from + group * 256 + lane);
                #pragma unroll
                for (int group = 0; group < 4; ++group) {
                    sum += product(word[group].x, key[4 * group]) + product(word[group].y, key[4 * group + 1]);
                    sum += product(word[group].z, key[4 * group + 2]) + product(word[group].w, key[4 * group + 3]);
                }
            } else {
                #pragma unroll
                for (int group = 0; group < 4; ++group)
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const long long at = begin + 4 * (4ll * (group * 256 + lane) + i);
                        if (at < end)
                            sum += product(word_at(bytes, at, end), key[4 * group + i]);
                    }
            }
            // Two buffers alternate: no thread writes to the one that the first thread may still be reading.
            sum = block_sum(sum, of_warps[turn ^= 1]);
            if (lane == 0)
                atomicAdd(sums + first + begin / run_bytes, sum);
        }
    }
}

// One block per span: the keyed sum of its runs' sums, taken as words; with one run, that run's sum.
extern "C" __global__ void span_sums(const long long *spans, const long long *keys, long long keys_count,
                                     const unsigned long long *sums, unsigned long long *found)
{
    __shared__ unsigned long long of_warps[8];
    const long long end = spans[3 * blockIdx.x + 1], first = spans[3 * blockIdx.x + 2], run_bytes = 4 * keys_count;
    const long long runs = end > run_bytes ? (end + run_bytes - 1) / run_bytes : 1;
    unsigned long long sum = 0;
    for (long long i = threadIdx.x; i < runs; i += blockDim.x) {
        const unsigned long long of_run = sums[first + i];
        sum += runs == 1 ? of_run
                         : product((int)(unsigned int)of_run, keys[2 * i]) +
                               product((int)(unsigned int)(of_run >> 32), keys[2 * i + 1]);
    }
    sum = block_sum(sum, of_warps);
    if (threadIdx.x == 0)
        found[blockIdx.x] = sum;
}
"""


@lru_cache(maxsize=16)
def load(device_index: int) -> Checksums | None:
    """Return the kernels for a GPU, or None if they can't be compiled."""
    loaded = nvrtc.load(_SOURCE, ("run_sums", "span_sums"), device_index, (f"PIECE={_PIECE_WORDS}ll",))
    if loaded is None:
        return None
    run_sums, span_sums = loaded
    device = torch.device("cuda", device_index)
    rows = max(1, torch.cuda.get_device_properties(device).multi_processor_count * _BLOCKS_A_PROCESSOR)

    def checksums(spans: Sequence[Span], keys: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        table, runs = _table(tuple(spans), 4 * keys.numel(), device_index)
        pieces = keys.numel() // _PIECE_WORDS
        sums = torch.zeros(runs, dtype=torch.int64, device=device)
        found = torch.empty(len(spans), dtype=torch.int64, device=device)
        held, count = nvrtc.pointer(table), nvrtc.integer(keys.numel())
        run_sums(
            (pieces, min(max(1, rows // pieces), runs), 1),
            _THREADS,
            [held, nvrtc.integer(len(spans)), nvrtc.pointer(keys), count, nvrtc.pointer(sums)],
        )
        span_sums(
            (len(spans), 1, 1),
            _THREADS,
            [held, nvrtc.pointer(second), count, nvrtc.pointer(sums), nvrtc.pointer(found)],
        )
        return found

    return checksums


@lru_cache(maxsize=256)
def _table(spans: tuple[Span, ...], run_bytes: int, device_index: int) -> tuple[torch.Tensor, int]:
    """Return addresses, sizes and first runs of spans on the device, and all runs.

    Cached: the same spans are used again and again.
    """
    rows = np.empty((len(spans), 3), dtype=np.int64)
    runs = 0
    for row, (address, size) in zip(rows, spans, strict=True):
        row[:] = address, size, runs
        runs += max(1, -(-size // run_bytes))
    return torch.from_numpy(rows).to(torch.device("cuda", device_index)), runs

"""The two passes of `comparison_real` over large tensors on a GPU as one kernel each: about a tenth of the time that
torch's operations take, and no temporaries.

Imports `nvrtc` and torch. Trusted side. For plain arithmetic only: finite entries that the output's type can hold.
What is more than that, and every GPU for which no kernel can be had, `comparison_real` does with torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness import nvrtc

_THREADS = 256
_BLOCKS_A_PROCESSOR = 8

_KINDS = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""Types that the kernels read, as the text below numbers them."""

ALIGNMENT_BYTES = 16
"""Four values are read at a time."""

_SOURCE = r"""
#if ACTUAL == 0
typedef float actual_t;
__device__ double wide(actual_t x) { return x; }
#elif ACTUAL == 1
typedef double actual_t;
__device__ double wide(actual_t x) { return x; }
#elif ACTUAL == 2
typedef unsigned short actual_t;
__device__ double wide(actual_t x) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x)); return f; }
#else
typedef unsigned short actual_t;
__device__ double wide(actual_t x) { return __uint_as_float((unsigned)x << 16); }
#endif

#if TRUTH == 0
typedef float truth_t;
#else
typedef double truth_t;
#endif

// Four neighbours in one or two reads.
__device__ void read(const float *from, long long group, float *to)
{
    const float4 x = reinterpret_cast<const float4 *>(from)[group];
    to[0] = x.x; to[1] = x.y; to[2] = x.z; to[3] = x.w;
}

__device__ void read(const double *from, long long group, double *to)
{
    const double2 x = reinterpret_cast<const double2 *>(from)[2 * group];
    const double2 y = reinterpret_cast<const double2 *>(from)[2 * group + 1];
    to[0] = x.x; to[1] = x.y; to[2] = y.x; to[3] = y.y;
}

__device__ void read(const unsigned short *from, long long group, unsigned short *to)
{
    const ushort4 x = reinterpret_cast<const ushort4 *>(from)[group];
    to[0] = x.x; to[1] = x.y; to[2] = x.z; to[3] = x.w;
}

// Magnitudes are in the order of their bits, infinity behind all numbers and NaN behind it.
__device__ unsigned long long magnitude(double x) { return __double_as_longlong(x) & 0x7fffffffffffffffull; }

__device__ unsigned long long larger(unsigned long long a, unsigned long long b) { return a > b ? a : b; }

__device__ double warp_sum(double x)
{
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
    return x;
}

__device__ unsigned long long warp_max(unsigned long long x)
{
    for (int offset = 16; offset > 0; offset /= 2) x = larger(x, __shfl_down_sync(0xffffffffu, x, offset));
    return x;
}

struct Moments
{
    double squares, sum;
    unsigned long long truth_top, actual_top;

    __device__ void take(double a, double t)
    {
        squares += t * t;
        sum += t;
        truth_top = larger(truth_top, magnitude(t));
        actual_top = larger(actual_top, magnitude(a));
    }
};

// For each block: sum of squares and sum of the truth, its largest magnitude, that of the output.
extern "C" __global__ void moments(const actual_t *actual, const truth_t *truth, long long count, double *found)
{
    Moments mine = {0, 0, 0, 0};
    const long long step = (long long)gridDim.x * blockDim.x, first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll 2
    for (long long group = first; group < count / 4; group += step) {
        actual_t a[4];
        truth_t t[4];
        read(actual, group, a);
        read(truth, group, t);
        for (int i = 0; i < 4; ++i) mine.take(wide(a[i]), t[i]);
    }
    for (long long i = count / 4 * 4 + first; i < count; i += step) mine.take(wide(actual[i]), truth[i]);
    __shared__ double sums[2][32];
    __shared__ unsigned long long tops[2][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    double squares = warp_sum(mine.squares), sum = warp_sum(mine.sum);
    unsigned long long truth_top = warp_max(mine.truth_top), actual_top = warp_max(mine.actual_top);
    if (lane == 0) {
        sums[0][warp] = squares; sums[1][warp] = sum; tops[0][warp] = truth_top; tops[1][warp] = actual_top;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; ++w) {
            squares += sums[0][w]; sum += sums[1][w];
            truth_top = larger(truth_top, tops[0][w]); actual_top = larger(actual_top, tops[1][w]);
        }
        double *of_block = found + 4ll * blockIdx.x;
        of_block[0] = squares; of_block[1] = sum;
        of_block[2] = __longlong_as_double(truth_top); of_block[3] = __longlong_as_double(actual_top);
    }
}

struct Errors
{
    double squares, top;
    long long at;

    __device__ void take(double a, double t, long long i, double scale, double half_unit, double least_slack)
    {
        const double size = fabs(t);
        double error = fabs(a - t);
        if (half_unit > 0) error = fmax(error - fmax(size * half_unit, least_slack), 0.0);
        squares += error * error;
        const double by = fmax(size, scale);
        if (error > top * by) { top = error / by; at = i; }  // a division is for the few that may be the largest
    }
};

// For each block: sum of squared errors beyond rounding, the largest scaled error and its place, which as a double is
// exact up to 2^53.
extern "C" __global__ void errors(const actual_t *actual, const truth_t *truth, long long count, double scale,
                                  double half_unit, double least_slack, double *found)
{
    Errors mine = {0, -1, 0};
    const long long step = (long long)gridDim.x * blockDim.x, first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll 2
    for (long long group = first; group < count / 4; group += step) {
        actual_t a[4];
        truth_t t[4];
        read(actual, group, a);
        read(truth, group, t);
        for (int i = 0; i < 4; ++i) mine.take(wide(a[i]), t[i], 4 * group + i, scale, half_unit, least_slack);
    }
    for (long long i = count / 4 * 4 + first; i < count; i += step)
        mine.take(wide(actual[i]), truth[i], i, scale, half_unit, least_slack);
    __shared__ double sums[32], tops[32];
    __shared__ long long places[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    double squares = warp_sum(mine.squares), top = mine.top;
    long long at = mine.at;
    for (int offset = 16; offset > 0; offset /= 2) {
        const double other = __shfl_down_sync(0xffffffffu, top, offset);
        const long long there = __shfl_down_sync(0xffffffffu, at, offset);
        if (other > top) { top = other; at = there; }
    }
    if (lane == 0) { sums[warp] = squares; tops[warp] = top; places[warp] = at; }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; ++w) {
            squares += sums[w];
            if (tops[w] > top) { top = tops[w]; at = places[w]; }
        }
        double *of_block = found + 3ll * blockIdx.x;
        of_block[0] = squares; of_block[1] = top; of_block[2] = (double)at;
    }
}

#if ACTUAL == 0 && TRUTH == 0
__device__ bool far_from(float a, float r, float relative, float absolute)
{
    const float allowed = __fadd_rn(absolute, fabsf(__fmul_rn(relative, r))), off = fabsf(__fsub_rn(a, r));
    return !(a == r || (off <= allowed && off < __int_as_float(0x7f800000)));
}

// How many entries are not close as torch.isclose has it, in float32: equal, or |a - r| <= absolute + |relative * r|.
extern "C" __global__ void far_apart(const float *actual, const float *other, long long count, float relative,
                                     float absolute, unsigned long long *found)
{
    unsigned long long far = 0;
    const long long step = (long long)gridDim.x * blockDim.x, first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll 4
    for (long long group = first; group < count / 4; group += step) {
        float a[4], r[4];
        read(actual, group, a);
        read(other, group, r);
        for (int i = 0; i < 4; ++i) far += far_from(a[i], r[i], relative, absolute);
    }
    for (long long i = count / 4 * 4 + first; i < count; i += step)
        far += far_from(actual[i], other[i], relative, absolute);
    for (int offset = 16; offset > 0; offset /= 2) far += __shfl_down_sync(0xffffffffu, far, offset);
    if (threadIdx.x % 32 == 0 && far) atomicAdd(found, far);
}
#endif
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPasses:
    """The passes over one pair of tensors. Each synchronises once."""

    actual: torch.Tensor
    truth: torch.Tensor

    def moments(self) -> tuple[float, float, float, float]:
        """Norm and sum of the truth, its largest magnitude, the output's; infinite or NaN where an entry is."""
        launch = _kernels(self.actual, self.truth)[0]
        found = torch.empty(_blocks(self.actual), 4, dtype=torch.float64, device=self.actual.device)
        launch((len(found), 1, 1), _THREADS, [*self._pair(), nvrtc.pointer(found)])
        # The blocks' numbers are put together here: each operation more on the device would cost as much as the kernel.
        held = found.cpu()
        squares, total = held[:, :2].sum(dim=0).tolist()
        truth_top, actual_top = held[:, 2:].amax(dim=0).tolist()
        return math.sqrt(squares), total, truth_top, actual_top

    def errors(self, scale: float, half_unit: float, least_slack: float) -> tuple[float, float, int]:
        """Norm of the errors, the largest scaled error, its flat index.

        `half_unit` times an entry, `least_slack` at least, is taken off its error: rounding of the output's own type;
        0 where nothing is.
        """
        launch = _kernels(self.actual, self.truth)[1]
        found = torch.empty(_blocks(self.actual), 3, dtype=torch.float64, device=self.actual.device)
        numbers = [nvrtc.number(value) for value in (scale, half_unit, least_slack)]
        launch((len(found), 1, 1), _THREADS, [*self._pair(), *numbers, nvrtc.pointer(found)])
        held = found.cpu()
        _, top, place = held[int(held[:, 1].argmax())].tolist()
        return math.sqrt(float(held[:, 0].sum())), top, int(place)

    def _pair(self) -> list[nvrtc.Argument]:
        return [nvrtc.pointer(self.actual), nvrtc.pointer(self.truth), nvrtc.integer(self.actual.numel())]


def passes(actual: torch.Tensor, truth: torch.Tensor) -> PlainPasses | None:
    """The kernels for this pair; None where they are not made for it."""
    fit = (
        actual.is_cuda
        and truth.device == actual.device
        and actual.is_contiguous()
        and truth.is_contiguous()
        and actual.dtype in _KINDS
        and truth.dtype in (torch.float32, torch.float64)
        and actual.numel() > 0
        and _aligned(actual, truth)
    )
    return PlainPasses(actual=actual, truth=truth) if fit and _kernels(actual, truth) else None


def all_close(actual: torch.Tensor, other: torch.Tensor, tolerance: float) -> bool | None:
    """`torch.allclose` at this tolerance, relative and absolute, of float32 tensors; None where no kernel is for it."""
    fit = actual.is_cuda and other.device == actual.device and actual.dtype is other.dtype is torch.float32
    if not (fit and actual.is_contiguous() and other.is_contiguous() and actual.numel() and _aligned(actual, other)):
        return None
    if not (kernels := _kernels(actual, other)):
        return None
    found = torch.zeros((), dtype=torch.int64, device=actual.device)
    pair = [nvrtc.pointer(actual), nvrtc.pointer(other), nvrtc.integer(actual.numel())]
    kernels[2](
        (_blocks(actual), 1, 1),
        _THREADS,
        [*pair, nvrtc.single(tolerance), nvrtc.single(tolerance), nvrtc.pointer(found)],
    )
    return int(found) == 0


def _kernels(actual: torch.Tensor, truth: torch.Tensor) -> list[nvrtc.Launch]:
    both_single = actual.dtype is truth.dtype is torch.float32
    names = ("moments", "errors", *(("far_apart",) if both_single else ()))
    definitions = (f"ACTUAL={_KINDS[actual.dtype]}", f"TRUTH={0 if truth.dtype is torch.float32 else 1}")
    return nvrtc.load(_SOURCE, names, actual.device.index, definitions) or []


def _aligned(*tensors: torch.Tensor) -> bool:
    return all(tensor.data_ptr() % ALIGNMENT_BYTES == 0 for tensor in tensors)


def _blocks(tensor: torch.Tensor) -> int:
    most = torch.cuda.get_device_properties(tensor.device).multi_processor_count * _BLOCKS_A_PROCESSOR
    return max(1, min(int(most), -(-tensor.numel() // _THREADS)))

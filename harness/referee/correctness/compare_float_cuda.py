"""Measure errors on a GPU with the kernels of two passes.

Trusted side. Each pass is two kernels: one over all blocks, one over their results. For large tensors they take about a
tenth of the time of torch's operations, and no temporaries. The second pass reads the first one's result on the device,
so nothing waits between passes, nor between the pairs of many calls.

The kernels are for finite entries that the output's type can represent. `compare_float.py` does everything else with
torch, also on GPUs without these kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.devices import nvrtc
from harness.referee.problem.chunks import TEMPORARY_BYTES

_THREADS = 256
_BLOCKS_A_PROCESSOR = 8
_ONE = (1, 1, 1)
_PASSES = ("moments", "total_moments", "errors", "total_errors")
_FOUND, _SCALE, _ERRORS = 8, 4, 5
"""Number of values that the passes write, and the positions of the scale and of the first value of `total_errors`."""

_KINDS = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""Types that the kernels read, with their numbers in the source below."""

ALIGNMENT_BYTES = 16
"""The kernels read four values at a time."""

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

// Read four neighbours at once.
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

// Magnitudes order like their bits: infinity is larger than all numbers, NaN is larger than infinity.
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

// Reduce a block's threads to sums and maxima; the first thread writes them.
__device__ void put(const Moments &mine, double *to)
{
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
        to[0] = squares; to[1] = sum;
        to[2] = __longlong_as_double(truth_top); to[3] = __longlong_as_double(actual_top);
    }
}

// For each block: sum of squares and sum of the truth, its largest magnitude, the output's largest magnitude.
extern "C" __global__ void moments(const actual_t *actual, const truth_t *truth, long long count, double *of_blocks)
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
    put(mine, of_blocks + 4ll * blockIdx.x);
}

// One block: the same four over all blocks, and the scale of errors: the truth's root mean square, or `otherwise` if
// that is below `least`.
extern "C" __global__ void total_moments(const double *of_blocks, long long blocks, long long count, double least,
                                         double otherwise, double *found)
{
    Moments mine = {0, 0, 0, 0};
    for (long long block = threadIdx.x; block < blocks; block += blockDim.x) {
        const double *held = of_blocks + 4 * block;
        mine.squares += held[0];
        mine.sum += held[1];
        mine.truth_top = larger(mine.truth_top, magnitude(held[2]));
        mine.actual_top = larger(mine.actual_top, magnitude(held[3]));
    }
    put(mine, found);
    if (threadIdx.x == 0) {
        const double rms = sqrt(found[0]) / sqrt((double)count);
        found[4] = rms >= least ? rms : otherwise;
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
        if (error > top * by) { top = error / by; at = i; }  // divide only for candidates of the maximum
    }

    // Of equal errors the first in memory counts, whichever thread found it.
    __device__ void hold(double other, long long there)
    {
        if (other > top || (other == top && there < at)) { top = other; at = there; }
    }
};

// As above. An index as a double is exact up to 2^53.
__device__ void put(Errors mine, double *to)
{
    __shared__ double sums[32], tops[32];
    __shared__ long long places[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    mine.squares = warp_sum(mine.squares);
    for (int offset = 16; offset > 0; offset /= 2) {
        const double other = __shfl_down_sync(0xffffffffu, mine.top, offset);
        const long long there = __shfl_down_sync(0xffffffffu, mine.at, offset);
        mine.hold(other, there);
    }
    if (lane == 0) { sums[warp] = mine.squares; tops[warp] = mine.top; places[warp] = mine.at; }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; ++w) {
            mine.squares += sums[w];
            mine.hold(tops[w], places[w]);
        }
        to[0] = mine.squares; to[1] = mine.top; to[2] = (double)mine.at;
    }
}

// For each block: sum of squared errors beyond rounding, the largest scaled error and its index. `scale` points to the
// result of `total_moments` on the device.
extern "C" __global__ void errors(const actual_t *actual, const truth_t *truth, long long count, const double *scale,
                                  double half_unit, double least_slack, double *of_blocks)
{
    Errors mine = {0, -1, 0};
    const double by = *scale;
    const long long step = (long long)gridDim.x * blockDim.x, first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll 2
    for (long long group = first; group < count / 4; group += step) {
        actual_t a[4];
        truth_t t[4];
        read(actual, group, a);
        read(truth, group, t);
        for (int i = 0; i < 4; ++i) mine.take(wide(a[i]), t[i], 4 * group + i, by, half_unit, least_slack);
    }
    for (long long i = count / 4 * 4 + first; i < count; i += step)
        mine.take(wide(actual[i]), truth[i], i, by, half_unit, least_slack);
    put(mine, of_blocks + 3ll * blockIdx.x);
}

// One block: the same three over all blocks.
extern "C" __global__ void total_errors(const double *of_blocks, long long blocks, double *found)
{
    Errors mine = {0, -1, 0};
    for (long long block = threadIdx.x; block < blocks; block += blockDim.x) {
        const double *held = of_blocks + 3 * block;
        mine.squares += held[0];
        mine.hold(held[1], (long long)held[2]);
    }
    put(mine, found);
}

#if ACTUAL == 0 && TRUTH == 0
__device__ bool far_from(float a, float r, float relative, float absolute)
{
    const float allowed = __fadd_rn(absolute, fabsf(__fmul_rn(relative, r))), off = fabsf(__fsub_rn(a, r));
    return !(a == r || (off <= allowed && off < __int_as_float(0x7f800000)));
}

// Count the entries that torch.isclose rejects in float32: not equal, and |a - r| > absolute + |relative * r|.
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
class ErrorScale:
    """How errors of one output type are measured.

    The type's own rounding (`half_unit` times an entry, at least `least_slack`) is subtracted from each error; 0
    subtracts nothing. The scale is the truth's root mean square, or `zero_scale` if that is below `least_scale`.
    """

    half_unit: float
    least_slack: float
    least_scale: float
    zero_scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredErrors:
    """Results of the kernels for one pair.

    Norm and sum of the truth, its largest magnitude and the output's (infinite or NaN if an entry is); norm of the
    errors, the largest scaled error, and its flat index.
    """

    norm: float
    total: float
    truth_top: float
    actual_top: float
    error_norm: float
    error_top: float
    error_at: int

    @property
    def of_truth(self) -> tuple[float, float, float, float]:
        return self.norm, self.total, self.truth_top, self.actual_top

    @classmethod
    def of(cls, row: Sequence[float]) -> MeasuredErrors:
        """Read the values of the tensor that `enqueue` returned."""
        squares, total, truth_top, actual_top, _, error_squares, error_top, error_at = row
        return cls(
            norm=math.sqrt(squares),
            total=total,
            truth_top=truth_top,
            actual_top=actual_top,
            error_norm=math.sqrt(error_squares),
            error_top=error_top,
            error_at=int(error_at),
        )


def enqueue(actual: torch.Tensor, truth: torch.Tensor, terms: ErrorScale) -> torch.Tensor | None:
    """Start the passes over a pair, without waiting.

    A tensor of another layout is copied, if the copies take at most `TEMPORARY_BYTES`. The pair may be freed at once:
    later work on this stream reuses its memory only after the kernels.

    Args:
        actual: The output.
        truth: The truth, of the same shape.
        terms: How errors are scaled.

    Returns:
        The tensor that will hold the values (float64, for `MeasuredErrors.of`); None if there is no kernel for the
        pair.
    """
    if not fits(actual, truth) or not (kernels := _kernels(actual, truth)):
        return None
    if sum(tensor.nbytes for tensor in (actual, truth) if not _in_order(tensor)) > TEMPORARY_BYTES:
        return None
    actual, truth = (t if _in_order(t) else _put_in_order(t) for t in (actual, truth))
    moments, total_moments, errors, total_errors = kernels[:4]
    count, blocks = actual.numel(), _blocks(actual)
    pair = [nvrtc.pointer(actual), nvrtc.pointer(truth), nvrtc.integer(count)]
    found = torch.empty(_FOUND, dtype=torch.float64, device=actual.device)
    scratch = torch.empty(4 * blocks, dtype=torch.float64, device=actual.device)
    of_blocks = nvrtc.pointer(scratch)
    moments((blocks, 1, 1), _THREADS, [*pair, of_blocks])
    scales = [nvrtc.number(terms.least_scale), nvrtc.number(terms.zero_scale)]
    total_moments(_ONE, _THREADS, [of_blocks, nvrtc.integer(blocks), pair[2], *scales, nvrtc.pointer(found)])
    rounding = [nvrtc.number(terms.half_unit), nvrtc.number(terms.least_slack)]
    errors((blocks, 1, 1), _THREADS, [*pair, nvrtc.pointer(found[_SCALE:]), *rounding, of_blocks])
    total_errors(_ONE, _THREADS, [of_blocks, nvrtc.integer(blocks), nvrtc.pointer(found[_ERRORS:])])
    return found


def fits(actual: torch.Tensor, truth: torch.Tensor) -> bool:
    """Return whether there are kernels for the types and devices of such a pair."""
    return (
        actual.is_cuda
        and truth.device == actual.device
        and actual.dtype in _KINDS
        and truth.dtype in (torch.float32, torch.float64)
        and actual.numel() > 0
    )


def far_apart(actual: torch.Tensor, other: torch.Tensor, tolerance: float) -> torch.Tensor | None:
    """Count float32 entries that `torch.isclose` rejects, without waiting.

    Returns:
        The count (int64, 0-d, on the device); None if there is no kernel for the pair.
    """
    fit = actual.is_cuda and other.device == actual.device and actual.dtype is other.dtype is torch.float32
    if not (fit and actual.numel() and _in_order(actual) and _in_order(other)):
        return None
    if not (kernels := _kernels(actual, other)):
        return None
    found = torch.zeros((), dtype=torch.int64, device=actual.device)
    pair = [nvrtc.pointer(actual), nvrtc.pointer(other), nvrtc.integer(actual.numel())]
    kernels[4](
        (_blocks(actual), 1, 1),
        _THREADS,
        [*pair, nvrtc.single(tolerance), nvrtc.single(tolerance), nvrtc.pointer(found)],
    )
    return found


def _kernels(actual: torch.Tensor, truth: torch.Tensor) -> list[nvrtc.Launch]:
    both_single = actual.dtype is truth.dtype is torch.float32
    names = (*_PASSES, *(("far_apart",) if both_single else ()))
    definitions = (f"ACTUAL={_KINDS[actual.dtype]}", f"TRUTH={0 if truth.dtype is torch.float32 else 1}")
    return nvrtc.load(_SOURCE, names, actual.device.index, definitions) or []


def _in_order(tensor: torch.Tensor) -> bool:
    """Return whether the kernels can read the tensor in place."""
    return tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr() % ALIGNMENT_BYTES == 0


def _put_in_order(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


def _blocks(tensor: torch.Tensor) -> int:
    most = torch.cuda.get_device_properties(tensor.device).multi_processor_count * _BLOCKS_A_PROCESSOR
    return max(1, min(int(most), -(-tensor.numel() // _THREADS)))

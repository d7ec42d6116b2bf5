"""The two passes of `comparison` over large tensors on a GPU as one kernel each: about a tenth of the time that
torch's operations take, and no temporaries.

Imports `nvrtc` and torch. Trusted side. For plain arithmetic only: finite entries that the output's type can hold.
What is more than that, and every GPU for which no kernel can be had, `comparison` does with torch.
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

__device__ double largest() { return __longlong_as_double(0x7ff0000000000000ll); }

// NaN counts as infinite: either way the entry is none that plain arithmetic can judge.
__device__ double magnitude(double x) { const double size = fabs(x); return size <= largest() ? size : largest(); }

__device__ double warp_sum(double x)
{
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
    return x;
}

__device__ double warp_max(double x)
{
    for (int offset = 16; offset > 0; offset /= 2) x = fmax(x, __shfl_down_sync(0xffffffffu, x, offset));
    return x;
}

// For each block: sum of squares and sum of the truth, its largest magnitude, that of the output.
extern "C" __global__ void moments(const actual_t *actual, const truth_t *truth, long long count, double *found)
{
    double squares = 0, sum = 0, truth_top = 0, actual_top = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const double t = truth[i], a = wide(actual[i]);
        squares += t * t;
        sum += t;
        truth_top = fmax(truth_top, magnitude(t));
        actual_top = fmax(actual_top, magnitude(a));
    }
    __shared__ double held[4][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    squares = warp_sum(squares); sum = warp_sum(sum);
    truth_top = warp_max(truth_top); actual_top = warp_max(actual_top);
    if (lane == 0) {
        held[0][warp] = squares; held[1][warp] = sum; held[2][warp] = truth_top; held[3][warp] = actual_top;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; ++w) {
            squares += held[0][w]; sum += held[1][w];
            truth_top = fmax(truth_top, held[2][w]); actual_top = fmax(actual_top, held[3][w]);
        }
        double *mine = found + 4ll * blockIdx.x;
        mine[0] = squares; mine[1] = sum; mine[2] = truth_top; mine[3] = actual_top;
    }
}

// For each block: sum of squared errors beyond rounding, the largest scaled error and its place, which as a double is
// exact up to 2^53.
extern "C" __global__ void errors(const actual_t *actual, const truth_t *truth, long long count, double scale,
                                  double half_unit, double least_slack, double *found)
{
    double squares = 0, top = -1;
    long long at = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const double t = truth[i], size = fabs(t);
        double error = fabs(wide(actual[i]) - t);
        if (half_unit > 0) error = fmax(error - fmax(size * half_unit, least_slack), 0.0);
        squares += error * error;
        const double scaled = error / fmax(size, scale);
        if (scaled > top) { top = scaled; at = i; }
    }
    __shared__ double sums[32], tops[32];
    __shared__ long long places[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    squares = warp_sum(squares);
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
        double *mine = found + 3ll * blockIdx.x;
        mine[0] = squares; mine[1] = top; mine[2] = (double)at;
    }
}

#if ACTUAL == 0 && TRUTH == 0
// How many entries are not close as torch.isclose has it, in float32: equal, or |a - r| <= absolute + |relative * r|.
extern "C" __global__ void far_apart(const float *actual, const float *other, long long count, float relative,
                                     float absolute, unsigned long long *found)
{
    unsigned long long far = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const float a = actual[i], r = other[i];
        const float allowed = __fadd_rn(absolute, fabsf(__fmul_rn(relative, r))), off = fabsf(__fsub_rn(a, r));
        far += !(a == r || (off <= allowed && off < __int_as_float(0x7f800000)));
    }
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
        """Norm and sum of the truth, its largest magnitude, the output's; infinite where an entry is not finite."""
        launch = _kernels(self.actual, self.truth)[0]
        found = torch.empty(_blocks(self.actual), 4, dtype=torch.float64, device=self.actual.device)
        launch((len(found), 1, 1), _THREADS, [*self._pair(), nvrtc.pointer(found)])
        # The blocks' numbers are put together here: each operation more on the device would cost as much as the kernel.
        held = found.cpu().numpy()
        (squares, total), (truth_top, actual_top) = held[:, :2].sum(axis=0), held[:, 2:].max(axis=0)
        return math.sqrt(squares), float(total), float(truth_top), float(actual_top)

    def errors(self, scale: float, half_unit: float, least_slack: float) -> tuple[float, float, int]:
        """Norm of the errors, the largest scaled error, its flat index.

        `half_unit` times an entry, `least_slack` at least, is taken off its error: rounding of the output's own type;
        0 where nothing is.
        """
        launch = _kernels(self.actual, self.truth)[1]
        found = torch.empty(_blocks(self.actual), 3, dtype=torch.float64, device=self.actual.device)
        numbers = [nvrtc.number(value) for value in (scale, half_unit, least_slack)]
        launch((len(found), 1, 1), _THREADS, [*self._pair(), *numbers, nvrtc.pointer(found)])
        held = found.cpu().numpy()
        best = int(held[:, 1].argmax())
        return math.sqrt(held[:, 0].sum()), float(held[best, 1]), int(held[best, 2])

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
    )
    return PlainPasses(actual=actual, truth=truth) if fit and _kernels(actual, truth) else None


def all_close(actual: torch.Tensor, other: torch.Tensor, tolerance: float) -> bool | None:
    """`torch.allclose` at this tolerance, relative and absolute, of float32 tensors; None where no kernel is for it."""
    fit = actual.is_cuda and other.device == actual.device and actual.dtype is other.dtype is torch.float32
    if not (fit and actual.is_contiguous() and other.is_contiguous() and actual.numel()):
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


def _blocks(tensor: torch.Tensor) -> int:
    most = torch.cuda.get_device_properties(tensor.device).multi_processor_count * _BLOCKS_A_PROCESSOR
    return max(1, min(int(most), -(-tensor.numel() // _THREADS)))

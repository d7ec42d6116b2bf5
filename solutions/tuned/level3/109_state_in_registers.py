"""State-space scan with step sizes and projections that depend on the input, as in Mamba.

Idea: the recurrence runs in one kernel with the state in registers: a thread has one channel of one sample with its whole
state (16 numbers) and walks through time; y is a sum over its own registers. What all channels of a sample share at one
place in time (the two projections) is brought to shared memory once a block. The reference runs several kernels for every place
in time. Channels are few for a GPU (16384 here), so that blocks are small in order to reach all its processors, and the inputs
of four places ahead are loaded while one is worked on.

Bytes: 12 a place and channel (x, step, y), 8 a place and state, 12 a channel and state: 15 MB at 8 x 64 x 2048 with 16 states.
Flops: 6 a state and place, and an exponential: 101 million flops.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int THREADS = 64;
constexpr int AHEAD = 4;      // places in time loaded ahead
constexpr int PLACES = 64;    // of which the projections are in shared memory at a time

__device__ float softplus(float v) { return v > 20.0f ? v : log1pf(expf(v)); }

// STATES numbers a channel in registers; `states` of them are real. The rates are negative: -exp(log_rate).
template <int STATES>
__global__ void __launch_bounds__(THREADS) scan_kernel(
    const float* __restrict__ x, const float* __restrict__ step, const float* __restrict__ enter,
    const float* __restrict__ leave, const float* __restrict__ state, const float* __restrict__ log_rate,
    const float* __restrict__ skip, float* __restrict__ y, float* __restrict__ last, int length, int channels, int states) {
    __shared__ float enters[PLACES][STATES], leaves[PLACES][STATES];
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    const int64_t sample = blockIdx.y;
    const bool real = channel < channels;
    const int at = real ? channel : channels - 1;  // threads beyond the end repeat the last one and write nothing
    const float* xs = x + sample * length * channels + at;
    const float* steps = step + sample * length * channels + at;
    float* ys = y + sample * length * channels + at;
    const float through = skip[at];

    float h[STATES], rate[STATES];
#pragma unroll
    for (int n = 0; n < STATES; ++n) {
        h[n] = n < states ? state[(sample * channels + at) * states + n] : 0.0f;
        // exp(size * rate) as a power of two
        rate[n] = n < states ? -1.4426950408889634f * expf(log_rate[(int64_t)at * states + n]) : 0.0f;
    }
    float next_x[AHEAD], next_step[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
        next_x[a] = a < length ? xs[(int64_t)a * channels] : 0.0f;
        next_step[a] = a < length ? steps[(int64_t)a * channels] : 0.0f;
    }
    for (int begin = 0; begin < length; begin += PLACES) {
        const int places = min(PLACES, length - begin);
        __syncthreads();
        for (int i = threadIdx.x; i < places * STATES; i += THREADS) {
            const int p = i / STATES, n = i % STATES;
            const int64_t from = (sample * length + begin + p) * states + n;
            enters[p][n] = n < states ? enter[from] : 0.0f;
            leaves[p][n] = n < states ? leave[from] : 0.0f;
        }
        __syncthreads();
        for (int base = 0; base < places; base += AHEAD) {
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const int p = base + a;
                if (p >= places) break;
                const float value = next_x[a], size = softplus(next_step[a]);
                const int later = begin + p + AHEAD;
                if (later < length) {
                    next_x[a] = xs[(int64_t)later * channels];
                    next_step[a] = steps[(int64_t)later * channels];
                }
                const float input = size * value;
                float sum = 0.0f;
#pragma unroll
                for (int n = 0; n < STATES; ++n) {
                    h[n] = exp2f(size * rate[n]) * h[n] + input * enters[p][n];
                    sum += h[n] * leaves[p][n];
                }
                if (real) ys[(int64_t)(begin + p) * channels] = sum + through * value;
            }
        }
    }
    if (real)
#pragma unroll
        for (int n = 0; n < STATES; ++n)
            if (n < states) last[(sample * channels + at) * states + n] = h[n];
}

std::vector<torch::Tensor> selective_scan(
    torch::Tensor x, torch::Tensor step, torch::Tensor enter, torch::Tensor leave, torch::Tensor state, torch::Tensor log_rate,
    torch::Tensor skip) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 3 && x.scalar_type() == torch::kFloat32 && x.is_contiguous()
                    && step.sizes() == x.sizes() && step.is_contiguous(),
                "x and step: contiguous, float32, (batch, length, channels), on the GPU");
    const int64_t batch = x.size(0), length = x.size(1), channels = x.size(2), states = log_rate.size(1);
    TORCH_CHECK(enter.is_contiguous() && leave.is_contiguous() && enter.numel() == batch * length * states
                    && leave.numel() == enter.numel(), "enter and leave: (batch, length, states)");
    TORCH_CHECK(state.is_contiguous() && state.numel() == batch * channels * states && log_rate.is_contiguous(),
                "state: (batch, channels, states)");
    TORCH_CHECK(states <= 64 && batch < 65536, "at most 64 numbers of state a channel");
    auto y = torch::empty_like(x);
    auto last = torch::empty_like(state);
    if (x.numel() == 0) {
        return {y, state};
    }
    auto kernel = states <= 8 ? scan_kernel<8> : states <= 16 ? scan_kernel<16> : states <= 32 ? scan_kernel<32> : scan_kernel<64>;
    const dim3 blocks((unsigned)((channels + THREADS - 1) / THREADS), (unsigned)batch);
    kernel<<<blocks, THREADS>>>(x.data_ptr<float>(), step.data_ptr<float>(), enter.data_ptr<float>(), leave.data_ptr<float>(),
                                state.data_ptr<float>(), log_rate.data_ptr<float>(), skip.data_ptr<float>(),
                                y.data_ptr<float>(), last.data_ptr<float>(), (int)length, (int)channels, (int)states);
    return {y, last};
}
"""

module = load_inline(
    name="tuned_selective_scan",
    cpp_sources="std::vector<torch::Tensor> selective_scan(torch::Tensor x, torch::Tensor step, torch::Tensor enter, "
    "torch::Tensor leave, torch::Tensor state, torch::Tensor log_rate, torch::Tensor skip);",
    cuda_sources=CUDA,
    functions=["selective_scan"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, length: int, channels: int, state_size: int) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.rand(channels, state_size) * 3 - 1)
        self.skip = nn.Parameter(torch.randn(channels))

    def forward(
        self, x: torch.Tensor, step: torch.Tensor, enter: torch.Tensor, leave: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, last = module.selective_scan(
            x.contiguous(), step.contiguous(), enter.contiguous(), leave.contiguous(), state.contiguous(), self.log_rate, self.skip
        )
        return y, last

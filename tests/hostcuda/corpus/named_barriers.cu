/*
summary: Barriers of a part of a block by number, with producers that only arrive, consumers that wait, a warp that never comes, and votes at a barrier
inputs:
  x: normal(6, 64)
outputs:
  turned: new(6, 64)
  halves: new(128)
  votes: new(96)
sizes: [6]
expected:
  turned: x.flip(1) * 2
  halves: torch.cat([x.flatten()[:64].flip(0), x.flatten()[64:128].flip(0)])
  votes: "torch.cat([((x.flatten()[:64] > 0).sum() + 1000 * (x.flatten()[:64] > -9).all() + 2000 * (x.flatten()[:64] > 9).any()).float().expand(64), torch.full((32,), -1.0)])"
*/
#include <cuda_runtime.h>

// Two warps write a row, two read it turned round: barriers 1 and 2 tell what is full, 3 and 4 what is empty.
__global__ void turn(const float* x, float* turned, int rows) {
    __shared__ float held[2][64];
    const int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int row = 0; row < rows; ++row) {
            const int b = row & 1;
            if (row >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + b) : "memory");
            held[b][t] = x[row * 64 + t];
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + b) : "memory");
        }
    } else {
        for (int row = 0; row < rows; ++row) {
            const int b = row & 1;
            asm volatile("bar.sync %0, %1;" ::"r"(1 + b), "r"(blockDim.x) : "memory");
            turned[row * 64 + t] = 2.0f * held[b][63 - t];
            if (row + 2 < rows) asm volatile("bar.arrive %0, 128;" ::"r"(3 + b) : "memory");
        }
    }
}

// Each half has a barrier of its own; a fifth warp has ended by then.
__global__ void halves(const float* x, float* y) {
    __shared__ float held[128];
    if (threadIdx.x >= 128) return;
    const int half = threadIdx.x / 64, t = threadIdx.x % 64;
    held[threadIdx.x] = x[threadIdx.x];
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(half + 5), "n"(64) : "memory");
    y[threadIdx.x] = held[half * 64 + 63 - t];
}

__global__ void votes(const float* x, float* y) {
    if (threadIdx.x >= 64) {
        y[threadIdx.x] = -1.0f;
        return;
    }
    const float v = x[threadIdx.x];
    int count, every, some;
    asm volatile("{ .reg .pred p; setp.gt.f32 p, %1, 0f00000000; bar.red.popc.u32 %0, 2, 64, p; }" : "=r"(count) : "f"(v) : "memory");
    asm volatile("{ .reg .pred p, q; setp.gt.f32 p, %1, 0fC1100000; bar.red.and.pred q, 2, 64, p; selp.s32 %0, 1, 0, q; }" : "=r"(every) : "f"(v) : "memory");
    asm volatile("{ .reg .pred p, q; setp.gt.f32 p, %1, 0f41100000; barrier.red.or.pred q, 2, 64, p; selp.s32 %0, 1, 0, q; }" : "=r"(some) : "f"(v) : "memory");
    y[threadIdx.x] = (float)(count + 1000 * every + 2000 * some);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    turn<<<1, 128>>>(x, (float*)out[0], (int)size[0]);
    halves<<<1, 160>>>(x, (float*)out[1]);
    votes<<<1, 96>>>(x, (float*)out[2]);
}

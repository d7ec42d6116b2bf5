/*
summary: 32x32 tiles, 4x4 results a thread in registers, float4 loads
inputs:
  a: normal(64, 32)
  b: normal(32, 64)
outputs:
  c: new(64, 64)
sizes: [64, 64, 32]
expected:
  c: a.double() @ b.double()
tolerance: 1.0e-5
*/
#include <cuda_runtime.h>

template <int BM, int BN, int BK, int TM, int TN>
__global__ __launch_bounds__((BM / TM) * (BN / TN)) void matmul(const float* __restrict__ a, const float* __restrict__ b,
                                                               float* __restrict__ c, int m, int n, int k) {
    __shared__ float as[BK][BM];
    __shared__ float bs[BK][BN];
    constexpr int threads = (BM / TM) * (BN / TN);
    const int t = threadIdx.x;
    const int row0 = blockIdx.y * BM, column0 = blockIdx.x * BN;
    float sums[TM][TN] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = t; i < BM * BK / 4; i += threads) {
            const int r = i / (BK / 4), q = i % (BK / 4) * 4;
            const float4 v = *reinterpret_cast<const float4*>(&a[(row0 + r) * k + k0 + q]);
            as[q][r] = v.x;
            as[q + 1][r] = v.y;
            as[q + 2][r] = v.z;
            as[q + 3][r] = v.w;
        }
        for (int i = t; i < BK * BN / 4; i += threads) {
            const int r = i / (BN / 4), q = i % (BN / 4) * 4;
            *reinterpret_cast<float4*>(&bs[r][q]) = *reinterpret_cast<const float4*>(&b[(k0 + r) * n + column0 + q]);
        }
        __syncthreads();
        const int tr = t / (BN / TN) * TM, tc = t % (BN / TN) * TN;
#pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float ra[TM], rb[TN];
            for (int i = 0; i < TM; ++i) ra[i] = as[kk][tr + i];
            for (int j = 0; j < TN; ++j) rb[j] = bs[kk][tc + j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) sums[i][j] = fmaf(ra[i], rb[j], sums[i][j]);
        }
        __syncthreads();
    }
    const int tr = row0 + t / (BN / TN) * TM, tc = column0 + t % (BN / TN) * TN;
    for (int i = 0; i < TM; ++i)
        *reinterpret_cast<float4*>(&c[(tr + i) * n + tc]) = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int m = (int)size[0], n = (int)size[1], k = (int)size[2];
    matmul<32, 32, 16, 4, 4><<<dim3(n / 32, m / 32), 64>>>((const float*)in[0], (const float*)in[1], (float*)out[0], m, n, k);
}

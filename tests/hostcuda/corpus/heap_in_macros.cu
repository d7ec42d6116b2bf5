/*
summary: "new, delete, malloc and free in macros and functions that host and device share"
inputs:
  x: normal(64)
outputs:
  y: new(64)
sizes: [64]
expected:
  y: 2 * x + 7
*/
#include <cuda_runtime.h>
#include <cstdlib>

#define MAKE(T, count) new T[count]
#define DROP(array) \
    do {            \
        delete[] array; \
    } while (0)
#define ROOM(T, count) static_cast<T*>(malloc(sizeof(T) * (count)))

struct Counted {
    float value;
    __host__ __device__ Counted() : value(3) {}
    __host__ __device__ ~Counted() {}
};
__host__ __device__ float* pair_of(float v) {
    float* made = new float[2];
    made[0] = made[1] = v;
    return made;
}

__global__ void on_heaps(const float* x, float* y) {
    const int i = threadIdx.x;
    float* twice = MAKE(float, 2);
    Counted* counted = MAKE(Counted, 3);
    float* room = ROOM(float, 1);
    float* pair = pair_of(4);
    twice[1] = 2 * x[i];
    room[0] = counted[2].value;
    y[i] = twice[1] + (room[0] + pair[1]);
    DROP(twice);
    DROP(counted);
    DROP(pair);
    free(room);
}

extern "C" void run(const void* const* in, void* const* out, const long long*) {
    float* hosts = MAKE(float, 64);
    Counted* counted = MAKE(Counted, 3);
    float* pair = pair_of(1);
    hosts[63] = counted[1].value + pair[0];
    on_heaps<<<1, 64>>>((const float*)in[0], (float*)out[0]);
    DROP(pair);
    DROP(counted);
    DROP(hosts);
}

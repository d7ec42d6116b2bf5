// Numbers of cuRAND's device functions, called on the CPU: compiled against NVIDIA's headers and against harness/hostcuda/include, it has to print the same.
// A line: what is drawn, how many numbers that made, a digest of their bits, and the first four of them.
//
// hostcuda/curand_numbers.txt is what NVIDIA's headers gave (cuRAND 10.4.0, CUDA 13.0), their device functions made host functions by QUALIFIERS, with
// multiplications and additions contracted as nvcc has them on a GPU:
//
//     nvcc -std=c++17 -arch=sm_90 -O2 -DNVIDIAS -Xcompiler -mfma,-ffp-contract=fast curand_probe.cu -o probe && ./probe > curand_numbers.txt
//
// tests/unit/hostcuda/test_curand.py compiles it by g++ with the host device's headers, and compares.
#ifdef NVIDIAS
#define QUALIFIERS static __host__ __device__ inline
#endif
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <curand_kernel.h>

typedef unsigned long long u64;
typedef curandStatePhilox4_32_10_t Philox;

static const u64 seeds[] = {0, 1, 1234, 0xFFFFFFFFull, 0x123456789ABCDEFull, ~0ull, 1ull << 63, 0x55555555ull, 0xAAAAAAAA00000000ull};
static const u64 subsequences[] = {0, 1, 2, 5, 31, 255, 65535, 1048575, 0xFFFFFFFFull, 1ull << 40, (1ull << 50) + 12345};
static const u64 offsets[] = {0, 1, 2, 3, 7, 100, 4096, 1000003, 0xFFFFFFFFull, 1ull << 33, (1ull << 62) + 3, ~0ull};

static u64 digest;
static long count;
static double first[4];

template <class T> void put(T v) {
    u64 bits = 0;
    memcpy(&bits, &v, sizeof v);
    digest = (digest ^ bits) * 0x9E3779B97F4A7C15ull;
    digest ^= digest >> 29;
    if (count < 4) first[count] = (double)v;
    ++count;
}
static void put(float2 v) { put(v.x), put(v.y); }
static void put(double2 v) { put(v.x), put(v.y); }
static void put(float4 v) { put(v.x), put(v.y), put(v.z), put(v.w); }
static void put(double4 v) { put(v.x), put(v.y), put(v.z), put(v.w); }
static void put(uint4 v) { put(v.x), put(v.y), put(v.z), put(v.w); }
static void line(const char* generator, const char* what, double parameter = 0) {
    printf("%s %s %g: %ld %016llx %.17g %.17g %.17g %.17g\n", generator, what, parameter, count, digest, first[0], first[1], first[2], first[3]);
    digest = 0, count = 0;
}

template <class State, class Draw> void sweep(const char* generator, const char* what, Draw draw) {
    for (u64 seed : seeds)
        for (u64 subsequence : subsequences) {
            State state;
            curand_init(seed, subsequence, seed & 7, &state);
            for (int i = 0; i < 5; ++i) draw(&state);
        }
    line(generator, what);
}
template <class State> void all(const char* g) {
    for (u64 seed : seeds)
        for (u64 subsequence : subsequences)
            for (u64 offset : offsets) {
                State state;
                curand_init(seed, subsequence, offset, &state);
                for (int i = 0; i < 9; ++i) put(curand(&state));
            }
    line(g, "words");
    for (u64 seed : seeds)
        for (u64 n : offsets) {
            State state;
            curand_init(seed, 3, 2, &state);
            put(curand(&state));
            skipahead(n, &state);
            put(curand(&state));
            skipahead_sequence(n, &state);
            for (int i = 0; i < 6; ++i) put(curand(&state));
        }
    line(g, "skips");
    sweep<State>(g, "uniform", [](State* s) { put(curand_uniform(s)); });
    sweep<State>(g, "uniform_double", [](State* s) { put(curand_uniform_double(s)); });
    sweep<State>(g, "normal", [](State* s) { put(curand_normal(s)); });
    sweep<State>(g, "normal2", [](State* s) { put(curand_normal2(s)); });
    sweep<State>(g, "normal_double", [](State* s) { put(curand_normal_double(s)); });
    sweep<State>(g, "normal2_double", [](State* s) { put(curand_normal2_double(s)); });
    sweep<State>(g, "log_normal", [](State* s) { put(curand_log_normal(s, 0.3f, 1.7f)); });
    sweep<State>(g, "log_normal2", [](State* s) { put(curand_log_normal2(s, 0.3f, 1.7f)); });
    sweep<State>(g, "log_normal_double", [](State* s) { put(curand_log_normal_double(s, 0.3, 1.7)); });
    sweep<State>(g, "log_normal2_double", [](State* s) { put(curand_log_normal2_double(s, 0.3, 1.7)); });
    sweep<State>(g, "in_turn", [](State* s) {
        put(curand_normal(s)), put(curand_log_normal(s, 0.1f, 0.2f)), put(curand_normal(s)), put(curand_uniform(s));
        put(curand_normal_double(s)), put(curand_log_normal_double(s, 1., 2.)), put(curand_normal(s));
    });
    for (double lambda : {0.01, 1.0, 4.5, 63.9, 64.0, 777.7, 4000.0, 4001.0, 1e6}) {
        for (u64 subsequence = 0; subsequence < 300; ++subsequence) {
            State state;
            curand_init(77, subsequence, 0, &state);
            for (int i = 0; i < 5; ++i) put(curand_poisson(&state, lambda));
        }
        line(g, "poisson", lambda);
    }
}

int main() {
    all<curandState>("xorwow");
    all<Philox>("philox");
    sweep<Philox>("philox", "words4", [](Philox* s) { put(curand(s)), put(curand4(s)); });
    sweep<Philox>("philox", "uniform4", [](Philox* s) { put(curand(s)), put(curand_uniform4(s)), put(curand_uniform2_double(s)), put(curand_uniform4_double(s)); });
    sweep<Philox>("philox", "normal4", [](Philox* s) { put(curand(s)), put(curand_normal4(s)), put(curand_normal4_double(s)); });
    sweep<Philox>("philox", "log_normal4", [](Philox* s) { put(curand(s)), put(curand_log_normal4(s, .5f, .25f)), put(curand_log_normal4_double(s, .5, .25)); });
    for (double lambda : {0.5, 100.0, 5000.0}) sweep<Philox>("philox", "poisson4", [lambda](Philox* s) { put(curand_poisson4(s, lambda)); });
    all<curandStateMRG32k3a_t>("mrg32k3a");
    for (u64 n : {0ull, 1ull, 77ull, 1ull << 33, (1ull << 51) - 1}) {
        curandStateMRG32k3a_t state;
        curand_init(9, 1, 1, &state);
        skipahead_subsequence(n, &state);
        put(curand(&state));
    }
    line("mrg32k3a", "subsequences");
}

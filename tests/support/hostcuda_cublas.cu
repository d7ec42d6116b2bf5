#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

// Everything through one handle of the file's own, except where torch's is meant.
static cublasHandle_t own() {
    static cublasHandle_t handle = nullptr;
    if (handle == nullptr) cublasCreate(&handle);
    return handle;
}
static cublasOperation_t op(int64_t transposed) { return transposed == 0 ? CUBLAS_OP_N : transposed == 1 ? CUBLAS_OP_T : CUBLAS_OP_C; }
static cudaDataType type_of(const torch::Tensor& t) {
    switch (t.scalar_type()) {
        case torch::kFloat: return CUDA_R_32F;
        case torch::kDouble: return CUDA_R_64F;
        case torch::kHalf: return CUDA_R_16F;
        case torch::kBFloat16: return CUDA_R_16BF;
        case torch::kChar: return CUDA_R_8I;
        case torch::kInt: return CUDA_R_32I;
        default: TORCH_CHECK(false, "no type of cuBLAS");
    }
}

// sizes: m, n, k, lda, ldb, ldc, strideA, strideB, strideC, count. form: 0 one, 1 strided, 2 pointers.
int64_t gemm_ex(int64_t form, int64_t ta, int64_t tb, std::vector<int64_t> s, double alpha, torch::Tensor a, torch::Tensor b, double beta, torch::Tensor c,
                int64_t compute, int64_t algo, int64_t math) {
    cublasHandle_t h = own();
    cublasSetMathMode(h, static_cast<cublasMath_t>(math));
    const auto kind = static_cast<cublasComputeType_t>(compute);
    const float f[2] = {static_cast<float>(alpha), static_cast<float>(beta)};
    const double d[2] = {alpha, beta};
    const __half half[2] = {__float2half(f[0]), __float2half(f[1])};
    const int i[2] = {static_cast<int>(alpha), static_cast<int>(beta)};
    const bool is_half = kind == CUBLAS_COMPUTE_16F, is_double = kind == CUBLAS_COMPUTE_64F, is_int = kind == CUBLAS_COMPUTE_32I;
    const void* pa = is_half ? static_cast<const void*>(&half[0]) : is_double ? static_cast<const void*>(&d[0]) : is_int ? static_cast<const void*>(&i[0]) : &f[0];
    const void* pb = is_half ? static_cast<const void*>(&half[1]) : is_double ? static_cast<const void*>(&d[1]) : is_int ? static_cast<const void*>(&i[1]) : &f[1];
    const auto al = static_cast<cublasGemmAlgo_t>(algo);
    cublasStatus_t status;
    if (form == 0) {
        status = cublasGemmEx(h, op(ta), op(tb), s[0], s[1], s[2], pa, a.data_ptr(), type_of(a), s[3], b.data_ptr(), type_of(b), s[4], pb, c.data_ptr(), type_of(c), s[5], kind, al);
    } else if (form == 1) {
        status = cublasGemmStridedBatchedEx(h, op(ta), op(tb), s[0], s[1], s[2], pa, a.data_ptr(), type_of(a), s[3], s[6], b.data_ptr(), type_of(b), s[4], s[7], pb, c.data_ptr(), type_of(c), s[5], s[8], s[9], kind, al);
    } else {
        const int64_t count = s[9];
        std::vector<void*> places;
        const torch::Tensor each[3] = {a, b, c};
        for (int t = 0; t < 3; ++t)
            for (int64_t j = 0; j < count; ++j) places.push_back(static_cast<char*>(each[t].data_ptr()) + j * s[6 + t] * each[t].element_size());
        void** device = nullptr;
        cudaMalloc(&device, places.size() * sizeof(void*));
        cudaMemcpy(device, places.data(), places.size() * sizeof(void*), cudaMemcpyHostToDevice);
        status = cublasGemmBatchedEx(h, op(ta), op(tb), s[0], s[1], s[2], pa, device, type_of(a), s[3], device + count, type_of(b), s[4], pb, device + 2 * count, type_of(c), s[5], count, kind, al);
        cudaFree(device);
    }
    cublasSetMathMode(h, CUBLAS_DEFAULT_MATH);
    return status;
}

// The routines with the type in their name.
template <class T, class One, class Strided, class Batched>
static int64_t typed(int64_t form, int64_t ta, int64_t tb, const std::vector<int64_t>& s, T alpha, T beta, const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c,
                     One one, Strided strided, Batched batched) {
    T* pa = static_cast<T*>(a.data_ptr());
    T* pb = static_cast<T*>(b.data_ptr());
    T* pc = static_cast<T*>(c.data_ptr());
    if (form == 0) return one(own(), op(ta), op(tb), s[0], s[1], s[2], &alpha, pa, s[3], pb, s[4], &beta, pc, s[5]);
    if (form == 1) return strided(own(), op(ta), op(tb), s[0], s[1], s[2], &alpha, pa, s[3], s[6], pb, s[4], s[7], &beta, pc, s[5], s[8], s[9]);
    const int64_t count = s[9];
    std::vector<T*> places;
    for (int64_t j = 0; j < count; ++j) places.push_back(pa + j * s[6]);
    for (int64_t j = 0; j < count; ++j) places.push_back(pb + j * s[7]);
    for (int64_t j = 0; j < count; ++j) places.push_back(pc + j * s[8]);
    T** device = nullptr;
    cudaMalloc(&device, places.size() * sizeof(T*));
    cudaMemcpy(device, places.data(), places.size() * sizeof(T*), cudaMemcpyHostToDevice);
    const int64_t status = batched(own(), op(ta), op(tb), s[0], s[1], s[2], &alpha, device, s[3], device + count, s[4], &beta, device + 2 * count, s[5], count);
    cudaFree(device);
    return status;
}
int64_t gemm(int64_t form, int64_t ta, int64_t tb, std::vector<int64_t> s, double alpha, torch::Tensor a, torch::Tensor b, double beta, torch::Tensor c) {
    if (a.scalar_type() == torch::kDouble) return typed<double>(form, ta, tb, s, alpha, beta, a, b, c, cublasDgemm, cublasDgemmStridedBatched, cublasDgemmBatched);
    if (a.scalar_type() == torch::kHalf)
        return typed<__half>(form, ta, tb, s, __float2half(alpha), __float2half(beta), a, b, c, cublasHgemm, cublasHgemmStridedBatched, cublasHgemmBatched);
    return typed<float>(form, ta, tb, s, alpha, beta, a, b, c, cublasSgemm, cublasSgemmStridedBatched, cublasSgemmBatched);
}

// By name, for float and double; `n` are the integers of the call in their order, `s` its scalars.
template <class T>
static int64_t vector_call(const std::string& name, const std::vector<int64_t>& n, T alpha, T beta, torch::Tensor x, torch::Tensor y, torch::Tensor z) {
    cublasHandle_t h = own();
    T* px = x.data_ptr<T>();
    T* py = y.data_ptr<T>();
    T* pz = z.data_ptr<T>();
    constexpr bool d = std::is_same_v<T, double>;
#define ROUTINE(letter, routine) if constexpr (d == (#letter[0] == 'D')) if (name == #routine) return cublas##letter##routine
#define BOTH(routine, ...) ROUTINE(S, routine)(__VA_ARGS__); ROUTINE(D, routine)(__VA_ARGS__)
    BOTH(axpy, h, n[0], &alpha, px, n[1], py, n[2]);
    BOTH(scal, h, n[0], &alpha, px, n[1]);
    BOTH(copy, h, n[0], px, n[1], py, n[2]);
    BOTH(swap, h, n[0], px, n[1], py, n[2]);
    BOTH(gemv, h, op(n[0]), n[1], n[2], &alpha, px, n[3], py, n[4], &beta, pz, n[5]);
    BOTH(ger, h, n[0], n[1], &alpha, px, n[2], py, n[3], pz, n[4]);
    BOTH(geam, h, op(n[0]), op(n[1]), n[2], n[3], &alpha, px, n[4], &beta, py, n[5], pz, n[6]);
    BOTH(dgmm, h, n[0] ? CUBLAS_SIDE_RIGHT : CUBLAS_SIDE_LEFT, n[1], n[2], px, n[3], py, n[4], pz, n[5]);
    BOTH(syrk, h, n[0] ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER, op(n[1]), n[2], n[3], &alpha, px, n[4], &beta, pz, n[5]);
    BOTH(trsm, h, n[0] ? CUBLAS_SIDE_RIGHT : CUBLAS_SIDE_LEFT, n[1] ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER, op(n[2]), n[3] ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT,
         n[4], n[5], &alpha, px, n[6], pz, n[7]);
    TORCH_CHECK(false, "no such routine: ", name);
}
int64_t routine(std::string name, std::vector<int64_t> n, double alpha, double beta, torch::Tensor x, torch::Tensor y, torch::Tensor z) {
    if (x.scalar_type() == torch::kDouble) return vector_call<double>(name, n, alpha, beta, x, y, z);
    return vector_call<float>(name, n, alpha, beta, x, y, z);
}
// dot, nrm2, asum, amax, amin, with the results on the host.
std::vector<double> sums(torch::Tensor x, int64_t n, int64_t incx, torch::Tensor y, int64_t incy) {
    float dot = -1, norm = -1, total = -1;
    int largest = -1, smallest = -1;
    cublasSdot(own(), n, x.data_ptr<float>(), incx, y.data_ptr<float>(), incy, &dot);
    cublasSnrm2(own(), n, x.data_ptr<float>(), incx, &norm);
    cublasSasum(own(), n, x.data_ptr<float>(), incx, &total);
    cublasIsamax(own(), n, x.data_ptr<float>(), incx, &largest);
    cublasIsamin(own(), n, x.data_ptr<float>(), incx, &smallest);
    return {dot, norm, total, double(largest), double(smallest)};
}
// The scalars and the result in device memory: z = scalars[0] x y + scalars[1] z, then the norm of z into `norm`.
int64_t device_scalars(torch::Tensor x, torch::Tensor y, torch::Tensor z, torch::Tensor scalars, torch::Tensor norm) {
    cublasHandle_t h;
    cublasCreate(&h);
    cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE);
    const int n = x.size(0);
    const float* s = scalars.data_ptr<float>();
    int status = cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, s, x.data_ptr<float>(), n, y.data_ptr<float>(), n, s + 1, z.data_ptr<float>(), n);
    if (status == 0) status = cublasSnrm2(h, n * n, z.data_ptr<float>(), 1, norm.data_ptr<float>());
    cublasDestroy(h);
    return status;
}
std::vector<int64_t> handles() {
    cublasHandle_t h;
    std::vector<int64_t> out{cublasCreate(nullptr), cublasCreate(&h), cublasSetStream(h, nullptr), cublasSetMathMode(h, static_cast<cublasMath_t>(9)),
                             cublasSetPointerMode(h, static_cast<cublasPointerMode_t>(5)), cublasDestroy(h), cublasDestroy(h), cublasSetStream(nullptr, nullptr)};
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
    cublasGetPointerMode(own(), &mode);
    int version = 0;
    cublasGetVersion(own(), &version);
    out.insert(out.end(), {mode, version > 0});
    return out;
}
std::string status_text(int64_t status) {
    return std::string(cublasGetStatusName(static_cast<cublasStatus_t>(status))) + ": " + cublasGetStatusString(static_cast<cublasStatus_t>(status));
}
int64_t torchs_math_mode() {
    cublasMath_t mode;
    TORCH_CUDABLAS_CHECK(cublasGetMathMode(at::cuda::getCurrentCUDABlasHandle(), &mode));
    return mode;
}
void torchs_check() { TORCH_CUDABLAS_CHECK(cublasSetStream(nullptr, nullptr)); }

// ---- broken ones
void past_the_end(torch::Tensor a, torch::Tensor b, torch::Tensor c, int64_t m, int64_t n, int64_t k) {
    const float one = 1, zero = 0;
    cublasSgemm(own(), CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a.data_ptr<float>(), m, b.data_ptr<float>(), k, &zero, c.data_ptr<float>(), m);  // MARK past
}
void strided_past_the_end(torch::Tensor a, torch::Tensor b, torch::Tensor c, int64_t n, int64_t count) {
    const float one = 1, zero = 0;
    cublasSgemmStridedBatched(own(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data_ptr<float>(), n, n * n, b.data_ptr<float>(), n, 0, &zero, c.data_ptr<float>(), n, n * n, count);
}
void vector_past_the_end(torch::Tensor x, int64_t n, int64_t increment) {
    const float two = 2;
    cublasSscal(own(), n, &two, x.data_ptr<float>(), increment);
}
void accumulates_into_nothing(torch::Tensor a) {
    auto c = torch::empty_like(a);
    const float one = 1;
    const int n = a.size(0);
    cublasSgemm(own(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data_ptr<float>(), n, a.data_ptr<float>(), n, &one, c.data_ptr<float>(), n);  // MARK unwritten
}
void in_place(torch::Tensor a, torch::Tensor b) {
    const float one = 1, zero = 0;
    const int n = a.size(0);
    cublasSgemm(own(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data_ptr<float>(), n, b.data_ptr<float>(), n, &zero, a.data_ptr<float>(), n);  // MARK in place
}
void one_result(torch::Tensor a, torch::Tensor c) {
    const float one = 1, zero = 0;
    const int n = a.size(1);
    cublasSgemmStridedBatched(own(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a.data_ptr<float>(), n, n * n, a.data_ptr<float>(), n, n * n, &zero, c.data_ptr<float>(), n, 0, 2);
}
int64_t complex_product(torch::Tensor a) {
    const float one[2] = {1, 0}, zero[2] = {0, 0};
    return cublasGemmEx(own(), CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, one, a.data_ptr(), CUDA_C_32F, 1, a.data_ptr(), CUDA_C_32F, 1, zero, a.data_ptr(), CUDA_C_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
int64_t host_scalar_in_device_mode(torch::Tensor x) {
    cublasHandle_t h;
    cublasCreate(&h);
    cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE);
    const float two = 2;
    return cublasSscal(h, x.numel(), &two, x.data_ptr<float>(), 1);
}
int64_t device_scalar_in_host_mode(torch::Tensor x) { return cublasSscal(own(), x.numel(), x.data_ptr<float>(), x.data_ptr<float>(), 1); }
void on_the_host(torch::Tensor x) {
    const float two = 2;
    cublasSscal(own(), x.numel(), &two, x.data_ptr<float>(), 1);
}
int64_t pointers_on_the_host(torch::Tensor a, torch::Tensor c) {
    const float one = 1, zero = 0;
    const int n = a.size(0);
    const float* in[1] = {a.data_ptr<float>()};
    float* out[1] = {c.data_ptr<float>()};
    return cublasSgemmBatched(own(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, in, n, in, n, &zero, out, n, 1);
}

// Prefix sums of whole arrays, and of the runs of equal keys.
#pragma once
#include "prefixes.cuh"

namespace cub {

struct DeviceScan {
    template <class In, class Out, class F, class N>
        requires std::is_integral_v<N>
    static cudaError_t InclusiveScan(void* storage, std::size_t& bytes, In in, Out out, F combine, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        using T = detail::combined_of<F, detail::value_of<In>>;
        return scan<T>(storage, bytes, NoKeys(), NoKeys(), in, out, combine, static_cast<const T*>(nullptr), true, count, stream, at);
    }
    template <class In, class Out, class F, class T, class N>
    static cudaError_t InclusiveScanInit(void* storage, std::size_t& bytes, In in, Out out, F combine, T initial, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const detail::combined_of<F, T, detail::value_of<In>> start = initial;
        return scan<std::decay_t<decltype(start)>>(storage, bytes, NoKeys(), NoKeys(), in, out, combine, &start, true, count, stream, at);
    }
    template <class In, class Out, class F, class T, class N>
        requires std::is_integral_v<N>
    static cudaError_t ExclusiveScan(void* storage, std::size_t& bytes, In in, Out out, F combine, T initial, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const detail::combined_of<F, T, detail::value_of<In>> start = initial;
        return scan<std::decay_t<decltype(start)>>(storage, bytes, NoKeys(), NoKeys(), in, out, combine, &start, false, count, stream, at);
    }
    template <class In, class Out, class N>
        requires std::is_integral_v<N>
    static cudaError_t InclusiveSum(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return InclusiveScan(storage, bytes, in, out, cub::Sum(), count, stream, at);
    }
    template <class In, class Out, class N>
        requires std::is_integral_v<N>
    static cudaError_t ExclusiveSum(void* storage, std::size_t& bytes, In in, Out out, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return ExclusiveScan(storage, bytes, in, out, cub::Sum(), detail::value_of<In>{}, count, stream, at);
    }
    // In place.
    template <class Data, class N>
        requires std::is_integral_v<N>
    static cudaError_t InclusiveSum(void* storage, std::size_t& bytes, Data data, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return InclusiveSum(storage, bytes, data, data, count, stream, at);
    }
    template <class Data, class N>
        requires std::is_integral_v<N>
    static cudaError_t ExclusiveSum(void* storage, std::size_t& bytes, Data data, N count, cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return ExclusiveSum(storage, bytes, data, data, count, stream, at);
    }

    template <class Keys, class In, class Out, class F, class N, class Eq = Equality>
    static cudaError_t InclusiveScanByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, F combine, N count, Eq equal = Eq(),
                                          cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        using T = detail::combined_of<F, detail::value_of<In>>;
        return scan<T>(storage, bytes, keys, equal, in, out, combine, static_cast<const T*>(nullptr), true, count, stream, at);
    }
    template <class Keys, class In, class Out, class F, class T, class N, class Eq = Equality>
    static cudaError_t ExclusiveScanByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, F combine, T initial, N count, Eq equal = Eq(),
                                          cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        const detail::combined_of<F, T, detail::value_of<In>> start = initial;
        return scan<std::decay_t<decltype(start)>>(storage, bytes, keys, equal, in, out, combine, &start, false, count, stream, at);
    }
    template <class Keys, class In, class Out, class N, class Eq = Equality>
    static cudaError_t InclusiveSumByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, N count, Eq equal = Eq(), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return InclusiveScanByKey(storage, bytes, keys, in, out, cub::Sum(), count, equal, stream, at);
    }
    template <class Keys, class In, class Out, class N, class Eq = Equality>
    static cudaError_t ExclusiveSumByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, N count, Eq equal = Eq(), cudaStream_t stream = nullptr, HOSTCUDA_AT) {
        return ExclusiveScanByKey(storage, bytes, keys, in, out, cub::Sum(), detail::value_of<In>{}, count, equal, stream, at);
    }

private:
    struct NoKeys {
        int operator*() const { return 0; }
    };
    template <class T, class Keys, class Eq, class In, class Out, class F, class N>
    static cudaError_t scan(void* storage, std::size_t& bytes, Keys keys, Eq equal, In in, Out out, F combine, const T* given, bool inclusive, N count,
                            cudaStream_t stream, detail::At at) {
        const bool starts = given != nullptr;
        const T start = starts ? *given : T{};
        return detail::two_calls(storage, bytes, 1, "cub::DeviceScan", stream, at, [=]() mutable {
            detail::Prefix<T, F> prefix(combine);
            const auto begin = [&] { starts ? prefix.start(start) : prefix.start(); };
            begin();
            detail::value_of<Keys> before{};  // `out` may be `keys`
            for (N i = 0; i < count; ++i) {
                if constexpr (!std::is_same_v<Keys, NoKeys>) {
                    const detail::value_of<Keys> key = keys[i];
                    if (i != 0 && !equal(before, key)) begin();
                    before = key;
                }
                const detail::value_of<In> value = in[i];
                if (!inclusive) out[i] = prefix.now();
                prefix.push(value);
                if (inclusive) out[i] = prefix.now();
            }
        });
    }
};

}  // namespace cub

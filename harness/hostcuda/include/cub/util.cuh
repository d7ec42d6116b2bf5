// What all of CUB's parts here share: operators, pairs, the thread's rank, storage for those who bring none.
#pragma once
#include <limits>
#include <type_traits>
#include <utility>

#include "../cuda_runtime.h"

#define CUB_VERSION 200800
#define CUB_MAJOR_VERSION 2
#define CUB_MINOR_VERSION 8
#define CUB_SUBMINOR_VERSION 0
#define CUB_NS_QUALIFIER ::cub
#define CUB_MIN(a, b) (((a) > (b)) ? (b) : (a))
#define CUB_MAX(a, b) (((b) > (a)) ? (b) : (a))
#define CUB_WARP_THREADS(unused) 32
#define CUB_PTX_WARP_THREADS 32
#define CubDebug(e) (e)
#define CubDebugExit(e) (e)

namespace cub {

struct NullType {};

struct Sum { template <class T, class U> auto operator()(const T& a, const U& b) const { return a + b; } };
struct Difference { template <class T, class U> auto operator()(const T& a, const U& b) const { return a - b; } };
struct Max { template <class T, class U> std::common_type_t<T, U> operator()(const T& a, const U& b) const { return b > a ? b : a; } };
struct Min { template <class T, class U> std::common_type_t<T, U> operator()(const T& a, const U& b) const { return b < a ? b : a; } };
struct Equality { template <class T, class U> bool operator()(const T& a, const U& b) const { return a == b; } };
struct Inequality { template <class T, class U> bool operator()(const T& a, const U& b) const { return a != b; } };
struct ArgMax {
    template <class P> P operator()(const P& a, const P& b) const { return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a; }
};
struct ArgMin {
    template <class P> P operator()(const P& a, const P& b) const { return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a; }
};
template <class F> struct InequalityWrapper {
    F op;
    explicit InequalityWrapper(F f) : op(f) {}
    template <class T, class U> bool operator()(const T& a, const U& b) { return !op(a, b); }
};
template <class T> struct CastOp { template <class U> T operator()(const U& a) const { return static_cast<T>(a); } };

template <class Key, class Value> struct KeyValuePair {
    using Key_ = Key;
    using Value_ = Value;
    Key key;
    Value value;
    KeyValuePair() = default;
    KeyValuePair(const Key& k, const Value& v) : key(k), value(v) {}
    bool operator!=(const KeyValuePair& other) const { return value != other.value || key != other.key; }
};

inline unsigned LaneId() { return static_cast<unsigned>(hostcuda::lane_id()); }
inline unsigned WarpId() { return static_cast<unsigned>(hostcuda::warp_id()); }
inline int RowMajorTid(int x, int y, int) { return static_cast<int>((threadIdx.z * static_cast<unsigned>(y) + threadIdx.y) * static_cast<unsigned>(x) + threadIdx.x); }
template <class N, class D> constexpr N DivideAndRoundUp(N n, D d) { return static_cast<N>(n / d + (n % d != 0 ? 1 : 0)); }

namespace detail {

inline int block_rank() { return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)); }

// The author's line as a last argument of its own type: no count of items can be taken for it. It needs a constructor: what initialises an
// aggregate has the line of this file.
struct At {
    int line;
    explicit constexpr At(int number) : line(number) {}
};
#define HOSTCUDA_AT ::cub::detail::At at = ::cub::detail::At(__builtin_LINE())

// A class that is constructed without storage has its own, one for each type, as in CUB.
template <class Owner> struct OwnStorage {
    static constexpr const char* name() { return "temporary storage of CUB's"; }
    enum { line = 0 };
};
template <class Owner, class Storage> inline Storage& own_storage() { return hostcuda::SharedVariable<Storage, OwnStorage<Owner>>::get(); }

// Storage in which any type of value can stand: CUB's own can be declared in shared memory and in unions whatever the values' constructors.
template <class T, int N> struct Raw {
    alignas(T) unsigned char bytes[sizeof(T) * N];
    T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};
}  // namespace detail

// Storage that its owner wants uninitialised.
template <class T> struct Uninitialized {
    alignas(T) unsigned char storage[sizeof(T)];
    T& Alias() { return reinterpret_cast<T&>(*this); }
};

}  // namespace cub

// Barriers in shared memory by their C names (CUDA programming guide, "Memory Barrier Primitives"), on hostcuda/mbarrier.h.
#ifndef HOSTCUDA_CUDA_AWBARRIER_PRIMITIVES_H
#define HOSTCUDA_CUDA_AWBARRIER_PRIMITIVES_H

#include <cstdint>

#include "hostcuda/mbarrier.h"

typedef std::uint64_t __mbarrier_t;
typedef std::uint64_t __mbarrier_token_t;

inline std::uint32_t __mbarrier_maximum_count() { return static_cast<std::uint32_t>(hostcuda::mbarrier::most); }
inline void __mbarrier_init(__mbarrier_t* barrier, std::uint32_t expected) { hostcuda::mbarrier::begin(barrier, expected); }
inline void __mbarrier_inval(__mbarrier_t* barrier) { hostcuda::sync_begin(barrier); }
inline __mbarrier_token_t __mbarrier_arrive(__mbarrier_t* barrier) { return hostcuda::mbarrier::come(barrier, 1); }
inline __mbarrier_token_t __mbarrier_arrive_and_drop(__mbarrier_t* barrier) { return hostcuda::mbarrier::come(barrier, 1, 1); }
inline std::uint32_t __mbarrier_token_pending_count(__mbarrier_token_t token) { return static_cast<std::uint32_t>(hostcuda::mbarrier::pending_of(token)); }
inline bool __mbarrier_test_wait(__mbarrier_t* barrier, __mbarrier_token_t token, HOSTCUDA_LINE) { return hostcuda::mbarrier::passed_since(barrier, token, line); }
inline bool __mbarrier_try_wait(__mbarrier_t* barrier, __mbarrier_token_t token, std::uint32_t, HOSTCUDA_LINE) { return hostcuda::mbarrier::passed_since(barrier, token, line); }
inline bool __mbarrier_test_wait_parity(__mbarrier_t* barrier, bool parity, HOSTCUDA_LINE) { return hostcuda::mbarrier::passed_parity(barrier, parity, line); }
inline bool __mbarrier_try_wait_parity(__mbarrier_t* barrier, bool parity, std::uint32_t, HOSTCUDA_LINE) { return hostcuda::mbarrier::passed_parity(barrier, parity, line); }

#endif

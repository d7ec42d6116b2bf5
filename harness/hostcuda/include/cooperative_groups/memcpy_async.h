#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {
// The copy is made by the calling threads, each its share; wait() is the group's barrier.
template <class G, class T> inline void memcpy_async(const G& group, T* to, const T* from, std::size_t bytes) {
    for (std::size_t i = group.thread_rank(); i < bytes / sizeof(T); i += group.size()) to[i] = from[i];
}
template <class G> inline void wait(const G& group, HOSTCUDA_LINE) { group.sync(line); }
inline void wait(const thread_block&, HOSTCUDA_LINE) { thread_block::sync(line); }
template <unsigned Stages, class G> inline void wait_prior(const G& group, HOSTCUDA_LINE) { group.sync(line); }
}  // namespace cooperative_groups

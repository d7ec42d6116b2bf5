// What the device-side headers may ask of the running block: who am I in my warp, and "exchange values with the
// lanes of this mask". Everything collective (shuffles, votes, match, reduce, wmma, mma) is built on these calls.
// Implemented by the runtime library; no dependence on torch or on any other header of this folder.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hostcuda {

// Index of the calling GPU thread inside its warp, 0..31, and of its warp inside the block.
int lane_id() noexcept;
int warp_id() noexcept;

// A warp collective. Every live lane named by `mask` calls this with the same `mask`, `size` and `kind`; the call
// returns when the last of them has arrived. Each lane gives `size` bytes (at most 128); on return the bytes of lane L
// lie at all32 + L * size, and lanes that did not take part have zero bytes there. Returns the mask of lanes that gave.
// It also orders memory among the lanes, as __syncwarp does. `kind` names the intrinsic in reports ("__shfl_sync",
// "wmma::mma_sync"): lanes that meet in one exchange under different kinds are reported.
// Must not be called outside of a kernel.
unsigned warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all32,
                       const char* kind = "warp collective");

// 32-bit address in the block's shared window <-> generic pointer, as __cvta_generic_to_shared and PTX "r" operands use. What lies in another block of the
// cluster has an address that all of them understand; shared_cluster_address gives one of those for the own block's memory, too.
unsigned shared_address(const void* pointer) noexcept;
unsigned shared_cluster_address(const void* pointer) noexcept;
void* shared_pointer(unsigned address) noexcept;

// Ends the kernel with a `not_emulated` report: construct as its author wrote it.
[[noreturn]] void not_emulated(const char* construct);

}  // namespace hostcuda

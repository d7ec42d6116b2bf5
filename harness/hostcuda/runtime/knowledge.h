// What somebody knows to have happened before: of whole blocks, of warps and of single threads, their records below a limit. Threads that know the same
// share it; whoever learns more takes a copy.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace hostcuda {

class Knowledge {
public:
    void add_block(std::uint32_t block, std::uint64_t limit) { raise(key_of(block, 0), limit); }
    void add_warp(std::uint32_t block, std::uint32_t warp, std::uint64_t limit) { raise(key_of(block, 1 + warp), limit); }
    void add_thread(std::uint32_t block, std::uint32_t thread, std::uint64_t limit) { raise(key_of(block, first_thread + thread), limit); }
    void add(const Knowledge& other);
    void forget(std::uint32_t block);
    bool mentions(std::uint32_t block) const;
    bool includes(const Knowledge& other) const;
    bool includes(std::uint32_t block, std::uint32_t thread, std::uint64_t record) const;

private:
    using Limit = std::pair<std::uint64_t, std::uint64_t>;  // a key, and the limit
    static constexpr unsigned key_bits = 11;                // of the part of a block: 0 all of it, then 32 warps, then 1,024 threads
    static constexpr std::uint32_t first_thread = 33;
    static constexpr std::uint64_t key_of(std::uint32_t block, std::uint32_t part) { return std::uint64_t{block} << key_bits | part; }
    void raise(std::uint64_t key, std::uint64_t limit);
    std::uint64_t limit_of(std::uint64_t key) const;
    void coarsen();

    std::vector<Limit> limits_;                             // by key, rising; none that the limit of its whole block covers
};

using Known = std::shared_ptr<Knowledge>;
void learn(Known& mine, const Known& other);
Knowledge& own(Known& known);                               // to be changed: nobody else's

}  // namespace hostcuda

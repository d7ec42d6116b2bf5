#include "knowledge.h"

#include <algorithm>

namespace hostcuda {

namespace {

constexpr std::size_t most_limits = std::size_t{1} << 15;  // more are told of whole blocks only, which may hide a race and never makes one up
constexpr std::size_t few = 8;                             // limits that are put in one by one

struct ByKey {
    template <class Limit> bool operator()(const Limit& limit, std::uint64_t key) const { return limit.first < key; }
};

}  // namespace

void Knowledge::raise(std::uint64_t key, std::uint64_t limit) {
    const std::uint64_t block = key >> key_bits << key_bits;
    const auto first = std::lower_bound(limits_.begin(), limits_.end(), block, ByKey{});
    const bool whole = first != limits_.end() && first->first == block;
    if (whole && first->second >= limit) return;
    if (key != block) {
        const auto at = std::lower_bound(first, limits_.end(), key, ByKey{});
        if (at == limits_.end() || at->first != key) limits_.insert(at, {key, limit});
        else at->second = std::max(at->second, limit);
        return;
    }
    const auto end = std::lower_bound(first, limits_.end(), key_of(static_cast<std::uint32_t>(block >> key_bits) + 1, 0), ByKey{});
    const auto place = first - limits_.begin();
    limits_.erase(std::remove_if(first, end, [limit](const Limit& each) { return each.second <= limit; }), end);
    limits_.insert(limits_.begin() + place, {block, limit});
}

void Knowledge::add(const Knowledge& other) {
    if (other.limits_.size() <= few && !limits_.empty()) {
        for (const auto& [key, limit] : other.limits_) raise(key, limit);
    } else {
        std::vector<Limit> merged;
        merged.reserve(limits_.size() + other.limits_.size());
        std::merge(limits_.begin(), limits_.end(), other.limits_.begin(), other.limits_.end(), std::back_inserter(merged));  // of equal keys the lower limit first
        std::uint64_t block = ~std::uint64_t{0}, covered = 0;
        limits_.clear();
        for (std::size_t i = 0; i < merged.size(); ++i) {
            const auto& [key, limit] = merged[i];
            if (i + 1 < merged.size() && merged[i + 1].first == key) continue;
            if (key >> key_bits != block) block = key >> key_bits, covered = 0;
            if (key == block << key_bits) covered = limit;
            else if (limit <= covered) continue;
            limits_.push_back({key, limit});
        }
    }
    if (limits_.size() > most_limits) coarsen();
}

void Knowledge::coarsen() {
    std::vector<Limit> whole;
    for (const auto& [key, limit] : limits_) {
        const std::uint64_t block = key >> key_bits << key_bits;
        if (whole.empty() || whole.back().first != block) whole.push_back({block, limit});
        else whole.back().second = std::max(whole.back().second, limit);
    }
    limits_ = std::move(whole);
}

void Knowledge::forget(std::uint32_t block) {
    const auto first = std::lower_bound(limits_.begin(), limits_.end(), key_of(block, 0), ByKey{});
    limits_.erase(first, std::lower_bound(first, limits_.end(), key_of(block + 1, 0), ByKey{}));
}

bool Knowledge::mentions(std::uint32_t block) const {
    const auto first = std::lower_bound(limits_.begin(), limits_.end(), key_of(block, 0), ByKey{});
    return first != limits_.end() && first->first >> key_bits == block;
}

std::uint64_t Knowledge::limit_of(std::uint64_t key) const {
    const auto at = std::lower_bound(limits_.begin(), limits_.end(), key, ByKey{});
    return at != limits_.end() && at->first == key ? at->second : 0;
}

bool Knowledge::includes(const Knowledge& other) const {
    if (other.limits_.size() > few * few && other.limits_.size() > limits_.size()) return false;  // nearly always
    for (const auto& [key, limit] : other.limits_)
        if (limit_of(key >> key_bits << key_bits) < limit && limit_of(key) < limit) return false;
    return true;
}

bool Knowledge::includes(std::uint32_t block, std::uint32_t thread, std::uint64_t record) const {
    return record < limit_of(key_of(block, 0)) || record < limit_of(key_of(block, 1 + thread / 32)) || record < limit_of(key_of(block, first_thread + thread));
}

void learn(Known& mine, const Known& other) {
    if (other == nullptr || mine == other) return;
    if (mine == nullptr || other->includes(*mine)) mine = other;
    else if (!mine->includes(*other)) own(mine).add(*other);
}

Knowledge& own(Known& known) {
    if (known == nullptr) known = std::make_shared<Knowledge>();
    else if (known.use_count() > 1) known = std::make_shared<Knowledge>(*known);
    return *known;
}

}  // namespace hostcuda

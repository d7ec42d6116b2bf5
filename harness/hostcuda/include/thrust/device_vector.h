// Vectors: of the device's memory, whose items the host reads and writes by copies, and of the host's.
#pragma once
#include <initializer_list>
#include <vector>

#include "copy.h"
#include "fill.h"
#include "iterator/reverse_iterator.h"

namespace thrust {

template <class T, class Allocator = ::std::allocator<T>> class host_vector;

template <class T, class Allocator = use_default> class device_vector {
public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using reference = device_reference<T>;
    using const_reference = device_reference<const T>;
    using pointer = device_ptr<T>;
    using const_pointer = device_ptr<const T>;
    using iterator = device_ptr<T>;
    using const_iterator = device_ptr<const T>;
    using reverse_iterator = thrust::reverse_iterator<iterator>;
    using const_reverse_iterator = thrust::reverse_iterator<const_iterator>;

    device_vector() = default;
    explicit device_vector(std::size_t n, HOSTCUDA_AT) : device_vector(n, T(), at) {}
    device_vector(std::size_t n, const T& value, HOSTCUDA_AT) { take(n), detail::do_fill_n(thrust::device, at, begin(), size_, value); }
    device_vector(std::initializer_list<T> all) : device_vector(all.begin(), all.end()) {}
    template <class In> requires(!std::is_arithmetic_v<In>) device_vector(In first, In last, HOSTCUDA_AT) {
        take(static_cast<std::size_t>(std::distance(first, last)));
        detail::copied(at, first, last, begin());
    }
    device_vector(const device_vector& other, HOSTCUDA_AT) : device_vector(other.begin(), other.end(), at) {}
    device_vector(device_vector&& other) noexcept { swap(other); }
    template <class U, class A> device_vector(const std::vector<U, A>& other, HOSTCUDA_AT) : device_vector(other.begin(), other.end(), at) {}
    template <class U, class A> requires(!std::is_same_v<device_vector, device_vector<U, A>>)
    device_vector(const device_vector<U, A>& other, HOSTCUDA_AT) : device_vector(other.begin(), other.end(), at) {}
    ~device_vector() { give(); }
    device_vector& operator=(const device_vector& other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    device_vector& operator=(device_vector&& other) noexcept {
        swap(other);
        return *this;
    }
    template <class U, class A> device_vector& operator=(const std::vector<U, A>& other) { return assign(other.begin(), other.end()), *this; }
    device_vector& operator=(std::initializer_list<T> all) { return assign(all.begin(), all.end()), *this; }
    template <class In> requires(!std::is_arithmetic_v<In>) void assign(In first, In last, HOSTCUDA_AT) {
        const auto n = static_cast<std::size_t>(std::distance(first, last));
        if (n > room_) return device_vector(first, last, at).swap(*this);
        detail::copied(at, first, last, begin());  // pointers to the items stay good
        size_ = n;
    }
    void assign(std::size_t n, const T& value, HOSTCUDA_AT) {
        if (n > room_) return device_vector(n, value, at).swap(*this);
        detail::do_fill_n(thrust::device, at, begin(), n, value);
        size_ = n;
    }

    iterator begin() { return device_ptr<T>(memory_); }
    iterator end() { return begin() + size_; }
    const_iterator begin() const { return device_ptr<const T>(memory_); }
    const_iterator end() const { return begin() + size_; }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    reverse_iterator rbegin() { return reverse_iterator(end()); }
    reverse_iterator rend() { return reverse_iterator(begin()); }
    const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
    const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }
    const_reverse_iterator crbegin() const { return rbegin(); }
    const_reverse_iterator crend() const { return rend(); }
    pointer data() { return begin(); }
    const_pointer data() const { return begin(); }
    reference operator[](std::size_t i) { return reference(memory_ + i); }
    const_reference operator[](std::size_t i) const { return const_reference(memory_ + i); }
    reference front() { return (*this)[0]; }
    reference back() { return (*this)[size_ - 1]; }
    const_reference front() const { return (*this)[0]; }
    const_reference back() const { return (*this)[size_ - 1]; }
    std::size_t size() const { return size_; }
    std::size_t capacity() const { return room_; }
    bool empty() const { return size_ == 0; }
    void reserve(std::size_t n) {
        if (n > room_) grow(n);
    }
    void resize(std::size_t n, const T& value = T(), HOSTCUDA_AT) {
        if (n > room_) grow(n > 2 * room_ ? n : 2 * room_);
        if (n > size_) detail::do_fill_n(thrust::device, at, begin() + size_, n - size_, value);
        size_ = n;
    }
    void clear() { size_ = 0; }
    void shrink_to_fit() { grow(size_); }
    void push_back(const T& value) { resize(size_ + 1, value); }
    void pop_back() { --size_; }
    iterator erase(iterator first, iterator last, HOSTCUDA_AT) {
        const device_vector rest(last, end());
        detail::do_copy(thrust::device, at, rest.begin(), rest.end(), first);
        size_ -= static_cast<std::size_t>(last - first);
        return first;
    }
    iterator erase(iterator place) { return erase(place, place + 1); }
    iterator insert(const_iterator place, const T& value, HOSTCUDA_AT) { return insert(place, std::size_t{1}, value, at); }
    iterator insert(const_iterator place, std::size_t n, const T& value, HOSTCUDA_AT) {
        const iterator hole = open(place, n, at);
        detail::do_fill_n(thrust::device, at, hole, n, value);
        return hole;
    }
    template <class In> requires(!std::is_arithmetic_v<In>) iterator insert(const_iterator place, In first, In last, HOSTCUDA_AT) {
        const iterator hole = open(place, static_cast<std::size_t>(std::distance(first, last)), at);
        detail::copied(at, first, last, hole);
        return hole;
    }
    void swap(device_vector& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(size_, other.size_);
        std::swap(room_, other.room_);
    }
    friend void swap(device_vector& a, device_vector& b) noexcept { a.swap(b); }
    friend bool operator==(const device_vector& a, const device_vector& b) { return host_vector<T>(a) == host_vector<T>(b); }

private:
    void take(std::size_t n) {
        if (n == 0) return;
        memory_ = thrust::device_malloc<T>(n).get();
        size_ = room_ = n;
    }
    void give() noexcept {
        if (memory_ != nullptr) cudaFree(memory_);
        memory_ = nullptr, size_ = room_ = 0;
    }
    void grow(std::size_t n) {
        device_vector larger;
        larger.take(n);
        larger.size_ = size_;
        if (size_ != 0) detail::check(cudaMemcpy(larger.memory_, memory_, size_ * sizeof(T), cudaMemcpyDeviceToDevice), "thrust::device_vector");
        swap(larger);
    }
    // Moves what follows `place` on by `n` items; the vector keeps its memory where that is large enough.
    iterator open(const_iterator place, std::size_t n, detail::At at) {
        const std::ptrdiff_t offset = place - cbegin();
        const device_vector rest(place, cend(), at);
        if (size_ + n > room_) grow(size_ + n > 2 * room_ ? size_ + n : 2 * room_);
        size_ += n;
        detail::do_copy(thrust::device, at, rest.begin(), rest.end(), begin() + offset + n);
        return begin() + offset;
    }
    T* memory_ = nullptr;
    std::size_t size_ = 0, room_ = 0;
};

template <class T, class Allocator> class host_vector : public std::vector<T, Allocator> {
public:
    using std::vector<T, Allocator>::vector;
    host_vector() = default;
    host_vector(const std::vector<T, Allocator>& other) : std::vector<T, Allocator>(other) {}
    template <class U, class A> host_vector(const device_vector<U, A>& other, HOSTCUDA_AT) : std::vector<T, Allocator>(other.size()) {
        detail::copied(at, other.begin(), other.end(), this->begin());
    }
    host_vector(device_ptr<const T> first, device_ptr<const T> last, HOSTCUDA_AT) : std::vector<T, Allocator>(static_cast<std::size_t>(last - first)) {
        detail::copied(at, first, last, this->begin());
    }
    template <class U, class A> requires(!std::is_same_v<T, U>) host_vector(const std::vector<U, A>& other) : std::vector<T, Allocator>(other.begin(), other.end()) {}
    template <class U, class A> host_vector& operator=(const device_vector<U, A>& other) {
        this->resize(other.size());
        detail::copied(detail::At(__builtin_LINE()), other.begin(), other.end(), this->begin());
        return *this;
    }
};
}  // namespace thrust

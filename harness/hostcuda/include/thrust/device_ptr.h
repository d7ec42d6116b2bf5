// Pointers to memory of the device, and what they refer to, which the host reads and writes by copies.
#pragma once
#include <compare>
#include <cstddef>
#include <iterator>
#include <ostream>
#include <type_traits>

#include "detail/facade.h"
#include "detail/policy.h"
#include "iterator/iterator_traits.h"

namespace thrust {

template <class T> class device_ptr;

template <class T> class device_reference {
public:
    using value_type = std::remove_cv_t<T>;
    using pointer = device_ptr<T>;
    explicit device_reference(T* at) : at_(at) {}
    device_reference(const device_reference&) = default;
    template <class U> requires(std::is_same_v<const U, T>) device_reference(const device_reference<U>& other) : at_(raw_pointer_of(other)) {}
    operator value_type() const { return value(); }
    device_ptr<T> operator&() const { return device_ptr<T>(at_); }
    const device_reference& operator=(const value_type& given) const { return store(given), *this; }
    const device_reference& operator=(const device_reference& other) const { return store(other.value()), *this; }
    template <class U> const device_reference& operator=(const device_reference<U>& other) const {
        return store(static_cast<value_type>(static_cast<typename device_reference<U>::value_type>(other))), *this;
    }
    template <class U> const device_reference& operator+=(const U& by) const { return store(static_cast<value_type>(value() + by)), *this; }
    template <class U> const device_reference& operator-=(const U& by) const { return store(static_cast<value_type>(value() - by)), *this; }
    template <class U> const device_reference& operator*=(const U& by) const { return store(static_cast<value_type>(value() * by)), *this; }
    template <class U> const device_reference& operator/=(const U& by) const { return store(static_cast<value_type>(value() / by)), *this; }
    template <class U> const device_reference& operator%=(const U& by) const { return store(static_cast<value_type>(value() % by)), *this; }
    template <class U> const device_reference& operator&=(const U& by) const { return store(static_cast<value_type>(value() & by)), *this; }
    template <class U> const device_reference& operator|=(const U& by) const { return store(static_cast<value_type>(value() | by)), *this; }
    template <class U> const device_reference& operator^=(const U& by) const { return store(static_cast<value_type>(value() ^ by)), *this; }
    template <class U> const device_reference& operator<<=(const U& by) const { return store(static_cast<value_type>(value() << by)), *this; }
    template <class U> const device_reference& operator>>=(const U& by) const { return store(static_cast<value_type>(value() >> by)), *this; }
    const device_reference& operator++() const { return *this += 1; }
    const device_reference& operator--() const { return *this -= 1; }
    value_type operator++(int) const { const value_type old = value(); return store(static_cast<value_type>(old + 1)), old; }
    value_type operator--(int) const { const value_type old = value(); return store(static_cast<value_type>(old - 1)), old; }
    void swap(const device_reference& other) const {
        const value_type own = value();
        store(other.value());
        other.store(own);
    }
    // Found where no namespace is named; thrust::swap is that of the standard library, which copies the references: both get the second's value.
    friend void swap(device_reference& a, device_reference& b) { a.swap(b); }
    friend std::ostream& operator<<(std::ostream& to, const device_reference& it) { return to << it.value(); }
    friend T* raw_pointer_of(const device_reference& it) { return it.at_; }

private:
    value_type value() const {
        if (hostcuda::in_kernel()) return *at_;
        alignas(T) unsigned char bytes[sizeof(T)];
        detail::check(cudaMemcpy(bytes, at_, sizeof(T), cudaMemcpyDeviceToHost), "thrust::device_reference");
        return reinterpret_cast<value_type&>(bytes);
    }
    void store(const value_type& given) const {
        if (hostcuda::in_kernel()) *at_ = given;
        else detail::check(cudaMemcpy(at_, &given, sizeof(T), cudaMemcpyHostToDevice), "thrust::device_reference");
    }
    T* at_;
};


template <class T> class device_ptr : public detail::Facade<device_ptr<T>, std::remove_cv_t<T>, device_reference<T>> {
public:
    using pointer = device_ptr;
    using element_type = T;
    device_ptr() = default;
    device_ptr(std::nullptr_t) {}
    explicit device_ptr(T* at) : at_(at) {}
    template <class U> requires(std::is_convertible_v<U*, T*> && !std::is_same_v<U, T>) device_ptr(const device_ptr<U>& other) : at_(other.get()) {}
    T* get() const { return at_; }
    device_ptr operator->() const = delete;
    explicit operator bool() const { return at_ != nullptr; }
    device_reference<T> dereference() const { return device_reference<T>(at_); }
    void advance(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t behind(const device_ptr& other) const { return at_ - other.at_; }
    friend bool operator==(const device_ptr& it, std::nullptr_t) { return it.at_ == nullptr; }

private:
    T* at_ = nullptr;
};
template <class T, class U> concept SameItems = !std::is_same_v<T, U> && std::is_same_v<std::remove_cv_t<T>, std::remove_cv_t<U>>;
template <class T, class U> requires SameItems<T, U> std::ptrdiff_t operator-(const device_ptr<T>& a, const device_ptr<U>& b) { return a.get() - b.get(); }
template <class T, class U> requires SameItems<T, U> auto operator<=>(const device_ptr<T>& a, const device_ptr<U>& b) { return a.get() <=> b.get(); }
template <> class device_ptr<void> {
public:
    device_ptr() = default;
    explicit device_ptr(void* at) : at_(at) {}
    template <class T> device_ptr(const device_ptr<T>& other) : at_(other.get()) {}
    template <class T> explicit operator device_ptr<T>() const { return device_ptr<T>(static_cast<T*>(at_)); }
    void* get() const { return at_; }

private:
    void* at_ = nullptr;
};
namespace detail {
template <class T> struct Raw<T*> {
    static constexpr System system = System::host;
    using type = T*;
    static type of(T* it) { return it; }
};
template <class T> struct Raw<device_ptr<T>> {
    static constexpr System system = System::device;
    using type = T*;
    static type of(const device_ptr<T>& it) { return it.get(); }
};
}  // namespace detail

template <class T> device_ptr<T> device_pointer_cast(T* at) { return device_ptr<T>(at); }
template <class T> device_ptr<T> device_pointer_cast(const device_ptr<T>& at) { return at; }
template <class T> T* raw_pointer_cast(T* at) { return at; }
template <class T> T* raw_pointer_cast(const device_ptr<T>& at) { return at.get(); }
template <class T> T& raw_reference_cast(const device_reference<T>& it) { return *raw_pointer_of(it); }
template <class T> T& raw_reference_cast(T& it) { return it; }

template <class T> device_ptr<T> device_malloc(std::size_t count) {
    void* memory = nullptr;
    detail::check(cudaMalloc(&memory, count * sizeof(T)), "thrust::device_malloc");
    return device_ptr<T>(static_cast<T*>(memory));
}
inline device_ptr<void> device_malloc(std::size_t bytes) {
    void* memory = nullptr;
    detail::check(cudaMalloc(&memory, bytes), "thrust::device_malloc");
    return device_ptr<void>(memory);
}
template <class T> void device_free(const device_ptr<T>& at) { detail::check(cudaFree(at.get()), "thrust::device_free"); }
}  // namespace thrust

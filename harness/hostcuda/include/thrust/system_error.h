// What an algorithm throws when the device has an error.
#pragma once
#include <stdexcept>
#include <string>
#include <system_error>

#include "../cuda_runtime.h"
#include "version.h"

namespace thrust {
namespace system {
using ::std::errc;
using ::std::error_category;
using ::std::error_code;
using ::std::error_condition;

class CudaCategory : public ::std::error_category {
public:
    const char* name() const noexcept override { return "cuda"; }
    ::std::string message(int code) const override { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
};
inline const ::std::error_category& cuda_category() {
    static const CudaCategory category;
    return category;
}
class system_error : public ::std::runtime_error {
public:
    system_error(error_code code, const ::std::string& what) : ::std::runtime_error(what + ": " + code.message()), code_(code) {}
    explicit system_error(error_code code) : ::std::runtime_error(code.message()), code_(code) {}
    system_error(int value, const error_category& category, const ::std::string& what) : system_error(error_code(value, category), what) {}
    system_error(int value, const error_category& category) : system_error(error_code(value, category)) {}
    const error_code& code() const noexcept { return code_; }

private:
    error_code code_;
};
}  // namespace system
using system::cuda_category;
using system::error_category;
using system::error_code;
using system::error_condition;
using system::system_error;
}  // namespace thrust

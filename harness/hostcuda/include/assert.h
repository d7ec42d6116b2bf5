// assert() for device and host code. No include guard: the standard header can be included again after NDEBUG changed.
#undef assert
#ifdef NDEBUG
#define assert(e) (static_cast<void>(0))
#else
#include "hostcuda/interface.h"
extern "C" void __assert_fail(const char*, const char*, unsigned, const char*) noexcept __attribute__((noreturn));
#define assert(e) (static_cast<bool>(e) ? static_cast<void>(0) : ::hostcuda::assertion_failed(#e, __FILE__, __LINE__, __func__))
#endif

// Preloaded into processes under racecheck: puts memory that CUDA's driver will pin into large pages.
//
// When racecheck opens a context, the driver maps 842 MiB of host memory (shared, anonymous, at an address of its choice)
// and pins all of it in one call. That call takes 0.3 to 0.45 s on an H200's host, in pages of 4 KiB, and the process
// cannot be stopped in it, so a timing has to wait. The same memory is pinned at once if it is private to the process, in
// large pages, and touched beforehand; between touches the process can be stopped.

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>

namespace {

constexpr size_t LARGE_BYTES = size_t{64} << 20;
constexpr size_t PAGE_BYTES = 4096;

using Map = void *(void *, size_t, int, int, int, off_t);

Map *next(const char *name) { return reinterpret_cast<Map *>(dlsym(RTLD_NEXT, name)); }

// Whether the mapping is the driver's: memory that programs share with forked processes has no fixed address.
bool is_driver_s(const void *place, size_t bytes, int flags, int file) {
    return place != nullptr && file == -1 && (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_TYPE) == MAP_SHARED &&
           bytes >= LARGE_BYTES;
}

void *mapped(Map *real, void *place, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (is_driver_s(place, bytes, flags, file)) {
        void *memory = real(place, bytes, protection, (flags & ~MAP_TYPE) | MAP_PRIVATE, file, offset);
        if (memory != MAP_FAILED) {
            madvise(memory, bytes, MADV_HUGEPAGE);  // even without large pages, all pages are touched
            madvise(memory, bytes, MADV_DONTFORK);  // a child would get a copy of the pinned memory
            if ((protection & PROT_WRITE) != 0)
                for (size_t at = 0; at < bytes; at += PAGE_BYTES) static_cast<volatile char *>(memory)[at] = 0;
            return memory;
        }
    }
    return real(place, bytes, protection, flags, file, offset);
}

}  // namespace

extern "C" void *mmap(void *place, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
    static Map *const real = next("mmap");
    return mapped(real, place, bytes, protection, flags, file, offset);
}

extern "C" void *mmap64(void *place, size_t bytes, int protection, int flags, int file, off64_t offset) noexcept {
    static Map *const real = next("mmap64");
    return mapped(real, place, bytes, protection, flags, file, offset);
}

// Preloaded into processes under racecheck: memory that CUDA's driver is about to pin, in pages that are quickly pinned.
//
// racecheck has the driver map 842 MiB of host memory as it opens a context (shared, without a file, at an address of
// its choice) and pin all of it in one call, in which nobody can stop the process: 0.3 to 0.45 s on an H200's host, a
// page of 4 KiB after another. Whoever wants to time something meanwhile waits for that. The same memory, private to the
// process, in large pages, and touched beforehand, where a process can be stopped at each page, is pinned at once.

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>

namespace {

constexpr size_t LARGE_BYTES = size_t{64} << 20;
constexpr size_t PAGE_BYTES = 4096;

using Map = void *(void *, size_t, int, int, int, off_t);

Map *next(const char *name) { return reinterpret_cast<Map *>(dlsym(RTLD_NEXT, name)); }

// The driver's own: what programs share with processes that they fork goes to no address in particular.
bool is_driver_s(const void *place, size_t bytes, int flags, int file) {
    return place != nullptr && file == -1 && (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_TYPE) == MAP_SHARED &&
           bytes >= LARGE_BYTES;
}

void *mapped(Map *real, void *place, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (is_driver_s(place, bytes, flags, file)) {
        void *memory = real(place, bytes, protection, (flags & ~MAP_TYPE) | MAP_PRIVATE, file, offset);
        if (memory != MAP_FAILED) {
            madvise(memory, bytes, MADV_HUGEPAGE);  // where it is not granted pages are touched all the same
            madvise(memory, bytes, MADV_DONTFORK);  // a child would get a copy of what is pinned
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

// Runs one corpus entry on a GPU without torch: driver IN_COUNT OUT_COUNT FILE... -- SIZE...
// Every FILE of an input is copied to device memory of exactly its size; that of an output gives the size by its length, the
// initial content unless its name ends in ".new" (then memory stays as the allocator gave it), and receives the result.
// Exit code 0; 3 and the error's name on stderr when CUDA reports one.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" void run(const void* const* in, void* const* out, const long long* size);

static void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s: %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
        std::exit(3);
    }
}

static std::vector<char> read(const char* path) {
    std::vector<char> data;
    FILE* file = std::fopen(path, "rb");
    if (file == nullptr) {
        std::fprintf(stderr, "%s can't be read\n", path);
        std::exit(2);
    }
    char part[4096];
    for (std::size_t got; (got = std::fread(part, 1, sizeof(part), file)) > 0;) data.insert(data.end(), part, part + got);
    std::fclose(file);
    return data;
}

int main(int count, char** arguments) {
    const int ins = std::atoi(arguments[1]), outs = std::atoi(arguments[2]);
    std::vector<void*> pointers;
    std::vector<std::size_t> bytes;
    for (int i = 0; i < ins + outs; ++i) {
        const std::vector<char> data = read(arguments[3 + i]);
        const std::string name = arguments[3 + i];
        void* pointer = nullptr;
        check(cudaMalloc(&pointer, data.empty() ? 1 : data.size()), "cudaMalloc");
        const bool fresh = name.size() > 4 && name.compare(name.size() - 4, 4, ".new") == 0;
        if (!fresh) check(cudaMemcpy(pointer, data.data(), data.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
        pointers.push_back(pointer);
        bytes.push_back(data.size());
    }
    std::vector<long long> sizes;
    for (int i = 4 + ins + outs; i < count; ++i) sizes.push_back(std::atoll(arguments[i]));
    std::vector<const void*> inputs(pointers.begin(), pointers.begin() + ins);
    run(inputs.data(), pointers.data() + ins, sizes.data());
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "run");
    for (int i = ins; i < ins + outs; ++i) {
        std::vector<char> data(bytes[i]);
        check(cudaMemcpy(data.data(), pointers[i], data.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        FILE* file = std::fopen(arguments[3 + i], "wb");
        std::fwrite(data.data(), 1, data.size(), file);
        std::fclose(file);
    }
    for (void* pointer : pointers) cudaFree(pointer);
    cudaDeviceReset();  // compute-sanitizer looks for leaks when the context goes
    return 0;
}

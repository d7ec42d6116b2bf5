// Integer division as a GPU does it: by zero it does not trap.
#include <signal.h>
#include <ucontext.h>

#include <cstring>

#include "recorder.h"

namespace hostcuda {

#if defined(__x86_64__)

namespace {

constexpr int registers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

struct Division {  // DIV or IDIV (Intel's manual, volume 2)
    const unsigned char* next = nullptr;  // null: it is another instruction
    bool is_signed = false;
    unsigned bytes = 4;
    std::uint64_t divisor = 0;
};

Division decoded(const ucontext_t& context) {
    const auto value = [&](unsigned number) { return static_cast<std::uint64_t>(context.uc_mcontext.gregs[registers[number]]); };
    const auto* at = reinterpret_cast<const unsigned char*>(context.uc_mcontext.gregs[REG_RIP]);
    Division found;
    if (*at == 0x66) found.bytes = 2, ++at;
    const unsigned rex = (*at & 0xf0) == 0x40 ? *at++ : 0;
    if (rex & 8) found.bytes = 8;
    const unsigned opcode = *at++, modrm = *at++, mode = modrm >> 6, operation = modrm >> 3 & 7, low = modrm & 7;
    if ((opcode != 0xf6 && opcode != 0xf7) || operation < 6) return {};
    if (opcode == 0xf6) found.bytes = 1;
    found.is_signed = operation == 7;
    unsigned base = low | (rex & 1) << 3;
    if (mode == 3) {
        const bool second_byte = found.bytes == 1 && rex == 0 && low >= 4;  // AH and its like
        found.divisor = second_byte ? value(low - 4) >> 8 : value(base);
    } else {
        std::uint64_t address = 0;
        const bool relative = mode == 0 && low == 5;  // to the next instruction
        bool has_base = !relative;
        if (low == 4) {
            const unsigned sib = *at++, index = (sib >> 3 & 7) | (rex & 2) << 2;
            base = (sib & 7) | (rex & 1) << 3;
            if (index != 4) address += value(index) << (sib >> 6);
            has_base = mode != 0 || (sib & 7) != 5;
        }
        if (has_base) address += value(base);
        std::int32_t offset = 0;
        if (mode == 1) offset = static_cast<signed char>(*at++);
        else if (mode == 2 || !has_base) std::memcpy(&offset, at, sizeof offset), at += sizeof offset;
        address += static_cast<std::uint64_t>(std::int64_t{offset}) + (relative ? reinterpret_cast<std::uint64_t>(at) : 0);
        std::memcpy(&found.divisor, reinterpret_cast<const void*>(address), found.bytes);
    }
    if (found.bytes < 8) found.divisor &= (std::uint64_t{1} << 8 * found.bytes) - 1;
    found.next = at;
    return found;
}

}  // namespace

bool finish_division(void* interrupted) {
    auto& context = *static_cast<ucontext_t*>(interrupted);
    const Division division = decoded(context);
    if (division.next == nullptr || (division.divisor != 0 && !division.is_signed)) return false;
    auto set = [&](int number, unsigned byte, unsigned bytes, bool ones) {
        const std::uint64_t whole = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1, mask = whole << 8 * byte;
        auto& place = context.uc_mcontext.gregs[number];
        const auto kept = bytes == 4 ? 0 : static_cast<std::uint64_t>(place) & ~mask;
        place = static_cast<greg_t>(kept | (ones ? mask : 0));
    };
    // The lowest number by -1 is itself: it is in the first register already, but for 8 bits that hold its sign, and nothing remains.
    if (division.divisor == 0) set(REG_RAX, 0, division.bytes, true);
    if (division.bytes == 1) set(REG_RAX, 1, 1, division.divisor == 0);
    else set(REG_RDX, 0, division.bytes, division.divisor == 0);
    context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(division.next);
    return true;
}

#else

bool finish_division(void*) { return false; }

#endif

}  // namespace hostcuda

#include "recorder.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstring>

namespace hostcuda {

namespace {

// The layout is known to harness/referee/contestants/crash_recorder.py, too.
constexpr std::size_t text_bytes = 1024;
struct Page {
    std::atomic<std::uint64_t> used;   // bytes of the log that were asked for, also where there was no room
    std::atomic<std::uint64_t> turn;   // which of the two launches is the later one
    std::atomic<std::uint64_t> running;  // whether it is under way
    char unused[text_bytes - 24];
    char launch[2][text_bytes];        // in turns, so that one of them is whole at any time
    char end[text_bytes];
    char log[1];
};
constexpr std::size_t log_at = 4 * text_bytes;

std::atomic<Page*> page{nullptr};
std::size_t page_bytes = 0;

// A JSON object in a fixed buffer: it is made in a signal handler, too, where nothing may be allocated.
class Text {
public:
    Text& raw(const char* part) {
        while (*part != 0) put(*part++);
        return *this;
    }
    Text& string(const char* part, std::size_t longest = 300) {
        put('"');
        for (std::size_t i = 0; part[i] != 0 && i < longest; ++i) {
            const auto c = static_cast<unsigned char>(part[i]);
            if (c == '"' || c == '\\') put('\\');
            put(c < 0x20 || c >= 0x7f ? '?' : part[i]);
        }
        put('"');
        return *this;
    }
    Text& number(std::uint64_t value) {
        char digits[20];
        int n = 0;
        do digits[n++] = static_cast<char>('0' + value % 10), value /= 10;
        while (value != 0);
        while (n > 0) put(digits[--n]);
        return *this;
    }
    Text& dim(const Dim3& d) { return raw("[").number(d.x).raw(",").number(d.y).raw(",").number(d.z).raw("]"); }
    void store(char* place) const {
        std::memcpy(place, text_, size_);
        place[size_] = 0;
    }

private:
    void put(char c) {
        if (size_ + 1 < sizeof text_) text_[size_++] = c;
    }
    char text_[text_bytes];
    std::size_t size_ = 0;
};

const char* name_of(const Launch& grid) {
    const char* name = grid.kernel.load();
    if (name == nullptr) name = grid.request.text;
    return name == nullptr ? "" : name;
}

std::uint64_t launches = 0;

void store_launch(Page& to, const char* name, int line) {
    Text text;
    text.raw("{\"kernel\":").string(name);
    if (line > 0) text.raw(",\"line\":").number(static_cast<std::uint64_t>(line));
    text.raw(",\"launch\":").number(launches).raw("}");
    const std::uint64_t turn = to.turn.load(std::memory_order_relaxed) + 1;
    text.store(to.launch[turn % 2]);
    to.turn.store(turn, std::memory_order_release);
    to.running.store(1, std::memory_order_release);
}

struct Module {
    char path[text_bytes / 2];
    std::uintptr_t base, end;
};
constexpr std::size_t most_modules = 32;
Module modules[most_modules];
std::atomic<std::size_t> module_count{0};

const Module* module_of(std::uintptr_t address) {
    const std::size_t count = module_count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i)
        if (address >= modules[i].base && address < modules[i].end) return &modules[i];
    return nullptr;
}

struct Frame {
    const Module* module = nullptr;
    std::uintptr_t site = 0, stack = 0;
};

// The nearest frame that is the solution's: what broke may be a function of libc that it called.
_Unwind_Reason_Code look(_Unwind_Context* context, void* data) {
    auto* frame = static_cast<Frame*>(data);
    int interrupted = 0;
    const auto address = static_cast<std::uintptr_t>(_Unwind_GetIPInfo(context, &interrupted));
    frame->module = module_of(address);
    // Sites are return addresses, which lie two bytes behind what is looked up at the least.
    frame->site = interrupted != 0 ? address + 2 : address;
    frame->stack = static_cast<std::uintptr_t>(_Unwind_GetCFA(context));  // here that is where its callee's begins
    return frame->module == nullptr ? _URC_NO_REASON : _URC_NORMAL_STOP;
}

constexpr std::size_t guard_bytes = 4096;

// Whether a frame is of a GPU thread: below them lies the scheduler, and the host code that launched it. One that used up its stack has
// gone into the guard page.
bool is_on_fiber(const Worker& worker, const Frame& frame) {
    return frame.module != nullptr && frame.stack + guard_bytes - worker.stack_low <= worker.stack_bytes + guard_bytes;
}

// What ends a process by itself, and what the referee sends when its time is over.
constexpr int time_is_over = SIGXCPU;
constexpr int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, time_is_over};
struct sigaction before[sizeof caught / sizeof *caught];

// Whether it is recorded; not where the time is over, and a GPU thread can tell more when it goes on.
bool record_end(Page& to, int number, const siginfo_t& info) {
    const Worker* worker = current_worker;
    if (worker != nullptr && (worker->launch == nullptr || worker->block == nullptr || worker->thread == nullptr)) worker = nullptr;
    if (number == time_is_over && current_worker != nullptr && !place_is_asked_for.load()) {
        Frame frame;
        _Unwind_Backtrace(look, &frame);
        if (worker == nullptr || !is_on_fiber(*worker, frame)) {
            place_is_asked_for = true;
            return false;
        }
    }
    Text text;
    text.raw("{\"signal\":").number(static_cast<std::uint64_t>(number));
    Text least = text;
    least.raw("}").store(to.end);  // what follows may break again, and then that is the end
    if (worker != nullptr) {
        text.raw(",\"kernel\":").string(name_of(*worker->launch));
        text.raw(",\"block\":").dim(worker->block->index).raw(",\"thread\":").dim(worker->thread->index);
        const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
        if (number == SIGSEGV && worker->stack_low - address <= guard_bytes) text.raw(",\"message\":").string("its stack overflowed");
    }
    least = text;
    least.raw("}").store(to.end);
    Frame frame;
    _Unwind_Backtrace(look, &frame);
    if (frame.module == nullptr || (worker != nullptr && !is_on_fiber(*worker, frame))) return true;
    text.raw(",\"site\":[").string(frame.module->path, sizeof frame.module->path).raw(",").number(frame.site - frame.module->base).raw("]}").store(to.end);
    return true;
}

struct Carrier {  // an OS thread that carries grids
    std::atomic<bool> busy{false};
    pthread_t thread{};
};
constexpr unsigned most_carriers = 256;
Carrier carriers[most_carriers];
std::atomic<unsigned> carrier_count{0};
__thread Carrier* own_carrier = nullptr;

// Whether another thread has been told instead, which is at a grid: the thread that launched it may only wait for the others.
bool told_another(int number) {
    if (number != time_is_over || current_worker != nullptr) return false;
    const unsigned count = std::min(carrier_count.load(), most_carriers);
    for (unsigned i = 0; i < count; ++i)
        if (carriers[i].busy.load(std::memory_order_acquire)) return pthread_kill(carriers[i].thread, number) == 0;
    return false;
}

// Who writes down where the process ends, as long as it does: all threads of a grid may divide by zero at once, and the end of the second
// must not come while the first one is still looking up its stack.
enum Telling : int { nobody_tells, somebody_tells, told };
std::atomic<int> telling{nobody_tells};
__thread bool tells_itself = false;

void wait_until_told() {
    if (tells_itself) return;  // what it was doing broke in turn
    constexpr timespec pause{0, 1'000'000};
    for (int i = 0; i < 2000 && telling.load() == somebody_tells; ++i) nanosleep(&pause, nullptr);
}

// False where this thread is to go on, to be asked again.
bool tell_end(Page& to, int number, const siginfo_t& info) {
    int state = nobody_tells;
    if (!telling.compare_exchange_strong(state, somebody_tells)) {
        wait_until_told();
        return true;
    }
    tells_itself = true;
    const bool recorded = record_end(to, number, info);
    telling = recorded ? told : nobody_tells;
    tells_itself = false;
    return recorded;
}

bool is_finished(const siginfo_t& info, void* interrupted) {
    return info.si_signo == SIGFPE && info.si_code == FPE_INTDIV && current_worker != nullptr && current_worker->thread != nullptr && finish_division(interrupted);
}

void on_signal(int number, siginfo_t* info, void* interrupted) {
    if (is_finished(*info, interrupted)) return;
    if (page.load() != nullptr && told_another(number)) return;
    if (Page* to = page.load(); to != nullptr && !tell_end(*to, number, *info)) return;
    for (std::size_t i = 0; i < sizeof caught / sizeof *caught; ++i)
        if (caught[i] == number) sigaction(number, &before[i], nullptr);
    // What an instruction did it does again on return, and ends as it would have; what was sent (by abort, say) must be sent again.
    if (info->si_code <= 0 || number == time_is_over) raise(number);
}

void catch_signals() {
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < sizeof caught / sizeof *caught; ++i) sigaction(caught[i], &action, &before[i]);
}

// The same for processes that record nothing.
struct sigaction before_division;
void on_division(int number, siginfo_t* info, void* interrupted) {
    if (!is_finished(*info, interrupted)) sigaction(number, &before_division, nullptr);
}

void catch_divisions() {
    struct sigaction action {};
    action.sa_sigaction = on_division;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGFPE, &action, &before_division);
}

struct Extent {
    std::uintptr_t base, end = 0;
};

int find_end(dl_phdr_info* info, std::size_t, void* data) {
    auto* extent = static_cast<Extent*>(data);
    if (info->dlpi_addr != extent->base) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type == PT_LOAD && extent->base + header.p_vaddr + header.p_memsz > extent->end)
            extent->end = extent->base + header.p_vaddr + header.p_memsz;
    }
    return 1;
}

}  // namespace

void record_finding(const std::string& json) {
    Page* to = page.load();
    if (to == nullptr) return;
    const std::size_t room = page_bytes - log_at, bytes = json.size() + 1;
    const std::uint64_t at = to->used.fetch_add(bytes);
    if (at > room || bytes > room - at) return;
    std::memcpy(to->log + at, json.data(), json.size());
    to->log[at + json.size()] = '\n';
}

void record_launch(const Launch& grid) {
    Page* to = page.load();
    if (to == nullptr) return;
    if (grid.kernel.load() == nullptr) ++launches;
    store_launch(*to, name_of(grid), grid.request.line);
}

void record_launch_end() {
    if (Page* to = page.load(); to != nullptr) to->running.store(0, std::memory_order_release);
}

void record_module(const char* path, std::uintptr_t base) {
    const std::size_t count = module_count.load();
    Extent extent{base};
    if (count == most_modules || std::strlen(path) >= sizeof modules[0].path || dl_iterate_phdr(find_end, &extent) == 0) return;
    std::strcpy(modules[count].path, path);
    modules[count].base = base, modules[count].end = extent.end;
    module_count.store(count + 1, std::memory_order_release);
}

std::atomic<bool> place_is_asked_for{false};

void tell_place() { raise(time_is_over); }

void record_carrier(bool busy) {
    if (own_carrier == nullptr && busy && page.load() != nullptr) {
        const unsigned number = carrier_count.fetch_add(1);
        if (number >= most_carriers) return;
        own_carrier = &carriers[number];
        own_carrier->thread = pthread_self();
    }
    if (own_carrier != nullptr) own_carrier->busy.store(busy, std::memory_order_release);
}

void catch_signals_here() {
    static const bool caught_here = page.load() == nullptr ? (catch_divisions(), true) : false;
    static_cast<void>(caught_here);
    static __thread bool done = false;
    if (done || page.load() == nullptr) return;
    done = true;
    constexpr std::size_t stack_bytes = 64 * 1024;
    void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = stack_bytes;
    sigaltstack(&stack, nullptr);
}

// A kernel that others run begins, or ended where `name` is null.
extern "C" void hostcuda_record_launch(const char* name) {
    Page* to = page.load();
    if (name == nullptr) return record_launch_end();
    if (to == nullptr) return;
    ++launches;
    store_launch(*to, name, 0);
}

// Record into this shared memory from now on; takes the descriptor. 0, or -1 where it can't be mapped.
extern "C" int hostcuda_record_to(int fd) {
    struct stat about {};
    void* memory = MAP_FAILED;
    if (fstat(fd, &about) == 0 && about.st_size > static_cast<off_t>(log_at))
        memory = mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) return -1;
    page_bytes = static_cast<std::size_t>(about.st_size);
    if (page.exchange(static_cast<Page*>(memory)) != nullptr) return 0;  // an older one stays mapped: a handler may be in it
    catch_signals();
    pthread_atfork(nullptr, nullptr, [] { page = nullptr; });  // a child's end is not its parent's
    catch_signals_here();
    return 0;
}

}  // namespace hostcuda

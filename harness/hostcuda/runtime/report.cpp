#include "report.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "hostcuda/warp.h"
#include "recorder.h"

namespace hostcuda {

namespace {

constexpr std::size_t most_reports = 200;

struct Entry {
    ReportKind kind;
    std::string kernel, message, access, space, array, subscript, other_access;
    long long index;
    std::uintptr_t site, other_site;
    int line, other_line;
    bool inside, has_other;
    Dim3 block, thread, other_block, other_thread;
    std::uint64_t count;
    int launch_line = 0;               // for a place that is in no source of the solution's
};

using Key = std::tuple<int, std::string, std::uintptr_t, std::uintptr_t, int, int, std::string>;

std::mutex mutex;
std::vector<Entry> entries;
std::map<Key, std::size_t> positions;
std::uint64_t dropped = 0;

const char* const kind_names[] = {"data_race", "memory_error", "uninitialised_read", "barrier_error", "misaligned",
                                  "launch_error", "leak", "not_emulated", "assertion"};

Dim3 unflatten(std::uint32_t linear, const Dim3& extent) {
    return {linear % extent.x, linear / extent.x % extent.y, linear / extent.x / extent.y};
}

void append_string(std::string& out, const std::string& text) {
    out += '"';
    for (unsigned char c : text) {
        char escaped[8];
        if (c == '"' || c == '\\') out += '\\', out += static_cast<char>(c);
        else if (c < 0x20 || c >= 0x7f) std::snprintf(escaped, sizeof escaped, "\\u%04x", c), out += escaped;
        else out += static_cast<char>(c);
    }
    out += '"';
}

void append_field(std::string& out, const char* name, const std::string& text) {
    out += ",\"", out += name, out += "\":";
    append_string(out, text);
}

void append_dim(std::string& out, const char* name, const Dim3& value) {
    char text[80];
    std::snprintf(text, sizeof text, ",\"%s\":[%u,%u,%u]", name, value.x, value.y, value.z);
    out += text;
}

void append_number(std::string& out, const char* name, long long value) {
    out += ",\"", out += name, out += "\":", out += std::to_string(value);
}

}  // namespace

// A return address as module path and offset, for the symboliser on the Python side.
void append_site(std::string& out, const char* name, std::uintptr_t site) {
    Dl_info info;
    if (site == 0 || dladdr(reinterpret_cast<void*>(site), &info) == 0 || info.dli_fname == nullptr) return;
    out += ",\"", out += name, out += "\":[";
    append_string(out, info.dli_fname);
    out += ',', out += std::to_string(site - reinterpret_cast<std::uintptr_t>(info.dli_fbase)), out += ']';
}

static void append_entry(std::string& out, const Entry& e, bool counted) {
    out += "{\"kind\":\"", out += kind_names[static_cast<int>(e.kind)], out += '"';
    append_field(out, "kernel", e.kernel);
    append_field(out, "message", e.message);
    if (counted) append_number(out, "count", static_cast<long long>(e.count));
    if (!e.access.empty()) append_field(out, "access", e.access);
    if (!e.space.empty()) append_field(out, "space", e.space);
    if (!e.array.empty()) append_field(out, "array", e.array);
    if (e.index != no_index) append_number(out, "index", e.index);
    if (!e.subscript.empty()) append_field(out, "subscript", e.subscript);
    if (e.line > 0) append_number(out, "line", e.line);
    else if (e.launch_line > 0) append_number(out, "launch_line", e.launch_line);
    append_site(out, "site", e.site);
    if (e.inside) append_dim(out, "block", e.block), append_dim(out, "thread", e.thread);
    if (e.has_other) {
        append_dim(out, "other_block", e.other_block), append_dim(out, "other_thread", e.other_thread);
        append_field(out, "other_access", e.other_access);
        if (e.other_line > 0) append_number(out, "other_line", e.other_line);
        append_site(out, "other_site", e.other_site);
    }
    out += '}';
}

void store(Entry entry) {
    std::lock_guard<std::mutex> lock(mutex);
    Key key{static_cast<int>(entry.kind), entry.kernel, entry.site, entry.other_site, entry.line, entry.other_line, entry.array};
    auto found = positions.find(key);
    if (found != positions.end()) {
        ++entries[found->second].count;
        return;
    }
    if (entries.size() >= most_reports) {
        ++dropped;
        return;
    }
    positions.emplace(std::move(key), entries.size());
    std::string json;
    append_entry(json, entry, false);  // how often it is seen is known only in the end
    record_finding(json);
    entries.push_back(std::move(entry));
}

void report(const Worker& worker, const ReportDetails& d) {
    const Launch& grid = *worker.launch;
    const char* kernel = grid.kernel.load();
    if (kernel == nullptr) kernel = grid.request.text;
    Entry e{d.kind, kernel == nullptr ? "" : kernel, d.message, d.access, d.space, d.array, d.subscript, d.other_access,
            d.index, d.site, d.other_site, d.line, d.other_line, d.block != nullptr, d.has_other, {}, {}, {}, {}, 1};
    if (d.block != nullptr) {
        e.block = d.block->index;
        e.thread = unflatten(d.thread, grid.request.block);
        e.launch_line = grid.request.line;
    }
    if (d.has_other) {
        e.other_block = unflatten(d.other_block, grid.request.grid);
        e.other_thread = unflatten(d.other_thread, grid.request.block);
    }
    store(std::move(e));
}

void report_again(ReportKind kind, std::uintptr_t site, std::uint64_t times) {
    std::lock_guard<std::mutex> lock(mutex);
    for (Entry& entry : entries) {
        if (entry.kind != kind || entry.site != site) continue;
        entry.count += times;
        return;
    }
}

void report_outside(const ReportDetails& d) {
    store(Entry{d.kind, d.kernel == nullptr ? "" : d.kernel, d.message, d.access, d.space, d.array, d.subscript, d.other_access,
                d.index, d.site, d.other_site, d.line, d.other_line, false, false, {}, {}, {}, {}, 1});
}

namespace {
std::mutex deferred_mutex;
std::vector<Entry> deferred;
}  // namespace

void defer_launch_report(const ReportDetails& d) {
    std::lock_guard<std::mutex> lock(deferred_mutex);
    deferred.push_back(Entry{d.kind, d.kernel == nullptr ? "" : d.kernel, d.message, "", "", "", "", "", no_index, 0, 0, d.line, 0, false, false, {}, {}, {}, {}, 1});
}

void forget_launch_report() {
    std::lock_guard<std::mutex> lock(deferred_mutex);
    deferred.clear();
}

static void store_deferred() {
    std::vector<Entry> taken;
    {
        std::lock_guard<std::mutex> lock(deferred_mutex);
        taken.swap(deferred);
    }
    for (Entry& entry : taken) store(std::move(entry));
}

void not_emulated(const char* construct) {
    ReportDetails details;
    details.kind = ReportKind::not_emulated;
    details.message = construct;
    details.site = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
    if (current_worker == nullptr) {
        report_outside(details);
        std::fprintf(stderr, "hostcuda: not emulated: %s\n", construct);
        std::_Exit(86);
    }
    Worker& worker = *current_worker;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    report(worker, details);
    abort_launch(worker, error_not_supported);
}

void assertion_failed(const char* expression, const char* file, int line, const char* function) {
    if (current_worker == nullptr) {
        std::fprintf(stderr, "%s:%d: %s: Assertion `%s' failed.\n", file, line, function, expression);
        std::abort();
    }
    Worker& worker = *current_worker;
    std::printf("%s:%d: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file, line, function,
                worker.block->index.x, worker.block->index.y, worker.block->index.z, worker.thread->index.x,
                worker.thread->index.y, worker.thread->index.z, expression);
    ReportDetails details;
    details.kind = ReportKind::assertion;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.line = line;
    details.message = expression;
    report(worker, details);
    abort_launch(worker, error_assert);
}

void trap() {
    if (current_worker == nullptr) std::abort();
    Worker& worker = *current_worker;
    ReportDetails details;
    details.kind = ReportKind::assertion;
    details.block = worker.block;
    details.thread = worker.thread->linear;
    details.site = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
    details.message = "__trap()";
    report(worker, details);
    abort_launch(worker, error_launch_failure);
}

extern "C" {

// All reports so far as one JSON array; the caller frees it with hostcuda_free_text.
char* hostcuda_reports_json() {
    store_deferred();
    std::lock_guard<std::mutex> lock(mutex);
    std::string out = "[";
    for (const Entry& e : entries) {
        if (out.size() > 1) out += ',';
        append_entry(out, e, true);
    }
    out += ']';
    return strdup(out.c_str());
}

void hostcuda_free_text(char* text) { std::free(text); }

void hostcuda_clear_reports() {
    forget_launch_report();
    std::lock_guard<std::mutex> lock(mutex);
    entries.clear();
    positions.clear();
    dropped = 0;
}

}  // extern "C"

}  // namespace hostcuda

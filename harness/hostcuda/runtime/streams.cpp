// Streams, events and the capture of streams (include/cuda_runtime_api.h, include/hostcuda/graph_api.h).
#include "streams.h"

#include <mutex>
#include <set>

#include "api.h"
#include "graph.h"
#include "report.h"
#include "state.h"

namespace hostcuda {

std::atomic<int> captures{0};

namespace {

std::mutex mutex;
std::set<std::shared_ptr<Capture>>& under_way() {
    static auto* set = new std::set<std::shared_ptr<Capture>>();
    return *set;
}
std::set<hostcuda_stream*>& streams() {
    static auto* set = new std::set<hostcuda_stream*>();
    return *set;
}

// The object behind a handle; null for the legacy stream.
hostcuda_stream* stream_of(cudaStream_t handle) {
    static hostcuda_stream per_thread;
    if (handle == cudaStreamPerThread) return &per_thread;
    return handle == cudaStreamLegacy ? nullptr : handle;
}

Capture* capture_of(cudaStream_t handle) {
    if (captures.load() == 0) return nullptr;
    const hostcuda_stream* stream = stream_of(handle);
    return stream == nullptr ? nullptr : stream->capture.get();
}

// Work for a stream that captures counts for it; the legacy stream must not be used beside a blocking stream's capture.
std::optional<cudaError_t> take(cudaStream_t handle, Capture*& capture) {
    if (captures.load() == 0) return std::nullopt;
    if (stream_of(handle) == nullptr) {
        std::lock_guard<std::mutex> lock(mutex);
        for (const auto& each : under_way()) {
            if (!each->origin->blocking) continue;
            each->invalid = true;
            return fail(cudaErrorStreamCaptureImplicit);
        }
        return std::nullopt;
    }
    capture = capture_of(handle);
    if (capture == nullptr) return std::nullopt;
    if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    ++stream_of(handle)->clock[stream_of(handle)];
    return cudaSuccess;
}

void merge(Clock& into, const Clock& from) {
    for (const auto& [stream, count] : from)
        if (into[stream] < count) into[stream] = count;
}

cudaError_t refused(Capture& capture, cudaError_t error) {
    capture.invalid = true;
    return fail(error);
}

}  // namespace

bool is_capturing(cudaStream_t stream) { return capture_of(stream) != nullptr; }

std::optional<cudaError_t> captured(cudaStream_t stream, cudaGraphNodeType type, const Work& work) {
    Capture* capture = nullptr;
    const std::optional<cudaError_t> error = take(stream, capture);
    if (error == cudaSuccess) add_node(*capture, type, work);
    return error;
}

std::optional<cudaError_t> captured_launch(const LaunchRequest& request) {
    Capture* capture = nullptr;
    const std::optional<cudaError_t> error = take(static_cast<cudaStream_t>(request.stream), capture);
    if (error == cudaSuccess) add_launch(*capture, request);
    return error;
}

cudaError_t outside_of_captures() {
    if (captures.load() == 0) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& each : under_way())
        if (each->mode != cudaStreamCaptureModeRelaxed) return refused(*each, cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

cudaError_t outside_of_capture(cudaStream_t stream) {
    if (Capture* capture = capture_of(stream)) return refused(*capture, cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

cudaStream_t& torch_stream() {
    static thread_local cudaStream_t stream = nullptr;
    return stream;
}

}  // namespace hostcuda

using hostcuda::Capture;
using hostcuda::capture_of;
using hostcuda::fail;
using hostcuda::refused;
using hostcuda::status;
using hostcuda::stream_of;
using hostcuda::Work;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    auto* stream = new hostcuda_stream;
    stream->blocking = (flags & cudaStreamNonBlocking) == 0;
    std::lock_guard<std::mutex> lock(hostcuda::mutex);
    hostcuda::streams().insert(stream);
    *s = stream;
    return status();
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) { return cudaStreamCreateWithFlags(s, flags); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    std::lock_guard<std::mutex> lock(hostcuda::mutex);
    if (hostcuda::streams().erase(s) != 0) delete s;
    return status();
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    const cudaError_t error = hostcuda::outside_of_capture(s);
    return error != cudaSuccess ? error : status();
}
cudaError_t cudaStreamQuery(cudaStream_t s) { return cudaStreamSynchronize(s); }
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned) {
    if (e == nullptr) return fail(cudaErrorInvalidResourceHandle);
    hostcuda_stream* stream = stream_of(handle);
    Capture* own = capture_of(handle);
    if (own == nullptr && (e->capture == nullptr || e->capture->graph == nullptr)) return status();  // it is of no capture that goes on
    if (own != nullptr && e->capture == nullptr) return e->recorded ? refused(*own, cudaErrorStreamCaptureIsolation) : status();
    if (stream == nullptr) return refused(*e->capture, cudaErrorStreamCaptureImplicit);
    if (own == nullptr) stream->capture = e->capture;
    else if (own != e->capture.get()) return refused(*own, cudaErrorStreamCaptureMerge);
    hostcuda::merge(stream->clock, e->clock);
    return status();
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* data) {
    const auto call = [f, data] { return f(data), 0; };
    if (const auto taken = hostcuda::captured(s, cudaGraphNodeTypeHost, call)) return *taken;
    f(data);
    return status();
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* data, unsigned) {
    if (const cudaError_t error = hostcuda::outside_of_capture(s); error != cudaSuccess) return error;
    f(s, status(), data);
    return status();
}

cudaError_t cudaEventCreate(cudaEvent_t* e) { *e = new hostcuda_event; return status(); }
cudaError_t cudaEventCreate(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return status(); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    if (e == nullptr) return fail(cudaErrorInvalidResourceHandle);
    e->capture = nullptr;
    if (hostcuda_stream* stream = stream_of(s); stream != nullptr && stream->capture != nullptr) e->capture = stream->capture, e->clock = stream->clock;
    e->at = std::chrono::steady_clock::now();
    e->recorded = true;
    return status();
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (e != nullptr && e->capture != nullptr) return fail(cudaErrorCapturedEvent);
    return status();
}
cudaError_t cudaEventQuery(cudaEvent_t e) { return cudaEventSynchronize(e); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    if (from == nullptr || to == nullptr || !from->recorded || !to->recorded) return fail(cudaErrorInvalidResourceHandle);
    if (from->capture != nullptr || to->capture != nullptr) return fail(cudaErrorCapturedEvent);
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return status();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    static std::atomic<unsigned long long> number{1};
    hostcuda_stream* stream = stream_of(handle);
    if (stream == nullptr) return fail(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != nullptr) return fail(cudaErrorIllegalState);
    stream->capture = std::make_shared<Capture>(Capture{mode, stream, number++, std::make_unique<hostcuda_graph>()});
    stream->clock.clear();
    std::lock_guard<std::mutex> lock(hostcuda::mutex);
    hostcuda::under_way().insert(stream->capture);
    ++hostcuda::captures;
    return status();
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    *graph = nullptr;
    hostcuda_stream* stream = stream_of(handle);
    if (stream == nullptr || stream->capture == nullptr) return fail(cudaErrorIllegalState);
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream) return refused(*capture, cudaErrorStreamCaptureUnmatched);
    bool unjoined = false;
    {
        std::lock_guard<std::mutex> lock(hostcuda::mutex);
        const hostcuda::Clock seen = stream->clock;
        for (hostcuda_stream* each : hostcuda::streams()) {
            if (each->capture != capture) continue;
            const auto known = seen.find(each);
            unjoined |= each->clock[each] > (known == seen.end() ? 0 : known->second);
            each->capture = nullptr, each->clock.clear();
        }
        stream->capture = nullptr, stream->clock.clear();
        hostcuda::under_way().erase(capture);
        --hostcuda::captures;
    }
    std::unique_ptr<hostcuda_graph> made = std::move(capture->graph);
    if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    if (unjoined) return fail(cudaErrorStreamCaptureUnjoined);
    *graph = made.release();
    return status();
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* out, unsigned long long* id) {
    const Capture* capture = capture_of(s);
    *out = capture == nullptr ? cudaStreamCaptureStatusNone : capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
    return status();
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* out) { return cudaStreamGetCaptureInfo(s, out); }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    static thread_local cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
    std::swap(of_thread, *mode);
    return status();
}

// For torch.cuda in Python.
extern "C" {
void* hostcuda_stream_new() {
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);  // as torch makes those of its pool
    return stream;
}
void* hostcuda_torch_stream() { return hostcuda::torch_stream(); }
void hostcuda_set_torch_stream(void* stream) { hostcuda::torch_stream() = static_cast<cudaStream_t>(stream); }
int hostcuda_stream_capturing(void* stream) { return hostcuda::is_capturing(static_cast<cudaStream_t>(stream)); }
int hostcuda_stream_synchronize(void* stream) { return cudaStreamSynchronize(static_cast<cudaStream_t>(stream)); }
int hostcuda_device_synchronize() { return cudaDeviceSynchronize(); }
void* hostcuda_event_new() { return new hostcuda_event; }
void hostcuda_event_delete(void* event) { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
int hostcuda_event_record(void* event, void* stream) { return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)); }
int hostcuda_event_wait(void* stream, void* event) { return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0); }
}

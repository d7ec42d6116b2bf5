/*
summary: A graph captured over two joined streams, launched again, its kernel's arguments and then the whole graph updated
inputs:
  x: normal(256)
outputs:
  twice: new(256)
  shifted: new(256)
  other: new(256)
  host: new(256)
sizes: [256]
expected:
  twice: 2 * x
  shifted: x + 3
  other: 7 * x
  host: torch.full((256,), 5.0)
*/
#include <cuda_runtime.h>

__global__ void scale(const float* x, float* y, float by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
__global__ void shift(const float* x, float* y, float by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i] + by;
}

static void capture(cudaStream_t stream, cudaStream_t side, cudaGraph_t* graph, const float* x, float* y, float* z, float by, int n) {
    cudaEvent_t forked, joined;
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(z, 0, n * sizeof(float), stream);
    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(side, forked, 0);
    shift<<<2, 128, 0, side>>>(x, z, 3.0f, n);
    scale<<<2, 128, 0, stream>>>(x, y, by, n);
    cudaEventRecord(joined, side);
    cudaStreamWaitEvent(stream, joined, 0);
    cudaStreamEndCapture(stream, graph);
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
}

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const float* x = (const float*)in[0];
    float* twice = (float*)out[0];
    float* shifted = (float*)out[1];
    float* other = (float*)out[2];
    const int n = (int)size[0];
    cudaStream_t stream, side;
    cudaStreamCreate(&stream);
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaGraph_t graph;
    capture(stream, side, &graph, x, twice, shifted, 9.0f, n);
    cudaGraphExec_t exec;
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream);
    cudaGraphLaunch(exec, stream);

    cudaGraphNode_t nodes[8];
    size_t count = 8;
    cudaGraphGetNodes(graph, nodes, &count);
    for (size_t i = 0; i < count; ++i) {
        cudaGraphNodeType type;
        cudaGraphNodeGetType(nodes[i], &type);
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaKernelNodeParams params;
        cudaGraphKernelNodeGetParams(nodes[i], &params);
        if (*(float**)params.kernelParams[1] != twice) continue;
        float two = 2.0f;
        params.kernelParams[2] = &two;
        cudaGraphExecKernelNodeSetParams(exec, nodes[i], &params);
    }
    cudaGraphLaunch(exec, stream);
    cudaGraphDestroy(graph);

    cudaGraph_t again;
    capture(stream, side, &again, x, other, shifted, 7.0f, n);
    cudaGraphExecUpdateResultInfo info;
    const bool updated = cudaGraphExecUpdate(exec, again, &info) == cudaSuccess;
    cudaGraphLaunch(exec, stream);
    cudaStreamCaptureStatus state;
    cudaStreamIsCapturing(stream, &state);
    // What a capture must refuse: a wait for the device, and a branch that is not joined.
    cudaGraph_t none;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    const bool waits = cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported;
    const bool ended = cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureInvalidated;
    cudaGetLastError();
    const float said = updated && state == cudaStreamCaptureStatusNone && waits && ended ? 5.0f : 0.0f;
    scale<<<2, 128, 0, stream>>>(x, (float*)out[3], 0.0f, n);
    shift<<<2, 128, 0, stream>>>((float*)out[3], (float*)out[3], said, n);
    cudaStreamSynchronize(stream);
    cudaGraphDestroy(again);
    cudaGraphExecDestroy(exec);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(side);
}

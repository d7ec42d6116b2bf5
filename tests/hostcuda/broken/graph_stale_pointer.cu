/*
summary: A graph is launched after a buffer that it captured was given back
twin: graph_capture_and_update
inputs:
  x: normal(256)
outputs:
  y: new(256)
sizes: [256]
defect:
  status: memory_error
  kernel: copy
  tool: memcheck
*/
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }  // defect

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    float* buffer = nullptr;
    const size_t bytes = size[0] * sizeof(float);
    cudaMalloc(&buffer, bytes);
    cudaMemcpy(buffer, in[0], bytes, cudaMemcpyDeviceToDevice);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaGraph_t graph;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    copy<<<1, (int)size[0], 0, stream>>>(buffer, (float*)out[0]);  // defect
    cudaStreamEndCapture(stream, &graph);
    cudaGraphExec_t exec;
    cudaGraphInstantiate(&exec, graph, 0);
    cudaFree(buffer);
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

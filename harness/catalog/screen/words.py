"""Tables of names in C++ and CUDA sources that trigger rules of the screen."""

from __future__ import annotations

from collections.abc import Mapping


def _by_word(table: Mapping[str, str]) -> dict[str, str]:
    return {word: rule for rule, words in table.items() for word in words.split()}


WORDS: Mapping[str, str] = _by_word(
    {
        "host_callback": "cudaLaunchHostFunc cudaStreamAddCallback cuLaunchHostFunc cuStreamAddCallback "
        "cudaGraphAddHostNode",
        "thread": "jthread pthread_create posix_spawn execve execvp popen future promise packaged_task",
        "stream": "getStreamFromPool cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority "
        "cuStreamCreate cudaStreamPerThread CUDAStreamGuard setCurrentCUDAStream OptionalCUDAStreamGuard",
        "cuda_graph": "cudaGraphLaunch cudaGraphInstantiate cudaStreamBeginCapture",
        "persisting_l2": "cudaLimitPersistingL2CacheSize accessPolicyWindow cudaAccessPolicyWindow "
        "cudaAccessPropertyPersisting cudaStreamAttributeAccessPolicyWindow cudaLaunchAttributeAccessPolicyWindow "
        "cudaCtxResetPersistingL2Cache associate_access_property access_property",
        "private_gpu_memory": "cuMemGetAddressRange cuMemGetAddressRange_v2 cuPointerGetAttribute "
        "cuPointerGetAttributes cudaPointerGetAttributes cudaIpcOpenMemHandle cudaIpcGetMemHandle cudaMemGetInfo "
        "cuMemGetInfo cuMemMap cuMemImportFromShareableHandle cuMemCreate",
        "process_memory": "process_vm_readv process_vm_writev mmap shm_open memfd_create",
        "native_tricks": "dlopen dlsym dl_iterate_phdr mprotect ptrace prctl sigaction __builtin_return_address "
        "backtrace cuGetProcAddress cudaGetDriverEntryPoint cuptiSubscribe cuptiActivityEnable",
        "reads_clock": "clock64 globaltimer __globaltimer high_resolution_clock steady_clock system_clock "
        "gettimeofday clock_gettime cudaEventElapsedTime",
        "sleeps": "__nanosleep usleep sleep_for sleep_until nanosleep",
        "half_precision": "__half half2 __half2 __nv_bfloat16 nv_bfloat16 __nv_bfloat162 __float2half "
        "__float2half_rn __floats2half2_rn __float2bfloat16 __float22half2_rn kHalf kBFloat16 __nv_fp8_e4m3 "
        "__nv_fp8_e5m2 half_t bfloat16_t",
        "tf32": "tf32 __float_to_tf32 CUBLAS_TF32_TENSOR_OP_MATH CUBLAS_COMPUTE_32F_FAST_TF32 setAllowTF32CuBLAS "
        "setAllowTF32CuDNN tfloat32_t CUBLAS_COMPUTE_32F_FAST_16F CUBLAS_COMPUTE_32F_FAST_16BF",
        "fast_math": "__expf __exp10f __sinf __cosf __tanf __logf __log2f __log10f __powf __fdividef",
        "environment": "setenv putenv unsetenv",
        "file_access": "fopen ifstream ofstream fstream",
        "network": "socket getaddrinfo curl_easy_init",
        "prints": "printf cout cerr puts fputs",
        "global_flags": "cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaDeviceReset cudaSetDevice "
        "cudaSetDeviceFlags cudaDeviceSetSharedMemConfig cublasSetMathMode",
        "python_from_cpp": "PyRun_SimpleString PyRun_String PyRun_SimpleStringFlags PyImport_ImportModule "
        "PyEval_GetFrame PyEval_SetTrace PyEval_SetProfile PyObject_SetAttrString PyThreadState_Get PyGC_GetObjects "
        "PyEval_GetGlobals PyEval_GetLocals PyFrame_GetBack Py_Finalize Py_Exit PyDict_SetItemString",
    }
)
"""Identifier -> rule, at any place (also in bodies of macros)."""

TYPES: Mapping[str, str] = {"thread": "thread", "half": "half_precision"}
"""Name of a type -> rule; as names of variables these are common."""

CALLED: Mapping[str, str] = _by_word(
    {
        "process_exit": "exit _exit _Exit quick_exit abort kill raise terminate __trap",
        "thread": "fork vfork clone system async",
        "descriptors": "write dup dup2 close",
        "file_access": "open openat readlink opendir",
        "native_tricks": "signal syscall",
        "python_from_cpp": "exec eval import",
        "reads_clock": "clock",
    }
)
"""Last part of a called function's name -> rule; as other names these are too common."""

NAMESPACED_ONLY = frozenset({"exec", "eval", "import", "async", "terminate"})
"""Names in `CALLED` that count only with a namespace before them (`py::exec`, `std::async`)."""

LIBRARY_PREFIXES = ("cublas", "cudnn", "cusparse", "cufft", "cusolver", "cutlass", "cub::", "thrust::")

LIBRARY_OPERATIONS = frozenset(
    _by_word(
        {
            "": "matmul mm bmm mv dot einsum addmm baddbmm tensordot linear conv1d conv2d conv3d convolution "
            "conv_transpose1d conv_transpose2d conv_transpose3d softmax log_softmax layer_norm batch_norm group_norm "
            "instance_norm rms_norm sum mean max min amax amin prod argmax argmin cumsum cumprod logsumexp sort topk "
            "var norm relu gelu silu elu softplus sigmoid tanh exp log max_pool1d max_pool2d max_pool3d avg_pool2d "
            "scaled_dot_product_attention cross_entropy_loss bincount histc scatter_add gather index_select embedding",
        }
    )
)
"""Members of `at::` and `torch::` that can do a problem's work."""

JOINING = frozenset(
    {
        "cudaStreamWaitEvent",
        "cuStreamWaitEvent",
        "cudaStreamSynchronize",
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
    }
    | {"synchronize", "block"}
)
"""Names that make a stream or the host wait."""

ASSEMBLY: Mapping[str, str] = _by_word(
    {
        "reads_clock": "globaltimer %clock",
        "persisting_l2": "createpolicy evict_last",
        "tf32": ".tf32",
        "half_precision": ".f16 .bf16 .e4m3 .e5m2",
        "native_tricks": "syscall int3",
    }
)
"""Part of the text of an `asm` statement -> rule."""

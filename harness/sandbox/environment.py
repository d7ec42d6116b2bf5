"""Environment of a sandboxed process: allow-list, private folders, policy.

Trusted side. Only the variables named here pass, so tokens, keys and proxies never do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_PASSED = frozenset(
    {
        *("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED"),
        *("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "MAX_JOBS"),
        *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING"),
        *("TORCH_CUDA_ARCH_LIST", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS"),
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "PYTORCH_NVML_BASED_CUDA_CHECK"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    }
)
_PASSED_PREFIXES = ("LC_",)
_SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_PRELOADED = "LD_PRELOAD"

_CACHES = {
    "CUDA_CACHE_PATH": "cuda-cache",
    "CUPY_CACHE_DIR": "cupy-cache",
    "CUTE_DSL_CACHE_DIR": "cute-cache",
    "NUMBA_CACHE_DIR": "numba-cache",
    "TILELANG_CACHE_DIR": "tilelang-cache",
    "TORCHINDUCTOR_CACHE_DIR": "inductor-cache",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "TRITON_CACHE_DIR": "triton-cache",
    "TVM_FFI_CACHE_DIR": "tvm-ffi-cache",
}
"""Variables that name a compiler's cache -> folder below the child's temporary one. No child sees another's cache."""


def scrub(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environment` that a zygote and its children may see."""
    return {k: v for k, v in environment.items() if k in _PASSED or k.startswith(_PASSED_PREFIXES)}


def inside(environment: Mapping[str, str], added: Mapping[str, str], *, home: str, tmp: str) -> dict[str, str]:
    """Return a child's environment.

    Contains the allowed part of `environment`, private folders for caches and temporary files, and `added`.
    """
    private = {
        "HOME": home,
        "TMPDIR": tmp,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "XDG_CACHE_HOME": f"{home}/.cache",
        **{name: f"{tmp}/{folder}" for name, folder in _CACHES.items()},
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"} | scrub(environment) | private | dict(added)


def only_visible(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove search paths and preloaded libraries that do not exist in the sandbox.

    Called inside the sandbox.
    """
    cut = dict(environment)
    for name in _SEARCH_PATHS:
        if name in cut:
            cut[name] = os.pathsep.join(path for path in cut[name].split(os.pathsep) if os.path.isdir(path))
    if _PRELOADED in cut:
        cut[_PRELOADED] = os.pathsep.join(path for path in re.split(r"[ :]", cut[_PRELOADED]) if os.path.isfile(path))
    return {name: value for name, value in cut.items() if value or name not in (*_SEARCH_PATHS, _PRELOADED)}

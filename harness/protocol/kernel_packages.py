"""Python packages whose kernels are compiled while a solution runs.

Both sides. One list for everything that asks: does a file bring kernels of its own, may it build kernels later, is a
missing package the machine's fault, does the host device run it?
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PACKAGES: Mapping[str, str] = {
    "cuda": "CUDA Python",
    "cupy": "CuPy",
    "cutlass": "CuTe DSL",
    "numba": "Numba",
    "pycuda": "PyCUDA",
    "taichi": "Taichi",
    "tilelang": "TileLang",
    "triton": "Triton",
    "warp": "Warp",
}
"""Top-level module -> name of the package."""

GPU_ONLY = ("cutlass", "tilelang")
"""Packages that the host device refuses by name, because their compilers make code for GPUs only."""

_IMPORT = re.compile(rf"^[ \t]*(?:import|from)[ \t]+(?:{'|'.join(PACKAGES)})\b", re.MULTILINE)


def imports_kernel_package(source: str) -> bool:
    """Return whether a line of an untrusted text imports one of `PACKAGES`."""
    return _IMPORT.search(source) is not None

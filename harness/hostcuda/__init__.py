"""The host device: CUDA sources executed on the CPU.

`load` builds and imports a kernel's source; `shim` makes "cuda" tensors exist; `build` is what the build stage asks
for command lines. This package imports the standard library, torch and tree-sitter, and nothing else of the
harness. Its modules import lazily: `build` runs in the trusted process, `shim` only where a submission runs.
"""

from __future__ import annotations

from .loader import CompileError, load

__all__ = ["CompileError", "load"]

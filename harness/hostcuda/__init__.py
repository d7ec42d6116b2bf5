"""The host device: CUDA sources executed on the CPU.

`build` is what the build stage asks for command lines; it runs in the trusted process. `shim` makes "cuda" tensors
exist, `loader.load` builds and imports a kernel's source: these run only where a submission runs, or in tests.
This package imports the standard library, torch, tree-sitter, and of the harness `config` for the place of the cache.
"""

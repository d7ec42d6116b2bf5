"""The host device: CUDA sources executed on the CPU.

`toolchain` plans builds in the trusted process. `translate` turns CUDA into C++ for the CPU, in the builder's sandbox.
`runtime` and `bridge` are the C++ libraries that execute kernels; `include` has the headers that replace CUDA's. See
guides/design/host_device.md.
"""

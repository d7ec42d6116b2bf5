"""The split build: a CUDA source's device part through nvcc without torch's headers, its host part through g++.

`parts` divides a source, `stubs` writes what a kernel is for the host, `flags` divides the compiler's flags, `symbols`
ties both parts together again, and `unit` (started by name, in a builder's sandbox) compiles one source so. Whatever
does not fit is `Unsplittable`, and whoever asked builds it the ordinary way.
"""

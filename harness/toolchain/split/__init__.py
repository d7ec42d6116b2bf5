"""Split build: nvcc compiles the device code of a source, g++ the host code.

`parts` divides a source, `stubs` replaces kernels in the host part, `flags` divides the compiler flags, and `symbols`
joins the objects. `untrusted/builder/split_compile.py` runs all of it for one source in a builder's sandbox. A source
that can't be divided is `Unsplittable` and is compiled whole. See guides/design/split_builds.md.
"""

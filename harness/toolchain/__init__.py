"""Find, compile and cache the extensions of solutions.

Trusted side. The sandboxed processes run `harness.untrusted.builder`, which is started by name. Importing this package
does not import torch.
"""

from harness.core.config import cache_root as default_root
from harness.toolchain.builder import BuildTools, begin_ahead, build_solution
from harness.toolchain.cache import BuildCache, CachedModule, CacheError
from harness.toolchain.diagnostics import CompilerError, Diagnostics, KernelResources
from harness.toolchain.nvcc_toolchain import NvccToolchain
from harness.toolchain.outcome import BuildOutcome, BuiltModule
from harness.toolchain.pending import Compilations
from harness.toolchain.spec import ExtensionSpec, SourceFile, SpecError
from harness.toolchain.toolchain import BuildReport, Plan, Toolchain
from harness.toolchain.zygotes import BuilderZygotes

__all__ = [
    "BuildCache",
    "BuildOutcome",
    "BuildReport",
    "BuildTools",
    "BuilderZygotes",
    "BuiltModule",
    "CacheError",
    "CachedModule",
    "Compilations",
    "CompilerError",
    "Diagnostics",
    "ExtensionSpec",
    "KernelResources",
    "NvccToolchain",
    "Plan",
    "SourceFile",
    "SpecError",
    "Toolchain",
    "begin_ahead",
    "build_solution",
    "default_root",
]

"""Building solutions: what they ask to have compiled, compiled in sandboxes, kept in a cache.

Trusted names only; `build.harvest`, `build.foresee`, `build.job`, `build.loading` and `build.inject` run on the
untrusted side and are started by name.
Importing this does not import torch.
"""

from harness.build.builder import begin_ahead, build_solution
from harness.build.cache import BuildCache, CachedModule, CacheError
from harness.build.compilations import Compilations
from harness.build.diagnostics import CompilerError, Diagnostics, KernelResources
from harness.build.native import NvccToolchain
from harness.build.outcome import BuildOutcome, BuiltModule
from harness.build.spec import ExtensionSpec, SourceFile, SpecError
from harness.build.toolchain import BuildReport, Plan, Toolchain
from harness.build.zygotes import BuilderZygotes
from harness.config import cache_root as default_root

__all__ = [
    "BuildCache",
    "BuildOutcome",
    "BuildReport",
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

"""Building solutions: what they ask to have compiled, compiled in sandboxes, kept in a cache.

Trusted names only; `build.harvest`, `build.job` and `build.inject` run on the untrusted side and are started by name.
Importing this does not import torch.
"""

from harness.build.builder import build_solution
from harness.build.cache import BuildCache, CachedModule, CacheError
from harness.build.diagnostics import CompilerError, Diagnostics, KernelResources
from harness.build.host import HostToolchain
from harness.build.native import NvccToolchain
from harness.build.opening import PRELOAD, open_toolchain
from harness.build.outcome import BuildOutcome, BuiltModule
from harness.build.spec import ExtensionSpec, SourceFile, SpecError
from harness.build.toolchain import BuildReport, Plan, Toolchain
from harness.config import cache_root as default_root

__all__ = [
    "PRELOAD",
    "BuildCache",
    "BuildOutcome",
    "BuildReport",
    "BuiltModule",
    "CacheError",
    "CachedModule",
    "CompilerError",
    "Diagnostics",
    "ExtensionSpec",
    "HostToolchain",
    "KernelResources",
    "NvccToolchain",
    "Plan",
    "SourceFile",
    "SpecError",
    "Toolchain",
    "build_solution",
    "default_root",
    "open_toolchain",
]

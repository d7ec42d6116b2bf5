"""The result of building one solution.

Trusted side. Values only; `BuildOutcome.release` releases cache entries for eviction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.status import Failure
from harness.core.task import SourcePart
from harness.protocol.kernel_names import function_name
from harness.toolchain.cache import CachedModule
from harness.toolchain.diagnostics import CompilerError, KernelResources, SourceMap
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import EMULATED, BuildReport
from harness.toolchain.units import texts_of, units_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """One built extension.

    Attributes:
        key: Content address in the cache.
        path: The module.
        spec: The extension.
        report: How it was built.
        cached: Whether the cache had it.
        begun_from_text: Whether it was started by a guess of the static scan, before the discovery asked for it.
    """

    key: str
    path: Path
    spec: ExtensionSpec
    report: BuildReport
    cached: bool
    begun_from_text: bool = False

    @property
    def name(self) -> str:
        """Name of the extension."""
        return self.spec.name

    @property
    def maps(self) -> list[SourceMap]:
        """Maps from the compiled files to the source texts."""
        if EMULATED in self.report.headers.values():
            return texts_of(self.spec)
        return [unit.map for unit in units_of(self.spec)]

    def to_json(self) -> dict[str, Any]:
        """Return the entry for `untrusted.contestant.load_inline.install`."""
        return {
            "digest": self.spec.digest,
            "name": self.spec.name,
            "path": str(self.path),
            "is_python_module": self.spec.is_python_module,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutcome:
    """Result of building one solution.

    Attributes:
        modules: Extensions that were built ahead. The solution may ask for more; those are built in the contestant.
        refused: Extensions that failed to build. The solution catches the error, so the contestant raises it again.
        failure: Why the solution can't run; None if it can.
        compiler_error: The error that caused `failure`.
        notes: Remarks for the record.
        wall_s: Seconds for everything.
        harvest_s: Seconds for the discovery.
        compile_s: Seconds of waiting for compilers after the discovery (0 with a warm cache). Each module's report has
            its own compile time.
        runtime: Folders that all modules need at run time.
        leases: Cache entries in use.
    """

    modules: tuple[BuiltModule, ...] = ()
    refused: tuple[tuple[ExtensionSpec, CompilerError], ...] = ()
    failure: Failure | None = None
    compiler_error: CompilerError | None = None
    notes: tuple[str, ...] = ()
    wall_s: float = 0.0
    harvest_s: float = 0.0
    compile_s: float = 0.0
    runtime: tuple[Path, ...] = ()
    leases: tuple[CachedModule, ...] = field(default=(), repr=False, compare=False)

    @property
    def resources(self) -> tuple[KernelResources, ...]:
        """GPU resources of the kernels of all modules."""
        return tuple(kernel for module in self.modules for kernel in module.report.diagnostics.kernels)

    @property
    def cache_hits(self) -> int:
        """Number of modules that the cache had."""
        return sum(module.cached for module in self.modules)

    @property
    def has_cuda_sources(self) -> bool:
        """Whether any extension has CUDA sources."""
        return any(module.spec.has_cuda_sources for module in self.modules)

    @property
    def readable(self) -> tuple[Path, ...]:
        """Folders that the contestant must read: the modules' folders and `runtime`."""
        return tuple(sorted({*(module.path.parent for module in self.modules), *self.runtime}))

    @property
    def parts(self) -> tuple[SourcePart, ...]:
        """The solution's source texts in the compiled files."""
        return tuple(
            SourcePart(file=source.file, name=name, text=text, begin=begin)
            for module in self.modules
            for source in module.maps
            for name, text, begin in source.parts
        )

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Plain names of the compiled kernels."""
        return tuple(sorted({function_name(kernel.kernel) for kernel in self.resources}))

    def injected(self) -> tuple[dict[str, Any], ...]:
        """Return the `modules` for `untrusted.contestant.load_inline.install`."""
        refused = (
            {"digest": spec.digest, "name": spec.name, "error": error.sentence()} for spec, error in self.refused
        )
        return (*(module.to_json() for module in self.modules), *refused)

    def release(self) -> None:
        """Allow the cache to evict the modules. Call this after the solution has run."""
        for lease in self.leases:
            lease.release()

    def to_json(self) -> dict[str, Any]:
        """Return the record's `build` field."""
        return {
            "modules": [
                {
                    "name": module.name,
                    "key": module.key,
                    "cached": module.cached,
                    "begun_from_text": module.begun_from_text,
                    "headers": dict(module.report.headers),
                    "compile_s": round(module.report.wall_s, 3),
                }
                for module in self.modules
            ],
            "kernels": [kernel.to_json() for kernel in self.resources],
            "compiler_error": None if self.compiler_error is None else self.compiler_error.to_json(),
            "refused": [{"name": spec.name, "error": error.sentence()} for spec, error in self.refused],
            "cache_hits": self.cache_hits,
            "notes": list(self.notes),
            "wall_s": round(self.wall_s, 3),
            "harvest_s": round(self.harvest_s, 3),
            "compile_s": round(self.compile_s, 3),
        }

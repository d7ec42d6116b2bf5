"""What building one solution came to, as values.

Trusted side; no file or process is touched, but `BuildOutcome.release` gives cache entries free for eviction.
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
    """One extension, built: its address, the file, and how that came about.

    `cached`: found, not made. `begun_from_text`: what the solution's text says was right, and compiled while it was
    still being found out what the solution asks for.
    """

    key: str
    path: Path
    spec: ExtensionSpec
    report: BuildReport
    cached: bool
    begun_from_text: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def maps(self) -> list[SourceMap]:
        """Where the lines of the compiled files come from."""
        if EMULATED in self.report.headers.values():
            return texts_of(self.spec)
        return [unit.map for unit in units_of(self.spec)]

    def to_json(self) -> dict[str, Any]:
        """What `harness.untrusted.contestant.load_inline.install` takes."""
        return {
            "digest": self.spec.digest,
            "name": self.spec.name,
            "path": str(self.path),
            "is_python_module": self.spec.is_python_module,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutcome:
    """All that is known about the build of one solution.

    Where `failure` is None, `modules` are the extensions that could be built ahead; the solution may still ask for
    others, which are then built where it runs. `refused` are those that did not build, but whose error the solution
    catches: it must meet that error again when it runs. `resources` is what the kernels of all modules use.
    `wall_s` is all of it, `harvest_s` finding out what to build, `compile_s` waiting for the compilers once that was
    known (0 from a warm cache); how long they took stands beside each module.
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
        return tuple(kernel for module in self.modules for kernel in module.report.diagnostics.kernels)

    @property
    def cache_hits(self) -> int:
        return sum(module.cached for module in self.modules)

    @property
    def has_cuda_sources(self) -> bool:
        """Whether anything of it was written for a GPU."""
        return any(module.spec.has_cuda_sources for module in self.modules)

    @property
    def readable(self) -> tuple[Path, ...]:
        """The folders that the contestant must be shown: the modules', and `runtime`, which all modules need."""
        return tuple(sorted({*(module.path.parent for module in self.modules), *self.runtime}))

    @property
    def parts(self) -> tuple[SourcePart, ...]:
        """The solution's own texts inside the files that were compiled."""
        return tuple(
            SourcePart(file=source.file, name=name, text=text, begin=begin)
            for module in self.modules
            for source in module.maps
            for name, text, begin in source.parts
        )

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Plain names of the kernels that were compiled."""
        return tuple(sorted({function_name(kernel.kernel) for kernel in self.resources}))

    def injected(self) -> tuple[dict[str, Any], ...]:
        """All that `harness.untrusted.contestant.load_inline.install` should know, refused extensions included."""
        refused = (
            {"digest": spec.digest, "name": spec.name, "error": error.sentence()} for spec, error in self.refused
        )
        return (*(module.to_json() for module in self.modules), *refused)

    def release(self) -> None:
        """Allow the cache to evict the modules. Call when the solution has run."""
        for lease in self.leases:
            lease.release()

    def to_json(self) -> dict[str, Any]:
        """For the record's `build` field."""
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

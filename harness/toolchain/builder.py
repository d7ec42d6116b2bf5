"""Build one solution: discover its extensions and compile those not cached.

Trusted side. No text of the solution is executed or given to a shell here, and modules are copied, never loaded. May be
called from many threads and processes at once: equal extensions are compiled once. See guides/design/discovery.md.
"""

from __future__ import annotations

import json
import re
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.choices import SandboxMode
from harness.core.environment import MachineError
from harness.core.problem import digest_text
from harness.core.status import Failure, Status, one_line
from harness.sandbox import SandboxUnavailable, cleanup
from harness.sandbox.zygote import ZygoteError
from harness.toolchain import discovery
from harness.toolchain.cache import BuildCache, CacheError
from harness.toolchain.compile_extension import Compiler, CompileResult, harness_error, read_log
from harness.toolchain.diagnostics import CompilerError
from harness.toolchain.outcome import BuildOutcome
from harness.toolchain.pending import Compilations
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import Toolchain
from harness.toolchain.torchinfo import find_torch
from harness.toolchain.zygotes import BuilderZygotes

_OF_NAMES = (FileExistsError, IsADirectoryError, NotADirectoryError)
"""Errors that no full disk or missing folder causes: two of a build's own files have the same place."""

_NO_HIP = re.compile(r"\bhip/[\w./-]+\W+(No such file|file not found|could not be opened|cannot open)")
"""A compiler's message about a header of HIP, which no toolchain here has."""

_MAX_ROUNDS = 4
"""Most discoveries of one solution; each after the first follows an extension that did not build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTools:
    """What solutions are built with.

    Attributes:
        zygotes: Processes to fork from.
        toolchain: How to build.
        cache: Cache of modules.
        timeout_s: Limit in seconds for compiling one extension.
        sandbox: Sandbox mode.
        import_timeout_s: Limit in seconds for importing, constructing and calling a solution.
    """

    zygotes: BuilderZygotes
    toolchain: Toolchain
    cache: BuildCache
    timeout_s: float
    sandbox: SandboxMode = "auto"
    import_timeout_s: float = 60.0

    def compilations(self, source: str) -> Compilations:
        """Return the compilations of a solution; `begin` or `foresee` starts them."""
        return Compilations(
            Compiler(
                zygotes=self.zygotes,
                toolchain=self.toolchain,
                cache=self.cache,
                sandbox=self.sandbox,
                timeout_s=self.timeout_s,
                source=source,
            )
        )


def build_solution(
    source: str,
    filename: str,
    tools: BuildTools,
    *,
    log_path: Path,
    arguments: Mapping[str, Any] | None = None,
    seed: int = 0,
    begun: Compilations | None = None,
) -> BuildOutcome:
    """Build the extensions of a solution that can be built before it runs.

    Args:
        source: Text of the solution.
        filename: Name of its file.
        tools: What to build with.
        log_path: All output is appended to this file.
        arguments: Constructor arguments and inputs (`arguments.describe`). Without them, a constructor that needs
            arguments does not run, and its extensions are built in the contestant.
        seed: Seed for the constructor.
        begun: Compilations from `begin_ahead`; closed at the end.

    Returns:
        The modules, or in `failure` why the solution can't run. Faults of the harness (a dead zygote, an unexpected
        exception) are a `harness_error` there.

    Raises:
        SandboxUnavailable: A strict sandbox can't be created.
        CacheError: The cache can't be read or written.
        MachineError: A tool is missing.
        OSError: The log can't be written.
    """
    begin = time.monotonic()
    if begun is None:
        begun = tools.compilations(source)
    cache = tools.cache
    try:
        work = cache.scratch()
    except OSError as error:
        begun.close()
        raise CacheError(f"the build cache {cache.root} can't be written: {error.strerror or error}") from error
    try:
        work.chmod(0o755)
        build = _Build(
            source=source,
            filename=filename,
            tools=tools,
            compilations=begun,
            log_path=log_path,
            arguments=arguments,
            seed=seed,
            work=work,
        )
        failure = build.run()
        if failure is not None and (lack := cache.lacks_room()) is not None:
            # A full disk may have caused any error above: no verdict on the solution.
            raise CacheError(lack)
        return build.outcome(failure, time.monotonic() - begin)
    except (CacheError, MachineError, SandboxUnavailable):
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, _OF_NAMES):
            raise
        # A bug of the harness that only this solution has met so far: other builds go on.
        failure = Failure(
            status=Status.harness_error,
            reason=one_line(f"error in the harness while building: {type(error).__name__}: {error}"),
            evidence={"phase": "build"},
            detail=traceback.format_exc(),
        )
        return BuildOutcome(failure=failure, wall_s=time.monotonic() - begin)
    finally:
        begun.close()
        cleanup.remove(work)


def begin_ahead(source: str, tools: BuildTools) -> Compilations:
    """Start compiling the extensions that a static scan finds, in the background.

    Pass the result to `build_solution` with the same source and tools, or close it.
    """
    compilations = tools.compilations(source)
    compilations.foresee()
    return compilations


@dataclass(slots=True, kw_only=True)
class _Build:
    """State of one `build_solution`."""

    source: str
    filename: str
    tools: BuildTools
    compilations: Compilations
    log_path: Path
    arguments: Mapping[str, Any] | None
    seed: int
    work: Path
    tried: dict[str, CompileResult] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    harvest_s: float = 0.0
    compile_s: float = 0.0
    compiler_error: CompilerError | None = None

    def run(self) -> Failure | None:
        for _ in range(_MAX_ROUNDS):
            refused = {digest: held.error for digest, held in self.tried.items() if held.error is not None}
            specs, failure = self._harvest(refused)
            if failure is not None:
                return self._explained(failure, refused)
            fresh = [spec for spec in specs if spec.digest not in self.tried]
            for tried in self._build_all(fresh):
                self.tried[tried.spec.digest] = tried
                if tried.failure is not None:
                    return tried.failure
            if not any(self.tried[spec.digest].error for spec in fresh):
                return None
        return self._explained(None, {d: held.error for d, held in self.tried.items() if held.error is not None})

    def outcome(self, failure: Failure | None, wall_s: float) -> BuildOutcome:
        leases = tuple(held.lease for held in self.tried.values() if held.lease is not None)
        outcome = BuildOutcome(
            modules=tuple(held.module for held in self.tried.values() if held.module is not None),
            refused=tuple((held.spec, held.error) for held in self.tried.values() if held.error is not None),
            failure=failure,
            compiler_error=self.compiler_error,
            notes=tuple(self.notes),
            wall_s=wall_s,
            harvest_s=self.harvest_s,
            compile_s=self.compile_s,
            runtime=self.tools.toolchain.runtime,
            leases=leases,
        )
        if failure is not None:
            outcome.release()
        return outcome

    def _harvest(self, refused: Mapping[str, CompilerError]) -> tuple[Sequence[ExtensionSpec], Failure | None]:
        """Return the extensions that the solution asks for.

        A complete answer without a fault is cached for equal solutions. So is one whose only fault is a refused
        extension.
        """
        sentences = {digest: error.sentence() for digest, error in refused.items()}
        key = digest_text(
            "harvest",
            f"{discovery.FORMAT} torch {find_torch().version}",
            self.filename,
            self.source,
            json.dumps(self.arguments, sort_keys=True),
            json.dumps(sentences, sort_keys=True),
        )
        if (held := self.tools.cache.recall(key)) is not None:
            known = None if held["failure"] is None else Failure.from_json(held["failure"])
            return [ExtensionSpec.from_json(value) for value in held["specs"]], known
        log_path = self.work / "harvest.log"
        self.compilations.foresee()
        try:
            found = discovery.harvest(
                discovery.Request(
                    source=self.source,
                    filename=self.filename,
                    arguments=self.arguments,
                    refused=sentences,
                    seed=self.seed,
                ),
                zygote=self.tools.zygotes.for_harvest(),
                sandbox=self.tools.sandbox,
                log_path=log_path,
                timeout_s=self.tools.import_timeout_s,
                on_extension=self.compilations.begin,
            )
        except ZygoteError as error:
            return (), harness_error(error)
        self._log("import", read_log(log_path))
        self.harvest_s += found.wall_s
        self.notes += (note for note in found.notes if note not in self.notes)
        failure = found.failure
        if found.complete and (failure is None or (refused and failure.status is Status.compile_error)):
            value = {
                "specs": [spec.to_json() for spec in found.specs],
                "failure": None if failure is None else failure.to_json(),
            }
            self.tools.cache.put(key, None, value).release()
        return found.specs, found.failure

    def _explained(self, failure: Failure | None, refused: Mapping[str, CompilerError]) -> Failure | None:
        """Use an extension's compiler error as the failure's reason, if it is the cause."""
        if (failure is not None and failure.status is not Status.compile_error) or not refused:
            return failure
        digest, error = next(iter(refused.items()))
        self.compiler_error = error
        name = self.tried[digest].spec.name
        status, reason = Status.compile_error, error.sentence()
        if _NO_HIP.search(error.message):
            status = Status.unsupported
            reason = f"HIP sources, for AMD GPUs, can't be built here: write CUDA ({reason})"
        return Failure(
            status=status,
            reason=one_line(f"{name}: {reason}"),
            evidence={"phase": "build", "extension": name, "error": error.to_json()},
            detail=failure.detail if failure is not None else "",
        )

    def _build_all(self, specs: Sequence[ExtensionSpec]) -> list[CompileResult]:
        begin = time.monotonic()
        self.compilations.keep({spec.digest for spec in specs})
        for spec in specs:
            self.compilations.begin(spec)
        tried = [self.compilations.result(spec) for spec in specs]
        if any(held.compile_s for held in tried):
            self.compile_s += time.monotonic() - begin
        for held in tried:
            if held.said is not None:
                self._log(*held.said)
        return tried

    def _log(self, what: str, data: bytes) -> None:
        """Append a job's output to the solution's log."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            log.write(f"\n== {what} ==\n".encode(errors="replace") + data)

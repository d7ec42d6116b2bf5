"""Builds one solution: what does it ask for, is it in the cache, compile the rest in sandboxes.

Trusted side; imports the rest of `build`, `zygote` and the vocabulary. No text of the submission is executed or given
to a shell here, and a module's bytes are copied, never loaded. Called from many threads and processes at once:
equal extensions are compiled once.

Decision: what the solution's text says is compiled while a harvest still finds out what the solution asks for, which
needs torch and takes seconds where nothing is warm. The harvest alone decides what is built: a guess that it confirms
has a head start, any other is ended and leaves no trace in a verdict (pinned by
`tests/unit/runner/executors/test_builds_ahead.py`).

Decision: an extension that does not build is not a verdict yet, because some solutions catch the error and go another
way. So the harvest is repeated with that error in place of the extension; only if it comes back out of the
solution is it `compile_error` (pinned by `test_a_caught_compile_error_is_no_verdict`).
"""

from __future__ import annotations

import json
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
"""What no disk or missing folder brings about: two of a build's own files in one place."""

_MAX_ROUNDS = 4
"""Harvests of one solution; each but the first follows an extension that did not build."""


def build_solution(
    source: str,
    filename: str,
    *,
    zygotes: BuilderZygotes,
    toolchain: Toolchain,
    cache: BuildCache,
    log_path: Path,
    timeout_s: float,
    sandbox: SandboxMode = "auto",
    arguments: Mapping[str, Any] | None = None,
    import_timeout_s: float = 60.0,
    seed: int = 0,
    begun: Compilations | None = None,
) -> BuildOutcome:
    """Everything that can be built before a solution runs, or why it can't run at all.

    `arguments` describes the constructor's arguments and one call's inputs (`arguments.describe`); without it a
    constructor that needs arguments is not run, and what it would ask for is built where the solution runs.
    `timeout_s` is for compiling one extension, `import_timeout_s` for importing and constructing. All output is
    appended to `log_path`. `begun` is what was begun of it already (`begin_ahead`); it is closed in the end.

    A fault of the submission is the outcome's `failure`; one of the harness (a dead zygote, an exception that nobody
    foresaw) is a `harness_error` there. Raises `SandboxUnavailable` (a strict sandbox that can't be had), `CacheError`,
    `MachineError`, and `OSError` where the log can't be written.
    """
    begin = time.monotonic()
    if begun is None:
        begun = _compilations(source, zygotes, toolchain, cache, timeout_s, sandbox)
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
            zygotes=zygotes,
            compilations=begun,
            toolchain=toolchain,
            cache=cache,
            log_path=log_path,
            sandbox=sandbox,
            arguments=arguments,
            import_timeout_s=import_timeout_s,
            seed=seed,
            work=work,
        )
        failure = build.run()
        if failure is not None and (lack := cache.lacks_room()) is not None:
            # Whatever the tools said then, it may have been this: no verdict on the submission.
            raise CacheError(lack)
        return build.outcome(failure, time.monotonic() - begin)
    except (CacheError, MachineError, SandboxUnavailable):
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, _OF_NAMES):
            raise
        # Ours to mend, and met by this submission alone so far: the others' builds go on.
        failure = Failure(
            status=Status.harness_error,
            reason=one_line(f"a fault of the harness while building: {type(error).__name__}: {error}"),
            evidence={"phase": "build"},
            detail=traceback.format_exc(),
        )
        return BuildOutcome(failure=failure, wall_s=time.monotonic() - begin)
    finally:
        begun.close()
        cleanup.remove(work)


def begin_ahead(
    source: str,
    *,
    zygotes: BuilderZygotes,
    toolchain: Toolchain,
    cache: BuildCache,
    timeout_s: float,
    sandbox: SandboxMode = "auto",
) -> Compilations:
    """Begin, in the background, with what the solution's text says, for a `build_solution` to come with the same
    arguments. To be closed where none comes.
    """
    begun = _compilations(source, zygotes, toolchain, cache, timeout_s, sandbox)
    begun.foresee()
    return begun


def _compilations(
    source: str,
    zygotes: BuilderZygotes,
    toolchain: Toolchain,
    cache: BuildCache,
    timeout_s: float,
    sandbox: SandboxMode,
) -> Compilations:
    compiler = Compiler(
        zygotes=zygotes, toolchain=toolchain, cache=cache, sandbox=sandbox, timeout_s=timeout_s, source=source
    )
    return Compilations(compiler)


@dataclass(slots=True, kw_only=True)
class _Build:
    """State of one `build_solution`."""

    source: str
    filename: str
    zygotes: BuilderZygotes
    compilations: Compilations
    toolchain: Toolchain
    cache: BuildCache
    log_path: Path
    sandbox: SandboxMode
    arguments: Mapping[str, Any] | None
    import_timeout_s: float
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
            runtime=self.toolchain.runtime,
            leases=leases,
        )
        if failure is not None:
            outcome.release()
        return outcome

    def _harvest(self, refused: Mapping[str, CompilerError]) -> tuple[Sequence[ExtensionSpec], Failure | None]:
        """The extensions asked for. A complete answer without a fault is remembered for equal solutions, and so is one
        whose only fault is an extension that was refused: where all is known, nothing has to be imported.
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
        if (held := self.cache.recall(key)) is not None:
            known = None if held["failure"] is None else Failure.from_json(held["failure"])
            return [ExtensionSpec.from_json(value) for value in held["specs"]], known
        log_path = self.work / "harvest.log"
        self.compilations.foresee()
        try:
            found = discovery.harvest(
                self.source,
                self.filename,
                arguments=self.arguments,
                refused=sentences,
                seed=self.seed,
                zygote=self.zygotes.for_harvest(),
                sandbox=self.sandbox,
                log_path=log_path,
                timeout_s=self.import_timeout_s,
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
            self.cache.put(key, None, value).release()
        return found.specs, found.failure

    def _explained(self, failure: Failure | None, refused: Mapping[str, CompilerError]) -> Failure | None:
        """A failure that comes of an extension's error names that error."""
        if (failure is not None and failure.status is not Status.compile_error) or not refused:
            return failure
        digest, error = next(iter(refused.items()))
        self.compiler_error = error
        name = self.tried[digest].spec.name
        return Failure(
            status=Status.compile_error,
            reason=one_line(f"{name}: {error.sentence()}"),
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
        """Add a job's output to the solution's log."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            log.write(f"\n== {what} ==\n".encode(errors="replace") + data)

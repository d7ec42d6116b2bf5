"""Builds one solution: what does it ask for, is it in the cache, compile the rest in sandboxes.

Trusted side; imports the rest of `build`, `zygote` and the vocabulary. No text of the submission is executed or given
to a shell here, and a module's bytes are copied, never loaded. Called from many threads and processes at once:
equal extensions are compiled once.

Decision: an extension that does not build is not a verdict yet, because some solutions catch the error and go another
way. So the harvest is repeated with that error in place of the extension; only if it comes back out of the
solution is it `compile_error` (pinned by `test_a_caught_compile_error_is_no_verdict`).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.build import harvesting
from harness.build.cache import BuildCache, CachedModule
from harness.build.diagnostics import MAX_LOG_CHARS, CompilerError, Diagnostics, undefined_symbol
from harness.build.outcome import BuildOutcome, BuiltModule
from harness.build.spec import ExtensionSpec
from harness.build.toolchain import LEAN_FAILED, BuildReport, Plan, Toolchain
from harness.build.torchinfo import find_torch
from harness.model import Failure, Status, digest_text, one_line
from harness.sandbox import ExitReport, Mode, SandboxPolicy
from harness.wire import FrameTimeout, WireError
from harness.zygote import Zygote, ZygoteError

JOB = "harness.build.job:main"
_LOAD_S = 30.0
"""Time for trying to load a module, its static initialisers included."""
_END_S = 5.0
_MEMORY_BYTES = 12 * 2**30
_DISK_BYTES = 4 * 2**30
_MAX_ROUNDS = 4
"""Harvests of one solution; each but the first follows an extension that did not build."""
_PARALLEL = 4
"""Extensions of one solution that compile at a time."""


def build_solution(
    source: str,
    filename: str,
    *,
    zygote: Zygote,
    toolchain: Toolchain,
    cache: BuildCache,
    log_path: Path,
    timeout_s: float,
    sandbox: Mode = "auto",
    arguments: Mapping[str, Any] | None = None,
    import_timeout_s: float = 60.0,
    seed: int = 0,
) -> BuildOutcome:
    """Everything that can be built before a solution runs, or why it can't run at all.

    `arguments` describes the constructor's arguments and one call's inputs (`arguments.describe`); without it a
    constructor that needs arguments is not run, and what it would ask for is built where the solution runs.
    `timeout_s` is for compiling one extension, `import_timeout_s` for importing and constructing. All output is
    appended to `log_path`. The zygote must have `torch` preloaded, and had better have `PRELOAD`.

    A fault of the submission is the outcome's `failure`; one of the harness (a dead zygote) is a `harness_error` there.
    Raises `SandboxUnavailable` (a strict sandbox that can't be had), `CacheError`, `MachineError`.
    """
    begin = time.monotonic()
    work = cache.scratch()
    try:
        work.chmod(0o755)
        build = _Build(
            source=source,
            filename=filename,
            zygote=zygote,
            toolchain=toolchain,
            cache=cache,
            log_path=log_path,
            timeout_s=timeout_s,
            sandbox=sandbox,
            arguments=arguments,
            import_timeout_s=import_timeout_s,
            seed=seed,
            work=work,
        )
        failure = build.run()
        return build.outcome(failure, time.monotonic() - begin)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@dataclass(slots=True)
class _Tried:
    """What became of one extension: a module, an error of its author's, or a failure."""

    spec: ExtensionSpec
    module: BuiltModule | None = None
    lease: CachedModule | None = None
    error: CompilerError | None = None
    failure: Failure | None = None
    log: str = ""


@dataclass(slots=True, kw_only=True)
class _Build:
    """State of one `build_solution`."""

    source: str
    filename: str
    zygote: Zygote
    toolchain: Toolchain
    cache: BuildCache
    log_path: Path
    timeout_s: float
    sandbox: Mode
    arguments: Mapping[str, Any] | None
    import_timeout_s: float
    seed: int
    work: Path
    tried: dict[str, _Tried] = field(default_factory=dict)
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

    # -- harvest ---------------------------------------------------------------------------------------------

    def _harvest(self, refused: Mapping[str, CompilerError]) -> tuple[Sequence[ExtensionSpec], Failure | None]:
        """The extensions asked for. A complete and faultless answer is remembered for equal solutions."""
        key = digest_text(
            "harvest",
            f"{harvesting.FORMAT} torch {find_torch().version}",
            self.filename,
            self.source,
            json.dumps(self.arguments, sort_keys=True),
        )
        if not refused and (held := self.cache.recall(key)) is not None:
            return [ExtensionSpec.from_json(value) for value in held["specs"]], None
        log_path = self.work / "harvest.log"
        try:
            found = harvesting.harvest(
                self.source,
                self.filename,
                arguments=self.arguments,
                refused={digest: error.sentence() for digest, error in refused.items()},
                seed=self.seed,
                zygote=self.zygote,
                sandbox=self.sandbox,
                log_path=log_path,
                timeout_s=self.import_timeout_s,
            )
        except ZygoteError as error:
            return (), _harness_error(error)
        self._log("import", log_path)
        self.harvest_s += found.wall_s
        self.notes += (note for note in found.notes if note not in self.notes)
        if found.complete and found.failure is None and not refused:
            self.cache.put(key, None, {"specs": [spec.to_json() for spec in found.specs]}).release()
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

    # -- compiling -------------------------------------------------------------------------------------------

    def _build_all(self, specs: Sequence[ExtensionSpec]) -> list[_Tried]:
        if len(specs) < 2:
            return [self._build_one(spec, number) for number, spec in enumerate(specs, len(self.tried))]
        numbers = range(len(self.tried), len(self.tried) + len(specs))
        with ThreadPoolExecutor(min(_PARALLEL, len(specs)), thread_name_prefix="extension") as pool:
            return list(pool.map(self._build_one, specs, numbers))

    def _build_one(self, spec: ExtensionSpec, number: int) -> _Tried:
        if (failure := self.toolchain.refuse(spec)) is not None:
            return _Tried(spec, failure=failure)
        key = self.toolchain.key(spec)
        if (held := self.cache.get(key)) is not None:
            return _built(spec, held, cached=True)
        with self.cache.building(key):
            if (held := self.cache.get(key)) is not None:  # somebody else built it while this waited
                return _built(spec, held, cached=True)
            return self._compile(spec, key, number)

    def _compile(self, spec: ExtensionSpec, key: str, number: int) -> _Tried:
        folder, log_path = self.work / f"build{number}", self.work / f"build{number}.log"
        folder.mkdir()
        plan = self.toolchain.prepare(spec, folder)
        begin = time.monotonic()
        try:
            ended = self._run_job(spec, plan, folder, log_path)
        except ZygoteError as error:
            return _Tried(spec, failure=_harness_error(error))
        wall_s = time.monotonic() - begin
        self.compile_s += wall_s
        log = self._log(f"building extension {spec.name}", log_path)
        diagnostics = self.toolchain.interpret(spec, log, solution=self.source)
        if (verdict := self._verdict(spec, ended, diagnostics)) is not None:
            return verdict
        report = BuildReport(wall_s=wall_s, headers=_headers(plan, ended, log), diagnostics=diagnostics)
        try:
            held = self.cache.put(key, folder / plan.product, report.to_json())
        except ValueError as error:
            return _Tried(spec, error=CompilerError(tool="build", message=str(error)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return _built(spec, held, cached=False)

    def _run_job(self, spec: ExtensionSpec, plan: Plan, folder: Path, log_path: Path) -> _Ended:
        policy = SandboxPolicy(
            mode=self.sandbox,
            writable=(folder,),
            readable=plan.readable,
            max_memory_bytes=_MEMORY_BYTES,
            max_disk_bytes=_DISK_BYTES,
            max_log_bytes=MAX_LOG_CHARS,
            env=plan.environ,
        )
        ended = _Ended()
        with self.zygote.spawn(JOB, policy, log_path) as child:
            end = deadline = time.monotonic() + self.timeout_s
            try:
                child.channel.send(
                    {
                        "folder": str(folder),
                        "commands": [list(command) for command in plan.commands],
                        "second_try": [list(command) for command in plan.second_try],
                        "product": plan.product,
                        "name": spec.name,
                        "is_python_module": spec.is_python_module,
                        "environ": dict(plan.environ),
                    }
                )
                while not ended.take(child.channel.receive(max(0.0, deadline - time.monotonic())).message):
                    deadline = time.monotonic() + _LOAD_S if ended.exit_code == 0 else end
            except FrameTimeout:
                ended.late = True
            except (WireError, ValueError, OSError):
                pass  # the job ended, or its module's initialisers did; the exit report says how
            ended.report = child.wait(_END_S if not ended.late else 0.0) or child.kill()
        return ended

    def _verdict(self, spec: ExtensionSpec, ended: _Ended, diagnostics: Diagnostics) -> _Tried | None:
        """What a job that brought no usable module means; None after a success."""
        if ended.exit_code == 0:
            # Late or dead while loading: the contestant finds out.
            message = _load_error(ended.load_error, spec)
            return None if message is None else _Tried(spec, error=CompilerError(tool="loader", message=message))
        report = ended.report
        if ended.late:
            evidence = {"phase": "build", "extension": spec.name, "timeout_s": self.timeout_s}
            reason = f"building extension {spec.name} did not finish within {self.timeout_s:.0f} s"
            return _Tried(
                spec, failure=Failure(status=Status.compile_timeout, reason=one_line(reason), evidence=evidence)
            )
        if report is None or report.cause == "lost":
            return _Tried(spec, failure=_harness_error("the builder was lost: its zygote died"))
        if report.cause == "memory_limit":
            message = f"the compiler takes more than {_MEMORY_BYTES / 2**30:.0f} GiB of memory"
        elif report.cause == "disk_limit":
            message = f"the compiler writes more than {_DISK_BYTES / 2**30:.0f} GiB"
        elif diagnostics.not_emulated:
            # What the compiler then says comes of that.
            reason = f"extension {spec.name}: the CPU can't execute {'; '.join(diagnostics.not_emulated[:3])}"
            evidence = {"extension": spec.name, "not_emulated": list(diagnostics.not_emulated)}
            failure = Failure(status=Status.not_emulated, reason=one_line(reason), evidence=evidence)
            return _Tried(spec, failure=failure)
        elif diagnostics.error is not None:
            return _Tried(spec, error=diagnostics.error)
        elif ended.exit_code is None:
            message = f"the build broke off (exit code {report.exit_code}, signal {report.signal})"
        else:
            message = f"the compiler failed with exit code {ended.exit_code} and no message that can be read"
        return _Tried(spec, error=CompilerError(tool="build", message=message))

    def _log(self, what: str, path: Path) -> str:
        """Move a job's output into the solution's log and return it."""
        try:
            with path.open("rb") as file:
                data = file.read(MAX_LOG_CHARS)
        except OSError:
            return ""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            log.write(f"\n== {what} ==\n".encode() + data)
        return data.decode("utf-8", "replace")


@dataclass(slots=True)
class _Ended:
    """What a job said and how it ended."""

    exit_code: int | None = None
    second_try: bool = False
    load_error: str | None = None
    late: bool = False
    report: ExitReport | None = None

    def take(self, message: Mapping[str, Any]) -> bool:
        """Take a frame in; True after the last. Raises `ValueError` on what no job sends."""
        if message.get("type") == "built" and type(message.get("exit_code")) is int:
            self.exit_code = message["exit_code"]
            return self.exit_code != 0
        if message.get("type") == "again":
            self.exit_code, self.second_try = None, True
            return False
        if message.get("type") == "loaded" and isinstance(message.get("error"), str | None):
            self.load_error = message["error"]
            return True
        raise ValueError("no frame of a job")


def _built(spec: ExtensionSpec, held: CachedModule, *, cached: bool) -> _Tried:
    assert held.path is not None
    report = BuildReport.from_json(held.metadata)
    module = BuiltModule(key=held.key, path=held.path, spec=spec, report=report, cached=cached)
    return _Tried(spec, module=module, lease=held)


def _load_error(error: str | None, spec: ExtensionSpec) -> str | None:
    """What the author did wrong, where the loader's refusal is surely that."""
    if error is None:
        return None
    if error.startswith("missing export"):
        return (
            f"no bindings: pass functions=[...] or write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) "
            f"({one_line(error, limit=100)})"
            if spec.functions is None
            else one_line(error, limit=200)
        )
    if (symbol := undefined_symbol(error)) is not None:
        return f"undefined symbol: {symbol} is declared or used, but no source defines it"
    return None


def _headers(plan: Plan, ended: _Ended, log: str) -> dict[str, str]:
    """Which of torch's headers each unit was built with in the end."""
    return {
        unit: "full" if which == "lean" and (ended.second_try or f"{LEAN_FAILED} {unit}," in log) else which
        for unit, which in plan.headers.items()
    }


def _harness_error(error: object) -> Failure:
    return Failure(status=Status.harness_error, reason=one_line(str(error)), evidence={"phase": "build"})

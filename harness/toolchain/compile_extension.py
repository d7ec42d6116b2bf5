"""Compiles one extension in a sandbox, unless the cache has it, and says what came of it.

Trusted side. Imports the toolchain's interface, the cache, `zygote` and the vocabulary. The module's bytes are copied,
never loaded; what a job and a log say are claims about their own submission.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.atomic_file import open_to_others
from harness.core.choices import SandboxMode
from harness.core.problem import digest_text
from harness.core.status import Failure, Status, one_line
from harness.sandbox import cleanup
from harness.sandbox.zygote import ZygoteError
from harness.toolchain.build_processes import DISK_BYTES, MEMORY_BYTES, Abandon, BuildAttempt, Ended
from harness.toolchain.cache import BuildCache, CachedModule
from harness.toolchain.diagnostics import MAX_LOG_CHARS, CompilerError, Diagnostics, undefined_symbol
from harness.toolchain.outcome import BuiltModule
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import LEAN_FAILED, QUICK_FAILED, BuildReport, Plan, Toolchain
from harness.toolchain.zygotes import BuilderZygotes

FORMAT = 2
"""Version of what an entry of the cache says about a build; part of its key."""

REFUSAL_FORMAT = 2
"""Version of when a build has failed for good (`harness.toolchain.headers.fallback`); part of the key of its log."""

_COMPILERS = frozenset({"g++", "nvcc", "nvlink", "ptxas"})
_MAX_REMEMBERED_CHARS = 200_000
MAX_MODULES_BYTES = 4 * 2**30
"""Of all extensions of one solution together: they lie in the cache at once, and files with holes are copied whole."""
_PASSING = re.compile(r"No space left|Cannot allocate|out of memory|internal compiler error|Killed|Terminated|signal")
"""Errors that another run need not meet again."""
_KILLED = re.compile(r"^Killed signal terminated|died due to signal 9\b")
"""What a compiler's driver says of a part that was killed. The sandbox ends a whole job, the kernel one process."""


@dataclass(slots=True)
class CompileResult:
    """What became of one extension: a module, an error of its author's, or a failure.

    `said` is what the solution's log should tell of it: a heading, and the compilers' output.
    """

    spec: ExtensionSpec
    module: BuiltModule | None = None
    lease: CachedModule | None = None
    error: CompilerError | None = None
    failure: Failure | None = None
    compile_s: float = 0.0
    said: tuple[str, bytes] | None = None


class _Room:
    """What the modules of one solution may still take. Safe to be used by several threads."""

    def __init__(self) -> None:
        self._left_bytes = MAX_MODULES_BYTES
        self._lock = threading.Lock()

    def take(self, module: Path) -> None:
        """Raises `ValueError` where there is none for this one. What is no file at all is left to others to refuse."""
        try:
            size = module.lstat().st_size
        except OSError:
            return
        with self._lock:
            if size > self._left_bytes:
                raise ValueError(f"the extensions of one solution take more than {MAX_MODULES_BYTES / 2**30:.0f} GiB")
            self._left_bytes -= size


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """Builds the extensions of one solution, whose text is `source`. Safe to be used by several threads."""

    zygotes: BuilderZygotes
    toolchain: Toolchain
    cache: BuildCache
    sandbox: SandboxMode
    timeout_s: float
    source: str
    room: _Room = field(default_factory=_Room)

    def build(self, spec: ExtensionSpec, abandon: Abandon) -> CompileResult:
        """From the cache, or compiled now. Raises `CacheError`, `MachineError`, `SandboxUnavailable`, `Abandoned`."""
        if (failure := self.toolchain.refuse(spec)) is not None:
            return CompileResult(spec, failure=failure)
        key = digest_text("module", str(FORMAT), self.toolchain.key(spec))
        if (known := self._known(spec, key)) is not None:
            return known
        with self.cache.building(key):
            abandon.heed()
            # Somebody else may have built it while this waited.
            return self._known(spec, key) or self._compile(spec, key, abandon)

    def _known(self, spec: ExtensionSpec, key: str) -> CompileResult | None:
        """What the cache says: a module, or a compiler's log that ends in an error."""
        if (held := self.cache.get(key)) is not None:
            assert held.path is not None
            try:
                self.room.take(held.path)
            except ValueError as lack:
                held.release()
                return CompileResult(spec, error=CompilerError(tool="build", message=str(lack)))
            return _built(spec, held, cached=True)
        if (remembered := self.cache.recall(_refusal(key))) is not None:
            log = str(remembered["log"])
            error = self.toolchain.interpret(spec, log, solution=self.source).error
            if error is not None:
                heading = f"building extension {spec.name} (the compiler's output of an earlier run)"
                return CompileResult(spec, error=error, said=(heading, log.encode()))
        return None

    def _compile(self, spec: ExtensionSpec, key: str, abandon: Abandon) -> CompileResult:
        work = self.cache.scratch()
        try:
            folder, log_path = work / "build", work / "log"
            folder.mkdir()
            plan = self.toolchain.prepare(spec, folder)
            open_to_others(work)
            try:
                ended = BuildAttempt(
                    zygotes=self.zygotes,
                    sandbox=self.sandbox,
                    timeout_s=self.timeout_s,
                    spec=spec,
                    plan=plan,
                    folder=folder,
                    log_path=log_path,
                    abandon=abandon,
                ).run()
            except ZygoteError as error:
                return CompileResult(spec, failure=harness_error(error))
            data = read_log(log_path)
            log = data.decode("utf-8", "replace")
            diagnostics = self.toolchain.interpret(spec, log, solution=self.source)
            try:
                tried = self._verdict(spec, ended, diagnostics)
                if tried is None:
                    report = BuildReport(
                        wall_s=ended.compile_s, headers=_headers(plan, ended, log), diagnostics=diagnostics
                    )
                    self.room.take(folder / plan.product)
                    tried = _built(spec, self.cache.put(key, folder / plan.product, report.to_json()), cached=False)
                elif _is_final(ended, tried.error):
                    self.cache.put(_refusal(key), None, {"log": log[:_MAX_REMEMBERED_CHARS]}).release()
            except ValueError as error:
                tried = CompileResult(spec, error=CompilerError(tool="build", message=str(error)))
        finally:
            cleanup.remove(work)
        tried.compile_s = ended.compile_s
        tried.said = (f"building extension {spec.name}", data)
        return tried

    def _verdict(self, spec: ExtensionSpec, ended: Ended, diagnostics: Diagnostics) -> CompileResult | None:
        """What a job that brought no usable module means; None after a success."""
        if ended.exit_code == 0:
            # Late or dead while loading: the contestant finds out.
            if (message := _load_error(ended.load_error, spec)) is None:
                return None
            symbol = undefined_symbol(ended.load_error or "")
            if symbol is not None and any(f"({symbol})" in lack for lack in diagnostics.not_emulated):
                # Declared by the source itself, and held by a library of CUDA's.
                return _not_emulated(spec, diagnostics)
            return CompileResult(spec, error=CompilerError(tool="loader", message=message))
        report = ended.report
        if ended.late:
            return CompileResult(
                spec,
                failure=Failure(
                    status=Status.compile_timeout,
                    reason=one_line(f"building extension {spec.name} did not finish within {self.timeout_s:.4g} s"),
                    evidence={"phase": "build", "extension": spec.name, "timeout_s": self.timeout_s},
                ),
            )
        if report is None or report.cause == "lost":
            return CompileResult(spec, failure=harness_error("the builder was lost: its zygote died"))
        error = diagnostics.error
        # Sources and flags can have compilers killed too, or say that they were: the kernel counts what it kills.
        killed = error is not None and error.file is None and _KILLED.search(error.message) is not None
        if report.cause == "machine_memory" or (killed and ended.starved and report.cause == "exited"):
            reason = f"this machine ran out of memory while {spec.name} was compiled: take fewer --jobs, or free some"
            return CompileResult(spec, failure=harness_error(reason))
        if report.cause == "memory_limit":
            message = f"the compiler takes more than {MEMORY_BYTES / 2**30:.0f} GiB of memory"
        elif report.cause == "disk_limit":
            message = f"the compiler writes more than {DISK_BYTES / 2**30:.0f} GiB"
        elif diagnostics.fault is not None:
            return CompileResult(
                spec, failure=harness_error(f"preparing {spec.name} for the CPU failed: {diagnostics.fault}")
            )
        elif diagnostics.not_emulated:
            return _not_emulated(spec, diagnostics)  # what the compiler then says comes of that
        elif diagnostics.error is not None:
            return CompileResult(spec, error=diagnostics.error)
        elif ended.exit_code is None:
            message = f"the build broke off (exit code {report.exit_code}, signal {report.signal})"
        else:
            message = f"the compiler failed with exit code {ended.exit_code} and no message that can be read"
        return CompileResult(spec, error=CompilerError(tool="build", message=message))


def read_log(path: Path) -> bytes:
    """The output of a job, cut at `MAX_LOG_CHARS`; empty where it left none."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_LOG_CHARS)
    except OSError:
        return b""


def harness_error(error: object) -> Failure:
    """A fault of ours or of the machine, met while building."""
    return Failure(status=Status.harness_error, reason=one_line(str(error)), evidence={"phase": "build"})


def _built(spec: ExtensionSpec, held: CachedModule, *, cached: bool) -> CompileResult:
    assert held.path is not None
    report = BuildReport.from_json(held.metadata)
    module = BuiltModule(key=held.key, path=held.path, spec=spec, report=report, cached=cached)
    return CompileResult(spec, module=module, lease=held)


def _not_emulated(spec: ExtensionSpec, diagnostics: Diagnostics) -> CompileResult:
    reason = f"extension {spec.name}: the CPU can't execute {'; '.join(diagnostics.not_emulated[:3])}"
    evidence = {"extension": spec.name, "not_emulated": list(diagnostics.not_emulated)}
    return CompileResult(spec, failure=Failure(status=Status.not_emulated, reason=one_line(reason), evidence=evidence))


def _refusal(key: str) -> str:
    """The key under which the log of a build that failed is remembered."""
    return digest_text("refusal", str(REFUSAL_FORMAT), key)


def _is_final(ended: Ended, error: CompilerError | None) -> bool:
    """Whether the same sources would give that error again."""
    by_itself = ended.report is not None and ended.report.cause == "exited" and ended.exit_code not in (None, 0)
    return by_itself and error is not None and error.tool in _COMPILERS and not _PASSING.search(error.message)


def _load_error(error: str | None, spec: ExtensionSpec) -> str | None:
    """What the author did wrong, where the loader's refusal is surely that."""
    if error is None:
        return None
    if error.startswith("missing export"):
        what = one_line(error, limit=100)
        if spec.functions is not None:
            return what
        return f"no bindings: pass functions=[...] or write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) ({what})"
    if (symbol := undefined_symbol(error)) is not None:
        return f"undefined symbol: {symbol} is declared or used, but no source defines it"
    return None


def _headers(plan: Plan, ended: Ended, log: str) -> dict[str, str]:
    """How each unit was built in the end."""
    lines = f"\n{log}"
    return {
        unit: "full"
        if which != "emulated" and (ended.second_try or f"\n{LEAN_FAILED} {unit}," in lines)
        else "lean"
        if f"\n{QUICK_FAILED} {unit}:" in lines
        else which
        for unit, which in plan.headers.items()
    }

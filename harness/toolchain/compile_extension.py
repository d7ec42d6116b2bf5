"""Compile one extension in a sandbox, unless the cache has it.

Trusted side. The module's bytes are copied, never loaded. The build process and its log are claims about their own
solution.
"""

from __future__ import annotations

import errno
import os
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
"""Version of a build's cache entry; part of its key."""

REFUSAL_FORMAT = 2
"""Version of the rules for final failures (`headers/fallback.py`); part of the key of a failed build's log."""

_COMPILERS = frozenset({"g++", "nvcc", "nvlink", "ptxas"})
_MAX_REMEMBERED_CHARS = 200_000
MAX_MODULES_BYTES = 4 * 2**30
"""Limit of all extensions of one solution together: the cache holds them at once, and copies sparse files whole."""
_OF_THE_MACHINE = re.compile(
    "|".join(
        re.escape(os.strerror(number))
        for number in (
            *(errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EBUSY, errno.EINTR),
            *(errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE),
        )
    )
)
"""Errors of the operating system that another try may not meet.

A source can print them, too: then it is compiled twice.
"""
_PASSING = re.compile(f"{_OF_THE_MACHINE.pattern}|out of memory|internal compiler error|Killed|Terminated|signal")
"""Errors that may not occur again in another run."""
_KILLED = re.compile(r"^Killed signal terminated|died due to signal 9\b")
"""Message of a compiler driver if the kernel killed one of its processes. The sandbox kills the whole job instead."""


@dataclass(slots=True)
class CompileResult:
    """Result for one extension: a module, an error of its author, or a failure.

    `said` is the text for the solution's log: a heading and the compilers' output.
    """

    spec: ExtensionSpec
    module: BuiltModule | None = None
    lease: CachedModule | None = None
    error: CompilerError | None = None
    failure: Failure | None = None
    compile_s: float = 0.0
    said: tuple[str, bytes] | None = None


class _Room:
    """Bytes that the modules of one solution may still use. Thread-safe."""

    def __init__(self) -> None:
        self._left_bytes = MAX_MODULES_BYTES
        self._lock = threading.Lock()

    def take(self, module: Path) -> None:
        """Reserve the module's size. Raises `ValueError` if it does not fit.

        A missing file is reported elsewhere.
        """
        try:
            size = module.lstat().st_size
        except OSError:
            return
        with self._lock:
            if size > self._left_bytes:
                raise ValueError(f"the extensions of one solution exceed {MAX_MODULES_BYTES / 2**30:.0f} GiB together")
            self._left_bytes -= size


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """Builds the extensions of the solution whose text is `source`. Thread-safe."""

    zygotes: BuilderZygotes
    toolchain: Toolchain
    cache: BuildCache
    sandbox: SandboxMode
    timeout_s: float
    source: str
    room: _Room = field(default_factory=_Room)

    def build(self, spec: ExtensionSpec, abandon: Abandon) -> CompileResult:
        """Return the extension from the cache, or compile it.

        Raises:
            CacheError: The cache can't be read or written.
            MachineError: A tool is missing.
            SandboxUnavailable: A strict sandbox can't be created.
            Abandoned: Another thread ended the build.
        """
        if (failure := self.toolchain.refuse(spec)) is not None:
            return CompileResult(spec, failure=failure)
        key = digest_text("module", str(FORMAT), self.toolchain.key(spec))
        if (known := self._known(spec, key)) is not None:
            return known
        with self.cache.building(key):
            abandon.heed()
            # Another process may have built it meanwhile.
            if (known := self._known(spec, key)) is not None:
                return known
            tried = self._compile(spec, key, abandon)
            if tried.error is not None and _OF_THE_MACHINE.search(tried.error.message):
                abandon.heed()
                tried = self._compile(spec, key, abandon)
            return tried

    def _known(self, spec: ExtensionSpec, key: str) -> CompileResult | None:
        """Look in the cache for a module or for the log of a failed build."""
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
                heading = f"building extension {spec.name} (compiler output of an earlier run)"
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
        """Interpret a job that produced no usable module; None after a success."""
        if ended.exit_code == 0:
            # If loading timed out or the loader died, the contestant finds out.
            if (message := _load_error(ended.load_error, spec)) is None:
                return None
            symbol = undefined_symbol(ended.load_error or "")
            if symbol is not None and any(f"({symbol})" in lack for lack in diagnostics.not_emulated):
                # The source declares the symbol; a CUDA library defines it.
                return _not_emulated(spec, diagnostics)
            return CompileResult(spec, error=CompilerError(tool="loader", message=message))
        report = ended.report
        if ended.processors_short is not None:
            reason = (
                f"this machine is too busy to build {spec.name}: {ended.processors_short}; use fewer --jobs or reduce "
                "its load, and repeat with --resume"
            )
            return CompileResult(spec, failure=harness_error(reason))
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
        # Sources and flags can kill a compiler, or print that one was killed: only the kernel's count is believed.
        killed = error is not None and error.file is None and _KILLED.search(error.message) is not None
        if report.cause == "machine_memory" or (killed and ended.starved and report.cause == "exited"):
            reason = f"this machine ran out of memory while compiling {spec.name}: use fewer --jobs or free memory"
            return CompileResult(spec, failure=harness_error(reason))
        if report.cause == "memory_limit":
            message = f"the compiler uses more than {MEMORY_BYTES / 2**30:.0f} GiB of memory"
        elif report.cause == "disk_limit":
            message = f"the compiler writes more than {DISK_BYTES / 2**30:.0f} GiB"
        elif diagnostics.fault is not None:
            return CompileResult(
                spec, failure=harness_error(f"translating {spec.name} for the CPU failed: {diagnostics.fault}")
            )
        elif diagnostics.not_emulated:
            return _not_emulated(spec, diagnostics)  # compiler errors after this are consequences
        elif diagnostics.error is not None:
            return CompileResult(spec, error=diagnostics.error)
        elif ended.exit_code is None:
            message = f"the build was interrupted (exit code {report.exit_code}, signal {report.signal})"
        else:
            message = f"the compiler failed with exit code {ended.exit_code} and printed no recognizable error"
        return CompileResult(spec, error=CompilerError(tool="build", message=message))


def read_log(path: Path) -> bytes:
    """Return a job's output, cut at `MAX_LOG_CHARS`; empty if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_LOG_CHARS)
    except OSError:
        return b""


def harness_error(error: object) -> Failure:
    """Return a failure of the harness or the machine in the build phase."""
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
    """Return the cache key for the log of a failed build."""
    return digest_text("refusal", str(REFUSAL_FORMAT), key)


def _is_final(ended: Ended, error: CompilerError | None) -> bool:
    """Whether the same sources would give the same error again."""
    by_itself = ended.report is not None and ended.report.cause == "exited" and ended.exit_code not in (None, 0)
    return by_itself and error is not None and error.tool in _COMPILERS and not _PASSING.search(error.message)


def _load_error(error: str | None, spec: ExtensionSpec) -> str | None:
    """Translate the loader's error if it is certainly the author's mistake, else None."""
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
    """Say for each unit how its final object was built."""
    lines = f"\n{log}"
    return {
        unit: "full"
        if which != "emulated" and (ended.second_try or f"\n{LEAN_FAILED} {unit}," in lines)
        else "lean"
        if f"\n{QUICK_FAILED} {unit}:" in lines
        else which
        for unit, which in plan.headers.items()
    }

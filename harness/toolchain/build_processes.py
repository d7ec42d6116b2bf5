"""Run the processes of one build: compilers, loader, and a second try.

Trusted side. Messages of the processes are claims.

ccache is switched off (`CCACHE_DISABLE`). Flags and sources of a solution control the compilers, so a shared ccache
folder could be filled by one solution with objects that score another. A private folder is always empty. Little would
be found anyway: of 92 CUDA sources in `solutions` no two are equal, and `cache.py` keeps whole modules.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.choices import SandboxMode
from harness.protocol.channel import FrameTimeout, WireError
from harness.sandbox import ExitReport, SandboxPolicy, limits
from harness.sandbox.child import ProcessorsShort
from harness.sandbox.zygote import Child
from harness.toolchain.diagnostics import MAX_LOG_CHARS, NOTE
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import Command, Plan
from harness.toolchain.zygotes import BuilderZygotes

JOB = "harness.untrusted.builder.compile_job:main"
LOADING = "harness.untrusted.builder.load_check:main"
_LOAD_S = 30.0
"""Time limit for loading a module, including its static initialisers."""
_MAX_ANSWER_BYTES = 2**20
"""Limit of a job's answer, which is a few words."""
_END_S = 5.0
MEMORY_BYTES = 12 * 2**30
DISK_BYTES = 4 * 2**30
_NO_CCACHE = {"CCACHE_DISABLE": "1"}
_LEAN_MAY_LACK = re.compile(r"undefined symbol: (?:\w+ for )?(?:at|c10|torch|pybind11)::")
"""A missing inline function of torch may be the fault of lean headers; a missing function of the author's is not."""


class Abandoned(Exception):
    """The build was ended, because its extension is not needed any more."""


class Abandon:
    """Ends a build from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self.asked = False

    def ask(self) -> None:
        """End the build's processes, including those that it would start next. Idempotent."""
        with self._lock:
            self.asked = True
            child = self._child
        if child is not None:
            child.kill()

    def heed(self, child: Child | None = None) -> None:
        """Register the build's current process. Raises `Abandoned` if `ask` was called.

        Called by the build itself.
        """
        with self._lock:
            self._child = child
            if self.asked:
                raise Abandoned


@dataclass(slots=True)
class Ended:
    """How the commands of a plan ended, and the loader's message.

    Attributes:
        compile_s: Seconds that the commands took. Only this counts against their limit: the start of a zygote does not.
        exit_code: Exit code of the last command; None if it is unknown.
        second_try: Whether the second try ran.
        load_error: The loader's message; None if the module loads or it is unknown.
        late: Whether the commands exceeded their limit.
        starved: Whether the kernel killed a process for lack of memory meanwhile, here or elsewhere on the machine.
        report: How the job's process ended.
    """

    compile_s: float = 0.0
    exit_code: int | None = None
    second_try: bool = False
    load_error: str | None = None
    late: bool = False
    processors_short: str | None = None
    starved: bool = False
    report: ExitReport | None = None


@dataclass(slots=True, kw_only=True)
class BuildAttempt:
    """The processes of one build, one after another."""

    zygotes: BuilderZygotes
    sandbox: SandboxMode
    timeout_s: float
    spec: ExtensionSpec
    plan: Plan
    folder: Path
    log_path: Path
    abandon: Abandon
    ended: Ended = field(default_factory=Ended)

    def run(self) -> Ended:
        """Run the commands and the loader, and both again if lean headers may be at fault.

        Raises:
            ZygoteError: A zygote died.
            SandboxUnavailable: A strict sandbox can't be created.
            Abandoned: Another thread ended the build.
        """
        self._compile(self.plan.commands)
        error = self._load()
        if error is not None and self.plan.second_try and _LEAN_MAY_LACK.search(error):
            with self.log_path.open("a", encoding="utf-8", errors="replace") as log:
                log.write(f"{NOTE} loading the module failed ({error}); building it again with the full headers\n")
            self.ended.second_try = True
            self._compile(self.plan.second_try)
            error = self._load()
        self.ended.load_error = error
        return self.ended

    def _compile(self, commands: Sequence[Command]) -> None:
        policy = self._policy(writable=(self.folder,), readable=self.plan.readable)
        ended = self.ended
        ended.exit_code = None
        self.abandon.heed()
        with self.zygotes.light.spawn(JOB, policy, self.log_path) as child:
            self.abandon.heed(child)
            begin, kills = time.monotonic(), limits.out_of_memory_kills()
            try:
                child.channel.send(
                    {
                        "folder": str(self.folder),
                        "commands": [list(command) for command in commands],
                        "environ": dict(self.plan.environ),
                    }
                )
                child.channel.expect_at_most(_MAX_ANSWER_BYTES)
                answer = child.receive(max(0.0, self.timeout_s - ended.compile_s)).message
                if answer.get("type") == "built" and type(answer.get("exit_code")) is int:
                    ended.exit_code = answer["exit_code"]
            except FrameTimeout:
                ended.late = True
            except ProcessorsShort as error:
                ended.late, ended.processors_short = True, str(error)
            except WireError:
                pass  # the job ended before it could answer; its exit report says why
            ended.report = child.wait(_END_S if not ended.late else 0.0) or child.kill()
            ended.compile_s += time.monotonic() - begin
            ended.starved = limits.out_of_memory_kills() > kills
        self.abandon.heed()

    def _load(self) -> str | None:
        """Return the loader's error message.

        None if the module loads, if there is none, or if it is unknown: the contestant finds out then.
        """
        if self.ended.exit_code != 0:
            return None
        policy = self._policy(writable=(), readable=(self.folder, *self.plan.readable))
        error = None
        with self.zygotes.torch.spawn(LOADING, policy, self.log_path) as child:
            self.abandon.heed(child)
            try:
                child.channel.send(
                    {
                        "product": str(self.folder / self.plan.product),
                        "name": self.spec.name,
                        "is_python_module": self.spec.is_python_module,
                    }
                )
                child.channel.expect_at_most(_MAX_ANSWER_BYTES)
                answer = child.receive(_LOAD_S).message
                if answer.get("type") == "loaded" and isinstance(answer.get("error"), str):
                    error = answer["error"]
            except (FrameTimeout, ProcessorsShort, WireError):
                pass  # the module's initialisers ended the process, or did not end
        self.abandon.heed()
        return error

    def _policy(self, *, writable: tuple[Path, ...], readable: tuple[Path, ...]) -> SandboxPolicy:
        return SandboxPolicy(
            mode=self.sandbox,
            writable=writable,
            readable=readable,
            max_memory_bytes=MEMORY_BYTES,
            max_disk_bytes=DISK_BYTES,
            max_log_bytes=MAX_LOG_CHARS,
            env={**_NO_CCACHE, **self.plan.environ},
        )

"""The processes of one build: compilers, then the loader, and both once more where lean headers lacked something.

Trusted side. Imports the toolchain's interface, `build.zygotes` and the vocabulary. What the processes say is a claim.

Decision: no ccache. Flags and sources of a submission command the compilers here, so a folder of ccache's that builds
share could be filled by one submission with objects that another is then scored by; a folder to each build is always
empty. A shared one would find little anyway: of 92 CUDA sources in `solutions` no two are equal (whole modules that
are, `build.cache` keeps), and g++ with precompiled headers is nothing that ccache keeps unless it is told to be lax.
So a ccache that stands before the compilers is switched off: it would only copy into a folder that goes with the build.
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
from harness.sandbox.zygote import Child
from harness.toolchain.diagnostics import MAX_LOG_CHARS, NOTE
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import Command, Plan
from harness.toolchain.zygotes import BuilderZygotes

JOB = "harness.untrusted.builder.compile_job:main"
LOADING = "harness.untrusted.builder.load_check:main"
_LOAD_S = 30.0
"""Time for trying to load a module, its static initialisers included."""
_MAX_ANSWER_BYTES = 2**20
"""A job says how it ended, in a few words."""
_END_S = 5.0
MEMORY_BYTES = 12 * 2**30
DISK_BYTES = 4 * 2**30
_NO_CCACHE = {"CCACHE_DISABLE": "1"}
_LEAN_MAY_LACK = re.compile(r"undefined symbol: (?:\w+ for )?(?:at|c10|torch|pybind11)::")
"""A missing inline function of torch's own may come of lean headers; a missing function of the author's does not."""


class Abandoned(Exception):
    """Nobody wants the extension any more that was being built."""


class Abandon:
    """By which a build is ended from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self.asked = False

    def ask(self) -> None:
        """End the build's processes, those too that it would begin. Idempotent."""
        with self._lock:
            self.asked = True
            child = self._child
        if child is not None:
            child.kill()

    def heed(self, child: Child | None = None) -> None:
        """For the build itself: this process is its own now. Raises `Abandoned` where it was asked to end."""
        with self._lock:
            self._child = child
            if self.asked:
                raise Abandoned


@dataclass(slots=True)
class Ended:
    """How the commands of a plan ended, and what the loader said of what they made. `compile_s` is the commands' time,
    and all that counts against their limit: what they or the loader are forked from may have had to start first.
    `starved` says that the kernel has killed for want of memory meanwhile, here or elsewhere on the machine.
    """

    compile_s: float = 0.0
    exit_code: int | None = None
    second_try: bool = False
    load_error: str | None = None
    late: bool = False
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
        """Commands and the loader, and both again with the full headers where lean ones may have lacked something.

        Raises `ZygoteError`, `SandboxUnavailable`, `Abandoned`.
        """
        self._compile(self.plan.commands)
        error = self._load()
        if error is not None and self.plan.second_try and _LEAN_MAY_LACK.search(error):
            with self.log_path.open("a", encoding="utf-8", errors="replace") as log:
                log.write(f"{NOTE} the module can't be loaded ({error}); building it again with the full headers\n")
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
                answer = child.channel.receive(max(0.0, self.timeout_s - ended.compile_s)).message
                if answer.get("type") == "built" and type(answer.get("exit_code")) is int:
                    ended.exit_code = answer["exit_code"]
            except FrameTimeout:
                ended.late = True
            except WireError:
                pass  # the job ended before it could say how; the exit report does
            ended.report = child.wait(_END_S if not ended.late else 0.0) or child.kill()
            ended.compile_s += time.monotonic() - begin
            ended.starved = limits.out_of_memory_kills() > kills
        self.abandon.heed()

    def _load(self) -> str | None:
        """Why the module can't be loaded; None where it can, there is none, or nobody knows: the contestant then
        finds out.
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
                answer = child.channel.receive(_LOAD_S).message
                if answer.get("type") == "loaded" and isinstance(answer.get("error"), str):
                    error = answer["error"]
            except (FrameTimeout, WireError):
                pass  # its initialisers end the process, or don't end
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

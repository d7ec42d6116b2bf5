"""Start the zygotes of builds: a light one, one with torch, one with more of it.

Trusted side. Compilers and the static scan need no torch, so they fork from a process that starts at once. Processes
that run a solution or its module fork from one that has imported torch. The first operation on meta tensors loads most
of torch's compiler (`preload_meta.py`), nearly one second per discovery; after `MANY_HARVESTS` discoveries they
fork from a third zygote that has done this already.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.sandbox import SandboxPolicy
from harness.sandbox.zygote import Child, Zygote, ZygoteError

_LIGHT = ("harness.untrusted.builder.compile_job", "harness.untrusted.builder.static_scan")
_WITH_TORCH = (
    "torch",
    "harness.toolchain.import_cpp_extension",
    "harness.untrusted.builder.import_solution",
    "harness.untrusted.builder.load_check",
)
_WITH_META = (*_WITH_TORCH, "harness.toolchain.preload_meta")

MANY_HARVESTS = 8
"""Number of discoveries after which the zygote with more of torch starts. It takes 2.2 s of one of two cores, and each
discovery that forks from it saves 0.85 s."""


class LateZygote(Zygote):
    """A zygote that starts with its first child, and restarts if it has died."""

    def __init__(
        self, preload: Sequence[str], log_path: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._preload, self._log_path, self._env = tuple(preload), log_path, env
        self._starting = threading.Lock()
        self._started = False
        self._closed = False

    @property
    def started(self) -> bool:
        """Whether it was ever started."""
        return self._started

    @property
    def ready(self) -> bool:
        """Whether it has finished its imports and is alive."""
        return self._started and self.alive and self.threads is not None

    def start(self) -> None:
        """Start the imports, unless the process is alive.

        Raises `ZygoteError` after `close`.
        """
        with self._starting:
            if self._closed:
                raise ZygoteError("the builders are closed")
            if not self._started:
                super().__init__(preload=self._preload, env=self._env, log_path=self._log_path)
                self._started = True
            elif not self.alive:
                self.restart()

    def spawn(self, target: str, policy: SandboxPolicy, log_path: Path, fds: Sequence[int] = ()) -> Child:
        self.start()
        return super().spawn(target, policy, log_path, fds)

    def close(self) -> None:
        with self._starting:
            self._closed = True
            if self._started:
                super().close()


class BuilderZygotes:
    """The zygotes of builds, each started when it is first needed.

    A thread-safe context manager.

    Attributes:
        light: Forks compilers and static scans.
        torch: Forks load checks, and discoveries while they are few (`for_harvest`).
    """

    def __init__(
        self, log_path: Path | None = None, *, preload: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.light = LateZygote((*_LIGHT, *preload), log_path, env)
        self.torch = LateZygote((*_WITH_TORCH, *preload), log_path, env)
        self._meta = LateZygote((*_WITH_META, *preload), log_path, env)
        self._counting = threading.Lock()
        self._harvests = 0

    def start(self) -> None:
        """Start the imports of the first two zygotes in the background. Idempotent.

        Raises:
            ZygoteError: `close` was called.
        """
        self.light.start()
        self.torch.start()

    def for_harvest(self) -> LateZygote:
        """Return the zygote for the next discovery.

        The zygote with more of torch starts at discovery number `MANY_HARVESTS` and is used once it is ready. If it
        can't start, the other one is used.
        """
        with self._counting:
            self._harvests += 1
            if self._harvests == MANY_HARVESTS:
                with suppress(ZygoteError, OSError):
                    self._meta.start()
        return self._meta if self._meta.ready else self.torch

    def close(self) -> None:
        """End all zygotes and their children."""
        self.light.close()
        self.torch.close()
        self._meta.close()

    def __enter__(self) -> BuilderZygotes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

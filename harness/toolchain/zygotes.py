"""The processes that builds fork from: one that is there at once, one with torch, one with more of torch for many.

Trusted side; imports `zygote`. Compilers need nothing of torch's in their process, and neither does reading a text: so
they come from a process that has imported next to nothing, and need not wait for seconds of imports. Where a solution
or its module is executed, torch is needed, and imported once for all. With its first operation on tensors without
contents torch loads most of its compiler (`build.meta`): nearly a second in each harvest, which a few had better take
themselves than wait for. Many fork from a process that has done it, which is begun beside.
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
"""With so many the process with more of torch is begun. On two processors it takes 2.2 s of one, and each harvest that
forks from it 0.85 s less: who has seen so many will see some more."""


class LateZygote(Zygote):
    """A zygote that starts when its first child is asked for, and anew where it has died."""

    def __init__(
        self, preload: Sequence[str], log_path: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._preload, self._log_path, self._env = tuple(preload), log_path, env
        self._starting = threading.Lock()
        self._started = False
        self._closed = False

    @property
    def started(self) -> bool:
        """Whether it was ever needed."""
        return self._started

    @property
    def ready(self) -> bool:
        """Whether it was started, has made its imports and lives."""
        return self._started and self.alive and self.threads is not None

    def start(self) -> None:
        """Have it begin with its imports, if it has not, or has died. Raises `ZygoteError` after `close`."""
        with self._starting:
            if self._closed:
                raise ZygoteError("the builders have been ended")
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
    """What builds fork from, each started when it is first needed. A context manager; safe for threads.

    `light` runs compilers and reads texts; `torch` loads modules and executes solutions (harvests), as long as those
    are few (`for_harvest`). `log_path` gets what all say on stderr. `preload` and `env` are added to what all have.
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
        """Have the first two begin with their imports, in the background. Idempotent. Raises `ZygoteError` after
        `close`.
        """
        self.light.start()
        self.torch.start()

    def for_harvest(self) -> LateZygote:
        """What the next harvest forks from: the process with more of torch once that is ready. It is begun with the
        eighth harvest; where it can't be had, nobody waits for it.
        """
        with self._counting:
            self._harvests += 1
            if self._harvests == MANY_HARVESTS:
                with suppress(ZygoteError, OSError):
                    self._meta.start()
        return self._meta if self._meta.ready else self.torch

    def close(self) -> None:
        """End all, and all that was forked from them."""
        self.light.close()
        self.torch.close()
        self._meta.close()

    def __enter__(self) -> BuilderZygotes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

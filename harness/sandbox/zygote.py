"""A process with torch imported that forks sandboxed children, and the handle its owner holds.

Imports `sandbox` and `wire`. Trusted side: the owner's `Zygote` and `Child`, used from any thread. The process itself
(`python -m harness.sandbox.zygote`) is trusted too, holds nothing secret, and becomes untrusted in its forks only
after the last wall stands.

What an owner can rely on: a child and everything it starts is gone when `Child.wait` or `Child.kill` has returned a
report; when the owner dies, by whatever means, so do the zygote and all its children; a zygote that dies is a
`ZygoteError`, a fault of the harness or the machine, and `restart` makes a new one.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.protocol.channel import Channel
from harness.sandbox import SandboxPolicy, syscalls, zygote_process
from harness.sandbox.child import Child
from harness.sandbox.confine import Confined
from harness.sandbox.zygote_owner import MAX_FDS, START_TIMEOUT_S, Life, ZygoteError
from harness.sandbox.zygote_server import serve

__all__ = ["Child", "Zygote", "ZygoteError"]


class Zygote:
    """Starts and owns one zygote process. A context manager; every method may be called from any thread.

    `preload` names modules to import before the first fork; `env` is added to the scrubbed environment of the
    process and so of its children; `log_path` receives what it says on stderr.

    `wrapper` is a command to run the process under ("compute-sanitizer", ..., its descriptors inherited), and
    `enclosed` puts both, and all children, among processes and in a network of their own: children whose policy says
    `under_tool` keep the variables that the tool set and can talk to it over sockets, and to nothing else.
    """

    def __init__(
        self,
        preload: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        *,
        wrapper: Sequence[str] = (),
        enclosed: bool = False,
    ) -> None:
        self._start = zygote_process.Start(
            preload=tuple(preload),
            env=dict(env or {}),
            log_path=log_path,
            wrapper=tuple(wrapper),
            enclosed=enclosed,
        )
        self._lock = threading.RLock()
        self._life = self._begin()

    def spawn(self, target: str, policy: SandboxPolicy, log_path: Path, fds: Sequence[int] = ()) -> Child:
        """Fork a child that runs `target` ("package.module:function", called with a channel and the descriptors).

        What it prints is appended to `log_path`. Returns once its walls stand. Raises `ValueError` for a target or a
        policy that can't be, `SandboxUnavailable` where the policy is strict and this machine can't keep it, and
        `ZygoteError`.
        """
        module, colon, function = target.partition(":")
        if not (module and colon and function.isidentifier()):
            raise ValueError(f'a target is "package.module:function", not {target!r}')
        if len(fds) > MAX_FDS:
            raise ValueError(f"a child can be given at most {MAX_FDS} descriptors, not {len(fds)}")
        for path in (*policy.writable, *policy.readable):
            if not path.exists():
                raise ValueError(f"the sandbox policy names {path}, which does not exist")
        with self._lock:
            life = self._life
        return life.spawn(target, policy, log_path, fds)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the modules are imported. Raises `ZygoteError`."""
        self._life.wait_ready(timeout_s)

    @property
    def pid(self) -> int:
        """The id of the process this owner started (it dies with the zygote, and the zygote with it)."""
        return self._life.pid

    @property
    def alive(self) -> bool:
        """Whether it can still spawn."""
        return self._life.death is None

    @property
    def threads(self) -> int | None:
        """How many threads the process had after its imports; above 1, a fork may copy a locked lock."""
        return self._life.threads

    def announce(self) -> None:
        """Tell all children to stop, without waiting until they do: `hold` has less to wait for then.

        No child's owner lets it go on before `release`, and those started meanwhile are held.
        """
        self._life.announce()

    def hold(self) -> None:
        """Stop all children until `release`, those that are started meanwhile too; what can't be stopped is ended.

        The zygote itself goes on, and what it runs under: compute-sanitizer follows no fork any more once it has been
        stopped.
        """
        self._life.hold()

    def release(self) -> None:
        """Let everything go on after a `hold` or `announce`, less the children that are paused."""
        self._life.release()

    def restart(self) -> None:
        """End this zygote, dead or alive, and its children, and start another with the same arguments."""
        with self._lock:
            self._life.end()
            self._life = self._begin()

    def close(self) -> None:
        """End the zygote and all its children."""
        with self._lock:
            self._life.end()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> Life:
        return Life(self._start)


def _run(confined: Confined) -> int:
    """Run what this confined process is for; its exit code."""
    channel = Channel(socket.socket(fileno=confined.channel))
    module, _, function = confined.target.partition(":")
    try:
        getattr(importlib.import_module(module), function)(channel, confined.fds)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _main() -> None:
    confined = serve(int(sys.argv[1]), tuple(sys.argv[3:]), place=sys.argv[2])
    if confined is None:
        os._exit(0)
    # What serve held is out of reach here: the target's callers are this function and nothing else.
    code = _run(confined)
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
        syscalls.flush_stdio()
    os._exit(code)  # without the interpreter's end, which would run what the zygote's imports registered


if __name__ == "__main__":
    _main()

"""Zygote: a process with imported modules that forks sandboxed children.

Trusted side: any thread may use the owner's `Zygote` and `Child`. The process (`python -m harness.sandbox.zygote`) is
trusted and holds no secret; its forks become untrusted after the last restriction. Guarantees:

* After `Child.wait` or `Child.kill` returns a report, the child and all its descendants are gone.
* If the owner dies for any reason, so do the zygote and all children.
* A dead zygote raises `ZygoteError`, a fault of the harness or the machine; `restart` makes a new one.
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
    """Starts and owns one zygote process. A context manager, safe for threads.

    With `wrapper` and `enclosed`, children whose policy has `under_tool` keep the tool's variables. They can reach the
    tool over sockets, and nothing else.

    Args:
        preload: Modules to import before the first fork.
        env: Variables to add to the allowed environment of the process and its children.
        log_path: File for the stderr of the process.
        wrapper: Command to run the process under ("compute-sanitizer", ...); it inherits the descriptors.
        enclosed: Whether wrapper, zygote and children get their own pid namespace and network.
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
        """Fork a child and wait until its restrictions are active.

        Args:
            target: Function to run ("package.module:function"), called with a channel and the descriptors.
            policy: Isolation and limits.
            log_path: File to which the child's output is appended.
            fds: Descriptors for the child, at most 12.

        Returns:
            The child's handle.

        Raises:
            ValueError: The target or the policy is invalid.
            SandboxUnavailable: The policy is strict, and this machine cannot fulfil it.
            ZygoteError: The zygote died or did not answer.
            OSError: The log cannot be opened.
        """
        module, colon, function = target.partition(":")
        if not (module and colon and function.isidentifier()):
            raise ValueError(f'the target {target!r} is not of the form "package.module:function"')
        if len(fds) > MAX_FDS:
            raise ValueError(f"a child takes at most {MAX_FDS} descriptors, not {len(fds)}")
        for path in (*policy.writable, *policy.readable):
            if not path.exists():
                raise ValueError(f"the sandbox policy names {path}, but it does not exist")
        with self._lock:
            life = self._life
        return life.spawn(target, policy, log_path, fds)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the modules are imported.

        Raises:
            ZygoteError: The zygote died, or the time limit passed.
        """
        self._life.wait_ready(timeout_s)

    @property
    def pid(self) -> int:
        """Id of the process that this owner started; it and the zygote end together."""
        return self._life.pid

    @property
    def alive(self) -> bool:
        """Whether the zygote can still spawn."""
        return self._life.death is None

    @property
    def threads(self) -> int | None:
        """Number of threads after the imports; above 1, a fork may copy a locked lock."""
        return self._life.threads

    def announce(self) -> None:
        """Send the stop signal to all children without waiting; `hold` then waits less.

        No child resumes before `release`; children started meanwhile are held too.
        """
        self._life.announce()

    def hold(self) -> None:
        """Stop all current and future children until `release`.

        Children that cannot be stopped are killed. The zygote and its wrapper continue: compute-sanitizer follows no
        fork any more after it was stopped.
        """
        self._life.hold()

    def release(self) -> None:
        """Resume all children after `hold` or `announce`, except paused ones."""
        self._life.release()

    def restart(self) -> None:
        """End this zygote, dead or alive, with its children, and start a new one.

        Raises:
            ZygoteError: The new process cannot be started.
        """
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
    """Run the confined process's target and return its exit code."""
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
    # Here the objects of `serve` are out of reach of the target: only this function calls it.
    code = _run(confined)
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
        syscalls.flush_stdio()
    os._exit(code)  # skips the exit handlers of the zygote's imports


if __name__ == "__main__":
    _main()

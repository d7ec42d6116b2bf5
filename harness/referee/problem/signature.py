"""Shapes of a problem's arguments, which builds need to construct and call a solution; remembered between runs. And
whether its own constructor takes them.

Stage, trusted side: a problem is trusted code, and executing it is what this module does where the cache does not
know the answer, in a process of its own (`python -m harness.referee.problem.signature`).

Decision: not in the conductor's process, whose threads would stand still for as long as libraries of torch's are
loaded, seconds in which builds begin (pinned by `test_the_conductor_imports_no_torch_for_it`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.core.environment import torch_build
from harness.core.problem import Problem, Workload, digest_text
from harness.core.subprocesses import end_with, python, search_path
from harness.core.task import problem_json, problem_of
from harness.protocol.channel import Channel, ChannelClosed, WireError, pair
from harness.toolchain import BuildCache

FORMAT = 1
"""Version of what is remembered; part of its key."""

START_LIMIT_S = 180.0
"""For torch's import, which on a cold disk can take a minute."""

_ARGUMENTS, _CONSTRUCTS = "arguments", "constructs"
"""What the process is asked of a problem: shapes, or whether its `Model` can be constructed."""

LIMIT_S = 20.0
"""How long one problem may take, for which builds of others wait too. One that hangs is found out by the referee."""


class Signatures:
    """The signatures of a run's problems, each asked for once. Safe for threads. A context manager.

    The cache is opened with the first one, and a process started with the first that is not remembered.
    """

    def __init__(self, cache_dir: Path, cache_limit_bytes: int) -> None:
        self._settings = (cache_dir, cache_limit_bytes)
        self._cache: BuildCache | None = None
        self._known: dict[str, Mapping[str, Any] | None] = {}
        self._constructs: dict[str, bool] = {}
        self._looking = threading.Lock()
        self._finding = threading.Lock()
        self._finder: _SignatureProcess | None = None
        self._closed = threading.Event()

    def of(self, problem: Problem, *, on_miss: Callable[[], None] = lambda: None) -> Mapping[str, Any] | None:
        """The constructor's arguments and one call's inputs as shapes (`harness.toolchain.arguments`), at the small
        workload where there is one. Raises `CacheError`.

        `on_miss` is called before the seconds that it takes where it is not remembered, by every thread that has to
        wait for it. None where the problem does not tell; then what a solution compiles late is built where it runs.
        """
        with self._looking:
            if self._cache is None:
                self._cache = BuildCache(*self._settings)
            cache = self._cache
            if problem.digest not in self._known and (held := _remembered(problem, cache)) is not None:
                self._known[problem.digest] = held
            if problem.digest in self._known:
                return self._known[problem.digest]
        on_miss()
        with self._finding:
            if problem.digest not in self._known:
                self._known[problem.digest] = found = self._find(problem)
                if found is not None:
                    cache.put(_key(problem), None, {"arguments": found}).release()
            return self._known[problem.digest]

    def constructs(self, problem: Problem) -> bool:
        """Whether the reference's own constructor takes those arguments. Asked where a solution's does not, which is
        its fault only then; false also where nobody can tell, so that the referee decides.
        """
        with self._finding:
            if problem.digest not in self._constructs:
                self._constructs[problem.digest] = self._ask(problem, _CONSTRUCTS) is True
            return self._constructs[problem.digest]

    def close(self) -> None:
        """End the process; what it was at is not found out. Idempotent."""
        self._closed.set()
        if (finder := self._finder) is not None:
            finder.close()

    def __enter__(self) -> Signatures:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, problem: Problem) -> Mapping[str, Any] | None:
        found = self._ask(problem, _ARGUMENTS)
        return found if isinstance(found, dict) else None

    def _ask(self, problem: Problem, question: str) -> object:
        """The answer, or None. Whatever is wrong with a problem, the referee finds it and says so; here it only costs
        time.
        """
        if self._closed.is_set():
            return None
        try:
            finder = self._finder = self._finder or _SignatureProcess()
            if self._closed.is_set():  # meanwhile, and it did not know of this one
                finder.close()
            return finder.ask(problem, question)
        except (WireError, OSError, ValueError):  # it can't start, died, or hangs: the next problem gets another one
            if self._finder is not None:
                self._finder.close()
            self._finder = None
            return None


class _SignatureProcess:
    """The process, from its start to its end. Raises `OSError` where it can't be started."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self._channel = Channel(ours)
        self._ready = False
        try:
            with theirs:
                self._process = subprocess.Popen(
                    python("-m", "harness.referee.problem.signature", str(theirs.fileno())),
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, **search_path(os.environ)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError:
            self._channel.close()
            raise

    def ask(self, problem: Problem, question: str) -> object:
        """Raises a `WireError` where it does not answer."""
        if not self._ready:
            self._channel.receive(START_LIMIT_S)
            self._ready = True
        workload = _workload(problem)
        request = {
            "question": question,
            "problem": problem_json(problem),
            "workload": workload.name,
            "sizes": dict(workload.sizes),
        }
        self._channel.send(request, timeout_s=LIMIT_S)
        return self._channel.receive(LIMIT_S).message["answer"]

    def close(self) -> None:
        if self._process.returncode is None:  # its group has what problems started
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()


def _remembered(problem: Problem, cache: BuildCache) -> Mapping[str, Any] | None:
    held = cache.recall(_key(problem))
    arguments = None if held is None else held.get("arguments")
    return arguments if isinstance(arguments, dict) else None


def _workload(problem: Problem) -> Workload:
    return problem.workloads.get("small", Workload(name="full"))


def _key(problem: Problem) -> str:
    sizes = json.dumps(dict(_workload(problem).sizes), sort_keys=True)
    return digest_text("signature", f"{FORMAT} torch {torch_build()[0]}", problem.digest, sizes)


def _described(problem: Problem, workload: Workload) -> dict[str, Any] | None:
    """Inputs of a small workload are drawn as they are: for its first tensors without contents torch loads most of its
    compiler, half a second for `torch.randn` alone and one more for what is done with it.
    """
    import torch

    from harness.referee.problem.loader import load_reference
    from harness.toolchain.arguments import describe

    try:
        reference = load_reference(problem, workload)
        with torch.device("cpu" if workload.name == "small" else "meta"):
            inputs = reference.get_inputs()
        return describe(reference.init_inputs(), inputs)
    except Exception:
        return None


def _constructs(problem: Problem, workload: Workload) -> bool:
    """Without memory at full size, where some constructors fail that do not otherwise; then the referee decides."""
    import torch

    from harness.referee.problem.loader import load_reference

    try:
        reference = load_reference(problem, workload)
        with torch.device("cpu" if workload.name == "small" else "meta"):
            reference.model(0, None)
    except Exception:
        return False
    return True


def _serve(channel: Channel) -> None:
    """The process: one word when it is ready, then one answer a request."""
    import harness.referee.problem.loader  # noqa: F401  # with torch

    with suppress(ChannelClosed):
        channel.send({"ready": True})
        while True:
            asked = channel.receive().message
            workload = Workload(name=asked["workload"], sizes=asked["sizes"])
            answers = {_ARGUMENTS: _described, _CONSTRUCTS: _constructs}
            channel.send({"answer": answers[asked["question"]](problem_of(asked["problem"]), workload)})


if __name__ == "__main__":
    _owner = socket.socket(fileno=int(sys.argv[1]))
    end_with(_owner, lambda: os.killpg(0, signal.SIGKILL))  # a problem may hang; it leads a group of its own
    _serve(Channel(_owner))

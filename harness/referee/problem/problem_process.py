"""A process of its own that executes problems and answers questions about them.

Trusted side. The runner must not import torch, and a problem may hang or end its process. The module that the process
runs calls `serve`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from harness.core.json_value import from_json, to_json
from harness.core.problem import Problem
from harness.core.subprocesses import end_with, python, search_path
from harness.protocol.channel import Channel, ChannelClosed, WireError, pair

START_LIMIT_S = 180.0
"""Seconds for torch's import, which can take a minute on a cold disk."""


class ProblemProcess:
    """The process, started at the first question and again after it was lost.

    Args:
        module: Name of the module that it runs.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._running: _Running | None = None
        self._closed = threading.Event()

    def ask(self, problem: Problem, question: str, limit_s: float) -> object:
        """Return the answer, a JSON value.

        Args:
            problem: The problem.
            question: A key of the functions that the module serves.
            limit_s: Seconds for the answer.

        Raises:
            WireError: There is no answer: the process died, hangs, or this is closed.
            OSError: The process can't be started.
        """
        if self._closed.is_set():
            raise ChannelClosed("closed")
        try:
            running = self._running = self._running or _Running(self._module)
            if self._closed.is_set():  # closed meanwhile, before this process was known
                running.close()
            return running.ask(problem, question, limit_s)
        except BaseException:  # the next problem gets a new process
            if self._running is not None:
                self._running.close()
            self._running = None
            raise

    def close(self) -> None:
        """End the process, even if it is working. Idempotent."""
        self._closed.set()
        if (running := self._running) is not None:
            running.close()


class _Running:
    def __init__(self, module: str) -> None:
        ours, theirs = pair()
        self._channel = Channel(ours)
        self._ready = False
        try:
            with theirs:
                self._process = subprocess.Popen(
                    python("-m", module, str(theirs.fileno())),
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

    def ask(self, problem: Problem, question: str, limit_s: float) -> object:
        if not self._ready:
            self._channel.receive(START_LIMIT_S)
            self._ready = True
        self._channel.send({"question": question, "problem": to_json(problem)}, timeout_s=limit_s)
        return self._channel.receive(limit_s).message["answer"]

    def close(self) -> None:
        if self._process.returncode is None:  # its group includes processes that problems started
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()


def serve(answers: Mapping[str, Callable[[Problem], object]]) -> None:
    """Answer questions over the socket that the first argument names, until it closes.

    Args:
        answers: The function for each question; it returns a JSON value.
    """
    owner = socket.socket(fileno=int(sys.argv[1]))
    end_with(owner, lambda: os.killpg(0, signal.SIGKILL))  # a problem may hang; this process leads its own group
    channel = Channel(owner)
    with suppress(ChannelClosed):
        channel.send({"ready": True})
        while True:
            asked = channel.receive().message
            channel.send({"answer": answers[asked["question"]](from_json(asked["problem"], Problem))})


__all__ = ["START_LIMIT_S", "ProblemProcess", "WireError", "serve"]

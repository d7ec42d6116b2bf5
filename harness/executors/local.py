"""Judging on this machine: one referee process a device, replaced when it dies.

Trusted side.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.executors import ExecutorError
from harness.executors.worker import MAX_TASK_BYTES
from harness.model import Status, one_line
from harness.tasks import Outcome, RefereeConfig, Task
from harness.wire import Channel, WireError, pair

START_TIMEOUT_S = 180.0
"""Importing torch and making a CUDA context takes seconds; a cold disk makes it minutes."""

MARGIN_S = 600.0
"""Beyond a solution's own time limit: preparing a large problem, or truth on the CPU. Then the referee is stuck."""

TRIES = 2

ALLOCATOR = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
"""Truth in float64 takes tens of gigabytes in one piece; torch's usual allocator splits such blocks for small tensors
that stay, until the large ones fit nowhere. The second name is the newer one."""


class _Worker:
    """One referee process. Raises `ExecutorError` where it says that its device is not there."""

    def __init__(self, config: RefereeConfig, log_path: Path) -> None:
        ours, theirs = pair()
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.executors.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **ALLOCATOR},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        self.config = config
        self._log_path = log_path
        self._channel = Channel(ours, max_frame_bytes=MAX_TASK_BYTES)
        self._channel.send({"config": config.to_json(), "log_path": str(log_path)})
        self._ready = False

    def wait_ready(self) -> None:
        if self._ready:
            return
        message = self._receive(START_TIMEOUT_S)
        if message["type"] == "unavailable":
            self.close()
            raise ExecutorError(message["reason"])
        self._ready = True

    def judge(self, task: Task) -> Outcome:
        self.wait_ready()
        self._channel.send(task.to_json())
        message = self._receive(self.config.solution_timeout_s + MARGIN_S)
        if message["type"] != "judged":
            raise RefereeLost(f"the referee failed: {message.get('reason')}", str(message.get("trace", "")))
        return Outcome.from_json(message["outcome"])

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            return self._channel.receive(timeout_s).message
        except WireError as error:
            tail = self._log_path.read_bytes()[-4000:].decode(errors="replace")
            raise RefereeLost(f"the referee process died or hangs: {error}", tail) from error

    def close(self) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()


class RefereeLost(Exception):
    """A referee died, hung or failed; `detail` is its traceback or the end of its log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.detail = detail


class LocalExecutor:
    """Referees on this machine, one for each of `configs`."""

    def __init__(self, configs: Sequence[RefereeConfig], log_path: Path) -> None:
        self._start: Callable[[RefereeConfig], _Worker] = lambda config: _Worker(config, log_path)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self.slots = len(configs)
        for config in configs:
            self._idle.put(self._add(config))

    def _add(self, config: RefereeConfig) -> _Worker:
        worker = self._start(config)
        with self._lock:
            self._all.add(worker)
        return worker

    def _remove(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.close()

    def wait_ready(self) -> None:
        """Return once every referee stands. Raises `ExecutorError` where a device is missing."""
        for worker in list(self._all):
            # One that died is replaced by the first task that meets it.
            with suppress(RefereeLost):
                worker.wait_ready()

    def judge(self, task: Task) -> Outcome:
        worker = self._idle.get()
        reason, detail = "", ""
        try:
            for _ in range(TRIES):
                try:
                    return worker.judge(task)
                except RefereeLost as lost:
                    reason, detail = str(lost), lost.detail
                    self._remove(worker)
                    worker = self._add(worker.config)
            return Outcome(status=Status.harness_error, reason=one_line(reason), detail=detail)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        with self._lock:
            workers, self._all = list(self._all), set()
        for worker in workers:
            worker.close()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Measure baselines of many problems in parallel.

Processes compile in parallel and time one at a time on each GPU.

Trusted side; no torch. Several processes share a GPU through its turnstile. A process that draws inputs, runs or times
has the GPU for itself; the others compile meanwhile. All GPUs take from one list of requests.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.environment import cpu_count
from harness.devices.gpu_specs import Peaks
from harness.referee.baselines.entry import BaselineEntry, failed_entry
from harness.referee.baselines.process_handle import BaselineProcess, BaselineRequest, BaselinesLost

GRACE_S = 45.0
"""Seconds that running requests may take beyond the budget before they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBaselines:
    """The result of one request: its entries, or the reason why it has none.

    `peaks` are the GPU's.
    """

    request: BaselineRequest
    entries: Sequence[BaselineEntry] = ()
    reason: str | None = None
    peaks: Peaks | None = None
    wall_s: float = 0.0


class MeasuringPool:
    """Processes that measure baselines: at most `jobs`, distributed over `gpus`.

    `gpus` are names as in CUDA_VISIBLE_DEVICES; an empty list means the only device. `run` may be called once.
    """

    def __init__(
        self,
        device: DeviceKind,
        cache_dir: Path,
        log_dir: Path,
        *,
        jobs: int,
        gpus: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._device = device
        self._cache_dir = cache_dir
        self._log_dir = log_dir
        self._jobs = jobs
        self._gpus = gpus
        self._env = env
        self._pending: deque[BaselineRequest] = deque()
        self._alone: deque[BaselineRequest] = deque()
        self._lock = threading.Lock()
        self._done: queue.SimpleQueue[MeasuredBaselines | BaseException | None] = queue.SimpleQueue()
        self._processes: set[BaselineProcess] = set()
        self._deadline = float("inf")

    def run(self, requests: Sequence[BaselineRequest], *, budget_s: float | None = None) -> Iterator[MeasuredBaselines]:
        """Yield the result of each request as soon as it is done.

        After `budget_s` no further request starts, and requests that did not start yield nothing. If the GPU has too
        little memory for a request next to others, the request is repeated alone.
        """
        self._pending.extend(requests)
        self._deadline = time.monotonic() + budget_s if budget_s is not None else float("inf")
        try:
            yield from self._with(min(self._jobs, len(requests)), alone=False)
            self._pending, self._alone = self._alone, deque()
            if self._pending:
                yield from self._with(min(max(1, len(self._gpus)), len(self._pending)), alone=True)
        finally:
            self._end_all()

    def _with(self, jobs: int, *, alone: bool) -> Iterator[MeasuredBaselines]:
        for number in range(jobs):
            threading.Thread(target=self._serve, args=(number, alone), name=f"baselines-{number}", daemon=True).start()
        running = jobs
        while running:
            left_s = self._deadline + GRACE_S - time.monotonic()
            try:
                told = self._done.get(timeout=max(0.1, min(left_s, threading.TIMEOUT_MAX)))
            except queue.Empty:
                return  # `run` kills the processes that still measure
            if told is None:
                running -= 1
            elif isinstance(told, BaseException):
                raise told
            else:
                yield told

    def _serve(self, number: int, alone: bool) -> None:
        process: BaselineProcess | None = None
        try:
            while (request := self._next()) is not None:
                if process is None:
                    process = self._start(number)
                begin = time.monotonic()
                entries: Sequence[BaselineEntry] = ()
                reason, peaks = None, None
                try:
                    entries = process.measure(request)
                    peaks = process.peaks
                except BaselinesLost as lost:
                    self._end(process)
                    process = None
                    if lost.no_memory and not alone:
                        with self._lock:
                            self._alone.append(request)
                        continue
                    if lost.late and len(request.baselines) > 1:
                        with self._lock:  # measure each alone, to learn which one takes so long
                            self._pending.extend(replace(request, baselines=[name]) for name in request.baselines)
                        continue
                    if lost.late:
                        entries = [failed_entry(request.baselines[0], request.problem, str(lost))]
                    else:
                        reason = str(lost)
                wall_s = time.monotonic() - begin
                self._done.put(
                    MeasuredBaselines(request=request, entries=entries, reason=reason, peaks=peaks, wall_s=wall_s)
                )
        except BaseException as error:
            self._done.put(error)
        finally:
            if process is not None:
                self._end(process)
            self._done.put(None)

    def _next(self) -> BaselineRequest | None:
        with self._lock:
            if not self._pending or time.monotonic() > self._deadline:
                return None
            return self._pending.popleft()

    def _start(self, number: int) -> BaselineProcess:
        # With several processes each compiles on one thread; together they use all processors.
        several = self._jobs > 1
        place = number % max(1, len(self._gpus))
        chosen = {"CUDA_VISIBLE_DEVICES": self._gpus[place]} if self._gpus else {}
        process = BaselineProcess(
            self._device,
            self._cache_dir,
            self._log_dir / f"baselines-{number}.log",
            threads=1 if several else cpu_count(),
            turnstile=self._log_dir / f"turnstile-{place}" if several else None,
            env={**chosen, **(self._env or {})},
        )
        with self._lock:
            self._processes.add(process)
        return process

    def _end(self, process: BaselineProcess) -> None:
        with self._lock:
            self._processes.discard(process)
        process.close()

    def _end_all(self) -> None:
        with self._lock:
            left, self._processes = list(self._processes), set()
            self._pending.clear()
        for process in left:
            process.close()

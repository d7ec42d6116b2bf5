"""Start, use and end the process that compiles and measures baselines.

Trusted side. The process sees one device and keeps inductor's caches below the cache folder. Closing the handle kills
it and every process that it started.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.choices import Baseline, DeviceKind
from harness.core.json_value import JsonObject
from harness.core.problem import Problem, Workload
from harness.core.subprocesses import python, search_path
from harness.devices.gpu_specs import Peaks
from harness.protocol.channel import Channel, FrameTimeout, WireError, pair
from harness.referee.baselines.entry import BaselineEntry

START_TIMEOUT_S = 180.0
"""Limit for importing torch and making a CUDA context, on a cold disk."""

EAGER_TIMEOUT_S = 120.0
COMPILE_TIMEOUT_S = 150.0
AUTOTUNE_TIMEOUT_S = 400.0
"""Limits for compiling and measuring one baseline; several add up, to at most `LONGEST_S`."""

LONGEST_S = 500.0
"""Limit for all baselines of one problem; an executor waits 600 s beyond a solution's own limit."""

COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


class BaselinesLost(Exception):
    """The process died, hung or failed, so the requested baselines have no result.

    `no_memory`: the device had too little memory. `late`: the process exceeded its limit while it compiled and
    measured.
    """

    def __init__(self, reason: str, *, no_memory: bool = False, late: bool = False) -> None:
        super().__init__(reason)
        self.no_memory = no_memory
        self.late = late


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRequest(JsonObject):
    """One problem and the baselines to measure.

    `budget_s` limits the bursts. Without `refresh`, kept entries are used.
    """

    problem: Problem
    workload: Workload
    baselines: Sequence[Baseline]
    budget_s: float
    refresh: bool = False

    @property
    def timeout_s(self) -> float:
        modes = [baseline.mode for baseline in self.baselines]
        each = [
            EAGER_TIMEOUT_S if m is None else AUTOTUNE_TIMEOUT_S if "tune" in m else COMPILE_TIMEOUT_S for m in modes
        ]
        return min(LONGEST_S, self.budget_s + sum(each))


class BaselineProcess:
    """One measuring process, as a context manager.

    `turnstile` is the lock file if several processes share a GPU.
    """

    def __init__(
        self,
        device: DeviceKind,
        cache_dir: Path,
        log_path: Path,
        *,
        threads: int,
        device_index: int = 0,
        turnstile: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        ours, theirs = pair()
        own = {
            "TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"),
            COMPILE_THREADS: str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        # In some versions of torch, inductor's CUDA graphs fail with the allocator's expandable segments.
        inherited = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
        self._log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                python("-m", "harness.referee.baselines.measuring_process", str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                env={**inherited, **search_path(os.environ), **own, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        self._channel = Channel(ours)
        self.peaks: Peaks | None = None
        """Peaks of its GPU, set when the process is ready; None on the host device."""
        self._ready = False
        start = {
            "device": device.value,
            "device_index": device_index,
            "cache_dir": str(cache_dir),
            "turnstile": None if turnstile is None else str(turnstile),
        }
        with suppress(WireError):  # if the process died at once, the first request reports it
            self._channel.send(start)

    def measure(self, request: BaselineRequest, *, within_s: float = math.inf) -> list[BaselineEntry]:
        """Measure the requested baselines.

        Waits at most `START_TIMEOUT_S` until the process is ready, then at most the request's own limit.

        Args:
            request: The problem and its baselines.
            within_s: Limit in seconds for both waits together.

        Returns:
            The entries, in the order of the request.

        Raises:
            BaselinesLost: The process died, hung or failed.
        """
        deadline = time.monotonic() + within_s
        if not self._ready:
            limit_s = min(START_TIMEOUT_S, within_s)
            try:
                held = self._receive(limit_s, "ready")["peaks"]
            except FrameTimeout as error:
                reason = f"the process that measures baselines was not ready in {limit_s:.0f} s; log: {self._tail()}"
                raise BaselinesLost(reason) from error
            self.peaks = None if held is None else Peaks.from_json(held)
            self._ready = True
        try:
            self._channel.send(request.to_json())
        except WireError as error:
            raise BaselinesLost(f"the process that measures baselines died: {error}; log: {self._tail()}") from error
        limit_s = min(request.timeout_s, max(0.0, deadline - time.monotonic()))
        try:
            message = self._receive(limit_s, "measured")
        except FrameTimeout as error:
            raise BaselinesLost(f"compiling and measuring took more than {limit_s:.0f} s", late=True) from error
        return [BaselineEntry.from_json(entry) for entry in message["entries"]]

    def _receive(self, timeout_s: float, wanted: str) -> dict[str, Any]:
        """Return the next message.

        Raises `FrameTimeout`, or `BaselinesLost` if it is not of type `wanted`.
        """
        try:
            message = self._channel.receive(timeout_s).message
        except FrameTimeout:
            raise
        except (WireError, OSError) as error:
            raise BaselinesLost(f"the process that measures baselines died: {error}; log: {self._tail()}") from error
        if message.get("type") != wanted:
            raise BaselinesLost(str(message.get("reason")), no_memory=bool(message.get("no_memory")))
        return message

    def _tail(self) -> str:
        lines = self._log_path.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "(empty)"

    def close(self) -> None:
        """Kill the process and inductor's workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30.0)
        self._channel.close()

    def __enter__(self) -> BaselineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

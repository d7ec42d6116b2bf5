"""Time a solution's GPU work in a process that runs none of its host code.

Trusted side. The contestant records what one call submits to the GPU (`record`). After its end another process makes
the same launches in cold calls over newly drawn inputs, and its outputs are verified like those of any timed call
(`measure`). So the clock is out of the submission's reach: if the recorded work takes longer there than the
contestant claims, the longer time counts. Work that can't be launched elsewhere keeps its claimed time, with a label.
See guides/design/relaunching.md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from harness.core.status import one_line
from harness.devices.device import Arena, DeviceError
from harness.protocol.messages import (
    CallMode,
    EmptyTimed,
    ExportLaunches,
    LoadLaunches,
    Recorded,
    RecordLaunches,
)
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.process import ContestantFailed
from harness.referee.correctness.verifier import Verifier
from harness.referee.problem.burst_plan import (
    OWN_INPUTS,
    PlannedCall,
    calls_of,
    in_turn,
    of_mode,
    plan_calls,
    stressed_planned_calls,
)

NOT_RELAUNCHED = "not_relaunched"
"""Label: another process could not make the GPU work of a call, so the claimed time rests on rules 1 to 6."""

SLOWER_RELAUNCHED = "slower_relaunched"
"""Label: the GPU work takes longer if another process launches it, and that time counts."""

SAMPLES = 16
"""Cold calls to time at least in each process."""

TRIES = 3
"""Most processes. In each the memory lies elsewhere: a kernel whose blocks all ask one word of it took 6 % longer in
one (H200). The least time counts, because nothing makes the work faster than it is.
"""

SLACK = 0.01
SLACK_S = 0.2e-6
"""How much longer relaunched work may take before its time counts: as a share, and in seconds."""

MAX_PLAN_BYTES = 2**30
"""Most bytes of a plan, with the images of its kernels."""

LIMIT_S = 20.0
"""Time limit in seconds of each request; usually some tenths of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaunchedTimes:
    """Times of the relaunched work, or why there are none.

    Attributes:
        samples_s: Device seconds of cold calls, by process.
        lack: Why another process could not do the work; empty if it did.
        spent_s: Seconds of the referee.
    """

    samples_s: Sequence[Sequence[float]] = ()
    lack: str = ""
    spent_s: float = 0.0

    def factor(self, claimed_s: float) -> float:
        """Return by which factor the claimed times are too short; 1 if they are confirmed.

        Args:
            claimed_s: Typical claimed seconds of a cold call (`typical`).
        """
        if self.lack:
            return 1.0
        beyond_s = self._typical_s() - claimed_s
        return 1.0 + beyond_s / claimed_s if beyond_s > max(SLACK * claimed_s, SLACK_S) else 1.0

    def hidden_s(self, claimed_s: float) -> float:
        """Return the largest lie that would not have counted, in seconds a call."""
        return max(SLACK * claimed_s, SLACK_S, claimed_s - self._typical_s())

    def to_json(self, claimed_s: float) -> dict[str, Any]:
        """Return the fields of a record's `timing.relaunched`."""
        if self.lack:
            return {"lack": self.lack, "spent_s": self.spent_s}
        return {
            "device_s": self._typical_s(),
            "claimed_s": claimed_s,
            "factor": self.factor(claimed_s),
            "samples_s": [list(times_s) for times_s in self.samples_s],
            "spent_s": self.spent_s,
        }

    def _typical_s(self) -> float:
        return min(typical(times_s) for times_s in self.samples_s)


def typical(times_s: Sequence[float]) -> float:
    """Return the mean of the middle half of the samples.

    Every second place in the GPU's queue delays a launch (`CudaDevice.time_cold`), so short calls have two typical
    times. A median is one or the other of them by chance.
    """
    ordered = sorted(times_s)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])


class Relaunching:
    """Record a solution's call, then time the recorded work without the solution.

    Args:
        client: The solution's contestant, which is alive until `record` returns.
        start: Starts a client of an empty process over the same workspace.
        sets: Number of input sets of a burst.
        stress: Stress variants, each with its part.
        untimed: Entered while nothing is timed; other work may use the GPU meanwhile.
    """

    def __init__(
        self,
        client: ContestantClient,
        start: Callable[[], ContestantClient],
        *,
        sets: int,
        stress: Sequence[tuple[str, int]],
        untimed: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._client = client
        self._workspace = client.workspace
        self._start = start
        self._sets = sets
        self._stress = stress
        self._untimed = untimed
        self._recorded: Recorded | None = None
        self._memory: Arena | None = None
        self._plan_fd: int | None = None
        self._lack = ""
        self._spent_s = 0.0

    def record(self) -> None:
        """Let the contestant record a call; it may be dead afterwards."""
        begin = time.perf_counter()
        try:
            self._lack = self._record()
        except ContestantFailed as failed:
            self._lack = one_line(f"recording failed: {failed.failure.reason}", limit=300)
        except DeviceError as error:
            self._lack = one_line(f"no memory for the recording: {error}", limit=300)
        self._spent_s = time.perf_counter() - begin

    def measure(self, claimed_s: float, lanes: Mapping[int, EmptyTimed] | None) -> RelaunchedTimes:
        """Time the recorded work in another process; the contestant must have ended.

        Further processes follow as long as the work takes longer than claimed.

        Args:
            claimed_s: Typical claimed seconds of a cold call (`typical`).
            lanes: The referee's empty kernels by lane; None to time none.
        """
        begin, samples_s, lack = time.perf_counter(), list[list[float]](), self._lack
        try:
            while not lack and len(samples_s) < TRIES:
                samples_s.append(self._measure(lanes))
                if RelaunchedTimes(samples_s=samples_s).factor(claimed_s) == 1.0:
                    break
        except ContestantFailed as failed:
            lack = one_line(f"another process can't launch it: {failed.failure.reason}", limit=300)
        except _Wrong as wrong:
            lack = one_line(f"launched by another process it is wrong: {wrong}", limit=300)
        finally:
            self.close()
        spent_s = self._spent_s + time.perf_counter() - begin
        return RelaunchedTimes(samples_s=samples_s, lack=lack, spent_s=spent_s)

    def close(self) -> None:
        """Free the recording. Idempotent."""
        if self._memory is not None:
            self._memory.close()
        if self._plan_fd is not None:
            os.close(self._plan_fd)
        self._memory = self._plan_fd = None

    def _record(self) -> str:
        """Return why there is no recording, or an empty text."""
        workspace, contestant = self._workspace, self._client.contestant
        call = (PlannedCall(index=0, mode=CallMode.COLD),)
        self._draw(call, {})
        request = RecordLaunches(burst=self._client.request(calls_of(workspace, call)))
        recorded = contestant.record_launches(request, min(LIMIT_S, self._client.left_s))
        if recorded.lack:
            return recorded.lack
        if recorded.plan_bytes > MAX_PLAN_BYTES:
            return f"its modules have {recorded.plan_bytes} bytes"
        self._recorded = recorded
        self._memory = workspace.device.allocate(max(1, recorded.memory_bytes))
        self._plan_fd = os.memfd_create("harness-launches", os.MFD_CLOEXEC)
        os.ftruncate(self._plan_fd, recorded.plan_bytes)
        export = ExportLaunches(memory_bytes=self._memory.nbytes, plan_bytes=recorded.plan_bytes)
        contestant.export_launches(export, (self._memory.fd, self._plan_fd), min(LIMIT_S, self._client.left_s))
        return ""

    def _measure(self, lanes: Mapping[int, EmptyTimed] | None) -> list[float]:
        """Return the device seconds of cold calls in a new process."""
        assert self._recorded is not None
        assert self._memory is not None
        assert self._plan_fd is not None
        client, secret = self._start(), self._workspace.secret
        os.lseek(self._plan_fd, 0, os.SEEK_SET)
        with client.contestant:
            load = LoadLaunches(memory_bytes=self._memory.nbytes, plan_bytes=self._recorded.plan_bytes)
            compared = client.load_launches(load, (self._memory.fd, self._plan_fd), lanes)
            verifier = Verifier.of(client)
            following = {CallMode.COLD: in_turn(self._stress, secret)}
            times_s: list[float] = []
            bursts = 0
            while bursts < 2 or len(times_s) < SAMPLES:
                planned = plan_calls(self._sets, secret, bursts)
                with self._untimed():
                    self._draw(planned, stressed_planned_calls(planned, following, secret))
                done, _ = client.burst(planned)
                with self._untimed():
                    verdicts = verifier.check(planned, done, with_reference=False)
                for verdict in verdicts:
                    if verdict.failure is not None:
                        raise _Wrong(verdict.failure.reason)
                client.expect_still()
                own_s = 0.0 if compared is None else compared.taken_off_s
                cold = of_mode(planned, done.claims, CallMode.COLD)
                times_s += [max(claim.device_s - own_s, claim.device_s / 2) for claim in cold]
                bursts += 1
            with self._untimed():
                client.contestant.kill()
            return times_s

    def _draw(self, planned: Sequence[PlannedCall], stressed: Mapping[int, tuple[str, int]]) -> None:
        """Draw new inputs for these calls, and withhold words of them."""
        indices = [call.index for call in planned]
        for index in indices:
            name, part = stressed.get(index, OWN_INPUTS)
            self._workspace.draw(index, name, part=part)
        self._workspace.hold_back(indices)
        self._workspace.mask(indices)
        self._workspace.device.synchronize()


class _Wrong(Exception):
    """The relaunched work gave a wrong output."""

"""Check a solution's claims by back-to-back bursts (rule 6 of `claims.py`).

Trusted side. Of the three launch modes, queued calls prove most. A forward that waits for the device cannot be queued;
the referee believes that after three tries, because code that creates or loads something may wait once. Such calls are
launched one by one, and all of their wall time counts. See guides/design/back_to_back.md.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.status import one_line
from harness.protocol.messages import LaunchMode
from harness.referee.contestants.client import LATE_WRITE
from harness.referee.contestants.process import ContestantFailed
from harness.referee.correctness.verifier import CallVerdict
from harness.referee.timing.back_to_back_burst import (
    AWAKE,
    WAITS,
    BackToBackBurst,
    BackToBackRunner,
    BurstRefusal,
    RefusalCause,
    Sleep,
)
from harness.referee.timing.claims import LAUNCHED, QUEUED, BackToBackVerdict, Tolerance, judge_back_to_back
from harness.referee.timing.output_copies import copying_s
from harness.referee.timing.reference_timing import QUEUE_TRIES, SHORT_S, ProblemCalibration, graphable, proves_more

TRIES = 3
"""Number of bursts before the wall clock is used against a solution: the machine may be busy during one."""

TOLERANCES: Mapping[LaunchMode, Tolerance] = {LaunchMode.QUEUED: QUEUED, LaunchMode.LAUNCHED: LAUNCHED}

MOST_LATE = 12
"""Most additional bursts after late ones. A burst is late if the referee could not read its clock in time, by more than
a burst's tolerance. Measured on an H200 while builds used all 16 processors: three tries of 3.6 ms were late by 0.4 to
13 ms each in seven of ten evaluations. A call of 0.3 ms was charged up to 2.3 ms for it. With more tries, none of 17
evaluations was charged.
"""

REST_S = 5e-3
ASLEEP = 0.7
"""After a late burst the referee sleeps for `REST_S` seconds before it opens the gate. It sleeps again while the calls
run, for the share `ASLEEP` of the least time that they take. A process that just slept gets a processor sooner, for
some milliseconds.
"""

AGAIN_WITHIN_S = 5.0
"""No burst is repeated after this many seconds: work that a refused queue left behind has to end first."""

NOT_RIGHT = {
    LaunchMode.QUEUED: "wrong when queued",
    LaunchMode.GRAPH: "wrong inside a CUDA graph, which does not capture launches that name no stream",
}
"""Prefix of the reason for wrong answers, for the launch modes that a solution need not support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackTimes:
    """Times of a solution's calls back to back, in seconds a call.

    `seconds` holds the claims by launch mode; a mode in `refused` has none. `data` is `cached` if all input sets
    together fit the device's cache, else `cold`.
    """

    launch_mode: LaunchMode
    data: str
    verdict: BackToBackVerdict
    seconds: Mapping[LaunchMode, float]
    refused: Mapping[LaunchMode, BurstRefusal]
    copied_s: Sequence[float] = ()
    copying_s: float | None = None
    """`copied_s`: seconds that copying the outputs took after each burst; `copying_s`: the limit."""
    waited: int = 0
    """How often queueing was abandoned because the calls waited for the device; once or twice may be chance."""
    late_s: Sequence[float] = ()
    """For each burst of the verdict, the most seconds by which the referee read its clock late."""
    kept_from_clock: bool = False
    """Whether too many bursts were late for a reliable verdict."""

    @property
    def proven(self) -> bool:
        """Whether queued calls explain the claims."""
        return self.launch_mode is LaunchMode.QUEUED and self.verdict.charge_s == 0.0

    @property
    def waits(self) -> bool:
        """Whether the calls wait for the device and therefore could not be queued."""
        return _why(self.refused) is RefusalCause.WAITS

    @property
    def unqueued(self) -> bool:
        """Whether the solution made queueing fail, except by waiting for the device."""
        return _why(self.refused) is RefusalCause.FAILS


def _why(refused: Mapping[LaunchMode, BurstRefusal]) -> RefusalCause | None:
    """Return why calls could not be queued, or None if they could."""
    held = refused.get(LaunchMode.QUEUED)
    return None if held is None else held.why


class BackToBackCheck:
    """Check one solution's claims by back-to-back bursts.

    Args:
        burst_runner: Makes one burst.
        known: Calibration of the problem.
        verify: Judges the answers of a burst.
        findings: Receives the findings on calls that every solution must support (launched ones).
    """

    def __init__(
        self,
        burst_runner: BackToBackRunner,
        known: ProblemCalibration,
        verify: Callable[[BackToBackBurst], list[CallVerdict]],
        findings: list[CallVerdict],
    ) -> None:
        self._burst_runner = burst_runner
        self._known = known
        self._verify = verify
        self._findings = findings
        self._indices = range(known.quiet.back_to_back_sets)
        self._seconds: dict[LaunchMode, float] = {}
        self._refused: dict[LaunchMode, BurstRefusal] = {}
        self._copied_s: list[float] = []
        self._late_s: list[float] = []
        self._kept_from_clock = False
        self._waited = 0

    @property
    def starved(self) -> bool:
        """Whether memory for the copies was missing after the solution was loaded.

        There was enough memory before that.
        """
        return any(refused.why is RefusalCause.NO_MEMORY for refused in self._refused.values())

    def measure(self, claimed_s: float, latencies_s: Sequence[float]) -> BackToBackTimes | None:
        """Measure the calls back to back and judge the claims.

        Args:
            claimed_s: Median of the accepted device times, in seconds.
            latencies_s: Claimed latencies, in seconds.

        Returns:
            The times and the verdict; None if they would prove nothing more, or if a finding is a failure.

        Raises:
            ContestantFailed: If the contestant does not answer, or writes to its outputs late.
        """
        if not proves_more(claimed_s, len(self._indices)):
            return None
        latency_s = statistics.median(latencies_s) if latencies_s else None
        launch_mode = LaunchMode.QUEUED
        verdict = self._hold(launch_mode, claimed_s, None)
        if verdict is None:
            # Launch overhead counts as explained only for calls that must be launched one by one. It still counts as
            # the solution's time, unless the reference could not be queued either.
            why, launch_mode = _why(self._refused), LaunchMode.LAUNCHED
            verdict = self._hold(
                launch_mode,
                claimed_s,
                None if why is RefusalCause.FAILS else latency_s,
                by_clock=why in (RefusalCause.WAITS, RefusalCause.FAILS) and self._known.quiet.queued_s is not None,
                whole=why is RefusalCause.FAILS,
            )
        if verdict is None:
            return None
        return BackToBackTimes(
            launch_mode=launch_mode,
            data=(
                "cached"
                if len(self._indices) * self._burst_runner.workspace.set_bytes
                <= self._burst_runner.workspace.device.cache_bytes
                else "cold"
            ),
            verdict=verdict,
            seconds=self._seconds,
            refused=self._refused,
            copied_s=self._copied_s,
            copying_s=copying_s(self._burst_runner.workspace) if self._copied_s else None,
            waited=self._waited,
            late_s=self._late_s,
            kept_from_clock=self._kept_from_clock,
        )

    def _hold(
        self,
        launch_mode: LaunchMode,
        claimed_s: float,
        latency_s: float | None,
        *,
        by_clock: bool = False,
        whole: bool = False,
    ) -> BackToBackVerdict | None:
        """Make bursts of one launch mode and judge the claims by them.

        With `by_clock` the least of all tries counts; with `whole` nothing is subtracted from it.
        """
        calibration = self._known.back_to_back.get(launch_mode)
        if calibration is None:
            return None
        tolerance = TOLERANCES[launch_mode]
        walls_s: list[float] = []
        late, least_s, begin_s = 0, math.inf, time.perf_counter()
        self._late_s = []
        while True:
            held = self._right(launch_mode, Sleep(REST_S, ASLEEP * least_s) if late else AWAKE)
            if held is None:
                return None
            walls_s.append(held.wall_s)
            self._late_s.append(held.late_s)
            late += held.late_s > tolerance.burst_s
            least_s = min(least_s, held.wall_s - held.late_s)
            self._copied_s.append(held.copied_s)
            self._seconds[launch_mode] = min(self._seconds.get(launch_mode, held.claimed_s), held.claimed_s)
            del held  # the next burst's copies reuse this memory: only one burst's memory is reserved
            verdict = judge_back_to_back(
                walls_s,
                calls=len(self._indices),
                claimed_s=claimed_s,
                latency_s=latency_s,
                calibration=calibration,
                tolerance=tolerance,
                by_clock=by_clock,
                whole=whole,
            )
            on_time = len(walls_s) - late
            if on_time >= TRIES or (verdict.charge_s == 0.0 and not by_clock):
                return verdict
            if len(walls_s) >= TRIES + MOST_LATE or (
                len(walls_s) >= TRIES and time.perf_counter() - begin_s > AGAIN_WITHIN_S
            ):
                self._kept_from_clock = True
                return verdict

    def _right(self, launch_mode: LaunchMode, rest: Sleep = AWAKE) -> BackToBackBurst | None:
        """Make one burst; return it if its answers are correct, else None.

        A refusal is noted with its launch mode. Only launched calls must be correct: their wrong answers are findings.
        """
        held = self._asked(launch_mode, rest)
        if isinstance(held, BurstRefusal):
            self._refused[launch_mode] = replace(held, text=one_line(held.text, limit=200))
            return None
        latest = self._verify(held)
        if not held.still():
            raise ContestantFailed(LATE_WRITE)
        wrong = [finding.failure for finding in latest if finding.failure is not None]
        if wrong and launch_mode is not LaunchMode.LAUNCHED:
            self._refused[launch_mode] = BurstRefusal(
                RefusalCause.FAILS, one_line(f"{NOT_RIGHT[launch_mode]}: {wrong[0].reason}", limit=200)
            )
            return None
        self._findings += latest
        return None if wrong else held

    def _asked(self, launch_mode: LaunchMode, rest: Sleep) -> BackToBackBurst | BurstRefusal:
        """Make one burst; repeat it while its calls wait behind the gate.

        It stops after `QUEUE_TRIES` such bursts in all, or after `AGAIN_WITHIN_S` seconds.
        """
        begin_s = time.perf_counter()
        while True:
            held = self._burst_runner.run(self._indices, launch_mode, rest=rest)
            if held != WAITS:
                return held
            self._waited += 1
            if self._waited >= QUEUE_TRIES or time.perf_counter() - begin_s > AGAIN_WITHIN_S:
                return held

    def graph(self, claimed_s: float) -> tuple[float | None, str | None]:
        """Measure calls inside a CUDA graph if they are short enough for it to matter.

        Code need not support capture, so no failure is a verdict. The contestant may be unusable afterwards: ask it for
        nothing more that counts.

        Args:
            claimed_s: Median claimed device time of a call, in seconds.

        Returns:
            Seconds a call, or None; and the reason if capture was tried and failed.
        """
        if claimed_s >= SHORT_S or not graphable(self._burst_runner.workspace):
            return None, None
        try:
            held = self._right(LaunchMode.GRAPH)
        except ContestantFailed as failed:
            return None, one_line(failed.failure.reason, limit=200)
        return (None, self._refused[LaunchMode.GRAPH].text) if held is None else (held.claimed_s, None)

"""Holds a solution's claims against its calls back to back, and asks for a graph of them where calls are short.

Trusted side; used by `session`. Of the three manners (`messages.Manner`) queued calls prove most. Code that waits for
the device in its forward can't be queued, which it is believed at the third time: what is created or loaded for the
first time may wait once. Its calls are launched one after another, and all of its wall time counts then (`claims`).
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
"""Bursts before the wall clock is held against a solution: a machine may be busy for one."""

TOLERANCES: Mapping[LaunchMode, Tolerance] = {LaunchMode.QUEUED: QUEUED, LaunchMode.LAUNCHED: LAUNCHED}

MOST_LATE = 12
"""More bursts for those in which the referee itself was kept from its clock, for longer than what is let pass a burst.
While builds took all 16 processors of a machine with an H200, three tries of 3.6 ms were late by 0.4 to 13 ms each in
seven of ten evaluations, and a call of 0.3 ms was charged up to 2.3 ms for it; with more tries in none of 17."""

REST_S = 5e-3
ASLEEP = 0.7
"""How long the referee sleeps before it opens the gate where it was late before, and for which part of the least that
the calls may take it sleeps behind that. Who has just slept is given a processor sooner, and for some milliseconds."""

AGAIN_WITHIN_S = 5.0
"""No calls are queued again once so much time went by: what a refused queue left behind has to end first."""

NOT_RIGHT = {
    LaunchMode.QUEUED: "not right then",
    LaunchMode.GRAPH: "not right there, as code is whose launches name no stream, which a graph does not hold",
}
"""What is said of wrong answers in a manner in which code need not be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackToBackTimes:
    """A solution's calls without a pause, seconds a call; those of a manner that was `refused` are None.

    `verdict` is the referee's; the figures are claims within it. `data` says whether all sets together fit the cache
    that the device shares (`cached`) or not (`cold`).
    """

    launch_mode: LaunchMode
    data: str
    verdict: BackToBackVerdict
    seconds: Mapping[LaunchMode, float]
    refused: Mapping[LaunchMode, BurstRefusal]
    copied_s: Sequence[float] = ()
    copying_s: float | None = None
    """What copying the outputs aside took behind each burst of queued calls, and how long it may take."""
    waited: int = 0
    """How often queueing them was given up because they waited. Once or twice may be chance."""
    late_s: Sequence[float] = ()
    """Up to how many seconds of each of the verdict's bursts the referee was kept from its clock."""
    kept_from_clock: bool = False
    """Whether that was so in too many of them to be sure of what they say."""

    @property
    def proven(self) -> bool:
        """Whether queued calls explain the claims."""
        return self.launch_mode is LaunchMode.QUEUED and self.verdict.charge_s == 0.0

    @property
    def waits(self) -> bool:
        """Whether its calls wait for the device, so that they could not be queued."""
        return _why(self.refused) is RefusalCause.WAITS

    @property
    def unqueued(self) -> bool:
        """Whether queueing its calls failed for a reason that lies with them, and is not that they wait."""
        return _why(self.refused) is RefusalCause.FAILS


def _why(refused: Mapping[LaunchMode, BurstRefusal]) -> RefusalCause | None:
    """Why calls could not be queued."""
    held = refused.get(LaunchMode.QUEUED)
    return None if held is None else held.why


class BackToBackCheck:
    """Holds one solution's claims against calls back to back.

    `verify` judges a burst's answers; what it says of calls that every solution must be able to make is added to
    `findings`.
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
        """Whether there was no memory for the copies, of which there was enough before the solution was loaded."""
        return any(refused.why is RefusalCause.NO_MEMORY for refused in self._refused.values())

    def measure(self, claimed_s: float, latencies_s: Sequence[float]) -> BackToBackTimes | None:
        """None where nothing is gained, or where a finding is a failure. Raises `ContestantFailed`.

        `claimed_s` is the median of the accepted device times, `latencies_s` are claims too.
        """
        if not proves_more(claimed_s, len(self._indices)):
            return None
        latency_s = statistics.median(latencies_s) if latencies_s else None
        launch_mode = LaunchMode.QUEUED
        verdict = self._hold(launch_mode, claimed_s, None)
        if verdict is None:
            # Where calls have to be launched one by one, and only there, waiting for launches counts as explained. It
            # counts as the solution's time all the same, unless the reference could not be queued either.
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
        """Rule 6 of `claims` on bursts of this manner. Where all that the clock says counts, the least of all tries is
        what it says; with `whole` nothing is taken off that.
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
            if launch_mode is LaunchMode.QUEUED:
                self._copied_s.append(held.copied_s)
            self._seconds[launch_mode] = min(self._seconds.get(launch_mode, held.claimed_s), held.claimed_s)
            del held  # the next burst's copies are to get the memory of these, which was reserved once
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
        """One burst whose answers are right; else why not is noted: only launched ones must be."""
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
        """One burst; again where its calls waited behind the gate, until they did so `QUEUE_TRIES` times in all."""
        begin_s = time.perf_counter()
        while True:
            held = self._burst_runner.run(self._indices, launch_mode, rest=rest)
            if held != WAITS:
                return held
            self._waited += 1
            if self._waited >= QUEUE_TRIES or time.perf_counter() - begin_s > AGAIN_WITHIN_S:
                return held

    def graph(self, claimed_s: float) -> tuple[float | None, str | None]:
        """Seconds a call inside of a graph, where calls are so short that it matters; or why there is none.

        Nothing of worth may be asked of the contestant afterwards: code need not bear being captured, and no failure
        is a verdict.
        """
        if claimed_s >= SHORT_S or not graphable(self._burst_runner.workspace):
            return None, None
        try:
            held = self._right(LaunchMode.GRAPH)
        except ContestantFailed as failed:
            return None, one_line(failed.failure.reason, limit=200)
        return (None, self._refused[LaunchMode.GRAPH].text) if held is None else (held.claimed_s, None)

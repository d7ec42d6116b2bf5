"""Confirm an accusation that rests on the calibration by calibrating again.

Trusted side. Load during calibration raises the cost of trusted code, and honest code then seems to have skipped a
flush (rule 4 of `claims.py`). So trusted code is timed again: first next to the accused process, which is stopped;
then, unless that calibration was calm, once more after the accused process is dead, because its kernels may still run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.core.status import Failure, Status
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.timing.speedup import JudgedTimes


def judge_fairly(
    judge: Callable[[ProblemCalibration | None], JudgedTimes],
    known: ProblemCalibration | None,
    again: Callable[[], ProblemCalibration] | None,
    end: Callable[[], object],
) -> JudgedTimes:
    """Judge by a known calibration, and again by a new one if the first accuses.

    Args:
        judge: Judges the rounds by a calibration; None means that nothing was calibrated.
        known: The calibration so far.
        again: Measures trusted code again and returns the lower of all calibrations so far; None if that is not
            possible (no GPU).
        end: Ends the accused's process.

    Returns:
        The judgement. If the accusation remains but no calibration was calm, the outcome is a `harness_error`.
    """
    judged = judge(known)
    if again is None or not judged.by_calibration:
        return judged
    before = judged
    tries = 0
    for dead in (False, True):
        if dead:
            end()
        latest, tries = again(), tries + 1
        judged = judge(latest)
        if not judged.by_calibration or latest.calm:
            break
    timing = {**judged.timing, "calibrated_again": {"times": tries, "because": before.reason}}
    if judged.by_calibration and not latest.calm:
        return JudgedTimes(
            reason=_IN_DOUBT.reason,
            speedup=None,
            timing=timing,
            failure=replace(_IN_DOUBT, evidence={"in_doubt": judged.reason}),
        )
    return replace(judged, timing=timing)


_IN_DOUBT = Failure(
    status=Status.harness_error,
    reason="other processes disturbed the device throughout, so the claimed times could not be checked: "
    "stop the other processes on this device, then evaluate this solution again",
)

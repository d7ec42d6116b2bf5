"""Confirm an accusation that rests on the calibration by calibrating again.

Trusted side. Load during calibration raises the cost of trusted code, and honest code then seems to have skipped a
flush (rule 4 of `claims.py`). So trusted code is timed again: first next to the accused process, which is stopped;
then, unless that calibration was calm, once more after the accused process is dead, because its kernels may still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from harness.core.status import Failure, Status
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.timing.speedup import JudgedTimes

_IN_DOUBT = Failure(
    status=Status.harness_error,
    reason="other processes disturbed the device throughout, so the claimed times could not be checked: "
    "stop the other processes on this device, then evaluate this solution again",
)


def judge_fairly(
    judge: Callable[..., JudgedTimes], known: ProblemCalibration | None, again: Iterable[ProblemCalibration]
) -> JudgedTimes:
    """Judge by a known calibration, and by new ones if the first accuses.

    Args:
        judge: `judge_times` with all arguments but `known`.
        known: The calibration so far; None if nothing was calibrated.
        again: New calibrations, measured on demand, each the lower of all so far; none if that is not possible (no
            GPU).

    Returns:
        The judgement. If the accusation remains but no calibration was calm, the outcome is a `harness_error`.
    """
    judged = first = judge(known=known)
    if not first.by_calibration:
        return first
    tries, latest = 0, None
    for latest in again:
        tries += 1
        judged = judge(known=latest)
        if not judged.by_calibration or latest.calm:
            break
    if latest is None:
        return first
    timing = {**judged.timing, "calibrated_again": {"times": tries, "because": first.reason}}
    if judged.by_calibration and not latest.calm:
        return JudgedTimes(
            reason=_IN_DOUBT.reason,
            speedup=None,
            timing=timing,
            failure=replace(_IN_DOUBT, evidence={"in_doubt": judged.reason}),
        )
    return replace(judged, timing=timing)

"""Holds up an accusation that rests on what trusted code cost until that has been measured anew.

Trusted side. Imports `timing`. Whatever kept the machine busy while it was calibrated makes honest code look as if it
had left something out (rule 4 of `claims`). So trusted code is timed again: first beside the accused, which is stopped,
then, unless the machine was left alone, once more when the accused is dead, since kernels of its own may run on.
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
    """What `judge` says by `known`, or by what `again` finds out where the former accuses.

    `again` measures trusted code and returns the lower of all that is known of it by then; None stands for what can't
    be measured (no GPU). `end` ends the accused's process. Where the accusation stands only because the machine was
    busy each time, it is none: the outcome is a `harness_error`.
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
    reason="the device was never left alone long enough to tell whether the claimed times are possible: "
    "end what else works on it, and run this again",
)

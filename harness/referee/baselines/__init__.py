"""Measure the reference run in other ways: eager, `torch.compile`, max-autotune.

Trusted side. `BaselineEntry` holds one baseline of one problem; `BaselineKeeper` reads or measures the baselines of a
run. A separate process compiles and measures, so that inductor's workers have ended before a burst of a solution.
"""

from harness.referee.baselines.entry import BaselineEntry, BaselineKey, BaselineOutcome, with_baselines
from harness.referee.baselines.keeper import BaselineKeeper
from harness.referee.baselines.process_handle import BaselineProcess, BaselineRequest, BaselinesLost
from harness.referee.baselines.store import BaselineStore

__all__ = [
    "BaselineEntry",
    "BaselineKeeper",
    "BaselineKey",
    "BaselineOutcome",
    "BaselineProcess",
    "BaselineRequest",
    "BaselineStore",
    "BaselinesLost",
    "with_baselines",
]

"""The reference run in other ways: eager with and without TF32, compiled. Measured apart from solutions, kept, found.

Stages layer, trusted side. `BaselineEntry` is what is known of one baseline of one problem, `BaselineKeeper` finds or
measures what a run asks for, `process` is the process of its own in which all compiling and measuring happens, so that
inductor's workers and autotuning are gone before a burst begins.
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

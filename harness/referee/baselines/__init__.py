"""The reference run in other ways: eager with and without TF32, compiled. Measured apart from solutions, kept, found.

Stages layer, trusted side. `Entry` is what is known of one baseline of one problem, `Keeper` finds or measures what a
run asks for, `process` is the process of its own in which all compiling and measuring happens, so that inductor's
workers and autotuning are gone before a burst begins.
"""

from harness.referee.baselines.entry import Entry, Key, Outcome, with_baselines
from harness.referee.baselines.keeper import Keeper
from harness.referee.baselines.process_handle import BaselineProcess, BaselinesLost, Request
from harness.referee.baselines.store import BaselineStore

__all__ = [
    "BaselineProcess",
    "BaselineStore",
    "BaselinesLost",
    "Entry",
    "Keeper",
    "Key",
    "Outcome",
    "Request",
    "with_baselines",
]

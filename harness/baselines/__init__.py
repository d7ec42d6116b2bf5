"""The reference run in other ways: eager with and without TF32, compiled. Measured apart from solutions, kept, found.

Stages layer, trusted side. `Entry` is what is known of one baseline of one problem, `Keeper` finds or measures what a
run asks for, `process` is the process of its own in which all compiling and measuring happens, so that inductor's
workers and autotuning are gone before a burst begins.
"""

from harness.baselines.entry import Entry, Key, Outcome, with_baselines
from harness.baselines.keeper import Keeper
from harness.baselines.starting import BaselineProcess, BaselinesLost, Request
from harness.baselines.store import BaselineStore

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

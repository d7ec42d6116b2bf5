"""The Python API: evaluate solutions from a script, a training loop or an agent.

    from harness import Harness

    with Harness(device="auto") as h:
        result = h.evaluate("level1/19", source)
        print(result.status, result.speedup)
        print(result.feedback())

Trusted side. All state belongs to a `Harness`, which is safe to use from several threads. The rewards are in
`harness.results.reward`.
"""

from concurrent.futures import as_completed

from harness.api.result import Result, reward
from harness.api.session import Harness, HarnessClosed
from harness.core.preparing import Preparing
from harness.results.columns import to_arrow, to_polars
from harness.results.frame import load_records
from harness.results.reward import RewardPolicy, SpeedShape
from harness.runner.group import Group

__all__ = [
    "Group",
    "Harness",
    "HarnessClosed",
    "Preparing",
    "Result",
    "RewardPolicy",
    "SpeedShape",
    "as_completed",
    "load_records",
    "reward",
    "to_arrow",
    "to_polars",
]

"""The Python API: evaluate solutions from a script, a training loop, an agent.

    from harness import Harness

    with Harness(device="auto") as h:
        result = h.evaluate("level1/19", source)
        print(result.status, result.speedup)
        print(result.feedback())

Outside layer; trusted side. `session` holds `Harness`, `given` checks what it is handed, `flow` has the threads behind
it, `keeper` the folders, `result` is what comes back; the rewards are `harness.results.reward`. No state outside a
`Harness`, which is safe to use from several threads.
"""

from concurrent.futures import as_completed

from harness.api.result import Result, reward
from harness.api.session import Harness, HarnessClosed
from harness.results.reward import RewardPolicy, SpeedShape

__all__ = ["Harness", "HarnessClosed", "Result", "RewardPolicy", "SpeedShape", "as_completed", "reward"]

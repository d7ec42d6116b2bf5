"""What an evaluation gives back: the record, and what loops ask of it.

Outside layer; trusted side. Values only.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from harness.core.record import Record
from harness.core.status import Status
from harness.report.feedback import feedback
from harness.results.reward import DEFAULT_POLICY, RewardPolicy, reward_of
from harness.results.scoring import EAGER, baselines_of, entries_of, main_baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One evaluated solution: its record (the same as in `records.jsonl`), its source, and what its build and its
    process printed.
    """

    record: Record
    source: str
    log: str

    def __hash__(self) -> int:
        """Of what it is found by, so that results can be kept in sets and as keys: a record holds dicts."""
        held = self.record
        return hash((held.problem, held.solution, held.sample, held.workload, held.finished_at, self.source))

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def passed(self) -> bool:
        """Built, right on every input variant, and (where the device times) timed."""
        return self.record.status is Status.passed

    @property
    def reason(self) -> str:
        """One line that a person can act on."""
        return self.record.reason

    @property
    def speedup(self) -> float | None:
        """Against the first of the `baselines` (eager, unless others were asked for); above 1 is faster. None where it
        did not pass or was not timed.
        """
        return self.record.speedup

    @property
    def speedups(self) -> dict[str, float]:
        """Against every baseline that was asked for and has a time, by name."""
        named = (main_baseline(self.record), *baselines_of(self.record), EAGER)
        found = {name: entries_of([self.record], baseline=name)[0].speedup for name in named}
        return {name: speedup for name, speedup in found.items() if speedup is not None}

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the speedup, None where there is none."""
        held = (self.record.timing or {}).get("speedup")
        low, high = (held.get("low"), held.get("high")) if isinstance(held, dict) else (None, None)
        return (float(low), float(high)) if low is not None and high is not None else None

    def feedback(self) -> str:
        """Text for whoever wrote the solution, a model or a person: what failed and where, or how good it is."""
        return feedback(self.record, source=self.source, log=self.log)

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON object, which is the caller's own: whatever becomes of it, this stays as it is."""
        return deepcopy(self.record.to_json())


def reward(result: Result | Record, policy: RewardPolicy = DEFAULT_POLICY) -> float | None:
    """One number for training and search, as `RewardPolicy` documents; None where the record says nothing about the
    solution (a fault of the harness, or something this machine lacks): leave that sample out. Raises `TypeError` for
    what is neither.
    """
    if not isinstance(result, Result | Record):
        raise TypeError(f"a reward is of a Result or a Record, not {type(result).__name__}")
    return reward_of(result.record if isinstance(result, Result) else result, policy)

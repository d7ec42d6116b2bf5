"""The result of an evaluation: the record, with properties for loops.

Trusted side.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from html import escape
from typing import Any

from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.report.feedback import feedback
from harness.report.format import line
from harness.results.reward import DEFAULT_POLICY, RewardPolicy, reward_of
from harness.results.scoring import EAGER, baselines_of, main_baseline, scored


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """One evaluated solution.

    Attributes:
        record: Its record, the same as in `records.jsonl`.
        source: Its source text.
        log: Output of its build and its process.
    """

    record: Record
    source: str
    log: str

    def __repr__(self) -> str:
        """Return one line: the solution, its status, and the speedup or the reason."""
        if self.passed:
            said = "not timed" if self.speedup is None else f"speedup {self.speedup:.3g}"
        else:
            said = line(self.reason, 120)
        return f"<Result {line(self.record.solution, 80)}: {self.status.value}, {said}>"

    def _repr_html_(self) -> str:
        """Return a notebook's view: the status with its colour, and the feedback."""
        colour = "#1a7f37" if self.passed else "#9a6700" if self.status in VERDICT_FREE else "#cf222e"
        style = f"display:inline-block;padding:0 .5em;border-radius:.5em;color:#fff;background:{colour}"
        return (
            f'<div><span style="{style}">{self.status.value}</span> <code>{escape(line(self.record.solution, 200))}'
            f"</code></div><pre>{escape(self.feedback().partition(chr(10))[2].strip())}</pre>"
        )

    def __hash__(self) -> int:
        """Hash the identity of the record: a record holds dicts, which have no hash."""
        held = self.record
        return hash((held.problem, held.solution, held.sample, held.workload, held.finished_at, self.source))

    @property
    def status(self) -> Status:
        """How the evaluation ended."""
        return self.record.status

    @property
    def passed(self) -> bool:
        """Whether it built, was correct on every input variant and, on a GPU, was timed."""
        return self.record.status is Status.passed

    @property
    def reason(self) -> str:
        """The defect and its evidence, in one line."""
        return self.record.reason

    @property
    def speedup(self) -> float | None:
        """Speedup over the first of the `baselines` (by default eager); above 1 is faster.

        None if the solution did not pass or was not timed.
        """
        return self.record.speedup

    @property
    def speedups(self) -> dict[str, float]:
        """Speedup over each requested baseline that has a time: name -> speedup."""
        named = (main_baseline(self.record), *baselines_of(self.record), EAGER)
        found = {name: scored(self.record, name).speedup for name in named}
        return {name: speedup for name, speedup in found.items() if speedup is not None}

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the speedup, or None."""
        held = (self.record.timing or {}).get("speedup")
        low, high = (held.get("low"), held.get("high")) if isinstance(held, dict) else (None, None)
        return (float(low), float(high)) if low is not None and high is not None else None

    def feedback(self) -> str:
        """Return a text for the author: the defect with its place, or the speed.

        The author is a model or a person.
        """
        return feedback(self.record, source=self.source, log=self.log)

    def to_json(self) -> dict[str, Any]:
        """Return a copy of the record as a JSON object."""
        return deepcopy(self.record.to_json())


def reward(result: Result | Record, policy: RewardPolicy = DEFAULT_POLICY) -> float | None:
    """Return one number for training and search.

    Args:
        result: The result or the record of a solution.
        policy: How to compute the reward; see `RewardPolicy`.

    Returns:
        The reward, or None if the record says nothing about the solution (an error of the harness, or missing hardware
        or software): leave this sample out.

    Raises:
        TypeError: `result` is neither a `Result` nor a `Record`.
    """
    if not isinstance(result, Result | Record):
        raise TypeError(f"`result` must be a Result or a Record, not {type(result).__name__}")
    return reward_of(result.record if isinstance(result, Result) else result, policy)

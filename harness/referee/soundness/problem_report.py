"""The report of lint on a problem: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.core.json_value import JsonObject

RULES: Mapping[str, str] = {
    "loads": "the problem loads, its reference runs, and its output can be compared",
    "deterministic": "equal seeds give equal inputs, weights and outputs",
    "finite": "outputs are finite on every input variant that the problem allows",
    "reference_precision": "the reference's error stays below the class's limit by a factor of two",
    "flops": "the declared flops agree with torch's counter",
    "shapes": "the reference also runs at secret sizes, and rejects zeros there",
    "launch_floor": "one call takes at least 1.3 times as long as the launch of an empty kernel (GPU only)",
    "constants": "zeros, a constant and an average row are rejected",
    "previous_output": "the output of another call is rejected",
    "half_written": "a half-written output is rejected",
    "neighbouring_index": "outputs shifted by one, transposed or without their last tile are rejected",
    "moves_with_inputs": "an answer that does not use an input is rejected",
    "moves_with_parameters": "an answer that does not use a parameter is rejected",
    "dropped_tile": "an answer that does not read the last tile of an input is rejected",
    "lower_precision": "an answer computed with less precision than the class is rejected",
    "dropped_operation": "the reference with one operation left out or replaced is rejected, for every operation",
}
"""Every rule, with the statement that holds if the problem keeps it."""


class RuleVerdict(StrEnum):
    """The result of one rule."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCheck(JsonObject):
    """One rule on one problem.

    `details` has a line for every way in which the problem breaks the rule, or the reason why it was not checked.
    `tried` counts the wrong answers shown to the problem. `kernelbench_accepts` names those that KernelBench's rule
    (`allclose`) accepts on the problem's own inputs.
    """

    rule: str
    verdict: RuleVerdict
    tried: int = 0
    details: tuple[str, ...] = ()
    kernelbench_accepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemReport(JsonObject):
    """All rules on one problem at one workload on one device.

    `digest` is that of the problem with its declarations; `processor` is the GPU's name, None on the CPU.
    """

    problem: str
    workload: str
    device: str
    checks: tuple[RuleCheck, ...]
    digest: str = ""
    processor: str | None = None
    notes: tuple[str, ...] = ()
    wall_s: float = 0.0

    @property
    def broken(self) -> tuple[RuleCheck, ...]:
        return tuple(check for check in self.checks if check.verdict is RuleVerdict.BROKEN)

    @property
    def tried(self) -> int:
        """Number of wrong answers shown to the problem."""
        return sum(check.tried for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "workload": self.workload,
            "device": self.device,
            "processor": self.processor,
            "digest": self.digest,
            "passed": not self.broken,
            "checks": [check.to_json() for check in self.checks],
            "notes": list(self.notes),
            "wall_s": self.wall_s,
        }

"""Define errors as values, and the precision classes with their limits.

Trusted side; pure. `compare_float.py` defines how errors are measured, `tolerance.py` draws conclusions from them. See
guides/design/tolerances.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.core.choices import PrecisionClass
from harness.core.json_value import JsonObject, to_json

CONCENTRATED = 1 / 32
"""Standard deviation over RMS of the truth below which its values are long sums of one sign."""

CONCENTRATED_RMS = 5e-4
"""RMS limit of fp32 for such a truth: one float32 accumulator drifts by up to terms * 2**-25, 1.5e-4 at 2**20 terms."""

MOST_RMS = 0.5
"""Rounded inputs never raise an RMS limit beyond this: all zeros have error 1, an answer with a half missing 0.7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLimits(JsonObject):
    """The largest scaled errors that a class allows.

    `note` says why they differ from the table.
    """

    rms: float
    max: float
    note: str = ""

    def admits(self, rms_error: float, max_error: float) -> bool:
        return rms_error <= self.rms and max_error <= self.max


UNLIMITED = ErrorLimits(rms=math.inf, max=math.inf)
"""Limits for callers that need only errors: searching places and patterns beyond limits costs more than measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The largest scaled errors that rounded inputs and weights cause.

    They are errors of one output's truth. Inputs and weights are rounded once to a class.
    """

    precision: PrecisionClass
    rms: float
    max: float


LIMITS: Mapping[PrecisionClass, ErrorLimits] = {
    PrecisionClass.FP32: ErrorLimits(rms=1e-4, max=1e-3),
    PrecisionClass.TF32: ErrorLimits(rms=1.1e-3, max=1.1e-2),
    PrecisionClass.FP16: ErrorLimits(rms=1.3e-3, max=1.3e-2),
    PrecisionClass.BF16: ErrorLimits(rms=1.2e-2, max=1.2e-1),
    PrecisionClass.FP8: ErrorLimits(rms=1.5e-1, max=7.5e-1),
}
"""Limits per class, between the errors of its arithmetic and of the next coarser one.

RMS errors of dot products, simulated on the CPU for 64 to 2**20 terms
(`tests/unit/referee/correctness/test_tolerance.py` repeats a part):

| arithmetic | normal inputs | uniform [0, 1) inputs | limit of its class | next coarser, normal |
|---|---|---|---|---|
| fp32, pairwise sum | 1.6e-7 | 4.7e-8 | 1e-4 | 2.6e-4 |
| fp32, one accumulator, 8,192 terms | 1.4e-6 | 1.1e-6 | 1e-4 | 2.6e-4 |
| the same, 524,288 terms | 9.7e-6 | 4.3e-5 | 1e-4 | 2.6e-4 |
| the same, 1,048,576 terms | 1.4e-5 | 1.5e-4 | 1e-4; uniform: 5e-4, see below | 2.6e-4 |
| tf32 inputs, rounded | 2.6e-4 to 3.4e-4 | 4.2e-5 and less | 1.1e-3 | 1.9e-3 |
| tf32 inputs, truncated | 7.4e-4 to 8.1e-4 | 6.5e-4 | 1.1e-3 | 1.9e-3 |
| fp16 inputs | as tf32 rounded | as tf32 rounded | 1.3e-3 | 1.9e-3 |
| result rounded once to fp16 (kept in float32) | 1.9e-4 to 2.2e-4 | the same | 1.3e-3 | |
| bf16 inputs | 1.9e-3 to 2.7e-3 | 3.5e-4 and less | 1.2e-2 | 3.2e-2 |
| result rounded once to bf16 (kept in float32) | 1.5e-3 to 1.8e-3 | the same | 1.2e-2 | |
| fp8 inputs, e4m3 | 3.2e-2 to 4.3e-2 | 5.9e-3 and less | 1.5e-1 | (a wrong answer: near 1) |
| fp8 inputs, e5m2 | 7.2e-2 to 8.3e-2 | 1.1e-2 and less | 1.5e-1 | (a wrong answer: near 1) |

The limit on single entries is ten times the RMS limit (five times for fp8). On a concentrated truth (`CONCENTRATED`)
the fp32 RMS limit is `CONCENTRATED_RMS`, but at most half the spread. If inputs magnify rounding, the limits of a class
below fp32 are raised (`Sensitivity`). See guides/design/tolerances.md.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One entry of a tensor.

    `got` and `expected` are real numbers. For complex entries, they are the part that differs.
    """

    index: tuple[int, ...]
    got: float | int
    expected: float | int

    def to_json(self) -> dict[str, Any]:
        return {"index": list(self.index), "got": _plain(self.got), "expected": _plain(self.expected)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorComparison:
    """Comparison of one output tensor with the truth.

    `compared` counts the entries that are finite in both (all, for exact types). Errors are None for exact types and if
    nothing was compared. `wrong` counts the entries beyond `wrong_beyond` (scaled) or of another kind; it is determined
    only if a limit is exceeded, and `rest_rms_error` is then the error without them. `borrowed` counts entries that are
    accepted because they equal the float32 reference, if that differs from the truth in kind.
    """

    dtype: str
    shape: tuple[int, ...]
    count: int
    compared: int
    exact: bool
    truth_rms: float | None = None
    truth_spread: float | None = None
    rms_error: float | None = None
    max_error: float | None = None
    rest_rms_error: float | None = None
    non_finite_mismatches: int = 0
    borrowed: int = 0
    wrong: int = 0
    wrong_beyond: float | None = None
    unwritten: int | None = None
    first: Element | None = None
    worst: Element | None = None
    pattern: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; non-finite numbers become strings."""
        value: dict[str, Any] = to_json(replace(self, first=None, worst=None))
        return value | {"first": self.first and self.first.to_json(), "worst": self.worst and self.worst.to_json()}

    def within(self, limits: ErrorLimits) -> bool:
        """Return whether every entry is proven to agree, within these limits."""
        if self.non_finite_mismatches:
            return False
        if self.exact:
            return self.wrong == 0
        if self.compared == 0:
            return True
        return (
            self.rms_error is not None and self.max_error is not None and limits.admits(self.rms_error, self.max_error)
        )


def _plain(value: float | int) -> float | int | str:
    return value if isinstance(value, int) or math.isfinite(value) else str(value)

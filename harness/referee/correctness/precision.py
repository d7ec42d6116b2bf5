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

UNIT = 2.0**-24
"""Unit roundoff of float32: rounding a number to float32 changes it by at most this share."""

LEAST_UNITS = 64
"""Least RMS limit of fp32, in units of roundoff: room for fast-math functions."""

TERMS_A_UNIT, MOST_UNITS = 128, 4096
"""Terms of a long sum that raise this limit by one unit, and its bound, which TF32 exceeds."""

ALIKE_A_UNIT, MOST_ALIKE_UNITS = 3, 8192
"""The same for inputs that make many terms alike."""

LEAST_SINGLE = 1e-3
"""Limit on single entries in fp32: where large terms cancel, an entry keeps their roundings.

Measured on an H200 with inputs of which few are large: up to 4.8e-4 (results/yardstick.md). Errors of that size in more
than a few entries exceed the RMS limit.
"""

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


_SHARES: Mapping[PrecisionClass, tuple[float, float, float]] = {
    PrecisionClass.FP32: (0.0, 0.0, 1.0),
    PrecisionClass.TF32: (1.1e-3, 1.1e-3, 10.0),
    PrecisionClass.FP16: (1.3e-3, 2.0**-11, 10.0),
    PrecisionClass.BF16: (1.2e-2, 2.0**-8, 10.0),
    PrecisionClass.INT8: (2.0e-2, 2.0**-7, 5.0),
    PrecisionClass.FP8_E4M3: (5.7e-2, 5.7e-2, 5.0),
    PrecisionClass.MXFP8: (6.0e-2, 6.0e-2, 5.0),
    PrecisionClass.FP8_E5M2: (1.05e-1, 1.05e-1, 5.0),
    PrecisionClass.FP8: (1.5e-1, 2.0**-4, 5.0),
    PrecisionClass.NVFP4: (1.5e-1, 1.5e-1, 6.0),
    PrecisionClass.INT4: (2.1e-1, 2.1e-1, 4.5),
    PrecisionClass.MXFP4: (2.1e-1, 2.1e-1, 4.5),
}
"""Per class: RMS limits as shares of the truth's spread and of its RMS, and the limit on single entries as a multiple.

Inputs of a class are rounded independently, so a sum loses a share of its spread. A result rounded to the class loses a
share of its magnitude, at most the class's unit roundoff. Tensor cores cut float32 to TF32: that moves all results one
way, by a share of their magnitude.
"""

ROUNDING_FACTOR = 4.0
"""A class's limits are at least this many times the error of rounding inputs and weights to it."""

_ROUNDING_FACTORS: Mapping[PrecisionClass, float] = {
    PrecisionClass.INT8: 2.0,
    PrecisionClass.FP8_E4M3: 1.5,
    PrecisionClass.MXFP8: 1.5,
    PrecisionClass.FP8_E5M2: 1.4,
    PrecisionClass.NVFP4: 1.1,
    PrecisionClass.INT4: 1.25,
    PrecisionClass.MXFP4: 1.25,
}
"""The same where the next coarser class errs less than eight times as much (results/low-precision.md)."""


def rounding_factor(precision: PrecisionClass) -> float:
    """Return the least ratio of a class's limits to the error of rounding to it."""
    return _ROUNDING_FACTORS.get(precision, ROUNDING_FACTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongSum:
    """The terms of a reference's longest sum, and whether inputs make many alike."""

    terms: int = 1
    alike: bool = False


NO_LONG_SUM = LongSum()


def class_limits(precision: PrecisionClass, *, spread: float = 1.0, longest: LongSum = NO_LONG_SUM) -> ErrorLimits:
    """Return the errors that honest arithmetic of a class can have, with a margin.

    One float32 accumulator over n terms errs by at most (n - 1) * `UNIT` times the sum of their magnitudes (N. Higham,
    "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2). Roundings partly cancel: measured are
    up to n / 400 units. But equal terms, or small ones beside a few large ones, are all rounded the same way while the
    sum stays between two powers of two: up to n / 3 units. So fp32 has n / 128 units (terms alike: n / 3), and at least
    64.

    Args:
        precision: The class.
        spread: The truth's standard deviation as a share of its RMS.
        longest: The longest sum that the reference forms (`problem/longest_sum.py`).

    Returns:
        Limits as shares of the truth's RMS. No class has less than fp32.
    """
    terms_a_unit, most = (ALIKE_A_UNIT, MOST_ALIKE_UNITS) if longest.alike else (TERMS_A_UNIT, MOST_UNITS)
    units = min(max(longest.terms / terms_a_unit, LEAST_UNITS), most)
    of_spread, of_rms, single = _SHARES[precision]
    rms = max(UNIT * units, of_spread * spread, of_rms)
    return ErrorLimits(rms=rms, max=max(LEAST_SINGLE, single * rms))


LIMITS: Mapping[PrecisionClass, ErrorLimits] = {precision: class_limits(precision) for precision in PrecisionClass}
"""Limits per class for a truth about zero, without long sums.

They lie between the errors of the class's arithmetic and of the next coarser one.
RMS errors of dot products as shares of their RMS, simulated on the CPU for 64 to 2**20 terms
(`tests/unit/referee/correctness/test_tolerance.py` repeats a part; results/yardstick.md has more):

| arithmetic | normal inputs | uniform [0, 1) inputs | limit of its class (normal) | next coarser, normal |
|---|---|---|---|---|
| fp32, pairwise sum | 1.6e-7 | 4.7e-8 | 3.8e-6 | 2.6e-4 |
| fp32, one accumulator, 8,192 terms | 1.4e-6 | 1.1e-6 | 3.8e-6 | 2.6e-4 |
| the same, 524,288 terms | 9.7e-6 | 4.3e-5 | 2.4e-4 | 2.6e-4 |
| the same, 1,048,576 terms | 1.4e-5 | 1.5e-4 | 2.4e-4 | 2.6e-4 |
| tf32 inputs, rounded | 2.6e-4 to 3.4e-4 | 4.2e-5 and less | 1.1e-3 | 1.9e-3 |
| tf32 inputs, truncated | 7.4e-4 to 8.1e-4 | 6.5e-4 | 1.1e-3 | 1.9e-3 |
| fp16 inputs | as tf32 rounded | as tf32 rounded | 1.3e-3 | 1.9e-3 |
| result rounded once to fp16 (kept in float32) | 1.9e-4 to 2.2e-4 | the same | 1.3e-3 | |
| bf16 inputs | 1.9e-3 to 2.7e-3 | 3.5e-4 and less | 1.2e-2 | 3.2e-2 |
| result rounded once to bf16 (kept in float32) | 1.5e-3 to 1.8e-3 | the same | 1.2e-2 | |
| fp8 inputs, e4m3 | 3.2e-2 to 4.3e-2 | 5.9e-3 and less | 1.5e-1 (e4m3: 5.7e-2) | 7.2e-2 |
| fp8 inputs, e5m2 | 7.2e-2 to 8.3e-2 | 1.1e-2 and less | 1.5e-1 (e5m2: 1.05e-1) | (nvfp4: 1.3e-1) |

results/low-precision.md has the same for formats with a scale for each block.

If inputs magnify rounding, the limits of a class below fp32 are raised (`Sensitivity`). See
guides/design/tolerances.md.
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
class Pointing:
    """How a wrong index output was judged.

    Attributes:
        faults: The rules that indices break (out of range, repeated), in words; empty if none.
        unwritten: Number of entries that were never written.
    """

    faults: str = ""
    unwritten: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorComparison:
    """Comparison of one output tensor with the truth.

    `compared` counts the entries that are finite in both (all, for exact types). Errors are None for exact types and if
    nothing was compared. `wrong` counts the entries beyond `wrong_beyond` (scaled) or of another kind; it is determined
    only if a limit is exceeded, and `rest_rms_error` is then the error without them. `borrowed` counts entries that are
    accepted because they equal the float32 reference, if that differs from the truth in kind. `index_of` is the
    operator whose indices were judged by the values that they point to (`problem/choices.py`). `code` says that the
    output was rounded by the reference and is judged by the values before (`problem/codes.py`).
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
    index_of: str | None = None
    code: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; non-finite numbers become strings.

        `index_of` and `code` are left out if they say nothing.
        """
        value: dict[str, Any] = to_json(replace(self, first=None, worst=None))
        for name in [name for name in ("index_of", "code") if not value[name]]:
            del value[name]
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

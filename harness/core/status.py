"""Statuses of an evaluation, and a failure with its reason and evidence.

Both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.core.json_value import JsonObject


class Status(StrEnum):
    """How the evaluation of one solution ended."""

    passed = "passed"
    """The solution was built, is correct on every input variant, and was timed (on a GPU)."""

    syntax_error = "syntax_error"
    """The file is not valid Python. The reason names the line."""
    no_model_new = "no_model_new"
    """The file defines no class `ModelNew` at its top level."""
    bad_constructor = "bad_constructor"
    """`ModelNew(*get_init_inputs())` raised. It must take the same arguments as the reference `Model`."""
    import_error = "import_error"
    """Importing the file raised, exited or hung. Keep only definitions and builds at module level."""
    compile_error = "compile_error"
    """The compiler or linker rejected the sources. The reason holds the first error with its line."""
    compile_timeout = "compile_timeout"
    """The build exceeded its time limit. Simplify templates, or raise `--compile-timeout`."""

    runtime_error = "runtime_error"
    """`forward` raised a Python or C++ exception. The log holds the traceback."""
    cuda_error = "cuda_error"
    """The GPU reported an error (illegal access, bad launch, device-side assert) during the solution's calls."""
    crashed = "crashed"
    """The solution's process died: a signal, `abort`, `os._exit`."""
    timeout = "timeout"
    """One call, or all calls and checks together, exceeded the time limit: endless loop, deadlock, or far too slow."""
    out_of_memory = "out_of_memory"
    """The solution exceeded its limit of GPU or host memory."""

    wrong_structure = "wrong_structure"
    """The output's structure (tensor, tuple, list, dict, and their lengths) differs from the reference's."""
    wrong_shape = "wrong_shape"
    """An output tensor's shape differs from the reference's."""
    wrong_dtype = "wrong_dtype"
    """An output tensor's dtype differs from the reference's."""
    wrong_device = "wrong_device"
    """An output tensor is on another device than the reference's. Return it on the device of the inputs."""
    wrong_value = "wrong_value"
    """An output has errors that aren't those of rounding. The reason says how many elements, how far, where."""
    non_finite = "non_finite"
    """An output has NaN or infinity at an element that is finite in the reference, or the reverse."""
    low_precision = "low_precision"
    """The output's errors look like rounding to a coarser precision class than the problem requires."""
    wrong_state = "wrong_state"
    """Parameters, or state that the reference updates (running statistics, caches), differ from the reference's."""
    mutated_input = "mutated_input"
    """The solution modified an input that the reference does not modify."""

    data_race = "data_race"
    """Two threads access the same memory without synchronisation, at least one writes: often a missing barrier."""
    memory_error = "memory_error"
    """A kernel accesses memory out of bounds, misaligned, or after it was freed."""
    uninitialised_read = "uninitialised_read"
    """A kernel reads memory that nothing wrote."""
    barrier_error = "barrier_error"
    """Not all threads reach a barrier or warp collective that needs all of them."""

    disqualified = "disqualified"
    """The evidence shows manipulation of the measurement or the answer, or the run's policy refuses the solution."""
    not_emulated = "not_emulated"
    """Host device only: the sources use a construct that the host device does not implement. Not a verdict; run it on
    a GPU."""
    unsupported = "unsupported"
    """The solution requires hardware or software that this machine lacks (checked by the harness). Not a verdict."""
    harness_error = "harness_error"
    """The harness, the problem or the machine failed, not the solution. Run it again after the fix."""


VERDICT_FREE = frozenset({Status.harness_error, Status.not_emulated, Status.unsupported})
"""Statuses that say nothing about whether the solution is correct."""

FAILED = "failed"
"""Selects every status but `passed`."""

STATUS_CHOICES = (FAILED, *(item.value for item in Status))
"""What `--status` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(JsonObject):
    """Why a solution did not pass.

    Attributes:
        status: Any status but `passed`.
        reason: One line that a person can act on.
        evidence: JSON values for the record.
        detail: The whole text (traceback, compiler output) for the log.
    """

    status: Status
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.passed:
            raise ValueError("a failure needs a status other than passed")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"a reason must be one non-empty line, not {self.reason!r}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """Inverse of `to_json`.

        Raises:
            ValueError: A field is missing or has another type.
        """
        status, reason, evidence, detail = (value.get(k) for k in ("status", "reason", "evidence", "detail"))
        if not (isinstance(status, str) and isinstance(reason, str) and isinstance(evidence, dict)):
            raise ValueError("a failure needs `status` and `reason` as texts and `evidence` as an object")
        return cls(status=Status(status), reason=one_line(reason), evidence=evidence, detail=str(detail or ""))


def one_line(text: str, *, limit: int = 500) -> str:
    """Fold `text` into one non-empty line of at most `limit` characters."""
    folded = " ".join(text.split()) or "no message"
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"

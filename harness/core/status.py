"""How an evaluation ended: the statuses, and a failure with its reason and evidence.

Imports nothing of the harness. Both sides of the trust boundary use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How the evaluation of one solution ended."""

    passed = "passed"
    """Built, right on every input variant, and (where the device times) timed."""

    syntax_error = "syntax_error"
    """The file is not valid Python. The reason names the line; fix it there."""
    no_model_new = "no_model_new"
    """The file defines no class `ModelNew`. Name the module class exactly so, at the top level."""
    bad_constructor = "bad_constructor"
    """`ModelNew(*get_init_inputs())` raised. Take the same constructor arguments as the reference `Model`."""
    import_error = "import_error"
    """Importing the file raised, exited or hung. Nothing but definitions and builds belongs at module level."""
    compile_error = "compile_error"
    """The compiler or linker refused the sources. The reason holds the first error with its line."""
    compile_timeout = "compile_timeout"
    """The build did not finish in its time limit. Simplify templates, or raise `--compile-timeout`."""

    runtime_error = "runtime_error"
    """`forward` raised a Python or C++ exception. The log holds the traceback."""
    cuda_error = "cuda_error"
    """The GPU reported an error (illegal access, bad launch, device-side assert) during the solution's calls."""
    crashed = "crashed"
    """The process running the solution died: a signal, `abort`, `os._exit`."""
    timeout = "timeout"
    """A call, or all calls and checks together, did not finish in their time limit: an endless loop, a deadlock, or far
    too slow."""
    out_of_memory = "out_of_memory"
    """The solution asked for more GPU or host memory than it may have."""

    wrong_structure = "wrong_structure"
    """The output's tree (tensor, tuple, list, dict, and their sizes) is not the reference's."""
    wrong_shape = "wrong_shape"
    """An output tensor's shape differs from the reference's."""
    wrong_dtype = "wrong_dtype"
    """An output tensor's dtype differs from the reference's."""
    wrong_device = "wrong_device"
    """An output tensor is on another device than the reference's: return it where the inputs are."""
    wrong_value = "wrong_value"
    """An output is too far from the truth at any precision class. The reason says how many, how far, where."""
    non_finite = "non_finite"
    """NaN or infinity where the reference is finite, or the other way round."""
    low_precision = "low_precision"
    """Right, but only at a lower precision class than the problem states."""
    wrong_state = "wrong_state"
    """State that the reference updates (running statistics, caches), or its parameters, could not be matched."""
    mutated_input = "mutated_input"
    """The solution changed an input that the reference leaves alone."""

    data_race = "data_race"
    """Two threads touch the same memory without synchronisation, at least one writing: often a missing barrier."""
    memory_error = "memory_error"
    """An access outside an array, or misaligned, or to freed memory."""
    uninitialised_read = "uninitialised_read"
    """A kernel reads memory that nothing wrote."""
    barrier_error = "barrier_error"
    """A barrier or warp collective that not all of its threads reach."""

    disqualified = "disqualified"
    """The measurement or the answer was tampered with, as the evidence shows, or the run's policy refuses it."""
    not_emulated = "not_emulated"
    """Host device only: the sources use a construct that the CPU can't execute. Not a verdict; try on a GPU."""
    unsupported = "unsupported"
    """The solution needs something that this device or machine does not have. Not a verdict."""
    harness_error = "harness_error"
    """A fault of the harness, the problem or the machine, never of the solution. Run it again after the fix."""


VERDICT_FREE = frozenset({Status.harness_error, Status.not_emulated, Status.unsupported})
"""Statuses that say nothing about whether the solution is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a solution did not pass, as a value.

    `reason` is one line that a person can act on; `evidence` holds JSON values for the record; `detail` is the
    whole text (traceback, compiler output) for the log.
    """

    status: Status
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.passed:
            raise ValueError("a failure can't have the status passed")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"a reason is one line of text, not {self.reason!r}")

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status.value,
            "reason": self.reason,
            "evidence": dict(self.evidence),
            "detail": self.detail,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """The inverse of `to_json`. Raises `ValueError` where a field is missing or of another type."""
        status, reason, evidence, detail = (value.get(k) for k in ("status", "reason", "evidence", "detail"))
        if not (isinstance(status, str) and isinstance(reason, str) and isinstance(evidence, dict)):
            raise ValueError("a failure has a status, a reason and evidence")
        return cls(status=Status(status), reason=one_line(reason), evidence=evidence, detail=str(detail or ""))


def one_line(text: str, *, limit: int = 500) -> str:
    """`text` folded into one non-empty line of at most `limit` characters."""
    folded = " ".join(text.split()) or "no message"
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"

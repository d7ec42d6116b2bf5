"""Convert a contestant's exception or death to a verdict, using its findings.

Trusted side. All inputs are claims of the contestant's process, and select among statuses that convict. `not_emulated`,
which counts nowhere, needs more evidence (`explained`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.status import Failure, Status, one_line
from harness.protocol.messages import Broken, Stage
from harness.referee.contestants.findings import failure_of_reports

MAX_REASON = 600
"""Most characters of a reason that names a finding and its consequence."""

REFUSAL = "not emulated on the host device: "
"""Prefix of the host device's own exceptions, followed by the report's message (`hostcuda.torch_lacking`)."""

_OUT_OF_MEMORY = (
    "out of memory",
    "cudaerrormemoryallocation",
    "cannot allocate memory",
    "can't allocate memory",
    "status_alloc_failed",
)
_CUDA = ("cuda error", "cudaerror", "cublas_status", "cudnn_status", "device-side assert", "cuda driver error")


def failure_of(broken: Broken) -> Failure:
    """Convert a reported exception to a failure; its text only selects the status."""
    message = one_line(f"{broken.kind}: {broken.message}", limit=300)
    lowered = message.lower()
    evidence: dict[str, object] = {
        "stage": broken.stage.value,
        "exception": broken.kind[:200],
        "call": broken.call,
    }
    short = broken.kind in ("OutOfMemoryError", "MemoryError") or any(mark in lowered for mark in _OUT_OF_MEMORY)
    if short or "cublas_status_not_initialized" in lowered:  # raised if a handle gets no memory
        evidence["short_of_memory"] = True
    if broken.stage is Stage.ATTACH:
        status, reason = Status.harness_error, f"the contestant could not be prepared: {message}"
    elif short:
        status, reason = Status.out_of_memory, message
    elif broken.kind == "AcceleratorError" or any(mark in lowered for mark in _CUDA):
        status, reason = Status.cuda_error, _first_sentence(message)
    elif "error building extension" in lowered or ("ninja" in lowered and "build" in lowered):
        status, reason = Status.compile_error, message
    elif broken.kind == "NoModelNew":
        status, reason = Status.no_model_new, broken.message
    elif broken.kind in ("SyntaxError", "IndentationError", "TabError") and broken.stage is Stage.IMPORT:
        status, reason = Status.syntax_error, message
    elif broken.stage is Stage.IMPORT:
        status, reason = Status.import_error, message
    elif broken.stage is Stage.CONSTRUCT:
        status, reason = Status.bad_constructor, message
    else:
        status, reason = Status.runtime_error, message
    return Failure(status=status, reason=one_line(reason), evidence=evidence, detail=broken.trace)


def standing(failure: Failure, stood_in: Mapping[str, Any] | None) -> Failure:
    """Add the process's last position to the failure of a process that died.

    Args:
        failure: The failure.
        stood_in: Last position (`CrashReport.stood_in`) with its line in the solution's file; None if unknown. For a
            signal, `kernel` and `line` are its place. For a process that was killed they are the running kernel and its
            launch, and `launch` is the launch's number. Without `kernel` it was outside of kernels, and `last_kernel`
            was the last one.

    Returns:
        The failure with the position in reason and evidence.
    """
    if stood_in is None:
        return failure
    kernel, last = (str(stood_in.get(name) or "")[:200] for name in ("kernel", "last_kernel"))
    on = f"line {stood_in['line']}" if stood_in.get("line") is not None else ""
    if not (kernel or last or on):
        return failure
    if on and (file := str(stood_in.get("file") or "")[:100]) and not file.endswith(".py"):
        on += f" of {file}"
    if kernel:
        where = f"in kernel {kernel}"
        on = f"launched on {on}" if on and "launch" in stood_in else on
    else:
        where = f"outside of kernels, after {last}" if last else "outside of kernels"
    where = ", ".join(part for part in (where, on, str(stood_in.get("message") or "")[:100]) if part)
    return replace(
        failure,
        reason=one_line(f"{failure.reason}; it was {where}", limit=MAX_REASON),
        evidence={**failure.evidence, "stood_in": dict(stood_in)},
    )


_MAY_COME_OF_LACKING = frozenset(
    {Status.import_error, Status.bad_constructor, Status.runtime_error, Status.cuda_error, Status.crashed}
)
"""Failures that a feature missing on the host device may cause: code that checks each CUDA call ends its process if one
fails. A syntax error, for example, has other causes.
"""


def explained(failure: Failure, reports: Sequence[Mapping[str, Any]]) -> Failure:
    """Combine an exception or death with the findings that came with it.

    The gravest finding becomes the verdict, since it is nearer to the cause; the end follows in the reason.
    `evidence.ended_as` has the status that the end alone would have, and rewards take the lower of the two. So a forged
    finding gains nothing. `not_emulated` counts only if the failure can result from it. See
    guides/design/contestants.md.

    Args:
        failure: The exception or death.
        reports: Findings with their lines in the solution's file.

    Returns:
        The verdict; `failure` with the reports as evidence, if no report decides.
    """
    if not reports:
        return failure
    evidence = {**failure.evidence, "reports": [dict(report) for report in reports]}
    found = failure_of_reports([report for report in reports if _counts(report, failure)])
    if found is None:
        return replace(failure, evidence=evidence)
    died = "exit_code" in failure.evidence or "timeout_s" in failure.evidence
    ended = "then" if died else "it ended with"
    return Failure(
        status=found.status,
        reason=one_line(f"{found.reason}; {ended} {failure.reason}", limit=MAX_REASON),
        evidence={**evidence, "ended_as": failure.status.value},
        detail=failure.detail,
    )


def _counts(report: Mapping[str, Any], failure: Failure) -> bool:
    if report.get("kind") != Status.not_emulated.value:
        return True
    if failure.status not in _MAY_COME_OF_LACKING:
        return False
    return bool(report.get("kernel")) or f"{REFUSAL}{report.get('message')}" in failure.detail


def _first_sentence(message: str) -> str:
    for mark in (" CUDA kernel errors might", " Compile with `TORCH_USE_CUDA_DSA`", " For debugging"):
        message = message.split(mark)[0]
    return message

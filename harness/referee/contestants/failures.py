"""What an exception in a contestant means, or its death: the verdict, and that in the light of what the checks found.

Pure. All of it is claims of the contestant's process: they pick a status among those that convict. The one that counts
nowhere, `not_emulated`, needs more; see `explained`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.status import Failure, Status, one_line
from harness.protocol.messages import Broken, Stage
from harness.referee.contestants.findings import failure_of_reports

MAX_REASON = 600
"""Characters of a reason that names a finding and what it led to."""

REFUSAL = "not emulated on the host device: "
"""How the host device's own exceptions begin; what follows is the report's message (`hostcuda.torch_lacking`)."""

_OUT_OF_MEMORY = (
    "out of memory",
    "cudaerrormemoryallocation",
    "cannot allocate memory",
    "can't allocate memory",
    "status_alloc_failed",
)
_CUDA = ("cuda error", "cudaerror", "cublas_status", "cudnn_status", "device-side assert", "cuda driver error")


def failure_of(broken: Broken) -> Failure:
    """The verdict on an exception that the contestant reported. Its words are claims: they only pick a status."""
    message = one_line(f"{broken.kind}: {broken.message}", limit=300)
    lowered = message.lower()
    evidence: dict[str, object] = {
        "stage": broken.stage.value,
        "exception": broken.kind[:200],
        "call": broken.call,
    }
    short = broken.kind in ("OutOfMemoryError", "MemoryError") or any(mark in lowered for mark in _OUT_OF_MEMORY)
    if short or "cublas_status_not_initialized" in lowered:  # which is what a handle says that found no memory
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
    """`failure` of a process that died, with where it stood by then (`postmortem.Remains`), its line placed.

    Of one that a signal ended `kernel` and `line` say where that came. Of one that was killed they name the kernel that
    ran and its launch, whose number is `launch`. Neither has a kernel outside of kernels; `last_kernel` began before.
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
        reason=one_line(f"{failure.reason}; it stood {where}", limit=MAX_REASON),
        evidence={**failure.evidence, "stood_in": dict(stood_in)},
    )


_MAY_COME_OF_LACKING = frozenset(
    {Status.import_error, Status.bad_constructor, Status.runtime_error, Status.cuda_error, Status.crashed}
)
"""Failures that something the host device lacks may lead to: code that checks each CUDA call ends its process where one
fails. A file that is no Python, say, is that anywhere."""


def explained(failure: Failure, reports: Sequence[Mapping[str, Any]]) -> Failure:
    """`failure`, told by an exception or a death, in the light of the `reports` that came with it, their lines placed.

    A finding is nearer to the cause than the exception that followed: a launch check says "illegal memory access" and
    no more. So the gravest finding is the verdict, as for calls that return, and the end is told behind it. The
    evidence has the `reports`, and under `ended_as` the status that the end alone would have had: rewards take the
    lower of the two.

    Reports are claims, so none may be worth something to whoever makes it up. Those that convict are worth nothing,
    given `ended_as`. `not_emulated` is in no share, so it counts only where the failure can come of it: a kernel was
    ended by what it lacks, after which CUDA fails at everything, or the traceback names what the host device refused. A
    refusal that was caught hides no other mistake. Who forges all of that gets no verdict, which needs no exception: a
    submission may as well send such a report with its answers. The guide on trust says so, and scores come from GPUs.
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

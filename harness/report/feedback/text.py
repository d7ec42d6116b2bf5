"""Compose a feedback text: heading, then the sections for its status.

Pure functions. Every fragment that a submission can influence goes through `report.format`, so the text can be printed,
logged or put into a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.core import labels
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.report import format as show
from harness.report.feedback import failed, passed
from harness.report.feedback.reports import reports
from harness.results.evidence import finite, mapping, positive, rows, text

Section = tuple[str, Sequence[str]]
"""A heading and its lines."""


def feedback(record: Record, *, source: str | None = None, log: str | None = None) -> str:
    """Write the feedback for the author of a solution: text with a final line feed.

    `source` is quoted only if its digest is that of the evaluated file, the end of `log` only if an exception ended the
    solution.
    """
    if source is not None and record.solution_digest and digest_text(source) != record.solution_digest:
        source = None
    sections: list[Section] = [("", _heading(record))]
    if record.status is Status.passed:
        sections += [*passed.sections(record), ("Reports", reports(record, source))]
    else:
        sections += failed.sections(record, source=source, log=log)
    sections.append(("At secret sizes", _secret(record)))
    sections.append(("At the problem's small sizes", _small(record)))
    sections.append(("Labels", [f"{show.line(name, 60)}: {_label(name)}" for name in record.labels]))
    parts = []
    for heading, lines in sections:
        if not lines:
            continue
        indent = "  " if heading else ""
        parts.append("\n".join([*([heading] if heading else []), *(f"{indent}{line}".rstrip() for line in lines)]))
    return "\n\n".join(parts) + "\n"


def _heading(record: Record) -> list[str]:
    status = record.status.value.replace("_", " ")
    where = f"{show.line(record.problem, 60)}, {show.line(record.solution, 160)}"
    device = " on the host device (CUDA executed on the CPU)" if record.device.value == "host" else ""
    heading = f"{where}: {status}{device}"
    return [heading] if record.status is Status.passed else [heading, _meaning(record.status)]


_ABOUT_RECORDS = ("The reason ", "The log ")
"""Beginnings of sentences that say where a record has more: here it follows."""


def _meaning(status: Status) -> str:
    sentences = show.explain(status).split(". ")
    kept = ". ".join(text for text in sentences if not text.startswith(_ABOUT_RECORDS))
    return kept if kept.endswith(".") else f"{kept}."


def _small(record: Record) -> list[str]:
    """Return the result on the small workload, if it did not pass."""
    status, reason = (text(record.evidence, "small_workload", name) for name in ("status", "reason"))
    return [f"{show.line(status, 40)}: {show.line(reason, 400)}"] if status not in ("", "passed") else []


def _secret(record: Record) -> list[str]:
    """Return the verdict at each secret shape, and the score if there is one."""
    lines = []
    for row in rows(record.evidence, "shapes", "verdicts"):
        speedup = finite(mapping(row, "speedup").get("speedup"))
        timed = "" if speedup is None else f", {show.speedup(speedup)}"
        passed = text(row, "status") == Status.passed.value
        why = timed if passed else f": {show.line(text(row, 'reason'), 300)}"
        lines.append(f"{show.sizes(row.get('sizes'))}: {show.line(text(row, 'status'), 40)}{why}")
    shapes = mapping(record.timing, "shapes")
    shown, gap = (positive(mapping(shapes, name).get("speedup")) for name in ("shown", "gap"))
    if shown is not None and gap is not None:
        lines.append(
            f"The result is the {'weighted ' if shapes.get('weighted') else ''}geometric mean over these sizes. At the "
            f"shown sizes it is {show.speedup(shown)}, {show.digits(gap)} times as much; times and kernels are those."
        )
    if lines:
        lines.append("Each run draws other sizes.")
    return lines


LABELS = {
    "static_buffer": "every call returns the same memory, so a second call overwrites the result of the first",
    "other_layout": "an output has another memory layout than the reference's; converting it is part of the measured "
    "time",
    "coerced_device": "an output was on another device; copying it is part of the measured time",
    "busy_host": "other work kept the machine so busy that the measured times include it",
    "waits_for_device": "forward waits for the GPU, or takes long to submit; this wait is part of the measured time",
    "not_queued": "calls fail or are wrong when they are submitted as one queued batch, so the measured time includes "
    "launch overhead",
    "not_relaunched": "another process could not repeat the GPU work of a call, because host code is part of it",
    "slower_relaunched": "another process that repeats the GPU work of a call needs longer; the longer time counts",
    "unexplained_time": "the claimed times are shorter than the harness's clock allows; the longer times count",
    "disturbed_baseline": "the reference was slower next to this solution than before it; the earlier time counts",
    "reads_unset_shared": "a kernel reads shared memory that was never written, but no output depends on it",
    "varies_between_calls": "the same inputs give different values in two calls, although all are correct",
    "specialised_shape": "correct at the evaluated sizes, but wrong or failing at the problem's small sizes",
    "one_shape": "the problem has no other sizes at which the solution could be judged",
    "faster_at_shown_sizes": "at the shown sizes the speedup is at least 1.25 times that at secret sizes",
    "leaks_memory": "every call allocates memory that is never freed",
    "disturbed": "other programs used the GPU, or it was throttled, during timing: time it again before you compare",
    "torch_only": "the file has no kernel of its own (extension, NVRTC or a DSL such as Triton): torch does the work",
    "library_only": "all kernels that ran belong to libraries (torch, cuBLAS, cuDNN, CUB, torch.compile)",
    "falls_back": "own kernels ran, but libraries do nearly all of the work: check whether a fallback path is taken",
    "kernelbench_verdict": "the verdict was imported from KernelBench",
    "baseline_from_other_hardware": "the baseline was timed on another GPU, so the speedup also compares GPUs",
    "excessive_speedup": "KernelBench flags the speedup as excessive: look at the solution",
    "implausible_time": "an imported time is shorter or longer than any call takes, so there is no speedup",
}
"""Label -> its meaning for the author."""


def _label(name: str) -> str:
    return LABELS.get(name) or labels.LABELS.get(name, "an observation of the harness; it does not change the verdict")

"""The text of a record: heading, then the sections that its status calls for.

Pure; see the package. Every fragment that a submission had a say in goes through `report.format`, so that the text
can be printed, logged or put into a prompt as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.core import labels
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.report import format as show
from harness.report.feedback import failed, passed
from harness.report.feedback.evidence import mapping, text
from harness.report.feedback.reports import reports

Section = tuple[str, Sequence[str]]
"""A heading and its lines."""


def feedback(record: Record, *, source: str | None = None, log: str | None = None) -> str:
    """What the author of `record`'s solution can use, as plain text that ends with a line end.

    `source` is the solution's file; it is quoted only where it is the very file that was judged (by its digest).
    `log` is the text of its log; the end of it is quoted where an exception ended the solution.
    """
    if source is not None and record.solution_digest and digest_text(source) != record.solution_digest:
        source = None
    sections: list[Section] = [("", _heading(record))]
    if record.status is Status.passed:
        sections += [*passed.sections(record), ("Reports", reports(record, source))]
    else:
        sections += failed.sections(record, source=source, log=log)
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
    device = " on the host device (CUDA sources on the CPU)" if record.device.value == "host" else ""
    heading = f"{where}: {status}{device}"
    return [heading] if record.status is Status.passed else [heading, show.explain(record.status)]


def _small(record: Record) -> list[str]:
    """What became of the check at other sizes, where it did not pass."""
    held = mapping(record.evidence, "small_workload")
    status = text(held, "status")
    return [f"{show.line(status, 40)}: {show.line(text(held, 'reason'), 400)}"] if status not in ("", "passed") else []


LABELS = {
    "static_buffer": "every call returns the same memory; a caller who keeps two results sees the second in both",
    "other_layout": "an output's elements lay in another order than the reference's; putting them in order counts",
    "coerced_device": "an output was on another device and was copied over inside the timed call",
    "busy_host": "the machine was so busy with other work that its calls were charged for it",
    "waits_for_device": "forward waits for the GPU, or takes long to submit, and that wait counts as its time",
    "not_queued": "calls that are all submitted before the first begins fail or are wrong: launching them counts too",
    "unexplained_time": "the claimed times did not explain the harness's own clock; the longer times count",
    "disturbed_baseline": "the reference was slower beside this solution than before it; the earlier time counts",
    "reads_unset_shared": "a kernel reads shared memory that nothing wrote, and no answer depended on it",
    "varies_between_calls": "the same inputs do not give the same values twice, though all are right",
    "specialised_shape": "right at the sizes asked for, wrong or failing at the problem's small ones",
    "leaks_memory": "every call takes memory that none gives back",
    "disturbed": "others worked on the GPU, or it was throttled, while it was timed: time it again before comparing",
    "torch_only": "the file brings no kernel of its own, by extension, Triton or NVRTC: torch does the work",
    "library_only": "all kernels that ran are a library's (torch, cuBLAS, cuDNN, CUB, torch.compile)",
    "falls_back": "it has kernels of its own, but others do nearly all of the work: look for a fallback that is taken",
    "kernelbench_verdict": "the verdict is KernelBench's own, imported",
    "baseline_from_other_hardware": "the baseline was timed on another GPU, so that the speedup compares GPUs too",
}
"""What a label means to the author."""


def _label(name: str) -> str:
    return LABELS.get(name) or labels.LABELS.get(name, "noted by the harness; it convicts nobody")

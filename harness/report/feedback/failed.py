"""Feedback on a failed solution: reason, source line, outputs, advice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.report import format as show
from harness.report.feedback.log import log_end
from harness.report.feedback.reports import quoted, reports, stood_in
from harness.results import evidence as read

Section = tuple[str, Sequence[str]]

MAX_OUTPUTS = 4
EXCEPTIONS = (
    *(Status.runtime_error, Status.import_error, Status.bad_constructor),
    *(Status.cuda_error, Status.crashed, Status.out_of_memory),
)
"""Statuses whose log has details beyond the reason."""

VARIANTS = {
    "own": "the problem's own inputs",
    "zero_mean": "values around zero",
    "large_values": "rare large values",
    "structured": "structured values (one-hot, ramps)",
}

FEW = 0.01
"""Largest share of wrong values that counts as few."""

_ROUNDED = "convert no inputs or sums to it, accumulate in float32, and check that no term is missing."
_NARROW = ("int8", "fp8_e4m3", "mxfp8", "fp8_e5m2", "fp8", "nvfp4", "int4", "mxfp4")
ROUNDED = {
    "tf32": "The error is as large as TF32's: do not use TF32 tensor cores, or split each factor into two TF32 values. "
    "Or a term is missing.",
    "fp16": f"The error is as large as float16's: {_ROUNDED}",
    "bf16": f"The error is as large as bfloat16's: {_ROUNDED}",
    **dict.fromkeys(_NARROW, f"The error is as large as that of a type of 8 bits or less: {_ROUNDED}"),
    "fp32": "Accumulate in float32, convert no summand to a lower precision, and check that no term is missing.",
}
"""Advice by the precision class that the output reaches."""

ONLY = {
    "zero_mean": "Only values around zero show the mistake; the problem's own inputs hide it. Likely cause: a missing "
    "term, or arithmetic of too low precision.",
    "large_values": "Only rare large values show the mistake. Likely cause: an overflow, or a sum that loses small "
    "terms.",
    "structured": "Only structured inputs show the mistake. Likely cause: an index that is off at a border.",
}
"""Likely causes if only one input variant fails."""


BY_PATTERN = {
    ("all zero",): "All values are zero: check that the kernel runs and that it stores its result.",
    ("diagonal",): "The wrong values follow the diagonal: check the comparison of row and column, < or <=.",
    ("partial tile", "the last"): "The wrong values are at a border: check the bounds check of the last tile.",
    ("transposed",): "The values are correct but in the wrong places: rows and columns are swapped.",
    ("constant factor",): "All values are off by one factor: check the scale, the mean and the number of summed terms.",
    ("every ", "shifted"): "The wrong places repeat: check how threads map to indices.",
}
"""Words in the pattern of the wrong values -> advice; the first entry that fits counts."""

BY_STATUS = {
    Status.memory_error: "Compare the index with the size before the access, with < and not <=, also in the last "
    "block.",
    Status.uninitialised_read: "Write all memory before it is read: allocate with zeros, or let every thread write its "
    "part.",
    Status.data_race: "Put a barrier (__syncthreads()) between the two accesses, or let only one thread use the "
    "memory.",
    Status.barrier_error: "Make every thread of the block reach the barrier: no return or branch may skip it.",
}


def sections(record: Record, *, source: str | None, log: str | None) -> list[Section]:
    """Return the sections for a record that did not pass."""
    late = record.evidence.get("failed_while") == "timing"
    when = ["The first checks passed; this was found in a timed call."] if late else []
    reason = show.line(record.reason, 600)
    compiler, quote = _compiler_error(record, source)
    if compiler and compiler in reason:
        found: list[Section] = [("What failed", [reason, *quote, *when])]
    else:
        found = [("What failed", [reason, *when]), ("Compiler error", [compiler, *quote] if compiler else [])]
    found += _outputs(record, reason)
    found.append(("Inputs", _variants(record)))
    found.append(("Where it stopped", stood_in(record, source)))
    found.append(("Reports", reports(record, source)))
    found.append(("State", _state(record)))
    if record.status in EXCEPTIONS and log and log.strip():
        end = log_end(show.block(log, 20_000), record.solution.rpartition("/")[2])
        found.append(("End of the log", end))
    found.append(("What to do", _advice(record)))
    return found


def _compiler_error(record: Record, source: str | None) -> tuple[str, list[str]]:
    """Return the first compiler error with its place, and the quoted source lines."""
    error = read.mapping(record.build, "compiler_error") or read.mapping(record.evidence, "error")
    message = read.text(error, "message")
    if not message:
        return "", []
    place = show.line(read.text(error, "file") or read.text(error, "tool"), 80)
    line, in_file = read.whole(error, "line"), read.whole(error, "solution_line")
    place += f", line {line}" if line is not None else ""
    place += f" (line {in_file} of the solution)" if in_file is not None else ""
    told = f"{place}: {show.line(message, 400)}"
    if source is not None and in_file is not None:
        return told, quoted(source, in_file)
    text = read.text(error, "text").strip()
    return told, [f"> {in_file or line or ''} | {show.line(text, 160)}"] if text else []


def _outputs(record: Record, reason: str) -> list[Section]:
    """Return a section for each wrong output, without what the reason says."""
    wrong = [output for output in read.rows(record.evidence, "outputs") if _is_wrong(output)]
    more = [(f"{len(wrong) - MAX_OUTPUTS} more outputs are wrong", ["not listed here"])]
    shown: list[Section] = [
        (f"Where {_name(output)} differs", _output(output, reason if number == 0 else ""))
        for number, output in enumerate(wrong[:MAX_OUTPUTS])
    ]
    return shown + (more if len(wrong) > MAX_OUTPUTS else [])


def _is_wrong(held: Mapping[str, Any]) -> bool:
    error, limit = read.number(held, "rms_error"), read.number(held, "limits", "rms")
    beyond = error is not None and limit is not None and error > limit
    return bool(read.whole(held, "wrong") or read.whole(held, "non_finite_mismatches") or beyond)


def _name(output: Mapping[str, Any]) -> str:
    return show.line(read.text(output, "name") or "the output", 80)


def _output(held: Mapping[str, Any], reason: str) -> list[str]:
    shape = held.get("shape")
    dims = list(shape) if isinstance(shape, list | tuple) else []
    count, wrong = read.whole(held, "count"), read.whole(held, "wrong") or 0
    chosen_by = show.line(read.text(held, "index_of"), 40)
    noun = "indices" if chosen_by else "values"
    lines = [f"{show.line(held.get('dtype', ''), 20)} {dims}: {wrong} of {count} {noun} wrong"]
    if chosen_by:
        lines.append(f"judged by the values that they point to, and those that {chosen_by} chose:")
    if held.get("code"):
        lines.append("judged by the values before rounding: a code is right within half a step of its value")
    if count and wrong:
        lines[0] += f" ({show.share(wrong / count)})"
    first, worst = read.mapping(held, "first"), read.mapping(held, "worst")
    if first and f"first at {first.get('index')}: {_values(first)}" not in reason:
        lines.append(f"first wrong at {first.get('index')}: {_values(first)}")
    if worst and worst.get("index") != first.get("index") and not _within(held):
        lines.append(f"worst wrong at {worst.get('index')}: {_values(worst)}")
    if (pattern := show.line(read.text(held, "pattern"), 200)) and f"pattern: {pattern}" not in reason:
        lines.append(f"pattern: {pattern}")
    clashes = read.whole(held, "non_finite_mismatches")
    if clashes and not chosen_by:
        lines.append(f"{clashes} values are NaN or infinite and should be finite, or the other way round")
    if unwritten := read.whole(held, "unwritten"):
        lines.append(f"{unwritten} {noun} were never written")
    lines += _errors(held)
    return lines


def _within(held: Mapping[str, Any]) -> bool:
    """Return whether only NaN and infinite values are wrong."""
    error, limit = read.number(held, "max_error"), read.number(held, "limits", "max")
    return error is not None and limit is not None and error <= limit


def _values(place: Mapping[str, Any]) -> str:
    """Format a value and two digits (sign, factor, zero) of the expected one."""
    got, expected = place.get("got"), place.get("expected")
    shown = f"got {got:.6g}" if isinstance(got, int | float) else f"got {show.line(got, 40)}"
    if isinstance(expected, bool) or not isinstance(expected, int | float):
        return f"{shown}, expected {show.line(expected, 40)}"
    return f"{shown}, expected about {float(f'{expected:.2g}'):g}"


def _errors(held: Mapping[str, Any]) -> list[str]:
    error, limit = read.number(held, "rms_error"), read.number(held, "limits", "rms")
    if error is None or limit is None:
        return []
    over = "all finite values" if read.whole(held, "non_finite_mismatches") else "all values"
    lines = [f"error over {over}: {error:.2g} of the output's RMS, limit {limit:.2g}"]
    if (own := read.number(held, "reference_rms_error")) is not None:
        lines[0] += f"; the error of the reference in float32 is {own:.2g}"
    rest, wrong = read.number(held, "rest_rms_error"), read.whole(held, "wrong")
    if rest is not None and wrong and rest <= limit:
        lines.append("the other values are correct")
    if note := read.text(held, "limits", "note"):
        lines.append(f"note: {show.line(note, 200)}")
    return lines


def _variants(record: Record) -> list[str]:
    places = {name: place for place, name in enumerate(VARIANTS)}
    held = read.mapping(record.evidence, "variants")
    rows = sorted(held.items(), key=lambda row: (places.get(row[0], len(places)), row[0]))
    counts = {name: (read.whole(row, "failed") or 0, read.whole(row, "calls") or 0) for name, row in rows}
    failing = [name for name, (bad, _) in counts.items() if bad]
    if not failing or sum(calls for _, calls in counts.values()) < 2:
        return []
    lines = []
    for name, (bad, calls) in counts.items():
        words = f"{bad} of {calls} calls wrong" if bad else f"correct in {calls} of {calls} calls"
        lines.append(f"{VARIANTS.get(name, show.line(name, 40))}: {words}")
    return lines + ([ONLY[failing[0]]] if len(failing) == 1 and failing[0] in ONLY and len(rows) > 1 else [])


def _state(record: Record) -> list[str]:
    held = read.mapping(record.evidence, "state").get("unmatched")
    names = [show.line(name, 80) for name in held[:8]] if isinstance(held, list | tuple) else []
    if not names:
        return []
    return [f"ModelNew lacks these parameters or buffers of the reference: {', '.join(names)}"]


def _share_wrong(outputs: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest share of wrong values in any output."""
    counted = [(read.whole(held, "wrong") or 0, read.whole(held, "count") or 0) for held in outputs]
    return max((wrong / count for wrong, count in counted if count), default=0.0)


def _advice(record: Record) -> list[str]:
    """Return hints by status and evidence."""
    outputs = [output for output in read.rows(record.evidence, "outputs") if _is_wrong(output)]
    patterns = " ".join(read.text(output, "pattern") for output in outputs)
    unwritten = any(read.whole(output, "unwritten") for output in outputs)
    status, advice = record.status, []
    if unwritten:
        advice.append("Some output values are never written: check the grid size and the bounds check.")
    elif status is Status.wrong_state:
        advice.append("Update the state in forward as the reference does, under the same names.")
    else:
        advice += [text for words, text in BY_PATTERN.items() if any(word in patterns for word in words)][:1]
    if status is Status.wrong_value and re.search(r"scattered|\d+ of \d+ (columns|rows)", patterns):
        advice.append(
            "The wrong places have no regular pattern: a data race is likely. --device host reports races with lines."
        )
    if status is Status.wrong_value and not advice and 0.0 < _share_wrong(outputs) <= FEW:
        advice.append(
            "Few values are wrong: check special cases at these places, such as the first or last term of a loop, or "
            "an edge."
        )
    if status is Status.non_finite and not unwritten:
        fills = " (the host device fills new memory with NaN)" if record.device is DeviceKind.HOST else ""
        advice.append(
            f"Possible causes of NaN: memory that was never written{fills}, 0 / 0, or infinity minus infinity."
        )
    if status is Status.low_precision:
        advice.append(ROUNDED.get(read.text(record.evidence, "reached"), ROUNDED["fp32"]))
    return advice + ([BY_STATUS[status]] if status in BY_STATUS else [])

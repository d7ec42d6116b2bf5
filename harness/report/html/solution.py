"""Prepare a solution's page: verdict, source with findings, times, kernels, log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.report import format as show
from harness.report.details import shown, unit_inside
from harness.report.html.charts import samples
from harness.report.html.tables import Anchors, Item, census_table, filtered, kernel_table, tone_of
from harness.report.terminal import result_of, said_by
from harness.results.evidence import finite, mapping, rows, text, whole
from harness.results.scoring import scored

MAX_SOURCE_CHARS = 100_000
MAX_LOG_CHARS = 20_000
MAX_KERNELS = 50
MAX_FINDINGS = 50
MAX_DEPTH = 6

SIDES = ("reference", "solution")
SUMMARY = ("samples", "median_s", "q1_s", "q3_s", "min_s", "max_s")


def section(
    item: Item, *, anchors: Anchors, table: str, others: Sequence[tuple[str, str]], author: Author | None = None
) -> dict[str, Any]:
    """Return what the template shows of a result.

    Args:
        item: The result.
        anchors: Where things are on the page.
        table: Id of the table of solutions that has the result.
        others: Anchor and run of other results of the solution.
        author: What its author says of itself.
    """
    record, run = item.record, show.line(item.run, 120)
    name = show.line(record.author, 100)
    return {
        "anchor": anchors.records[id(record)],
        "name": show.line(record.solution, 200),
        "status": record.status.value,
        "tone": tone_of(record.status),
        "meaning": show.explain(record.status),
        "result": show.line(result_of(record), 600),
        "facts": [
            ("problem", show.line(record.problem, 60), anchors.problems[record.problem]),
            ("author", name, filtered(table, author=name)),
            *((key, show.line(text, 100), "") for key, text in said_by(author).items()),
            ("run", run, filtered(table, run=run)),
            ("where", _where(record), ""),
            ("finished", show.line(record.finished_at or show.ABSENT, 40), ""),
            *(("label", show.line(label, 60), filtered(table, label=show.line(label, 60))) for label in record.labels),
        ],
        "others": [(link, show.line(name, 120)) for link, name in others],
        "feedback": show.block(item.feedback),
        "times": _times(record),
        "samples": samples(*(_samples(record, side) for side in SIDES)) if record.timing else Markup(""),
        "census": census_table(rows(record.evidence, "census", "kernels")[:MAX_KERNELS]),
        "kernels": kernel_table(rows(record.build, "kernels")[:MAX_KERNELS]),
        "evidence": _lines(_evidence(record)),
        "source": show.block(item.source, MAX_SOURCE_CHARS) if item.source is not None else None,
        "findings": _findings(record),
        "cut": item.source is not None and len(item.source) > MAX_SOURCE_CHARS,
        "log": show.block(item.log, MAX_LOG_CHARS).strip("\n") if item.log else "",
    }


def _findings(record: Record) -> list[tuple[int, str]]:
    """Return line of the solution's file and text of each finding.

    They are errors of Python and of the compiler, races, invalid accesses, and the place at which the process ended.
    The line of the other access of a race is named only if no finding of its own names it.
    """
    evidence = record.evidence
    own = [
        (whole(evidence, "error", "solution_line"), text(evidence, "error", "message")),
        (whole(evidence, "line"), record.reason),
    ]
    others = []
    for row in rows(evidence, "reports"):
        kind = text(row, "kind").replace("_", " ")
        if text(row, "file").endswith(".py"):
            own.append((whole(row, "line"), f"{kind}: {text(row, 'message')}"))
        if text(row, "other_file").endswith(".py"):
            others.append((whole(row, "other_line"), f"{kind}: the other access, a {text(row, 'other_access')}"))
    if text(evidence, "stood_in", "file").endswith(".py"):
        own.append((whole(evidence, "stood_in", "line"), "the process ended here"))
    known = {line for line, _ in own}
    said = [*own, *(other for other in others if other[0] not in known)]
    found = dict.fromkeys((line, show.line(words, 300)) for line, words in said if line is not None and line > 0)
    return sorted(found)[:MAX_FINDINGS]


def _where(record: Record) -> str:
    group = scored(record).group
    return f"{group.device}, {show.line(group.processor, 80)}, workload {show.line(group.workload, 40)}"


def _times(record: Record) -> list[tuple[str, list[str]]]:
    """Return rows of the table of times: name, then the values of `SUMMARY`."""
    times = []
    for side in SIDES:
        for kind, name in (("device", f"{side}, device time"), ("latency", f"{side}, latency of a call")):
            if summary := mapping(record.timing, side, kind):
                times.append((name, [show.value(key, summary.get(key)) for key in SUMMARY]))
    return times


def _samples(record: Record, side: str) -> list[float]:
    samples = mapping(record.timing, side).get("samples_s")
    bursts = [burst for burst in samples if isinstance(burst, list)] if isinstance(samples, list) else []
    return [value for burst in bursts for item in burst if (value := finite(item)) is not None]


def _evidence(record: Record) -> dict[str, Any]:
    """Return the parts of the record that the page does not show elsewhere."""
    evidence = dict(record.evidence)
    if census := mapping(evidence, "census"):
        evidence["census"] = {key: value for key, value in census.items() if key != "kernels"}
    timing = {key: value for key, value in (record.timing or {}).items() if key not in SIDES}
    build = {key: value for key, value in (record.build or {}).items() if key != "kernels"}
    held = {"evidence": evidence, "timing": timing, "build": build, "environment": record.environment}
    held["digests"] = {"solution": record.solution_digest or None, "problem": record.problem_digest or None}
    return {name: value for name, value in held.items() if value}


def _lines(held: Mapping[str, Any], depth: int = 0, unit: str = "") -> str:
    """Format names and values, one in each line, with nested ones indented."""
    lines = []
    for name, value in held.items():
        indent = "  " * depth
        label = show.line(str(name).replace("_", " "), 60)
        if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
            lines += [f"{indent}{label}", _lines(value, depth + 1, unit_inside(str(name), unit))]
        elif (
            isinstance(value, list) and value and depth < MAX_DEPTH and all(isinstance(item, Mapping) for item in value)
        ):
            for number, item in enumerate(value[:20]):
                lines += [f"{indent}{label} {number + 1}", _lines(item, depth + 1)]
        else:
            lines.append(f"{indent}{label}: {shown(str(name), value, unit)}")
    return "\n".join(lines)

"""Render a verdict for CI: Markdown, GitHub annotations, JUnit, terminal.

Pure functions: values in, text out. Names, reasons and labels come from a submission, so each format escapes them: a
table cell stays one cell, an annotation contains no other command, XML has no forbidden characters.
"""

from __future__ import annotations

from xml.etree import ElementTree

from harness.cli.ci.verdict import CiVerdict, Scored
from harness.core.status import VERDICT_FREE, Status
from harness.report import format as show
from harness.report.table import escape_markdown
from harness.results.gates import FAILED, PASSED, SKIPPED
from harness.results.scoring import is_noisy, scored

MARKS = {PASSED: "✅", FAILED: "❌", SKIPPED: "➖"}
MAX_ROWS = 500
"""Most rows of the summary's table: GitHub shows at most a megabyte. `verdict.json` has all rows."""
MAX_LISTED = 50
MAX_ANNOTATIONS = 10
"""GitHub shows ten errors of a step and silently drops the others."""

WORDS = {
    "passed": "passed",
    "failed": "failed",
    "error": "could not be judged because of an error of the harness or the machine, not of the solutions",
    "nothing": "has nothing to score: it adds or changes no solution",
}


def summary(verdict: CiVerdict, leaderboard: str = "") -> str:
    """Render the step summary as Markdown, with `leaderboard` (Markdown) at its end."""
    lines = [
        f"## Kernels: the submission {WORDS[verdict.word]}",
        "",
        f"`{verdict.head[:12]}` against `{verdict.base[:12]}`, device {_cell(verdict.device)}, workload "
        f"{_cell(verdict.workload)}.",
        "",
    ]
    if verdict.fault:
        lines += [f"Machine error: {_cell(verdict.fault, 600)}", ""]
    if verdict.scored:
        lines += [
            "| | solution | change | problem | status | speedup | in the base | gates |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *(_row(item) for item in verdict.scored[:MAX_ROWS]),
            "",
        ]
        if len(verdict.scored) > MAX_ROWS:
            lines += [f"… and {len(verdict.scored) - MAX_ROWS} more: see `verdict.json`.", ""]
    for item in verdict.scored[:MAX_ROWS]:
        if item.failed or item.record.status is Status.harness_error:
            lines += [f"**{_cell(item.path)}**{_place(item)}: {_cell(item.record.reason, 600)}", ""]
            broken = [result for result in item.gates if result.outcome == FAILED and result.gate != "require_passed"]
            lines += [f"* {result.gate}: {_cell(result.detail, 300)}" for result in broken]
            lines += [""] if broken else []
    for title, paths in (
        ("Rejected files", [f"{_cell(held.path)}: {_cell(held.reason, 300)}" for held in verdict.rejected]),
        ("Deleted", [_cell(path) for path in verdict.deleted]),
        ("Other changes, ignored: everything except solutions comes from the base", map(_cell, verdict.ignored)),
    ):
        lines += _listed(title, list(paths))
    if leaderboard:
        lines += ["<details><summary>Leaderboard with this submission</summary>", "", leaderboard, "", "</details>", ""]
    return "\n".join(lines)


def _row(item: Scored) -> str:
    record = item.record
    mark = MARKS[FAILED] if item.failed else MARKS[PASSED] if record.status is Status.passed else MARKS[SKIPPED]
    entry = scored(record)
    speed = show.speedup_with_interval(entry.speedup, entry.low, entry.high, entry.same_within)
    speed = show.TOO_NOISY if is_noisy(entry.low, entry.high) else speed
    rules = " ".join(f"{MARKS[result.outcome]} {result.gate}" for result in item.gates)
    what = [mark, _cell(item.path), item.change, _cell(record.problem)]
    return "| " + " | ".join([*what, record.status.value, speed, _before(item), rules]) + " |"


def _before(item: Scored) -> str:
    """Return status and speedup of the solution's record in the base."""
    held = item.difference
    if held is None or held.before is None:
        return show.ABSENT
    speed = "" if held.before_speedup is None else f", {show.speedup(held.before_speedup)}"
    return f"{held.before.value}{speed}"


def _place(item: Scored) -> str:
    """Return the line of a failure, unless its reason starts with the line."""
    return "" if item.line is None or item.record.reason.startswith("line ") else f", line {item.line}"


def _listed(title: str, texts: list[str]) -> list[str]:
    if not texts:
        return []
    more = [f"* … and {len(texts) - MAX_LISTED} more"] if len(texts) > MAX_LISTED else []
    return [f"{title}:", "", *(f"* {text}" for text in texts[:MAX_LISTED]), *more, ""]


def _cell(text: str, limit: int = 160) -> str:
    """Escape text for Markdown: no links, images, HTML, mentions or table cells."""
    return escape_markdown(show.line(text, limit))


def broken_rules(verdict: CiVerdict) -> list[str]:
    """Return a terminal line for each failed gate and for each rejected file."""
    found = [(held.path, "rejected", held.reason) for held in verdict.rejected]
    for item in verdict.scored:
        found += [(item.path, result.gate, result.detail) for result in item.gates if result.outcome == FAILED]
    # The prefix keeps text that a submission chose away from the start of the line.
    return [f"failed: {show.line(path, 160)}: {gate}: {show.line(detail, 300)}" for path, gate, detail in found]


def github_annotations(verdict: CiVerdict) -> list[str]:
    """Return GitHub workflow commands: errors for failures, warnings if not judged.

    The format is from GitHub's documentation "Workflow commands"; in values `%`, line ends, `:` and `,` are encoded.
    """
    found = []
    for held in verdict.rejected:
        found.append(_command("error", held.path, None, "rejected", held.reason))
    for item in verdict.scored:
        if item.failed:
            found.append(_command("error", item.path, item.line, *_failure(item)))
    for item in verdict.scored:
        if not item.failed and item.record.status in VERDICT_FREE:
            found.append(_command("warning", item.path, item.line, item.record.status.value, item.record.reason))
    return found[:MAX_ANNOTATIONS]


def _failure(item: Scored) -> tuple[str, str]:
    """Return title and message of a failure: the status, or the failed gates."""
    broken = [result for result in item.gates if result.outcome == FAILED]
    passed = item.record.status is Status.passed
    what = ", ".join(result.gate for result in broken) if passed else item.record.status.value
    return what, "; ".join(result.detail for result in broken)


def _command(kind: str, path: str, line: int | None, title: str, message: str) -> str:
    properties = [f"file={_value(path)}", *([f"line={line}"] if line else []), f"title={_value(title)}"]
    return f"::{kind} {','.join(properties)}::{_data(show.line(message, 1000))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _data(show.line(text, 300)).replace(":", "%3A").replace(",", "%2C")


def junit(verdict: CiVerdict) -> str:
    """Render JUnit XML with one test case for each solution.

    A test case has a `failure` with the reason, an `error` if the harness failed, or `skipped` if there is no verdict.
    """
    cases = []
    for held in verdict.rejected:
        case = ElementTree.Element("testcase", classname="solutions", name=_xml(held.path), file=_xml(held.path))
        ElementTree.SubElement(case, "failure", type="rejected", message=_xml(held.reason))
        cases.append(case)
    cases += [_case(item) for item in verdict.scored]
    if verdict.fault:
        case = ElementTree.Element("testcase", classname="machine", name="evaluation")
        ElementTree.SubElement(case, "error", type="machine", message=_xml(verdict.fault))
        cases.append(case)
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name="harness ci",
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time=f"{sum(item.record.wall_s or 0.0 for item in verdict.scored):.3f}",
    )
    suite.extend(cases)
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    ElementTree.indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(whole, encoding="unicode") + "\n"


def _case(item: Scored) -> ElementTree.Element:
    record = item.record
    case = ElementTree.Element(
        "testcase",
        classname=_xml(record.problem),
        name=_xml(item.path),
        file=_xml(item.path),
        time=f"{record.wall_s or 0.0:.3f}",
    )
    if item.line is not None:
        case.set("line", str(item.line))
    if item.failed:
        details = [f"{result.gate}: {result.detail}" for result in item.gates if result.outcome == FAILED]
        kind, message = _failure(item)
        failure = ElementTree.SubElement(case, "failure", type=kind, message=_xml(message))
        failure.text = _xml("\n".join(details))
    elif record.status is Status.harness_error:
        ElementTree.SubElement(case, "error", type=record.status.value, message=_xml(record.reason))
    elif record.status in VERDICT_FREE:
        ElementTree.SubElement(case, "skipped", message=_xml(f"{record.status.value}: {record.reason}"))
    return case


def _xml(text: str) -> str:
    """Remove invisible characters and those that XML forbids.

    The writer escapes the others.
    """
    return show.block(text, 4000)

"""Render pages for the terminal: lines, summaries, records, doctor.

Pure functions: values in, rich renderables out. Text that a submission can influence is escaped by `report.format` and
put into `Text`, never into markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.catalog.authors import Author, authors_in
from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.report import format as show
from harness.report.details import details
from harness.report.table import Fitting, table_of
from harness.results.scoring import EAGER, is_noisy, main_baseline, scored

if TYPE_CHECKING:
    from harness.runner.doctor import Diagnosis

STATUS_WIDTH = max(len(item.value) for item in Status)

PASSED, FAILED, NO_VERDICT, CHEATED = "green", "red", "yellow", "magenta"


def style_of(status: Status) -> str:
    """Return the colour of a status: passed, failed, no verdict, disqualified."""
    if status is Status.passed:
        return PASSED
    if status in VERDICT_FREE:
        return NO_VERDICT
    return CHEATED if status is Status.disqualified else FAILED


def mark_of(status: Status) -> str:
    """Return one character for a status, readable without colours."""
    if status is Status.passed:
        return "✓"
    return "?" if status in VERDICT_FREE else "✗"


def result_of(record: Record) -> str:
    """Return the outcome in a few words: speedup and labels, or the reason."""
    if record.status is not Status.passed:
        return show.line(record.reason, 160)
    if (shown := speedup_of(record)) is None:
        return (
            "correct; not timed, because GPU code ran on the CPU"
            if record.device is DeviceKind.HOST
            else "correct; not timed"
        )
    where = " on the CPU" if record.device is DeviceKind.HOST else ""
    return "  ".join(part for part in (shown + where, _labels(record)) if part)


def _labels(record: Record) -> str:
    return f"[{', '.join(show.line(item, 40) for item in record.labels)}]" if record.labels else ""


def speedup_of(record: Record) -> str | None:
    """Format the speedup over the main baseline, or over eager if it has no time."""
    main = main_baseline(record)
    for baseline in dict.fromkeys((main, EAGER)):
        entry = scored(record, baseline)
        if is_noisy(entry.low, entry.high):
            return f"correct; its speedup is {show.TOO_NOISY}"
        if entry.speedup is not None:
            shown = show.speedup_with_interval(
                entry.speedup, entry.low, entry.high, entry.same_within, baseline=baseline
            )
            over = "" if main == EAGER or entry.same_within is not None else f" over {show.line(baseline, 40)}"
            return shown + over + ("" if baseline == main else f"; {show.line(main, 40)} has no time")
    return None


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A finished solution and its result, on one line if there is place."""

    head: Text
    result: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text.assemble(self.head, "  " if self.result else "", self.result)
        if not self.result or not console.is_terminal or line.cell_len <= options.max_width:
            yield line
            return
        yield self.head
        yield Padding(self.result, (0, 0, 0, 4))


def record_line(record: Record, *, number: int, total: int, brief: bool = False) -> RecordLine:
    """Format a finished solution: `[3/40] ✓ passed  level1/16  …  1.31x (…)`.

    If `brief`, with its labels only: its result follows elsewhere.
    """
    width = len(str(total))
    style = style_of(record.status)
    head = Text.assemble(
        (f"[{number:{width}}/{total}] ", "dim"),
        (f"{mark_of(record.status)} {record.status.value:{STATUS_WIDTH}}", style),
        f" {show.line(record.problem, 40):9} {show.line(record.solution, 80)}",
    )
    if brief:
        return RecordLine(head, Text(_labels(record) if record.status is Status.passed else ""))
    if record.device is DeviceKind.HOST:
        head.append("  host", "cyan")
    return RecordLine(head, Text(result_of(record), style=style if record.status is Status.passed else ""))


MOST_RULE = 110
"""Most columns of a rule."""


@dataclass(frozen=True, slots=True)
class Titled:
    """A title with a line to the edge of the terminal."""

    title: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rest = min(options.max_width, MOST_RULE) - self.title.cell_len - 4
        yield Text.assemble("── ", self.title, f" {'─' * rest}" if rest > 0 else "")


def failure_rule(record: Record) -> Titled:
    """Render the line above the feedback for a failed solution: its name and status."""
    title = Text(show.line(record.solution, 120), style="bold")
    title.append(f": {record.status.value}", f"bold {style_of(record.status)}")
    return Titled(title)


def summary(records: Sequence[Record], *, skipped: int, wall_s: float, statuses: bool = True) -> RenderableType:
    """Render the count and meaning of each status, and the time of the run.

    Without `statuses`, only the counts of solutions and passes, and the time.
    """
    counted = Counter(item.status for item in records)
    rows: list[list[str | Text]] = [
        [Text(f"{mark_of(status)} {status.value}", style=style_of(status)), str(counted[status]), show.explain(status)]
        for status in Status
        if counted[status]
    ]
    table = table_of(["status", "solutions", "what it means"], rows, right=("solutions",), title="Summary")
    already = f"; skipped {skipped} that had a record" if skipped else ""
    noun = "solution" if len(records) == 1 else "solutions"
    closing = f"{len(records)} {noun}, {counted[Status.passed]} passed, in {show.duration(wall_s)}{already}."
    on_host = any(item.device is DeviceKind.HOST for item in records)
    note = (
        "Host device: values, data races and memory accesses were checked; there are no GPU times." if on_host else ""
    )
    return Group(
        *([table] if records and statuses else []), Text(closing), *([Text(note, style="cyan")] if note else [])
    )


def records_table(records: Sequence[Record]) -> Table:
    """Render all records of a run; what they have in common is the title."""
    ordered = sorted(records, key=lambda item: (item.problem, item.solution))
    cells: dict[str, list[str | Text]] = {
        "problem": [show.line(item.problem, 40) for item in ordered],
        "solution": [show.line(item.solution, 120) for item in ordered],
        "device": [item.device.value for item in ordered],
        "workload": [show.line(item.workload_title, 40) for item in ordered],
        "status": [
            Text(f"{mark_of(item.status)} {item.status.value}", style=style_of(item.status)) for item in ordered
        ],
        "result": [result_of(item) for item in ordered],
    }
    common = [name for name in ("device", "workload") if len(set(cells[name])) == 1]
    title = ", ".join(f"{name} {cells[name][0]}" for name in common)
    left = {name: held for name, held in cells.items() if name not in common}
    return table_of(left, zip(*left.values(), strict=True), title=title)


def authors_table(authors: Sequence[Author]) -> Table:
    """Render descriptions of authors, one in each row, without empty columns."""
    fields = {"author": "name", "author's name": "display_name", "model": "model", "notes": "notes"}
    names = [name for name, field in fields.items() if any(getattr(author, field) for author in authors)]
    rows = [[show.line(getattr(author, fields[name]) or show.ABSENT, 600) for name in names] for author in authors]
    return table_of(names, rows)


def said_by(author: Author | None) -> dict[str, str]:
    """Return what an author says of itself: display name and model, if given."""
    texts = {} if author is None else {"author's name": author.display_name, "model": author.model}
    return {name: text for name, text in texts.items() if text}


def run_page(
    head: Mapping[str, Any], records: Sequence[Record], notes: Sequence[str], *, everything: bool = False
) -> RenderableType:
    """Render the results of a run; with `everything` also its settings."""
    parts: list[RenderableType] = [Text(f"run {show.line(head.get('run_id', '(no run.yaml)'))}", style="bold")]
    if authors := authors_in(head):
        parts.append(Fitting(authors_table(list(authors.values())), named=1))
    parts += [Text(f"note: {show.line(note)}", style=NO_VERDICT) for note in notes]
    parts.append(Fitting(records_table(records)))
    if everything:
        plain = {name: held for name, held in head.items() if name not in ("format", "run_id", "authors")}
        parts.append(Padding(details(plain), (0, 0, 0, 2)))
    return Group(*parts)


def record_page(record: Record, log: str | None, author: Author | None = None) -> RenderableType:
    """Render one record in full, with its log and its author's description."""
    style = style_of(record.status)
    where = "host (CUDA executed on the CPU; no GPU time)" if record.device is DeviceKind.HOST else "cuda"
    heading = Text.assemble((f"{mark_of(record.status)} {record.status.value}", f"bold {style}"), "  ")
    heading.append(show.line(record.solution, 200), style="bold")
    facts: dict[str, Any] = {"reason": record.reason, "meaning": show.explain(record.status)}
    if record.status is Status.passed:
        facts["speedup"] = result_of(record)
    facts |= {"problem": record.problem, "author": record.author, **said_by(author), "sample": record.sample}
    facts |= {"device": where, "workload": record.workload_title, "labels": list(record.labels)}
    facts |= {"finished_at": record.finished_at, "wall_s": record.wall_s}
    facts |= {"solution_digest": record.solution_digest, "problem_digest": record.problem_digest}
    parts: list[RenderableType] = [heading, Padding(details(facts), (0, 0, 0, 2))]
    sections = {"timing": record.timing, "evidence": record.evidence, "build": record.build}
    for name, held in {**sections, "environment": record.environment}.items():
        parts.append(Text(f"\n{name}", style="bold"))
        inner = details(held) if held else Text("none", style="dim")
        parts.append(Padding(inner, (0, 0, 0, 2)))
    parts.append(Text("\nlog", style="bold"))
    parts.append(Text(show.block(log)) if log and log.strip() else Text("  empty", style="dim"))
    return Group(*parts)


def placed_line(response: Path, path: Path | None, written: bool, reason: str) -> Text:
    """Format the result for one response: the written file, or why there is none."""
    source = show.line(response, 120)
    if path is None:
        return Text.assemble((f"✗ {source}: ", FAILED), show.line(reason))
    done = "" if written else " (unchanged: the file has this text already)"
    return Text.assemble((f"✓ {source} -> {show.line(path, 160)}{done}", PASSED), f"  {show.line(reason)}")


def names(labels: Sequence[str], limit: int = 8) -> str:
    """Join some names for a message."""
    shown = ", ".join(show.line(item, 120) for item in labels[:limit])
    return f"{shown} and {len(labels) - limit} more" if len(labels) > limit else shown or "none"


STATES = {"ok": ("✓", PASSED), "limited": ("!", NO_VERDICT), "missing": ("✗", FAILED)}


def doctor_page(diagnosis: Diagnosis) -> RenderableType:
    """Render the checks of doctor, and which devices can be used."""
    lines: list[RenderableType] = []
    for check in diagnosis.checks:
        mark, style = STATES[check.state]
        lines.append(Text.assemble((f"{mark} {check.name}: ", style), show.line(check.found, 600)))
        lines.append(Padding(Text(f"for {check.enables}", style="dim"), (0, 0, 0, 4)))
        if check.remedy:
            lines.append(Padding(Text(f"→ {show.line(check.remedy, 600)}"), (0, 0, 0, 4)))
    lines.append(Text())
    for kind, why in diagnosis.unusable.items():
        usable = Text.assemble(f"--device {kind.value}: ", ("can be used", PASSED))
        lines.append(usable if why is None else Text(f"--device {kind.value}: can't be used: {show.line(why)}"))
    return Group(*lines)

"""Render the page of a report from its template.

Pure functions. The template uses autoescape, and undefined names are errors. `Markup` is made only in `svg` (from
numbers and matplotlib's output) and here from the page's own style and script.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.core.status import Status
from harness.report import differences as report_differences
from harness.report import figures
from harness.report import format as show
from harness.report.board import heading
from harness.report.html.solution import section
from harness.report.html.svg import inline
from harness.report.html.tables import boards, differences_table
from harness.results.compare import RunDifferences
from harness.results.latest import recency
from harness.results.scoring import EAGER, LikeGroup, by_group, entries_of, scored

TEMPLATES = "templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One record with the name of its run, its source, log and feedback text."""

    record: Record
    run: str
    source: str | None = None
    log: str | None = None
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The comparison of two runs, and their names."""

    before: str
    after: str
    found: RunDifferences


def render(
    items: Sequence[Item],
    *,
    title: str,
    made_at: str,
    changes: Changes | None = None,
    baseline: str = EAGER,
    with_figures: bool = True,
    authors: Mapping[str, Author] | None = None,
) -> str:
    """Render the page as HTML text.

    Raises:
        MissingPlots: matplotlib is not installed.
    """
    anchors = {id(item.record): f"s{number}" for number, item in enumerate(items)}
    records = [item.record for item in items]
    links = _links(records, anchors, baseline)
    environment = Environment(
        loader=PackageLoader("harness.report.html", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (_asset(environment, name) for name in ("style.css.j2", "page.js.j2"))
    others: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for item in items:
        others[item.record.identity[:2]].append((anchors[id(item.record)], item.run))
    counted = Counter(record.status for record in records)
    return environment.get_template("page.html.j2").render(
        title=show.line(title, 200),
        made_at=show.line(made_at, 60),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(script),
        runs=sorted({show.line(item.run, 120) for item in items}),
        total=len(records),
        statuses=[(status, counted[status], show.explain(status)) for status in Status if counted[status]],
        groups=[
            {
                "heading": heading(group),
                "tables": boards(group, own, links, number, authors),
                "figures": _figures(group, own, baseline, anchors, number) if with_figures else [],
            }
            for number, (group, own) in enumerate(by_group(records, baseline).items())
        ],
        changes=_changes(changes, items, anchors),
        sections=(
            section(
                item.record,
                anchor=anchor,
                run=item.run,
                source=item.source,
                log=item.log,
                feedback=item.feedback,
                author=(authors or {}).get(item.record.author),
                others=[other for other in others[item.record.identity[:2]] if other[0] != anchor],
            )
            for item in items
            for anchor in [anchors[id(item.record)]]
        ),
    )


def _asset(environment: Environment, name: str) -> str:
    """Return the page's own style or script unescaped: they are parts of the harness."""
    loader = environment.loader
    assert loader is not None
    return loader.get_source(environment, name)[0]


def _policy(script: str) -> str:
    """Return a content security policy: load nothing, run only the page's script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _links(records: Sequence[Record], anchors: Mapping[int, str], baseline: str) -> dict[tuple[object, ...], str]:
    """Return (group, problem, author, solution) -> anchor of the latest record."""
    return {
        (scored(record, baseline).group, record.problem, record.author, record.solution): anchors[id(record)]
        for record in sorted(records, key=recency)
    }


def _figures(
    group: LikeGroup, records: Sequence[Record], baseline: str, anchors: Mapping[int, str], number: int
) -> list[dict[str, Any]]:
    entries = entries_of(records, baseline=baseline)
    points = figures.points_of(records, baseline=baseline, links={key: f"#{anchor}" for key, anchor in anchors.items()})
    return [
        {
            "name": drawing.name,
            "caption": drawing.caption,
            "svg": inline(figures.drawn(drawing, "svg"), f"g{number}-{drawing.name}-", drawing.caption),
        }
        for drawing in figures.drawings(group, entries, points)
    ]


def _changes(changes: Changes | None, items: Sequence[Item], anchors: Mapping[int, str]) -> dict[str, Any] | None:
    if changes is None:
        return None
    links: dict[tuple[str, str], str] = {}
    for item in items:
        name = item.record.identity[:2]
        if item.run == changes.after or name not in links:
            links[name] = anchors[id(item.record)]
    return {
        "before": show.line(changes.before, 120),
        "after": show.line(changes.after, 120),
        "closing": report_differences.closing(changes.found),
        "table": differences_table(changes.found, links),
    }

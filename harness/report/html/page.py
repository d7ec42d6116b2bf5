"""Render the page of a report from its template.

Pure functions. The template uses autoescape, and undefined names are errors. `Markup` is made only in `charts` and
`tables`, by functions that escape, and here from the page's own style and script.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.catalog.authors import Author
from harness.core.record import Record
from harness.core.status import Status
from harness.report import differences as report_differences
from harness.report import format as show
from harness.report.html.group import group_section, problem_section
from harness.report.html.solution import section
from harness.report.html.tables import Anchors, Item, Row, differences_table, tone_of, without
from harness.results.compare import RunDifferences
from harness.results.latest import recency
from harness.results.scoring import EAGER, LikeGroup, scored

TEMPLATES = "templates"


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

    Args:
        items: The results.
        title: Heading of the page.
        made_at: Time at which the page is made, as text.
        changes: Comparison of two of the runs, or None.
        baseline: Baseline of the speedups.
        with_figures: Whether to draw charts.
        authors: What authors say of themselves, by name.
    """
    anchors = _anchors(items, baseline)
    environment = Environment(
        loader=PackageLoader("harness.report.html", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (_asset(environment, name) for name in ("style.css.j2", "page.js.j2"))
    others: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    grouped: dict[LikeGroup, list[Item]] = defaultdict(list)
    for item in items:
        others[item.record.identity[:2]].append((anchors.records[id(item.record)], item.run))
        grouped[scored(item.record, baseline).group].append(item)
    groups = {
        group: group_section(group, own, anchors, prefix=f"g{number}", authors=authors or {}, with_figures=with_figures)
        for number, (group, own) in enumerate(sorted(grouped.items()))
    }
    counted = Counter(item.record.status for item in items)
    return environment.get_template("page.html.j2").render(
        title=show.line(title, 200),
        made_at=show.line(made_at, 60),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(script),
        runs=sorted({show.line(item.run, 120) for item in items}),
        total=len(items),
        statuses=[
            (status.value, tone_of(status), counted[status], show.explain(status))
            for status in Status
            if counted[status]
        ],
        groups=groups.values(),
        changes=_changes(changes, items, anchors),
        problems=_problems(grouped, groups, anchors),
        sections=(
            section(
                item,
                anchors=anchors,
                table=groups[scored(item.record, baseline).group]["solutions"].id,
                author=(authors or {}).get(item.record.author),
                others=[
                    other for other in others[item.record.identity[:2]] if other[0] != anchors.records[id(item.record)]
                ],
            )
            for item in items
        ),
    )


def _anchors(items: Sequence[Item], baseline: str) -> Anchors:
    problems = sorted({item.record.problem for item in items})
    return Anchors(
        records={id(item.record): f"s{number}" for number, item in enumerate(items)},
        problems={problem: f"p{number}" for number, problem in enumerate(problems)},
        latest={
            (scored(item.record, baseline).group, item.record.problem, item.record.author, item.record.solution): item
            for item in sorted(items, key=lambda item: recency(item.record))
        },
    )


def _problems(
    grouped: Mapping[LikeGroup, Sequence[Item]], groups: Mapping[LikeGroup, Mapping[str, Any]], anchors: Anchors
) -> Iterator[dict[str, Any]]:
    """Return the page of each problem."""
    records: dict[str, dict[LikeGroup, list[Record]]] = defaultdict(lambda: defaultdict(list))
    rows: dict[tuple[LikeGroup, str], list[Row]] = defaultdict(list)
    for group in groups:
        for item in grouped[group]:
            records[item.record.problem][group].append(item.record)
        for row in groups[group]["solutions"].rows:
            rows[group, row.problem].append(row)
    for problem, anchor in anchors.problems.items():
        of_groups = []
        for number, (group, own) in enumerate(records[problem].items()):
            table = replace(groups[group]["solutions"], id=f"{anchor}-{number}", rows=rows[group, problem], files={})
            of_groups.append((group, own, without(table, "problem")))
        yield problem_section(problem, of_groups, anchors)


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


def _changes(changes: Changes | None, items: Sequence[Item], anchors: Anchors) -> dict[str, Any] | None:
    if changes is None:
        return None
    links: dict[tuple[str, str], str] = {}
    for item in items:
        name = item.record.identity[:2]
        if item.run == changes.after or name not in links:
            links[name] = anchors.records[id(item.record)]
    return {
        "before": show.line(changes.before, 120),
        "after": show.line(changes.after, 120),
        "closing": report_differences.closing(changes.found),
        "table": differences_table(changes.found, links),
    }

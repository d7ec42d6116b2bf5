"""Prepare what the page says of comparable results: cards, charts, tables.

Also the pages of their problems.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from harness.catalog.authors import Author
from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.report import figures
from harness.report import format as show
from harness.report.html import charts
from harness.report.html.tables import Anchors, Item, Table, board, filtered, tone_of
from harness.results.evidence import mapping, positive, text
from harness.results.latest import recency
from harness.results.leaderboard import By
from harness.results.scoring import (
    DECLARED,
    THRESHOLDS,
    LikeGroup,
    ScoredRecord,
    Selection,
    entries_of,
    main_baseline,
    score,
    select,
)

FEW = 40
"""With at most so many solutions their table comes before the charts."""

MAX_BARS = 12
"""Most solutions whose times are drawn on the page of a problem, the fastest ones."""


def group_section(
    group: LikeGroup,
    items: Sequence[Item],
    anchors: Anchors,
    *,
    prefix: str,
    authors: Mapping[str, Author],
    with_figures: bool,
) -> dict[str, Any]:
    """Return what the template shows of one group; `prefix` makes its ids unique."""
    records = [item.record for item in items]
    entries = entries_of(records, baseline=group.baseline)
    colours = {
        name: "cx" if name == figures.OTHERS else f"c{place}" for place, name in enumerate(figures.colours_of(entries))
    }
    tables = {by: board(by, group, records, anchors, prefix, authors) for by in By}
    few = len(entries) <= FEW
    # One author's row would repeat the cards.
    ranking = [tables[By.author]] if len({entry.author for entry in entries}) > 1 else []
    return {
        "id": prefix,
        "name": show.line(group.processor, 80),
        "conditions": _conditions(group),
        "cards": _cards(entries, f"{prefix}-solution"),
        "first": [tables[By.solution]] if few else ranking,
        "last": [*ranking, tables[By.problem]] if few else [tables[By.solution], tables[By.problem]],
        "legend": [(name, colours[name]) for name in colours] if len(colours) > 1 else [],
        "figures": list(_figures(group, items, entries, colours, anchors, prefix)) if with_figures else [],
        "solutions": tables[By.solution],
    }


def _conditions(group: LikeGroup) -> list[str]:
    """Return what the results of a group share, apart from the processor."""
    on_host = group.device == DeviceKind.HOST.value
    return [
        "host device: CUDA sources on the CPU, no GPU times" if on_host else "GPU",
        *([f"driver {show.line(group.driver, 40)}"] if group.driver else []),
        f"workload {show.line(group.workload, 40)}",
        *([f"speedups at {show.shapes(group.secret_shapes)}"] if group.secret_shapes else []),
        *([f"precision {show.line(group.precision, 40)} for all"] if group.precision != DECLARED else []),
        f"speedup over {show.line(group.baseline, 40)}" + (" on the CPU" if on_host else ""),
    ]


def _cards(entries: Sequence[ScoredRecord], table: str) -> dict[str, Any]:
    """Return the numbers of the summary.

    Means and fast_p count the best result of each author and problem.
    """
    counted = Counter(entry.status for entry in entries)
    tally = score(entries)
    tones = Counter[str]()
    reasons: dict[bool, list[tuple[str, int, str, str, str]]] = {True: [], False: []}
    for status, number in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])):
        tone, link = tone_of(status), filtered(table, status=status.value)
        tones[tone] += number
        if status is not Status.passed:
            reasons[status in VERDICT_FREE].append((status.value, number, tone, show.explain(status), link))
    judged = len(entries) - tones["unjudged"]
    shown = tally.speedup is not None
    return {
        "passed": counted[Status.passed],
        "judged": judged,
        "share": show.share(counted[Status.passed] / judged) if judged else show.ABSENT,
        "parts": [
            (tone, 100 * tones[tone] / len(entries))
            for tone in ("passed", "failed", "cheated", "unjudged")
            if tones[tone]
        ],
        "failed": tones["failed"] + tones["cheated"],
        "reasons": reasons[False],
        "unjudged": reasons[True],
        "failures": filtered(table, status="failed"),
        "passes": filtered(table, status=Status.passed.value),
        "speedup": show.speedup(tally.speedup) if shown else "",
        "interval": f"{show.digits(tally.low)} to {show.digits(tally.high)}" if tally.low and tally.high else "",
        "timed": sum(entry.speedup is not None for entry in entries),
        "results": tally.results,
        "fast_p": [(f"{p:g}", show.share(tally.fast_p[p]), 100 * (tally.fast_p[p] or 0)) for p in THRESHOLDS]
        if shown
        else [],
        "light": show.share(tally.sol_fraction) if tally.sol_fraction is not None else "",
    }


def _figures(
    group: LikeGroup,
    items: Sequence[Item],
    entries: Sequence[ScoredRecord],
    colours: Mapping[str, str],
    anchors: Anchors,
    prefix: str,
) -> Iterator[dict[str, Any]]:
    """Return the charts for which there are data."""
    over = f"over {show.line(group.baseline, 40)}"
    timed = [entry for entry in entries if entry.speedup is not None]

    def link_of(entry: ScoredRecord) -> str:
        return f"#{anchors.link_of(entry)}"

    if timed:
        yield {
            "title": "Speedups",
            "svg": charts.speedups(timed, colours, link_of, f"speedup {over}"),
            "caption": f"{len(timed)} timed solution{'' if len(timed) == 1 else 's'}. Each dot is a solution; the bar "
            "marks its author's median.",
        }
        yield {
            "title": "fast_p",
            "svg": charts.fast_p(select(entries, Selection.best), colours, f"p: speedup {over}"),
            "caption": "Share of the results of an author that are correct and more than p times as fast, for every p.",
        }
    links = {key: f"#{anchor}" for key, anchor in anchors.records.items()}
    if points := figures.points_of([item.record for item in items], baseline=group.baseline, links=links):
        yield {
            "title": "Roofline",
            "svg": charts.roofline(points, colours, "arithmetic per byte, 1 at the ridge"),
            "caption": "Upwards: reached share of the peak rate. The line is the limit of the GPU; the distance below "
            "it is the possible gain. At the ridge, compute time equals memory time. Bound of the problem: ● memory, "
            "■ compute, ▲ launch.",
        }
    by_run: dict[str, list[Record]] = defaultdict(list)
    for item in items:
        by_run[item.run].append(item.record)
    if len(by_run) > 1 and timed:
        runs = sorted(by_run, key=lambda run: max(map(recency, by_run[run])))
        yield {
            "title": "History",
            "svg": charts.history(
                [show.line(run, 120) for run in runs],
                _history(group, runs, by_run, colours, prefix),
                colours,
                "runs, by the time of their last result",
            ),
            "caption": f"Mean speedup {over} of each author in each run.",
        }


def _history(
    group: LikeGroup,
    runs: Sequence[str],
    by_run: Mapping[str, Sequence[Record]],
    colours: Mapping[str, str],
    prefix: str,
) -> charts.History:
    rows: dict[str, list[tuple[int, str, Any, str]]] = defaultdict(list)
    for number, run in enumerate(runs):
        name = show.line(run, 120)
        for author, own in figures.by_author(entries_of(by_run[run], baseline=group.baseline), colours).items():
            wanted = {"run": name} if author == figures.OTHERS else {"run": name, "author": author}
            rows[author].append((number, name, score(own), f"#{filtered(f'{prefix}-solution', **wanted)}"))
    return rows


def problem_section(
    problem: str, groups: Sequence[tuple[LikeGroup, Sequence[Record], Table]], anchors: Anchors
) -> dict[str, Any]:
    """Return the page of a problem: for each group its limits, times and solutions.

    Args:
        problem: The problem's id.
        groups: Groups with their records of this problem, and the table of their solutions.
        anchors: Where things are on the page.
    """
    return {
        "anchor": anchors.problems[problem],
        "name": show.line(problem, 100),
        "groups": [
            {
                "name": show.line(group.processor, 80),
                "conditions": _conditions(group),
                "facts": _limits(records),
                "bars": _bars(records, anchors),
                "table": table,
            }
            for group, records, table in groups
        ],
    }


def _timed(records: Sequence[Record]) -> list[Record]:
    """Return the records with times, the latest first."""
    return sorted((record for record in records if _median_s(record) is not None), key=recency, reverse=True)


def _median_s(record: Record, side: str = "solution") -> float | None:
    return positive(mapping(record.timing, side, "device").get("median_s"))


def _limits(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return names and values of the speed of light, from the latest timed record."""
    light = next((held for record in _timed(records) if (held := mapping(record.timing, "speed_of_light"))), {})
    named = {
        "speed of light": "sol_time_s",
        "moving the data takes": "memory_s",
        "arithmetic takes": "compute_s",
        "one launch takes": "launch_s",
    }
    facts = [
        (name, show.duration(value)) for name, key in named.items() if (value := positive(light.get(key))) is not None
    ]
    bound = text(light, "bound")
    return [*([("bound by", show.line(bound, 20))] if bound else []), *facts]


def _bars(records: Sequence[Record], anchors: Anchors) -> Markup:
    """Draw times: speed of light, fastest solutions, reference, other baselines."""
    timed = _timed(records)
    if not timed:
        return Markup("")
    latest = timed[0]
    limit = positive(mapping(latest.timing, "speed_of_light").get("sol_time_s"))
    known = [
        ("speed of light", limit, "light"),
        (f"reference ({main_baseline(latest)})", _median_s(latest, "reference"), "reference"),
    ]
    known += [
        (name, positive(mapping(latest.timing, "baselines", name).get("device_s")), "reference")
        for name in mapping(latest.timing, "baselines")
    ]
    latest_of = {record.solution: record for record in reversed(timed)}
    mine = sorted((_median_s(record) or 0.0, solution, record) for solution, record in latest_of.items())[:MAX_BARS]
    rows = [(show.line(name, 60), seconds, kind, "") for name, seconds, kind in known if seconds is not None]
    rows += [
        (show.line(record.solution, 80), seconds, "own", f"#{anchors.records[id(record)]}")
        for seconds, _, record in mine
    ]
    return charts.bars(sorted(rows, key=lambda row: row[1]), "median device time of a call")

"""Draw the figures of `harness plot`: speedups, fast_p curves, roofline.

Pure functions: entries in, `Figure` objects or bytes out. There is one set for each group of comparable results.
matplotlib is imported only to draw (`MissingPlots`). Names in figures come from submissions: no markup or formula in
them is interpreted. The page of a report draws the same data (`html/charts.py`).
"""

from __future__ import annotations

import io
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.record import Record
from harness.report import format as show
from harness.results.evidence import mapping, positive
from harness.results.latest import recency
from harness.results.scoring import EAGER, LikeGroup, ScoredRecord, Selection, scored, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_AUTHORS = 10
"""Most authors with a line or row of their own, by number of results; the others share one."""

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#999933", "#882255", "#44AA99"),
)
"""Distinct for colour-blind readers (M. Okabe and K. Ito, "Color Universal Design", 2008; the last three: P. Tol)."""

LINES = ("-", "--", "-.", ":")
MARKS: Mapping[str, str] = {"memory": "o", "compute": "s", "launch": "^"}
"""Bound of a problem -> shape of its points, readable without colours."""

OTHERS = "all others"


class MissingPlots(Exception):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("figures need matplotlib: run `pip install 'kernel-harness[plots]'`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One timed solution in the roofline.

    `intensity` is the problem's compute time over its memory time, both at peak rates: 1 is the ridge, 0 means that no
    flops are counted. `fraction` is the reached share of the speed of light. `link` is the target of a click.
    """

    entry: ScoredRecord
    bound: str
    intensity: float
    fraction: float
    link: str = ""


def points_of(
    records: Sequence[Record], *, baseline: str = EAGER, links: Mapping[int, str] | None = None
) -> list[Point]:
    """Return a point for each timed solution with a speed of light.

    Of several records of one solution the latest counts. `links` maps `id()` of a record to the link of its point.
    """
    latest: dict[tuple[str, ...], Record] = {}
    for record in records:
        key = (*record.identity, record.author, str(record.environment.get("gpu")))
        if key not in latest or recency(latest[key]) <= recency(record):
            latest[key] = record
    points = []
    for record in latest.values():
        light = mapping(record.timing, "speed_of_light")
        fraction, memory_s = positive(light.get("fraction")), positive(light.get("memory_s"))
        bound = light.get("bound")
        if record.speedup is None or fraction is None or memory_s is None or bound not in MARKS:
            continue
        compute_s = positive(light.get("compute_s")) or 0.0
        points.append(
            Point(
                entry=scored(record, baseline),
                bound=str(bound),
                intensity=compute_s / memory_s,
                fraction=fraction,
                link=(links or {}).get(id(record), ""),
            )
        )
    return points


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One figure: its name, its caption, and the function that draws it."""

    name: str
    caption: str
    draw: Callable[[], Figure]


def drawings(group: LikeGroup, entries: Sequence[ScoredRecord], points: Sequence[Point]) -> list[Drawing]:
    """Return the figures of one group for which there are data."""
    timed = [entry for entry in entries if entry.speedup is not None]
    colours = colours_of(entries)
    over = f"over {show.line(group.baseline, 40)}"
    best = select(entries, Selection.best)
    speedups = Drawing(
        name="speedups",
        caption=f"Speedups {over} of {len(timed)} timed solutions: histogram, and the solutions of each author. "
        "The vertical line is 1x; a short vertical bar marks the median of an author.",
        draw=lambda: _speedups(timed, over, colours),
    )
    curves = Drawing(
        name="fast_p",
        caption="fast_p: the share of an author's results that are correct and more than p times as fast, for every p. "
        "At p = 0 it is the share of correct results, at p = 1 the share of faster ones.",
        draw=lambda: _fast_p(best, over, colours),
    )
    roofline = Drawing(
        name="roofline",
        caption=f"Roofline of {len(points)} solutions. Problems further right need more arithmetic per byte. The line "
        "is the limit of the GPU; 1 is its peak rate for the problem's precision class. The distance of a point below "
        "the line is the possible gain. The shape of a point shows what bounds the problem.",
        draw=lambda: _roofline(points, colours),
    )
    return [*([speedups, curves] if timed else []), *([roofline] if points else [])]


def drawn(drawing: Drawing, form: str, *, dpi: int = 150) -> bytes:
    """Draw a figure as a svg, png or pdf file; the same input gives the same bytes.

    Raises:
        MissingPlots: matplotlib is not installed.
    """
    stamps: Mapping[str, Mapping[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with _style():
        stream = io.BytesIO()
        drawing.draw().savefig(stream, format=form, dpi=dpi, metadata=dict(stamps.get(form, {})))
        return stream.getvalue()


@contextmanager
def _style() -> Iterator[None]:
    """Use matplotlib's defaults and the settings here, and ignore the user's settings."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPlots from error
    own: dict[str, Any] = {
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.constrained_layout.use": True,
        "font.size": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "harness",
        # A `$` in an author's name must not start a formula.
        "text.parse_math": False,
        "text.usetex": False,
    }
    defaults: Any = matplotlib.rcParamsDefault
    settings: Any = {name: value for name, value in defaults.items() if not name.startswith("backend")} | own
    with matplotlib.rc_context(settings):
        yield


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(7.2, height))


def colours_of(entries: Sequence[ScoredRecord]) -> dict[str, str]:
    """Return a colour for each author's name, the same in all figures.

    If there are more than `MAX_AUTHORS`, those with fewer results share the colour of `OTHERS`.
    """
    counted = Counter(show.line(entry.author, 40) for entry in entries)
    ordered = sorted(counted, key=lambda name: (-counted[name], name))
    if len(ordered) <= MAX_AUTHORS:
        return dict(zip(ordered, COLOURS, strict=False))
    return {**dict(zip(ordered[: MAX_AUTHORS - 1], COLOURS, strict=False)), OTHERS: "#777777"}


def by_author(entries: Sequence[ScoredRecord], colours: Mapping[str, str]) -> dict[str, list[ScoredRecord]]:
    """Group entries by the names in `colours`, in this order, without empty groups."""
    held: dict[str, list[ScoredRecord]] = {name: [] for name in colours}
    for entry in entries:
        name = show.line(entry.author, 40)
        held[name if name in held else OTHERS].append(entry)
    return {name: own for name, own in held.items() if own}


def histogram_edges(values: Sequence[float], *, most: int = 60) -> list[float]:
    """Return the edges of bins on a log axis that hold all `values`.

    There are at most eight bins per doubling, and `most` in total, so that bars stay distinguishable.
    """
    low, high = min(values), max(values)
    steps = max(8, min(most, math.ceil(8 * math.log2(max(high / low, 1.01)))))
    return [low / 1.001 * (high * 1.002 / low) ** (step / steps) for step in range(steps + 1)]


def fast_p_steps(entries: Sequence[ScoredRecord]) -> list[tuple[float, float]]:
    """Return (p, fast_p from this p on) for each p > 0 at which fast_p changes."""
    counted = sorted(entry.counted for entry in entries if entry.counted is not None)
    return [(p, (len(counted) - rank) / len(entries)) for rank, p in enumerate(counted, start=1)]


def _speedup_axis(axes: Axes, low: float, high: float) -> None:
    """Set a log axis that includes 1, in factors of 2, or of 10 for a long range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = min(low, 0.8) / 1.1, max(high, 1.25) * 1.1
    base = 2 if high / low < 500 else 10
    axes.set_xscale("log", base=base)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(base=base, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1.0, color="0.4", linewidth=0.9)


def _speedups(timed: Sequence[ScoredRecord], over: str, colours: Mapping[str, str]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    authors = by_author(timed, colours)
    figure = _figure(2.6 + 0.28 * len(authors))
    histogram, rows = figure.subplots(2, 1, sharex=True, height_ratios=[2, 0.5 + 0.3 * len(authors)])
    values = [entry.speedup or 1.0 for entry in timed]
    low, high = min(values), max(values)
    histogram.hist(values, bins=histogram_edges(values), color=COLOURS[0], edgecolor="white", linewidth=0.4)
    histogram.set_ylabel("solutions")
    histogram.yaxis.set_major_locator(MaxNLocator(integer=True))
    for place, (name, own) in enumerate(authors.items()):
        held = sorted(entry.speedup or 1.0 for entry in own)
        middle = held[len(held) // 2] if len(held) % 2 else math.sqrt(held[len(held) // 2 - 1] * held[len(held) // 2])
        colour = colours[name]
        rows.scatter(held, [place] * len(held), s=16, color=colour, alpha=0.6, linewidths=0)
        rows.plot([middle, middle], [place - 0.32, place + 0.32], color=colour, linewidth=2)
    rows.set_yticks(range(len(authors)), list(authors))
    rows.set_ylim(len(authors) - 0.4, -0.6)
    rows.set_xlabel(f"speedup {over}")
    for axes in (histogram, rows):
        _speedup_axis(axes, low, high)
    return figure


def _fast_p(entries: Sequence[ScoredRecord], over: str, colours: Mapping[str, str]) -> Figure:
    judged = [entry for entry in entries if entry.judged]
    speedups = [entry.counted for entry in judged if entry.counted is not None]
    low, high = min([0.1, *speedups]), max([2.0, *speedups])
    figure = _figure(3.6)
    axes = figure.subplots()
    for place, (name, own) in enumerate(by_author(judged, colours).items()):
        steps = fast_p_steps(own)
        first, last = len(steps) / len(own), steps[-1][1] if steps else 0.0
        axes.step(
            [low / 2, *(p for p, _ in steps), high * 2],
            [first, *(share for _, share in steps), last],
            where="post",
            color=colours[name],
            linestyle=LINES[place % len(LINES)],
            linewidth=1.6,
            # matplotlib leaves labels that start with an underscore out of the legend.
            label=f"\u2009{name} ({len(own)})",
        )
    _speedup_axis(axes, low, high)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel(f"p: speedup {over}")
    axes.set_ylabel("fast_p")
    axes.grid(axis="y", color="0.9")
    axes.legend(title="author (results)", fontsize=8, title_fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _roofline(points: Sequence[Point], colours: Mapping[str, str]) -> Figure:
    from matplotlib.ticker import FuncFormatter

    counted = [point.intensity for point in points if point.intensity > 0]
    low, high = min([0.05, *counted]) / 2, max([20.0, *counted]) * 2
    edge = low / 3
    figure = _figure(4.2)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(edge / 2, high)
    roof = [edge / 2, 1.0, high]
    axes.plot(roof, [min(1.0, x) for x in roof], color="0.2", linewidth=1.4)
    if len(counted) < len(points):
        axes.axvspan(edge / 2, low / 1.2, color="0.93", linewidth=0)
        axes.text(edge / 1.9, 0.98, "no flops\ncounted", fontsize=7, va="top", transform=axes.get_xaxis_transform())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    held: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        name = show.line(point.entry.author, 40)
        held[name if name in colours else OTHERS, point.bound].append(point)
    for (name, bound), own in sorted(held.items()):
        xs = [point.intensity or edge for point in own]
        drawn_points = axes.scatter(
            xs,
            [min(1.0, x) * point.fraction for x, point in zip(xs, own, strict=True)],
            marker=MARKS.get(bound, "D"),
            s=22,
            color=colours[name],
            alpha=0.75,
            linewidths=0,
        )
        drawn_points.set_urls([point.link or None for point in own])
    bounds = sorted({point.bound for point in points})
    for name in dict.fromkeys(sorted((name for name, _ in held), key=list(colours).index)):
        axes.plot([], [], linestyle="none", marker="o", markersize=5, color=colours[name], label=f"\u2009{name}")
    for bound in bounds:
        axes.plot(
            [], [], linestyle="none", marker=MARKS.get(bound, "D"), markersize=5, color="0.5", label=f"bound by {bound}"
        )
    axes.set_xlabel("arithmetic per byte; at 1, compute time equals memory time")
    axes.set_ylabel("achieved share of the peak rate")
    axes.grid(color="0.92", which="major")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure

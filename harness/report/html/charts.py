"""Draw the charts of the page as SVG that follows the page's colours.

Pure functions: numbers and names in, `Markup` out. `Markup.format` escapes every name. A mark has its text as
`<title>`, which browsers and screen readers show, and is a link if it stands for one solution or run. Links stay out of
the tab order, because the tables have the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from harness.report import figures
from harness.report import format as show
from harness.results.scoring import Score, ScoredRecord

WIDTH = 480
"""Width of a chart in its own units; the page scales it. Its texts are 12 to 17 units high."""

LEFT, RIGHT = 54, 12
MAX_DOTS = 400
"""Most samples of one side that are drawn; of more, every n-th is drawn."""

LinkOf = Callable[[ScoredRecord], str]


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or log axis: `low` lies at the place `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = True

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 8) -> list[float]:
        """Return about `most` round values to label.

        On a log axis they are 1, 2 or 5 times a power of 10; on a linear or short one, multiples of such a value.
        """
        if not self.log:
            raw = (self.high - self.low) / most
            ten = 10.0 ** math.floor(math.log10(raw))
            step = next(factor * ten for factor in (1, 2, 5, 10) if factor * ten >= raw)
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            return [number * step for number in range(first, last + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        fine = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        held = [tick for tick in fine if self.low <= tick <= self.high]
        if len(held) > most:
            every = math.ceil(len(powers) / most)
            held = [10.0**power for power in powers if power % every == 0 and self.low <= 10.0**power <= self.high]
        return held if len(held) > 2 else replace(self, log=False).ticks(most)


def _chart(height: float, label: str, *parts: Markup, kind: str = "chart") -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        kind, WIDTH, round(height), label, Markup("").join(parts)
    )


def _text(x: float, y: float, text: object, kind: str = "", *, anchor: str = "middle") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(x, y, anchor, kind, text)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    return Markup('<path class="{}" d="M{} {}L{} {}"/>').format(kind, x1, y1, x2, y2)


def _mark(shape: Markup, text: str, link: str, kind: str) -> Markup:
    """Return a shape with a text, as a link if there is one."""
    if not link:
        return Markup('<g class="{}">{}<title>{}</title></g>').format(kind, shape, text)
    return Markup('<a class="{}" href="{}" tabindex="-1">{}<title>{}</title></a>').format(kind, link, shape, text)


def _series(colour: str, marks: Sequence[Markup]) -> Markup:
    return Markup('<g class="series {}">{}</g>').format(colour, Markup("").join(marks))


def _dot(x: float, y: float) -> Markup:
    return Markup('<circle cx="{}" cy="{}" r="4"/>').format(x, y)


SHAPES: Mapping[str, Callable[[float, float], Markup]] = {
    "memory": _dot,
    "compute": lambda x, y: Markup('<rect x="{}" y="{}" width="7" height="7"/>').format(
        round(x - 3.5, 1), round(y - 3.5, 1)
    ),
    "launch": lambda x, y: Markup('<path d="M{} {}l4.5 8h-9z"/>').format(x, round(y - 5, 1)),
}
"""Bound of a problem -> shape of its points, readable without colours."""


def _x_axis(
    scale: Scale, top: float, bottom: float, label: str, text: Callable[[float], str], grid: bool = True
) -> Markup:
    """Draw labels below `bottom`, with lines up to `top`, and what the axis shows."""
    parts = [_text(round((scale.start + scale.end) / 2), bottom + 37, label, "axis")]
    for tick in scale.ticks():
        x = scale(tick)
        parts += [_line(x, top if grid else bottom, x, bottom + (0 if grid else 4)), _text(x, bottom + 17, text(tick))]
    return Markup("").join(parts)


def _y_axis(scale: Scale, ticks: Sequence[float], text: Callable[[float], str]) -> Markup:
    return Markup("").join(
        part
        for tick in ticks
        for part in (
            _line(LEFT, scale(tick), WIDTH - RIGHT, scale(tick)),
            _text(LEFT - 6, scale(tick) + 4, text(tick), anchor="end"),
        )
    )


def _times(value: float) -> str:
    return f"{value:g}x"


def _speedup_scale(values: Sequence[float]) -> Scale:
    low, high = min(*values, 0.8), max(*values, 1.25)
    return Scale(low / 1.1, high * 1.1, LEFT, WIDTH - RIGHT)


def _named(entry: ScoredRecord) -> str:
    shown = show.speedup_with_interval(entry.speedup, entry.low, entry.high, None)
    return f"{show.line(entry.solution, 100)}: {shown}"


def speedups(timed: Sequence[ScoredRecord], colours: Mapping[str, str], link_of: LinkOf, label: str) -> Markup:
    """Draw a histogram of speedups, and below it the solutions of each author as dots.

    Args:
        timed: Entries with a speedup.
        colours: CSS class of each author's colour.
        link_of: Target of a dot.
        label: Text for screen readers, with the baseline.
    """
    values = [entry.speedup or 1.0 for entry in timed]
    scale = _speedup_scale(values)
    authors = figures.by_author(timed, colours)
    # A chart of few authors is as high as the other charts.
    floor = max(120, 210 - 34 * len(authors))
    edges = figures.histogram_edges(values, most=40)
    counts = [sum(low <= value < high for value in values) for low, high in pairwise(edges)]
    tall = Scale(0, max(counts), floor, 12, log=False)
    bars = [
        _mark(
            Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(
                scale(low), tall(count), max(3, round(scale(high) - scale(low) - 1, 1)), round(floor - tall(count), 1)
            ),
            f"{show.speedup(low)} to {show.speedup(high)}: {count} solution{'' if count == 1 else 's'}",
            "",
            "bar",
        )
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
        if count
    ]
    bottom = floor + 6 + 34 * len(authors)
    rows = []
    for place, (name, own) in enumerate(authors.items()):
        y = floor + 26 + 34 * place
        held = sorted(own, key=lambda entry: entry.speedup or 0.0)
        middle = math.sqrt((held[(len(held) - 1) // 2].speedup or 1) * (held[len(held) // 2].speedup or 1))
        # Dots at one place would look like one dot, so they are spread in height.
        marks = [
            _mark(_dot(scale(entry.speedup or 1), y + (number % 3 - 1) * 3), _named(entry), link_of(entry), "dot")
            for number, entry in enumerate(held)
        ]
        bar = Markup('<path d="M{} {}v18"/>').format(scale(middle), y - 9)
        marks.append(_mark(bar, f"{name}: median {show.speedup(middle)}", "", "median"))
        rows += [_series(colours[name], marks), *([_text(4, y - 11, name, anchor="start")] if len(authors) > 1 else [])]
    axes = [
        _y_axis(tall, [tick for tick in tall.ticks(4) if tick == int(tick)], lambda tick: f"{tick:g}"),
        _x_axis(scale, 12, bottom, label, _times),
        _line(scale(1), 12, scale(1), bottom, "unit"),
    ]
    return _chart(bottom + 42, label, *axes, *bars, *rows)


def fast_p(entries: Sequence[ScoredRecord], colours: Mapping[str, str], label: str) -> Markup:
    """Draw the share of each author's entries above a speedup p, for every p."""
    judged = [entry for entry in entries if entry.judged]
    scale = _speedup_scale([0.1, 2.0, *(entry.counted for entry in judged if entry.counted is not None)])
    tall = Scale(0, 1, 226, 14, log=False)
    lines = []
    for name, own in figures.by_author(judged, colours).items():
        steps = figures.fast_p_steps(own)
        path = f"M{scale.start} {tall(len(steps) / len(own))}" + "".join(
            f"H{scale(p)}V{tall(share)}" for p, share in steps
        )
        told = ", ".join(
            f"fast_{p:g} {show.share(sum((e.counted or 0) > p for e in own) / len(own))}" for p in (0.5, 1, 2)
        )
        shape = Markup('<path d="{}H{}"/>').format(path, scale.end)
        lines.append(_mark(shape, f"{name}, {len(own)} results: {told}", "", f"series curve {colours[name]}"))
    axes = [
        _y_axis(tall, [0, 0.25, 0.5, 0.75, 1], lambda tick: f"{tick:.0%}"),
        _x_axis(scale, 14, 226, label, _times),
        _line(scale(1), 14, scale(1), 226, "unit"),
    ]
    return _chart(268, label, *axes, *lines)


def roofline(points: Sequence[figures.Point], colours: Mapping[str, str], label: str) -> Markup:
    """Draw solutions by arithmetic per byte and reached share of the peak rate."""
    counted = [point.intensity for point in points if point.intensity > 0]
    low, high = min([0.05, *counted]) / 2, max([20.0, *counted]) * 2
    # Problems without counted flops stand in a column of their own, left of the axis.
    edge = low / 3
    scale = Scale(edge / 2, high, LEFT, WIDTH - RIGHT)
    reached = [min(1.0, point.intensity or edge) * point.fraction for point in points]
    tall = Scale(min([edge / 2, *reached]), max([1.5, *reached]), 226, 14)
    groups: dict[str, list[Markup]] = {}
    for point, share in zip(points, reached, strict=True):
        author = show.line(point.entry.author, 40)
        text = f"{_named(point.entry)}, {show.share(point.fraction)} of the speed of light, bound by {point.bound}"
        shape = SHAPES[point.bound](scale(point.intensity or edge), tall(share))
        groups.setdefault(author if author in colours else figures.OTHERS, []).append(
            _mark(shape, text, point.link, "dot")
        )
    roof = Markup('<path class="roof" d="M{} {}L{} {}H{}"/>').format(
        scale.start, tall(edge / 2), scale(1), tall(1), scale.end
    )
    unknown = [
        Markup('<rect class="unknown" x="{}" y="14" width="{}" height="212"/>').format(
            scale.start, round(scale(low / 1.2) - scale.start, 1)
        ),
        _text(scale.start + 4, 28, "no flops", anchor="start"),
    ]
    return _chart(
        268,
        label,
        *(unknown if len(counted) < len(points) else []),
        _y_axis(tall, tall.ticks(6), lambda tick: f"{tick:g}"),
        _x_axis(scale, 14, 226, label, lambda tick: f"{tick:g}"),
        roof,
        *(_series(colours[name], marks) for name, marks in groups.items()),
    )


History = Mapping[str, Sequence[tuple[int, str, Score, str]]]
"""Author -> number of the run, its name, the author's score in it, link."""


def history(runs: Sequence[str], authors: History, colours: Mapping[str, str], label: str) -> Markup:
    """Draw each author's mean speedup in run after run, the earliest left."""
    speeds = [score.speedup for rows in authors.values() for _, _, score, _ in rows if score.speedup is not None]
    scale = Scale(0, max(1, len(runs) - 1), LEFT + 24, WIDTH - RIGHT - 24, log=False)
    tall = Scale(min(*speeds, 0.9) / 1.1, max(*speeds, 1.1) * 1.1, 226, 14)
    series = []
    for name, rows in authors.items():
        places = [
            (scale(number), tall(score.speedup), run, score, link) for number, run, score, link in rows if score.speedup
        ]
        path = "L".join(f"{x} {y}" for x, y, *_ in places)
        marks = [
            _mark(
                _dot(x, y),
                f"{run}, {name}: {show.speedup_with_interval(score.speedup, score.low, score.high)}, "
                f"{score.passed} of {score.results} passed",
                link,
                "dot",
            )
            for x, y, run, score, link in places
        ]
        line = Markup('<g class="curve"><path d="M{}"/></g>').format(path)
        if places:
            series.append(_series(colours[name], [line, *marks]))
    named = range(len(runs)) if len(runs) <= 3 else (0, len(runs) - 1)
    ends = {0: "start", len(runs) - 1: "end"} if len(runs) > 1 else {}
    names = [
        _text(
            {"start": LEFT, "end": WIDTH - RIGHT}.get(end, scale(number)), 243, show.line(runs[number], 24), anchor=end
        )
        for number in named
        for end in [ends.get(number, "middle")]
    ]
    axes = [_y_axis(tall, tall.ticks(6), _times), *names, _text(WIDTH / 2, 260, label, "axis")]
    if tall.low < 1 < tall.high:
        axes.append(_line(LEFT, tall(1), WIDTH - RIGHT, tall(1), "unit"))
    return _chart(268, label, *axes, *series)


def bars(rows: Sequence[tuple[str, float, str, str]], label: str) -> Markup:
    """Draw times as bars from zero, one below the other.

    Args:
        rows: Name, seconds, class, and link of each bar.
        label: Text for screen readers.
    """
    longest = max(seconds for _, seconds, _, _ in rows)
    parts = []
    for number, (name, seconds, kind, link) in enumerate(rows):
        y = 30 * number
        shape = Markup('<rect x="0" y="{}" width="{}" height="9" rx="2"/>').format(
            y + 17, max(1, round(WIDTH * seconds / longest, 1))
        )
        text = show.duration(seconds)
        parts += [
            _mark(shape, f"{name}: {text}", link, kind),
            _text(0, y + 12, show.line(name, 60), anchor="start"),
            _text(WIDTH, y + 12, text, anchor="end"),
        ]
    return _chart(30 * len(rows), label, *parts, kind="chart bars")


def samples(reference_s: Sequence[float], solution_s: Sequence[float]) -> Markup:
    """Draw samples of reference and solution as dots on a time axis, with medians.

    Empty without samples. One path for each side keeps a page with thousands of solutions small.
    """
    sides = [[value for value in side if math.isfinite(value) and value > 0] for side in (reference_s, solution_s)]
    values = sorted(value for side in sides for value in side)
    if not values:
        return Markup("")
    log = values[-1] > 3 * values[0]
    margin = 0.0 if log else 0.05 * (values[-1] - values[0]) or 0.05 * values[0]
    scale = (
        Scale(values[0] / 1.05, values[-1] * 1.05, 8, WIDTH - 8)
        if log
        else Scale(values[0] - margin, values[-1] + margin, 8, WIDTH - 8, log=False)
    )
    unit_s, unit = next(
        (s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")) if values[0] >= s or u == "ns"
    )
    parts = [
        part
        for tick in scale.ticks(5)
        for part in (_line(scale(tick), 4, scale(tick), 50), _text(scale(tick), 64, f"{tick / unit_s:.5g} {unit}"))
    ]
    for name, side, y in zip(("reference", "solution"), sides, (15, 38), strict=True):
        shown = side[:: max(1, math.ceil(len(side) / MAX_DOTS))]
        # Dots at one place would look like one dot, so they are spread in height.
        dots = "".join(f"M{scale(value):g} {y + (index % 5 - 2) * 3}h0" for index, value in enumerate(shown))
        if shown:
            middle = scale(sorted(side)[len(side) // 2])
            parts += [
                Markup('<path class="{}" d="{}"/>').format(name, dots),
                Markup('<path class="{} median" d="M{} {}v22"/>').format(name, middle, y - 11),
            ]
    label = "samples of the reference, above, and of the solution, below, on an axis of time"
    return _chart(70, label, *parts, kind="chart samples")

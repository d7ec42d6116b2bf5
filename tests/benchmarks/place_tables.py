"""The table of `bench_places`, from its series: pure, times in, Markdown out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

HEAD = (
    "| series | launches a call | input | output | lower quartile | median | upper quartile | mean |",
    "|---" * 8 + "|",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Calls of one kind: launches of each with the flush, device addresses (None: several), seconds."""

    title: str
    launches: int
    read_from: int | None
    written_to: int | None
    low_s: float
    median_s: float
    high_s: float
    mean_s: float

    def __post_init__(self) -> None:
        if not 0 < self.low_s <= self.median_s <= self.high_s:
            raise ValueError(f"{self.title}: {self.low_s}, {self.median_s} and {self.high_s} s are no quartiles")


def series_of(
    title: str, times_s: Sequence[float], *, launches: int, read_from: int | None, written_to: int | None
) -> Series:
    """The series of these calls, at least one."""
    ordered, count = sorted(times_s), len(times_s)
    return Series(
        title=title,
        launches=launches,
        read_from=read_from,
        written_to=written_to,
        low_s=ordered[count // 4],
        median_s=statistics.median(ordered),
        high_s=ordered[3 * count // 4],
        mean_s=statistics.fmean(ordered),
    )


def line(series: Series) -> str:
    addresses = ("" if one is None else f"{one:#x}" for one in (series.read_from, series.written_to))
    times_s = (series.low_s, series.median_s, series.high_s, series.mean_s)
    shown = " | ".join(f"{1e6 * one:.2f}" for one in times_s)
    return f"| {series.title} | {series.launches} | {' | '.join(addresses)} | {shown} |"


def table(series: Sequence[Series]) -> list[str]:
    """The lines of the table; microseconds."""
    return [*HEAD, *(line(one) for one in series)]


def document(title: str, about: str, series: Sequence[Series]) -> str:
    return "\n".join([f"# {title}", "", about, "", "Microseconds a call.", "", *table(series)]) + "\n"

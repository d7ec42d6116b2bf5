"""Compute how each device spent the time of a run.

Pure functions. The times come from the `evidence` of records: `ran_on` (device, begin and end), `stages_s` (seconds of
each stage), `bursts_s` (seconds in timed calls of solution and reference) and `prepared_ahead` (problems that were
prepared before). `load` includes the wait for a process with an open device. The time of the solution is the referee's
wall clock around its bursts, which includes cache flushes and output copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.core.record import Record
from harness.report import format as show
from harness.results.evidence import mapping

_END_OF_TIME_S = 1e11
"""Times after this (seconds since 1970) are invalid."""

PARTS = ("solution", "reference", "checks", "prepare", "load", "handling")
"""What the time of a stay consists of."""

_BAR = 60
"""Characters of a bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """Seconds of one device; `handling_s` is communication of referee and runner."""

    slot: str
    solutions: int
    span_s: float
    solution_s: float
    reference_s: float
    checks_s: float
    prepare_s: float
    load_s: float
    handling_s: float
    idle_s: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """Time of a solution on a device, or of a preparation (`solution` is None)."""

    slot: str
    solution: str | None
    begin_s: float
    end_s: float
    parts: Mapping[str, float]
    problem: str = ""


def stays(records: Iterable[Record]) -> list[Stay]:
    """Return all stays by device and time; older records and failed builds give none."""
    found = []
    for record in records:
        ran = mapping(record.evidence, "ran_on")
        when = _times(ran)
        if not {"begin_unix_s", "end_unix_s"} <= when.keys():
            continue
        stages, bursts = _times(record.evidence.get("stages_s")), _times(record.evidence.get("bursts_s"))
        parts = dict.fromkeys(PARTS, 0.0) | {
            "solution": bursts.get("solution", 0.0),
            "reference": bursts.get("reference", 0.0),
            "prepare": stages.get("prepare", 0.0),
            "load": stages.get("open", 0.0) + stages.get("load", 0.0),
        }
        worked_s = stages.get("verify", 0.0) + stages.get("measure", 0.0)
        parts["checks"] = max(0.0, worked_s - parts["solution"] - parts["reference"])
        parts["handling"] = max(0.0, when["end_unix_s"] - when["begin_unix_s"] - sum(parts.values()))
        stay = Stay(
            slot=show.line(str(ran.get("slot")), 40),
            solution=record.solution,
            begin_s=when["begin_unix_s"],
            end_s=max(when["begin_unix_s"], when["end_unix_s"]),
            parts=parts,
            problem=record.problem,
        )
        found += [*_preparations(record.evidence.get("prepared_ahead"), stay), stay]
    first = min((stay.begin_s for stay in found), default=0.0)
    return sorted(
        (replace(stay, begin_s=stay.begin_s - first, end_s=stay.end_s - first) for stay in found),
        key=lambda stay: (stay.slot, stay.begin_s),
    )


def _preparations(values: Any, stay: Stay) -> Iterator[Stay]:
    """Return the preparations before a stay, up to its begin."""
    for value in values if isinstance(values, Sequence) else ():
        when = _times(value)
        if {"begin_unix_s", "end_unix_s"} <= when.keys() and when["begin_unix_s"] < stay.begin_s:
            begin_s = when["begin_unix_s"]
            end_s = max(begin_s, min(when["end_unix_s"], stay.begin_s))
            parts = {**dict.fromkeys(PARTS, 0.0), "prepare": end_s - begin_s}
            problem = str(value.get("problem"))
            yield replace(stay, solution=None, begin_s=begin_s, end_s=end_s, parts=parts, problem=problem)


def _times(values: Any) -> dict[str, float]:
    """Return the entries that are valid times: a record may have been edited."""
    numbers = {name: value for name, value in mapping(values).items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if 0.0 <= value < _END_OF_TIME_S}


def shares(found: Sequence[Stay]) -> list[DeviceShare]:
    """Return how each device spent the time between first and last stay."""
    end_s = max((stay.end_s for stay in found), default=0.0)
    result = []
    for slot in dict.fromkeys(stay.slot for stay in found):
        own = [stay for stay in found if stay.slot == slot]
        result.append(
            DeviceShare(
                slot=slot,
                solutions=sum(stay.solution is not None for stay in own),
                span_s=end_s,
                **{f"{part}_s": sum(stay.parts[part] for stay in own) for part in PARTS},
                idle_s=max(0.0, end_s - sum(stay.end_s - stay.begin_s for stay in own)),
            )
        )
    return result


def lines(found: Sequence[Stay]) -> list[str]:
    """Return a line for each device with its shares, and one for each stay with a bar."""
    text = []
    end_s = max((stay.end_s for stay in found), default=0.0)
    for share in shares(found):
        spent = {part: getattr(share, f"{part}_s") for part in (*PARTS, "idle")}
        named = ", ".join(f"{part} {part_s:.1f} s ({part_s / (end_s or 1.0):.0%})" for part, part_s in spent.items())
        text.append(f"{show.line(share.slot, 60)}: {share.solutions} solutions in {end_s:.1f} s: {named}")
        for stay in (stay for stay in found if stay.slot == share.slot):
            when = f"{stay.begin_s:8.2f} to {stay.end_s:8.2f} s"
            what = f"({stay.problem} prepared)" if stay.solution is None else stay.solution
            text.append(f"  {_bar(stay, end_s)} {when}  {show.line(what, 70)}")
    if text:
        text.append("bars: s solution, r reference, c checks, p prepare, l load, . communication between processes")
    return text


_LETTERS = (("prepare", "p"), ("load", "l"), ("checks", "c"), ("reference", "r"), ("solution", "s"), ("handling", "."))


def _bar(stay: Stay, end_s: float) -> str:
    """Draw a stay on the axis of the run; letters show proportions, not order."""
    scale = _BAR / (end_s or 1.0)
    begin, end = int(stay.begin_s * scale), max(int(stay.begin_s * scale) + 1, round(stay.end_s * scale))
    total = sum(stay.parts.values()) or 1.0
    filled, passed_s = "", 0.0
    for name, letter in _LETTERS:
        passed_s += stay.parts[name]
        filled += letter * (round((end - begin) * passed_s / total) - len(filled))
    return " " * begin + filled.ljust(end - begin, ".") + " " * (_BAR - end)

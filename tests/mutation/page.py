"""Write the page of judged mutants: operators by stage, and the mutants that survive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutation.judging import SOUND, STAGES
from tests.mutation.operators import OPERATORS

CLASSES = Path(__file__).with_name("survivors.tsv")
"""By hand: a pattern of ids, a class and a reason on each line. The first line that fits an id counts."""

EQUIVALENT = "equivalent"
"""Class of mutants that compute the same on all inputs of the problem, without races or invalid accesses."""

UNREACHED = "unreached"
"""Class of mutants in code that no thread executes at the judged sizes, as a trap there shows."""

REFUSED_LATER = "refused on the other device"
"""Class of mutants that survive at small sizes on one device, and are refused at full sizes on another."""

OPEN = "not classified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of mutants of one operator, or of all.

    Attributes:
        stages: Number of mutants of each stage.
        equivalent: Survivors that are equivalent.
        unreached: Survivors that no thread reaches.
        later: Survivors that another device refuses.
    """

    stages: Counter[str]
    equivalent: int
    unreached: int
    later: int

    @property
    def refused(self) -> int:
        """Number of mutants that do not pass."""
        return sum(self.stages[stage] for stage in STAGES if stage != "survived")

    def share(self, *, reached: bool) -> str:
        """Return the share refused of those that are not equivalent, or of these that are also reached."""
        total = self.refused + self.stages["survived"] - self.equivalent - (self.unreached if reached else 0)
        return f"{(self.refused + self.later) / total * 100:.1f} %" if total else "-"


@cache
def _classes() -> tuple[tuple[str, str, str], ...]:
    lines = [line.split("\t") for line in CLASSES.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return tuple((pattern, kind, why) for pattern, kind, why in lines)


def class_of(row: dict[str, Any]) -> tuple[str, str]:
    """Return the class of a survivor, and why it survives.

    Args:
        row: Its result; `again` is its stage on another device, if it was judged there.
    """
    if row.get("again") not in (None, "survived", "no verdict"):
        return REFUSED_LATER, f"stage there: {row['again']}"
    for pattern, kind, why in _classes():
        if fnmatchcase(row["id"], pattern):
            return kind, why
    return (
        (UNREACHED, "no thread executes this statement at the judged sizes") if row["reached"] is False else (OPEN, "")
    )


def counts_of(rows: Sequence[dict[str, Any]]) -> Counts:
    """Count the results of some mutants."""
    kinds = Counter(class_of(row)[0] for row in rows if row["stage"] == "survived")
    stages = Counter(str(row["stage"]) for row in rows)
    return Counts(stages=stages, equivalent=kinds[EQUIVALENT], unreached=kinds[UNREACHED], later=kinds[REFUSED_LATER])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(name: str, rows: Sequence[dict[str, Any]]) -> str:
    counts = counts_of(rows)
    numbers = [
        len(rows),
        *(counts.stages[stage] for stage in (*STAGES, "no verdict")),
        counts.equivalent,
        counts.unreached,
        counts.later,
    ]
    cells = [name, *map(str, numbers), counts.share(reached=False), counts.share(reached=True)]
    return f"| {' | '.join(cells)} |"


def page(rows: Sequence[dict[str, Any]], again: Sequence[dict[str, Any]] = ()) -> str:
    """Return the page as Markdown.

    Args:
        rows: Results of mutants and of sound files. Mutants of files that do not pass without a mistake are left out.
        again: Results of survivors on another device.
    """
    unsound = {row["file"] for row in again if row["operator"] == SOUND and row["status"] != "passed"}
    there = {row["id"]: row["stage"] for row in again if row["file"] not in unsound}
    rows = [row | {"again": there.get(row["id"])} for row in rows]
    sound = {row["file"]: row["status"] for row in rows if row["operator"] == SOUND}
    mutants = [row for row in {row["id"]: row for row in rows}.values() if row["operator"] != SOUND]
    mutants = [row for row in mutants if sound.get(row["file"]) == "passed"]
    counts = counts_of(mutants)
    devices = " and ".join(sorted({row["device"] for row in mutants}))
    left_out = sorted(f"`{file}` ({status})" for file, status in sound.items() if status != "passed")
    survivors = sorted((row for row in mutants if row["stage"] == "survived"), key=lambda row: row["id"])
    kinds = Counter(class_of(row)[0] for row in survivors)
    head = [
        "operator",
        "mutants",
        *STAGES,
        "no verdict",
        "equivalent",
        "unreached",
        "later",
        "refused",
        "refused of reached",
    ]
    lines = [
        "# Mutants of kernels",
        "",
        f"{len(mutants)} mutants of {len({row['file'] for row in mutants})} sound solutions, judged on {devices} by "
        "`python -m tests.mutation`. Each has one small mistake.",
        f"{counts.refused} are refused, and {counts.later} survivors on another device (*later*): "
        f"{counts.share(reached=False)} of those that are not equivalent, and "
        f"{counts.share(reached=True)} of those of them that some thread reaches at the judged sizes.",
        "",
        f"| {' | '.join(head)} |",
        "|---" + "|---:" * (len(head) - 1) + "|",
        *(_row(name, [row for row in mutants if row["operator"] == name]) for name in OPERATORS),
        _row("all", mutants),
        "",
        "*Equivalent* and *unreached* mutants survive. A mutant is equivalent if it computes the",
        "same on all inputs of its problem. It is unreached if the sound solution passes with a trap at the mistake.",
        "",
        *([f"Left out, because they do not pass without a mistake: {', '.join(left_out)}.", ""] if left_out else []),
        "## Survivors",
        "",
        "| class | mutants |",
        "|---|---:|",
        *(f"| {kind} | {number} |" for kind, number in kinds.most_common()),
        "",
        "| id | before | after | class | why |",
        "|---|---|---|---|---|",
    ]
    for row in survivors:
        cells = [f"`{row['id']}`", *(f"`{_cell(row[name][:160])}`" for name in ("before", "after")), *class_of(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"

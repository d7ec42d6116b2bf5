"""The tables of `bench_calibration`, from the rows that it writes: pure, rows in, Markdown out.

    python -m tests.benchmarks.calibration_tables rows.jsonl --out results/calibration-h200.md

A row is one JSON object. Its `part` is `machine` (what it was measured on), `spin` (one evaluation of a twin of a
kernel of known length), `kernel` (one of a twin of a torch kernel) or `work` (a copy or product against many by the
host's clock). Times are seconds; samples are lists a round.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.core.stats import burst_time, interval_of_logs, same_within

LONG_S = 20e-6
"""Length that divides short calls from long ones: below it, what two processes launch alike is off by more than 1 % of
a call by the place of their queues in the GPU's memory alone."""

FROM_LONG = f"Of calls that spin for {LONG_S * 1e6:g} us and more"

WITHIN = 0.01
TARGET = 0.95
"""Twins are to lie within 1 % of 1 in so many of all repeats."""

KNOWN_SHARE, KNOWN_S = 0.02, 0.3e-6
"""A known length is to be met within the larger of these: a share of it, and seconds."""

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a file, the last of which may have been cut off."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def document(rows: Sequence[Row]) -> str:
    """All tables that the rows are enough for."""
    lines = [*_heading(rows)]
    if spins := [row for row in rows if row["part"] == "spin"]:
        lines += [*_lengths(spins), "", *_summary(spins), ""]
    if kernels := [row for row in rows if row["part"] == "kernel"]:
        lines += [*_kernels(kernels), ""]
    if work := [row for row in rows if row["part"] == "work"]:
        lines += [*_work(work), ""]
    took_s = sum(row.get("took_s") or 0.0 for row in rows)
    lines.append(f"All evaluations together took {took_s:.0f} s.")
    return "\n".join(lines) + "\n"


def _heading(rows: Sequence[Row]) -> list[str]:
    machine = next((row for row in rows if row["part"] == "machine"), {})
    title = f"# Calibration on {machine.get('gpu', 'a GPU that the rows do not name')}"
    about = "; ".join(
        str(machine[name]) if name == "command" else f"{name} {machine[name]}"
        for name in ("date", "driver", "torch", "processors", "command")
        if machine.get(name)
    )
    lines = [title, "", *([about + ".", ""] if about else [])]
    if hz := machine.get("rate_hz"):
        lines += [f"GPU cycles: {hz / 1e6:.1f} MHz by the host's clock, which makes the known lengths.", ""]
    return lines


def by_length(spins: Iterable[Row]) -> dict[float, list[Row]]:
    """Rows by the known length of their kernel, shortest first."""
    held: dict[float, list[Row]] = {}
    for row in spins:
        held.setdefault(row["length_s"], []).append(row)
    return dict(sorted(held.items()))


def _lengths(spins: Sequence[Row]) -> list[str]:
    lines = [
        "Each row: a call that spins for so long, judged again and again against its identical twin, which is a "
        "process of its own each time. `beyond`: device time beyond that of the same call that spins for none, by way "
        "of the same lane, in microseconds.",
        "",
        "| known us | call us | beyond | off | twins' beyond, farthest off | twins | median | worst | within 1 % "
        "| same | in a graph within 1 % | median in a graph | longer when first | s each |",
        "|---" * 14 + "|",
    ]
    held = by_length(spins)
    zero = held.get(0.0, [])
    for length_s, mine in held.items():
        good = [row for row in mine if "failed" not in row]
        lines += [f"| {length_s * 1e6:g} | {row['failed']} |" for row in mine if "failed" in row]
        if not good:
            continue
        ratios = [row["speedup"] for row in good]
        graphs = [ratio for row in good if (ratio := in_a_graph(row)) is not None]
        off_s, beyond, worst_off = known_off_s(length_s, good, zero), "", ""
        if off_s is not None and length_s:
            beyond = f"{(off_s + length_s) * 1e6:.2f}"
            far_s = max((_off_s(length_s, [row], zero, "solution") for row in good), key=abs)
            worst_off = _off(far_s, length_s)
        shown_off = _off(off_s, length_s) if off_s is not None and length_s else ""
        lines.append(
            f"| {length_s * 1e6:g} | {median_s(good, 'reference') * 1e6:.2f} | {beyond} | {shown_off} | {worst_off} | "
            f"{len(mine)} | {statistics.median(ratios):.4f} | {max(ratios, key=_far):.4f} | "
            f"{sum(map(within, ratios))} | {sum(map(called_same, good))} | "
            f"{f'{sum(map(within, graphs))} of {len(graphs)}' if graphs else ''} | "
            f"{f'{statistics.median(graphs):.4f}' if graphs else ''} | {_order(good)} | "
            f"{statistics.median(row['took_s'] for row in good):.2f} |"
        )
    return lines


def _summary(spins: Sequence[Row]) -> list[str]:
    held, lines = by_length(spins), []
    zero, twins = held.pop(0.0, []), []
    known = {length_s: known_off_s(length_s, rows, zero) for length_s, rows in held.items()}
    offs = {length_s: off_s for length_s, off_s in known.items() if off_s is not None}
    if offs:
        exact = all(abs(off_s) <= max(KNOWN_SHARE * length_s, KNOWN_S) for length_s, off_s in offs.items())
        lines.append(
            f"Known lengths, {len(offs)} of them, all within 2 % or 0.3 us: **{'yes' if exact else 'no'}** (the "
            "reference, which is one process; what twins are off beyond that is how processes differ)."
        )
    twins = [row for rows in held.values() for row in rows]
    for words, mine in (
        ("Twins", twins),
        (FROM_LONG, [row for row in twins if row["length_s"] >= LONG_S]),
        ("Of shorter ones", [row for row in twins if row["length_s"] < LONG_S]),
    ):
        if mine:
            lines.append(_count(words, mine, target=words in ("Twins", FROM_LONG)))
    graphs = [ratio for row in twins if (ratio := in_a_graph(row)) is not None]
    if graphs:
        lines.append(f"In a graph (calls below 50 us): {sum(map(within, graphs))} of {len(graphs)} within 1 %.")
    good = [row for row in twins if "failed" not in row]
    if good:
        orders = {order: _of_order(good, order) for order in ("AB", "BA")}
        both = ", ".join(f"{math.exp(statistics.median(logs)):.4f} {order}" for order, logs in orders.items() if logs)
        lines.append(
            f"Order: the median speedup by rounds of either order is {both}; calls took longer in the first burst of a "
            f"round by {_order(good)}. Orders stand equally often, so that a speedup does not feel it."
        )
    return [item for line in lines for item in (line, "")][:-1]


def _count(words: str, rows: Sequence[Row], *, target: bool) -> str:
    good = [row for row in rows if "failed" not in row]
    near = sum(within(row["speedup"]) for row in good)
    verdict = f": **{'yes' if near >= TARGET * len(rows) else 'no'}**, 95 % were asked for" if target else ""
    same = sum(map(called_same, good))
    off_s = [abs(row["speedup"] - 1.0) * median_s([row], "solution") for row in good]
    close = f"; {sum(each <= KNOWN_S for each in off_s)} within 0.3 us" if words not in ("Twins", FROM_LONG) else ""
    return f'{words}: {near} of {len(rows)} within 1 %{verdict}{close}; {same} called "the same as the reference".'


def _kernels(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| torch's kernel against itself | us | twins | median | worst | within 1 % | same | noise floor | measured "
        "| in a graph, median | worst | longer when first |",
        "|---" * 12 + "|",
    ]
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = [row for row in rows if row["name"] == name]
        good = [row for row in mine if "failed" not in row]
        lines += [f"| {name} | {row['failed']} |" for row in mine if "failed" in row]
        if not good:
            continue
        ratios = [row["speedup"] for row in good]
        graphs = [ratio for row in good if (ratio := in_a_graph(row)) is not None]
        lines.append(
            f"| {name} | {median_s(good, 'reference') * 1e6:.2f} | {len(mine)} | {statistics.median(ratios):.4f} | "
            f"{max(ratios, key=_far):.4f} | {sum(map(within, ratios))} | {sum(map(called_same, good))} | "
            f"{good[0]['floor'] * 100:.2f} % | {good[0]['measured_floor'] * 100:.2f} % | "
            f"{f'{statistics.median(graphs):.4f}' if graphs else ''} | "
            f"{f'{max(graphs, key=_far):.4f}' if graphs else ''} | {_order(good)} |"
        )
    return lines


def _work(rows: Sequence[Row]) -> list[str]:
    lines = ["| work | many by the host's clock, us | reference | off | solution |", "|---|---|---|---|---|"]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['name']} | {row['failed']} |")
            continue
        off = row["reference_s"] / row["expected_s"] - 1
        lines.append(
            f"| {row['name']} | {row['expected_s'] * 1e6:.2f} | {row['reference_s'] * 1e6:.2f} | {off * 100:+.2f} % | "
            f"{row['solution_s'] * 1e6:.2f} |"
        )
    return lines


def median_s(rows: Sequence[Row], side: str) -> float:
    """The median of all samples of one side."""
    return statistics.median(time_s for row in rows for burst in row[f"{side}_samples_s"] for time_s in burst)


def known_off_s(length_s: float, rows: Sequence[Row], zero: Sequence[Row]) -> float | None:
    """How far the reference's calls lie from the known length, beyond those that spin for none; None where unknown."""
    good = [row for row in rows if "failed" not in row]
    empty = [row for row in zero if "failed" not in row]
    return _off_s(length_s, good, empty, "reference") if good and empty else None


def _off_s(length_s: float, rows: Sequence[Row], zero: Sequence[Row], side: str) -> float:
    """The mean over rows, each beside calls that spin for none by way of the same lane
    (`harness.devices.empty_kernel`), where some were made: launches take longer by one than by another."""
    offs = []
    for lane in sorted({lane_of(row) for row in rows}):
        mine, beside = ([row for row in held if lane_of(row) == lane] for held in (rows, zero))
        offs += [median_s(mine, side) - median_s(beside or zero, side) - length_s] * len(mine)
    return statistics.fmean(offs)


def lane_of(row: Row) -> int:
    """The referee's lane by which the reference's bursts went."""
    return int((row.get("empty_call_s") or {}).get("lane", 0))


def _off(off_s: float, length_s: float) -> str:
    return f"{off_s * 1e6:+.2f} ({off_s / length_s * 100:+.2f} %)"


def within(ratio: float) -> bool:
    return abs(ratio - 1.0) <= WITHIN


def _far(ratio: float) -> float:
    return abs(math.log(ratio))


def called_same(row: Row) -> bool:
    """Whether the harness calls this speedup the same as the reference."""
    return same_within(row["speedup"], row["low"], row["high"], floor=row["floor"]) is not None


def in_a_graph(row: Row) -> float | None:
    """The ratio of the times of calls inside one CUDA graph; None where there is none of either side."""
    reference_s, solution_s = row.get("reference_graph_s"), row.get("solution_graph_s")
    return reference_s / solution_s if reference_s and solution_s else None


def _logs(row: Row) -> list[float]:
    pairs = zip(row["reference_samples_s"], row["solution_samples_s"], strict=True)
    return [math.log(burst_time(a) / burst_time(b)) for a, b in pairs]


def _of_order(rows: Sequence[Row], order: str) -> list[float]:
    return [log for row in rows for log, mine in zip(_logs(row), row["order"], strict=True) if mine == order]


def _order(rows: Sequence[Row]) -> str:
    """How much longer calls take in the first burst of a round, half of it on either side, with its 95 % interval."""
    differences = []
    for row in rows:
        logs = _logs(row)
        pairs = zip(row["order"][0::2], logs[0::2], logs[1::2], strict=False)
        differences += [(a - b if order == "AB" else b - a) / 2 for order, a, b in pairs]
    if not differences:
        return ""
    found = interval_of_logs(differences)
    ends = "" if found.low is None or found.high is None else f" ({_percent(found.low)} to {_percent(found.high)})"
    return f"{_percent(found.speedup)} %{ends}"


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="the file of rows")
    parser.add_argument("--out", type=Path, help="Markdown file to write, instead of stdout")
    given = parser.parse_args(arguments)
    text = document(read(given.rows))
    if given.out:
        given.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

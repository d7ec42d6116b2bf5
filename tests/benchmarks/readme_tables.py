"""The README's table of tuned solutions, made from the committed run: `python -m tests.benchmarks.readme_tables`.

    python -m tests.benchmarks.readme_tables            # writes the table between the markers in README.md
    python -m tests.benchmarks.readme_tables --check    # exit code 1 where the README says something else
    python -m tests.benchmarks.readme_tables --print    # to stdout

Times in the table are medians of device time; a speedup is the record's, beside its 95 % interval against eager. Of
max-autotune with and without CUDA graphs the faster one counts. A solution that did not pass, or was not timed, has its
status in place of times. Run from the repository root.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.model import Baseline, Record
from harness.scoring import Entry, entries_of, geometric_mean
from harness.store import RunStore

BEGIN = "<!-- tuned solutions: begin; written by python -m tests.benchmarks.readme_tables -->"
END = "<!-- tuned solutions: end -->"
AUTHOR = "tuned"
ROOT = Path(__file__).parents[2]
RUN = ROOT / "results" / "h200"
README = ROOT / "README.md"

COMPILED = (Baseline.COMPILE,)
AUTOTUNED = (Baseline.COMPILE_MAX_AUTOTUNE, Baseline.COMPILE_MAX_AUTOTUNE_NO_CUDAGRAPHS)
COLUMNS = ("problem", "solution", "eager", "solution's time", "against eager (95 %)", "compile", "max-autotune", "SoL")


class TablesError(Exception):
    """The README or the run is not as it has to be; the message says what to do."""


def table(records: Sequence[Record]) -> str:
    """Markdown: one row a solution of the author `tuned` at full size, by problem, and a line that sums up."""
    chosen = [r for r in records if r.author == AUTHOR and r.workload == "full" and r.device.value == "cuda"]
    if not chosen:
        raise TablesError("the run has no record of a tuned solution at full size on a GPU")
    eager = {entry.solution: entry for entry in entries_of(chosen)}
    others = [_strictest(chosen, COMPILED), _strictest(chosen, AUTOTUNED)]
    latest = {record.solution: record for record in chosen}
    rows = sorted(eager.values(), key=lambda entry: (*_place(entry.problem), entry.solution))
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for entry in rows:
        held = [entry.problem, Path(entry.solution).stem]
        if entry.speedup is None:
            held += [f"`{entry.status}`", *[""] * 5]
        else:
            record = latest[entry.solution]
            held += [
                _milliseconds(record, "reference"),
                _milliseconds(record, "solution"),
                _interval(entry),
                *(_speedup(other.get(entry.solution)) for other in others),
                "" if entry.sol_fraction is None else f"{entry.sol_fraction:.0%}".replace("%", " %"),
            ]
        lines.append("| " + " | ".join(held) + " |")
    return "\n".join([*lines, "", *_summary(rows, others[1])])


def _strictest(records: Sequence[Record], baselines: Sequence[Baseline]) -> dict[str, Entry]:
    """By solution: the smallest of its speedups against `baselines`; those without any are left out."""
    found: dict[str, Entry] = {}
    for baseline in baselines:
        for entry in entries_of(records, baseline=baseline.value):
            known = found.get(entry.solution)
            if entry.speedup is not None and (known is None or entry.speedup < (known.speedup or 0.0)):
                found[entry.solution] = entry
    return found


def _summary(rows: Sequence[Entry], autotuned: dict[str, Entry]) -> list[str]:
    timed = [entry for entry in rows if entry.speedup is not None]
    faster = sum(_surely_faster(entry) for entry in timed)
    both = sum(_surely_faster(entry) and _surely_faster(autotuned.get(entry.solution)) for entry in timed)
    mean = geometric_mean(entry.speedup for entry in timed if entry.speedup is not None)
    known = sum(1 for entry in timed if (other := autotuned.get(entry.solution)) and other.speedup is not None)
    text = f"{len(rows)} solutions, {sum(entry.passed for entry in rows)} passed; {faster} are faster than eager"
    if mean is not None:
        text += f" (geometric mean of all {mean:.2f}x)"
    if known:
        text += f", {both} than eager and `max-autotune`, which is known for {known},"
    return [text + " beyond the noise floor."]


def _surely_faster(entry: Entry | None) -> bool:
    """The whole interval above 1, and further from it than the noise floor."""
    if entry is None or entry.speedup is None or entry.same_within is not None:
        return False
    return (entry.low if entry.low is not None else entry.speedup) > 1.0


def _interval(entry: Entry) -> str:
    if entry.low is None or entry.high is None:
        return _speedup(entry)
    return f"{_figure(entry.speedup)} ({_figure(entry.low)} to {_figure(entry.high)})"


def _speedup(entry: Entry | None) -> str:
    return "" if entry is None or entry.speedup is None else _figure(entry.speedup)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _milliseconds(record: Record, side: str) -> str:
    value = ((record.timing or {}).get(side) or {}).get("device", {}).get("median_s")
    return "" if value is None else f"{value * 1e3:.3g} ms"


def _place(problem: str) -> tuple[str, int]:
    level, _, number = problem.partition("/")
    return level, int(number)


def replaced(text: str, new: str) -> str:
    """`text` with what stands between the markers replaced. Raises `TablesError` where they are not there once each."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise TablesError(f"put these two lines into the README, where the table belongs:\n{BEGIN}\n{END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{rest.split(END)[1]}"


def records_of(run: Path) -> list[Record]:
    if not (run / "records.jsonl").is_file():
        raise TablesError(f"no records in {run}")
    return RunStore.open(run).records()


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=RUN, help="the run's folder (results/h200)")
    parser.add_argument("--readme", type=Path, default=README)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="change nothing; exit code 1 where they disagree")
    what.add_argument("--print", action="store_true", help="write the table to stdout, change nothing")
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        new = table(records_of(given.run))
        if given.print:
            print(new)
            return 0
        old = given.readme.read_text()
        text = replaced(old, new)
    except TablesError as error:
        print(f"readme_tables: {error}", file=sys.stderr)
        return 1
    if given.check:
        if text != old:
            print("readme_tables: the README's table is not that of the run; run without --check", file=sys.stderr)
        return int(text != old)
    given.readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

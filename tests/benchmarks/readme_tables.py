"""Everything that is said of the tuned solutions' run, made from it: `python -m tests.benchmarks.readme_tables`.

    python -m tests.benchmarks.readme_tables            # writes all three
    python -m tests.benchmarks.readme_tables --check    # exit code 1 if one of them says something else

It writes, from the records in `results/h200` and the times of compiled references in `results/h200-baselines` and
`results/h200-autotuned` (`apart`): `results/h200/README.md` with a row for each level and each solution;
`results/h200/leaderboard.csv`; and the line of each solution's comment that says what it reached (`reached`), if the
file is the one that was run. Run from the repository root.

Times are medians of device time. A speedup over eager is the record's, beside its 95 % interval. A solution is faster
if the whole interval is above 1 and further from it than the noise floor. Of max-autotune with and without CUDA graphs
(which copy the inputs) the faster one decides what beats it. A solution that did not pass, or was not timed, has its
status in place of times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.core.choices import Baseline
from harness.core.record import Record
from harness.report import csv
from harness.results.leaderboard import By, leaderboard
from harness.results.scoring import ScoredRecord, entries_of, geometric_mean
from harness.results.writer import RunStore

from . import apart, reached
from .apart import Lead

AUTHOR = "tuned"
ROOT = Path(__file__).parents[2]
RUN = ROOT / "results" / "h200"
COMPILED = ROOT / "results" / "h200-baselines"
AUTOTUNED_APART = ROOT / "results" / "h200-autotuned"
SOLUTIONS = ROOT / "solutions"

GRAPHS, NO_GRAPHS = Baseline.COMPILE_MAX_AUTOTUNE, Baseline.COMPILE_MAX_AUTOTUNE_NO_CUDAGRAPHS
AUTOTUNED = (GRAPHS, NO_GRAPHS)
AUTOTUNED_COLUMNS = ("over max-autotune", "without graphs")
"""Left out as long as no record of the run has one of these baselines."""

LEGEND = (
    "SoL is the least time that this GPU needs for the reference's work, over the solution's: bytes at the rate that a "
    "copy of 1 GiB reached on it, fp32 flops at that of cuBLAS without tensor cores "
    "(`harness/devices/measured_peaks.py`). Above 100 % is a solution that leaves out work of the reference (a factor "
    "that is diagonal or triangular, masked scores, experts that were not chosen), one whose products have float32's "
    "accuracy from several on tensor cores, or one that mostly reads, which can be faster than that copy."
)
COMPARED = (
    "Of max-autotune (`torch.compile`) with CUDA graphs, which copy the inputs, and without, the faster one decides; "
    "empty where it was not measured."
)
NOT_COMPARED = "Max-autotune was not measured."
APART = (
    "Compiled code that was timed apart, beside eager too (in the default mode all, `results/h200-baselines`; with "
    "max-autotune those of solutions that were not run beside it, `results/h200-autotuned`) is compared by both "
    f"speedups over eager, and faster asks for {apart.MARGIN:.0%} more than the interval."
).replace("%", " %")


class TablesError(Exception):
    """The run is not usable; the message says what to do."""


def chosen(records: Sequence[Record]) -> list[Record]:
    """The latest record of each tuned solution at full size on a GPU, by problem. Raises `TablesError` without any."""
    own = [r for r in records if r.author == AUTHOR and r.workload == "full" and r.device.value == "cuda"]
    if not own:
        raise TablesError("the run has no record of a tuned solution at full size on a GPU")
    latest = {record.solution: record for record in sorted(own, key=lambda record: record.finished_at)}
    return sorted(latest.values(), key=lambda record: (*_place(record.problem), record.solution))


def _place(problem: str) -> tuple[str, int]:
    level, _, number = problem.partition("/")
    return level, int(number)


class Results:
    """The run's records with their speedups, each by solution."""

    def __init__(self, records: Sequence[Record], compiled: Path | None = None, autotuned: Path | None = None) -> None:
        """`compiled` and `autotuned` are folders of `harness baseline --out`, if any."""
        self.records = chosen(records)
        self.eager = {entry.solution: entry for entry in entries_of(self.records)}
        self.compiled = apart.leads(self.records, compiled) if compiled else {}
        self.autotuned = {b: apart.leads(self.records, autotuned, b) if autotuned else {} for b in AUTOTUNED}
        for baseline, held in self.autotuned.items():
            held |= _against(self.records, baseline)
        self.strictest: dict[str, Lead] = {}
        for held in self.autotuned.values():
            for name, lead in held.items():
                known = self.strictest.get(name)
                if known is None or lead.speedup < known.speedup:
                    self.strictest[name] = lead

    def faster(self, record: Record) -> bool:
        """Than eager, beyond the noise floor."""
        return surely_faster(self.eager[record.solution])

    def beats_both(self, record: Record) -> bool:
        """Eager and the faster of the two forms of max-autotune, beyond the noise floor."""
        lead = self.strictest.get(record.solution)
        return self.faster(record) and lead is not None and lead.sure


def _against(records: Sequence[Record], baseline: Baseline) -> dict[str, Lead]:
    """Over a baseline in the records themselves."""
    held = entries_of(records, baseline=baseline.value)
    return {e.solution: Lead(speedup=e.speedup, sure=surely_faster(e)) for e in held if e.speedup is not None}


def surely_faster(entry: ScoredRecord) -> bool:
    """The whole interval above 1, and further from it than the noise floor."""
    if entry.speedup is None or entry.same_within is not None:
        return False
    return (entry.low if entry.low is not None else entry.speedup) > 1.0


def legend(results: Results) -> str:
    """What the columns mean, and what was not compared."""
    parts = [COMPARED if results.strictest else NOT_COMPARED, *([APART] if results.compiled else []), LEGEND]
    return " ".join(parts)


def levels(results: Results) -> list[str]:
    """Return the lines of a Markdown table with a row for each level, and one for all if there are several."""
    heads = ("", "solutions", "passed", "faster than eager", "geometric mean")
    heads += ("compared with compile", "faster") if results.compiled else ()
    heads += ("with max-autotune", "faster") if results.strictest else ()
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    names = sorted({_place(record.problem)[0] for record in results.records})
    for name in names:
        lines.append(_level(results, name, [r for r in results.records if _place(r.problem)[0] == name]))
    if len(names) > 1:
        lines.append(_level(results, "all", results.records))
    return lines


def _level(results: Results, name: str, own: Sequence[Record]) -> str:
    timed = [entry.speedup for record in own if (entry := results.eager[record.solution]).speedup is not None]
    compared = [record for record in own if record.solution in results.strictest]
    mean = geometric_mean(speedup for speedup in timed if speedup is not None)
    cells = [
        name,
        str(len(own)),
        str(sum(results.eager[record.solution].passed for record in own)),
        str(sum(map(results.faster, own))),
        "" if mean is None else f"{mean:.2f}x",
    ]
    if results.compiled:
        held = [lead for record in own if (lead := results.compiled.get(record.solution)) is not None]
        cells += [str(len(held)), str(sum(lead.sure for lead in held))]
    if results.strictest:
        cells += [str(len(compared)), str(sum(map(results.beats_both, compared)))]
    return "| " + " | ".join(cells) + " |"


def page(results: Results) -> str:
    """`README.md` of the run's folder: what ran, the levels, and a row a solution."""
    machine = results.records[0].environment
    days = sorted({record.finished_at[:10] for record in results.records})
    ran = [
        "# Tuned solutions",
        "",
        f"`solutions/tuned` on {machine.get('gpu', 'an unknown GPU')}, driver {machine.get('driver')}, torch "
        f"{machine.get('torch')}, {' and '.join(days)}. Written by `python -m tests.benchmarks.readme_tables` from the "
        "records beside it; `run.yaml` has the configuration and the machine, `leaderboard.csv` the ranks.",
        "",
        *levels(results),
        "",
        legend(results),
        "",
    ]
    return "\n".join([*ran, *_table(results, results.records), "", summary_line(results), ""])


def summary_line(results: Results) -> str:
    """How many there are, passed and are faster, in one sentence."""
    entries = results.eager.values()
    speedups = [entry.speedup for entry in entries if entry.speedup is not None]
    mean = geometric_mean(speedups)
    text = f"{len(results.records)} solutions, {sum(entry.passed for entry in entries)} passed; "
    text += f"{sum(map(results.faster, results.records))} are faster than eager"
    if mean is not None:
        text += f" (geometric mean of all {mean:.2f}x)"
    if results.strictest:
        both = sum(map(results.beats_both, results.records))
        text += f", {both} than eager and max-autotune, which was measured for {len(results.strictest)},"
    text += " beyond the noise floor."
    return f"{text} {apart.counted(results.compiled)}." if results.compiled else text


def _table(results: Results, records: Sequence[Record]) -> list[str]:
    heads = columns(results)
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *(_row(results, r) for r in records)]


def columns(results: Results) -> tuple[str, ...]:
    """The heads of a table of solutions."""
    autotuned = AUTOTUNED_COLUMNS if results.strictest else ()
    compiled = ("over compile",) if results.compiled else ()
    times = ("eager", "solution's time", "over eager (95 %)", *compiled, *autotuned)
    return ("problem", "solution", *times, "SoL", "bound", "labels")


def _row(results: Results, record: Record) -> str:
    entry = results.eager[record.solution]
    cells = [entry.problem, Path(entry.solution).stem]
    if entry.speedup is None:
        cells += [f"`{entry.status}`", *[""] * (len(columns(results)) - 4)]
    else:
        light = (record.timing or {}).get("speed_of_light") or {}
        lead = results.compiled.get(record.solution)
        cells += [
            _milliseconds(record, "reference"),
            _milliseconds(record, "solution"),
            _interval(entry),
            *([_figure(lead and lead.speedup)] if results.compiled else []),
            *(_figure(held[record.solution].speedup) if record.solution in held else "" for held in _both(results)),
            "" if entry.sol_fraction is None else reached.share(entry.sol_fraction),
            str(light.get("bound", "")),
        ]
    cells.append(", ".join(f"`{label}`" for label in record.labels))
    return "| " + " | ".join(cells) + " |"


def _both(results: Results) -> list[Mapping[str, Lead]]:
    """By column of `AUTOTUNED_COLUMNS`."""
    return [results.autotuned[baseline] for baseline in AUTOTUNED] if results.strictest else []


def _interval(entry: ScoredRecord) -> str:
    if entry.low is None or entry.high is None:
        return _figure(entry.speedup)
    return f"{_figure(entry.speedup)} ({_figure(entry.low)} to {_figure(entry.high)})"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _milliseconds(record: Record, side: str) -> str:
    value = ((record.timing or {}).get(side) or {}).get("device", {}).get("median_s")
    return "" if value is None else f"{value * 1e3:.3g} ms"


def records_of(run: Path) -> list[Record]:
    if not (run / "records.jsonl").is_file():
        raise TablesError(f"no records in {run}")
    return RunStore.open(run).records()


def made(run: Path, solutions: Path, *apart_in: Path) -> dict[Path, str]:
    """Every file that this writes, with its text. `apart_in`: the folders that `Results` takes. Raises `TablesError`
    and `ReachedError`."""
    results = Results(records_of(run), *apart_in)
    texts, stood = reached.written(solutions, run, results.records)
    texts[run / "README.md"] = page(results)
    texts[run / "leaderboard.csv"] = csv.leaderboard(leaderboard(results.records, by=By.solution))
    if stood:
        texts[run / reached.COMMENTS_FILE] = json.dumps(stood, indent=1, sort_keys=True) + "\n"
    return texts


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=RUN, help="the run's folder (results/h200)")
    parser.add_argument("--solutions", type=Path, default=SOLUTIONS, help="the folder of authors (solutions)")
    parser.add_argument("--baselines", type=Path, default=COMPILED, help="folder of the compiled references' times")
    parser.add_argument("--autotuned", type=Path, default=AUTOTUNED_APART, help="the same with max-autotune")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if something differs")
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        texts = made(given.run, given.solutions, given.baselines, given.autotuned)
    except (TablesError, reached.ReachedError) as error:
        print(f"readme_tables: {error}", file=sys.stderr)
        return 1
    differing = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    if given.check:
        for path in differing:
            print(f"readme_tables: {path} does not say what the run does; run without --check", file=sys.stderr)
        return int(bool(differing))
    for path in differing:
        path.write_text(texts[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())

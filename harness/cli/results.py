"""`harness show`, `leaderboard` and `merge`: show, rank and merge results of runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog.authors import Author, authors_of_runs
from harness.catalog.source_lookup import SourceFinder
from harness.cli.completion import one_of_words
from harness.cli.options import with_options
from harness.cli.output import (
    UNABLE,
    Json,
    choice,
    fail,
    in_actions,
    no_commands_in_output,
    one_form,
    opened,
    option,
    print_json,
    print_text,
    print_wrapped,
    put,
    say,
)
from harness.core.choices import Baseline as Baselines
from harness.core.config import KEYS
from harness.core.config_values import parse_baselines
from harness.core.record import Record
from harness.core.status import STATUS_CHOICES
from harness.report import board, terminal
from harness.report import csv as report_csv
from harness.report.feedback import feedback as feedback_text
from harness.results.frame import MissingParquet, parquet_of, runs_in
from harness.results.leaderboard import By, Metric, leaderboard
from harness.results.merge import merge
from harness.results.reader import StoreError, latest_run, source_folders
from harness.results.scoring import EAGER, Selection, baselines_of
from harness.results.selection import has_status, is_named
from harness.results.writer import RunStore, write_whole

Runs = Annotated[list[Path], typer.Argument(metavar="RUNS", help="Folders of runs, or folders that hold runs.")]
Baseline = Annotated[
    str,
    typer.Option(
        "--baseline",
        help="Baseline that speedups are computed against: eager, compile, …",
        autocompletion=one_of_words([item.value for item in Baselines]),
    ),
]


def show_command(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of the run, for example results/RUN; last: the latest in results."),
    ],
    solution: Annotated[
        str | None,
        typer.Argument(metavar="SOLUTION", help="Solution of the run, or a part of its name.  [all solutions]"),
    ] = None,
    pattern: Annotated[
        str | None, option("-k", "Only solutions with this text in their name or problem, in any case.  [all]")
    ] = None,
    status: Annotated[
        str | None,
        choice(
            "--status",
            STATUS_CHOICES,
            "Only solutions with this status, for example data_race; failed: all but passed.  [all]",
            shown=False,
        ),
    ] = None,
    feedback: Annotated[
        bool,
        typer.Option("--feedback", help="Write a text for the author: the defect with its place, or the speed."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also show evidence, timing, build and log; of a run, settings and environment."),
    ] = False,
    solutions: Annotated[
        list[Path] | None,
        option(
            "--solutions",
            "Folder to search for the source, which the feedback quotes. May be repeated.  [solutions, and the paths "
            "of the run]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a run, or the result of one of its solutions.

    The result of a solution is a text for its author, a model or a person. It quotes the first compiler error, the
    wrong outputs, data races, or the limit of the speed. With --all, the evidence and the compiler output follow.
    Without SOLUTION, --feedback writes the text for each solution of the run.

    \b
    Examples:
      harness show last
      harness show last -k 16_naive --status failed --feedback
      harness show results/20260131-120000-1f9c some-model/level1/16_naive.py
      harness show results/20260131-120000-1f9c 16_naive --json
      harness show results/20260131-120000-1f9c 16_naive --all
    """
    run = _named_run(run)
    # The page of a run shows the notes itself, and so does its JSON.
    store = RunStore.open(run) if solution is None and not feedback else opened(run)
    records = _selected(store.records(), pattern, status)
    if feedback or (solution is not None and not everything and not as_json):
        chosen = records if solution is None else matching(records, solution)
        if not feedback:
            _show_authors(store, chosen)
        show_feedback(store, chosen, solutions, as_json)
        if not feedback:
            say("evidence, timing, build and log: --all")
        return
    if solution is None:
        if as_json:
            print_json({"run": store.head, "notes": store.notes, "records": [item.to_json() for item in records]})
        else:
            put(terminal.run_page(store.head, records, store.notes, everything=everything))
            if not everything:
                say("settings and environment: --all; the feedback for a solution: its name as second argument")
        return
    logged = [(item, log_of(store, item)) for item in matching(records, solution)]
    if as_json:
        print_json([{**item.to_json(), "log": log} for item, log in logged])
    else:
        show_feedback(store, [item for item, _ in logged], solutions, as_json)
        authors = known_authors([store])
        with no_commands_in_output(on=in_actions()):
            put(*(terminal.record_page(item, log, authors.get(item.author)) for item, log in logged))


def _show_authors(store: RunStore, records: Sequence[Record]) -> None:
    """Print what the authors of these records say of themselves."""
    authors = known_authors([store])
    for name in sorted({item.author for item in records}):
        if said := terminal.said_by(authors.get(name)):
            with no_commands_in_output(on=in_actions()):
                print_text(f"{name}: " + ", ".join(f"{key} {value}" for key, value in said.items()))


LATEST = Path("last")


def _named_run(run: Path) -> Path:
    """Return the folder of a run; `last` is the latest one in `results`."""
    if run != LATEST or run.exists():
        return run
    results = KEYS["out"].default
    assert isinstance(results, Path)
    latest = latest_run(results)
    if latest is None:
        raise StoreError(f"there is no run in {results}: name the folder of a run")
    say(f"run {latest}")
    return latest


def _selected(records: Sequence[Record], pattern: str | None, status: str | None) -> list[Record]:
    """Return the records that `-k` and `--status` select."""
    if status is not None and status not in STATUS_CHOICES:
        near = difflib.get_close_matches(status, STATUS_CHOICES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise StoreError(f"--status {status!r:.60}: no such status{hint}; see guides/verdicts.md")
    return [
        item for item in records if is_named(pattern, item.solution, item.problem) and has_status(status, item.status)
    ]


def show_feedback(
    store: RunStore, records: Sequence[Record], solutions: Sequence[Path] | None = None, as_json: bool = False
) -> None:
    """Print the feedback for records of a run.

    Sources are searched in `solutions`, else where the run had them.
    """
    finder = SourceFinder(source_roots(solutions, [store]))
    texts = [(item, feedback_text(item, source=finder.source_of(item), log=log_of(store, item))) for item in records]
    if as_json:
        print_json([{"solution": item.solution, "status": item.status.value, "feedback": text} for item, text in texts])
    else:
        with no_commands_in_output(on=in_actions()):
            print_wrapped("\n".join(text for _, text in texts))
        if not texts:
            say("this run has no records yet, or none that is selected: there is no feedback")


def show_failures(store: RunStore, records: Sequence[Record]) -> None:
    """Print the feedback for failed solutions, each below its name and status."""
    finder = SourceFinder(source_roots(None, [store]))
    for item in records:
        text = feedback_text(item, source=finder.source_of(item), log=log_of(store, item))
        put("", terminal.failure_rule(item))
        with no_commands_in_output(on=in_actions()):
            print_wrapped(text.partition("\n")[2])
    if records:
        put("")


def source_roots(solutions: Sequence[Path] | None, stores: Sequence[RunStore]) -> list[Path]:
    """Return the folders to search for sources: `solutions`, else those of the runs."""
    if solutions:
        for path in solutions:
            if not path.exists():
                raise StoreError(f"--solutions {path}: no such folder; name another or leave --solutions out")
        return list(solutions)
    roots: dict[Path, None] = {}
    for store in stores:
        try:
            roots |= dict.fromkeys(source_folders(store.head))
        except StoreError as error:
            say(f"its sources are not searched: {error}")
    return list(roots)


def log_of(store: RunStore, record: Record) -> str | None:
    """Return the text of a record's log file with the compiler output, or None."""
    path = store.log_path(record.solution)
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except OSError as error:
        raise StoreError(f"{path}: can't be read: {error.strerror or error}; fix or remove the file") from error


def matching(records: Sequence[Record], wanted: str) -> list[Record]:
    """Return the records of the solution with this name, end or part of its path."""
    labels = list(dict.fromkeys(item.solution for item in records))
    rules: Sequence[Callable[[str], bool]] = (
        lambda label: label in (wanted, f"{wanted}.py"),
        lambda label: label.endswith((f"/{wanted}", f"/{wanted}.py")),
        lambda label: wanted in label,
    )
    for rule in rules:
        found = [label for label in labels if rule(label)]
        if len(found) == 1:
            return [item for item in records if item.solution == found[0]]
        if found:
            raise StoreError(f"{wanted!r} names {len(found)} solutions: {terminal.names(found)}; name one of them")
    near = difflib.get_close_matches(wanted, labels, n=5, cutoff=0.3)
    hint = f"; nearest: {terminal.names(near)}" if near else f"; solutions: {terminal.names(labels)}"
    raise StoreError(f"no solution {wanted!r} in this run{hint}")


@dataclass(frozen=True, kw_only=True)
class LeaderboardOptions:
    """What `harness leaderboard` ranks, and how."""

    by: Annotated[By, typer.Option("--by", help="One row for each author, problem or solution.")] = By.author
    metric: Annotated[Metric, typer.Option("--metric", help="Metric to rank by.")] = Metric.geomean
    baseline: Baseline = EAGER
    samples: Annotated[
        Selection,
        typer.Option("--samples", help="If an author has several samples for a problem: count the best or all."),
    ] = Selection.best


@with_options("runs", "csv", "parquet", "by", "metric", "baseline", "samples")
def leaderboard_command(
    runs: Runs,
    options: LeaderboardOptions,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write the rows to this CSV file; - is standard output.")
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", help="Write the rows to this Parquet file; needs the extra `parquet` (pyarrow)."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: Json = False,
) -> None:
    """Rank authors, problems or solutions over runs.

    There is one table for each combination of device, processor, workload, baseline and precision, because only such
    results are comparable. Rows whose confidence intervals overlap share a rank. Disqualified solutions are listed
    without a rank.

    \b
    Examples:
      harness leaderboard results/* --csv leaderboard.csv
      harness leaderboard results/ --by solution --markdown
      harness leaderboard results/ --by author --metric fast_1 --json
    """
    to_stdout = csv is not None and csv == Path("-")
    one_form({"--json": as_json, "--markdown": markdown, "--csv -": to_stdout})
    stores = [opened(run) for run in find(runs)]
    records = [record for store in stores for record in store.records()]
    rows = leaderboard(
        records,
        by=options.by,
        metric=options.metric,
        baseline=recorded_baseline(options.baseline, records),
        selection=options.samples,
        authors=known_authors(stores),
    )
    if csv is not None and not to_stdout:
        write_whole(csv, report_csv.leaderboard(rows).encode("utf-8"))
        say(f"{len(rows)} rows written to {csv}")
    if parquet is not None:
        try:
            write_whole(parquet, parquet_of(rows))
        except MissingParquet as error:
            fail(str(error), UNABLE)
        say(f"{len(rows)} rows written to {parquet}")
    if as_json:
        print_json([row.to_json() for row in rows])
    elif to_stdout:
        print_text(report_csv.leaderboard(rows))
    elif markdown:
        print_text(board.markdown(rows, options.by))
    else:
        put(board.table(rows, options.by))


def known_authors(stores: Iterable[RunStore]) -> dict[str, Author]:
    """Return the descriptions of the authors of these runs.

    A `run.yaml` that can't be read gives a message but no error, because the records do not need it.
    """
    heads = []
    for store in stores:
        try:
            heads.append(store.head)
        except StoreError as error:
            say(f"descriptions of its authors are left out: {error}")
    return authors_of_runs(heads)


def recorded_baseline(typed: str, records: Sequence[Record]) -> str:
    """Return the recorded name of a baseline, typed so or as for `eval --baseline`.

    Raises:
        StoreError: No record has a speedup over this baseline.
    """
    known = {name for record in records for name in baselines_of(record)} | {EAGER}
    if typed in known:
        return typed
    with suppress(ValueError):
        (meant,) = parse_baselines(typed)
        if meant.value in known:
            return meant.value
    raise StoreError(f"no record has a speedup over baseline {typed!r:.60}; name one of {', '.join(sorted(known))}")


def merge_command(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", help="Folder of the new run.")],
    as_json: Json = False,
) -> None:
    """Merge several runs into a new one. The old runs stay unchanged.

    If a solution has several records, the new run keeps the latest. The command reports parts (eval --shard) that are
    missing or incomplete, and solutions that could not be judged. It refuses runs with different settings of judgement
    (precision, policy, …).

    \b
    Example:
      harness merge results/part-1 results/part-2 --out results/all
    """
    report = merge(find(runs, strict=True), out)
    for note in report.notes:
        say(f"note: {note}")
    if as_json:
        counts = {"records": report.records, "superseded": report.superseded}
        print_json({"run": str(out), **counts, "notes": list(report.notes)})
    else:
        put(f"{out}: {report.records} records; left out {report.superseded} that have a later record")


def find(paths: Sequence[Path], *, strict: bool = False) -> list[Path]:
    """Return the runs that these folders are or hold, each once.

    A path without a run only gives a message if another path has one, so that `results/*` may match other files. It is
    an error if `strict`.

    Raises:
        StoreError: A path does not exist or holds no run.
    """
    runs, lacking = runs_in(paths)
    if lacking and (strict or not runs):
        raise StoreError("\n".join(lacking))
    for message in lacking:
        say(f"left out: {message}")
    return runs

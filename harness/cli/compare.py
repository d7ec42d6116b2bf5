"""`harness compare`: compare two runs, or two solutions in one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog import CatalogError, find_solutions, load_problems
from harness.cli.completion import problem_ids
from harness.cli.evaluate import Evaluate, carry_out, settle
from harness.cli.options import with_options
from harness.cli.output import (
    DEVICES,
    NOT_FOUND,
    UNABLE,
    WRONG_CALL,
    Json,
    ProblemsRoot,
    choice,
    fail,
    one_form,
    opened,
    option,
    print_json,
    print_text,
    put,
    say,
)
from harness.core import environment
from harness.core.config import ConfigError
from harness.core.record import Record
from harness.report import differences
from harness.report import format as show
from harness.results.compare import TOLERANCE, Change, RunDifferences, compare_records, compare_runs
from harness.results.reader import StoreError, is_run
from harness.results.writer import RunStore


@dataclass(frozen=True, kw_only=True)
class SolutionOptions:
    """How two solutions are evaluated."""

    problem: Annotated[
        str | None,
        option("--problem", "For solutions: their problem, if their paths do not name it.", complete=problem_ids),
    ] = None
    device: Annotated[str | None, choice("--device", DEVICES, "For solutions: where they are evaluated.  [auto]")] = (
        None
    )
    workload: Annotated[
        str | None, option("--workload", "For solutions: workload (set of sizes).  [full on cuda, small on host]")
    ] = None
    timing_budget: Annotated[
        float | None, option("--timing-budget", "For solutions: seconds of timing for each.  [3]")
    ] = None
    problems: ProblemsRoot = None
    config: Annotated[Path | None, option("--config", "For solutions: YAML file with settings of eval.")] = None
    out: Annotated[Path | None, option("--out", "For solutions: folder below which the run is written.  [results]")] = (
        None
    )


@with_options("before", "after", "tolerance", "force")
def compare_command(
    context: typer.Context,
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A run's folder, or a solution's file.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The later run, or the other solution.")],
    options: SolutionOptions,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            min=0.0,
            max=0.99,
            help="A solution counts as slower if its calls take longer by more than this: 0.02 is 2 %.",
        ),
    ] = TOLERANCE,
    force: Annotated[
        bool,
        typer.Option("--force", help="Compare times even if they were measured on another GPU, driver, torch, …"),
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs or two solutions: faster, slower, the same, or unclear.

    Results are compared only if GPU, driver, torch, workload, precision and problem are equal. The ratio says how many
    times faster the later result is. It is computed from the speedups over the eager reference, which is timed with
    each solution. The exit code is 1 if a solution got slower than the tolerance or no longer passes, and 2 if nothing
    could be compared.

    If BEFORE and AFTER are two solution files of one problem, both are evaluated first, one after the other on one
    device, in a new run.

    \b
    Examples:
      harness compare results/yesterday results/today
      harness compare results/main results/branch --tolerance 0.05 --markdown
      harness compare solutions/me/level1/16_tiled.py solutions/me/level1/16_vectorised.py
    """
    one_form({"--json": as_json, "--markdown": markdown})
    for path in (before, after):
        if not path.exists():
            raise StoreError(f"{path}: no such run or solution")
        if path.is_file() and path.suffix != ".py" and is_run(path.parent):
            raise StoreError(f"{path} is a file of a run: name the run's folder, {path.parent}")
    if before.is_file() != after.is_file():
        raise StoreError(f"{before} and {after}: one is a file, one a folder; name two runs or two solutions")
    given = {f"--{name.replace('_', '-')}": value for name, value in vars(options).items()}
    if before.is_dir() and (idle := [name for name, value in given.items() if value is not None]):
        raise ConfigError(f"{' and '.join(idle)}: only for solutions, which are evaluated; runs are only read")
    if before.is_file():
        pair = _evaluated(context.obj, before, after, options, quiet_stdout=as_json or markdown)
        row = compare_records(*pair, tolerance=tolerance, force=force, within_run=True)
        found = RunDifferences(rows=(row,), tolerance=tolerance, forced=force)
        if row.outcome is Change.unjudged:
            fail(f"no comparison: {show.line(differences.remark_of(row), 200)}; see harness show for details", UNABLE)
    else:
        found = compare_runs(opened(before).records(), opened(after).records(), tolerance=tolerance, force=force)
    show_differences(found, sides=(before, after), markdown=markdown, as_json=as_json)


def _evaluated(
    run: Evaluate | None,
    before: Path,
    after: Path,
    options: SolutionOptions,
    *,
    quiet_stdout: bool,
) -> tuple[Record, Record]:
    """Evaluate two solutions in one run on one device, and return their records."""
    found = environment.collect()
    settings: dict[str, object] = vars(options) | {"paths": [before, after], "workers": 1}
    settings["budget_s"] = settings.pop("timing_budget")
    del settings["config"]
    settled = settle(found, options.config, settings)
    catalog = load_problems(settled.problems, settled.problem)
    (a,), (b,) = (find_solutions([path], catalog, problem_id=settled.problem) for path in (before, after))
    if a.problem_id != b.problem_id:
        raise CatalogError(
            [f"{before} solves {a.problem_id}, {after} solves {b.problem_id}: name two solutions of one problem"]
        )
    if a.label == b.label:
        raise CatalogError(
            [f"{before} and {after} have the same name in results, {a.label}: copy one to another file name"]
        )
    carry_out(run, settled, found, quiet_stdout=quiet_stdout)
    held = {record.solution: record for record in RunStore.open(settled.run_dir).records()}
    return held[a.label], held[b.label]


def show_differences(found: RunDifferences, *, sides: tuple[Path, Path], markdown: bool, as_json: bool) -> None:
    """Print a comparison and exit with its code."""
    if as_json:
        print_json({"before": str(sides[0]), "after": str(sides[1]), **found.to_json()})
    elif markdown:
        print_text(differences.markdown(found))
    else:
        put(differences.table(found))
    if not found.compared:
        fail(_nothing_compared(found, sides), WRONG_CALL)
    if unlike := [row for row in found.rows if row.outcome is Change.unlike]:
        say(f"{len(unlike)} not compared: measured under other conditions; pass --force to compare their times")
    if found.regressions:
        raise typer.Exit(NOT_FOUND)


def _nothing_compared(found: RunDifferences, sides: tuple[Path, Path]) -> str:
    before, after = sides
    if unlike := next((row for row in found.rows if row.unlike), None):
        differs = "; ".join(show.line(item, 120) for item in unlike.unlike)
        why = f"were measured under other conditions ({differs}); pass --force to compare their times"
        return f"{before} and {after} {why}"
    if unjudged := next((row for row in found.rows if row.outcome is Change.unjudged), None):
        why = show.line(differences.remark_of(unjudged), 120)
        return f"{before} and {after}: no solution was judged in both ({why}); evaluate them again"
    return f"{before} and {after} have no solution in common: there is nothing to compare"

"""`harness compare`: two runs, or two solutions measured in one session.

Outside layer; trusted side. Runs are read; solutions are evaluated as `harness eval` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import NOT_FOUND, WRONG_CALL, Json, fail, print_json, print_text, put, say
from harness.comparing import TOLERANCE, Differences, Outcome, compare_runs
from harness.model import Record
from harness.report import differences
from harness.report import format as show
from harness.store import RunStore


def compare_command(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A run's folder.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another run's folder, the later one.")],
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, max=0.99, help="How much longer a call may take: 0.02 is 2 %.")
    ] = TOLERANCE,
    force: Annotated[
        bool, typer.Option("--force", help="Compare the times of results measured under other conditions too.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: Json = False,
) -> None:
    """Say of each solution whether it got faster, slower, stayed the same, or can't be told, with intervals.

    Only like is compared with like: GPU, driver, torch, workload, precision, problem. The ratio is how many times
    faster the later one is, by speedups against the reference measured beside each. Exit code 1 where something got
    slower than the tolerance, or no longer passes; 2 where nothing could be compared.

    \b
    Examples:
      harness compare results/yesterday results/today
      harness compare results/main results/branch --tolerance 0.05 --markdown
    """
    show_differences(
        compare_runs(_records(before), _records(after), tolerance=tolerance, force=force),
        sides=(before, after),
        markdown=markdown,
        as_json=as_json,
    )


def show_differences(found: Differences, *, sides: tuple[Path, Path], markdown: bool, as_json: bool) -> None:
    """Print a comparison and end with its exit code."""
    if as_json:
        print_json({"before": str(sides[0]), "after": str(sides[1]), **found.to_json()})
    elif markdown:
        print_text(differences.markdown(found))
    else:
        put(differences.table(found))
    if not found.compared:
        fail(_nothing_compared(found, sides), WRONG_CALL)
    if unlike := [row for row in found.rows if row.outcome is Outcome.unlike]:
        say(f"{len(unlike)} not compared, measured under other conditions; --force compares their times")
    if found.regressions:
        raise typer.Exit(NOT_FOUND)


def _nothing_compared(found: Differences, sides: tuple[Path, Path]) -> str:
    unlike = next((row for row in found.rows if row.unlike), None)
    if unlike is not None:
        differs = "; ".join(show.line(item, 120) for item in unlike.unlike)
        return f"{sides[0]} and {sides[1]} were measured under other conditions ({differs}); --force compares times"
    return f"{sides[0]} and {sides[1]} have no solution in common: nothing to compare"


def _records(folder: Path) -> tuple[Record, ...]:
    store = RunStore.open(folder)
    for note in store.notes:
        say(f"{folder}: {note}")
    return tuple(store.records())

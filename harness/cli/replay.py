"""`harness replay`: judge solutions of a run again with the seeds of its records."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.evaluate import carry_out, evaluate
from harness.cli.output import NOT_FOUND, UNABLE, Json, ProblemsRoot, opened, option, print_json, put
from harness.cli.results import matching, source_roots
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import DeviceKind
from harness.core.environment import MachineError
from harness.report.format import line
from harness.results.reader import new_run_id
from harness.results.writer import RunStore
from harness.runner.replay import Repeat, compared_again, planned_again, settings_again


def replay_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run, for example results/RUN.")],
    solution: Annotated[
        str | None,
        typer.Argument(metavar="SOLUTION", help="Solution of the run, or a part of its name.  [all solutions]"),
    ] = None,
    solutions: Annotated[
        list[Path] | None,
        option(
            "--solutions",
            "Folder with the sources that were judged. May be repeated.  [solutions, and the paths of the run]",
        ),
    ] = None,
    problems: ProblemsRoot = None,
    out: Annotated[Path | None, option("--out", "Folder for the new run.  [results]")] = None,
    as_json: Json = False,
) -> None:
    """Judge solutions of a run again: same, differs, or can't tell.

    The inputs are those of the run: each record releases the seeds that its verdict used. The settings are those of
    the run, too. Times are measured anew and compared by their intervals and noise floors. On another device, driver
    or torch the command can't tell. The new records are a run of their own.

    The exit code is 1 if a verdict differs, and 3 if it can't tell of one.

    \b
    Examples:
      harness replay results/20260131-120000-1f9c
      harness replay results/20260131-120000-1f9c 16_naive --json
    """
    store = opened(run)
    records = store.records() if solution is None else matching(store.records(), solution)
    roots = source_roots(solutions, [store])
    found = environment.collect()
    config = settings_again(
        store.head,
        environment.machine(found),
        paths=roots,
        problems=problems,
        out=out,
        run_id=f"replay-{new_run_id()}",
    )
    if config.device is DeviceKind.CUDA and (why := environment.cuda_unusable(found)):
        raise MachineError(f"can't tell: the run was judged on a GPU, and here {why}")
    ready_cache(config.cache_dir)
    jobs, rows = planned_again(records, config, roots)
    if jobs:
        # One workload: it is a setting of the run.
        carry_out(functools.partial(evaluate, jobs=jobs), config, found, quiet_stdout=as_json)
        again = {record.identity: record for record in RunStore.open(config.run_dir).records()}
        rows += [compared_again(record, again[record.identity]) for record in records if record.identity in again]
    counted = Counter(row.repeat for row in rows)
    if as_json:
        print_json(
            {
                "run": str(run),
                "replay": str(config.run_dir) if jobs else None,
                "rows": [dataclasses.asdict(row) for row in rows],
            }
        )
    else:
        put(
            *(f"{row.repeat:<10}  {line(row.solution, 100)}  {line(row.why, 200)}" for row in rows),
            f"{len(rows)} solutions: " + ", ".join(f"{counted[repeat]} {repeat}" for repeat in Repeat),
        )
    if counted[Repeat.differs]:
        raise typer.Exit(NOT_FOUND)
    if counted[Repeat.unknown]:
        raise typer.Exit(UNABLE)

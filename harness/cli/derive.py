"""`harness problems derive`: small sizes for problems that declare none.

Trusted side. The problems run in a process of their own (`harness.referee.small_sizes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.catalog import CatalogError, load_problems
from harness.catalog.problems import WORKLOADS_FILE, WORKLOADS_FORMAT
from harness.cli.completion import problem_ids
from harness.cli.lint import chosen_problems
from harness.cli.output import UNABLE, Json, ProblemsRoot, console, fail, print_json, put, say
from harness.core.cache_dir import ready_cache
from harness.core.config import CACHE_LIMIT_BYTES, cache_root
from harness.core.environment import MachineError
from harness.core.problem import Problem
from harness.referee.small_sizes import SMALL, NoSmallSizes, SmallSizes
from harness.report.problems import as_yaml
from harness.results.writer import write_whole


def problems_derive(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEMS",
            help="Levels (level1), ids (level1/16), files, or folders of problems.  [all]",
            show_default=False,
            autocompletion=problem_ids,
        ),
    ] = None,
    problems: ProblemsRoot = None,
    write: Annotated[
        bool, typer.Option("--write", help=f"Add the sizes to {WORKLOADS_FILE} beside the problems.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Derive small sizes for problems that declare no workload small.

    Audits and evaluations without a GPU use them in any case. They are found by running the reference, and are the same
    in every run. Prints entries for workloads.yaml.

    The exit code is 3 if a problem has no small sizes; the messages say why.

    \b
    Examples:
      harness problems derive level1 --problems ../KernelBench/KernelBench
      harness problems derive --write
    """
    wanted = [problem for problem, _ in chosen_problems(paths or [], problems)]
    missing = [problem for problem in wanted if SMALL not in problem.workloads]
    found: list[tuple[Problem, Mapping[str, Any]]] = []
    reasons: dict[str, str] = {}
    with SmallSizes(ready_cache(cache_root()), CACHE_LIMIT_BYTES) as small_sizes:
        for number, problem in enumerate(missing, 1):
            with console(stderr=True).status(f"{number} of {len(missing)}: {problem.id}"):
                try:
                    if problem.failure is not None:
                        reasons[problem.id] = problem.failure.reason
                        continue
                    sizes = small_sizes.of(problem).sizes
                except NoSmallSizes as error:
                    reasons[problem.id] = str(error)
                    continue
            found.append((problem, sizes))
            if not (as_json or write):
                put(f"# {problem.id} {problem.name}\n{as_yaml(problem, sizes)}")
    if as_json:
        print_json({"sizes": {problem.id: dict(sizes) for problem, sizes in found}, "reasons": reasons})
    if write:
        for folder in dict.fromkeys(problem.path.parent for problem, _ in found):
            _write(folder, [(problem, sizes) for problem, sizes in found if problem.path.parent == folder])
    for key, reason in reasons.items():
        say(f"{key}: {reason}")
    say(f"{len(found)} derived, {len(wanted) - len(missing)} declare their own")
    if reasons:
        fail(f"no small sizes for {len(reasons)} of {len(wanted)} problems", UNABLE)


def _write(folder: Path, entries: Sequence[tuple[Problem, Mapping[str, Any]]]) -> None:
    """Append entries to the folder's file; nothing else in it changes.

    Raises:
        CatalogError: The file could not be read any more with them.
        MachineError: It can't be written.
    """
    path = folder / WORKLOADS_FILE
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else f"format: {WORKLOADS_FORMAT}\nproblems:\n"
        after = before.rstrip("\n") + "\n" + "".join(as_yaml(problem, sizes) + "\n" for problem, sizes in entries)
        write_whole(path, after.encode("utf-8"))
        why = _unread(folder, entries)
        if why is not None:
            write_whole(path, before.encode("utf-8")) if before else path.unlink()
            raise CatalogError([f"{path}: the entries can't be appended ({why}): paste them by hand, without --write"])
    except OSError as error:
        raise MachineError(f"{path}: {error.strerror or error}") from error
    say(f"{path}: {len(entries)} entries added")


def _unread(folder: Path, entries: Sequence[tuple[Problem, Mapping[str, Any]]]) -> str | None:
    """Return why the folder's problems do not have these sizes, or None if they have."""
    try:
        known = load_problems(folder)
    except CatalogError as error:
        return error.findings[0]
    for problem, sizes in entries:
        held = known.get(problem.id)
        if held is None or SMALL not in held.workloads or dict(held.workloads[SMALL].sizes) != dict(sizes):
            return f"{problem.id} has an entry already"
    return None

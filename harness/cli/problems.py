"""`harness problems list` and `show`: shapes, costs, speed of light.

Trusted side. Executes reference code on tensors without data (`harness.referee.problem.shapes`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.catalog import CatalogError, UnreadableProblem, load_problems
from harness.cli.completion import problem_ids
from harness.cli.forked_command import looking_at
from harness.cli.output import Json, ProblemsRoot, option, print_json, put, results_alone, say
from harness.core.cache_dir import ready_cache
from harness.core.config import CACHE_LIMIT_BYTES, ConfigError, cache_root
from harness.core.environment import query_gpus
from harness.core.problem import Problem, Workload
from harness.referee.small_sizes import NoSmallSizes, SmallSizes
from harness.report import problems as pages
from harness.report.table import Fitting

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks

ASSUMED_GPU = "H200"
"""GPU whose datasheet is used if this machine has no GPU with a known datasheet."""

GpuName = Annotated[
    str | None,
    option(
        "--gpu",
        "Compute the speed of light for this GPU, from its datasheet.  "
        f"[this machine's GPU, from its measured peak rates if there are any; else {ASSUMED_GPU}]",
    ),
]


def problems_list(
    levels: Annotated[
        list[str] | None, typer.Argument(metavar="[LEVELS]", help="Levels to list, for example level1.  [all]")
    ] = None,
    problems: ProblemsRoot = None,
    workload: Annotated[
        str,
        typer.Option("--workload", help="Workload (set of sizes) to show; problems that lack it are left out."),
    ] = "full",
    gpu: GpuName = None,
    quick: Annotated[bool, typer.Option("--quick", help="List only names: no shapes, bytes, flops and times.")] = False,
    as_json: Json = False,
) -> None:
    """List the problems with shapes, flops, bytes and their speed of light.

    The speed of light is the least time that a GPU could take.

    The command runs the references on tensors without data: it needs little memory and no GPU. Flops are those of
    matrix products, convolutions and attention. Bytes count each input, parameter and output once. If a problem can't
    be read, the others are listed and the exit code is 3.

    \b
    Examples:
      harness problems list level2 --gpu H100
      harness problems list --problems ../KernelBench/KernelBench --json
    """
    catalog = load_problems(problems or Path("problems"))
    if unknown := sorted(set(levels or ()) - catalog.levels):
        raise CatalogError(
            [f"no level {', '.join(unknown)} in {catalog.root}; it has {', '.join(sorted(catalog.levels))}"]
        )
    chosen = [item for item in catalog.values() if not levels or item.id.partition("/")[0] in levels]
    chosen = [item for item in chosen if workload in item.workloads]
    unreadable = [item for item in catalog.unreadable.values() if not levels or item.id.partition("/")[0] in levels]
    if not chosen and not unreadable:
        raise CatalogError([f"no problem in {catalog.root} declares a workload {workload!r}"])
    costed = {}
    if not quick:
        peaks = _peaks(gpu)
        costed = {item.id: _cost(item, item.workloads[workload], peaks) for item in chosen}
    if as_json:
        print_json([pages.as_json(item, [costed[item.id]] if costed else []) for item in chosen])
    elif chosen:
        put(Fitting(pages.table(chosen, costed)))
    if unreadable:
        raise UnreadableProblem([item.failure.reason for item in unreadable if item.failure is not None])


def problems_show(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM", help="Problem: its id, for example level1/16, or its file.", autocompletion=problem_ids
        ),
    ],
    problems: ProblemsRoot = None,
    gpu: GpuName = None,
    as_json: Json = False,
) -> None:
    """Show one problem: declarations, costs of each workload, source.

    The costs are shapes, bytes, flops and speed of light. Secret sizes are what `harness eval --shapes` draws from. If
    the problem declares no workload small, its derived sizes are shown, with the entry for workloads.yaml.

    \b
    Example:
      harness problems show level1/16
    """
    catalog = load_problems(problems or Path("problems"), problem)
    held = catalog.resolve(problem)
    peaks = _peaks(gpu)
    reason = None
    with SmallSizes(ready_cache(cache_root()), CACHE_LIMIT_BYTES) as small_sizes:
        try:
            held = small_sizes.completed(held)
        except NoSmallSizes as error:
            reason = str(error)
    costed = [_cost(held, workload, peaks) for workload in held.workloads.values()]
    if as_json:
        print_json({**pages.as_json(held, costed), "secret_sizes": _secret_sizes(held), "source": held.source})
    else:
        put(pages.page(held, costed, _secret_sizes(held)))
    if reason is not None:
        say(f"{held.id}: {reason}")


def _peaks(wanted: str | None) -> Peaks:
    """Return the peak rates to compute the speed of light with.

    Args:
        wanted: Name of a GPU, whose datasheet is returned. For None: the measured peaks of this machine's first GPU,
            else its datasheet, else the datasheet of `ASSUMED_GPU`.

    Raises:
        ConfigError: There is no datasheet of this GPU.
    """
    from harness.devices.gpu_specs import DATASHEETS, datasheet
    from harness.devices.measured_peaks import held, keys_of_machine

    if wanted is not None:
        found = datasheet(wanted)
        if found is None:
            known = ", ".join(peaks.name for _, peaks in DATASHEETS)
            raise ConfigError(f"--gpu {wanted!r:.60}: unknown GPU; name one of {known}")
        return found
    for key in keys_of_machine()[:1]:
        if (measured := held(key, cache_root())) is not None:
            return measured
    for name in (*(item.name for item in query_gpus()[0]), ASSUMED_GPU):
        if (found := datasheet(name)) is not None:
            return found
    raise AssertionError(f"the assumed GPU {ASSUMED_GPU} has a datasheet")


def _secret_sizes(problem: Problem) -> str:
    """Return the ranges that `--shapes` draws from, or why there are none."""
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.size_ranges import ShapeDrawer

    try:
        with looking_at(problem.id), results_alone():
            drawer = ShapeDrawer(problem, problem.workloads["full"])
    except ProblemError as error:
        return f"none: {error}"
    return "; ".join(each.title for each in drawer.ranges) or f"a list of {len(drawer.listed)}"


def _cost(problem: Problem, workload: Workload, peaks: Peaks) -> pages.Costed:
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.shapes import sketch

    try:
        with looking_at(problem.id), results_alone():
            made = sketch(problem, workload)
    except ProblemError as error:
        return pages.Costed(workload=workload, sketch=None, light=None, gpu=peaks.name, reason=str(error))
    return pages.Costed(workload=workload, sketch=made, light=made.light(problem, workload, peaks), gpu=peaks.name)

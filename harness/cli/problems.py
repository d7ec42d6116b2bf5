"""`harness problems list` and `show`: which problems there are, and what one call of each takes and costs.

Outside layer; trusted side. Reference code is executed on tensors without data (`harness.referee.problem.shapes`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.catalog import CatalogError, UnreadableProblem, load_problems
from harness.cli.forked_command import looking_at
from harness.cli.output import Json, ProblemsRoot, option, print_json, put, results_alone
from harness.core.config import ConfigError, cache_root
from harness.core.environment import query_gpus
from harness.core.problem import Problem, Workload
from harness.report import problems as pages
from harness.report.narrow import Fitting

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks

ASSUMED_GPU = "H200"
"""Whose datasheet counts on a machine without a GPU that has one here."""

GpuName = Annotated[
    str | None,
    option(
        "--gpu",
        "GPU that the speed of light is of, by its datasheet.  "
        f"[this machine's, by its measured peaks where there are any; else {ASSUMED_GPU}]",
    ),
]


def problems_list(
    levels: Annotated[list[str] | None, typer.Argument(metavar="[LEVELS]", help="level1 ...  [all]")] = None,
    problems: ProblemsRoot = None,
    workload: Annotated[
        str, typer.Option("--workload", help="Sizes to show; problems without it are left out.")
    ] = "full",
    gpu: GpuName = None,
    quick: Annotated[bool, typer.Option("--quick", help="Names only: no shapes, bytes, flops and times.")] = False,
    as_json: Json = False,
) -> None:
    """List the problems with shapes, least bytes, flops, and the least time a GPU could take.

    The reference runs on tensors without data; nothing of full size is allocated, and no GPU is needed. Flops are those
    of products, convolutions and attention; bytes count each input, parameter and output once. The exit code is 3
    where a problem can't be read; the others are listed.

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
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="level1/16, or the path of its file.")],
    problems: ProblemsRoot = None,
    gpu: GpuName = None,
    as_json: Json = False,
) -> None:
    """Show one problem: declarations; shapes, bytes, flops and speed of light of every workload; source.

    \b
    Example:
      harness problems show level1/16
    """
    catalog = load_problems(problems or Path("problems"))
    held = catalog.resolve(problem)
    peaks = _peaks(gpu)
    costed = [_cost(held, workload, peaks) for workload in held.workloads.values()]
    if as_json:
        print_json({**pages.as_json(held, costed), "source": held.source})
    else:
        put(pages.page(held, costed))


def _peaks(wanted: str | None) -> Peaks:
    """The datasheet of the GPU asked for; where none is, the peaks measured on this machine's first GPU, its datasheet,
    or that of the assumed one.
    """
    from harness.devices.gpu_specs import DATASHEETS, datasheet
    from harness.devices.measured_peaks import held, keys_of_machine

    if wanted is not None:
        found = datasheet(wanted)
        if found is None:
            known = ", ".join(peaks.name for _, peaks in DATASHEETS)
            raise ConfigError(f"--gpu {wanted!r:.60}: no datasheet of such a GPU here; there are {known}")
        return found
    for key in keys_of_machine()[:1]:
        if (measured := held(key, cache_root())) is not None:
            return measured
    for name in (*(item.name for item in query_gpus()[0]), ASSUMED_GPU):
        if (found := datasheet(name)) is not None:
            return found
    raise AssertionError(f"the assumed GPU {ASSUMED_GPU} has a datasheet")


def _cost(problem: Problem, workload: Workload, peaks: Peaks) -> pages.Costed:
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.shapes import sketch

    try:
        with looking_at(problem.id), results_alone():
            made = sketch(problem, workload)
    except ProblemError as error:
        return pages.Costed(workload=workload, sketch=None, light=None, gpu=peaks.name, reason=str(error))
    return pages.Costed(workload=workload, sketch=made, light=made.light(problem, workload, peaks), gpu=peaks.name)

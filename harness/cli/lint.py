"""`harness problems lint`: does each problem tell right answers from wrong ones?

Outside layer; trusted side. Problems are executed, solutions never. torch is imported once the call is known to be
right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import environment
from harness.catalog import Catalog, Costs, load_problems
from harness.cli.output import NOT_FOUND, Json, ProblemsRoot, console, fail, option, print_json, put, say
from harness.config import ConfigError
from harness.environment import MachineError
from harness.model import DeviceKind, Problem
from harness.report.format import block

if TYPE_CHECKING:
    from harness.devices import Device
    from harness.lint import ProblemReport

_DEVICES = {"cpu": DeviceKind.HOST, "host": DeviceKind.HOST, "cuda": DeviceKind.CUDA}


def problems_lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROBLEMS", help="level1/16, files, or folders of problems.  [all]", show_default=False),
    ] = None,
    problems: ProblemsRoot = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    workload: Annotated[
        str | None, option("--workload", "Sizes.  [full on cuda; small on cpu, else full where it is not too large]")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules instead.")] = False,
    as_json: Json = False,
) -> None:
    """Let each problem prove that it rejects wrong answers, by the rule with which solutions are judged.

    Zeros, constants, another call's output, half an output, neighbouring indices, unused inputs and parameters, lower
    precision, and the reference with one operation left out must all be rejected. Exit code 1 where a problem is at
    fault.

    \b
    Examples:
      harness problems lint
      harness problems lint level1/16 level1/23 --device cpu
      harness problems lint --problems ../KernelBench/KernelBench --json
    """
    if rules:
        _list_rules(as_json=as_json)
        return
    chosen = list(_chosen(paths or [], problems))
    kind = _kind(device)
    from harness.devices import DeviceError, open_device

    try:
        opened = open_device(kind)
    except DeviceError as error:
        raise MachineError(str(error)) from error
    reports = []
    screen = console(stderr=True)
    for number, (problem, costs) in enumerate(chosen, 1):
        with screen.status(f"{number} of {len(chosen)}: {problem.id}"):
            report = _lint(problem, costs, workload, opened)
        reports.append(report)
        if not as_json:
            put(*_lines(report, number, len(chosen)))
    broken = [report for report in reports if report.broken]
    if as_json:
        print_json([report.to_json() for report in reports])
    if broken:
        fail(f"{len(broken)} of {len(reports)} problems break a rule, first {broken[0].problem}", NOT_FOUND)
    say(f"{len(reports)} problems, none breaks a rule")


def _chosen(paths: Sequence[str], root: Path | None) -> Iterator[tuple[Problem, Costs]]:
    """The problems named, each once, with their declared costs."""
    seen: set[Path] = set()
    named: list[tuple[Catalog, Problem]] = []
    default: Catalog | None = None
    for wanted in paths or [str(root or "problems")]:
        path = Path(wanted)
        if path.is_dir():
            catalog = load_problems(path)
            named += [(catalog, problem) for problem in catalog.values()]
        elif path.is_file():
            # The folder of its level, so that the id and the declarations beside it are found.
            catalog = load_problems(path.parent)
            found = [problem for problem in catalog.values() if problem.path.resolve() == path.resolve()]
            if not found:
                raise ConfigError(f"{path}: a problem's file is named like 16_matmul.py")
            named += [(catalog, problem) for problem in found]
        else:
            default = default or load_problems(root or Path("problems"))
            named.append((default, default.resolve(wanted)))
    for catalog, problem in named:
        if problem.path.resolve() not in seen:
            seen.add(problem.path.resolve())
            yield problem, catalog.costs.get(problem.id, Costs())


def _kind(device: str) -> DeviceKind:
    if device == "auto":
        return DeviceKind.HOST if environment.cuda_unusable(environment.collect()) else DeviceKind.CUDA
    if device not in _DEVICES:
        raise ConfigError(f"--device {device}: it is auto, cpu or cuda")
    why = environment.cuda_unusable(environment.collect()) if device == "cuda" else None
    if why:
        raise MachineError(f"{why}; --device cpu lints at small sizes")
    return _DEVICES[device]


def _lint(problem: Problem, costs: Costs, workload: str | None, device: Device) -> ProblemReport:
    import torch

    from harness.lint import Check, ProblemReport, Verdict, lint_problem, too_large_for_host

    on_host = device.kind is DeviceKind.HOST
    name = workload or ("small" if on_host and "small" in problem.workloads else "full")
    chosen = problem.workloads.get(name)

    def at_fault(reason: str) -> ProblemReport:
        check = Check(rule="loads", verdict=Verdict.BROKEN, details=(reason,))
        return ProblemReport(problem=problem.id, workload=name, device=device.torch_device.type, checks=(check,))

    if chosen is None:
        return at_fault(f"it declares no workload {name!r}; it has {', '.join(problem.workloads)}")
    if on_host and (nbytes := too_large_for_host(problem, chosen)):
        return at_fault(
            f"its workload {name} has {nbytes / 2**20:.0f} MiB of inputs, too many for the CPU: declare a small one in "
            "workloads.yaml, or lint it on a GPU"
        )
    if on_host and name == "small":
        torch.set_num_threads(1)  # handing out such small pieces would cost more than it gains
    try:
        return lint_problem(problem, chosen, costs, device)
    except (torch.OutOfMemoryError, MemoryError) as error:
        return at_fault(f"not enough memory to check it: {error}")


def _lines(report: ProblemReport, number: int, total: int) -> list[str]:
    mark = "✗" if report.broken else "✓"
    head = f"[{number}/{total}] {mark} {report.problem}  {report.workload} on {report.device}, "
    lines = [block(f"{head}{report.tried} wrong solutions tried, {report.wall_s:.1f} s")]
    for check in report.broken:
        lines.append(f"    {check.rule}")
        lines += [block(f"      {detail}") for detail in check.details]
    return lines + [block(f"    note: {note}") for note in report.notes]


def _list_rules(*, as_json: bool) -> None:
    from harness.lint import RULES

    if as_json:
        print_json(dict(RULES))
    else:
        put(*(f"{name:22} {text}" for name, text in RULES.items()))

"""`harness problems lint`: check that each problem rejects wrong answers.

Trusted side. Executes problems, never solutions. torch is imported after the arguments are checked.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.catalog import Catalog, load_problems
from harness.cli.completion import problem_ids
from harness.cli.forked_command import looking_at
from harness.cli.options import with_options
from harness.cli.output import (
    DEVICES,
    NOT_FOUND,
    UNABLE,
    Json,
    ProblemsRoot,
    choice,
    chosen,
    console,
    fail,
    option,
    print_json,
    put,
    results_alone,
    say,
    writable,
)
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import DeviceKind
from harness.core.config import CACHE_LIMIT_BYTES, ConfigError, cache_root
from harness.core.config_values import parse_shard
from harness.core.environment import MachineError
from harness.core.problem import Problem, Workload
from harness.core.status import one_line
from harness.referee.small_sizes import SMALL, UNDERIVED, NoSmallSizes, SmallSizes
from harness.report import lint as report_lint
from harness.results.writer import write_whole

if TYPE_CHECKING:
    from harness.devices.device import Device
    from harness.referee.soundness import ProblemReport


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """What to check, and where to write the findings."""

    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEMS",
            help="Levels (level1), ids (level1/16), files, or folders of problems.  [all]",
            show_default=False,
            autocompletion=problem_ids,
        ),
    ] = None
    problems: ProblemsRoot = None
    device: Annotated[str, choice("--device", DEVICES, "Where references are computed.  [auto]")] = "auto"
    workload: Annotated[
        list[str] | None,
        option(
            "--workload",
            "Workload (set of sizes) to check, for the problems that declare it. May be repeated. Small sizes are "
            "derived for a problem that declares none.  [full on cuda, small on host]",
        ),
    ] = None
    shard: Annotated[
        str | None, option("--shard", "Check only part i of n, for example 2/8; use one part for each GPU.  [all]")
    ] = None
    out: Annotated[
        Path | None,
        option("--out", "Write one JSON line for each checked problem to this file; such files can be concatenated."),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Use the results that --out has, and check only the other problems.")
    ] = False
    budget_s: Annotated[
        float | None, option("--budget", "Start no further problem after this many seconds.  [no limit]")
    ] = None
    markdown: Annotated[Path | None, option("--markdown", "Write a Markdown table of all findings here.")] = None

    def check(self) -> None:
        """Raise `ConfigError` if options contradict each other."""
        if self.resume and self.out is None:
            raise ConfigError("--resume continues a file: pass --out FILE too")
        if self.out is not None and not self.resume and self.out.exists():
            raise ConfigError(f"--out {self.out} exists: pass --resume to continue it, or name another file")
        if self.budget_s is not None and not self.budget_s > 0:
            raise ConfigError(f"--budget must be a number of seconds above 0, not {self.budget_s:g}")


@with_options()
def problems_lint(
    options: LintOptions,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and check nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Check that each problem rejects wrong answers.

    It uses the tolerances that solutions are judged by.

    A problem must reject zeros, constants, the output of another call, half an output, neighbouring indices, lower
    precision, answers that ignore an input or parameter, and the reference with one operation left out.

    The exit code is 1 if a problem breaks a rule. It is 3 if problems are not checked: --budget was used up, a
    problem made the GPU fail, or other processes hold its memory. Then run the command again with --resume.

    \b
    Examples:
      harness problems lint
      harness problems lint level1/16 level1/23 --device host
      harness problems lint --problems ../KernelBench/KernelBench --json
      harness problems lint --device cuda --out lint.jsonl --resume --budget 300 --markdown lint.md
      CUDA_VISIBLE_DEVICES=1 harness problems lint --shard 2/2 --workload full --workload odd --workload half
    """
    if rules:
        _list_rules(as_json=as_json)
        return
    options.check()
    out, markdown = options.out, options.markdown
    for name, path in (("--out", out), ("--markdown", markdown)):
        if path is not None:
            writable(path, name)
    kind = _kind(options.device)
    chosen = list(chosen_problems(options.paths or [], options.problems))
    tasks = _share(list(_tasks(chosen, options.workload or [], kind)), options.shard)
    from harness.referee.soundness import LedgerError

    try:
        with SmallSizes(ready_cache(cache_root()), CACHE_LIMIT_BYTES) as small_sizes:
            reports, left = _checked(tasks, kind, out, options.budget_s, small_sizes, quiet=as_json)
        if markdown is not None:
            write_whole(markdown, report_lint.markdown(reports).encode("utf-8"))
    except LedgerError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        if error.filename is None and (out is None or isinstance(error, BrokenPipeError)):
            raise  # an error of standard output: `guarded` reports it in the same way for all commands
        raise MachineError(f"{error.filename or out}: {error.strerror or error}") from error
    broken = [report for report in reports if report.broken]
    if as_json:
        print_json([report.to_json() for report in reports])
    if broken:
        say(f"{len(broken)} of {len(reports)} checked problems break a rule, first {broken[0].problem}")
    else:
        say(f"{len(reports)} checked, none breaks a rule")
    if left:
        fail(f"{left} of {len(tasks)} not checked" + ("; run again with --resume" if out else ""), UNABLE)
    if broken:
        raise typer.Exit(NOT_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One problem at workload `name`; `workload` is None if it is not declared."""

    problem: Problem
    name: str
    workload: Workload | None


def _tasks(chosen: Sequence[tuple[Problem, bool]], names: Sequence[str], kind: DeviceKind) -> Iterator[_Task]:
    """Yield every problem at the first workload, then every problem at the next one.

    A problem that the user named gets a task even if it lacks the workload.

    Raises:
        ConfigError: No problem declares a workload of this name.
    """
    wanted: Sequence[str | None] = names or [None]
    for asked in wanted:
        if asked not in (None, SMALL) and not any(
            problem.failure or asked in problem.workloads for problem, _ in chosen
        ):
            known = ", ".join(dict.fromkeys(name for problem, _ in chosen for name in problem.workloads))
            raise ConfigError(f"--workload {asked!r}: no problem here declares it; they have {known}")
        for problem, named in chosen:
            name = asked or (SMALL if kind is DeviceKind.HOST else "full")
            workload = problem.workloads.get(name, UNDERIVED if name == SMALL else None)
            # A problem that can't be read may declare any workload: report it once.
            unreadable = problem.failure is not None and asked == wanted[0]
            if workload is not None or named or not names or unreadable:
                yield _Task(problem=problem, name=name, workload=workload)


def _checked(
    tasks: Sequence[_Task],
    kind: DeviceKind,
    out: Path | None,
    budget: float | None,
    small_sizes: SmallSizes,
    *,
    quiet: bool,
) -> tuple[list[ProblemReport], int]:
    """Check tasks that `out` lacks; return all findings and the number of tasks left."""
    from harness.devices.out_of_memory import advice, held_elsewhere_bytes
    from harness.referee.soundness import append_to_ledger, read_ledger

    begin = time.monotonic()
    known = read_ledger(out) if out is not None else {}
    screen = console(stderr=True)
    reports: list[ProblemReport] = []
    opened: Device | None = None
    for number, task in enumerate(tasks, 1):
        report = known.get((task.problem.digest, task.name, "cuda" if kind is DeviceKind.CUDA else "cpu"))
        if report is not None:
            reports.append(report)
            continue
        if budget is not None and time.monotonic() - begin > budget:
            continue
        first, opened = opened is None, opened or _opened(kind)
        with (
            screen.status(f"{number} of {len(tasks)}: {task.problem.id}"),
            looking_at(task.problem.id),
            results_alone(),
        ):
            report = _lint(task, opened, small_sizes)
        broken_down = _broken_down(opened)
        if first:
            gc.freeze()  # torch's modules stay: scanning them again would take 0.1 s for each problem
        if broken_down:
            report = _at_fault(task, opened, f"the GPU failed while it computed a test answer: {broken_down}")
        if report is None:
            elsewhere = held_elsewhere_bytes(opened)
            told = f"not enough memory to check it: {advice(opened, elsewhere)}"
            if elsewhere:
                say(f"{task.problem.id} at {task.name}: {told}")
                continue
            report = _at_fault(task, opened, told)
        reports.append(report)
        if out is not None:
            append_to_ledger(out, report)
        if not quiet:
            put(*report_lint.lines(report, number, len(tasks)))
        if broken_down:
            break  # the GPU computes nothing more in this process
    return reports, len(tasks) - len(reports)


def chosen_problems(paths: Sequence[str], root: Path | None) -> Iterator[tuple[Problem, bool]]:
    """Yield the chosen problems, and whether the user named the problem itself."""
    seen: set[Path] = set()
    found: list[tuple[Problem, bool]] = []
    default: Catalog | None = None
    for wanted in paths or [str(root or "problems")]:
        path = Path(wanted)
        if path.is_dir():
            catalog = load_problems(path)
            found += [(problem, False) for problem in catalog.known.values()]
        elif path.is_file():
            # Load the folder of its level, which gives the id and holds the declarations.
            catalog = load_problems(path.parent)
            here = [problem for problem in catalog.known.values() if problem.path.resolve() == path.resolve()]
            if not here:
                raise ConfigError(f"{path}: not a problem; the file of a problem has a name like 16_matmul.py")
            found += [(problem, True) for problem in here]
        else:
            default = default or load_problems(root or Path("problems"))
            if wanted in default.levels:
                found += [(problem, False) for key, problem in default.known.items() if key.partition("/")[0] == wanted]
            else:
                found.append((default.locate(wanted), True))
    for problem, named in found:
        if problem.path.resolve() not in seen:
            seen.add(problem.path.resolve())
            yield problem, named


def _kind(device: str) -> DeviceKind:
    if chosen("--device", device, DEVICES) == "auto":
        return DeviceKind.HOST if environment.cuda_unusable(environment.collect()) else DeviceKind.CUDA
    return DeviceKind(device)


def _share(tasks: list[_Task], wanted: str | None) -> list[_Task]:
    """Return part i of n: every n-th task, so that similar problems spread."""
    if wanted is None:
        return tasks
    try:
        number, count = map(int, parse_shard(wanted).split("/"))
    except ValueError as error:
        raise ConfigError(f"--shard {wanted!r:.40}: {error}") from None
    return tasks[number - 1 :: count]


def _opened(kind: DeviceKind) -> Device:
    from harness.devices.device import DeviceError
    from harness.devices.out_of_memory import opened

    why = environment.cuda_unusable(environment.collect()) if kind is DeviceKind.CUDA else None
    if why:
        raise MachineError(f"{why}; pass --device host to check small sizes")
    try:
        return opened(kind)
    except DeviceError as error:
        raise MachineError(str(error)) from error


def _lint(task: _Task, device: Device, small_sizes: SmallSizes) -> ProblemReport | None:
    """Return the findings on one task; None if memory ran out."""
    import torch

    from harness.devices.out_of_memory import is_shortage
    from harness.referee.soundness import lint_problem, too_large_for_host

    on_host = device.kind is DeviceKind.HOST
    if task.problem.failure is not None:
        return _at_fault(task, device, task.problem.failure.reason)
    if task.workload is not None and task.workload.derived:
        try:
            task = replace(task, workload=small_sizes.of(task.problem))
        except NoSmallSizes as error:
            return _at_fault(task, device, str(error))
    if task.workload is None:
        known = ", ".join(task.problem.workloads)
        return _at_fault(task, device, f"it declares no workload {task.name!r}; it has {known}")
    if on_host and (nbytes := too_large_for_host(task.problem, task.workload)):
        return _at_fault(
            task,
            device,
            f"its workload {task.name} has {nbytes / 2**20:.0f} MiB of inputs, too much for the CPU: declare a small "
            "workload in workloads.yaml, or check the problem on a GPU",
        )
    threads = torch.get_num_threads()
    if on_host and task.name == SMALL:
        torch.set_num_threads(1)  # for such small tensors, threads cost more than they gain
    try:
        return lint_problem(task.problem, task.workload, device)
    except Exception as error:
        if not is_shortage(error):
            raise
        return None  # the caller reports it, after the traceback has released this problem's tensors
    finally:
        torch.set_num_threads(threads)


def _broken_down(device: Device) -> str | None:
    """Return why the GPU failed while it computed test answers, or None.

    If it works, free its cached memory for the next problem, which has other sizes.
    """
    import torch

    gc.collect()
    try:
        device.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        return one_line(str(error), limit=200)
    return None


def _at_fault(task: _Task, device: Device, reason: str) -> ProblemReport:
    from harness.referee.soundness import ProblemReport, RuleCheck, RuleVerdict

    return ProblemReport(
        problem=task.problem.id,
        workload=task.name,
        device=device.torch_device.type,
        processor=device.name,
        digest=task.problem.digest,
        checks=(RuleCheck(rule="loads", verdict=RuleVerdict.BROKEN, details=(reason,)),),
    )


def _list_rules(*, as_json: bool) -> None:
    from harness.referee.soundness import RULES

    if as_json:
        print_json(dict(RULES))
    else:
        put(*(f"{name:22} {text}" for name, text in RULES.items()))

"""`harness eval`: settle the configuration, run the pipeline, show how it goes.

Outside layer; trusted side. The referees' processes start once the configuration is settled, and what this one needs
beside that is imported meanwhile: so the imports at the top are those that settling takes.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from harness.catalog.authors import authors_in
from harness.cli.lazy_progress import LazyProgress
from harness.cli.output import (
    INTERRUPTED,
    UNABLE,
    Json,
    ProblemsRoot,
    ended_by_signals,
    fail,
    option,
    print_json,
    put,
    say,
)
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, RunConfig, resolve
from harness.core.environment import Environment, MachineError
from harness.core.record import Record
from harness.core.status import Status
from harness.results.reader import StoreError, StoreUnavailable, is_run, latest_run, new_run_id
from harness.results.writer import RunStore, other_settings
from harness.runner.executors.prestart import Prestart, start_ahead
from harness.runner.service import ServiceError

if TYPE_CHECKING:
    from harness.runner.events import Event
    from harness.runner.run import RunSummary


CLOSING_ROWS = 30
"""Rows of the leaderboard below a run, whose every solution has had a line by then."""


class View(Protocol):
    """Who is told how a run goes. `slot` is the device that judged, where one did."""

    def started(self, run_dir: Path, total: int, skipped: int) -> None: ...

    def built(self) -> None: ...

    def finished(self, record: Record, slot: str | None = None) -> None: ...

    def noted(self, message: str) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a finished run leaves: its records, how many were skipped, seconds of wall time."""

    records: Sequence[Record]
    skipped: int
    wall_s: float


Evaluate = Callable[[RunConfig, Environment, View], Ran]


def _evaluate_here(
    config: RunConfig, found: Environment, tell: Callable[[Event], None], ahead: Prestart | None
) -> RunSummary:
    """With builders and referees of the run's own. The machine's faults are `MachineError`, or as `evaluate_run` raises
    them.
    """
    from harness.runner.run import evaluate_run
    from harness.sandbox import SandboxUnavailable
    from harness.toolchain import CacheError

    try:
        return evaluate_run(config, environment=found, on_event=tell, ahead=ahead)
    except (CacheError, SandboxUnavailable) as error:
        raise MachineError(str(error)) from error


SERVER = "HARNESS_SERVER"
"""The variable that names the server to use, where no option does."""


def server_at(given: Path | None) -> Path:
    """The socket of the server that is meant: the one in the folder of caches where none is named, or `auto`."""
    from harness.runner.service.place import default_socket

    return default_socket() if given is None or str(given) == "auto" else given


def evaluate(
    config: RunConfig, found: Environment, view: View, ahead: Prestart | None = None, server: Path | None = None
) -> Ran:
    """Run the pipeline, its events told to `view`, with what was started `ahead` for it, or let a `server` build and
    judge. The machine's faults are `MachineError`.
    """
    # Not at the top, since help should answer at once, and referees start. None of these imports torch.
    from harness.runner.events import BuildFinished, Noted, RunStarted, SolutionFinished
    from harness.runner.executors import ExecutorError
    from harness.runner.run import evaluate_run

    def tell(event: Event) -> None:
        match event:
            case RunStarted():
                view.started(event.run_dir, event.total, event.skipped)
            case BuildFinished():
                view.built()
            case SolutionFinished():
                view.finished(event.record, event.slot)
            case Noted():
                view.noted(event.message)

    try:
        if server is not None:
            from harness.runner.service.client import conducted_by

            conduct = conducted_by(server, config)
            done = evaluate_run(config, environment=found, on_event=tell, conduct=conduct)
        else:
            done = _evaluate_here(config, found, tell, ahead)
    except (ExecutorError, ServiceError, StoreUnavailable) as error:
        raise MachineError(str(error)) from error
    return Ran(records=done.records, skipped=done.skipped, wall_s=done.wall_s)


def eval_command(
    context: typer.Context,
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATHS", help="Solution files and folders.")] = None,
    problem: Annotated[str | None, option("--problem", "Problem of files whose path names none: level1/16.")] = None,
    author: Annotated[str | None, option("--author", "Whose they are, instead of what their paths say.")] = None,
    device: Annotated[str | None, option("--device", "auto, cuda or host.  [auto: a GPU where one is]")] = None,
    workload: Annotated[str | None, option("--workload", "Sizes.  [full on cuda, small on host]")] = None,
    out: Annotated[Path | None, option("--out", "Folder of results.  [results]")] = None,
    run_id: Annotated[str | None, option("--run-id", "Name of the run's folder.  [time and a random part]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run (the latest without --run-id).")] = False,
    problems: ProblemsRoot = None,
    config: Annotated[Path | None, option("--config", "YAML file with these settings; options win over it.")] = None,
    jobs: Annotated[int | None, option("--jobs", "Builds at once.  [processors, bounded by memory]")] = None,
    seeds: Annotated[int | None, option("--seeds", "Secret seeds of the problem's own inputs.  [3]")] = None,
    precision: Annotated[str | None, option("--precision", "Precision class instead of each problem's own.")] = None,
    device_policy: Annotated[
        str | None, option("--device-policy", "strict, or coerce: bring outputs over, inside the time.  [strict]")
    ] = None,
    sandbox: Annotated[str | None, option("--sandbox", "auto, strict (full or nothing) or off.  [auto]")] = None,
    audit: Annotated[
        str | None,
        option("--audit", "Run under compute-sanitizer as well, on the small workload: auto, always, never.  [auto]"),
    ] = None,
    baseline: Annotated[
        str | None,
        option("--baseline", "What speedups are against, the first deciding: eager,compile,max-autotune, ….  [eager]"),
    ] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Host device without race and access checks.")] = False,
    allow_degenerate: Annotated[
        bool, typer.Option("--allow-degenerate", help="Score problems too that can't tell right from wrong.")
    ] = False,
    policy: Annotated[
        Path | None, option("--policy", "YAML file: which solutions to refuse although they are right.  [none]")
    ] = None,
    compile_timeout: Annotated[float | None, option("--compile-timeout", "Seconds a build.  [300]")] = None,
    load_timeout: Annotated[float | None, option("--load-timeout", "Seconds an import and constructor.  [120]")] = None,
    call_timeout: Annotated[float | None, option("--call-timeout", "Seconds a call of forward.  [60]")] = None,
    solution_timeout: Annotated[
        float | None, option("--solution-timeout", "Seconds a solution after its build.  [300]")
    ] = None,
    min_samples: Annotated[int | None, option("--min-samples", "Timed calls at least.  [30]")] = None,
    timing_budget: Annotated[float | None, option("--timing-budget", "Seconds of timing a solution.  [3]")] = None,
    memory_limit: Annotated[str | None, option("--memory-limit", "Host memory of a solution, as 8GiB.")] = None,
    workers: Annotated[
        int | None, option("--workers", "Solutions judged at once.  [one a visible GPU; 1 on host]")
    ] = None,
    executor: Annotated[str | None, option("--executor", "local, or ray: a cluster.  [local]")] = None,
    ray_address: Annotated[
        str | None, option("--ray-address", "The Ray cluster: auto, or ray://HOST:10001. Implies --executor ray.")
    ] = None,
    accelerator_type: Annotated[
        str | None, option("--accelerator-type", "On Ray: only GPUs of this model, as Ray calls it (H200).")
    ] = None,
    server: Annotated[
        Path | None,
        option("--server", "Let `harness serve` build and judge: auto, or its socket.  [$HARNESS_SERVER, or none]"),
    ] = None,
    shard: Annotated[str | None, option("--shard", "Only the i-th of n parts: 2/8. See harness merge.")] = None,
    cache: Annotated[
        Path | None, option("--cache", "Folder of built modules.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]")
    ] = None,
    cache_limit: Annotated[str | None, option("--cache-limit", "What they may take on disk.  [20GiB]")] = None,
    as_json: Json = False,
) -> None:
    """Evaluate solutions: build, verify, time, record.

    A solution's problem and author come from its path (solutions/AUTHOR/level1/16_name.py), from KernelBench's file
    name, or from --problem. A failing solution is a result, not an error: the exit code is 0. It is 3 where one could
    not be judged (harness_error).

    \b
    Examples:
      harness eval solutions/ --device cuda --out results/
      harness eval my_kernel.py --problem level1/16
      harness eval solutions/ --resume
      harness eval solutions/ --shard 2/8 --run-id part-2
      harness eval solutions/ --device cuda --ray-address auto --accelerator-type H200
      harness eval solutions/ --server auto
    """
    options = {
        "paths": paths or None,
        "problem": problem,
        "author": author,
        "device": device,
        "workload": workload,
        "out": out,
        "run_id": run_id,
        "resume": resume or None,
        "problems": problems,
        "jobs": jobs,
        "seeds": seeds,
        "precision": precision,
        "device_policy": device_policy,
        "sandbox": sandbox,
        "audit": audit,
        "baselines": baseline,
        "checked": False if unchecked else None,
        "allow_degenerate": allow_degenerate or None,
        "policy": policy,
        "compile_timeout_s": compile_timeout,
        "load_timeout_s": load_timeout,
        "call_timeout_s": call_timeout,
        "solution_timeout_s": solution_timeout,
        "min_samples": min_samples,
        "budget_s": timing_budget,
        "memory_limit_bytes": memory_limit,
        "cache_dir": cache,
        "cache_limit_bytes": cache_limit,
        "workers": workers,
        "shard": shard,
        "executor": executor,
        "ray_address": ray_address,
        "accelerator_type": accelerator_type,
    }
    found = environment.collect()
    settled = settle(found, config, options)
    show = _show_json if as_json else _show_summary
    run = context.obj or _at_server(server, settled)
    done = carry_out(run, settled, found, quiet_stdout=as_json, resumable=True, then=show)
    if ours := sum(item.status is Status.harness_error for item in done.records):
        again = f"--resume --run-id {settled.run_id} tries again"
        fail(f"{ours} could not be judged, through no fault of theirs; once that is mended, {again}", UNABLE)


def _at_server(given: Path | None, settled: RunConfig) -> Evaluate | None:
    """What lets the server do it that the option or the environment names; None where neither does. Of those two only
    an option can be at odds with another executor.
    """
    if settled.executor != "local":
        if given is not None:
            raise ConfigError(f"--server judges on this machine, and the executor is {settled.executor}: leave out one")
        return None
    named = given or (Path(held) if (held := os.environ.get(SERVER)) else None)
    return functools.partial(evaluate, server=server_at(named)) if named is not None else None


def _show_json(settled: RunConfig, done: Ran) -> None:
    print_json(
        {
            "run": str(settled.run_dir),
            "skipped": done.skipped,
            "wall_s": done.wall_s,
            "records": [item.to_json() for item in RunStore.open(settled.run_dir).records()],
        }
    )


def _show_summary(settled: RunConfig, done: Ran) -> None:
    # Not at the top: tables take numpy, which nothing before needs.
    from harness.report import board, terminal
    from harness.results.scoring import By, leaderboard

    put(terminal.summary(done.records, skipped=done.skipped, wall_s=done.wall_s))
    store = RunStore.open(settled.run_dir)
    records, authors = store.records(), authors_in(store.head)
    # One author's rows would be one row.
    by = By.author if len({item.author for item in records}) > 1 else By.solution
    put("Leaderboard", board.table(leaderboard(records, by=by, authors=authors), by, most=CLOSING_ROWS))
    say(f"everything about one of them: harness show {shlex.quote(str(settled.run_dir))} SOLUTION")


def carry_out(
    run: Evaluate | None,
    settled: RunConfig,
    found: Environment,
    *,
    quiet_stdout: bool,
    resumable: bool = False,
    then: Callable[[RunConfig, Ran], None] = lambda settled, done: None,
) -> Ran:
    """Evaluate with `run` (by default the pipeline), shown as it goes, `then` show what came of it while the referees'
    processes come to their ends. The command ends where the user interrupts it, a signal asks for it (128 and its
    number), or the output has no reader (as by SIGPIPE). `resumable`: it has `--resume` to go on with then.
    """
    view = LazyProgress(quiet_stdout=quiet_stdout)
    done: Ran | None = None
    try:
        with ended_by_signals(), _ahead(run, settled, found) as ahead:
            with view:
                done = evaluate(settled, found, view, ahead) if run is None else run(settled, found, view)
            then(settled, done)
            return done
    except KeyboardInterrupt:
        fail(f"interrupted; {_left(settled, view, resumable)}", INTERRUPTED)
    except SystemExit as ended:
        # rich ends the process, with 1, when nobody reads what it prints any more.
        code = ended.code if isinstance(ended.code, int) and ended.code > 128 else 128 + signal.SIGPIPE
        number = signal.Signals(code - 128)
        unread = number is signal.SIGPIPE
        why = "nobody reads the output any more, so the run ends" if unread else f"ended by {number.name}"
        with suppress(OSError, SystemExit):  # the terminal may be gone, too
            say(f"harness: {why}; {_left(settled, view, resumable)}")
        raise typer.Exit(code) from None
    except OSError:
        if view.began and done is None:
            say(f"harness: the run ends; {_left(settled, view, resumable)}")
        raise


def _ahead(run: Evaluate | None, settled: RunConfig, found: Environment) -> AbstractContextManager[Prestart | None]:
    """The referees' processes, where it is the pipeline that will need them."""
    return start_ahead(settled, found) if run is None else nullcontext()


def _left(settled: RunConfig, view: LazyProgress, resumable: bool) -> str:
    """What a run that was ended leaves, and how to go on."""
    # What stands at its place may be another run, which this call would have refused to write to.
    if not is_run(settled.run_dir) or not (view.began or settled.resume):
        return "nothing was finished, and the same call starts anew"
    records = settled.run_dir / "records.jsonl"
    some = records.is_file() and records.stat().st_size > 0
    kept = f"what is finished is in {settled.run_dir}" if some else f"nothing is finished yet in {settled.run_dir}"
    goes_on = f"with --resume --run-id {settled.run_id} continues" if resumable else "starts anew"
    return f"{kept}, and the same call {goes_on}"


def _told(name: str, value: Any) -> str:
    """A setting by its key in a configuration file: `timing.min_samples 3`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}.{part} {item}" for part, item in value.items())
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def settle(found: Environment, file: Path | None, options: Mapping[str, object]) -> RunConfig:
    """The configuration of this run, its device checked and, to resume, its id found."""
    generated = new_run_id()
    settled = resolve(machine=environment.machine(found), run_id=generated, file=file, options=options)
    why = environment.cuda_unusable(found)
    # A cluster has GPUs of its own, whatever this machine has.
    if settled.device is DeviceKind.CUDA and why and settled.executor == "local":
        raise MachineError(f"{why}; --device host checks values on the CPU")
    ready_cache(settled.cache_dir)
    if settled.device is DeviceKind.HOST:
        say(f"device host, workload {settled.workload}" + (f"; a GPU can't be used here: {why}" if why else ""))
    if settled.resume and settled.run_id == generated:
        latest = latest_run(settled.out)
        if latest is None:
            raise StoreError(f"{settled.out}: no run to resume; leave out --resume to start one")
        settled = dataclasses.replace(settled, run_id=latest.name)
    if settled.resume and is_run(settled.run_dir):
        begun = RunStore.open(settled.run_dir)
        for note in begun.notes:
            say(f"{settled.run_dir}: {note}")
        if others := other_settings(begun.head, settled.to_json()):
            told = ", ".join(_told(name, value) for name, value in others.items())
            say(
                f"{settled.run_dir}: goes on with {told}, other than before: new records only, run.yaml says since when"
            )
    return settled

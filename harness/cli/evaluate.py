"""`harness eval`: settle the configuration, run it, show the results.

Trusted side. The referees' processes start as soon as the configuration is known. This process imports the rest in the
meantime, so the imports at the top are only those that the configuration needs.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from harness.catalog.authors import authors_in
from harness.catalog.source_files import MAX_SOURCE_BYTES
from harness.cli.options import Settings, with_options
from harness.cli.output import (
    INTERRUPTED,
    UNABLE,
    ConfigFile,
    Json,
    ended_by_signals,
    fail,
    option,
    print_json,
    put,
    say,
)
from harness.cli.progress import ProgressView
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import DeviceKind
from harness.core.config import KEYS, ConfigError, RunConfig, is_device_chosen, resolve
from harness.core.config_values import parse_path
from harness.core.environment import Environment, MachineError
from harness.core.executables import find_nvcc
from harness.core.preparing import Preparing
from harness.core.record import Record
from harness.core.status import FAILED, Status
from harness.results.manifest import SigningKey, write_manifest
from harness.results.reader import (
    RecordLines,
    StoreError,
    StoreUnavailable,
    is_run,
    latest_run,
    new_run_id,
    read_head,
)
from harness.results.writer import RunStore, other_settings, write_whole
from harness.runner.executors.prestart import Prestart, start_ahead
from harness.runner.service import ServiceError
from harness.toolchain.nvcc_toolchain import NO_NVCC

if TYPE_CHECKING:
    from harness.catalog import RejectedFile
    from harness.runner.events import Event
    from harness.runner.plan import PlannedSolution
    from harness.runner.run import RunSummary


CLOSING_ROWS = 30
"""Most rows of the leaderboard that is printed after a run; each solution already has a line above it."""


NO_TOLERANCE = (
    "there is no --atol or --rtol, because the limits on errors follow from the problem's precision class: choose a "
    "class by --precision (fp32, tf32, fp16, bf16, int8, fp8, mxfp4, …)"
)


FEW = 5
"""Most solutions of a run after which the feedback of each failure is printed, instead of a table of statuses."""


class View(Protocol):
    """Receives the progress of a run.

    `slot` is the device that evaluated a solution, or None.
    """

    def preparing(self, event: Preparing) -> None: ...

    def started(self, run_dir: Path, total: int, skipped: int) -> None: ...

    def built(self) -> None: ...

    def finished(self, record: Record, slot: str | None = None) -> None: ...

    def noted(self, message: str) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Results of a run.

    They are its records, the number of skipped solutions, the wall time in seconds, and the files without a record.
    """

    records: Sequence[Record]
    skipped: int
    wall_s: float
    rejected: Sequence[RejectedFile] = ()


Evaluate = Callable[[RunConfig, Environment, View], Ran]


def _evaluate_here(
    config: RunConfig,
    found: Environment,
    tell: Callable[[Event], None],
    ahead: Prestart | None,
    jobs: Sequence[PlannedSolution] | None,
) -> RunSummary:
    """Run the pipeline with builders and referees of its own.

    Raises:
        MachineError: The sandbox or the build cache can't be used.
    """
    from harness.runner.run import evaluate_run
    from harness.sandbox import SandboxUnavailable
    from harness.toolchain import CacheError

    try:
        return evaluate_run(config, environment=found, on_event=tell, ahead=ahead, jobs=jobs)
    except (CacheError, SandboxUnavailable) as error:
        raise MachineError(str(error)) from error


SERVER = "HARNESS_SERVER"
"""The environment variable that names the server if no option does."""


def server_at(given: Path | None) -> Path:
    """Return the socket of the server; for None and `auto` that in the cache folder."""
    from harness.runner.service.place import default_socket

    return default_socket() if given is None or str(given) == "auto" else given


def evaluate(
    config: RunConfig,
    found: Environment,
    view: View,
    ahead: Prestart | None = None,
    server: Path | None = None,
    jobs: Sequence[PlannedSolution] | None = None,
) -> Ran:
    """Run the pipeline and send its events to `view`.

    Args:
        config: Settings of the run.
        found: Facts about this machine.
        view: Receives the progress.
        ahead: Processes that were started for this run in advance.
        server: Socket of a `harness serve` that builds and evaluates instead of processes of this run.
        jobs: The solutions, if they are planned already; None finds those that `config` names.

    Returns:
        The records and the wall time.

    Raises:
        MachineError: The machine, the executor or the server failed.
    """
    # Imported here, so that help is printed and referees are started without delay. None of these imports torch.
    from harness.runner.events import BuildFinished, Noted, RunStarted, SolutionFinished
    from harness.runner.executors import ExecutorError
    from harness.runner.run import evaluate_run

    def tell(event: Event) -> None:
        match event:
            case Preparing():
                view.preparing(event)
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
            from harness.runner.service.client import RemoteRunner

            with RemoteRunner(server, config) as runner:
                done = evaluate_run(config, environment=found, on_event=tell, runner=runner)
        else:
            done = _evaluate_here(config, found, tell, ahead, jobs)
    except (ExecutorError, ServiceError, StoreUnavailable) as error:
        raise MachineError(str(error)) from error
    return Ran(records=done.records, skipped=done.skipped, wall_s=done.wall_s, rejected=done.rejected)


@with_options(
    *("paths", "problem", "author", "pattern", "status", "last_failed", "stop_at_failure"),
    *("device", "workload", "out", "run_id", "resume", "problems", "config", "jobs"),
    *("rules", "inputs", "dtype"),
    *("seeds", "shapes", "precision", "device_policy", "sandbox", "cascade", "audit", "baselines", "checked", "syntax"),
    *("allow_degenerate", "policy"),
    *("compile_timeout_s", "load_timeout_s", "call_timeout_s", "solution_timeout_s", "min_samples", "budget_s"),
    *("memory_limit_bytes", "gpu_memory_bytes", "workers", "executor", "ray_address", "accelerator_type", "server"),
    *("shard", "cache_dir", "cache_limit_bytes", "sign"),
)
def eval_command(
    context: typer.Context,
    settings: Settings,
    config: ConfigFile = None,
    last_failed: Annotated[
        bool,
        typer.Option("--last-failed", help="Short for --status failed. Without PATHS, with the settings of that run."),
    ] = False,
    server: Annotated[
        Path | None,
        option(
            "--server",
            "Build and evaluate in the processes of `harness serve`: auto, or its socket.  [$HARNESS_SERVER, or none]",
        ),
    ] = None,
    tolerance: Annotated[str | None, typer.Option("--atol", "--rtol", hidden=True)] = None,
    sign: Annotated[
        Path | None,
        option("--sign", "PEM file of the ed25519 key that signs the finished run; see harness verify.  [none]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate solutions: build, check correctness, time, record.

    A solution's problem and author come from its path (solutions/AUTHOR/level1/16_name.py), from KernelBench's file
    name, or from --problem and --author. The path - is standard input, for a solution or for --problem. The results
    are written to a folder below --out; harness show, leaderboard and report read it.

    A solution that fails is a result, not an error: the exit code is 0. The exit code is 3 if a solution could not be
    judged because of the machine or the problem (harness_error).

    \b
    Examples:
      harness eval solutions/ --device cuda --out results/
      harness eval my_kernel.py --problem my_problem.py
      harness eval my_kernel.py --problem level1/16
      harness eval - --problem level1/16 < my_kernel.py
      harness eval solutions/ -k matmul -x
      harness eval --last-failed
      harness eval solutions/ --resume
      harness eval solutions/ --shard 2/8 --run-id part-2
      harness eval solutions/ --device cuda --ray-address auto --accelerator-type H200
      harness eval solutions/ --server auto
    """
    if tolerance is not None:
        raise ConfigError(NO_TOLERANCE)
    key = None if sign is None else SigningKey(sign)
    found = environment.collect()
    if last_failed:
        config, settings = _as_last_failed(config, settings)
    settled = settle(found, config, settings)
    run = context.obj or _at_server(server, settled)
    show, few = (_show_json, 0) if as_json else (_show_summary, FEW)
    done = carry_out(run, settled, found, quiet_stdout=as_json, resumable=True, brief_up_to=few, then=show)
    if key is not None:
        write_manifest(settled.run_dir, key)
    if ours := sum(item.status is Status.harness_error for item in done.records):
        again = f"run the same command with --resume --run-id {settled.run_id}"
        fail(
            f"{ours} solution{'' if ours == 1 else 's'} could not be judged because of the machine or the problem "
            f"(harness_error); fix it, then {again}",
            UNABLE,
        )


def _as_last_failed(file: Path | None, options: Settings) -> tuple[Path | None, Settings]:
    """Return the configuration file and the options of a call with `--last-failed`.

    Raises:
        ConfigError: `--status` asks for something else.
        StoreError: Neither paths nor a file are given, and there is no earlier run that has them.
    """
    if options["status"] not in (None, FAILED):
        raise ConfigError(f"--last-failed means --status {FAILED}: leave out --status {options['status']}")
    if not options["paths"] and file is None:
        out = parse_path(options["out"] or KEYS["out"].default)
        latest = latest_run(out)
        if latest is None:
            raise StoreError(f"--last-failed: there is no run in {out}; name the solutions")
        say(f"solutions and settings as in {latest}")
        file = latest / "run.yaml"
        options = {**options, "stop_at_failure": options["stop_at_failure"] or False}  # it left others out
    return file, {**options, "status": FAILED}


def _at_server(given: Path | None, settled: RunConfig) -> Evaluate | None:
    """Return the function that evaluates on the named server; None without one.

    The option or the environment variable names the server.

    Only the option conflicts with another executor: the environment variable is then ignored.
    """
    if settled.executor != "local":
        if given is not None:
            raise ConfigError(
                f"--server works only with --executor local, not {settled.executor}: leave out one of them"
            )
        return None
    named = given or (Path(held) if (held := os.environ.get(SERVER)) else None)
    return functools.partial(evaluate, server=server_at(named)) if named is not None else None


def _show_json(settled: RunConfig, done: Ran) -> None:
    print_json(
        {
            "run": str(settled.run_dir),
            "skipped": done.skipped,
            "wall_s": done.wall_s,
            "rejected": [file.to_json() for file in done.rejected],
            "records": [item.to_json() for item in RunStore.open(settled.run_dir).records()],
        }
    )


def _show_summary(settled: RunConfig, done: Ran) -> None:
    # Imported here: tables need numpy, which the start of a run does not.
    from harness.cli.results import show_failures
    from harness.report import board, terminal
    from harness.results.leaderboard import By, leaderboard

    few, authors = len(done.records) <= FEW, authors_in(read_head(settled.run_dir))
    records: Iterable[Record] = RecordLines(settled.run_dir).newest()  # not a list: there may be very many
    if few:
        store = RunStore.open(settled.run_dir)
        show_failures(store, [item for item in done.records if item.status is not Status.passed])
        # The host device times no GPU code: then no row would say more than the lines above.
        records = [item for item in done.records if item.speedup is not None]
    put(terminal.summary(done.records, skipped=done.skipped, wall_s=done.wall_s, statuses=not few))
    if done.rejected:
        count = len(done.rejected)
        say(f"{count} file{'' if count == 1 else 's'} not evaluated, without a record; the reasons are above")
    # For a single author, a table by author would have one row.
    several = not few and len({item.author for item in RecordLines(settled.run_dir)}) > 1
    by = By.author if several else By.solution
    if rows := leaderboard(records, by=by, authors=authors):
        title = [] if few else ["Leaderboard"]
        put(*title, board.table(rows, by, most=CLOSING_ROWS))
    say(f"evidence, timing, build and log of a solution: harness show {shlex.quote(str(settled.run_dir))} NAME --all")


def carry_out(
    run: Evaluate | None,
    settled: RunConfig,
    found: Environment,
    *,
    quiet_stdout: bool,
    resumable: bool = False,
    brief_up_to: int = 0,
    then: Callable[[RunConfig, Ran], None] = lambda settled, done: None,
) -> Ran:
    """Evaluate and show the progress, then show the results.

    Args:
        run: Function that evaluates; by default the pipeline.
        settled: Settings of the run.
        found: Facts about this machine.
        quiet_stdout: Keep standard output free for the results.
        resumable: Whether the command has `--resume`, which messages then name.
        brief_up_to: Most solutions of a run whose results only `then` shows.
        then: Shows the results, while the referees' processes end.

    Returns:
        The records and the wall time.

    Raises:
        typer.Exit: Ctrl-C (130), a signal (128 plus its number), or nobody reads the output (as for SIGPIPE).
    """
    view = ProgressView(quiet_stdout=quiet_stdout, brief_up_to=brief_up_to)
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
        # rich exits with 1 if the reader of its output is gone.
        code = ended.code if isinstance(ended.code, int) and ended.code > 128 else 128 + signal.SIGPIPE
        number = signal.Signals(code - 128)
        unread = number is signal.SIGPIPE
        why = "the run ends, because the reader of its output is gone" if unread else f"ended by {number.name}"
        with suppress(OSError, SystemExit):  # the terminal may be gone, too
            say(f"harness: {why}; {_left(settled, view, resumable)}")
        raise typer.Exit(code) from None
    except OSError:
        if view.began and done is None:
            say(f"harness: the run ends; {_left(settled, view, resumable)}")
        raise


def _ahead(run: Evaluate | None, settled: RunConfig, found: Environment) -> AbstractContextManager[Prestart | None]:
    """Start the referees' processes in advance, if the pipeline runs here."""
    return start_ahead(settled, found) if run is None else nullcontext()


def _left(settled: RunConfig, view: ProgressView, resumable: bool) -> str:
    """Return a sentence about the results of an ended run, and how to continue it."""
    # The folder may belong to another run, to which this command would have refused to write.
    if not is_run(settled.run_dir) or not (view.began or settled.resume):
        return "no solution was finished; the same command starts again from the beginning"
    records = settled.run_dir / "records.jsonl"
    some = records.is_file() and records.stat().st_size > 0
    kept = f"finished results are in {settled.run_dir}" if some else f"no solution was finished in {settled.run_dir}"
    goes_on = f"with --resume --run-id {settled.run_id} continues" if resumable else "starts again from the beginning"
    return f"{kept}; the same command {goes_on}"


def _told(name: str, value: Any) -> str:
    """Format a setting by its key in a configuration file: `timing.min_samples 3`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}.{part} {item}" for part, item in value.items())
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


STANDARD_INPUT = Path("-")


def _with_standard_input(settled: RunConfig) -> RunConfig:
    """Replace standard input as solution or problem by a file.

    The file is in the cache folder, because `--resume` and `harness show` read it later.
    """
    as_solution, as_problem = STANDARD_INPUT in settled.paths, settled.problem == str(STANDARD_INPUT)
    if not (as_solution or as_problem):
        return settled
    if as_solution and as_problem:
        raise ConfigError("standard input (-) is the solution or the problem: name a file for the other one")
    text = sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
    file = settled.cache_dir / "stdin" / hashlib.sha256(text).hexdigest()[:16] / "stdin.py"
    write_whole(file, text)
    paths = tuple(file if path == STANDARD_INPUT else path for path in settled.paths)
    return dataclasses.replace(settled, paths=paths, problem=str(file) if as_problem else settled.problem)


def settle(found: Environment, file: Path | None, options: Mapping[str, object]) -> RunConfig:
    """Resolve the configuration, check the device and, to resume, find the run.

    Args:
        found: Facts about this machine.
        file: YAML file with settings, or None.
        options: Settings of the command line; None means not given.

    Raises:
        ConfigError: A setting is wrong.
        MachineError: The device or the cache folder can't be used.
        StoreError: There is no run to resume.
    """
    generated = new_run_id()
    settled = resolve(machine=environment.machine(found), run_id=generated, file=file, options=options)
    why = environment.cuda_unusable(found)
    # A cluster has GPUs of its own, whatever this machine has.
    if settled.device is DeviceKind.CUDA and why and settled.executor == "local":
        raise MachineError(f"{why}; pass --device host to check correctness on the CPU")
    if settled.device is DeviceKind.HOST and settled.syntax == "nvcc" and find_nvcc() is None:
        raise MachineError(f"{NO_NVCC}, or leave out --syntax nvcc")
    ready_cache(settled.cache_dir)
    settled = _with_standard_input(settled)
    if settled.device is DeviceKind.HOST:
        reason = "as asked" if is_device_chosen(file, options) else why
        say(f"device host{f' ({reason})' if reason else ''}, workload {settled.workload}")
    if settled.resume and settled.run_id == generated:
        latest = latest_run(settled.out)
        if latest is None:
            raise StoreError(f"{settled.out}: no run to resume; leave out --resume to start a new one")
        settled = dataclasses.replace(settled, run_id=latest.name)
    if settled.resume and is_run(settled.run_dir):
        lines = RecordLines(settled.run_dir)
        for _ in lines:
            pass
        for note in lines.notes:
            say(f"{settled.run_dir}: {note}")
        if others := other_settings(read_head(settled.run_dir), settled.to_json()):
            told = ", ".join(_told(name, value) for name, value in others.items())
            say(f"{settled.run_dir}: continues with other settings ({told}), for new records only; see run.yaml")
    return settled

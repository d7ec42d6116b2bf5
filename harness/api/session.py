"""`Harness`: builders and referees that evaluate submitted solutions.

Trusted side. Problems are trusted code, solutions are not. All state belongs to the instance; two instances share only
the build cache on disk, which is safe to share.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypedDict, Unpack

from harness.api.given import given_problem, given_solution, given_workload, named_workload
from harness.api.keeper import RunKeeper
from harness.api.result import Result
from harness.catalog import Catalog, CatalogError, UnreadableProblem, load_problems
from harness.core.cache_dir import ready_cache
from harness.core.choices import (
    AuditMode,
    Baseline,
    DeviceKind,
    DevicePolicy,
    HalfType,
    InputChoice,
    PrecisionClass,
    Rules,
    SandboxMode,
    Syntax,
)
from harness.core.config import ConfigError, RunConfig, TimingConfig, resolve
from harness.core.config_values import parse_path
from harness.core.environment import MachineError, collect, cuda_unusable, machine
from harness.core.preparing import Preparing
from harness.core.problem import Problem, Workload
from harness.referee.small_sizes import UNDERIVED
from harness.results.reader import new_run_id
from harness.results.reward import DEFAULT_POLICY, RewardPolicy
from harness.runner.cascade import open_cascade
from harness.runner.events import BuildFinished, Event, Noted
from harness.runner.executors.local import LocalExecutor
from harness.runner.group import Group
from harness.runner.plan import PlannedSolution
from harness.runner.runner import Runner

LOGGER = logging.getLogger("harness")

Timing = Literal["quick", "full"]
"""How long to measure.

`quick` stops when the half width of the speedup's confidence interval is below 2 %, or after 0.25 s of timing. `full`
stops as the command line does: below 0.5 %, or after 3 s.
"""

QUICK = TimingConfig(min_samples=12, sets_per_burst=8, relative_half_width=0.02, budget_s=0.25)


class HarnessClosed(RuntimeError):
    """A `Harness` was used after `close` or in a forked process."""


class HarnessSettings(TypedDict, total=False):
    """Further settings of a `Harness`, described there. None means the default."""

    precision: PrecisionClass | str | None
    rules: Rules | None
    inputs: InputChoice | None
    dtype: HalfType | None
    baselines: Sequence[Baseline | str] | None
    seeds: int | None
    shapes: int | None
    device_policy: DevicePolicy | None
    sandbox: SandboxMode | None
    cascade: bool | None
    audit: AuditMode | None
    checked: bool | None
    syntax: Syntax | None
    allow_degenerate: bool | None
    policy: Mapping[str, object] | None
    jobs: int | None
    workers: int | None
    compile_timeout_s: float | None
    load_timeout_s: float | None
    call_timeout_s: float | None
    solution_timeout_s: float | None
    memory_limit_bytes: int | str | None
    gpu_memory_bytes: int | str | None
    cache_dir: Path | str | None


class SubmitOptions(TypedDict, total=False):
    """Options of `Harness.submit`, described there."""

    workload: str | Workload | None
    author: str
    name: str | None
    sample: int | None


class GroupOptions(TypedDict, total=False):
    """Options of `Harness.evaluate_group`, described at `Harness.submit`."""

    workload: str | Workload | None
    author: str


class Harness:
    """Evaluate solutions on this machine.

        with Harness(device="auto") as h:
            print(h.evaluate("level1/19", source).speedup)

    The processes start with the first evaluation, which takes some seconds because torch is imported, and minutes with
    an empty cache folder (see `on_event`). They end with
    `close` or the `with` block; without these, when the `Harness` is garbage-collected and no evaluation is under way.
    All methods may be called from any thread.

    Args:
        device: "auto" (a GPU if there is a usable one, else host), "cuda" or "host".
        problems: Folder in which ids such as "level1/19" are looked up.
        workload: Name of the workload (set of sizes). None means `full` on a GPU and `small` on the host. If a problem
            declares no `small`, its sizes are derived.
        timing: How long to measure: "quick" or "full" (see `Timing`), or a `TimingConfig`.
        results: Folder of a run to create or continue, with records and logs. None writes nothing to disk.
        precision: Precision class for all problems (`PrecisionClass`). None means each problem's own.
        rules: "strict", or "kernelbench": only outputs on the problem's own inputs decide. None means "strict".
        inputs: "all" or "own": whether stress inputs are used. None means "all".
        dtype: Converts inputs and parameters of all problems to "fp16" or "bf16", and requires that class.
        baselines: Names of baselines such as "eager" and "compile"; the first gives the speedup. None means eager.
        seeds: Number of tests on the problem's own inputs, each with another secret seed. None means 3.
        shapes: Number of secret shapes: each call of `submit` draws sizes from the problem's ranges, and the speedup is
            the geometric mean over them. None means none.
        device_policy: Outputs on the wrong device: "strict" rejects them, "coerce" copies them within the measured
            time. None means "strict".
        sandbox: "auto" (as much isolation as this machine allows), "strict" (full isolation or an error) or "off". None
            means "auto".
        cascade: Whether the CPU judges each solution first, at small sizes: what fails there for certain takes no time
            of the GPU, and what passes there is not audited again. None means no.
        audit: Runs under compute-sanitizer: "always", "never" or "auto" (if it is installed). None means "auto".
        checked: Whether the host device checks for data races and accesses out of bounds. None means yes.
        syntax: Compiler that decides on the host device whether CUDA sources are valid: "host" (its own) or "nvcc"
            (nvcc first, which must be installed). None means "host".
        allow_degenerate: Whether to evaluate problems that fail to reject wrong answers. None means no.
        policy: Correct solutions to refuse, as in a configuration file. None refuses no correct solution.
        jobs: Builds that run in parallel. None means half the processors (on the host all), fewer if memory is short.
        workers: Solutions evaluated in parallel. None means one for each visible GPU, and one on the host.
        compile_timeout_s: Most seconds for the build of one solution. None means 300.
        load_timeout_s: Most seconds to import a solution and construct its model. None means 120.
        call_timeout_s: Most seconds for one call of `forward`. None means 60.
        solution_timeout_s: Most seconds for one solution, without its build. None means 300.
        memory_limit_bytes: Most host memory for a solution's process, in bytes or as a text such as "8GiB". None means
            32 GiB, or less on a machine with less memory.
        gpu_memory_bytes: Judges as on a GPU with this much memory, in bytes or as a text such as "24GiB". None means
            all that the GPU has.
        cache_dir: Folder for compiled extensions and other cached files. None means HARNESS_CACHE, or
            ~/.cache/kernel-harness.
        on_event: Called with each event: `Preparing` (files that are made once for this machine; with an empty cache
            folder this takes minutes), `BuildFinished` or `Noted` (a message). It is called from several threads and
            must return soon; what it raises is logged. The logger `harness` gets the same events.

    Raises:
        ConfigError: A setting is invalid, or the cache folder can't be written.
        MachineError: The device can't be used, or the working folder of this process was removed.
    """

    def __init__(
        self,
        *,
        device: Literal["auto", "cuda", "host"] | DeviceKind = "auto",
        problems: Path | str = "problems",
        workload: str | None = None,
        timing: Timing | TimingConfig = "quick",
        results: Path | str | None = None,
        on_event: Callable[[Event], None] | None = None,
        **settings: Unpack[HarnessSettings],
    ) -> None:
        if timing not in ("quick", "full") and not isinstance(timing, TimingConfig):
            raise ConfigError(f"Harness: `timing` must be quick, full or a TimingConfig, not {timing!r:.60}")
        if unknown := settings.keys() - HarnessSettings.__annotations__:
            raise TypeError(f"Harness() got an unexpected keyword argument {min(unknown)!r}")
        _check_working_folder()
        measured = QUICK if timing == "quick" else timing if isinstance(timing, TimingConfig) else None
        self._environment = collect()
        found = machine(self._environment)
        try:
            # The caller may change the working folder later.
            self._results = None if results is None else parse_path(results).absolute()
        except ValueError as error:
            raise ConfigError(f"Harness: `results` must be {error}, not {results!r:.60}") from None
        self._config: RunConfig = resolve(
            machine=found,
            run_id=new_run_id(),
            source="Harness",
            options={
                "paths": [Path()],  # a placeholder: solutions are submitted one by one
                "problems": problems,
                "device": device,
                "workload": workload,
                **settings,
                **({} if measured is None else asdict(measured)),
            },
        )
        ready_cache(self._config.cache_dir, "cache_dir or HARNESS_CACHE")
        why = cuda_unusable(self._environment)
        if self._config.device is DeviceKind.CUDA and why:
            raise MachineError(f"{why}; use device='host' to check correctness on the CPU")
        self._on_event = on_event
        self._lock = threading.RLock()
        self._ending = threading.RLock()
        self._runner: Runner[Result] | None = None
        self._keeper: RunKeeper | None = None
        self._catalog: Catalog | None = None
        self._closed = False
        self._process = os.getpid()

    @property
    def device(self) -> DeviceKind:
        """The device that executes solutions."""
        return self._config.device

    @property
    def config(self) -> RunConfig:
        """All settings, with defaults filled in."""
        return self._config

    def submit(
        self,
        problem: str | Path | Problem,
        source: str | Path,
        *,
        workload: str | Workload | None = None,
        author: str = "local",
        name: str | None = None,
        sample: int | None = None,
        group: Group | None = None,
    ) -> Future[Result]:
        """Start the evaluation of a solution and return at once.

        `author`, `name` and `sample` identify the record. If several records of one problem and workload have the same
        ones, the last counts in a kept run. The first call starts the processes.

        Args:
            problem: An id ("level1/19"), the path of a problem file, the source text of a problem (more than one line),
                or a `Problem`.
            source: The solution: its source text (`str`) or its file (`Path`).
            workload: Name of a workload that the problem declares, `small`, or a `Workload` with other sizes and a new
                name. None means the workload of this `Harness`.
            author: Name of the solution's author.
            name: Name of the solution. None means a digest of its text.
            sample: Number of the solution among several samples, 0 or more; None means no number.
            group: Solutions with which it is compared: its timing ends when that is settled. None times it as precisely
                as a single one.

        Returns:
            A future. Its `result()` is a `Result`, also if the solution fails. It raises only if there is no result:
            `ExecutorError` if no device is left or the `Harness` was closed, `OSError` or `StoreUnavailable` if the
            result can't be written. `cancel()` works until the build starts.

        Raises:
            CatalogError: The problem, workload or file does not exist or is invalid, or the kept run has other sizes by
                this workload's name.
            TypeError: An argument has the wrong type.
            HarnessClosed: The `Harness` is closed, or this is a forked process, which must make its own `Harness`.
            StoreError: In the first call: `results` can't hold the run, or can't be continued with these settings.
            OSError: In the first call: the temporary folder or the cache folder can't be written.
            ExecutorError: In the first call: a tool is missing.
            MachineError: In the first call: a tool is missing, or the working folder was removed.
        """
        if os.getpid() != self._process:  # a fork has no threads of this runner, and a lock may stay locked forever
            raise HarnessClosed("a forked process can't use this Harness; make one in each process, after the fork")
        held = self.problem(problem)
        sizes = self._workload(held, workload)
        job = PlannedSolution(
            solution=given_solution(held, source, author=author, name=name, sample=sample),
            problem=self._config.judged(held, sizes),
            workload=sizes,
            group=group,
        )
        runner, keeper = self._started()
        if isinstance(source, Path):
            for finding in keeper.introduce(replace(job.solution, path=source)):
                warnings.warn(f"the description of an author is ignored: {finding}", stacklevel=2)
        (future,) = runner.submit([keeper.work(job)], self._told)
        return future

    def evaluate(self, problem: str | Path | Problem, source: str | Path, **options: Unpack[SubmitOptions]) -> Result:
        """Evaluate a solution and wait for the result.

        Args:
            problem: As for `submit`.
            source: As for `submit`.
            options: As for `submit`: `workload`, `author`, `name` and `sample`.

        Returns:
            The result.

        Raises:
            RuntimeError: This is a callback of a future, which would wait forever: call `submit` there.
            Exception: As for `submit`, and for `result()` of its future.
        """
        runner = self._runner
        if runner is not None and runner.calls_back:
            raise RuntimeError("a future's callback can't wait for another evaluation: call `submit` there instead")
        future = self.submit(problem, source, **options)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted: nobody else has this future
            raise

    def evaluate_group(
        self,
        problem: str | Path | Problem,
        sources: Sequence[str | Path],
        *,
        until: Literal["ranking", "reward"] = "ranking",
        policy: RewardPolicy = DEFAULT_POLICY,
        tolerance: float = 0.02,
        **options: Unpack[GroupOptions],
    ) -> list[Result]:
        """Evaluate several solutions to one problem, and wait for all results.

        Timing ends earlier than for single solutions: when the ranking of the solutions is settled, or each reward.

        Args:
            problem: As for `submit`.
            sources: Solutions, each as for `submit`; their places are the numbers of the samples.
            until: "ranking": each interval is within 10 %, or 5 % if it meets that of another solution. "reward": no
                reward changes by more than `tolerance`.
            policy: How rewards are computed.
            tolerance: Largest change of a reward.
            options: As for `submit`: `workload` and `author`.

        Returns:
            The results, in the order of the sources.

        Raises:
            ValueError: `until` or `tolerance` is invalid.
            RuntimeError: This is a callback of a future, which would wait forever: call `submit` there.
            Exception: As for `submit`, and for `result()` of its future.
        """
        if until not in ("ranking", "reward"):
            raise ValueError(f"until must be ranking or reward, not {until!r:.60}")
        group = Group.ranking() if until == "ranking" else Group.rewards(policy, tolerance)
        runner = self._runner
        if runner is not None and runner.calls_back:
            raise RuntimeError("a future's callback can't wait for another evaluation: call `submit` there instead")
        futures = [
            self.submit(problem, source, sample=number, group=group, **options) for number, source in enumerate(sources)
        ]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()  # interrupted: nobody else has these futures
            raise

    async def evaluate_async(
        self, problem: str | Path | Problem, source: str | Path, **options: Unpack[SubmitOptions]
    ) -> Result:
        """Evaluate a solution without blocking the event loop; otherwise as `evaluate`."""
        future = await asyncio.to_thread(self.submit, problem, source, **options)
        return await asyncio.wrap_future(future)

    async def as_completed_async(self, futures: Iterable[Future[Result]]) -> AsyncIterator[Result]:
        """Yield the results of futures in the order in which they finish.

        Args:
            futures: Futures of `submit`.

        Yields:
            The result of each future.

        Raises:
            CancelledError: A future was cancelled.
            Exception: As for `result()` of a future.
        """
        for done in asyncio.as_completed([asyncio.wrap_future(future) for future in futures]):
            yield await done

    def problem(self, wanted: str | Path | Problem) -> Problem:
        """Find a problem.

        Args:
            wanted: As `problem` of `submit`.

        Returns:
            The problem.

        Raises:
            CatalogError: The problem does not exist or is invalid.
        """
        if isinstance(wanted, Problem):
            return wanted
        if (given := given_problem(wanted)) is not None:
            return given
        with self._lock:
            try:
                if self._catalog is None:
                    self._catalog = load_problems(self._config.problems)
                return self._catalog.resolve(str(wanted))
            except UnreadableProblem:
                raise
            except CatalogError as error:
                # For the name of a file, report the missing file, whether or not the folder of problems exists.
                named = str(wanted).endswith(".py")
                found = [f"there is no problem {str(wanted)!r:.100}: no such file"] if named else error.findings
                known = f"an id in the folder {self._config.problems} (`problems`)"
                what = f"pass {known}, the path of a .py file, or a source text of more than one line"
                raise CatalogError([*found, what]) from error

    def close(self) -> None:
        """End all processes. May be called again.

        Evaluations that have not started are cancelled; those under way fail with `ExecutorError`. In a forked process
        it does nothing, because the processes belong to the parent.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            runner, keeper = self._runner, self._keeper
        if runner is None or keeper is None:
            return
        # The closing thread waits for callbacks of futures, so a callback must not wait for the closing thread.
        if not self._ending.acquire(blocking=not runner.calls_back):
            return
        try:
            runner.end()  # writes the last records, so it comes before the run is closed
            keeper.close()
            with self._lock:  # last, so that an interrupted `close` can be called again
                self._runner = self._keeper = None
                self._ender.detach()
        finally:
            self._ending.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __getstate__(self) -> object:
        raise TypeError("a Harness can't be copied or sent to another process; make a new one there")

    def _started(self) -> tuple[Runner[Result], RunKeeper]:
        with self._lock:
            if self._closed:
                raise HarnessClosed("this Harness is closed; make another one")
            if self._runner is None or self._keeper is None:
                _check_working_folder()
                with ExitStack() as undo:
                    keeper = RunKeeper(self._results, self._config, self._environment)
                    undo.callback(keeper.close)

                    def opened(settings: RunConfig, logs: Path) -> LocalExecutor:
                        tell = functools.partial(_tell, self._on_event)
                        return undo.enter_context(LocalExecutor(settings, self._environment, logs, tell=tell))

                    executor = opened(self._config, keeper.folder)
                    cascade = open_cascade(self._config, self._environment, keeper.folder, opened)
                    runner = Runner(executor, self._config, self._environment, keeper.deliver, cascade=cascade)
                    undo.pop_all()
                # No call at exit: the end of this process ends the others too.
                self._ender = weakref.finalize(self, _end_aside, runner, keeper, self._process)
                self._ender.atexit = False
                self._runner, self._keeper = runner, keeper
            return self._runner, self._keeper

    def _told(self, event: Event) -> None:
        """Log an event and pass it on.

        The runner's reference to this method keeps the object alive until the future is settled.
        """
        _tell(self._on_event, event)

    def _workload(self, problem: Problem, wanted: str | Workload | None) -> Workload:
        if isinstance(wanted, Workload):
            return given_workload(problem, wanted)
        if not isinstance(wanted, str | None):
            raise TypeError(f"`workload` must be a name or a Workload, not {wanted!r:.60}")
        found = named_workload(problem, self._config.workload if wanted is None else wanted)
        return found if found is UNDERIVED else given_workload(problem, found)


def _tell(on_event: Callable[[Event], None] | None, event: Event) -> None:
    """Log an event and pass it to the caller's function."""
    match event:
        case Preparing():
            LOGGER.info("preparing %s: %d of %d steps", event.what, event.done, event.total)
        case BuildFinished():
            LOGGER.debug("%s: built in %.1f s", event.solution.label, event.wall_s)
        case Noted():
            LOGGER.warning("%s", event.message)
    if on_event is None:
        return
    try:
        on_event(event)
    except Exception:  # an error of the caller's display must not cost an evaluation
        LOGGER.exception("on_event raised")


def _check_working_folder() -> None:
    """Raise `MachineError` if the working folder was removed.

    Libraries of torch end processes that load them in such a folder.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise MachineError("the working folder of this process was removed; os.chdir to an existing one") from error


def _end_aside(runner: Runner[Result], keeper: RunKeeper, owner: int) -> None:
    """End the processes of a garbage-collected `Harness`, in a thread.

    It waits for nothing, because the garbage collector may run while a lock is locked. In a fork of the process `owner`
    it does nothing.
    """
    if os.getpid() == owner:
        keeper.let_go()  # at once, so that a new `Harness` can continue the run; no thread uses it any more
        threading.Thread(target=_end, args=(runner, keeper), daemon=True).start()


def _end(runner: Runner[Result], keeper: RunKeeper) -> None:
    runner.end()
    keeper.close()

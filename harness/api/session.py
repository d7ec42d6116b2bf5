"""`Harness`: warm builders and referees that evaluate what they are given, one solution or thousands.

Outside layer; trusted side. Problems are trusted code, solutions are not. Everything belongs to the instance; two of
them share nothing but the build cache on disk, which is safe to share.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from harness.api.flow import Flow
from harness.api.given import given_problem, given_solution, given_workload
from harness.api.keeper import RunKeeper
from harness.api.result import Result
from harness.catalog import Catalog, CatalogError, UnreadableProblem, load_problems
from harness.core.cache_dir import ready_cache
from harness.core.choices import AuditMode, Baseline, DeviceKind, DevicePolicy, PrecisionClass, SandboxMode
from harness.core.config import ConfigError, RunConfig, TimingConfig, resolve
from harness.core.config_values import parse_path
from harness.core.environment import MachineError, collect, cuda_unusable, machine
from harness.core.problem import Problem, Workload
from harness.results.reader import new_run_id
from harness.runner.executors.local import LocalExecutor
from harness.runner.plan import PlannedSolution

Timing = Literal["quick", "full"]
"""`quick`: the speedup within 2 %, or a quarter second of measuring; `full`: as the command line, within 0.5 % or
3 s."""

QUICK = TimingConfig(min_samples=12, sets_per_burst=8, relative_half_width=0.02, budget_s=0.25)


class HarnessClosed(RuntimeError):
    """Asked for work after `close`, or in a process that was forked from the one that made it."""


class Harness:
    """Evaluates solutions on this machine.

        with Harness(device="auto") as h:
            print(h.evaluate("level1/19", source).speedup)

    `device`: "auto" (a GPU where one can be used, else host), "cuda" or "host". `problems`: the folder that ids such
    as "level1/19" are looked up in. `workload`: sizes by name; None is `full` on a GPU, `small` (where declared) on
    the host. `timing`: how long to measure, see `Timing`, or a `TimingConfig`. `results`: a folder to keep as a run
    (records, logs), created or continued; None keeps nothing on disk. `policy`: as in a configuration file, which right
    answers to refuse. `baselines`: names such as "eager" and "compile", of which the first decides the speedup. The
    rest are the command line's settings of the same names; None is its default.

    Processes start with the first evaluation (some seconds: torch is imported) and end with `close` or the `with`
    block; where neither comes, once nobody has the `Harness` any more and nothing is under way. Every method may be
    called from any thread. Raises `MachineError` where the device can't be used or the working folder is gone,
    `ConfigError` for an impossible setting, or a folder of caches that can't be written.
    """

    def __init__(
        self,
        *,
        device: Literal["auto", "cuda", "host"] | DeviceKind = "auto",
        problems: Path | str = "problems",
        workload: str | None = None,
        timing: Timing | TimingConfig = "quick",
        results: Path | str | None = None,
        precision: PrecisionClass | str | None = None,
        baselines: Sequence[Baseline | str] | None = None,
        seeds: int | None = None,
        device_policy: DevicePolicy | None = None,
        sandbox: SandboxMode | None = None,
        audit: AuditMode | None = None,
        checked: bool | None = None,
        allow_degenerate: bool | None = None,
        policy: Mapping[str, object] | None = None,
        jobs: int | None = None,
        workers: int | None = None,
        compile_timeout_s: float | None = None,
        load_timeout_s: float | None = None,
        call_timeout_s: float | None = None,
        solution_timeout_s: float | None = None,
        memory_limit_bytes: int | None = None,
        cache_dir: Path | str | None = None,
    ) -> None:
        if timing not in ("quick", "full") and not isinstance(timing, TimingConfig):
            raise ConfigError(f"Harness: `timing` must be quick, full or a TimingConfig, not {timing!r:.60}")
        _check_working_folder()
        measured = QUICK if timing == "quick" else timing if isinstance(timing, TimingConfig) else None
        self._environment = collect()
        found = machine(self._environment)
        try:
            # Other folders may be worked in later, and this one removed.
            self._results = None if results is None else parse_path(results).absolute()
        except ValueError as error:
            raise ConfigError(f"Harness: `results` must be {error}, not {results!r:.60}") from None
        self._config: RunConfig = resolve(
            machine=found,
            run_id=new_run_id(),
            source="Harness",
            options={
                "paths": [Path()],  # nothing is looked for there: solutions arrive one by one
                "problems": problems,
                "device": device,
                "workload": workload,
                "precision": precision,
                "baselines": baselines,
                "seeds": seeds,
                "device_policy": device_policy,
                "sandbox": sandbox,
                "audit": audit,
                "checked": checked,
                "allow_degenerate": allow_degenerate,
                "policy": policy,
                "jobs": jobs,
                "workers": workers,
                "compile_timeout_s": compile_timeout_s,
                "load_timeout_s": load_timeout_s,
                "call_timeout_s": call_timeout_s,
                "solution_timeout_s": solution_timeout_s,
                "memory_limit_bytes": memory_limit_bytes,
                "cache_dir": cache_dir,
                **({} if measured is None else asdict(measured)),
            },
        )
        ready_cache(self._config.cache_dir, "cache_dir or HARNESS_CACHE")
        why = cuda_unusable(self._environment)
        if self._config.device is DeviceKind.CUDA and why:
            raise MachineError(f"{why}; device='host' checks values on the CPU")
        self._named_workload = workload
        self._lock = threading.RLock()
        self._ending = threading.RLock()
        self._flow: Flow | None = None
        self._keeper: RunKeeper | None = None
        self._catalog: Catalog | None = None
        self._closed = False
        self._process = os.getpid()

    @property
    def device(self) -> DeviceKind:
        """Where solutions are executed."""
        return self._config.device

    @property
    def config(self) -> RunConfig:
        """Every setting, settled."""
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
    ) -> Future[Result]:
        """Start evaluating `source` (a `str` is a solution's text, a `Path` its file) and return at once.

        `problem` is an id ("level1/19"), the path of a problem file, the text of one (more than one line), or a
        `Problem`. `workload` is a name that it declares, or a `Workload` of other sizes, whose name must be its own.
        `author`, `name` (None: of the text) and `sample` (from 0) are what the record is found by: of several with the
        same for one problem and workload, a run that is kept counts the last one. The future's `result()` is a `Result`
        whatever the solution does. It raises only where there can be none: no device is left, or this was closed
        (`ExecutorError`), or the disk is full (`OSError`, `StoreUnavailable`), and then keeps none. `cancel()` works
        until the build begins.

        Raises `CatalogError` where the problem, workload or file can't be found or used, the problem can't be read, or
        a run that is kept knows other sizes of it by that workload's name; `TypeError` for a problem, source, author,
        name, sample or workload of another kind; `HarnessClosed` after `close` and in a forked process, which makes a
        `Harness` of its own. The first one, which starts the processes, raises `StoreError` and `OSError` where the run
        can't be kept in `results`, or not be continued with these settings, and where the temporary folder or that of
        caches can't be written, `ExecutorError` and `MachineError` where a tool is missing.
        """
        if os.getpid() != self._process:  # no thread came along, and a lock may be held for ever
            raise HarnessClosed("a forked process can't use this Harness; make one in each process, after the fork")
        held = self._problem(problem)
        sizes = self._workload(held, workload)
        precision = self._config.precision or sizes.precision
        job = PlannedSolution(
            solution=given_solution(held, source, author=author, name=name, sample=sample),
            problem=replace(held, precision=precision) if precision is not None else held,
            workload=sizes,
        )
        flow, keeper = self._started()
        if isinstance(source, Path):
            for finding in keeper.introduce(replace(job.solution, path=source)):
                warnings.warn(f"what an author says is left out: {finding}", stacklevel=2)
        future: Future[Result] = Future()
        try:
            flow.submit(keeper.work(job), future, owner=self)
        except RuntimeError as error:
            raise HarnessClosed("this Harness is closed; make another one") from error
        return future

    def evaluate(
        self,
        problem: str | Path | Problem,
        source: str | Path,
        *,
        workload: str | Workload | None = None,
        author: str = "local",
        name: str | None = None,
        sample: int | None = None,
    ) -> Result:
        """Evaluate `source` and wait for the result. Arguments and errors as for `submit`, and for its `result()`.

        Raises `RuntimeError` in what is called back on a future: none would ever come there; `submit` does it.
        """
        flow = self._flow
        if flow is not None and flow.calls_back:
            raise RuntimeError("a future's callback can't wait for another evaluation: submit it there, and go on")
        future = self.submit(problem, source, workload=workload, author=author, name=name, sample=sample)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # interrupted: nobody else could ask for it
            raise

    async def evaluate_async(
        self,
        problem: str | Path | Problem,
        source: str | Path,
        *,
        workload: str | Workload | None = None,
        author: str = "local",
        name: str | None = None,
        sample: int | None = None,
    ) -> Result:
        """`evaluate` for an event loop, which goes on meanwhile. Arguments and errors as for `submit`."""
        future = await asyncio.to_thread(
            self.submit, problem, source, workload=workload, author=author, name=name, sample=sample
        )
        return await asyncio.wrap_future(future)

    async def as_completed_async(self, futures: Iterable[Future[Result]]) -> AsyncIterator[Result]:
        """The results of `submit`'s futures, each as soon as it is there. Raises what one of them raises: after its
        `cancel()`, `CancelledError`.
        """
        for done in asyncio.as_completed([asyncio.wrap_future(future) for future in futures]):
            yield await done

    def close(self) -> None:
        """End every process. What has not begun is cancelled; what is under way fails with `ExecutorError`. In a forked
        process nothing: they are its parent's.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            flow, keeper = self._flow, self._keeper
        if flow is None or keeper is None:
            return
        # Whoever closes it waits for what is called back on futures, and that must not wait for whoever closes it.
        if not self._ending.acquire(blocking=not flow.calls_back):
            return
        try:
            flow.close()  # what was judged before is kept, and so the run is let go of after it
            keeper.close()
            with self._lock:  # not before: one that was interrupted is to be closed once more
                self._flow = self._keeper = None
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
        raise TypeError("a Harness can't be copied, nor sent to another process; make one there")

    def _started(self) -> tuple[Flow, RunKeeper]:
        with self._lock:
            if self._closed:
                raise HarnessClosed("this Harness is closed; make another one")
            if self._flow is None or self._keeper is None:
                _check_working_folder()
                keeper = RunKeeper(self._results, self._config, self._environment)
                try:
                    executor = LocalExecutor(self._config, self._environment, keeper.folder)
                except BaseException:
                    keeper.close()
                    raise
                try:
                    flow = Flow(executor, self._config, self._environment, keeper.deliver)
                except BaseException:
                    executor.close()
                    keeper.close()
                    raise
                # The end of this process is that of the others, too.
                self._ender = weakref.finalize(self, _end_aside, flow, keeper, self._process)
                self._ender.atexit = False
                self._flow, self._keeper = flow, keeper
            return self._flow, self._keeper

    def _problem(self, wanted: str | Path | Problem) -> Problem:
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
                # Whether or not there is a folder to look in: who names a file wants to hear of that.
                named = str(wanted).endswith(".py")
                found = [f"there is no problem {str(wanted)!r:.100}: no such file"] if named else error.findings
                known = f"an id in the folder {self._config.problems} (`problems`)"
                what = f"a problem is {known}, the path of a .py file, or a text of more than one line"
                raise CatalogError([*found, what]) from error

    def _workload(self, problem: Problem, wanted: str | Workload | None) -> Workload:
        if isinstance(wanted, Workload):
            return given_workload(problem, wanted)
        if not isinstance(wanted, str | None):
            raise TypeError(f"`workload` is a name or a Workload, not {wanted!r:.60}")
        name = self._config.workload if wanted is None else wanted
        held = problem.workloads.get(name)
        if held is None and wanted is None and self._named_workload is None:
            held = problem.workloads.get("full")
        if held is None:
            known = ", ".join(problem.workloads)
            raise CatalogError([f"{problem.id} declares no workload {name!r:.60}; it has {known}"])
        return given_workload(problem, held)


def _check_working_folder() -> None:
    """Raises `MachineError` where it was removed: libraries of torch then end every process that loads them."""
    try:
        os.getcwd()
    except OSError as error:
        raise MachineError("this process's working folder was removed; os.chdir to one that is there") from error


def _end_aside(flow: Flow, keeper: RunKeeper, owner: int) -> None:
    """End what is left of a `Harness` that nobody has any more. Anywhere may this be called, also where a lock is held:
    so it waits for nothing. In a process that was forked from the `owner` it does nothing.
    """
    if os.getpid() == owner:
        keeper.let_go()  # at once, for the next one that keeps the same run; nobody else is at it
        threading.Thread(target=_end, args=(flow, keeper), daemon=True).start()


def _end(flow: Flow, keeper: RunKeeper) -> None:
    flow.close()
    keeper.close()

"""`Harness`: warm builders and referees that evaluate what they are given, one solution or thousands.

Outside layer; trusted side. Problems are trusted code, solutions are not. Everything belongs to the instance; two of
them share nothing but the build cache on disk, which is safe to share.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from harness.api.flow import Flow
from harness.api.given import given_solution, portable
from harness.api.result import Result
from harness.catalog import Catalog, CatalogError, find_authors, load_problems
from harness.conductor import Work
from harness.config import AuditMode, ConfigError, DevicePolicy, RunConfig, SandboxMode, TimingConfig, resolve
from harness.environment import MachineError, collect, cuda_unusable, machine
from harness.executors.local import LocalExecutor
from harness.model import (
    Baseline,
    DeviceKind,
    InputRules,
    PrecisionClass,
    Problem,
    Record,
    Solution,
    Workload,
    digest_text,
)
from harness.planning import Job
from harness.runs import StoreError, is_run, new_run_id
from harness.store import RunStore

Timing = Literal["quick", "full"]
"""`quick`: the speedup within 2 %, or a quarter second of measuring; `full`: as the command line, within 0.5 % or
3 s."""

QUICK = TimingConfig(min_samples=12, sets_per_burst=8, relative_half_width=0.02, budget_s=0.25)

MAX_LOG_BYTES = 2**20
"""Of a longer log the end is kept."""


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
    block. Every method may be called from any thread. Raises `MachineError` where the device can't be used,
    `ConfigError` for an impossible setting.
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
        self._environment = collect()
        found = machine(self._environment)
        self._results = Path(results) if results is not None else None
        settled = resolve(
            machine=found,
            run_id=new_run_id(),
            source="Harness",
            options={
                "paths": [Path()],  # nothing is looked for there: solutions arrive one by one
                "problems": Path(problems),
                "device": str(device.value if isinstance(device, DeviceKind) else device),
                "workload": workload,
                "precision": str(precision.value if isinstance(precision, PrecisionClass) else precision)
                if precision is not None
                else None,
                "baselines": None if baselines is None else [str(name) for name in baselines],
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
                "cache_dir": Path(cache_dir) if cache_dir is not None else None,
            },
        )
        why = cuda_unusable(self._environment)
        if settled.device is DeviceKind.CUDA and why:
            raise MachineError(f"{why}; device='host' checks values on the CPU")
        if timing == "quick":
            settled = replace(settled, timing=QUICK)
        elif isinstance(timing, TimingConfig):
            settled = replace(settled, timing=timing)
        elif timing != "full":
            raise ConfigError(f"Harness: `timing` must be quick, full or a TimingConfig, not {timing!r:.60}")
        self._config: RunConfig = settled
        self._named_workload = workload
        self._lock = threading.RLock()
        self._numbers = count()
        self._flow: Flow | None = None
        self._folder: Path | None = None
        self._store: RunStore | None = None
        self._introduced: set[str] = set()
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
        `Problem`. `workload` is a name that it declares, or a `Workload` of other sizes. The future's `result()` is a
        `Result` whatever the solution does. It raises only where there can be none: no device is left, or this was
        closed (`ExecutorError`), or the disk is full (`OSError`, `StoreUnavailable`). `cancel()` works until the build
        begins.

        Raises `CatalogError` where the problem, workload or file can't be found, or the problem can't be read,
        `TypeError` for a source, author, name or sample of another kind, `HarnessClosed` after `close` and in a forked
        process, which makes a `Harness` of its own.
        """
        if os.getpid() != self._process:  # no thread came along, and a lock may be held for ever
            raise HarnessClosed("a forked process can't use this Harness; make one in each process, after the fork")
        held = self._problem(problem)
        sizes = self._workload(held, workload)
        precision = self._config.precision or sizes.precision
        job = Job(
            solution=given_solution(held, source, author=author, name=name, sample=sample),
            problem=replace(held, precision=precision) if precision is not None else held,
            workload=sizes,
        )
        flow, folder = self._started()
        if isinstance(source, Path):
            self._introduce(replace(job.solution, path=source))
        work = Work(job=job, log_path=folder / f"{next(self._numbers)}.log")
        future: Future[Result] = Future()
        try:
            flow.submit(work, future)
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
        """Evaluate `source` and wait for the result. Arguments and errors as for `submit`."""
        return self.submit(problem, source, workload=workload, author=author, name=name, sample=sample).result()

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
        """The results of `submit`'s futures, each as soon as it is there."""
        for done in asyncio.as_completed([asyncio.wrap_future(future) for future in futures]):
            yield await done

    def close(self) -> None:
        """End every process. What has not begun is cancelled; what is under way fails with `ExecutorError`. In a forked
        process nothing: they are its parent's."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            flow, self._flow = self._flow, None
        if flow is not None:
            flow.close()  # what was judged before is kept, and so the store is closed after it
        with self._lock:
            folder, self._folder = self._folder, None
            store, self._store = self._store, None
        if store is not None:
            store.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

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

    def _started(self) -> tuple[Flow, Path]:
        with self._lock:
            if self._closed:
                raise HarnessClosed("this Harness is closed; make another one")
            if self._flow is None or self._folder is None:
                folder = Path(tempfile.mkdtemp(prefix="harness-"))
                try:
                    if self._results is not None and self._store is None:
                        self._store = self._opened(self._results)
                    executor = LocalExecutor(self._config, self._environment, folder)
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                weakref.finalize(self, _remove, folder, self._process)  # also where nobody calls `close`
                self._folder = folder
                self._flow = Flow(executor, self._config, self._environment, self._delivered)
            return self._flow, self._folder

    def _opened(self, folder: Path) -> RunStore:
        settings = self._config.to_json()
        if is_run(folder):
            return RunStore.resume(folder, config=settings)
        return RunStore.create(folder, config=settings, environment=self._environment.to_json())

    def _introduce(self, solution: Solution) -> None:
        """Note in the run that is kept, once an author, what the `author.yaml` beside a solution's file says."""
        with self._lock:
            if self._store is None or solution.author in self._introduced:
                return
            self._introduced.add(solution.author)
            authors, findings = find_authors([solution])
            # Nobody's solution waits for it; what is wrong with the disk, the first record will tell.
            with suppress(StoreError):
                for author in authors.values():
                    self._store.note_author(author)
        for finding in findings:
            warnings.warn(f"what an author says is left out: {finding}", stacklevel=3)

    def _delivered(self, work: Work, record: Record) -> Result:
        log = _tail(work.log_path)
        with self._lock:
            if self._store is not None:
                self._store.append(record)
                self._store.log_path(record.solution).write_text(log, encoding="utf-8", errors="replace")
        # A loop may run for days: nothing of a finished solution stays in the temporary folder.
        with suppress(OSError):
            work.log_path.unlink()
        return Result(record=record, source=work.job.solution.source, log=log)

    def _problem(self, wanted: str | Path | Problem) -> Problem:
        if isinstance(wanted, Problem):
            return wanted
        if isinstance(wanted, str) and "\n" in wanted:
            digest = digest_text(wanted, "{}")
            return Problem(
                id=f"inline/{digest[:12]}",
                name="inline",
                path=Path(f"{digest[:12]}.py"),
                source=wanted,
                digest=digest,
                rules=InputRules(),
            )
        path = Path(wanted)
        if path.suffix == ".py" and path.is_file():
            return load_problems(path.resolve().parent).resolve(f"{path.resolve().parent.name}/{path.name}")
        with self._lock:
            if self._catalog is None:
                self._catalog = load_problems(self._config.problems)
            return self._catalog.resolve(str(wanted))

    def _workload(self, problem: Problem, wanted: str | Workload | None) -> Workload:
        if isinstance(wanted, Workload):
            return portable(wanted)
        name = wanted or self._config.workload
        held = problem.workloads.get(name)
        if held is None and wanted is None and self._named_workload is None:
            held = problem.workloads.get("full")
        if held is None:
            known = ", ".join(problem.workloads)
            raise CatalogError([f"{problem.id} declares no workload {name!r}; it has {known}"])
        return portable(held)


def _remove(folder: Path, owner: int) -> None:
    """The folder of the process `owner`, if this is that one and no fork of it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _tail(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    return data[-MAX_LOG_BYTES:].decode(errors="replace")

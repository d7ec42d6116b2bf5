"""What a `Harness` keeps: the folder of what is under way, and the run on disk where one was asked for.

Outside layer; trusted side. Knows no `Harness`, so that one that nobody has any more can be ended.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from harness.api.result import Result
from harness.catalog import CatalogError, find_authors
from harness.core.atomic_file import replace_whole
from harness.core.choices import PrecisionClass
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.problem import Solution
from harness.core.record import Record
from harness.results.reader import StoreError, StoreUnavailable, is_run
from harness.results.writer import RunStore
from harness.runner.listeners import PendingSolution
from harness.runner.plan import PlannedSolution

MAX_LOG_BYTES = 2**20
"""Of a longer log the end is kept."""


class RunKeeper:
    """Safe for threads."""

    def __init__(self, results: Path | None, config: RunConfig, environment: Environment) -> None:
        """`results` is the folder of the run to keep, created or continued. Raises `StoreError`, `OSError`."""
        self._lock = threading.Lock()
        self._numbers = count()
        self._introduced: set[str] = set()
        self._sizes: dict[tuple[str, str, str], tuple[dict[str, Any], PrecisionClass | None]] = {}
        self._store: RunStore | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="harness-"))
        weakref.finalize(self, _remove, self.folder, os.getpid())  # also where nobody calls `close`
        try:
            if results is not None:
                self._store = _opened(results, config, environment)
        except BaseException:
            self.close()
            raise

    def work(self, job: PlannedSolution) -> PendingSolution:
        """What is to be done for `job`, with a log of its own. Raises `CatalogError` where the run that is kept could
        not tell its records from those of other sizes.
        """
        name, meant = job.workload.name, (dict(job.workload.sizes), job.workload.precision)
        # A problem that was changed meanwhile has another digest, which records tell, and may mean something else.
        key = (job.problem.id, job.problem.digest, name)
        with self._lock:
            known = self._sizes.setdefault(key, meant) if self._store is not None else meant
        if known != meant:
            raise CatalogError(
                [
                    f"workload {name!r:.60} of {job.problem.id} had the sizes {known[0]!r:.200} before, or another "
                    "precision; a run that is kept tells workloads by their names: take another"
                ]
            )
        return PendingSolution(job=job, log_path=self.folder / f"{next(self._numbers)}.log")

    def introduce(self, solution: Solution) -> list[str]:
        """Note in the run that is kept, once an author, what the `author.yaml` beside a solution's file says. Returns
        what is wrong with that, one line each.
        """
        with self._lock:
            if self._store is None or solution.author in self._introduced:
                return []
            self._introduced.add(solution.author)
            authors, findings = find_authors([solution])
            # Nobody's solution waits for it; what is wrong with the disk, the first record will tell.
            with suppress(StoreError):
                for author in authors.values():
                    self._store.note_author(author)
        return findings

    def deliver(self, work: PendingSolution, record: Record) -> Result:
        """The result, kept where a run is. Raises `StoreUnavailable` where it can't be: then there is no record of it
        either, and it may be done again.
        """
        log = _tail(work.log_path)
        with self._lock:
            if self._store is not None:
                # The record comes last: whoever is told of a failure finds none of it in the run.
                _write_log(self._store.log_path(record.solution), log)
                self._store.append(record)
        # A loop may run for days: nothing of a finished solution stays in the temporary folder.
        with suppress(OSError):
            work.log_path.unlink()
        return Result(record=record, source=work.job.solution.source, log=log)

    def let_go(self) -> None:
        """Give up the run's lock, as nothing comes any more: others may continue it. Idempotent."""
        with self._lock:
            if self._store is not None:
                self._store.close()

    def close(self) -> None:
        """Nothing is under way any more: `let_go`, and remove the folder. Idempotent."""
        self.let_go()
        shutil.rmtree(self.folder, ignore_errors=True)


def _opened(folder: Path, config: RunConfig, environment: Environment) -> RunStore:
    settings = config.to_json()
    if is_run(folder):
        return RunStore.resume(folder, config=settings)
    return RunStore.create(folder, config=settings, environment=environment.to_json())


def _write_log(path: Path, log: str) -> None:
    """Whole, or that of the record before it stays. Raises `StoreUnavailable`."""
    try:
        path.parent.mkdir(exist_ok=True)
        replace_whole(path, log.encode("utf-8", "replace"))
    except OSError as error:
        why = f"can't be written: {error.strerror or error}; mend that (make room), then submit the solution again"
        raise StoreUnavailable(f"{path}: {why}") from error


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

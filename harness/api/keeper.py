"""Files of a `Harness`: a temporary folder, and a run on disk if wanted.

Trusted side. It holds no reference to the `Harness`, so that an unused `Harness` can be garbage-collected.
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
from harness.results.reader import StoreError, StoreUnavailable, is_run
from harness.results.writer import RunStore
from harness.runner.events import SolutionFinished
from harness.runner.plan import PendingSolution, PlannedSolution

MAX_LOG_BYTES = 2**20
"""Longest log that is kept, in bytes; of a longer log only the end."""


class RunKeeper:
    """Keep logs and records. Safe to use from several threads.

    Args:
        results: Folder of the run to create or continue, or None for no run.
        config: Settings of the run.
        environment: Facts about this machine.

    Raises:
        StoreError: The folder holds a run with other settings, or no run can be kept there.
        OSError: A folder can't be written.
    """

    def __init__(self, results: Path | None, config: RunConfig, environment: Environment) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._introduced: set[str] = set()
        self._sizes: dict[tuple[str, str, str], tuple[dict[str, Any], PrecisionClass | None]] = {}
        self._store: RunStore | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="harness-"))
        weakref.finalize(self, _remove, self.folder, os.getpid())  # in case nobody calls `close`
        try:
            if results is not None:
                self._store = _opened(results, config, environment)
        except BaseException:
            self.close()
            raise

    def work(self, job: PlannedSolution) -> PendingSolution:
        """Return a planned solution with its own log file.

        Raises:
            CatalogError: The kept run has other sizes by the name of this workload, so its records would be mixed up.
        """
        name, meant = job.workload.name, (dict(job.workload.sizes), job.workload.precision)
        # A changed problem has another digest, which is in its records, so its workload may have other sizes.
        key = (job.problem.id, job.problem.digest, name)
        with self._lock:
            known = self._sizes.setdefault(key, meant) if self._store is not None else meant
        if known != meant:
            raise CatalogError(
                [
                    f"workload {name!r:.60} of {job.problem.id} had other sizes ({known[0]!r:.200}) or another "
                    "precision before; a run identifies workloads by their names: use another name"
                ]
            )
        return PendingSolution(job=job, log_path=self.folder / f"{next(self._numbers)}.log")

    def introduce(self, solution: Solution) -> list[str]:
        """Copy the `author.yaml` of a solution to the kept run, once for each author.

        Returns:
            The errors in that file, one line each.
        """
        with self._lock:
            if self._store is None or solution.author in self._introduced:
                return []
            self._introduced.add(solution.author)
            authors, findings = find_authors([solution])
            # An error of the disk is ignored here: writing the first record will report it.
            with suppress(StoreError):
                for author in authors.values():
                    self._store.note_author(author)
        return findings

    def deliver(self, work: PendingSolution, event: SolutionFinished) -> Result:
        """Return the result, and write it to the kept run.

        Raises:
            StoreUnavailable: It can't be written; then the run has no record of it, and it may be submitted again.
        """
        log, record = _tail(work.log_path), event.record
        with self._lock:
            if self._store is not None:
                # The record comes last: after an error the run has no record.
                _write_log(self._store.log_path(record.solution), log)
                self._store.append(record)
        # A loop may run for days: delete the log of each finished solution from the temporary folder.
        with suppress(OSError):
            work.log_path.unlink()
        return Result(record=record, source=work.job.solution.source, log=log)

    def let_go(self) -> None:
        """Release the lock of the run, so that others may continue it.

        May be called again.
        """
        with self._lock:
            if self._store is not None:
                self._store.close()

    def close(self) -> None:
        """Release the run and remove the temporary folder. May be called again."""
        self.let_go()
        shutil.rmtree(self.folder, ignore_errors=True)


def _opened(folder: Path, config: RunConfig, environment: Environment) -> RunStore:
    settings = config.to_json()
    if is_run(folder):
        return RunStore.resume(folder, config=settings)
    return RunStore.create(folder, config=settings, environment=environment.to_json())


def _write_log(path: Path, log: str) -> None:
    """Replace a log file as a whole; on `StoreUnavailable` the old one stays."""
    try:
        path.parent.mkdir(exist_ok=True)
        replace_whole(path, log.encode("utf-8", "replace"))
    except OSError as error:
        why = f"can't be written: {error.strerror or error}; fix that (free disk space), then submit the solution again"
        raise StoreUnavailable(f"{path}: {why}") from error


def _remove(folder: Path, owner: int) -> None:
    """Remove the folder, if this process is `owner` and not its fork."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _tail(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    return data[-MAX_LOG_BYTES:].decode(errors="replace")

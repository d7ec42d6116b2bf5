"""The thread that takes jobs from the store and stores their records."""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from harness.api.servers.http.evaluator import JobEvaluator
from harness.api.servers.http.job_store import LEASE_S, JobStore
from harness.api.servers.http.meters import Meters
from harness.core.record import Record
from harness.core.status import Status
from harness.runner.executors import SlotLost

POLL_S = 0.5
"""How often the store is asked for jobs that another server queued, in seconds."""

PACE_S = 0.02
"""Pause before each look at the store, so that one transaction takes all records and jobs of this time, in seconds."""

STARTED = "started "
"""Before the id of a job or batch in the news that an evaluation began."""

BEAT_S = LEASE_S / 5
RETRY_S = 1.0
"""Pause after an error of the database, in seconds."""

MOST_ATTEMPTS = 3
"""A job gets `harness_error` if this many servers died while they evaluated it: it may be the cause."""

Job = dict[str, Any]


class Dispatcher:
    """Evaluates the jobs of a store until it is closed.

    Args:
        store: The jobs.
        evaluator: Evaluates them.
        meters: Counts records and times.
        changed: Called with the ids of jobs and batches whose state changed, on the dispatcher's thread.
        say: Gets one line for each error.
    """

    def __init__(
        self,
        store: JobStore,
        evaluator: JobEvaluator,
        meters: Meters,
        changed: Callable[[Collection[str]], None],
        say: Callable[[str], None],
    ) -> None:
        self._store, self._evaluator, self._meters, self._changed, self._say = store, evaluator, meters, changed, say
        self.server = secrets.token_hex(8)
        self._running: dict[int, tuple[Job, Future[Record] | None]] = {}
        self._settled: queue.SimpleQueue[tuple[Job, Future[Record]]] = queue.SimpleQueue()
        self._results: list[tuple[Job, Record]] = []
        self._wake = threading.Event()
        self._check_lost = False
        self._beat_s = 0.0
        self.draining = self._ended = False
        self.trouble: str | None = None
        """Why nothing can be evaluated any more, or the last error of the database."""
        self._thread = threading.Thread(target=self._live, name="dispatcher", daemon=True)

    @property
    def broken(self) -> bool:
        """Whether only a restart helps."""
        return not self._ended and not (self._thread.is_alive() and self._evaluator.usable)

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def wake(self, *, cancelled: bool = False) -> None:
        """Look for work now: a job was queued or cancelled."""
        self._check_lost |= cancelled
        self._wake.set()

    def drain(self, within_s: float) -> None:
        """Take no more jobs, and wait until those under evaluation have their records."""
        self.draining = True
        deadline = time.monotonic() + within_s
        while self._running and time.monotonic() < deadline and self._thread.is_alive():
            self.wake()
            time.sleep(0.05)

    def close(self) -> None:
        """End the evaluations, and queue their jobs again."""
        self.draining = self._ended = True
        self.wake()
        self._thread.join()
        self._evaluator.close()
        try:
            self._step()  # the last records
            self._store.release(self.server, list(self._running))
            self._store.leave(self.server)
        except SQLAlchemyError as error:  # the lease ends by itself
            self._say(f"database: {_line(error)}")
        self._store.close()

    def _live(self) -> None:
        while not self._ended:
            self._wake.wait(POLL_S)
            self._wake.clear()
            time.sleep(PACE_S)
            try:
                self._step()
            except SQLAlchemyError as error:
                self.trouble = f"database: {_line(error)}"
                self._say(self.trouble)
                time.sleep(RETRY_S)
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {error}"
                self._say(f"the dispatcher ended: {self.trouble}")
                return

    def _step(self) -> None:
        if time.monotonic() > self._beat_s + BEAT_S:
            self._store.beat(self.server, list(self._running))
            self._beat_s, self._check_lost = time.monotonic(), True
        while not self._settled.empty():
            self._settle(*self._settled.get())
        if self._check_lost and self._running:
            self._check_lost = False
            for seq in self._store.lost(self.server, list(self._running)):
                _, future = self._running.pop(seq)
                if future is not None:
                    future.cancel()  # what runs already goes on, and its record is dropped
        if self._evaluator.usable:
            self.trouble = None
        else:
            self.trouble = "no device is left; restart the service after fixing it"
        idle = self.trouble is None and not self.draining
        room = self._evaluator.capacity - len(self._running) + len(self._results) if idle else 0
        jobs = self._store.exchange(self.server, [(job, record.to_json()) for job, record in self._results], room)
        done, self._results = self._results, []
        for job, record in done:
            self._running.pop(job["seq"], None)
            self._meters.finished(record.status, time.time() - job["submitted_at"])
        for job in jobs:
            self._begin(job)
        names = {name for job, _ in done for name in (job["id"], job["batch"]) if name}
        self._changed(names | {STARTED + name for job in jobs for name in (job["id"], job["batch"]) if name})

    def _begin(self, job: Job) -> None:
        request = json.loads(job["request"])
        self._running[job["seq"]] = (job, None)
        if job["attempts"] > MOST_ATTEMPTS:
            self._unjudged(job, f"{MOST_ATTEMPTS} servers died while they evaluated this solution: it may be the cause")
            return
        try:
            planned = self._evaluator.plan(request, job["tenant"])
            future = self._evaluator.submit(planned)
        except Exception as error:  # for example the problem was removed meanwhile
            self._unjudged(job, str(error))
            return
        self._running[job["seq"]] = (job, future)
        future.add_done_callback(partial(self._tell, job))

    def _tell(self, job: Job, future: Future[Record]) -> None:
        self._settled.put((job, future))
        self._wake.set()

    def _settle(self, job: Job, future: Future[Record]) -> None:
        """Note the record of an evaluation that ended."""
        held = self._running.get(job["seq"])
        if held is None or held[1] is not future:
            return  # cancelled, or lost to another server
        try:
            record = future.result()
        except (CancelledError, SlotLost):
            if not self._ended:  # else `close` queues all
                del self._running[job["seq"]]  # the next beat queues it again
        except Exception as error:
            if not self._ended:
                self._unjudged(job, f"{type(error).__name__}: {error}")
        else:
            self._results.append((job, self._shown(job, record)))

    def _shown(self, job: Job, record: Record) -> Record:
        """Return what its tenant may see.

        An error of a problem by id may quote the problem.
        """
        if record.status is not Status.harness_error or json.loads(job["request"])["problem"] is None:
            return record
        self._say(f"job {job['id']} of {job['tenant']}: {record.reason}")
        reason = f"the problem or the machine failed, not the solution: ask the operator about job {job['id']}"
        return replace(record, reason=reason, evidence={})

    def _unjudged(self, job: Job, reason: str) -> None:
        record = self._evaluator.unjudged(json.loads(job["request"]), job["tenant"], job["id"], reason)
        self._results.append((job, record))
        self._wake.set()


def _line(error: SQLAlchemyError) -> str:
    return str(error).splitlines()[0]

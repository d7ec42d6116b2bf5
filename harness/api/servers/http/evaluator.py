"""Turns requests into solutions, and evaluates them with a `Runner`.

The executor is the one that the configuration names: this machine or a Ray cluster.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

from harness.api.given import given_problem, given_solution, named_workload
from harness.catalog import CatalogError, load_problems
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.preparing import Preparing
from harness.core.problem import Problem
from harness.core.record import Record
from harness.core.status import Status, one_line
from harness.runner.cascade import open_cascade
from harness.runner.events import SolutionFinished
from harness.runner.executors import Executor
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.run import open_executor
from harness.runner.runner import Runner


class JobEvaluator:
    """Plans and evaluates the solutions of jobs. Safe to use from several threads.

    Args:
        config: Settings of the service.
        environment: Facts about this machine.
        say: Gets one line about each preparation that takes long.
        executor: Evaluates. None opens the one that `config` names.

    Raises:
        CatalogError: The folder of problems can't be read.
        ExecutorError: A tool or the cluster is missing.
        MachineError: A tool is missing.
    """

    def __init__(
        self,
        config: RunConfig,
        environment: Environment,
        say: Callable[[str], None],
        executor: Executor | None = None,
    ) -> None:
        self._config = config
        self.problems = load_problems(config.problems)
        self._folder = Path(tempfile.mkdtemp(prefix="harness-http-"))
        self._numbers = count()

        told: set[str] = set()

        def tell(event: Preparing) -> None:
            if event.what not in told:
                told.add(event.what)
                say(f"preparing {event.what}")

        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)

            def opened(settings: RunConfig, logs: Path) -> Executor:
                return undo.enter_context(open_executor(settings, environment, logs, None, tell))

            used = executor or opened(config, self._folder)
            cascade = open_cascade(config, environment, self._folder, opened)
            self._runner = Runner(used, config, environment, self._deliver, cascade=cascade)
            self._undo = undo.pop_all()
        self.capacity = 2 * len(used.slots) + max(1, used.builders)
        """How many jobs keep builders and slots busy; more would only lose their place in the queue."""

    @property
    def usable(self) -> bool:
        """Whether a device is left."""
        return self._runner.usable

    def plan(self, request: dict[str, Any], tenant: str) -> PlannedSolution:
        """Return the solution of a request.

        Args:
            request: Fields of a job: `problem` (an id, never a path) or `problem_text`, `source`, `workload`, `name`
                and `sample`.
            tenant: The author of the record.

        Raises:
            CatalogError: The problem or workload does not exist, or a value is invalid.
        """
        problem = self._problem(request["problem"], request["problem_text"])
        workload = named_workload(problem, request["workload"] or self._config.workload)
        solution = given_solution(
            problem, request["source"], author=tenant, name=request["name"], sample=request["sample"]
        )
        judged = self._config.judged(problem, workload)
        return PlannedSolution(solution=solution, problem=judged, workload=workload)

    def _problem(self, wanted: str | None, text: str | None) -> Problem:
        if text is not None:
            given = given_problem(text.rstrip("\n") + "\n")  # with a line break, it is never a path or an id
            assert given is not None
            return given
        found = self.problems.known.get(str(wanted))
        if found is None:
            raise CatalogError([f"there is no problem {wanted!r:.100}; GET /v1/problems lists the ids"])
        if found.failure is not None:  # its message may quote the file
            raise CatalogError([f"{found.id} can't be read; ask the operator to run harness problems lint {found.id}"])
        return found

    def submit(self, job: PlannedSolution) -> Future[Record]:
        """Start an evaluation. The future has an exception only if there is no record."""
        log = self._folder / f"{next(self._numbers)}.log"
        (future,) = self._runner.submit([PendingSolution(job=job, log_path=log)])
        return future

    def unjudged(self, request: dict[str, Any], tenant: str, job: str, reason: str) -> Record:
        """Return the record `harness_error` of a job that can't be evaluated."""
        return Record(
            problem=request["problem"] or "inline/text",
            author=tenant,
            solution=f"{tenant}/{job}",
            sample=request["sample"],
            device=self._config.device,
            workload=request["workload"] or self._config.workload,
            status=Status.harness_error,
            reason=one_line(reason) or "unknown error",
        )

    def close(self) -> None:
        """End all processes; futures that are not done fail or are cancelled."""
        self._runner.end()
        self._undo.close()

    @staticmethod
    def _deliver(work: PendingSolution, event: SolutionFinished) -> Record:
        with suppress(OSError):  # a service runs for months, and serves no logs
            work.log_path.unlink()
        return event.record

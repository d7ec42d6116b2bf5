"""Judge on the CPU before the GPU: what is wrong there takes no time of a GPU.

Trusted side. Prints nothing and imports no torch. `Cascade.convicts` evaluates a solution on the host device at the
problem's small sizes. A failure there decides only if it does not depend on the sizes: the solution is right on a GPU
if it was written for the sizes of the run alone. See guides/design/cascade.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.catalog.sizes import constants
from harness.core import python_ast
from harness.core.choices import Baseline, DeviceKind
from harness.core.config import BYTES_PER_BUILD, RunConfig
from harness.core.environment import Environment
from harness.core.labels import FALLS_BACK, NO_CUSTOM_KERNEL, UNCOUNTED
from harness.core.policy import Policy
from harness.core.problem import Problem, Workload
from harness.core.record import Record
from harness.core.status import Status
from harness.core.task import Outcome
from harness.referee.small_sizes import SMALL
from harness.runner.events import Event, Noted
from harness.runner.executors import Executor, ExecutorError
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.record_builder import record_of
from harness.runner.runner import Runner

FOLDER = "_cascade"
"""Folder in the run's logs for those of the CPU's processes."""

ANYWHERE = frozenset(
    {
        Status.syntax_error,
        Status.no_model_new,
        Status.wrong_structure,
        Status.wrong_dtype,
        Status.mutated_input,
        Status.data_race,
        Status.disqualified,
    }
)
"""Failures at any sizes that decide. Others may be right at the sizes of the run, or on a GPU."""

AT_SIZES = frozenset(
    {
        Status.wrong_shape,
        Status.wrong_value,
        Status.non_finite,
        Status.low_precision,
        Status.wrong_state,
        Status.memory_error,
        Status.uninitialised_read,
        Status.barrier_error,
    }
)
"""Failures that decide if they do not come from sizes for which the solution was not written."""

KERNELS_MAY_LACK = frozenset({NO_CUSTOM_KERNEL, FALLS_BACK, UNCOUNTED})
"""Labels of a solution whose kernels may not have run on the CPU: they are audited on the GPU."""

EVEN = "even"
"""Name of the workload with sizes that have the powers of two of the run's sizes as factors, as far as they can."""

STEPS = (128, 64, 32, 16)
"""Powers of two that even sizes are multiples of, if the run's sizes are: the first that `MOST_GROWTH` allows."""

MOST_GROWTH = 64
"""How much larger the product of all even sizes may be than that of the small ones."""

CALL_TIMEOUT_S = 30.0
"""Most seconds for a call on the CPU. What takes longer is left to the GPU."""

_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def host_config(config: RunConfig) -> RunConfig:
    """Return the settings with which the CPU evaluates the solutions of a run on GPUs.

    One solution is evaluated for each build that may run, and may take as much memory.
    """
    limit_bytes = config.memory_limit_bytes
    return replace(
        config,
        device=DeviceKind.HOST,
        workload=SMALL,
        workers=config.jobs,
        checked=True,
        baselines=(Baseline.EAGER,),
        policy=Policy(),
        shapes=0,
        timing=replace(config.timing, min_samples=1, budget_s=0.05),  # times on the CPU say nothing here
        gpu_memory_bytes=None,
        accelerator_type=None,
        memory_limit_bytes=min(limit_bytes, max(limit_bytes // config.jobs, BYTES_PER_BUILD)),
        call_timeout_s=min(config.call_timeout_s, CALL_TIMEOUT_S),
        cascade=False,
    )


class Cascade:
    """The CPU's part of a run on GPUs. Safe to use from several threads.

    Args:
        executor: Evaluates on the host device, with the settings of `host_config`; `end` closes it.
        config: Settings of the run.
        environment: Facts about this machine.
    """

    def __init__(self, executor: Executor, config: RunConfig, environment: Environment) -> None:
        self._config = config
        self._runner = Runner(executor, host_config(config), environment, lambda work, event: event.record)

    def convicts(
        self, work: PendingSolution, where: Mapping[str, Any], notify: Callable[[Event], None]
    ) -> Record | None:
        """Evaluate a solution on the CPU.

        What is found is noted in its job, for its record.

        Args:
            work: The solution. Its problem has small sizes if it can have any.
            where: Environment for the record.
            notify: Gets notes for the user.

        Returns:
            The record of a solution that is wrong; None if the GPU decides.
        """
        job = work.job
        small = job.problem.workloads.get(SMALL)
        if small is None:
            return None
        found = self._evaluate(job, small, work.log_path, notify)
        if found is None:
            return None
        held: dict[str, Any] = {
            "device": DeviceKind.HOST.value,
            "workload": small.name,
            "status": found.status.value,
            "reason": found.reason,
            "kernels_checked": found.status is Status.passed and not KERNELS_MAY_LACK.intersection(found.labels),
            "wall_s": found.wall_s,
        }
        decides = found.status in ANYWHERE
        if found.status in AT_SIZES:
            why, again = self._fails_otherwise(job, small, work.log_path, notify)
            decides = why is None
            held |= {} if why is None else {"not_decisive": why}
            held |= {} if again is None else {"even_sizes": again}
        work.job = job = replace(job, on_host=held)
        if not decides:
            return None
        outcome = Outcome(status=found.status, reason=f"on the CPU: {found.reason}", evidence=found.evidence)
        record = record_of(job, outcome, None, self._config, where, wall_s=found.wall_s or 0.0)
        return replace(record, build=found.build)

    def close(self) -> None:
        """Fail evaluations under way. Idempotent."""
        self._runner.close()

    def end(self) -> None:
        """Close it, end its processes and wait for its threads. Idempotent."""
        self._runner.end()

    def _fails_otherwise(
        self, job: PlannedSolution, small: Workload, log_path: Path, notify: Callable[[Event], None]
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Tell why a failure at small sizes may come from these; None if it does not.

        Returns:
            The reason, and what was found at even sizes.
        """
        if small.sizes == job.workload.sizes:
            return None, None
        shown = sizes_of(job.problem, job.workload)
        if named := names_sizes(job.solution.source, job.problem.source, shown, sizes_of(job.problem, small)):
            return f"the source names the size {named}", None
        even = even_sizes(small, shown)
        if even is None:
            return "no sizes between the small ones and those of the run are known", None
        again = self._evaluate(job, even, log_path, notify)
        if again is None:
            return "not judged at even sizes", None
        told = {"sizes": dict(even.sizes), "status": again.status.value, "reason": again.reason}
        failed = again.status in ANYWHERE | AT_SIZES
        return None if failed else f"{again.status.value} at even sizes", told

    def _evaluate(
        self, job: PlannedSolution, workload: Workload, log_path: Path, notify: Callable[[Event], None]
    ) -> Record | None:
        """Evaluate at a workload; None if the CPU can't."""
        held = PendingSolution(job=replace(job, workload=workload, shape_key=None), log_path=log_path)
        (future,) = self._runner.submit([held], lambda event: notify(event) if isinstance(event, Noted) else None)
        try:
            return future.result()
        except ExecutorError:
            return None


def open_cascade(
    config: RunConfig, environment: Environment, logs: Path, opened: Callable[[RunConfig, Path], Executor]
) -> Cascade | None:
    """Open the CPU's part of a run, if its settings ask for it.

    Args:
        config: Settings of the run.
        environment: Facts about this machine.
        logs: Folder of the run's logs.
        opened: Opens an executor with these settings and folder for logs.

    Raises:
        Exception: What `opened` raises.
    """
    if not config.cascade:
        return None
    folder = logs / FOLDER
    folder.mkdir(exist_ok=True)
    return Cascade(opened(host_config(config), folder), config, environment)


def sizes_of(problem: Problem, workload: Workload) -> Mapping[str, Any]:
    """Return the constants of a problem's file at a workload."""
    return {**constants(python_ast.parse(problem.source)), **workload.sizes}


def names_sizes(source: str, problem: str, shown: Mapping[str, Any], small: Mapping[str, Any]) -> int | None:
    """Return a size of the run that a source names and the small sizes lack.

    Lines that are in the problem's source, too, do not count: a solution may repeat its constants and `get_inputs`.

    Args:
        source: The solution's source.
        problem: The problem's source.
        shown: The constants at the run's workload.
        small: The constants at the small workload.
    """
    sizes = set(_integers(list(shown.values()))) - set(_integers(list(small.values()))) - {0, 1}
    repeated = {line.strip() for line in problem.splitlines()}
    own = "\n".join(line for line in source.splitlines() if line.strip() not in repeated)
    return min(sizes.intersection(map(int, _NUMBER.findall(own))), default=None)


def even_sizes(small: Workload, shown: Mapping[str, Any]) -> Workload | None:
    """Return small sizes rounded up to powers of two of the run's sizes.

    Args:
        small: The small workload.
        shown: The constants at the run's workload.

    Returns:
        The workload; None if a size of the run is not known, or even sizes are too large.
    """
    before = list(_integers(list(small.sizes.values())))
    for step in STEPS:
        try:
            sizes = {name: _even(value, shown.get(name), step) for name, value in small.sizes.items()}
        except TypeError:
            return None
        after = list(_integers(list(sizes.values())))
        if math.prod(after) <= MOST_GROWTH * math.prod(before):
            return replace(small, name=EVEN, sizes=sizes, derived=False)
    return None


def _even(small: Any, shown: Any, step: int) -> Any:
    """Round up the integers of `small`; raise `TypeError` if `shown` has another form."""
    if isinstance(small, list | tuple):
        if not isinstance(shown, list | tuple) or len(shown) != len(small):
            raise TypeError
        return [_even(*each, step) for each in zip(small, shown, strict=True)]
    if not isinstance(small, int) or isinstance(small, bool) or small < 2:
        return small
    if not isinstance(shown, int):
        raise TypeError
    factor = math.gcd(shown, step)
    return -(-small // factor) * factor


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _integers(each)
    elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
        yield value

"""The executor of this machine: one referee process per slot, replaced if it dies.

Trusted side. With GPUs there is one slot per visible GPU, and its processes see no other. On the host device the number
of slots is `--workers`. This process imports no torch: the referees do so while the runner reads the catalogue.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import Environment
from harness.core.executables import find_nvcc
from harness.core.preparing import TellPreparing, untold
from harness.core.problem import Problem
from harness.core.status import Status, one_line
from harness.core.task import DEVICE_INDEX, Outcome, RefereeConfig, Task
from harness.core.visible_gpus import capabilities_in_use
from harness.referee.audit.auditor import find_sanitizer
from harness.runner.executors import BuildRequest, Built, ExecutorError, Slot, SlotLost
from harness.runner.executors.builders import LocalBuilders, was_killed
from harness.runner.executors.prestart import Prestart
from harness.runner.executors.problem_faults import ProblemFaults
from harness.runner.executors.process import WORKER, RefereeLost, RefereeProcess
from harness.runner.executors.slots import seats
from harness.runner.executors.toolchains import open_toolchain
from harness.toolchain import BuildCache, BuildOutcome

TRIES = 2


class LocalExecutor:
    """Builders and referees of this machine. A context manager."""

    def __init__(
        self,
        config: RunConfig,
        environment: Environment,
        logs: Path,
        *,
        worker: Sequence[str] = WORKER,
        ahead: Prestart | None = None,
        tell: TellPreparing = untold,
    ) -> None:
        """Open the toolchain and start a referee for each slot.

        Args:
            config: The run's configuration.
            environment: This machine.
            logs: Folder for the logs of builders and referees.
            worker: Arguments of Python that run a referee.
            ahead: Processes that were already started for this run; missing ones are started here. The owner of `ahead`
                also waits for the referees' exits.
            tell: Receives the progress of what is prepared once for this machine; called also by later builds.

        Raises:
            ExecutorError: No GPU is visible, or a required tool is missing.
            MachineError: The toolchain is incomplete.
            CacheError: The cache can't be used.
        """
        self.builders = config.jobs
        self._ahead = ahead
        self._logs = logs
        self._worker = worker
        self._lock = threading.Lock()
        self._closed = False
        self._referees: dict[str, RefereeProcess] = {}
        self._owed: defaultdict[str, set[str]] = defaultdict(set)
        """Per slot: the logs of the tasks whose verdicts its referee left open."""
        self._faults = ProblemFaults()
        self._seats = {slot.name: (slot, env) for slot, env in seats(config, environment)}
        # A module may run on any slot, and a GPU can't load code for another major compute capability.
        capabilities = capabilities_in_use(environment, config.workers)
        toolchain = open_toolchain(
            config.device,
            config.cache_dir,
            checked=config.checked,
            syntax=config.syntax,
            capabilities=capabilities,
            tell=tell,
        )
        self.runtime = next((str(folder) for folder in toolchain.runtime), None)
        """Folder of the libraries that modules for the host device need."""
        self._settings = referee_config(config, self.runtime)
        try:
            for name in self._seats:
                self._start(name)
            cache = BuildCache(config.cache_dir, config.cache_limit_bytes)
            self._builders = LocalBuilders(
                toolchain, cache, timeout_s=config.compile_timeout_s, sandbox=config.sandbox, log=logs / "_builder.log"
            )
        except BaseException:
            self._end_referees()
            raise

    @property
    def slots(self) -> Sequence[Slot]:
        return [slot for slot, _ in self._seats.values()]

    def expect(self, order: BuildRequest) -> None:
        self._builders.expect(order)

    def build(self, order: BuildRequest) -> BuildOutcome:
        return self._builders.build(order)

    def await_slot(self, slot: Slot) -> None:
        referee = self._referees.get(slot.name)
        with suppress(RefereeLost, SlotLost):
            if referee is not None:
                referee.wait_ready()

    def at_fault(self, problem: Problem) -> Outcome | None:
        return self._faults.of(problem)

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        referee = self._referees.get(slot.name)
        sound = [task for task in tasks if not self._faults.doubts(task.problem)]
        with suppress(RefereeLost):
            if referee is not None and referee.ready and sound:
                referee.prepare(sound)

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        whole = _whole(task, built)
        coming = [_whole(*each) for each in ahead if not self._faults.doubts(each[0].problem)]
        reason, detail, started, left, others_fault = "", "", False, TRIES, False
        while left and (fault := self._faults.of(task.problem)) is None:
            left -= 1
            try:
                referee = self._referee_for(slot.name, whole)
                beside, coming = coming, []  # the second try runs alone: another solution's audit may be the cause
                outcome = referee.judge(whole, beside)
                if outcome is None:
                    self._owed[slot.name].add(str(task.log_path))
                elif left and was_killed(outcome.evidence):
                    continue
                return outcome
            except RefereeLost as lost:
                reason, detail = str(lost), lost.detail
                held = self._referees.get(slot.name)
                started = started or (held is not None and held.ready)
                if self._blame(lost, slot.name) not in (None, task.problem.digest) and not others_fault:
                    left, others_fault = left + 1, True  # it died while it loaded another problem
            except SlotLost as lost:
                self._end(slot.name)
                raise SlotLost(f"{slot.title}: {lost}") from lost
        if (fault := self._faults.of(task.problem)) is not None:
            return fault
        if not started:
            raise SlotLost(f"{slot.title}: {reason}")
        return Outcome(status=Status.harness_error, reason=one_line(reason), detail=detail)

    def _referee_for(self, name: str, task: Task) -> RefereeProcess:
        """Return the slot's referee; if the problem is suspect, one that proved it.

        Raises `RefereeLost` and `SlotLost`.
        """
        referee = self._referees.get(name)
        if not self._faults.doubts(task.problem):
            return referee or self._start(name)
        if referee is not None and not referee.fresh:
            self._end(name)
            referee = None
        referee = referee or self._start(name)
        try:
            referee.prove(task)
        except RefereeLost as lost:
            if lost.loss is not None and lost.loss.place.digest == task.problem.digest:
                self._faults.convict(lost.loss)
            raise
        self._faults.acquit(task.problem)
        return referee

    def _blame(self, lost: RefereeLost, name: str) -> str | None:
        """End the lost referee of a slot, and suspect the problem whose code it executed.

        Returns that problem's digest, or None. If the problem is known to be faulty, other referees that execute its
        code are killed: waiting for them is useless.
        """
        self._end(name)
        if lost.loss is None:
            return None
        self._faults.suspect(lost.loss)
        digest = lost.loss.place.digest
        if self._faults.convicted(digest):
            with self._lock:
                others = list(self._referees.values())
            for other in others:
                if (place := other.place()) is not None and place.digest == digest:
                    other.kill()
        return digest

    def due(self, slot: Slot, task: Task) -> bool:
        referee = self._referees.get(slot.name)
        if referee is None or str(task.log_path) not in self._owed[slot.name]:
            return True
        try:
            return referee.due(task)
        except (RefereeLost, SlotLost, OSError):
            return True

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """Wait for the open verdict.

        If the referee died meanwhile, evaluate the solution again.
        """
        name, reason, detail = str(task.log_path), "", ""
        for left in reversed(range(TRIES)):
            if name not in self._owed[slot.name] and (outcome := self.judge(slot, task, built)) is not None:
                return outcome
            self._owed[slot.name].discard(name)
            try:
                outcome = self._referees[slot.name].settle(task)
                if not (left and was_killed(outcome.evidence)):
                    return outcome
            except RefereeLost as lost:
                reason, detail = str(lost), lost.detail
                self._blame(lost, slot.name)
            except SlotLost as lost:
                self._end(slot.name)
                raise SlotLost(f"{slot.title}: {lost}") from lost
        return Outcome(status=Status.harness_error, reason=one_line(reason), detail=detail)

    def close(self) -> None:
        """End every builder, referee and contestant, and wait until they are gone.

        Idempotent. If the processes were prestarted, their owner does the waiting.
        """
        self._end_referees()
        self._builders.close()

    def _start(self, name: str) -> RefereeProcess:
        with self._lock:
            if self._closed:
                raise SlotLost("the run has ended")
            _, env = self._seats[name]
            log_path = self._logs / ("_referee.log" if len(self._seats) == 1 else f"_referee-{name}.log")
            log_path.touch()
            referee = self._ahead.take(name) if self._ahead is not None else None
            referee = referee or RefereeProcess(self._settings.device, name, env, command=self._worker)
            self._referees[name] = referee
            referee.begin(self._settings, log_path)
            return referee

    def _end(self, name: str) -> None:
        with self._lock:
            held = self._referees.pop(name, None)
            self._owed[name].clear()
        if held is not None:
            held.close()

    def _end_referees(self) -> None:
        with self._lock:
            self._closed = True
            killed = list(self._referees.values())
            self._referees.clear()
        for referee in killed:
            referee.kill()
        for referee in killed:
            if self._ahead is not None:
                self._ahead.await_end(referee)
            else:
                referee.close()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _whole(task: Task, built: Built) -> Task:
    """Return `task` with the modules of its build."""
    assert isinstance(built, BuildOutcome)
    return replace(
        task, modules=built.injected(), readable=built.readable, parts=built.parts, kernels=built.kernel_names
    )


def _sanitizer(config: RunConfig) -> str | None:
    """Return the path of compute-sanitizer if this run audits; else None.

    Raises `ExecutorError` if audits are required and the tool is missing.
    """
    if config.device is DeviceKind.HOST or config.audit == "never":
        return None
    found = find_sanitizer(find_nvcc())
    if found is None and config.audit == "always":
        raise ExecutorError(
            "--audit always needs compute-sanitizer, which is neither next to nvcc nor on PATH; "
            "install the one of the CUDA toolkit, or pass --audit auto"
        )
    return found


def referee_config(config: RunConfig, host_runtime: str | None) -> RefereeConfig:
    """Return the settings of every referee of a run.

    Each referee sees one device, with index 0.
    """
    return RefereeConfig(
        host_runtime=host_runtime,
        device=config.device,
        device_index=DEVICE_INDEX,
        sandbox=config.sandbox,
        checked=config.checked,
        allow_degenerate=config.allow_degenerate,
        baselines=config.baselines,
        cache_dir=str(config.cache_dir),
        device_policy=config.device_policy,
        seeds=config.seeds,
        shapes=config.shapes,
        load_timeout_s=config.load_timeout_s,
        call_timeout_s=config.call_timeout_s,
        solution_timeout_s=config.solution_timeout_s,
        min_samples=config.timing.min_samples,
        sets_per_burst=config.timing.sets_per_burst,
        relative_half_width=config.timing.relative_half_width,
        budget_s=config.timing.budget_s,
        memory_limit_bytes=config.memory_limit_bytes,
        gpu_memory_bytes=config.gpu_memory_bytes,
        sanitizer=_sanitizer(config),
    )

"""The referee: prepare problems, evaluate one solution at a time on one device.

Trusted side. It never imports, unpickles or executes anything of a submission: it asks a contestant over a socket and
reads raw bytes of shared memory. It keeps the last problem prepared, so that consecutive solutions of one problem share
inputs' layout and reference. See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

import functools
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status, one_line
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices import nvrtc
from harness.devices.device import Device, open_device
from harness.devices.hardware_queues import queues_for
from harness.devices.nvml import GpuMonitor
from harness.devices.nvrtc import KeptImages
from harness.referee.audit.auditor import Auditor
from harness.referee.audit.small_workload import unaudited, whole_as_small
from harness.referee.background_checks import BackgroundChecks, SmallWorkloadCheck, explainable, settle
from harness.referee.baselines import BaselineKeeper
from harness.referee.calibrate import Calibrator
from harness.referee.contestants import process
from harness.referee.contestants.client import open_request
from harness.referee.contestants.pool import ContestantPool, Key, Purpose, TrustedContestant
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.context import EvidenceLog, RefereeContext
from harness.referee.gpu_exclusive import GpuExclusive
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.watchdog import NOWHERE, Phase, ProgressMarker
from harness.referee.problem.workspace import NO_MEMORY, NoRoom
from harness.referee.problem_state import WARMING, CurrentProblem
from harness.referee.secret_shapes import SecretShapes, ShapeDraws
from harness.referee.session import Session
from harness.sandbox.zygote import Zygote

LATEST_PREPARED = 8
"""Most preparations that one record lists: if all builds fail, no evaluation follows a preparation."""

DEGENERATE = "degenerate_problem"
"""Label: the problem accepts outputs that need no computation, and was scored all the same."""


class Referee:
    """Evaluates solutions on one device. A context manager.

    Args:
        config: Settings of the run.
        zygote: Forks the contestants.
        device: The device; None opens the one that `config` names.
        auditor: Runs compute-sanitizer; None evaluates without audits.
        progress_marker: Records when the problem's own code runs.

    Raises:
        DeviceError: There is no such device, or its memory can't be limited as configured.
    """

    def __init__(
        self,
        config: RefereeConfig,
        zygote: Zygote,
        *,
        device: Device | None = None,
        auditor: Auditor | None = None,
        progress_marker: ProgressMarker = NOWHERE,
    ) -> None:
        self.config = config
        self.progress_marker = progress_marker
        nvrtc.keep_images(KeptImages(Path(config.cache_dir)) if config.cache_dir else None)
        self.device = device or open_device(config.device, config.device_index)
        if config.gpu_memory_bytes is not None:
            self.device.limit_memory(config.gpu_memory_bytes)  # before anything else takes memory
        self.monitor = GpuMonitor(self.device.uuid)
        self._gpu_minor = self.monitor.minor()
        self._zygote = zygote
        # Numbers of the system: a contestant learns some of them (places held back, seeds of calls), and they would
        # reveal the state of a pseudorandom generator and all inputs to come.
        self._secret = random.SystemRandom()
        self._auditor = auditor
        self._prefork = ContestantPool(
            zygote, open_request(config, records=True), memory_limit_bytes=config.memory_limit_bytes
        )
        self._standby = TrustedContestant(self._trusted_contestant)
        self._exclusive = GpuExclusive(
            None if auditor is None else auditor.zygotes, config.device_index, self._prefork, self._give_up_ahead
        )
        self.at_hand = CurrentProblem(
            config,
            self.device,
            self._secret,
            calibrator=Calibrator(config, self._secret, self._standby),
            exclusive=self._exclusive,
            progress_marker=progress_marker,
        )
        # Baselines other than eager, which is timed with every solution.
        self._baselines = (
            BaselineKeeper(config.baselines, self.device, Path(config.cache_dir)) if config.cache_dir else None
        )
        self.context = RefereeContext(
            config=config,
            monitor=self.monitor,
            pool=self._prefork,
            exclusive=self._exclusive,
            problem=self.at_hand,
            baselines=self._baselines,
            gpu_minor=self._gpu_minor,
        )
        self._alongside = BackgroundChecks(self.context, auditor)
        self._own_shape_key = secrets.token_hex(32)
        self._draws = ShapeDraws(config.shapes, Path(config.cache_dir) if config.cache_dir else None)
        self._sides: dict[str, SmallWorkloadCheck | None] = {}
        self._under_way: str | None = None
        """Name of the task whose solution runs now."""
        self._given_up: set[str] = set()
        """Names of tasks ahead whose audit starts with their own evaluation."""
        self._owed: dict[str, tuple[SmallWorkloadCheck, Outcome]] = {}
        self._settled: dict[str, Outcome] = {}
        self._prepared: deque[dict[str, Any]] = deque(maxlen=LATEST_PREPARED)
        """Preparations since the last evaluation, for the next record."""

    def __enter__(self) -> Referee:
        return self

    def __exit__(self, *_: object) -> None:
        self._prefork.close()
        self._standby.close()
        self._drop_sides(keep=())
        for side, _outcome in self._owed.values():
            side.cancel()
        self._owed.clear()
        self.at_hand.close()
        self._alongside.close()

    def prepare(self, tasks: Sequence[Task]) -> Generator[None, None, None]:
        """Prepare step by step for coming tasks, before their solutions are built.

        For the first task that is its problem, the small workload and one calibration; for the others the small
        workload. The next record says how long each step took. No measurement of this is used: builds run meanwhile,
        and a submission in them could load the processors to make the calibration generous. The calibration runs
        because its first execution loads libraries for a second longer than later ones. A fault of a problem, or too
        little memory, is reported when a solution of it is evaluated.

        Args:
            tasks: Tasks in their order of evaluation, at least one.

        Yields:
            None after each step.

        Raises:
            Exception: Anything else than a fault of a problem or too little memory.
        """
        first, others = tasks[0], tasks[1:]
        spent: dict[str, float] = {}
        note: dict[str, Any] = {"problem": first.problem.id, "begin_unix_s": time.time(), "steps_s": spent}
        self._prepared.append(note)
        steps: list[tuple[str, Callable[[], object]]] = [
            ("problem", lambda: self.at_hand.workspace_for(first.problem, first.workload)),
            ("problem", lambda: self.at_hand.ready(first)),
            ("small", lambda: self._ready_small(first)),
            *[("warming", lambda: self.at_hand.warm_up(first))] * WARMING,
            ("peaks", self.at_hand.find_peaks),
            *(("others_small", functools.partial(self._ready_small, each)) for each in others),
        ]
        self._fork_trusted(first)
        try:
            for name, step in steps:
                begin = time.perf_counter()
                try:
                    step()
                except (ProblemError, *NO_MEMORY):
                    if name == "problem":
                        return
                finally:
                    spent[name] = spent.get(name, 0.0) + time.perf_counter() - begin
                yield
        finally:
            note["end_unix_s"] = time.time()
            ledger = {} if self.at_hand.workspace is None else self.at_hand.workspace.ledger.close()
            note["defences_s"] = ledger | self._exclusive.spent()

    def prove(self, task: Task) -> None:
        """Run the problem's own code on every variant, without a submission.

        For a referee that has not been used yet, after another one was lost in this problem's code. A fault of the
        problem, or too little memory, is reported when a solution of it is evaluated.

        Raises:
            Exception: Anything else than a fault of the problem or too little memory.
        """
        with suppress(ProblemError, *NO_MEMORY):
            self.at_hand.run_all(task)
            self._ready_small(task)

    def judge(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome:
        """Evaluate one solution, including its audit.

        Args:
            task: The solution.
            ahead: Tasks that probably come next; their audits and contestants start meanwhile.

        Raises:
            Exception: A fault of the harness only.
        """
        outcome = self.begin(task, ahead)
        return self.settle(task) if outcome is None else outcome

    def begin(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        """Evaluate one solution, but do not wait for its audit.

        Args:
            task: The solution.
            ahead: Tasks that probably come next; their audits and contestants start meanwhile.

        Returns:
            The outcome, or None if only the audit is missing: call `settle` then.

        Raises:
            Exception: A fault of the harness only.
        """
        outcome = self._begin(task, ahead)
        if outcome is None or not _short_of_memory(outcome) or not (self._owed or self._sides):
            return outcome
        self._end_others()  # other solutions under audit may have taken the memory: try again without them
        return self._begin(task, ())

    def _end_others(self) -> None:
        """Cancel all audits: solutions under audit may hold any amount of GPU memory."""
        self._drop_sides(keep=())
        for name, (side, waiting) in self._owed.items():
            self._settled[name] = settle(side, waiting)
        self._owed.clear()

    def _begin(self, task: Task, ahead: Sequence[Task]) -> Outcome | None:
        if self._auditor is not None and self.at_hand.has(task):
            self._fork_ahead(task)  # the contestant is needed first: it opens its device during the next steps
        # compute-sanitizer takes a second or more, so audits start while the problem is prepared.
        for each in (task, *(each for each in ahead if _name(each) not in self._given_up)):
            with suppress(*NO_MEMORY):  # tried again when this task's evaluation begins
                self._begin_small(each)
        with suppress(*NO_MEMORY):
            if task.small is not None and _name(task) not in self._sides and (self._owed or self._sides):
                self._end_others()
            self._begin_small(task)
        self._drop_sides(keep=(task, *ahead))
        self._prefork.keep([each.log_path for each in (task, *ahead)])
        try:
            return self._judge(task, ahead)
        finally:
            self._under_way = None
            self._given_up.discard(_name(task))
            self._prefork.keep([each.log_path for each in ahead])
            if _name(task) in self._owed:
                self._sides.pop(_name(task), None)
            self._drop_sides(keep=ahead)

    def due(self, task: Task) -> bool:
        """Return whether `settle` would return without waiting for the audit.

        Args:
            task: A task for which `begin` returned None.

        Returns:
            True also if nothing is open for this task.
        """
        held = self._owed.get(_name(task))
        return held is None or held[0].ready

    def settle(self, task: Task) -> Outcome:
        """Return the verdict of a task that `begin` left open; wait for its audit.

        Args:
            task: A task for which `begin` returned None.

        Returns:
            The outcome, with the audit's findings.

        Raises:
            KeyError: Nothing is open for this task.
        """
        if (settled := self._settled.pop(_name(task), None)) is not None:
            return settled
        side, outcome = self._owed.pop(_name(task))
        return settle(side, outcome)

    def _give_up_ahead(self) -> None:
        """Cancel audits of tasks whose solutions have not run yet.

        Each starts again with its evaluation.
        """
        ahead = self._sides.keys() - {self._under_way}
        self._given_up |= ahead
        self._cancel_sides(ahead)

    def _drop_sides(self, keep: Sequence[Task]) -> None:
        """Cancel the audits of all other tasks."""
        self._cancel_sides(self._sides.keys() - {_name(task) for task in keep})

    def _cancel_sides(self, names: Collection[str]) -> None:
        for name in names:
            if (side := self._sides.pop(name)) is not None:
                side.cancel()

    def _judge(self, task: Task, ahead: Sequence[Task]) -> Outcome | None:
        begin = time.perf_counter()
        log = EvidenceLog()
        if self._prepared:
            log.evidence["prepared_ahead"] = list(self._prepared)
            self._prepared.clear()
        if not self.at_hand.is_ready_for(task):
            self._fork_ahead(task)  # starts while the problem is prepared
        key = task.input_key or secrets.token_hex(32)
        shapes = self._secret_shapes(task, key)
        try:
            workspace, degenerate = self.at_hand.ready(task)
        except ProblemError as error:
            log.evidence |= {"short_of_memory": True} if isinstance(error, NoRoom) else {}
            return log.failed(_problem_at_fault(task, f": {error}"))
        except (torch.OutOfMemoryError, MemoryError) as error:
            does_not_fit = (
                f", workload {task.workload.name}, does not fit the free memory of the {self.config.device.value} "
                f"device; free memory or take a smaller --workload: {error}"
            )
            return log.failed(_problem_at_fault(task, does_not_fit), short_of_memory=True)
        self.at_hand.learn(task)
        self.at_hand.know_peaks(task)
        if task.timed and self._baselines is not None and self._baselines.lacks(workspace):
            with self._exclusive.held():
                log.stages_s["baselines"] = self._baselines.ready(
                    workspace, self._secret, task.log_path.with_name("_baselines.log")
                )
            begin += log.stages_s["baselines"]  # compiling the reference is not the solution's time
        log.stages_s["prepare"] = time.perf_counter() - begin
        log.evidence["inputs_drawn_on"] = workspace.drawn_on
        if workspace.input_notes:
            log.evidence["input_notes"] = list(workspace.input_notes)
        if self.config.device is DeviceKind.CUDA:
            log.evidence["one_hardware_queue"] = bool(queues_for(task.source))
        if degenerate:
            log.evidence["taken_for_right"] = list(degenerate)
        # Released with the verdict, which ends the use of this key: `harness replay` draws the same inputs again.
        log.evidence["seeds"] = {"model": workspace.model_seed, "inputs": key}
        if shapes is not None:
            log.evidence["seeds"] |= {"shapes": self._shape_key(task)}
        self._under_way = _name(task)
        with suppress(*NO_MEMORY):
            self._begin_small(task)  # it may have been given up while the problem was prepared
        side = self._sides.get(_name(task))
        contestant: ContestantProcess | None = None
        owes = False
        try:
            asked_s = time.perf_counter()
            with workspace.seeded(key), self.context.contestant(task) as contestant:
                log.stages_s["open"] = time.perf_counter() - asked_s
                for coming in ahead:
                    self._fork_ahead(coming)  # disturbs no timing: this solution's outputs are verified first
                if task.small is None and (workload := whole_as_small(task, workspace.call_bytes)) is not None:
                    with suppress(*NO_MEMORY):
                        side = self._alongside.begin(task, workload)
                client = self.context.client(workspace, contestant, task, log, begin)
                session = Session(self.context, client, log, side=side, shapes=shapes, known=self.at_hand.known)
                try:
                    outcome = session.run()
                finally:
                    owes = session.owes
                    session.close()
                    if shapes is not None:  # the next solution begins at the shown sizes
                        with suppress(ProblemError, *NO_MEMORY):
                            self.at_hand.workspace_for(task.problem, task.workload)
        except ContestantFailed as refused:
            log.labels.clear()  # labels describe a solution that was evaluated to its end
            outcome = log.failed(refused.failure)
        except ProblemError as error:  # inputs drawn for a solution may be the first to reveal a fault
            log.labels.clear()
            outcome = log.failed(_problem_at_fault(task, f": {error}"))
        except torch.OutOfMemoryError as error:
            log.labels.clear()
            together = (
                f", workload {task.workload.name}: reference and solution together do not fit the GPU's memory; take "
                f"a smaller --workload or a GPU with more memory: {error}"
            )
            outcome = log.failed(_problem_at_fault(task, together), short_of_memory=True)
        if degenerate:
            outcome = replace(outcome, labels=(*outcome.labels, DEGENERATE))
        log.stages_s["total"] = time.perf_counter() - begin
        spent_s = workspace.ledger.close() | self._exclusive.spent()
        if contestant is None:
            return outcome
        spent_s |= {"sandbox": contestant.spawn_s, "stopping": contestant.stopping_s}
        more = {"sandbox": process.told(contestant), "defences_s": spent_s}
        outcome = replace(outcome, evidence={**outcome.evidence, **more})
        if side is None and self._auditor is not None:
            outcome = unaudited(task, outcome, workspace.call_bytes)
        if owes and side is not None:
            if explainable(outcome) and not _short_of_memory(outcome):
                self._owed[_name(task)] = (side, outcome)
                return None
            side.cancel()
        return outcome

    def _shape_key(self, task: Task) -> str:
        """Return the key of a task's secret shapes."""
        return task.shape_key or self._own_shape_key

    def _secret_shapes(self, task: Task, key: str) -> SecretShapes | None:
        """Draw and prepare the task's secret shapes; None if the run asks for none.

        Before the contestant exists, so that it can't disturb their calibration. A problem that fails at the shown
        sizes is reported later.
        """
        if not self.config.shapes:
            return None
        try:
            self.at_hand.ready(task)
            self.at_hand.learn(task)
        except (ProblemError, *NO_MEMORY):
            return None
        with self.progress_marker.at(task.problem, task.workload, Phase.READY):
            drawn = self._draws.of(task, self._shape_key(task))
        shapes = SecretShapes(context=self.context, task=task, drawn=drawn, key=key)
        shapes.prepare(self.at_hand)
        return shapes

    def _ready_small(self, task: Task) -> None:
        """Prepare the task's small workload; raise `ProblemError` or `NO_MEMORY`."""
        workload = task.small
        if workload is None and self.at_hand.workspace is not None and self.at_hand.has(task):
            workload = whole_as_small(task, self.at_hand.workspace.call_bytes)
        if workload is not None:
            self._alongside.get_ready(task.problem, workload)

    def _begin_small(self, task: Task) -> None:
        """Start the audit of a task that declares a small workload, unless it is running."""
        if task.small is not None and _name(task) not in self._sides:
            self._sides[_name(task)] = self._alongside.begin(task, task.small)

    def _trusted_contestant(self, task: Task) -> ContestantProcess:
        policy = process.trusted_policy_for(task, self.config, self._gpu_minor)
        return self._prefork.take(Key(task.log_path, Purpose.CALIBRATION), policy)

    def _fork_ahead(self, task: Task) -> None:
        """Start the contestants that this task needs first."""
        self._fork_trusted(task)
        policy = process.policy_for(task, self.config, self._gpu_minor)
        self._prefork.begin(Key(task.log_path), policy)
        if task.timed and self.config.device is DeviceKind.CUDA:
            self._prefork.begin(Key(task.log_path, Purpose.RELAUNCHING), policy)

    def _fork_trusted(self, task: Task) -> None:
        """Start the contestant of trusted code if the task's problem needs a calibration."""
        learns = task.timed and self.config.device is DeviceKind.CUDA and not self.at_hand.is_ready_for(task)
        if learns and not self._standby.waits:
            policy = process.trusted_policy_for(task, self.config, self._gpu_minor)
            self._prefork.begin(Key(task.log_path, Purpose.CALIBRATION), policy)


def _name(task: Task) -> str:
    """Return a key for the task: each task of a run has its own log."""
    return str(task.log_path)


def _problem_at_fault(task: Task, why: str) -> Failure:
    return Failure(status=Status.harness_error, reason=one_line(f"problem {task.problem.id}{why}"))


def _short_of_memory(outcome: Outcome) -> bool:
    return outcome.status is Status.out_of_memory or bool(outcome.evidence.get("short_of_memory"))

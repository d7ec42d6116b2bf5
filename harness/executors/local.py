"""Building and judging on this machine: one referee process a slot, replaced when it dies.

Trusted side. On GPUs there is one slot for each that is visible, and its processes see no other; on the host device
there are as many as asked for. This process imports no torch: each referee does that for itself while the conductor
reads its catalogue.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.audit import find_sanitizer
from harness.build import BuildCache, BuildOutcome, open_toolchain
from harness.config import RunConfig
from harness.environment import Environment, find_nvcc
from harness.executors import Built, ExecutorError, Order, Slot, SlotLost
from harness.executors.building import LocalBuilders, was_killed
from harness.executors.worker import MAX_TASK_BYTES
from harness.gpus import capabilities_in_use, visible_gpus
from harness.interpreter import python, search_path
from harness.model import DeviceKind, Status, one_line
from harness.tasks import Outcome, RefereeConfig, Task
from harness.wire import Channel, WireError, pair

START_TIMEOUT_S = 180.0
"""Importing torch and making a CUDA context takes seconds; a cold disk makes it minutes."""

MARGIN_S = 600.0
"""Beyond a solution's own time limit: preparing a large problem, or truth on the CPU. Then the referee is stuck."""

END_TIMEOUT_S = 30.0
"""How long a killed referee may take to be gone, its GPU memory given back."""

TRIES = 2

ALLOCATOR = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
"""Truth in float64 takes tens of gigabytes in one piece; torch's usual allocator splits such blocks for small tensors
that stay, until the large ones fit nowhere. The second name is the newer one."""

QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Idle OpenMP threads sleep. By default they spin for milliseconds after each parallel loop: the referee's then slow a
contestant on the same cores by several times, and the other way round."""

WORKER = ("-m", "harness.executors.worker")
"""What Python runs as a referee's process; its channel's descriptor is the last argument."""


class RefereeLost(Exception):
    """A referee died, hung or failed; `detail` is its traceback or the end of its log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.detail = detail


class RefereeProcess:
    """One referee process with its device. Raises `SlotLost` where it says that its device is missing or ill."""

    def __init__(
        self, config: RefereeConfig, log_path: Path, *, env: Mapping[str, str], command: Sequence[str] = WORKER
    ) -> None:
        ours, theirs = pair()
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                python(*command, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **search_path(os.environ), **ALLOCATOR, **QUIET_THREADS, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        self._config = config
        self._log_path = log_path
        self._channel = Channel(ours, max_frame_bytes=MAX_TASK_BYTES)
        self.ready = False
        self._starting = threading.Lock()
        self._refused: RefereeLost | SlotLost | None = None
        with suppress(RefereeLost):  # one that died at once is met by its first task
            self._send({"config": config.to_json(), "log_path": str(log_path)})

    def wait_ready(self) -> None:
        """Return once it has its device. Raises `RefereeLost` and `SlotLost`, the same every time. Safe for threads."""
        with self._starting:
            if self._refused is not None:
                raise self._refused
            if self.ready:
                return
            try:
                message = self._receive(START_TIMEOUT_S)
                if message["type"] != "ready":
                    raise RefereeLost(f"the referee can't start: {message.get('reason')}", self._tail())
            except (RefereeLost, SlotLost) as refused:
                self._refused = refused
                raise
            self.ready = True

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Let it get ready what these will need, as long as it is asked nothing else. Raises `RefereeLost`."""
        # The solutions may never be judged: what the harness's own code prints meanwhile is for the referee's log.
        own = [replace(task, log_path=self._log_path) for task in tasks]
        self._send({"type": "prepare", "tasks": [task.to_json() for task in own]})

    def judge(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        """The verdict, or None where it is left open. Raises `RefereeLost` and `SlotLost`."""
        self.wait_ready()
        return self._ask({"type": "judge", "task": task.to_json(), "ahead": [each.to_json() for each in ahead]})

    def settle(self, task: Task) -> Outcome:
        """The verdict that was left open. Raises `RefereeLost` and `SlotLost`."""
        outcome = self._ask({"type": "settle", "task": task.to_json()})
        if outcome is None:
            raise RefereeLost("the referee left a verdict open twice", "")
        return outcome

    def _ask(self, message: Mapping[str, object]) -> Outcome | None:
        self._send(message)
        reply = self._receive(self._config.solution_timeout_s + MARGIN_S)
        if reply["type"] == "owed":
            return None
        if reply["type"] != "judged":
            raise RefereeLost(f"the referee failed: {reply.get('reason')}", str(reply.get("trace", "")))
        return Outcome.from_json(reply["outcome"])

    def _send(self, message: Mapping[str, object]) -> None:
        try:
            self._channel.send(message)
        except WireError as error:
            raise RefereeLost(f"the referee process died: {error}", self._tail()) from error

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            message = self._channel.receive(timeout_s).message
        except (WireError, OSError) as error:
            raise RefereeLost(f"the referee process died or hangs: {error}", self._tail()) from error
        if message["type"] == "unavailable":
            raise SlotLost(str(message["reason"]))
        return message

    def _tail(self) -> str:
        return self._log_path.read_bytes()[-4000:].decode(errors="replace")

    def close(self) -> None:
        """End it and all that it started."""
        self._process.kill()
        # A process inside a driver that hangs dies when the driver lets it, if ever: the run does not wait for that.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        self._channel.close()


class LocalExecutor:
    """Builders and referees of this machine. A context manager."""

    def __init__(
        self, config: RunConfig, environment: Environment, logs: Path, *, worker: Sequence[str] = WORKER
    ) -> None:
        self.builders = config.jobs
        self._logs = logs
        self._worker = worker
        self._lock = threading.Lock()
        self._closed = False
        self._referees: dict[str, RefereeProcess] = {}
        self._owed: defaultdict[str, set[str]] = defaultdict(set)
        """Logs of the tasks on which each slot's referee owes the verdict."""
        self._seats = {slot.name: (slot, env) for slot, env in seats(config, environment)}
        # A module runs on whichever slot is free, and a GPU loads no code for another major version.
        capabilities = capabilities_in_use(environment, config.workers)
        toolchain = open_toolchain(config.device, config.cache_dir, checked=config.checked, capabilities=capabilities)
        self.runtime = next((str(folder) for folder in toolchain.runtime), None)
        """The folder of what modules for the host device need, on this machine."""
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

    def expect(self, order: Order) -> None:
        self._builders.expect(order)

    def build(self, order: Order) -> BuildOutcome:
        return self._builders.build(order)

    def await_slot(self, slot: Slot) -> None:
        referee = self._referees.get(slot.name)
        with suppress(RefereeLost, SlotLost):
            if referee is not None:
                referee.wait_ready()

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        referee = self._referees.get(slot.name)
        with suppress(RefereeLost):
            if referee is not None and referee.ready:
                referee.prepare(tasks)

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        whole = _whole(task, built)
        coming = [_whole(*each) for each in ahead]
        reason, detail, started = "", "", False
        for left in reversed(range(TRIES)):
            referee = self._referees.get(slot.name)
            try:
                referee = referee or self._start(slot.name)
                beside, coming = coming, []  # the second time with nothing of others', which may be what went wrong
                outcome = referee.judge(whole, beside)
                if outcome is None:
                    self._owed[slot.name].add(str(task.log_path))
                elif left and was_killed(outcome.evidence):
                    continue
                return outcome
            except RefereeLost as lost:
                reason, detail = str(lost), lost.detail
                started = started or (referee is not None and referee.ready)
                self._end(slot.name)
            except SlotLost as lost:
                self._end(slot.name)
                raise SlotLost(f"{slot.title}: {lost}") from lost
        if not started:
            raise SlotLost(f"{slot.title}: {reason}")
        return Outcome(status=Status.harness_error, reason=one_line(reason), detail=detail)

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """As the Protocol says; what a referee owed that died since is judged anew."""
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
                self._end(slot.name)
            except SlotLost as lost:
                self._end(slot.name)
                raise SlotLost(f"{slot.title}: {lost}") from lost
        return Outcome(status=Status.harness_error, reason=one_line(reason), detail=detail)

    def close(self) -> None:
        """End every builder, referee and contestant. Idempotent."""
        self._end_referees()
        self._builders.close()

    def _start(self, name: str) -> RefereeProcess:
        with self._lock:
            if self._closed:
                raise SlotLost("the run has ended")
            _, env = self._seats[name]
            log_path = self._logs / ("_referee.log" if len(self._seats) == 1 else f"_referee-{name}.log")
            made = RefereeProcess(self._settings, log_path, env={"HARNESS_SLOT": name, **env}, command=self._worker)
            self._referees[name] = made
            return made

    def _end(self, name: str) -> None:
        with self._lock:
            held = self._referees.pop(name, None)
            self._owed[name].clear()
        if held is not None:
            held.close()

    def _end_referees(self) -> None:
        with self._lock:
            self._closed = True
        for name in list(self._referees):
            self._end(name)

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _whole(task: Task, built: Built) -> Task:
    """`task` with what was built for it."""
    assert isinstance(built, BuildOutcome)
    return replace(
        task, modules=built.injected(), readable=built.readable, parts=built.parts, kernels=built.kernel_names
    )


def seats(config: RunConfig, environment: Environment) -> list[tuple[Slot, dict[str, str]]]:
    """The slots of this machine, each with what its processes' environment must say. Raises `ExecutorError`."""
    if config.device is DeviceKind.HOST:
        held = environment.for_record(DeviceKind.HOST)
        names = ["host"] if (config.workers or 1) == 1 else [f"host-{n}" for n in range(config.workers or 1)]
        return [(Slot(name=name, title=name, environment=held), {}) for name in names]
    gpus = visible_gpus(environment)
    if not gpus:
        raise ExecutorError("CUDA_VISIBLE_DEVICES names no GPU of this machine; unset it, or --device host")
    chosen = gpus[: config.workers]
    # Several referees at once would each start as many threads as there are processors.
    several = len(chosen) > 1 and "OMP_NUM_THREADS" not in os.environ
    threads = {"OMP_NUM_THREADS": str(max(1, environment.cpu_count // len(chosen)))} if several else {}
    return [
        (
            Slot(
                name=gpu.uuid,
                title=f"GPU {gpu.index} {gpu.name}",
                environment=environment.for_record(config.device, gpu_index=gpu.index),
            ),
            # By UUID, since numbers mean another order where CUDA sorts by speed. Every process sees one GPU, as 0.
            {"CUDA_VISIBLE_DEVICES": gpu.uuid, **threads},
        )
        for gpu in chosen
    ]


def _sanitizer(config: RunConfig) -> str | None:
    """compute-sanitizer, where this run audits. Raises `ExecutorError` where it must and can't."""
    if config.device is DeviceKind.HOST or config.audit == "never":
        return None
    found = find_sanitizer(find_nvcc())
    if found is None and config.audit == "always":
        raise ExecutorError(
            "--audit always needs compute-sanitizer, which is not beside nvcc and not on PATH: "
            "install the CUDA toolkit's, or --audit auto"
        )
    return found


def referee_config(config: RunConfig, host_runtime: str | None) -> RefereeConfig:
    """What holds for every referee of a run. Each sees one device, whose index is 0."""
    return RefereeConfig(
        host_runtime=host_runtime,
        device=config.device,
        device_index=0,
        sandbox=config.sandbox,
        checked=config.checked,
        allow_degenerate=config.allow_degenerate,
        baselines=config.baselines,
        cache_dir=str(config.cache_dir),
        device_policy=config.device_policy,
        seeds=config.seeds,
        load_timeout_s=config.load_timeout_s,
        call_timeout_s=config.call_timeout_s,
        solution_timeout_s=config.solution_timeout_s,
        min_samples=config.timing.min_samples,
        sets_per_burst=config.timing.sets_per_burst,
        relative_half_width=config.timing.relative_half_width,
        budget_s=config.timing.budget_s,
        memory_limit_bytes=config.memory_limit_bytes,
        sanitizer=_sanitizer(config),
    )

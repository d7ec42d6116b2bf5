"""The executor of a Ray cluster: builds as CPU tasks anywhere, one actor per slot.

Trusted side, on the driver and on every node; the only module that imports ray. The harness must be installed on every
node. On its node, an actor is a `LocalExecutor` with one slot, so verdicts come about exactly as without Ray. Modules
travel as bytes; no process of Ray loads them. Lost work is repeated elsewhere. See guides/design/scheduling.md.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray import exceptions as ray_exceptions

from harness.core.choices import DeviceKind
from harness.core.config import RunConfig, cache_root
from harness.core.problem import Problem
from harness.core.status import Failure, Status, one_line
from harness.core.task import Outcome, Task
from harness.core.visible_gpus import Capability
from harness.runner.executors import BuildRequest, Built, ExecutorError, Slot, SlotLost
from harness.runner.executors.cluster import check_answers, demand, nodes_of
from harness.runner.executors.node import Judge, build
from harness.runner.executors.problem_faults import ProblemFaults
from harness.toolchain import BuildOutcome

TRIES = 4
"""Attempts per solution. A cluster that loses nodes faster is no place to measure."""

PLACE_TIMEOUT_S = 180.0
"""How long a slot waits for a node that can take it, imports included, in seconds.

Preempted nodes come back within minutes or not at all.
"""

END_TIMEOUT_S = 5.0
"""How long an idle actor may take to end its processes, in seconds."""


@dataclass(slots=True, kw_only=True, eq=False)
class RemoteBuilt:
    """A build in the cluster.

    A judge replaces `outcome`, `modules` (a reference) and `capability` (None on the host device) if it needs the
    build for another compute capability, or if the modules were lost. `wall_s` stays that of the first build, since
    judges count their own time.
    """

    order: BuildRequest
    outcome: BuildOutcome
    modules: Any = field(default=None, repr=False)
    capability: Capability | None
    wall_s: float

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure

    @property
    def has_cuda_sources(self) -> bool:
        return self.outcome.has_cuda_sources

    def to_json(self) -> dict[str, Any]:
        return self.outcome.to_json()

    def release(self) -> None:
        """Do nothing: Ray frees the bytes when the last reference is gone."""


def _connect(address: str | None) -> None:
    """Join the cluster, or start one on this machine alone. Raises `ExecutorError`."""
    check_answers(address)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if in_main else None
    try:
        ray.init(address=address or "local", log_to_driver=False, include_dashboard=None, logging_level="error")
    except (ImportError, ConnectionError, RuntimeError, ValueError) as error:
        raise ExecutorError(
            f"no Ray cluster at {address!r}: {one_line(str(error))}; start one with `ray start --head`"
        ) from error
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)  # Ray's own handler would not unwind the run


def _why(error: Exception) -> str:
    """Return Ray's error as one line: the last line of a remote traceback."""
    text = str(error).strip()
    return one_line(text.splitlines()[-1] if "Traceback" in text or "File " in text else text)


def _told(error: ray_exceptions.RayError) -> Exception:
    """Return the exception that a task raised on its node.

    If the node can't import the harness, return an `ExecutorError` that says so.
    """
    cause = getattr(error, "cause", None)
    text = str(error)
    if isinstance(cause, ImportError) or "No module named 'harness" in text or "failed to import" in text:
        return ExecutorError(
            f"a node of the Ray cluster can't import the harness: install this version on every node ({_why(error)})"
        )
    return cause if isinstance(cause, Exception) else error


class RayExecutor:
    """Builders and judges of a cluster. A context manager.

    There is one judge per GPU, or on the host device one per node.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = replace(config, cache_dir=config.cache_dir.absolute())
        # The default cache folder is each node's own; a folder that the user named is the same path everywhere.
        self._own_cache = config.cache_dir == cache_root()
        self._connected = not ray.is_initialized()
        if self._connected:
            _connect(config.ray_address)
        self._lock = threading.Lock()
        self._closed = False
        self._faults = ProblemFaults()
        self._actors: dict[str, Any] = {}
        self._environments: dict[str, dict[str, Any]] = {}
        self._capabilities: dict[str, Capability | None] = {}
        try:
            asked = demand(nodes_of(ray.nodes()), config.device, workers=config.workers, model=config.accelerator_type)
            self._judge_cpus = asked.judge_cpus
            self.builders = asked.builders
            self._task: Any = ray.remote(num_cpus=asked.build_cpus, max_retries=TRIES, num_returns=3)(build)
            self._slots = []
            for number in range(asked.judges):
                name = f"ray-{number}"
                self._environments[name] = {}
                self._slots.append(Slot(name=name, title=name, environment=self._environments[name]))
                self._start(name)
            self._usual = self._most_frequent() if config.device is DeviceKind.CUDA else None
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> Sequence[Slot]:
        return self._slots

    def expect(self, order: BuildRequest) -> None:
        """Do nothing: each task starts what it needs on its node."""

    def build(self, order: BuildRequest) -> RemoteBuilt:
        outcome, modules = self._build_for(self._usual, order)
        return RemoteBuilt(order=order, outcome=outcome, modules=modules, capability=self._usual, wall_s=outcome.wall_s)

    def _build_for(self, capability: Capability | None, order: BuildRequest) -> tuple[BuildOutcome, Any]:
        """Build for a capability; return the outcome and a reference to the modules."""
        outcome, modules, log = self._task.remote(order, self._config, self._own_cache, capability)
        try:
            known, log_bytes = ray.get([outcome, log])
        except ray_exceptions.RayTaskError as error:
            raise _told(error) from error
        except ray_exceptions.RayError as error:
            failure = Failure(status=Status.harness_error, reason=f"the cluster lost the build: {_why(error)}")
            return BuildOutcome(failure=failure), None
        order.log_path.parent.mkdir(parents=True, exist_ok=True)
        with order.log_path.open("ab") as file:
            file.write(log_bytes)
        return known, modules

    def at_fault(self, problem: Problem) -> Outcome | None:
        return self._faults.of(problem)

    def await_slot(self, slot: Slot) -> None:
        """Return at once: `judge` starts nothing ahead."""

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        """Do nothing: each actor would save a second or two once per run."""

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome:
        assert isinstance(built, RemoteBuilt)
        reason, lost = "", False
        for _ in range(TRIES):
            if (fault := self._faults.of(task.problem)) is not None:  # another node may have found it meanwhile
                return fault
            actor = self._ready(slot)
            wanted = self._capabilities[slot.name]
            if built.capability != wanted or lost:
                built.outcome, built.modules = self._build_for(wanted, built.order)
                built.capability, lost = wanted, False
            if (failure := built.failure) is not None:
                return Outcome(
                    status=failure.status, reason=failure.reason, evidence=failure.evidence, detail=failure.detail
                )
            try:
                said = ray.get(actor.judge.remote(task.to_json(), built.outcome, built.modules))
            except (ray_exceptions.ObjectLostError, ray_exceptions.OwnerDiedError) as error:
                reason, lost = f"the modules were lost with their node: {_why(error)}", True
                continue
            except ray_exceptions.RayTaskError as error:
                reason = f"the referee failed: {_why(error)}"
                self._end(slot.name)
                continue
            except ray_exceptions.RayError as error:
                reason = f"the node or the actor was lost: {_why(error)}"
                self._end(slot.name)
                continue
            if "lost" in said:
                where = self._environments[slot.name]
                reason = f"{slot.title} ({where.get('gpu') or where.get('cpu')}): {said['lost']}"
                self._end(slot.name)  # this also clears `where`
                raise SlotLost(reason)
            task.log_path.write_bytes(said["log"])
            outcome = Outcome.from_json(said["outcome"])
            self._faults.learn(task.problem, outcome)
            return outcome
        return Outcome(status=Status.harness_error, reason=one_line(reason))

    def due(self, slot: Slot, task: Task) -> bool:
        """Return True: `judge` leaves no verdict open."""
        return True

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """Raise `LookupError`: `judge` leaves no verdict open."""
        raise LookupError(f"{task.filename}: no verdict is open")

    def close(self) -> None:
        """End every actor, and the connection if this object made it. Idempotent."""
        with self._lock:
            self._closed = True
        # An actor that is busy or on a lost node does not answer in time: it is killed below.
        with suppress(ray_exceptions.RayError):
            leave = [actor.close.remote() for actor in list(self._actors.values())]
            if leave:
                ray.wait(leave, num_returns=len(leave), timeout=END_TIMEOUT_S)
        for name in list(self._actors):
            self._end(name)
        if self._connected and ray.is_initialized():
            ray.shutdown()

    def _start(self, name: str) -> Any:
        with self._lock:
            if self._closed:
                raise SlotLost("the run has ended")
            options: dict[str, Any] = {"num_cpus": self._judge_cpus, "scheduling_strategy": "SPREAD"}
            if self._config.device is DeviceKind.CUDA:
                options["num_gpus"] = 1
                if self._config.accelerator_type is not None:
                    options["accelerator_type"] = self._config.accelerator_type
            actor = ray.remote(Judge).options(**options).remote(self._config, self._own_cache)
            self._actors[name] = actor
            return actor

    def _ready(self, slot: Slot) -> Any:
        """Return the slot's actor once it runs on a node and its environment is known.

        Raises `SlotLost`.
        """
        reason = ""
        for _ in range(TRIES):
            actor = self._actors.get(slot.name) or self._start(slot.name)
            if self._environments[slot.name]:
                return actor
            try:
                about = ray.get(actor.about.remote(), timeout=PLACE_TIMEOUT_S)
            except ray_exceptions.GetTimeoutError:
                self._end(slot.name)
                raise SlotLost(f"{slot.title}: no node of the cluster is free after {PLACE_TIMEOUT_S:.0f} s") from None
            except ray_exceptions.RayError as error:
                reason = _why(_told(error))
                self._end(slot.name)
                continue
            self._heard(slot, about)
            return actor
        raise SlotLost(f"{slot.title}: its actor can't start: {reason}")

    def _most_frequent(self) -> Capability | None:
        """Return the compute capability of most slots' GPUs; on a tie, the lowest.

        A slot that gets no node in time reports that when it evaluates; the others do not wait for it.
        """
        asked = {self._actors[slot.name].about.remote(): slot for slot in self._slots}
        there, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PLACE_TIMEOUT_S)
        known: Counter[Capability] = Counter()
        reason = f"no slot got a node within {PLACE_TIMEOUT_S:.0f} s"
        for reply in there:
            try:
                about = ray.get(reply)
            except ray_exceptions.RayError as error:
                reason = _why(_told(error))
                continue
            self._heard(asked[reply], about)
            if about["capability"] is not None:
                known[about["capability"]] += 1
        if not known:
            raise ExecutorError(f"no GPU of the cluster can be used: {reason}")
        return min(known, key=lambda capability: (-known[capability], capability))

    def _heard(self, slot: Slot, about: Mapping[str, Any]) -> None:
        """Note where the slot's actor runs."""
        self._capabilities[slot.name] = about["capability"]
        self._environments[slot.name].update(about["environment"])

    def _end(self, name: str) -> None:
        with self._lock:
            actor = self._actors.pop(name, None)
            # A new actor may start on another machine: later records must not name the old one.
            self._environments[name].clear()
        if actor is not None:
            ray.kill(actor)

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

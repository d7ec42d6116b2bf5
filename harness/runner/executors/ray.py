"""Building and judging on a Ray cluster: builds as CPU tasks anywhere, one actor a GPU for judging.

Trusted side, on the driver and on every node; the only module that imports ray. The harness must be installed on each
node. On its node an actor is a `LocalExecutor` with one slot, with that node's sandbox and cache, so that verdicts come
about exactly as they do without Ray. Modules travel as bytes through the object store and are put into the cache of the
node that runs them; they are never loaded by a process of Ray's.

What is lost with a node is done again elsewhere: Ray repeats builds, and this module starts a lost actor anew and gives
it the solution that it was judging. Where no node can take the actor the slot is lost, and its solution goes to
another one. Each record says on which machine it came about, since that is known only once it has. What is built ahead
is for the most frequent compute capability of the GPUs; a judge with another one has it built for that.
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
"""How often one solution is begun. A cluster that loses its nodes faster than that is no place to measure."""

PLACE_TIMEOUT_S = 180.0
"""How long a slot waits for a node that can take it, its imports included. Preempted nodes come back or are replaced in
minutes or not at all."""

END_TIMEOUT_S = 5.0
"""How long an actor that is idle may take to end what it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """One build somewhere in the cluster: what is known of it here, where its modules' bytes are, and for which compute
    capability (None: the host device).
    """

    outcome: BuildOutcome
    modules: Any = field(default=None, repr=False)
    capability: Capability | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class RemoteBuilt:
    """What was ordered, and its build that counts: the one ahead, or the one that a judge had made in its place, for
    another capability or because the first was lost. `wall_s` is the one ahead's, since judges tell their own time.
    """

    order: BuildRequest
    made: _Made
    wall_s: float

    @property
    def outcome(self) -> BuildOutcome:
        return self.made.outcome

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure

    @property
    def has_cuda_sources(self) -> bool:
        return self.outcome.has_cuda_sources

    def to_json(self) -> dict[str, Any]:
        return self.outcome.to_json()

    def release(self) -> None:
        """Ray drops the bytes when nobody refers to them."""


def _connect(address: str | None) -> None:
    """Join the cluster, or start one of this machine alone. Raises `ExecutorError`."""
    check_answers(address)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if in_main else None
    try:
        ray.init(address=address or "local", log_to_driver=False, include_dashboard=None, logging_level="error")
    except (ImportError, ConnectionError, RuntimeError, ValueError) as error:
        raise ExecutorError(
            f"no Ray cluster at {address!r}: {one_line(str(error))}; start one by `ray start --head`"
        ) from error
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)  # Ray sets one of its own, which does not unwind the run


def _why(error: Exception) -> str:
    """Ray's error in one line: of what was raised elsewhere, whose traceback it holds, the last."""
    text = str(error).strip()
    return one_line(text.splitlines()[-1] if "Traceback" in text or "File " in text else text)


def _told(error: ray_exceptions.RayError) -> Exception:
    """What a task of a node raised there; `ExecutorError` where that is that it has no harness."""
    cause = getattr(error, "cause", None)
    text = str(error)
    if isinstance(cause, ImportError) or "No module named 'harness" in text or "failed to import" in text:
        return ExecutorError(
            f"a node of the Ray cluster can't import the harness: install this version on every node ({_why(error)})"
        )
    return cause if isinstance(cause, Exception) else error


class RayExecutor:
    """Builders and judges of a cluster, as many judges as it has GPUs (host device: nodes). A context manager."""

    def __init__(self, config: RunConfig) -> None:
        self._config = replace(config, cache_dir=config.cache_dir.absolute())
        # A folder that nobody named is each node's own; one that somebody did is that one everywhere.
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
        """Nothing to begin: each task starts what it needs where it runs."""

    def build(self, order: BuildRequest) -> RemoteBuilt:
        made = self._build_for(self._usual, order)
        return RemoteBuilt(order=order, made=made, wall_s=made.outcome.wall_s)

    def _build_for(self, capability: Capability | None, order: BuildRequest) -> _Made:
        outcome, modules, log = self._task.remote(order, self._config, self._own_cache, capability)
        try:
            known, log_bytes = ray.get([outcome, log])
        except ray_exceptions.RayTaskError as error:
            raise _told(error) from error
        except ray_exceptions.RayError as error:
            failure = Failure(status=Status.harness_error, reason=f"the cluster lost the build: {_why(error)}")
            return _Made(outcome=BuildOutcome(failure=failure), capability=capability)
        order.log_path.parent.mkdir(parents=True, exist_ok=True)
        with order.log_path.open("ab") as file:
            file.write(log_bytes)
        return _Made(outcome=known, modules=modules, capability=capability)

    def at_fault(self, problem: Problem) -> Outcome | None:
        return self._faults.of(problem)

    def await_slot(self, slot: Slot) -> None:
        """Nothing to wait for: `judge` begins nothing ahead."""

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        """Nothing is got ready: each actor would save a second or two once in a run, beside placing it."""

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome:
        assert isinstance(built, RemoteBuilt)
        reason = ""
        for _ in range(TRIES):
            if (fault := self._faults.of(task.problem)) is not None:  # as another node has found
                return fault
            actor = self._ready(slot)
            wanted = self._capabilities[slot.name]
            if built.made.capability != wanted:
                built.made = self._build_for(wanted, built.order)
            if (failure := built.failure) is not None:
                return Outcome(
                    status=failure.status, reason=failure.reason, evidence=failure.evidence, detail=failure.detail
                )
            try:
                said = ray.get(actor.judge.remote(task.to_json(), built.outcome, built.made.modules))
            except (ray_exceptions.ObjectLostError, ray_exceptions.OwnerDiedError) as error:
                reason = f"the modules were lost with their node: {_why(error)}"
                built.made = self._build_for(wanted, built.order)
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
                lost = SlotLost(f"{slot.title} ({where.get('gpu') or where.get('cpu')}): {said['lost']}")
                self._end(slot.name)  # which forgets where it was
                raise lost
            task.log_path.write_bytes(said["log"])
            outcome = Outcome.from_json(said["outcome"])
            self._faults.learn(task.problem, outcome)
            return outcome
        return Outcome(status=Status.harness_error, reason=one_line(reason))

    def due(self, slot: Slot, task: Task) -> bool:
        """`judge` leaves nothing open."""
        return True

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """`judge` leaves nothing open."""
        raise LookupError(f"{task.filename}: its verdict was given")

    def close(self) -> None:
        """End every actor, and the connection where this made it. Idempotent."""
        with self._lock:
            self._closed = True
        # One that is still judging, or on a lost node, is ended without its leave.
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
        """The slot's actor, on some node and with its environment known. Raises `SlotLost`."""
        reason = ""
        for _ in range(TRIES):
            actor = self._actors.get(slot.name) or self._start(slot.name)
            if self._environments[slot.name]:
                return actor
            try:
                about = ray.get(actor.about.remote(), timeout=PLACE_TIMEOUT_S)
            except ray_exceptions.GetTimeoutError:
                self._end(slot.name)
                raise SlotLost(f"{slot.title}: no node of the cluster took it within {PLACE_TIMEOUT_S:.0f} s") from None
            except ray_exceptions.RayError as error:
                reason = _why(_told(error))
                self._end(slot.name)
                continue
            self._heard(slot, about)
            return actor
        raise SlotLost(f"{slot.title}: its actor can't start: {reason}")

    def _most_frequent(self) -> Capability | None:
        """The compute capability that most of the slots' GPUs have, the lowest of several.

        A slot that has no node in time says so when it is to judge; the others need not wait for it.
        """
        asked = {self._actors[slot.name].about.remote(): slot for slot in self._slots}
        there, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PLACE_TIMEOUT_S)
        known: Counter[Capability] = Counter()
        reason = f"none was there within {PLACE_TIMEOUT_S:.0f} s"
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
        """The slot's actor said where it is."""
        self._capabilities[slot.name] = about["capability"]
        self._environments[slot.name].update(about["environment"])

    def _end(self, name: str) -> None:
        with self._lock:
            actor = self._actors.pop(name, None)
            # A new actor may come up on another machine: records made from now on must not name the old one.
            self._environments[name].clear()
        if actor is not None:
            ray.kill(actor)

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

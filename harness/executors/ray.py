"""Building and judging on a Ray cluster: builds as CPU tasks anywhere, one actor a GPU for judging.

Trusted side, on the driver and on every node; the only module that imports ray. The harness must be installed on each
node. On its node an actor is a `LocalExecutor` with one slot, with that node's sandbox and cache, so that verdicts come
about exactly as they do without Ray. Modules travel as bytes through the object store and are put into the cache of the
node that runs them; they are never loaded by a process of Ray's.

What is lost with a node is done again elsewhere: Ray repeats builds, and this module starts a lost actor anew and gives
it the solution that it was judging. Where no node can take the actor the slot is lost, and its solution goes to
another one. Each record says on which machine it came about, since that is known only once it has.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray import exceptions as ray_exceptions

from harness.build import BuildCache, BuildOutcome, open_toolchain
from harness.config import RunConfig, cache_root
from harness.environment import collect
from harness.executors import Built, ExecutorError, Order, Slot, SlotLost
from harness.executors.building import LocalBuilders
from harness.executors.local import LocalExecutor
from harness.model import DeviceKind, Failure, Status, one_line
from harness.tasks import Outcome, Task

TRIES = 4
"""How often one solution is begun. A cluster that loses its nodes faster than that is no place to measure."""

PLACE_TIMEOUT_S = 180.0
"""How long a slot waits for a node that can take it, its imports included. Preempted nodes come back or are replaced in
minutes or not at all."""

END_TIMEOUT_S = 5.0
"""How long an actor that is idle may take to end what it started."""

BUILD_CPUS = {DeviceKind.CUDA: 2, DeviceKind.HOST: 1}
"""A build for a GPU keeps two processors busy: nvcc and g++."""

Modules = dict[str, tuple[bytes, dict[str, Any]]]
"""The files of a build by their key, with the cache's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBuilt:
    """A build somewhere in the cluster: what is known of it here, and where its modules' bytes are."""

    order: Order
    outcome: BuildOutcome
    modules: Any = field(repr=False)

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure

    @property
    def wall_s(self) -> float:
        return self.outcome.wall_s

    @property
    def has_cuda_sources(self) -> bool:
        return self.outcome.has_cuda_sources

    def to_json(self) -> dict[str, Any]:
        return self.outcome.to_json()

    def release(self) -> None:
        """Ray drops the bytes when nobody refers to them."""


def _on_node(config: RunConfig, own_cache: bool) -> RunConfig:
    """The configuration as it holds on the node that this runs on."""
    return replace(config, executor="local", workers=1, cache_dir=cache_root() if own_cache else config.cache_dir)


_opened: dict[str, tuple[LocalBuilders, BuildCache]] = {}
_opening = threading.Lock()


def _build(
    order: Order, config: RunConfig, own_cache: bool, capability: tuple[int, int] | None
) -> tuple[BuildOutcome, Modules, bytes]:
    """A task: build here, and return the outcome, its modules and its log. The builders' zygote stays for the next."""
    config = _on_node(config, own_cache)
    folder = Path(tempfile.mkdtemp(prefix="harness-build-"))
    try:
        with _opening:
            key = repr((config.cache_dir, config.device, config.checked, config.sandbox, capability))
            if key not in _opened:
                toolchain = open_toolchain(
                    config.device, config.cache_dir, checked=config.checked, capability=capability
                )
                cache = BuildCache(config.cache_dir, config.cache_limit_bytes)
                log = Path(tempfile.gettempdir()) / "harness-ray-builder.log"
                _opened[key] = (
                    LocalBuilders(
                        toolchain, cache, timeout_s=config.compile_timeout_s, sandbox=config.sandbox, log=log
                    ),
                    cache,
                )
            builders, cache = _opened[key]
        log_path = folder / "build.log"
        outcome = builders.build(replace(order, log_path=log_path))
        modules: Modules = {}
        for module in outcome.modules:
            held = cache.get(module.key)
            if held is not None and held.path is not None:
                modules[module.key] = (held.path.read_bytes(), dict(held.metadata))
                held.release()
        outcome.release()
        log_bytes = log_path.read_bytes() if log_path.exists() else b""
        return replace(outcome, leases=()), modules, log_bytes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Judge:
    """An actor: one slot of one node."""

    def __init__(self, config: RunConfig, own_cache: bool) -> None:
        self._config = _on_node(config, own_cache)
        self._folder = Path(tempfile.mkdtemp(prefix="harness-judge-"))
        self._environment = collect()
        self._cache = BuildCache(self._config.cache_dir, self._config.cache_limit_bytes)
        self._executor = LocalExecutor(self._config, self._environment, self._folder)
        (self._slot,) = self._executor.slots

    def about(self) -> dict[str, Any]:
        """What every record of this node carries, its title, and what to compile for."""
        gpu = next((gpu for gpu in self._environment.gpus if gpu.uuid == self._slot.environment["gpu_uuid"]), None)
        return {
            "environment": dict(self._slot.environment),
            "title": self._slot.title,
            "capability": gpu.compute_capability if gpu is not None else None,
            "node": ray.get_runtime_context().get_node_id(),
        }

    def judge(self, task_json: Mapping[str, Any], built: BuildOutcome, modules: Modules) -> dict[str, Any]:
        """The verdict and the output of the solution's process, or why this slot can give none."""
        log_path = self._folder / "run.log"
        log_path.unlink(missing_ok=True)
        task = replace(Task.from_json(task_json), log_path=log_path)
        leases = []
        try:
            placed = []
            for module in built.modules:
                held = self._cache.get(module.key) or self._put(module.key, modules)
                assert held.path is not None
                leases.append(held)
                placed.append(replace(module, path=held.path))
            runtime = (Path(self._executor.runtime),) if self._executor.runtime else ()
            own = replace(built, modules=tuple(placed), runtime=runtime or built.runtime)
            outcome = self._executor.judge(self._slot, task, own)
            if outcome is None:
                outcome = self._executor.settle(self._slot, task, own)
        except SlotLost as lost:
            return {"lost": str(lost)}
        finally:
            for held in leases:
                held.release()
        log = log_path.read_bytes() if log_path.exists() else b""
        return {"outcome": outcome.to_json(), "log": log}

    def close(self) -> None:
        """End the referee, and leave no file behind."""
        self._executor.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _put(self, key: str, modules: Modules) -> Any:
        data, metadata = modules[key]
        path = self._folder / "module.so"
        path.write_bytes(data)
        try:
            return self._cache.put(key, path, metadata)
        finally:
            path.unlink()


class RayExecutor:
    """Builders and judges of a cluster, as many judges as it has GPUs (host device: nodes). A context manager."""

    def __init__(self, config: RunConfig) -> None:
        self._config = replace(config, cache_dir=config.cache_dir.absolute())
        # A folder that nobody named is each node's own; one that somebody did is that one everywhere.
        self._own_cache = config.cache_dir == cache_root()
        self._connected = not ray.is_initialized()
        if self._connected:
            try:
                ray.init(address=config.ray_address, log_to_driver=False, include_dashboard=None, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ExecutorError(
                    f"no Ray cluster at {config.ray_address!r}: {one_line(str(error))}; start one by `ray start --head`"
                ) from error
        self._lock = threading.Lock()
        self._closed = False
        self._actors: dict[str, Any] = {}
        self._environments: dict[str, dict[str, Any]] = {}
        self._capability: tuple[int, int] | None = None
        try:
            count = self._count()
            self._slots = []
            for number in range(count):
                name = f"ray-{number}"
                self._environments[name] = {}
                self._slots.append(Slot(name=name, title=name, environment=self._environments[name]))
                self._start(name)
            self.builders = max(1, int(ray.cluster_resources().get("CPU", 1)) - count)
            self._task: Any = ray.remote(num_cpus=BUILD_CPUS[config.device], max_retries=TRIES, num_returns=3)(_build)
            if config.device is DeviceKind.CUDA:
                self._capability = self._lowest_capability()
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> Sequence[Slot]:
        return self._slots

    def expect(self, order: Order) -> None:
        """Nothing to begin: each task starts what it needs where it runs."""

    def build(self, order: Order) -> RemoteBuilt:
        outcome, modules, log = self._task.remote(order, self._config, self._own_cache, self._capability)
        try:
            known, log_bytes = ray.get([outcome, log])
        except ray_exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from error
        except ray_exceptions.RayError as error:
            failure = Failure(status=Status.harness_error, reason=one_line(f"the cluster lost the build: {error}"))
            return RemoteBuilt(order=order, outcome=BuildOutcome(failure=failure), modules=None)
        order.log_path.parent.mkdir(parents=True, exist_ok=True)
        with order.log_path.open("ab") as file:
            file.write(log_bytes)
        return RemoteBuilt(order=order, outcome=known, modules=modules)

    def await_slot(self, slot: Slot) -> None:
        """Nothing to wait for: `judge` begins nothing ahead."""

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome:
        assert isinstance(built, RemoteBuilt)
        reason = ""
        for _ in range(TRIES):
            actor = self._ready(slot)
            try:
                said = ray.get(actor.judge.remote(task.to_json(), built.outcome, built.modules))
            except (ray_exceptions.ObjectLostError, ray_exceptions.OwnerDiedError) as error:
                reason = f"the modules were lost with their node: {error}"
                built = self.build(built.order)
                continue
            except ray_exceptions.RayTaskError as error:
                reason = f"the referee failed: {error}"
                self._end(slot.name)
                continue
            except ray_exceptions.RayError as error:
                reason = f"the node or the actor was lost: {error}"
                self._end(slot.name)
                continue
            if "lost" in said:
                self._end(slot.name)
                raise SlotLost(f"{slot.title} ({self._environments[slot.name].get('gpu')}): {said['lost']}")
            task.log_path.write_bytes(said["log"])
            return Outcome.from_json(said["outcome"])
        return Outcome(status=Status.harness_error, reason=one_line(reason))

    def settle(self, slot: Slot, task: Task, built: Built) -> Outcome:
        """`judge` leaves nothing open."""
        raise LookupError(f"{task.filename}: its verdict was given")

    def node_of(self, slot: Slot) -> str:
        """Ray's id of the node that judges for a slot."""
        return str(ray.get(self._ready(slot).about.remote())["node"])

    def close(self) -> None:
        """End every actor, and the connection where this made it. Idempotent."""
        with self._lock:
            self._closed = True
        for name, actor in list(self._actors.items()):
            # One that is still judging, or on a lost node, is ended without its leave.
            with suppress(ray_exceptions.RayError):
                ray.get(actor.close.remote(), timeout=END_TIMEOUT_S)
            self._end(name)
        if self._connected and ray.is_initialized():
            ray.shutdown()

    def _count(self) -> int:
        resources = ray.cluster_resources()
        if self._config.device is DeviceKind.HOST:
            nodes = sum(1 for node in ray.nodes() if node["Alive"])
            return self._config.workers or nodes
        model = self._config.accelerator_type
        gpus = sum(
            int(node["Resources"].get("GPU", 0))
            for node in ray.nodes()
            if node["Alive"] and (model is None or f"accelerator_type:{model}" in node["Resources"])
        )
        if not gpus:
            known = sorted(name.removeprefix("accelerator_type:") for name in resources if "accelerator_type" in name)
            what = "no GPU" if model is None else f"no GPU of accelerator type {model} (it has: {', '.join(known)})"
            raise ExecutorError(f"the Ray cluster offers {what}; --device host runs on its CPUs")
        return min(gpus, self._config.workers or gpus)

    def _start(self, name: str) -> Any:
        with self._lock:
            if self._closed:
                raise SlotLost("the run has ended")
            options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
            if self._config.device is DeviceKind.CUDA:
                options["num_gpus"] = 1
                if self._config.accelerator_type is not None:
                    options["accelerator_type"] = self._config.accelerator_type
            actor = ray.remote(_Judge).options(**options).remote(self._config, self._own_cache)
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
                reason = one_line(str(error))
                self._end(slot.name)
                continue
            self._environments[slot.name].update(about["environment"])
            return actor
        raise SlotLost(f"{slot.title}: its actor can't start: {reason}")

    def _lowest_capability(self) -> tuple[int, int]:
        """The compute capability that all slots' GPUs have: builds must run on each."""
        known = []
        for slot in self._slots:
            about = ray.get(self._ready(slot).about.remote())
            if about["capability"]:
                major, minor = about["capability"].split(".")
                known.append((int(major), int(minor)))
        if not known:
            raise ExecutorError("no GPU of the cluster names its compute capability")
        return min(known)

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

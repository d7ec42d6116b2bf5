"""Work on a node of a Ray cluster: builds, and a judge with one slot.

Trusted side; runs in processes of the cluster, so nothing here loads a built module. Modules arrive and leave as bytes
through the node's cache. All else works as without a cluster: `LocalBuilders`, and a `LocalExecutor` for the slot.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.config import RunConfig, cache_root
from harness.core.environment import collect
from harness.core.task import Task
from harness.core.visible_gpus import Capability, capability_of
from harness.runner.executors import BuildRequest, SlotLost
from harness.runner.executors.builders import LocalBuilders
from harness.runner.executors.local import LocalExecutor
from harness.runner.executors.toolchains import open_toolchain
from harness.toolchain import BuildCache, BuildOutcome

Modules = dict[str, tuple[bytes, dict[str, Any]]]
"""The module files of a build by key, with the cache's metadata."""


def on_node(config: RunConfig, own_cache: bool) -> RunConfig:
    """Return the configuration for the node that this runs on."""
    return replace(config, executor="local", workers=1, cache_dir=cache_root() if own_cache else config.cache_dir)


_opened: dict[str, tuple[LocalBuilders, BuildCache]] = {}
_opening = threading.Lock()


def build(
    order: BuildRequest, config: RunConfig, own_cache: bool, capability: Capability | None
) -> tuple[BuildOutcome, Modules, bytes]:
    """Build on this node; return the outcome, its modules and its log.

    The builders' zygote stays alive for the next build.
    """
    config = on_node(config, own_cache)
    folder = Path(tempfile.mkdtemp(prefix="harness-build-"))
    try:
        with _opening:
            key = repr((config.cache_dir, config.device, config.checked, config.syntax, config.sandbox, capability))
            if key not in _opened:
                toolchain = open_toolchain(
                    config.device,
                    config.cache_dir,
                    checked=config.checked,
                    syntax=config.syntax,
                    capabilities=() if capability is None else (capability,),
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


class Judge:
    """One slot of one node; a Ray actor."""

    def __init__(self, config: RunConfig, own_cache: bool) -> None:
        self._config = on_node(config, own_cache)
        self._folder = Path(tempfile.mkdtemp(prefix="harness-judge-"))
        self._environment = collect()
        self._cache = BuildCache(self._config.cache_dir, self._config.cache_limit_bytes)
        self._executor = LocalExecutor(self._config, self._environment, self._folder)
        (self._slot,) = self._executor.slots

    def about(self) -> dict[str, Any]:
        """Return the environment for records, the slot's title and the compute capability."""
        gpu = next((gpu for gpu in self._environment.gpus if gpu.uuid == self._slot.environment["gpu_uuid"]), None)
        return {
            "environment": dict(self._slot.environment),
            "title": self._slot.title,
            "capability": None if gpu is None else capability_of(gpu),
        }

    def judge(self, task_json: Mapping[str, Any], built: BuildOutcome, modules: Modules) -> dict[str, Any]:
        """Return the outcome and the solution's log, or why the slot is lost."""
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
        """End the referee and remove all temporary files."""
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

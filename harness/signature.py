"""Shapes of a problem's arguments, which builds need to construct and call a solution; remembered between runs.

Stage, trusted side: a problem is trusted code, and executing it is what this module does where the cache does not
know the answer. Only then is torch imported.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.build import BuildCache
from harness.environment import torch_build
from harness.model import Problem, Workload, digest_text

FORMAT = 1
"""Version of what is remembered; part of its key."""


def signature(problem: Problem, cache: BuildCache) -> Mapping[str, Any] | None:
    """The constructor's arguments and one call's inputs as shapes (`harness.build.arguments`), at the small workload
    where there is one.

    None where the problem does not tell; then what a solution compiles late is built where it runs.
    """
    known = _remembered(problem, cache)
    return _found(problem, cache) if known is None else known


class Signatures:
    """The signatures of a run's problems, each asked for once. Safe for threads.

    The cache is opened with the first one. Raises `CacheError`.
    """

    def __init__(self, cache_dir: Path, cache_limit_bytes: int) -> None:
        self._settings = (cache_dir, cache_limit_bytes)
        self._cache: BuildCache | None = None
        self._known: dict[str, Mapping[str, Any] | None] = {}
        self._looking = threading.Lock()
        self._finding = threading.Lock()

    def of(self, problem: Problem, *, on_miss: Callable[[], None] = lambda: None) -> Mapping[str, Any] | None:
        """As `signature`. `on_miss` is called before the seconds that it takes where it is not remembered, by every
        thread that has to wait for it."""
        with self._looking:
            if self._cache is None:
                self._cache = BuildCache(*self._settings)
            cache = self._cache
            if problem.digest not in self._known and (held := _remembered(problem, cache)) is not None:
                self._known[problem.digest] = held
            if problem.digest in self._known:
                return self._known[problem.digest]
        on_miss()
        # One at a time: each would import torch, and the machine is busy with others that do.
        with self._finding:
            if problem.digest not in self._known:
                self._known[problem.digest] = _found(problem, cache)
            return self._known[problem.digest]


def _remembered(problem: Problem, cache: BuildCache) -> Mapping[str, Any] | None:
    held = cache.recall(_key(problem))
    arguments = None if held is None else held.get("arguments")
    return arguments if isinstance(arguments, dict) else None


def _found(problem: Problem, cache: BuildCache) -> Mapping[str, Any] | None:
    arguments = _described(problem, _workload(problem))
    if arguments is not None:
        cache.put(_key(problem), None, {"arguments": arguments}).release()
    return arguments


def _workload(problem: Problem) -> Workload:
    return problem.workloads.get("small", Workload(name="full"))


def _key(problem: Problem) -> str:
    sizes = json.dumps(dict(_workload(problem).sizes), sort_keys=True)
    return digest_text("signature", f"{FORMAT} torch {torch_build()[0]}", problem.digest, sizes)


def _described(problem: Problem, workload: Workload) -> dict[str, Any] | None:
    import torch

    from harness.build.arguments import describe
    from harness.reference import load_reference

    try:
        reference = load_reference(problem, workload)
        with torch.device("meta"):
            inputs = reference.get_inputs()
        return describe(reference.init_inputs(), inputs)
    except Exception:
        # Whatever is wrong with the problem, the referee finds it and says so; here it only costs time.
        return None

"""Shapes of a problem's arguments, for builds; and whether its constructor works.

Trusted side. Results are cached between runs. If the cache has no answer, the problem's code runs in a process of its
own (`python -m harness.referee.problem.signature`). The runner must not import torch: loading its libraries would stop
the runner's threads for seconds, while builds start (`test_the_runner_imports_no_torch_for_it`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.core.environment import torch_build
from harness.core.problem import Problem, Workload, digest_text
from harness.referee.problem.problem_process import ProblemProcess, WireError, serve
from harness.toolchain import BuildCache

FORMAT = 1
"""Version of the cached data; part of its key."""

_ARGUMENTS, _CONSTRUCTS = "arguments", "constructs"
"""Questions to the process: shapes of the arguments; whether `Model` can be constructed."""

LIMIT_S = 20.0
"""Seconds for one problem; builds of other problems wait for it. The referee reports a problem that hangs."""


class Signatures:
    """Signatures of a run's problems, each determined once. Thread-safe.

    A context manager. The cache is opened at the first request, and the process is started for the first problem that
    is not cached.
    """

    def __init__(self, cache_dir: Path, cache_limit_bytes: int) -> None:
        self._settings = (cache_dir, cache_limit_bytes)
        self._cache: BuildCache | None = None
        self._known: dict[str, Mapping[str, Any] | None] = {}
        self._constructs: dict[str, bool] = {}
        self._looking = threading.Lock()
        self._finding = threading.Lock()
        self._process = ProblemProcess("harness.referee.problem.signature")

    def of(self, problem: Problem, *, on_miss: Callable[[], None] = lambda: None) -> Mapping[str, Any] | None:
        """Return the shapes of the constructor's arguments and of one call's inputs.

        They are those of the small workload, if the problem has one.

        Args:
            problem: The problem.
            on_miss: Called by every thread that has to wait some seconds because the cache has no answer.

        Returns:
            Shapes as in `harness.toolchain.arguments`; None if the problem's code fails. Extensions that a solution
            compiles late are then built where the solution runs.

        Raises:
            CacheError: The cache can't be used.
        """
        with self._looking:
            if self._cache is None:
                self._cache = BuildCache(*self._settings)
            cache = self._cache
            if problem.digest not in self._known and (held := _remembered(problem, cache)) is not None:
                self._known[problem.digest] = held
            if problem.digest in self._known:
                return self._known[problem.digest]
        on_miss()
        with self._finding:
            if problem.digest not in self._known:
                self._known[problem.digest] = found = self._find(problem)
                if found is not None:
                    cache.put(_key(problem), None, {"arguments": found}).release()
            return self._known[problem.digest]

    def constructs(self, problem: Problem) -> bool:
        """Return whether the reference's own constructor accepts these arguments.

        Asked if a solution's constructor fails: that is the solution's fault only if the reference's works.

        Returns:
            False also if there is no answer; the referee then decides.
        """
        with self._finding:
            if problem.digest not in self._constructs:
                self._constructs[problem.digest] = self._ask(problem, _CONSTRUCTS) is True
            return self._constructs[problem.digest]

    def close(self) -> None:
        """End the process, even if it is working. Idempotent."""
        self._process.close()

    def __enter__(self) -> Signatures:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, problem: Problem) -> Mapping[str, Any] | None:
        found = self._ask(problem, _ARGUMENTS)
        return found if isinstance(found, dict) else None

    def _ask(self, problem: Problem, question: str) -> object:
        """Return the answer, or None. The referee reports what is wrong with a problem."""
        try:
            return self._process.ask(problem, question, LIMIT_S)
        except (WireError, OSError, ValueError):  # can't start, died or hangs
            return None


def _remembered(problem: Problem, cache: BuildCache) -> Mapping[str, Any] | None:
    held = cache.recall(_key(problem))
    arguments = None if held is None else held.get("arguments")
    return arguments if isinstance(arguments, dict) else None


def _workload(problem: Problem) -> Workload:
    return problem.workloads.get("small", Workload(name="full"))


def _key(problem: Problem) -> str:
    sizes = json.dumps(dict(_workload(problem).sizes), sort_keys=True)
    return digest_text("signature", f"{FORMAT} torch {torch_build()[0]}", problem.digest, sizes)


def _described(problem: Problem) -> dict[str, Any] | None:
    """Return the shapes of the problem's arguments, or None if its code fails.

    Inputs of a small workload are drawn with data: for its first tensors without data torch loads most of its compiler,
    which takes 0.5 s for `torch.randn` alone and 1 s more for operations on it.
    """
    import torch

    from harness.referee.problem.loader import load_reference
    from harness.toolchain.arguments import describe

    workload = _workload(problem)
    try:
        reference = load_reference(problem, workload)
        with torch.device("cpu" if workload.name == "small" else "meta"):
            inputs = reference.get_inputs()
        return describe(reference.init_inputs(), inputs)
    except Exception:
        return None


def _constructs(problem: Problem) -> bool:
    """Try the constructor; at full size without memory, since the referee decides.

    Some constructors fail only without memory.
    """
    import torch

    from harness.referee.problem.loader import load_reference

    workload = _workload(problem)
    try:
        reference = load_reference(problem, workload)
        with torch.device("cpu" if workload.name == "small" else "meta"):
            reference.model(0, None)
    except Exception:
        return False
    return True


if __name__ == "__main__":
    import harness.referee.problem.loader  # noqa: F401  # with torch, before the first question

    serve({_ARGUMENTS: _described, _CONSTRUCTS: _constructs})

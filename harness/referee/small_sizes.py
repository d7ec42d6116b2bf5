"""Small sizes for problems that declare none, derived once and cached.

Trusted side. Results are cached between runs by the problem's digest. Otherwise the problem's code runs in a process of
its own (`python -m harness.referee.small_sizes`): the search runs the reference without data
(`harness.referee.problem.derive`), then the sizes are tried with data, and with the referee's check that wrong answers
are rejected. The runner imports no torch for it. See guides/design/derived_sizes.md.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from harness.core.choices import DeviceKind
from harness.core.environment import torch_build
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Failure, Status, one_line
from harness.protocol.channel import ChannelClosed, FrameTimeout, WireError
from harness.referee.problem.problem_process import ProblemProcess, serve
from harness.toolchain import BuildCache

SMALL = "small"
"""Name of the workload that is derived."""

UNDERIVED = Workload(name=SMALL, derived=True)
"""Stands for a workload `small` whose sizes are not derived yet."""

FORMAT = 1
"""Version of the derivation; part of the key of its results."""

LIMIT_S = 400.0
"""Seconds for one problem."""

TRIES = 3
"""Sizes that are tried with data: if the first accept a wrong answer, larger ones may reject it."""

_SIZES = "sizes"
"""The question to the process."""


class NoSmallSizes(Exception):
    """No small sizes can be derived. The message says why and what to do."""


class SmallSizes:
    """Derived sizes of a run's problems, each determined once. Thread-safe.

    A context manager. The cache is opened at the first request, and the process is started for the first problem that
    is not cached.

    Args:
        cache_dir: Folder of the cache.
        cache_limit_bytes: Its limit in bytes.
    """

    def __init__(self, cache_dir: Path, cache_limit_bytes: int) -> None:
        self._settings = (cache_dir, cache_limit_bytes)
        self._cache: BuildCache | None = None
        self._known: dict[str, Mapping[str, Any] | NoSmallSizes] = {}
        self._lock = threading.Lock()
        self._process = ProblemProcess("harness.referee.small_sizes")

    def of(self, problem: Problem, *, on_miss: Callable[[], None] = lambda: None) -> Workload:
        """Return the problem's workload `small`, declared or derived.

        Args:
            problem: A readable problem.
            on_miss: Called before a derivation, which takes seconds.

        Raises:
            NoSmallSizes: None is declared and none can be derived.
            CacheError: The cache can't be used.
        """
        if (declared := problem.workloads.get(SMALL)) is not None:
            return declared
        with self._lock:
            known = self._known.get(problem.digest)
            if known is None:
                known = self._known[problem.digest] = self._recalled(problem) or self._derived(problem, on_miss)
        if isinstance(known, NoSmallSizes):
            raise known
        return Workload(name=SMALL, sizes=known[_SIZES], derived=True)

    def completed(self, problem: Problem) -> Problem:
        """Return the problem with its workload `small`; raise as `of`."""
        return replace(problem, workloads={**problem.workloads, SMALL: self.of(problem)})

    def close(self) -> None:
        """End the process, even if it is working. Idempotent."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recalled(self, problem: Problem) -> Mapping[str, Any] | None:
        if self._cache is None:
            self._cache = BuildCache(*self._settings)
        held = self._cache.recall(_key(problem))
        return held if held is not None and isinstance(held.get(_SIZES), dict) else None

    def _derived(self, problem: Problem, on_miss: Callable[[], None]) -> Mapping[str, Any] | NoSmallSizes:
        on_miss()
        try:
            answer = self._process.ask(problem, _SIZES, LIMIT_S)
        except FrameTimeout:
            why = f"its code ran for over {LIMIT_S:g} s"
            return NoSmallSizes(f"no small sizes can be derived: {why}; declare a workload small in workloads.yaml")
        except ChannelClosed:
            return NoSmallSizes("no small sizes can be derived: it ended the process that executed it; fix its file")
        except (WireError, OSError, ValueError) as error:
            return NoSmallSizes(one_line(f"no small sizes can be derived: {error}; declare them in workloads.yaml"))
        if isinstance(answer, dict):
            assert self._cache is not None
            self._cache.put(_key(problem), None, {_SIZES: answer}).release()
            return {_SIZES: answer}
        return NoSmallSizes(str(answer))


def no_sizes(problem: Problem, error: NoSmallSizes) -> Failure:
    """Return why the solutions of this problem can't be evaluated at small sizes."""
    reason = one_line(f"problem {problem.id}: {error}")
    return Failure(status=Status.harness_error, reason=reason, evidence={"phase": "derive"})


def _key(problem: Problem) -> str:
    return digest_text("small sizes", f"{FORMAT} torch {torch_build()[0]}", problem.digest)


def _answer(problem: Problem) -> dict[str, Any] | str:
    """Return the sizes, or why there are none."""
    from harness.devices.out_of_memory import is_shortage
    from harness.referee.problem.derive import NoSizes, candidates
    from harness.referee.problem.loader import ProblemError, describe, load_reference

    try:
        load_reference(problem, Workload(name="full"))
    except ProblemError as error:  # not a question of sizes
        return str(error)
    try:
        found = candidates(problem)[:TRIES]
    except NoSizes as error:
        return f"no small sizes can be derived: {error}"
    except Exception as error:
        why = str(error) if isinstance(error, ProblemError) else describe(error)
        return f"no small sizes can be derived: {why}; declare a workload small in workloads.yaml"
    if found[0] == {}:  # small as it is: the referee tries it
        return {}
    works: list[dict[str, Any]] = []
    reasons: list[str] = []
    for sizes in found:
        try:
            if _rejects_wrong_answers(problem, sizes):
                return sizes
            works.append(sizes)
        except Exception as error:
            why = "out of memory" if is_shortage(error) else str(error)
            reasons.append(why if isinstance(error, ProblemError) else describe(error))
    if works:  # no size helps: the referee reports that the problem accepts a wrong answer
        return works[0]
    sizes_text = ", ".join(f"{name}={value}" for name, value in found[0].items())
    return f"no small sizes can be derived: at {sizes_text}: {reasons[0]}; declare a workload small in workloads.yaml"


def _rejects_wrong_answers(problem: Problem, sizes: Mapping[str, Any]) -> bool:
    """Prepare the problem as a referee does; tell whether it rejects wrong answers.

    Raises `ProblemError` if the reference fails.
    """
    from harness.devices.out_of_memory import opened
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.workspace import Workspace
    from harness.referee.soundness import Soundness

    workload = Workload(name=SMALL, sizes=sizes, derived=True)
    # A fixed seed: the same problem gets the same sizes on every machine.
    workspace = Workspace(problem, workload, opened(DeviceKind.HOST), sets_wanted=2, secret=random.Random(0))
    try:
        Soundness(allow_degenerate=False).check(workspace)
    except ProblemError:
        return False
    finally:
        workspace.close()
    return True


if __name__ == "__main__":
    import harness.referee.soundness  # noqa: F401  # with torch, before the first question

    serve({_SIZES: _answer})

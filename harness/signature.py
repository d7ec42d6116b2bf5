"""Shapes of a problem's arguments, which builds need to construct and call a solution; remembered between runs.

Stage, trusted side: a problem is trusted code, and executing it is what this module does where the cache does not
know the answer. Only then is torch imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from harness.build import BuildCache
from harness.environment import torch_build
from harness.model import Problem, Workload, digest_text

FORMAT = 1
"""Version of what is remembered; part of its key."""


def signature(
    problem: Problem, cache: BuildCache, *, on_miss: Callable[[], None] = lambda: None
) -> dict[str, Any] | None:
    """The constructor's arguments and one call's inputs as shapes (`harness.build.arguments`), at the small workload
    where there is one. `on_miss` is called before the seconds that it takes where they are not remembered.

    None where the problem does not tell; then what a solution compiles late is built where it runs.
    """
    workload = problem.workloads.get("small", Workload(name="full"))
    sizes = json.dumps(dict(workload.sizes), sort_keys=True)
    key = digest_text("signature", f"{FORMAT} torch {torch_build()[0]}", problem.digest, sizes)
    if (held := cache.recall(key)) is not None and isinstance(held.get("arguments"), dict):
        arguments: dict[str, Any] = held["arguments"]
        return arguments
    on_miss()
    found = _described(problem, workload)
    if found is not None:
        cache.put(key, None, {"arguments": found}).release()
    return found


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

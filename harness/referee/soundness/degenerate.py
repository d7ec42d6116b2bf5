"""Run the cheap part of lint in the referee.

Trusted side. Runs once per problem and workload in the referee's own workspace, before a contestant starts. A sound
problem rejects nearly all such answers on the first call, so the check costs one or two more truths.

Solutions of a problem that accepts zeros, a constant, another call's output or half an output end as `harness_error`.
`passed` would mean nothing, and a wrong-value status would blame the solution for the problem's fault.
`--allow-degenerate` scores them anyway and sets a label. Solutions also end as `harness_error` if the reference gives
two answers to one call, because no solution can match both. Test: `tests/unit/referee/soundness/test_degenerate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness.tolerance import UNLIMITED, compare
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.stress_variants import checked_variants
from harness.referee.problem.workspace import Workspace
from harness.referee.soundness.blind import blind
from harness.referee.soundness.samples import OWN_DRAWS, Leaves, ReferenceCall, make_sample
from harness.referee.soundness.wrong import run_trials

HERE = 0
"""Set of the workspace for the call to answer."""

APART = 0.05
"""Scaled error from which two answers of the reference to one call count as different.

Sums added in another order (atomics) differ by rounding alone, far less than this.
"""


class Soundness:
    """Checks each problem of a referee once.

    Args:
        allow_degenerate: Whether problems that accept wrong answers are scored.
        earlier: Returns the wrong answers that a problem accepted in an earlier run; None if that is unknown.
    """

    def __init__(
        self,
        *,
        allow_degenerate: bool,
        earlier: Callable[[Workspace], tuple[str, ...] | None] = lambda workspace: None,
    ) -> None:
        self._allow = allow_degenerate
        self._earlier = earlier
        self._found: dict[Hashable, tuple[str, ...]] = {}

    def check(self, workspace: Workspace) -> tuple[str, ...]:
        """Return the wrong answers that the problem accepts.

        Raises `ProblemError` if there are any and they are not allowed, or if the reference is not deterministic.
        """
        problem = workspace.problem
        key = workspace.key
        if key not in self._found and (earlier := self._earlier(workspace)) is not None:
            self._found[key] = earlier
        if key not in self._found:
            if not self._allow and (apart := _apart_from_itself(workspace)) > APART:
                raise ProblemError(
                    f"the reference is not deterministic: two calls with the same inputs and seed differ by "
                    f"{apart:.2g} of the output's RMS; draw random numbers with torch's generators only"
                )
            self._found[key] = taken_for_right(workspace, problem.precision)
        found = self._found[key]
        if found and not self._allow:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            raise ProblemError(
                f"degenerate problem: it accepts a wrong answer: {found[0]}{more}; run harness problems lint for "
                "details, or pass --allow-degenerate to score its solutions anyway"
            )
        return found


def _apart_from_itself(workspace: Workspace) -> float:
    """The largest scaled error between two answers of the reference to one call.

    Only finite floating-point outputs count.

    Draws into the first set of `workspace`. Returns 0 if the device has too little memory for the check.
    """
    workspace.draw(HERE, "own")
    inputs = workspace.tensors(workspace.sets[HERE].inputs)
    try:
        oracle, seed = workspace.oracle, workspace.call_seed(HERE)
        one, other = (oracle.told(oracle.answer(inputs, workspace.tree, seed)) for _ in range(2))
        pairs = [(a.contiguous(), b.contiguous()) for a, b in zip(one, other, strict=True) if a.is_floating_point()]
        # Usually the bits are equal, and comparing bits takes a small part of the time of `compare`.
        differing = [(a, b) for a, b in pairs if a.shape == b.shape and not torch.equal(a, b)]
        return max((compare(a, b, limits=UNLIMITED).rms_error or 0.0 for a, b in differing), default=0.0)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return 0.0
    finally:
        workspace.oracle.restore_state()


def taken_for_right(workspace: Workspace, required: PrecisionClass) -> tuple[str, ...]:
    """Return the names of the wrong answers that the problem accepts.

    Args:
        workspace: The problem's workspace; its first set is overwritten.
        required: The precision class that answers must reach.

    Returns:
        Names of wrong answers; empty if all are rejected, or if the device has too little memory for the check.
    """
    try:
        trials = run_trials(
            blind(len(workspace.traits.destinations or workspace.traits.shapes)),
            _samples(workspace, required),
            lambda s: _elsewhere(workspace, s),
        )
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return ()
    finally:
        workspace.oracle.restore_state()
    return tuple(trial.wrong.name for trial in trials if trial.survived)


def _samples(workspace: Workspace, required: PrecisionClass) -> Iterator[ReferenceCall]:
    for variant, part in checked_variants(workspace.problem, OWN_DRAWS):
        workspace.draw(HERE, variant, part=part)
        inputs = workspace.tensors(workspace.sets[HERE].inputs)
        yield make_sample(variant, inputs, workspace.tree, workspace.call_seed(HERE), workspace.oracle, required)


def _elsewhere(workspace: Workspace, sample: ReferenceCall) -> Leaves:
    inputs, seed = workspace.drawn_elsewhere(sample.variant)
    oracle = workspace.oracle
    return oracle.told(oracle.answer(inputs, workspace.tree, seed))

"""The cheap part of lint, for the referee: does this problem reject answers that nothing was computed for?

Control layer; trusted side. Runs once a problem and workload, before any guest is in, over the referee's own bench. A
sound problem rejects nearly all of them on the first call, so that it costs one or two more truths.

Decision: a problem that takes zeros, a constant, another call's output or half an output for right scores nobody. To
call its solutions `passed` would be a verdict that nothing stands behind, and to call them wrong would blame them for
the problem; so they end as `harness_error` with the reason, unless somebody asks for the score knowingly
(`--allow-degenerate`, which leaves a label). `harness problems lint` says more. Pinned by
`tests/unit/referee/soundness/test_degenerate.py`. So do those of a problem whose reference gives two answers to one
call: no solution can match both.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.core.choices import PrecisionClass
from harness.referee.correctness.tolerance import UNLIMITED, compare
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.workspace import Workspace
from harness.referee.soundness.blind import blind
from harness.referee.soundness.samples import Leaves, ReferenceCall, make_sample, variants_of
from harness.referee.soundness.wrong import run_trials

HERE, ELSEWHERE = 0, 1
"""Sets of the bench: the call that is answered, and the one whose output is given instead."""

APART = 0.05
"""Scaled error between two answers of the reference to one call from which they are two. Sums that are added in
another order each time (atomics) differ by rounding alone, far less than this."""


class Soundness:
    """Looks once at each problem of a referee's."""

    def __init__(self, *, allow_degenerate: bool) -> None:
        self._allow = allow_degenerate
        self._found: dict[tuple[object, ...], tuple[str, ...]] = {}

    def check(self, workspace: Workspace) -> tuple[str, ...]:
        """What the problem wrongly takes for right. Raises `ProblemError` where there is something and it is not
        allowed, or where the reference differs from itself.
        """
        problem = workspace.problem
        key = (
            problem.digest,
            problem.precision,
            workspace.workload.name,
            str(sorted(workspace.workload.sizes.items())),
        )
        if key not in self._found:
            if not self._allow and (apart := _apart_from_itself(workspace)) > APART:
                raise ProblemError(
                    f"the reference is not deterministic: two calls on the same inputs, seeded alike, are {apart:.2g} "
                    "of the output's size apart; draw random numbers with torch's generators only"
                )
            self._found[key] = taken_for_right(workspace, problem.precision)
        found = self._found[key]
        if found and not self._allow:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            raise ProblemError(
                f"degenerate problem: it takes for right {found[0]}{more}; "
                "harness problems lint says more, --allow-degenerate scores it all the same"
            )
        return found


def _apart_from_itself(workspace: Workspace) -> float:
    """The largest scaled error between two answers of the reference to one call, of outputs that are real numbers and
    finite. Draws into the first set of `workspace`. Where the device lacks the memory to look, 0.
    """
    workspace.draw(HERE, "own")
    inputs = workspace.tensors(workspace.sets[HERE].inputs)
    try:
        one, other = (
            workspace.oracle.answer(inputs, workspace.tree, workspace.call_seed(HERE)).leaves for _ in range(2)
        )
        pairs = [(a.contiguous(), b.contiguous()) for a, b in zip(one, other, strict=True) if a.is_floating_point()]
        # Nearly always they are the same bits, which is told in a small part of the time.
        differing = [(a, b) for a, b in pairs if a.shape == b.shape and not torch.equal(a, b)]
        return max((compare(a, b, limits=UNLIMITED).rms_error or 0.0 for a, b in differing), default=0.0)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return 0.0
    finally:
        workspace.oracle.restore_state()


def taken_for_right(workspace: Workspace, required: PrecisionClass) -> tuple[str, ...]:
    """What the problem wrongly accepts, in words; empty where it rejects all that it was shown.

    Draws into the first two sets of `workspace`. Where the device lacks the memory to look, nothing is found.
    """
    try:
        trials = run_trials(
            blind(len(workspace.traits.shapes)), _samples(workspace, required), lambda s: _elsewhere(workspace, s)
        )
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return ()
    finally:
        workspace.oracle.restore_state()
    return tuple(trial.wrong.name for trial in trials if trial.survived)


def _samples(workspace: Workspace, required: PrecisionClass) -> Iterator[ReferenceCall]:
    for variant, part in variants_of(workspace.problem):
        workspace.draw(HERE, variant, part=part)
        inputs = workspace.tensors(workspace.sets[HERE].inputs)
        yield make_sample(variant, inputs, workspace.tree, workspace.call_seed(HERE), workspace.oracle, required)


def _elsewhere(workspace: Workspace, sample: ReferenceCall) -> Leaves:
    workspace.draw(ELSEWHERE, sample.variant)
    inputs = workspace.tensors(workspace.sets[ELSEWHERE].inputs)
    return workspace.oracle.answer(inputs, workspace.tree, workspace.call_seed(ELSEWHERE)).leaves

"""Verify a burst's answers: the claims, and the bytes in the referee's buffers.

Trusted side; one `Verifier` for each solution. A call passes only with positive proof of everything: structure, shape,
dtype and device as claimed; values and state as found in the arena (`value_check.py`); unchanged inputs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Failure, Status, one_line
from harness.protocol.gradients import readable
from harness.protocol.messages import BurstDone, CallClaim
from harness.protocol.tensor_tree import TreeError, TreeSpec
from harness.referee.contestants.client import ContestantClient
from harness.referee.correctness.compare import DeferredValues
from harness.referee.correctness.value_check import AnsweredCall, CallVerdict, PendingCheck, ValueCheck
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.structure import same_structure
from harness.referee.problem.workspace import Workspace

__all__ = ["EXPECTED_DEVICE", "OTHER_LAYOUT", "STATIC_BUFFER", "CallVerdict", "Verifier", "overall", "summarise"]

EXPECTED_DEVICE = "cuda"
"""Device of outputs; also on the host device, whose stand-in for CUDA keeps the distinction."""

STATIC_BUFFER = "static_buffer"
"""Label: calls return the same memory, so a later call overwrites an earlier one's result."""

BATCH_COUNTER = "batch_counter"
"""Label: `num_batches_tracked` differs from the reference's, and nothing reads it."""

OTHER_LAYOUT = "other_layout"
"""Label: an output has another memory layout than the reference's; converting it is part of the measured time."""


@dataclass(slots=True)
class Verifier:
    """Judge the calls of one solution. `labels` collects properties of the solution."""

    workspace: Workspace
    required: PrecisionClass
    coerce: bool
    labels: list[str] = field(default_factory=list)
    _values: ValueCheck = field(init=False)

    def __post_init__(self) -> None:
        self._values = ValueCheck(self.workspace, self.required)

    @classmethod
    def of(cls, client: ContestantClient) -> Verifier:
        """Make the verifier of a client's solution."""
        coerce = client.config.device_policy == "coerce"
        return cls(client.workspace, required=client.task.problem.precision, coerce=coerce)

    def check(
        self, planned_calls: Sequence[PlannedCall], done: BurstDone, *, with_reference: bool
    ) -> list[CallVerdict]:
        """Judge every call of a burst.

        Args:
            planned_calls: The calls, in order.
            done: The contestant's claims.
            with_reference: Also compute the reference's own answer and apply KernelBench's rule.

        Raises:
            ProblemError: If the reference changes its inputs on some draws only.
        """
        indices = sorted(call.index for call in planned_calls)  # always one order, so that places are cached
        # This waits for the device: on inputs that a call changed, the reference could do anything.
        changed = dict(zip(indices, self.workspace.changed_inputs(indices), strict=True))
        readings, underway = DeferredValues(), set[str]()
        begun = [
            self._begin(
                AnsweredCall(index=call.index, claim=claim, changed=changed[call.index], wanted=with_reference),
                readings,
                underway,
            )
            for call, claim in zip(planned_calls, done.claims, strict=True)
        ]
        compared = self._compare_again(indices)
        readings.read()
        findings = []
        for call in begun:
            finding = call if isinstance(call, CallVerdict) else self._values.end(call, readings)
            if finding is None:
                assert isinstance(call, PendingCheck)
                finding = self._values.judge(call.call)
                compared = None  # inputs read since then must be checked again
            findings.append(finding)
        if not self.workspace.traits.mutates_inputs:
            # A solution that changes inputs between the first check and the truth is judged here.
            late = dict(zip(indices, self.workspace.changed_inputs(indices, compared), strict=True))
            findings = [
                self._mutated(call.index, late[call.index]) if late[call.index] and not finding.failure else finding
                for call, finding in zip(planned_calls, findings, strict=True)
            ]
        findings = [
            self._with_missing_state(finding, claim) for finding, claim in zip(findings, done.claims, strict=True)
        ]
        if with_reference and self.workspace.problem.compare_state and self.workspace.wrong_counters(indices[0]):
            self._label(BATCH_COUNTER)
        self._note_addresses(done)
        return findings

    def _with_missing_state(self, finding: CallVerdict, claim: CallClaim) -> CallVerdict:
        """Return the verdict, with missing state as the reason if outputs are right."""
        missing = [name for name in claim.state_missing if name in self.workspace.compared_state]
        if not missing or (finding.failure is not None and not finding.outputs_right):
            return finding
        reason = f"ModelNew has no state {missing[0][:200]!r}, which the reference updates"
        failure = Failure(status=Status.wrong_state, reason=reason)
        return replace(finding, failure=failure, outputs_right=True)

    def _label(self, label: str) -> None:
        if label not in self.labels:
            self.labels.append(label)

    def _compare_again(self, indices: Sequence[int]) -> torch.Tensor | None:
        """Compare the inputs again after all reads; None if calls may change them."""
        return None if self.workspace.traits.mutates_inputs else self.workspace.compare_inputs(indices)

    def _note_addresses(self, done: BurstDone) -> None:
        # The contestant keeps each result alive until the next call returns, so new outputs cannot share an address.
        # A repeated address is a buffer that the solution keeps. This is a label, never a verdict.
        first = [claim.leaves[0].address if claim.leaves else 0 for claim in done.claims]
        repeated = any(a == b != 0 for a, b in itertools.pairwise(first))
        if repeated and STATIC_BUFFER not in self.labels:
            self.labels.append(STATIC_BUFFER)

    def _mutated(self, index: int, changed: Sequence[int]) -> CallVerdict:
        """Return the verdict on a call that changed these inputs.

        Raises `ProblemError` if the reference changes them, too, on this draw but not on its trial call. The reference
        may even have made this change, as both are timed over the same memory.
        """
        paths = self.workspace.tree.paths("inputs")
        if theirs := self.workspace.inputs_changed_by_reference(index, changed):
            raise ProblemError(
                f"the reference changes {paths[theirs[0]]} on some draws of its inputs only, so the harness cannot "
                "tell whether a solution may: change the input in every call, or work on a copy"
            )
        return CallVerdict(
            variant=self.workspace.variant(index),
            failure=Failure(
                status=Status.mutated_input,
                reason=f"the call changed its input {paths[changed[0]]}; the reference changes none of its inputs",
                evidence={"changed_inputs": [paths[i] for i in changed]},
            ),
        )

    def _begin(self, call: AnsweredCall, readings: DeferredValues, underway: set[str]) -> PendingCheck | CallVerdict:
        """Start judging a call, or judge it at once if no values are needed."""
        if failure := self._structure(call.claim):
            return CallVerdict(variant=self.workspace.variant(call.index), failure=failure)
        if call.changed and not self.workspace.traits.mutates_inputs:
            return self._mutated(call.index, call.changed)
        return self._values.begin(call, readings, underway)

    def _structure(self, claim: CallClaim) -> Failure | None:
        traits = self.workspace.traits
        try:
            tree = TreeSpec.from_json(claim.tree)
        except TreeError as error:
            return _tampered(f"the description of the outputs is malformed: {error}")
        if opaque := tree.opaque("output"):
            path, name = opaque[0]
            return Failure(
                status=Status.wrong_structure,
                reason=f"{readable(path)} is a {one_line(name, limit=200)}, not a plain tensor",
            )
        if difference := same_structure(traits.tree, tree, values=False):  # values differ from call to call
            reason = readable(difference)
            return Failure(status=Status.wrong_structure, reason=_GRADIENT.sub(_NO_GRADIENT, reason))
        if len(claim.leaves) != tree.slots:
            return _tampered("the number of output tensors does not match their description")
        for path, leaf, shape, dtype in zip(
            traits.output_names, claim.leaves, traits.shapes, traits.dtypes, strict=True
        ):
            expected = str(dtype).removeprefix("torch.")
            if leaf.shape != shape:
                return Failure(
                    status=Status.wrong_shape,
                    reason=f"{path} has shape {list(leaf.shape)}, expected {list(shape)}",
                )
            if leaf.dtype != expected:
                said = one_line(leaf.dtype, limit=40)
                return Failure(status=Status.wrong_dtype, reason=f"{path} has dtype {said}, expected {expected}")
            if leaf.device != EXPECTED_DEVICE and not self.coerce:
                return Failure(
                    status=Status.wrong_device,
                    reason=f"{path} is on the device {leaf.device[:40]!r}, expected the GPU, where its inputs are: "
                    "return it there, or use --device-policy coerce, which copies it inside the timed call",
                )
            if leaf.device != EXPECTED_DEVICE and "coerced_device" not in self.labels:
                self.labels.append("coerced_device")
            if not leaf.contiguous and OTHER_LAYOUT not in self.labels:
                self.labels.append(OTHER_LAYOUT)
        if failure := self._reshaped(dict(claim.reshaped)):
            return failure
        return None

    def _reshaped(self, shapes: Mapping[int, tuple[int, ...]]) -> Failure | None:
        """Return the failure of a call that leaves inputs in other shapes."""
        expected, paths = self.workspace.traits.reshaped, self.workspace.tree.paths("inputs")
        drawn = {number: slot.shape for number, slot in enumerate(self.workspace.sets[0].inputs)}
        for number, path in enumerate(paths):
            right, got = ({**drawn, **changed}[number] for changed in (expected, shapes))
            if right == got:
                continue
            if number in expected:
                said = f"the reference changes the shape of {path} to {list(right)}; the call leaves it as {list(got)}"
                return Failure(status=Status.wrong_state, reason=said)
            said = f"the call changed the shape of its input {path} to {list(got)}; the reference keeps {list(right)}"
            return Failure(status=Status.mutated_input, reason=said)
        return None


_GRADIENT = re.compile(r"(grad of .+): expected a tensor, got None")
_NO_GRADIENT = (
    r"\1 is None: autograd finds no way to it from the outputs; do not detach them or use torch.no_grad(), return it "
    "in backward, and keep each parameter of the reference as a parameter of its shape"
)


def _tampered(reason: str) -> Failure:
    return Failure(status=Status.disqualified, reason=reason, evidence={"rule": "protocol"})


_GRAVITY = (
    Status.disqualified,
    Status.wrong_structure,
    Status.wrong_shape,
    Status.wrong_dtype,
    Status.wrong_device,
    Status.mutated_input,
    Status.non_finite,
    Status.wrong_value,
    Status.wrong_state,
    Status.low_precision,
)


def overall(findings: Sequence[CallVerdict], *, unmatched: Sequence[str] = ()) -> Failure | None:
    """Return the most severe failure of all calls.

    Failures on the problem's own inputs come first.

    Args:
        findings: Verdicts on the calls.
        unmatched: Parameters and buffers of the reference without a counterpart in ModelNew. Wrong values then become
            `wrong_state`: the comparison says nothing about the arithmetic.

    Returns:
        The failure; None if all calls passed.
    """
    failed = [finding for finding in findings if finding.failure is not None]
    if not failed:
        return None
    chosen = min(
        failed,
        key=lambda finding: (
            _GRAVITY.index(finding.failure.status) if finding.failure else 0,
            finding.variant != "own",
        ),
    )
    failure = chosen.failure
    assert failure is not None
    # Only values depend on the inputs, not the structure of an answer.
    own = [finding.failure is None for finding in findings if finding.variant == "own"]
    prefix = "right on the problem's own inputs; " if own and all(own) and chosen.judgement is not None else ""
    suffix = (
        ""
        if chosen.variant == "own" or chosen.judgement is None
        else f" (on {chosen.variant.replace('_', ' ')} inputs)"
    )
    share = f"; {len(failed)} of {len(findings)} calls wrong" if 1 < len(failed) < len(findings) else ""
    if unmatched and failure.status in (Status.wrong_value, Status.low_precision):
        return Failure(
            status=Status.wrong_state,
            reason=f"ModelNew has no parameter, buffer or tensor that matches the reference's {unmatched[0]!r}: "
            f"{failure.reason}"[:450],
            evidence=failure.evidence,
        )
    return Failure(
        status=failure.status, reason=prefix + failure.reason[:380] + suffix + share, evidence=failure.evidence
    )


def kernelbench_rules(findings: Sequence[CallVerdict]) -> bool | None:
    """Return whether outputs on own inputs are right; None without such a call."""
    own = [finding for finding in findings if finding.variant == "own"]
    return all(finding.failure is None or finding.outputs_right for finding in own) if own else None


def summarise(findings: Sequence[CallVerdict]) -> Mapping[str, Any]:
    """Return the evidence of a verification.

    Returns:
        Largest errors per variant, of solution and reference; the largest share of a limit that an output reached, and
        that output's limits; the truth's sources; the precision reached; whether KernelBench would accept the solution.
    """
    variants: dict[str, dict[str, Any]] = {}
    for finding in findings:
        held = variants.setdefault(
            finding.variant,
            {
                "calls": 0,
                "failed": 0,
                "rms_error": None,
                "max_error": None,
                "reference_rms_error": None,
                "limits": None,
                "share_of_limit": None,
            },
        )
        held["calls"] += 1
        held["failed"] += finding.failure is not None
        if finding.judgement is None:
            continue
        for output in finding.judgement.evidence["outputs"]:
            for key in ("rms_error", "max_error", "reference_rms_error"):
                if output[key] is not None:
                    held[key] = output[key] if held[key] is None else max(held[key], output[key])
            if output["rms_error"] is None:
                continue
            limits = output["limits"]
            share = max(output["rms_error"] / limits["rms"], output["max_error"] / limits["max"])
            if held["share_of_limit"] is None or share > held["share_of_limit"]:
                held["share_of_limit"], held["limits"] = share, limits
    reached = [f.judgement.reached for f in findings if f.judgement is not None and f.failure is None]
    order = list(PrecisionClass)
    known = [verdict for finding in findings if (verdict := finding.kernelbench) is not None]
    own = [f.kernelbench for f in findings if f.variant == "own" and f.kernelbench is not None]
    return {
        "variants": variants,
        "truth": sorted({finding.truth for finding in findings if finding.truth}),
        "precision_reached": (
            max((r for r in reached if r is not None), key=order.index).value
            if reached and len(reached) == len(findings) and all(r is not None for r in reached)
            else None
        ),
        "kernelbench_would_pass": all(own) if own and known else None,
    }

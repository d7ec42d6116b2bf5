"""Verification: what a contestant claims to have returned, and the bytes in the referee's buffers, against the truth.

Trusted side. One `Verifier` serves one solution. A pass needs positive proof for every call: structure, shape, dtype
and device as claimed, values and state as found in the arena (`values`), and inputs left alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.core.status import Failure, Status, one_line
from harness.protocol.messages import BurstDone, CallClaim
from harness.protocol.tensor_tree import TreeError, TreeSpec
from harness.referee.correctness.deferred_values import DeferredValues
from harness.referee.correctness.value_check import AnsweredCall, CallVerdict, PendingCheck, ValueCheck
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.structure import same_structure
from harness.referee.problem.workspace import Workspace

__all__ = ["EXPECTED_DEVICE", "OTHER_LAYOUT", "STATIC_BUFFER", "CallVerdict", "Verifier", "overall", "summarise"]

EXPECTED_DEVICE = "cuda"
"""Where outputs belong: on the host device too, where a stand-in for CUDA keeps the distinction."""

STATIC_BUFFER = "static_buffer"
"""Label: calls return the same memory, so that a later call overwrites an earlier one's result."""

OTHER_LAYOUT = "other_layout"
"""Label: an output's elements were put in order within the timed call, as the reference's lie."""


@dataclass(slots=True)
class Verifier:
    """Judges the calls of one solution. `labels` grows as properties of the solution show."""

    workspace: Workspace
    required: PrecisionClass
    coerce: bool
    labels: list[str] = field(default_factory=list)
    _values: ValueCheck = field(init=False)

    def __post_init__(self) -> None:
        self._values = ValueCheck(self.workspace, self.required)

    def check(
        self, planned_calls: Sequence[PlannedCall], done: BurstDone, *, with_reference: bool
    ) -> list[CallVerdict]:
        """Judge every call of a burst. With `with_reference`, KernelBench's own rule is applied too."""
        indices = sorted(
            planned_call.index for planned_call in planned_calls
        )  # always in one order, whose places are found at once
        # Waited for: on inputs that a call has changed the reference might do anything.
        changed = dict(zip(indices, self.workspace.changed_inputs(indices), strict=True))
        readings, underway = DeferredValues(), set[str]()
        begun = [
            self._begin(
                AnsweredCall(
                    index=planned_call.index, claim=claim, changed=changed[planned_call.index], wanted=with_reference
                ),
                readings,
                underway,
            )
            for planned_call, claim in zip(planned_calls, done.claims, strict=True)
        ]
        compared = self._compare_again(indices)
        readings.read()
        findings = []
        for call in begun:
            finding = call if isinstance(call, CallVerdict) else self._values.end(call, readings)
            if finding is None:
                assert isinstance(call, PendingCheck)
                finding = self._values.judge(call.call)
                compared = None  # what has been read since must have been what was drawn, too
            findings.append(finding)
        if not self.workspace.traits.mutates_inputs:
            # Whoever changes inputs between that look and their truth is judged by what it made of them.
            late = dict(zip(indices, self.workspace.changed_inputs(indices, compared), strict=True))
            findings = [
                self._mutated(planned_call.index, late[planned_call.index])
                if late[planned_call.index] and finding.failure is None
                else finding
                for planned_call, finding in zip(planned_calls, findings, strict=True)
            ]
        self._note_addresses(done)
        return findings

    def _compare_again(self, indices: Sequence[int]) -> torch.Tensor | None:
        """A second look at the inputs, behind all that reads them; None where calls may change them."""
        return None if self.workspace.traits.mutates_inputs else self.workspace.compare_inputs(indices)

    def _note_addresses(self, done: BurstDone) -> None:
        # The contestant keeps each result alive until the next call has returned, so fresh outputs can't share one
        # address; a repeated one is a buffer that the solution keeps. A label, never a verdict.
        first = [claim.leaves[0].address if claim.leaves else 0 for claim in done.claims]
        repeated = any(a == b != 0 for a, b in itertools.pairwise(first))
        if repeated and STATIC_BUFFER not in self.labels:
            self.labels.append(STATIC_BUFFER)

    def _mutated(self, index: int, changed: Sequence[int]) -> CallVerdict:
        """The finding on a call that changed these inputs. Raises `ProblemError` where the reference changes them too,
        on this draw and not on that of its trial call: it may even have been the one that did, as both are timed over
        the same memory.
        """
        paths = self.workspace.tree.paths("inputs")
        if theirs := self.workspace.inputs_changed_by_reference(index, changed):
            raise ProblemError(
                f"the reference changes {paths[theirs[0]]} on some draws of its inputs only, so that nobody can tell "
                "who may; change them in every call, or work on a copy"
            )
        return CallVerdict(
            variant=self.workspace.variant(index),
            failure=Failure(
                status=Status.mutated_input,
                reason=f"{paths[changed[0]]} was changed by the call; the reference leaves its inputs alone",
                evidence={"changed_inputs": [paths[i] for i in changed]},
            ),
        )

    def _begin(self, call: AnsweredCall, readings: DeferredValues, underway: set[str]) -> PendingCheck | CallVerdict:
        """Begin judging a call, whose values will be among `readings`, or judge it, where nothing needs them."""
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
            return _tampered(f"an output's description is malformed: {error}")
        if opaque := tree.opaque("output"):
            path, name = opaque[0]
            return Failure(
                status=Status.wrong_structure, reason=f"{path} is a {one_line(name, limit=200)}, not a plain tensor"
            )
        if difference := same_structure(traits.tree, tree, values=False):  # those are of each call
            return Failure(status=Status.wrong_structure, reason=difference)
        if len(claim.leaves) != tree.slots:
            return _tampered("the number of output tensors does not fit their description")
        for path, leaf, shape, dtype in zip(
            traits.tree.paths("output"), claim.leaves, traits.shapes, traits.dtypes, strict=True
        ):
            expected = str(dtype).removeprefix("torch.")
            if leaf.shape != shape:
                return Failure(
                    status=Status.wrong_shape,
                    reason=f"{path} has shape {list(leaf.shape)}, {list(shape)} was expected",
                )
            if leaf.dtype != expected:
                said = one_line(leaf.dtype, limit=40)
                return Failure(status=Status.wrong_dtype, reason=f"{path} is {said}, {expected} was expected")
            if leaf.device != EXPECTED_DEVICE and not self.coerce:
                return Failure(
                    status=Status.wrong_device,
                    reason=f"{path} is on the device {leaf.device[:40]!r}, its inputs are on the GPU; return it there, "
                    "or use --device-policy coerce to have it copied inside the timed call",
                )
            if leaf.device != EXPECTED_DEVICE and "coerced_device" not in self.labels:
                self.labels.append("coerced_device")
            if not leaf.contiguous and OTHER_LAYOUT not in self.labels:
                self.labels.append(OTHER_LAYOUT)
        if claim.state_missing:
            return Failure(
                status=Status.wrong_state,
                reason=f"the reference updates {claim.state_missing[0][:200]!r}; ModelNew has no such state",
            )
        return None


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
    """The gravest failure of all calls, preferring one on the problem's own inputs; None is a pass.

    Wrong values beside parameters of the reference that ModelNew has no place for are `wrong_state`: the comparison
    says nothing about the arithmetic then.
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
    # The form of an answer does not depend on its inputs; only values do.
    suffix = (
        ""
        if chosen.variant == "own" or chosen.judgement is None
        else f" (on {chosen.variant.replace('_', ' ')} inputs)"
    )
    share = f"; {len(failed)} of {len(findings)} calls wrong" if 1 < len(failed) < len(findings) else ""
    if unmatched and failure.status in (Status.wrong_value, Status.low_precision):
        return Failure(
            status=Status.wrong_state,
            reason=f"the reference's {unmatched[0]!r} has no equal place in ModelNew, and the values differ: "
            f"{failure.reason}"[:450],
            evidence=failure.evidence,
        )
    return Failure(status=failure.status, reason=failure.reason[:420] + suffix + share, evidence=failure.evidence)


def summarise(findings: Sequence[CallVerdict]) -> Mapping[str, Any]:
    """Evidence of a verification: worst errors a variant, of solution and reference, truth's source."""
    variants: dict[str, dict[str, Any]] = {}
    for finding in findings:
        held = variants.setdefault(
            finding.variant,
            {"calls": 0, "failed": 0, "rms_error": None, "max_error": None, "reference_rms_error": None},
        )
        held["calls"] += 1
        held["failed"] += finding.failure is not None
        if finding.judgement is None:
            continue
        for output in finding.judgement.evidence["outputs"]:
            for key in ("rms_error", "max_error", "reference_rms_error"):
                if output[key] is not None:
                    held[key] = output[key] if held[key] is None else max(held[key], output[key])
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

"""What changes in the repeated call is as little as matters, and lies in the problem's domain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import InputRules, Problem, Workload
from harness.core.status import Status
from harness.devices.device import open_device
from harness.protocol.messages import BurstDone, CallClaim, CallMode, OutputClaim
from harness.protocol.tensor_tree import flatten
from harness.referee.correctness.perturbed_input import ATTEMPTS, PerturbedInput
from harness.referee.correctness.verifier import Verifier
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.workspace import Workspace

ROW_SUMS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=1)
def get_inputs():
    return [torch.rand(8, 512)]
def get_init_inputs():
    return []
"""
WHOLE_NUMBERS = ROW_SUMS.replace("torch.rand(8, 512)", "torch.randint(0, 9, (8, 512))")
IN_PLACE = ROW_SUMS.replace("return x.sum(dim=1)", "return x.add_(1).sum(dim=1)")


def workspace_of(source: str, variants: Sequence[str]) -> Workspace:
    full = Workload(name="full", sizes={})
    problem = Problem(
        id="level1/1",
        name="row_sums",
        path=Path("1_row_sums.py"),
        source=source,
        digest=source,
        workloads={"full": full},
        rules=InputRules(variants=tuple(variants)),
    )
    return Workspace(problem, full, open_device(DeviceKind.HOST, 0), sets_wanted=2, secret=random.Random(3))


class Contestant:
    """Answers in place of a contestant's process: with the reference, or with what it has said before."""

    def __init__(self, workspace: Workspace, *, stale: bool) -> None:
        self._workspace = workspace
        self._stale = stale
        self._said: torch.Tensor | None = None
        self.asked = 0

    def ask(self, planned_calls: Sequence[PlannedCall]) -> BurstDone:
        (planned_call,) = planned_calls
        self._workspace.complete(planned_call.index)
        self.asked += 1
        if self._said is None or not self._stale:
            self._said = flatten(self._workspace.oracle.forward(self._workspace.arguments(planned_call.index)))[0][
                0
            ].clone()
        (slot,) = self._workspace.sets[planned_call.index].outputs
        self._workspace.tensor(slot).copy_(self._said)
        leaf = OutputClaim(type="torch.Tensor", shape=slot.shape, dtype=slot.dtype, device="cuda", address=1)
        claim = CallClaim(
            tree=self._workspace.traits.tree.to_json(), leaves=(leaf,), state_missing=(), device_s=0.0, window_s=0.0
        )
        return BurstDone(claims=(claim,), reports=())


def refresh(
    workspace: Workspace, contestant: Contestant, required: PrecisionClass = PrecisionClass.FP32
) -> PerturbedInput:
    return PerturbedInput(
        workspace=workspace,
        verifier=Verifier(workspace, required=required, coerce=False),
        ask=contestant.ask,
        secret=random.Random(1),
        required=required,
    )


def answered(workspace: Workspace, contestant: Contestant, variant: str = "own") -> list[int]:
    workspace.draw(0, variant)
    workspace.hold_back([0])
    workspace.mask([0])
    contestant.ask([PlannedCall(index=0, mode=CallMode.COLD)])
    return [0]


@pytest.mark.parametrize(
    ("variants", "changed"),
    [
        (["large_values"], "one element of inputs[0]"),
        (["zero_mean"], "one in 100 elements of inputs[0]"),
    ],
)
def test_an_answer_that_stays_behind_is_found(variants: list[str], changed: str) -> None:
    workspace = workspace_of(ROW_SUMS, variants)
    contestant = Contestant(workspace, stale=True)
    held = refresh(workspace, contestant)
    failure = held.check(answered(workspace, contestant))
    assert failure is not None
    assert failure.status is Status.wrong_value
    assert failure.reason == f"returns an earlier call's answer although {changed} changed"
    assert held.evidence == {"changed": [changed], "stale": True}


@pytest.mark.parametrize("stale", [True, False])
def test_limits_that_rounding_loosens_let_no_answer_stay_behind(stale: bool) -> None:
    """Of numbers just beyond 1,000 tf32 leaves nearly nothing of what is said here."""
    beyond = ROW_SUMS.replace("x.sum(dim=1)", "x - 1000").replace("torch.rand(8, 512)", "1000 + torch.rand(8, 512)")
    workspace = workspace_of(beyond, ["large_values"])
    contestant = Contestant(workspace, stale=stale)
    held = refresh(workspace, contestant, PrecisionClass.TF32)
    failure = held.check(answered(workspace, contestant))
    assert (failure is not None) is stale
    assert held.evidence.get("stale", False) is stale


@pytest.mark.parametrize("variant", ["own", "structured"])
def test_an_answer_that_follows_is_right(variant: str) -> None:
    workspace = workspace_of(ROW_SUMS, ["large_values", "structured"])
    contestant = Contestant(workspace, stale=False)
    held = refresh(workspace, contestant)
    assert held.check(answered(workspace, contestant, variant)) is None
    tried = held.evidence["changed"]
    assert 1 <= len(tried) <= ATTEMPTS
    assert set(tried) == {"one element of inputs[0]"}
    # Sets that hold no inputs of the problem's own are drawn and answered anew first.
    assert contestant.asked == (1 if variant == "own" else 2) + len(tried)
    assert workspace.changed_inputs([0]) == [()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_two_elements_are_set_to_the_same(dtype: str) -> None:
    """Two equal largest ones in a row would leave it open which of them is its maximum, and honest code be wrong."""
    source = ROW_SUMS.replace("torch.rand(8, 512)", f"torch.rand(8, 8192).to(torch.{dtype})")
    workspace = workspace_of(source, ["large_values"])
    contestant = Contestant(workspace, stale=False)
    held = refresh(workspace, contestant)
    answered(workspace, contestant)
    before = workspace.tensors(workspace.sets[0].inputs)[0].clone()
    truth = [
        leaf.to(dtype)
        for leaf, dtype in zip(workspace.truth(0, ()).answer.leaves, workspace.traits.dtypes, strict=True)
    ]
    changes = 40
    for _ in range(changes):
        assert held._change(0, truth, [0]) == "one element of inputs[0]"
    (now,) = workspace.tensors(workspace.sets[0].inputs)
    set_to = now[now != before]
    assert len(set_to) > changes // 2
    assert len(set(set_to.tolist())) == len(set_to)
    assert float(set_to.min()) > 3.0, "ten spreads or more beyond the mean of numbers from 0 to 1"


def test_every_input_is_changed_once() -> None:
    source = ROW_SUMS.replace(
        "def forward(self, x):\n        return x.sum", "def forward(self, x, y, z):\n        return (x + y + z).sum"
    )
    source = source.replace("[torch.rand(8, 512)]", "[torch.rand(8, 512) for _ in range(3)]")
    workspace = workspace_of(source, ["large_values"])
    contestant = Contestant(workspace, stale=False)
    held = refresh(workspace, contestant)
    assert held.check(answered(workspace, contestant)) is None
    assert sorted(held.evidence["changed"]) == [f"one element of inputs[{number}]" for number in range(3)]


@pytest.mark.parametrize(
    ("source", "variants"),
    [(ROW_SUMS, []), (WHOLE_NUMBERS, ["large_values"]), (IN_PLACE, ["large_values"])],
    ids=["only its own inputs are valid", "no float among the inputs", "changes its inputs"],
)
def test_where_nothing_may_be_changed_nothing_is_asked(source: str, variants: list[str]) -> None:
    workspace = workspace_of(source, variants)
    contestant = Contestant(workspace, stale=False)
    held = refresh(workspace, contestant)
    assert held.check(answered(workspace, contestant)) is None
    assert contestant.asked == 1
    assert held.evidence == {}

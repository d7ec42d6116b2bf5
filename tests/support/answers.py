"""Right and wrong answers to small problems of many kinds, and what a verifier finds of them: with the calls of a round
taken together, and each by itself. Used by `test_values`, on a GPU and with the comparison's kernels on the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Problem, Workload
from harness.devices.device import open_device
from harness.protocol.messages import BurstDone, CallClaim, CallMode, OutputClaim
from harness.referee.correctness import compare_float, value_check
from harness.referee.correctness.verifier import CallVerdict, Verifier
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.workspace import POISON, Workspace

_HEAD = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(53))
    def forward(self, x, y):
        {body}
def get_inputs():
    return [torch.rand(37, 53){dtype}, torch.rand(37, 53){dtype}]
def get_init_inputs():
    return []
"""

BODIES = {
    "sum of products": "return x @ y.T",
    "one number": "return (x * y).sum()",
    "nothing and something": "return x[:0], x + y",
    "numbers and indices": "return x + y, torch.argmax(x, dim=1), x > 0.5, (100 * y).to(torch.int32)",
    "ties": "return torch.topk(torch.floor(4 * x), 5, dim=1)[1], x + y",
    "rounding decides": "return (1.0 + 1e-9 * x > 1.0).long(), x + y",
    "state": "self.seen.add_(x.sum(0)); return x * y",
    "inputs changed": "x.mul_(2.0); return x + y",
    "other layouts": "return (x @ y.T).T, (x + y)[:, 1:], (x + y).view(-1)[1:]",
    "a constant": "return {'mean': float(x.mean()), 'sum': x + y}",
    "complex": "return torch.complex(x, y)",
    "zero": "return x - x",
    "too large": "return torch.exp(80.0 * x)",
}
NARROW = {"half": ".half()", "bfloat16": ".bfloat16()", "float64": ".double()"}

PROBLEMS = {name: _HEAD.replace("{body}", body).replace("{dtype}", "") for name, body in BODIES.items()}
PROBLEMS |= {
    name: _HEAD.replace("{body}", "return x * y, x - y").replace("{dtype}", cast) for name, cast in NARROW.items()
}

CALLS = 3
STRESSED = ("own", "large_values", "zero_mean")
SPOILT = 1
"""The call whose answer is changed."""


def _set(place: int, value: float) -> Callable[[torch.Tensor], object]:
    return lambda tensor: tensor.view(-1)[place : place + 1 or None].fill_(value)


def _scale(by: float) -> Callable[[torch.Tensor], object]:
    return lambda tensor: tensor.copy_(tensor.to(torch.complex128 if tensor.is_complex() else torch.float64) * by)


SPOILERS: dict[str, Callable[[torch.Tensor], object]] = {
    "right": lambda tensor: None,
    "rounding": _scale(1 + 1e-7),
    "low precision": _scale(1 + 3e-3),
    "twice": _scale(2.0),
    "all zero": lambda tensor: tensor.zero_(),
    "first": _set(0, 77.0),
    "last": _set(-1, 77.0),
    "minus zero": _set(3, -0.0),
    "NaN": _set(5, float("nan")),
    "infinite": _set(-2, float("inf")),
    "minus infinite": _set(0, float("-inf")),
    "huge": _set(2, 6e4),
    "never written": lambda tensor: tensor.view(-1).view(torch.uint8).fill_(POISON),
    "in reverse": lambda tensor: tensor.copy_(tensor.reshape(-1).flip(0).reshape(tensor.shape)),
}
"""What is done to one tensor of an answer."""


def workspace_of(source: str, device: DeviceKind) -> Workspace:
    problem = Problem(id="level1/1", name="some", path=Path("1_some.py"), source=source, digest=source)
    return Workspace(problem, Workload(name="full"), open_device(device), sets_wanted=CALLS, secret=random.Random(1))


def answer(workspace: Workspace, variants: Sequence[str]) -> tuple[list[PlannedCall], BurstDone]:
    """What a solution that is the reference itself would answer to calls on fresh inputs."""
    claims = []
    for index, variant in enumerate(variants):
        workspace.draw(index, variant)
        given = workspace.answer(index, ())
        held = workspace.sets[index]
        state = [given.state[name] for name in workspace.traits.updates_state]
        for slot, leaf in zip((*held.outputs, *held.state), (*given.leaves, *state), strict=True):
            workspace.tensor(slot).copy_(leaf)
        for slot, leaf in zip(held.inputs, given.inputs, strict=False):
            workspace.tensor(slot).copy_(leaf)
        leaves = tuple(
            OutputClaim(type="torch.Tensor", shape=slot.shape, dtype=slot.dtype, device="cuda", address=index + 1)
            for slot in held.outputs
        )
        tree = given.tree.to_json()
        claims.append(CallClaim(tree=tree, leaves=leaves, state_missing=(), device_s=0.0, window_s=0.0))
    planned_calls = [PlannedCall(index=index, mode=CallMode.COLD) for index in range(len(variants))]
    return planned_calls, BurstDone(claims=tuple(claims), reports=())


def spoilt(workspace: Workspace) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every way of spoiling one tensor of call `SPOILT`, by name."""
    held = workspace.sets[SPOILT]
    slots = (*held.outputs, *held.state, *(held.inputs if workspace.traits.mutates_inputs else ()))
    for number, slot in enumerate(slots):
        tensor = workspace.tensor(slot)
        for name, spoil in SPOILERS.items():
            enough = tensor.numel() > 8 or (name in ("right", "twice", "NaN", "never written") and tensor.numel())
            special = name in ("NaN", "infinite", "minus infinite", "rounding", "low precision", "huge")
            if enough and (tensor.is_floating_point() or tensor.is_complex() or not special):
                yield f"{name}, tensor {number}", lambda spoil=spoil, tensor=tensor: spoil(tensor)  # type: ignore[misc]


class Counted:
    """Counts how often something is called."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function, self.times = function, 0

    def __call__(self, *arguments: object, **named: object) -> object:
        self.times += 1
        return self.function(*arguments, **named)


def found(
    workspace: Workspace,
    planned_calls: Sequence[PlannedCall],
    done: BurstDone,
    *,
    together: bool,
    with_reference: bool,
    kernels: bool = True,
) -> tuple[list[CallVerdict], int]:
    """What a new verifier finds twice over, and how many pairs it compared one by one."""
    verifier = Verifier(workspace, required=PrecisionClass.FP32, coerce=False)
    enqueue, compare, measure = value_check.enqueue, value_check.compare, compare_float.enqueue
    counted = Counted(compare)
    value_check.compare = counted  # type: ignore[assignment]
    if not together:
        value_check.enqueue = lambda actual, truth, readings: None  # type: ignore[assignment]
    if not kernels:
        compare_float.enqueue = lambda actual, truth: None
    try:
        findings = verifier.check(planned_calls, done, with_reference=with_reference)
        return findings + verifier.check(planned_calls, done, with_reference=False), counted.times
    finally:
        value_check.enqueue, value_check.compare = enqueue, compare  # type: ignore[assignment]
        compare_float.enqueue = measure


BRIEFLY = ("right", "twice", "NaN")
"""Spoilers for calls over which the reference's own answer is asked for once only; more would find the same."""

EXACT = ("wrong", "first", "pattern", "non_finite_mismatches", "borrowed", "unwritten", "compared")
"""What torch's own operations must say of an answer to the letter: errors are sums, and of equals each may be named."""


def essence(finding: CallVerdict) -> object:
    outputs = finding.judgement.evidence["outputs"] if finding.judgement else ()
    status = finding.failure.status if finding.failure else None
    return status, finding.kernelbench, [[output[key] for key in EXACT] for output in outputs]


def disagreements(source: str, device: DeviceKind, variants: Sequence[str] = ("own",) * CALLS) -> list[str]:
    """The ways of spoiling an answer of which other things are found when calls are judged together, or by kernels."""
    workspace = workspace_of(source, device)
    wrong = []
    try:
        for with_reference in (True, False):
            planned_calls, done = answer(workspace, variants)
            kept = workspace.arena.tensor(0, (workspace.arena.nbytes,), torch.uint8).clone()
            for name, spoil in spoilt(workspace):
                if not with_reference and not name.startswith(BRIEFLY):
                    continue
                spoil()
                apart, _ = found(workspace, planned_calls, done, together=False, with_reference=with_reference)
                together, _ = found(workspace, planned_calls, done, together=True, with_reference=with_reference)
                plain, _ = found(
                    workspace, planned_calls, done, together=False, with_reference=with_reference, kernels=False
                )
                if [essence(finding) for finding in plain] != [essence(finding) for finding in together]:
                    wrong.append(f"{name}: by torch's operations {plain}, but {together}")
                if apart != together:
                    wrong.append(f"{name}: {apart} but together {together}")
                if name.startswith("right") and any(finding.failure for finding in apart):
                    wrong.append(f"{name}: {apart}")
                workspace.arena.tensor(0, (workspace.arena.nbytes,), torch.uint8).copy_(kept)
    finally:
        workspace.close()
    return wrong


def compared_alone(source: str, device: DeviceKind) -> int:
    """How many pairs of right answers are compared one by one though calls are judged together."""
    workspace = workspace_of(source, device)
    try:
        findings, alone = found(workspace, *answer(workspace, ("own",) * CALLS), together=True, with_reference=True)
        assert not any(finding.failure for finding in findings)
        return alone
    finally:
        workspace.close()

"""Forward and backward as one call: values, what has no gradient, and what results are called."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from harness.protocol.gradients import between_passes, forward_and_backward, readable
from harness.protocol.messages import Gradients
from harness.protocol.tensor_tree import flatten

BOTH = Gradients(inputs=(0,), parameters=("weight",), outputs=(0,))
X, WEIGHT, GRAD = torch.randn(4, 3), torch.nn.Parameter(torch.randn(3)), torch.randn(4, 3)


def call(
    forward, gradients: Gradients = BOTH, *, grad: object = GRAD, parameters: Sequence[torch.Tensor | None] = (WEIGHT,)
):  # type: ignore[no-untyped-def]
    return forward_and_backward(forward, [X, {"grad of output": grad}], gradients, list(parameters))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_gradients_are_those_of_autograd_and_nothing_keeps_a_history(mode: type[torch.no_grad]) -> None:
    with mode():
        result = call(lambda x: x * WEIGHT)
    assert list(result) == ["forward", "grad of input 0", "grad of weight"]
    assert torch.equal(result["forward"], X * WEIGHT)
    assert torch.equal(result["grad of input 0"], GRAD * WEIGHT)
    torch.testing.assert_close(result["grad of weight"], (GRAD * X).sum(0))
    assert not any(leaf.requires_grad for leaf in flatten(result)[0])
    assert X.grad is None
    assert WEIGHT.grad is None
    assert not X.requires_grad


def test_what_autograd_can_not_reach_is_none() -> None:
    assert call(lambda x: x.detach() * WEIGHT)["grad of input 0"] is None
    assert call(lambda x: x * WEIGHT.detach())["grad of weight"] is None
    assert call(lambda x: x * WEIGHT, parameters=[None])["grad of weight"] is None
    with_buffer = call(lambda x: x * WEIGHT, parameters=[WEIGHT.detach()])
    assert with_buffer["grad of weight"] is None
    assert with_buffer["grad of input 0"] is not None
    with torch.no_grad():
        nothing = call(torch.no_grad()(lambda x: x * WEIGHT))
    assert nothing["grad of input 0"] is None


def test_outputs_of_another_form_fail_for_their_form_and_not_for_their_gradients() -> None:
    assert call(lambda x: (x * WEIGHT)[:2])["grad of input 0"] is not None
    assert call(lambda x: 3)["forward"] == 3
    kept = object()
    assert call(lambda x: kept)["forward"] is kept


def test_several_outputs_each_have_their_incoming_gradient() -> None:
    gradients = Gradients(inputs=(0,), parameters=(), outputs=(0, 2))
    result = forward_and_backward(
        lambda x: {"a": x * 2, "b": torch.arange(3), "c": x * x},
        [X, {"grad of output": [GRAD, GRAD + 1]}],
        gradients,
        [],
    )
    torch.testing.assert_close(result["grad of input 0"], 2 * GRAD + 2 * X * (GRAD + 1))


def test_the_note_is_made_between_the_passes_of_calls_in_the_block_only() -> None:
    seen: list[str] = []

    class Told(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            seen.append("forward")
            return x * 1

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            seen.append("backward")
            return grad

    with between_passes(lambda: seen.append("between")):
        call(Told.apply)
    call(Told.apply)
    assert seen == ["forward", "between", "backward", "forward", "backward"]


def test_results_are_called_as_readers_know_them() -> None:
    assert readable("output['forward'][1]['mask']") == "output[1]['mask']"
    assert readable("output['grad of norm.weight']: wrong") == "grad of norm.weight: wrong"
    assert readable("output['grad of input 3']") == "grad of input 3"
    assert readable("output[0]['other']") == "output[0]['other']"

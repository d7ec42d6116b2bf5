"""A truth computed some rows at a time is the truth of the whole, or there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch.nn import functional

from harness.referee.problem.truth_by_rows import by_rows

ROWS = 10
X, SQUARE, IMAGE = torch.randn(ROWS, 7), torch.randn(ROWS, ROWS), torch.randn(ROWS, 3, 8, 8)
WEIGHT, KERNEL = torch.randn(7, 5), torch.randn(4, 3, 3, 3)

Reference = Callable[..., torch.Tensor | Sequence[torch.Tensor]]

ALONE: dict[str, tuple[Reference, list[torch.Tensor]]] = {
    "a product with a shared factor": (torch.matmul, [X, WEIGHT]),
    "a convolution": (functional.conv2d, [IMAGE, KERNEL]),
    "a softmax within rows": (lambda x: x.softmax(1), [X]),
    "two outputs": (lambda x: (x.sum(1), x * 2), [X]),
    "infinite values": (lambda x: (x - x.amax(1, keepdim=True)).log(), [X]),
}
MIXED: dict[str, tuple[Reference, list[torch.Tensor]]] = {
    "a softmax over rows": (lambda x: x.softmax(0), [X]),
    "statistics of the batch": (lambda x: functional.batch_norm(x, None, None, training=True), [IMAGE]),
    "a running sum over rows": (lambda x: x.cumsum(0), [X]),
    "a sum over rows": (lambda x: x.sum(0), [X]),
    "a scalar": (lambda x: x.sum(), [X]),
    "rows in another order": (lambda x: x.flip(0), [X]),
    "an output in bfloat16": (lambda x: x.bfloat16(), [X]),
    "no input with rows": (lambda x: x.repeat(2, 1), [X]),
}


def put_together(reference: Reference, inputs: list[torch.Tensor], count: int) -> list[torch.Tensor] | None:
    def call(part: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        out = reference(*(leaf.double() for leaf in part))
        return (out,) if isinstance(out, torch.Tensor) else out

    own = reference(*inputs)
    own = (own,) if isinstance(own, torch.Tensor) else own
    return by_rows(call, inputs, own, count, lambda like: torch.empty(like.shape, dtype=torch.float64))


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("name", ALONE)
def test_rows_that_are_computed_alone_are_put_together(name: str, count: int) -> None:
    reference, inputs = ALONE[name]
    whole = reference(*(leaf.double() for leaf in inputs))
    got = put_together(reference, inputs, count)
    assert got is not None
    for one, other in zip(got, (whole,) if isinstance(whole, torch.Tensor) else whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_depend_on_others_are_refused(name: str) -> None:
    assert put_together(*MIXED[name], count=3) is None


def test_a_factor_with_as_many_rows_is_no_batch() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        put_together(torch.matmul, [SQUARE, SQUARE], count=3)

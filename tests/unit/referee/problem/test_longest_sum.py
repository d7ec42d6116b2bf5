"""How many terms the longest sum of a call has, by operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from harness.referee.problem.longest_sum import LongestSum

X = torch.rand(6, 40)
LABELS = torch.arange(6)

CALLS: dict[str, tuple[Callable[[], object], int]] = {
    "an element-wise operation adds nothing": (lambda: X * 2 + X, 1),
    "a product adds its inner extent": (lambda: X @ X.T, 40),
    "a convolution adds channels times taps": (
        lambda: functional.conv1d(torch.rand(2, 3, 9), torch.rand(4, 3, 5)),
        15,
    ),
    "a sum adds all": (lambda: X.sum(), 240),
    "a mean over a dimension adds that": (lambda: X.mean(1), 40),
    "a softmax adds its dimension": (lambda: X.softmax(0), 6),
    "a running sum adds its dimension": (lambda: X.cumsum(1), 40),
    "a maximum selects": (lambda: X.max(1), 1),
    "cross-entropy adds classes, then rows": (lambda: functional.cross_entropy(X, LABELS), 40),
    "the loss of labels adds one value a row": (lambda: functional.nll_loss(X, LABELS), 6),
    "a row that is not averaged adds nothing": (lambda: functional.nll_loss(X, LABELS, reduction="none"), 1),
    "labels of pixels add one value a pixel": (
        lambda: functional.nll_loss(torch.rand(2, 5, 3, 4), torch.zeros(2, 3, 4, dtype=torch.int64)),
        24,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_longest_sum_is_counted(name: str) -> None:
    call, terms = CALLS[name]
    with LongestSum() as counting:
        call()
    assert counting.terms == terms

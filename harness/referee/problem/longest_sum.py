"""Count the terms of the longest sum that a reference forms.

Trusted side. The error of a float32 sum grows with its terms, so limits on errors do, too
(`correctness/precision.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_SELECTING = {
    *("amax", "amin", "max", "min", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    *("adaptive_max_pool2d", "adaptive_max_pool3d", "median", "mode", "kthvalue", "sort", "topk"),
    *("embedding", "gather", "index", "index_select", "masked_select", "take"),
}
"""Operators that make a smaller tensor, but select values instead of adding them."""


_LABELLED = {"nll_loss_forward", "nll_loss2d_forward"}
"""Operators whose second argument, the labels, selects the values to add."""


class LongestSum(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, records the most terms that any operator adds to one value.

    Attributes:
        terms: The number so far, at least 1.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.terms = 1

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch's compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.terms = max(self.terms, _terms(func, args, kwargs, out))
        return out


def _terms(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Return how many terms an operator adds to one value of its result.

    A product has as many as torch's formula counts flops; a reduction or a normalisation as many as an input has values
    for each value of the smallest result; a softmax or a running sum the extent of its dimension. The loss of labels
    (`nll_loss`) adds one value for each label.
    """
    results = _numbers(out)
    if not results or torch.Tag.pointwise in func.tags or func.is_view:
        return 1
    if (formula := flop_registry.get(func._overloadpacket)) is not None:
        return int(formula(*args, **kwargs, out_val=out)) // (2 * results[0].numel())
    given = _numbers((args, kwargs))
    if not given or func._overloadpacket.__name__ in _SELECTING:
        return 1
    if func._overloadpacket.__name__ in _LABELLED:
        return max(1, int(args[1].numel()) // results[0].numel())
    most, least = max(leaf.numel() for leaf in given), min(leaf.numel() for leaf in results)
    dim = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)).get("dim")
    if least < most or not isinstance(dim, int) or not given[0].dim():
        return max(1, most // least)
    return int(given[0].shape[dim])


def _numbers(tree: Any) -> list[torch.Tensor]:
    """Return the floating-point and complex tensors that have values."""
    leaves = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return [leaf for leaf in leaves if leaf.numel() and (leaf.is_floating_point() or leaf.is_complex())]

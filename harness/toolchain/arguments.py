"""A solution's constructor arguments and inputs, described for the harvest: shapes and dtypes, no values of tensors.

Imports torch and `trees`. `describe` runs on the trusted side, where the values are; `restore` on the untrusted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.protocol.tensor_tree import TreeSpec, flatten, unflatten

MAX_ELEMENTS = 2**24
"""Largest tensor that is made with contents (64 MiB of float32)."""


class TooLarge(Exception):
    """A tensor too large to be made with contents."""


def describe(init_args: Sequence[Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """What `build_solution` takes as `arguments`: `ModelNew(*init_args)` and one call `model(*inputs)`.

    Raises `harness.protocol.tensor_tree.TreeError` where a value is no tree.
    """
    return {"init": _description(tuple(init_args)), "inputs": _description(tuple(inputs))}


def _description(values: tuple[Any, ...]) -> dict[str, Any]:
    leaves, spec = flatten(values)
    return {
        "tree": spec.to_json(),
        "leaves": [[list(leaf.shape), str(leaf.dtype).removeprefix("torch.")] for leaf in leaves],
    }


def restore(description: Mapping[str, Any], device: str) -> tuple[Any, ...]:
    """Values of that description, with zeros in the tensors, on `device` (`meta`, or `cpu`).

    Raises `TooLarge` where a tensor on `cpu` would have more than `MAX_ELEMENTS` elements, and `TreeError`.
    """
    leaves = []
    for shape, dtype in description["leaves"]:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        if device != "meta":
            if tensor.numel() > MAX_ELEMENTS:
                raise TooLarge(f"{tensor.numel()} elements")
            tensor = torch.zeros(shape, dtype=tensor.dtype, device=device)
        leaves.append(tensor)
    values = unflatten(TreeSpec.from_json(description["tree"]), leaves)
    assert isinstance(values, tuple)
    return values

"""Describe a solution's constructor arguments and inputs for the discovery.

The description holds shapes and dtypes, no tensor contents. `describe` runs on the trusted side, `restore` on the
untrusted side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.protocol.tensor_tree import TreeSpec, flatten, unflatten

MAX_ELEMENTS = 2**24
"""Elements of the largest tensor that is created with contents (64 MiB of float32)."""


class TooLarge(Exception):
    """A tensor is too large to be created with contents."""


def describe(init_args: Sequence[Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the `arguments` of `build_solution`.

    Args:
        init_args: The call `ModelNew(*init_args)`.
        inputs: The call `model(*inputs)`.

    Raises:
        TreeError: A value is not a tree of tensors and plain values (`protocol.tensor_tree`).
    """
    return {"init": _description(tuple(init_args)), "inputs": _description(tuple(inputs))}


def _description(values: tuple[Any, ...]) -> dict[str, Any]:
    leaves, spec = flatten(values)
    return {
        "tree": spec.to_json(),
        "leaves": [[list(leaf.shape), str(leaf.dtype).removeprefix("torch.")] for leaf in leaves],
    }


def restore(description: Mapping[str, Any], device: str) -> tuple[Any, ...]:
    """Create values from a description, with zeros in all tensors.

    Args:
        description: One of the two values from `describe`.
        device: `meta` or `cpu`.

    Raises:
        TooLarge: A tensor on `cpu` would exceed `MAX_ELEMENTS`.
        TreeError: The description is invalid.
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

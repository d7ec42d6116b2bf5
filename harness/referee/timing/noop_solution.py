"""Generate a trusted solution that returns unfilled tensors of the right shapes.

It runs in the sandbox like any solution. The cost of its bursts is the cost that every burst has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch

from harness.referee.problem.answer import Traits

_SOURCE = """\
import json

import torch

from harness.protocol.tensor_tree import TreeSpec, unflatten

TREE = TreeSpec.from_json(json.loads({tree!r}))
OUTPUTS = json.loads({outputs!r})
STATE = json.loads({state!r})


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        for name, shape, dtype in STATE:
            place, inner = self, name.split(".")
            for word in inner[:-1]:
                if word not in place._modules:
                    place.add_module(word, torch.nn.Module())
                place = place._modules[word]
            place.register_buffer(inner[-1], torch.zeros(shape, dtype=getattr(torch, dtype)))

    def forward(self, *args):
        return unflatten(TREE, [output(*form) for form in OUTPUTS])


def output(shape, dtype, strides):
    dtype = getattr(torch, dtype)
    if strides is None:
        return torch.empty(shape, dtype=dtype, device="cuda")
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
"""


def source(traits: Traits, state: Mapping[str, torch.Tensor]) -> str:
    """Return the source of the no-op solution for a reference.

    Args:
        traits: Traits of the reference: output tree, shapes, dtypes and strides.
        state: State dict of the reference. The solution gets the entries that calls update, because those are saved and
            restored around each call.

    Returns:
        Python source that defines `ModelNew`, for a GPU or the host device.
    """
    own = [(n, tuple(state[n].shape), str(state[n].dtype).removeprefix("torch.")) for n in traits.updates_state]
    outputs = [
        (shape, str(dtype).removeprefix("torch."), traits.strides.get(number))
        for number, (shape, dtype) in enumerate(zip(traits.shapes, traits.dtypes, strict=True))
    ]
    return _SOURCE.format(tree=json.dumps(traits.tree.to_json()), outputs=json.dumps(outputs), state=json.dumps(own))

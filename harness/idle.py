"""A solution of the harness's own that does nothing: returns fresh tensors of the right form without filling them.

Pure text; run like any solution by a contestant in the sandbox. What its bursts take is what every burst takes.
"""

from __future__ import annotations

import json

from harness.oracle import Traits

_SOURCE = """\
import json

import torch

from harness.trees import TreeSpec, unflatten

TREE = TreeSpec.from_json(json.loads({tree!r}))
OUTPUTS = json.loads({outputs!r})


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()

    def forward(self, *args):
        return unflatten(TREE, [torch.empty(s, dtype=getattr(torch, d), device="cuda") for s, d in OUTPUTS])
"""


def source(traits: Traits) -> str:
    """The solution's text for a reference of these traits; for a GPU or what stands in for it."""
    outputs = [
        (shape, str(dtype).removeprefix("torch.")) for shape, dtype in zip(traits.shapes, traits.dtypes, strict=True)
    ]
    return _SOURCE.format(tree=json.dumps(traits.tree.to_json()), outputs=json.dumps(outputs))

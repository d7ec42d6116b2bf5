"""The harness's own solution returns what a reference returns in form: structure, shape, dtype, and order in memory."""

from __future__ import annotations

from pathlib import Path

import torch

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload, digest_text
from harness.devices.device import open_device
from harness.protocol.tensor_tree import flatten
from harness.referee.problem.loader import load_reference
from harness.referee.problem.truth import Reference
from harness.referee.timing import noop_solution

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {"sum": x.sum(1), "turned": x.t(), "rows": x[1:].expand(3, -1, -1)}

def get_inputs():
    return [torch.rand(4, 6)]

def get_init_inputs():
    return []
"""


def test_its_outputs_have_the_references_form() -> None:
    held = Problem(id="level1/1", name="views", path=Path("1.py"), source=PROBLEM, digest=digest_text(PROBLEM))
    reference = load_reference(held, Workload(name="full"))
    oracle = Reference(reference, open_device(DeviceKind.HOST, 0), 1)
    x = torch.rand(4, 6)
    traits = oracle.try_out([x], 2)
    assert traits.contiguous == (1,)  # by their names
    assert traits.strides == {0: (0, 6, 1), 2: (1, 6)}

    text = noop_solution.source(traits, oracle.initial_state).replace('device="cuda"', 'device="cpu"')
    held_names: dict[str, object] = {}
    exec(compile(text, "idle.py", "exec"), held_names)
    returned = held_names["ModelNew"]()(x)  # type: ignore[operator]
    leaves, tree = flatten(returned)
    assert tree.to_json() == traits.tree.to_json()
    expected = flatten(oracle.forward([x]))[0]
    assert [leaf.shape for leaf in leaves] == [leaf.shape for leaf in expected]
    assert [leaf.stride() for leaf in leaves] == [leaf.stride() for leaf in expected]

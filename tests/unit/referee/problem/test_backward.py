"""Problems that ask for a backward: which gradients there are, incoming ones as inputs, the truth of gradients."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.catalog import load_problems
from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload
from harness.devices.device import open_device
from harness.protocol.messages import Gradients
from harness.protocol.tensor_tree import flatten
from harness.referee.problem.inputs import draw, draw_into
from harness.referee.problem.loader import ProblemError, ReferenceModule, load_reference
from harness.referee.problem.shapes import sketch
from harness.referee.problem.workspace import Workspace
from harness.referee.soundness.linting import lint_problem
from harness.referee.soundness.problem_report import RuleCheck, RuleVerdict

CPU = torch.device("cpu")
SOURCE = """\
import torch

N = 6


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(20) + 0.5)
        self.unused = torch.nn.Parameter(torch.randn(2))
        self.frozen = torch.nn.Parameter(torch.randn(20), requires_grad=False)

    def forward(self, x, numbers, unread):
        return {"y": torch.sin(x) * self.weight * self.frozen, "n": numbers + 1}


def get_inputs():
    return [torch.randn(N, 20), torch.randint(0, 9, (N,)), torch.randn(3)]


def get_init_inputs():
    return []
"""


def problem(*backward: str, source: str = SOURCE) -> Problem:
    return Problem(id="level1/7", name="x", path=Path("7_x.py"), source=source, digest="", backward=backward)


def reference(*backward: str, source: str = SOURCE) -> ReferenceModule:
    return load_reference(problem(*backward, source=source), Workload(name="full"))


def leaves(reference: ReferenceModule, seed: int = 5, **more: Any) -> list[torch.Tensor]:
    return flatten(draw(reference, seed=seed, device=CPU, **more).values)[0]


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        (("inputs",), Gradients(inputs=(0,), parameters=(), outputs=(1,))),
        (("parameters",), Gradients(inputs=(), parameters=("weight",), outputs=(1,))),
        (("inputs", "parameters"), Gradients(inputs=(0,), parameters=("weight",), outputs=(1,))),
    ],
)
def test_what_has_a_gradient_is_found_out(backward: tuple[str, ...], expected: Gradients) -> None:
    held = reference(*backward)
    drawn = draw(held, seed=1, device=CPU).values
    assert held.gradients == expected
    assert drawn[-1]["grad of output"].shape == (6, 20)
    assert len(drawn) == 4


def test_inputs_and_incoming_gradients_follow_from_the_seed_from_the_first_draw_on() -> None:
    held = reference("inputs")
    first, second, other = leaves(held), leaves(held), leaves(held, seed=6)
    assert all(map(torch.equal, first, second))
    assert not torch.equal(first[-1], other[-1])
    assert all(map(torch.equal, first, leaves(reference()) + first[-1:]))
    places = draw(held, seed=9, device=CPU).values
    assert all(map(torch.equal, first, flatten(draw_into(places, held, seed=5, device=CPU).values)[0]))


def test_stress_variants_change_incoming_gradients_too() -> None:
    held = reference("inputs")
    own = leaves(held)
    for variant in ("zero_mean", "large_values", "structured"):
        assert not torch.equal(own[-1], leaves(held, variant=variant)[-1])


def test_a_model_calls_its_backward_and_another_form_of_its_forward_as_well() -> None:
    held = reference("inputs", "parameters")
    values = draw(held, seed=1, device=CPU).values
    model = held.model(3, CPU)
    assert set(model.state_dict()) == {"weight", "unused", "frozen"}
    result = model(*values)
    assert set(result) == {"forward", "grad of input 0", "grad of weight"}
    bare = held.forward_only(model)
    assert set(bare(*values[:-1])) == {"y", "n"}
    again = held.with_backward(bare, model)(*values)
    assert torch.equal(again["grad of weight"], result["grad of weight"])
    assert reference().forward_only(model) is model


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            SOURCE.replace("torch.sin(x)", "torch.sin(x.detach())"),
            "backward by its inputs, but no output depends on a floating-point one",
        ),
        (
            SOURCE.replace("return {", "x.add_(1)\n        return {"),
            "the forward for its backward failed: RuntimeError",
        ),
    ],
    ids=["detached", "in place"],
)
def test_a_forward_without_a_gradient_is_the_problems_fault(source: str, why: str) -> None:
    with pytest.raises(ProblemError, match=why):
        draw(reference("inputs", source=source.replace("rand(20) + 0.5", "rand(20), False")), seed=1, device=CPU)


def test_truth_is_float64_and_names_and_held_memory_are_known() -> None:
    device = open_device(DeviceKind.HOST)
    workspace = Workspace(
        problem("inputs", "parameters"), Workload(name="full"), device, sets_wanted=2, secret=random.Random(1)
    )
    try:
        assert workspace.truth_source == "float64 cpu"
        assert list(workspace.judged(0)) == ["output['n']", "output['y']", "grad of input 0", "grad of weight"]
        assert workspace.gradients is not None
        truth = dict(zip(workspace.judged(0), workspace.expected(workspace.truth(0).answer), strict=True))
        x, *_, grad = workspace.arguments(0)
        frozen, weight = (workspace.oracle.initial_state[name].double() for name in ("frozen", "weight"))
        incoming = grad["grad of output"].double() * frozen  # type: ignore[index]
        torch.testing.assert_close(truth["grad of input 0"], incoming * weight * x.double().cos())  # type: ignore[attr-defined]
        torch.testing.assert_close(truth["grad of weight"], (incoming * x.double().sin()).sum(0))  # type: ignore[attr-defined]
        # sin(x) and both outputs; inputs and parameters are not counted
        assert workspace.traits.held_bytes == 2 * 6 * 20 * 4 + 6 * 8
    finally:
        workspace.close()


def test_shapes_without_data_have_the_gradients() -> None:
    shapes = sketch(problem("inputs", "parameters"), Workload(name="full"))
    assert [leaf.path for leaf in shapes.inputs][-1] == "inputs[3]['grad of output']"
    assert [leaf.path for leaf in shapes.outputs] == ["output['n']", "output['y']", "grad of input 0", "grad of weight"]


def test_lint_detaches_operations() -> None:
    plain = SOURCE.replace("numbers, unread", "numbers").replace(", torch.randn(3)]", "]")
    plain = plain.replace("        self.unused = torch.nn.Parameter(torch.randn(2))\n", "")
    device, full = open_device(DeviceKind.HOST), Workload(name="full")

    def operations(source: str) -> RuleCheck:
        checks = lint_problem(problem("inputs", "parameters", source=source), full, device).checks
        return next(check for check in checks if check.rule == "dropped_operation")

    assert operations(plain).verdict is RuleVerdict.KEPT
    hidden = operations(plain.replace("torch.sin(x)", "(x + 5e-7 * torch.sin(x))"))
    assert hidden.verdict is RuleVerdict.BROKEN
    assert any(detail.startswith("sin detached: is accepted") for detail in hidden.details), hidden.details


@pytest.mark.parametrize("value", ["inputs", "[outputs]", "{inputs: true}", "3"])
def test_a_declaration_of_another_form_is_an_error_of_this_problem(tmp_path: Path, value: str) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1/7_x.py").write_text(SOURCE)
    (tmp_path / "level1/workloads.yaml").write_text(f"format: 1\nproblems:\n  7: {{backward: {value}}}\n")
    catalog = load_problems(tmp_path)
    failure = catalog.unreadable["level1/7"].failure
    assert failure is not None
    assert "backward must be a list of some of inputs, parameters, not" in failure.reason

"""What a model holds past its parameters: told apart from what is moved, and seen when a call changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.protocol.module_state import Attributes, fails_on_gpu, misplaced, refuse_lazy, unmoved

X = torch.ones(2, 8)


class Holding(nn.Module):
    """Holds what it is given as a plain attribute, and calls `use` with it and the input."""

    def __init__(self, held: Any, use: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.own = nn.Linear(8, 8)
        self.held = held
        self.use = use

    def forward(self, x: torch.Tensor) -> Any:
        return self.use(self.held, self.own(x))


@pytest.mark.parametrize(
    ("held", "use", "path", "advice"),
    [
        ([nn.Linear(8, 8)], lambda held, x: held[0](x), "held[0].weight", "make it an nn.ModuleList"),
        ({"a": nn.Linear(8, 8)}, lambda held, x: held["a"](x), "held['a'].weight", "make it an nn.ModuleDict"),
        ((nn.Parameter(torch.ones(8)),), lambda held, x: held[0] * x, "held[0]", "make it an nn.ParameterList"),
        (torch.ones(8), lambda held, x: held * x, "held", 'self.register_buffer("held", …)'),
        ([torch.ones(8)], lambda held, x: held[0] * x, "held[0]", "self.register_buffer(…) for each"),
    ],
)
def test_what_is_not_moved_is_named_with_what_to_do(held: Any, use: Any, path: str, advice: str) -> None:
    said = unmoved(Holding(held, use))
    assert said is not None
    assert said.startswith(f"{path} is not a parameter or buffer of the model and stays on the CPU: {advice}")
    assert "at least two devices" in (fails_on_gpu(Holding(held, use), [X]) or "")


@pytest.mark.parametrize(
    ("held", "use"),
    [
        ([nn.Linear(8, 8)], lambda held, x: held[0].to(x.device)(x)),
        (torch.ones(8), lambda held, x: held.to(x.device) * x),
        ([nn.Linear(8, 8)], lambda held, x: x),
        ([nn.Linear(8, 8)], lambda held, x: x if x.sum().item() > 0 else -x),
    ],
)
def test_who_moves_it_or_does_not_use_it_passes(held: Any, use: Any) -> None:
    assert fails_on_gpu(Holding(held, use), [X]) is None


@pytest.mark.parametrize("held", [3, [nn.ReLU()], torch.tensor(2.0), "text", None, [[[]]]])
def test_what_needs_no_moving_is_not_named(held: Any) -> None:
    assert unmoved(Holding(held, None)) is None  # type: ignore[arg-type]


def test_what_is_registered_too_is_moved() -> None:
    model = Holding(None, None)  # type: ignore[arg-type]
    model.held = [model.own.weight, model.own]
    assert unmoved(model) is None


def test_only_errors_about_devices_are_explained_so() -> None:
    model = Holding(torch.ones(8), None)  # type: ignore[arg-type]
    assert misplaced(model, RuntimeError("Expected all tensors to be on the same device, but found")) is not None
    assert misplaced(model, ValueError("no such thing")) is None
    assert misplaced(None, RuntimeError("Expected all tensors to be on the same device")) is None


def test_attributes_that_change_are_named() -> None:
    model = Holding(1, None)  # type: ignore[arg-type]
    model.table = torch.zeros(3)
    held = Attributes(model)
    assert held.changed() == ()
    model.held = 2
    model.table += 1
    model.own.late = "x"  # type: ignore[assignment]
    assert set(held.changed()) == {"held", "table", "own.late"}
    assert set(held.changed(tensors=False)) == {"held", "own.late"}


def test_what_the_compiler_leaves_at_a_model_is_no_change_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    held = Attributes(model)
    torch.compile(model)
    assert held.changed() == ()


def test_lazy_modules_are_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"1.weight has no shape before the first call .* use fixed sizes"):
        refuse_lazy(nn.Sequential(nn.ReLU(), nn.LazyLinear(3)))
    refuse_lazy(nn.Sequential(nn.Linear(3, 3)))

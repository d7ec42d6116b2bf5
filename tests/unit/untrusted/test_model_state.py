"""State by name: what torch's own tables hold, and no code of the model's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from harness.untrusted.contestant.model_state import HeldState


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Small(), nn.LSTM(2, 2))
        self.again = self.inner
        self.register_buffer("passing", torch.zeros(1), persistent=False)
        self.register_buffer("lasting", torch.zeros(1))
        self.register_parameter("nothing", None)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        self.listed = nn.ParameterList([torch.zeros(1)])
        self.scripted = torch.jit.script(Small())
        self.traced = torch.jit.trace(Small().eval(), torch.zeros(2, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_names_and_values_are_those_of_state_dict() -> None:
    model = Everything()
    held = HeldState(model)
    said = model.state_dict()
    slots = [torch.full_like(value, 7) for value in said.values()]
    assert held.copy_to(list(said), slots) == []
    assert all(torch.equal(slot, value) for slot, value in zip(slots, said.values(), strict=True))
    assert held.copy_to(["passing", "nothing", "inner.0"], [torch.zeros(1)] * 3) == ["passing", "nothing", "inner.0"]


def test_what_changes_is_copied_out_and_put_back() -> None:
    model = Small()
    held = HeldState(model)
    wanted = {"norm.running_mean": torch.full((3,), 2.0), "other": torch.zeros(1)}
    assert held.match(wanted) == (["norm.running_mean"], ["other"])
    assert held.take_over() == ["norm.running_mean"]
    model.norm.running_mean = torch.full((3,), 5.0)  # another tensor under the name
    slot = torch.zeros(3)
    assert held.copy_to(["norm.running_mean", "other"], [slot, torch.zeros(1)]) == ["other"]
    assert slot.tolist() == [5.0] * 3
    held.put_back(["norm.running_mean", "other"])
    assert model.norm.running_mean.tolist() == [2.0] * 3


def test_what_is_not_named_stays_as_the_model_has_made_it() -> None:
    model = Small()
    held = HeldState(model)
    held.match(dict(model.state_dict()))
    with torch.no_grad():
        model.norm.weight.fill_(7)
        model.norm.running_var.fill_(7)
    held.put_back(["norm.running_var"])
    assert model.norm.running_var.tolist() == [1.0] * 3
    assert model.norm.weight.tolist() == [7.0] * 3


def test_state_that_was_made_in_inference_mode_is_taken_over_and_put_back() -> None:
    with torch.inference_mode():
        model = Small()
    held = HeldState(model)
    assert held.match({"norm.running_mean": torch.full((3,), 2.0)}) == (["norm.running_mean"], [])
    assert held.take_over() == ["norm.running_mean"]
    with torch.inference_mode():
        model.norm.running_mean = torch.full((3,), 5.0)
    slot = torch.zeros(3)
    assert held.copy_to(["norm.running_mean"], [slot]) == []
    assert slot.tolist() == [5.0] * 3
    with torch.no_grad():
        held.put_back(["norm.running_mean"])
    assert model.norm.running_mean.tolist() == [2.0] * 3
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("made", [torch.ones(()).expand(3), torch.ones(4), torch.ones(3, device="meta"), None])
def test_what_can_not_be_put_back_is_left_to_whoever_compares(made: torch.Tensor | None) -> None:
    model = Small()
    held = HeldState(model)
    held.match({"norm.running_mean": torch.zeros(3), "norm.running_var": torch.ones(3)})
    model.norm.running_mean = made
    model.norm.running_var.fill_(5)
    held.put_back(["norm.running_mean", "norm.running_var"])
    assert model.norm.running_mean is made
    slot = torch.full((3,), 9.0)
    held.copy_to(["norm.running_mean"], [slot])  # raises nothing
    assert model.norm.running_var.tolist() == [1.0] * 3  # the others all the same


def test_no_code_of_the_model_runs_when_the_state_is_copied() -> None:
    """The clock of a call has stopped by then."""
    asked: list[str] = []

    class Asked(Small):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("state_dict")
            return super().state_dict(*args, **kwargs)

    model = Asked()
    model.norm.register_state_dict_pre_hook(lambda *_: asked.append("hook"))
    held = HeldState(model)
    held.match({"norm.running_mean": torch.zeros(3)})
    assert asked
    asked.clear()
    held.put_back(["norm.running_mean"])
    assert held.copy_to(["norm.running_mean"], [torch.ones(3)]) == []
    assert asked == []


def test_a_subclass_is_no_state() -> None:
    class Lazy(torch.Tensor):
        pass

    model = Small()
    model.norm.running_mean = torch.zeros(3).as_subclass(Lazy)
    assert HeldState(model).copy_to(["norm.running_mean"], [torch.zeros(3)]) == ["norm.running_mean"]


def test_modules_that_hold_each_other_come_to_an_end() -> None:
    model = Small()
    model.norm._modules["back"] = model
    with pytest.raises(ValueError, match="modules"):
        HeldState(model).copy_to(["norm.running_mean"], [torch.zeros(3)])


def test_what_is_no_module_has_no_state() -> None:
    held = HeldState(lambda x: x)
    assert held.match({"a": torch.zeros(1)}) == ([], ["a"])
    assert held.take_over() == []
    held.put_back(["a"])
    assert held.copy_to(["a"], [torch.zeros(1)]) == ["a"]


def test_values_decide_where_names_differ() -> None:
    model = Small()
    names = {"bn.weight": "norm.weight", "bn.running_mean": "norm.running_mean", "bn.running_var": "norm.running_var"}
    wanted = {name: model.state_dict()[own].clone() for name, own in names.items()}
    held = HeldState(model)
    assert held.match(wanted) == ([], [])
    model.norm.running_mean.fill_(4)
    slot = torch.zeros(3)
    assert held.copy_to(["bn.running_mean"], [slot]) == []
    assert slot.tolist() == [4.0] * 3, "zeros like the bias, but its own name decides"
    held.put_back(["bn.running_mean"])
    assert model.norm.running_mean.tolist() == [0.0] * 3
    assert HeldState(model).match({"bn.weight": torch.full((3,), 2.0)}) == ([], ["bn.weight"])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.randn(3), torch.randn(3)
        self.register_buffer("c0", torch.randn(3))


def test_drawn_tensors_are_matched_by_name_and_then_in_order() -> None:
    model = Recurrent()
    wanted = {"h0": torch.randn(3), "c0": torch.randn(3), "h1": torch.randn(3), "lost": torch.randn(3)}
    held = HeldState(model)
    assert held.match(wanted, drawn=list(wanted)) == (["c0", "h0", "h1"], ["lost"])
    assert held.take_over() == ["c0", "h0", "h1"]
    assert torch.equal(model.c0, wanted["c0"])
    assert torch.equal(model.first, wanted["h0"])
    assert torch.equal(model.second, wanted["h1"])
    assert HeldState(Recurrent()).match(wanted)[1] == ["h0", "h1", "lost"], "parameters are not matched in order"

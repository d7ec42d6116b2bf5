"""Inputs: seeds, devices, filling the referee's buffers in place, and what can't be an input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.problem import Problem, Workload
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.problem.inputs import draw, draw_into
from harness.referee.problem.loader import ProblemError, ReferenceModule, load_reference

CPU = torch.device("cpu")

HEAD = """\
import random

import numpy as np
import torch

N = 6


class Model(torch.nn.Module):
    def forward(self, *inputs):
        return inputs[0]


def get_init_inputs():
    return []


"""

MIXED = """\
def get_inputs():
    x = torch.rand(N, 20)
    return [x, torch.randn(N, 20), torch.randint(0, 9, (N,)), torch.randint(3, 5, (N, 2), dtype=torch.int32), 2.5,
            {"mask": torch.rand(N, 20) > 0.5, "list": [torch.rand(3), None]}]
"""


def reference(body: str) -> ReferenceModule:
    source = HEAD + body
    problem = Problem(id="level1/7", name="x", path=Path("7_x.py"), source=source, digest="")
    return load_reference(problem, Workload(name="full"))


def returning(expression: str, before: str = "pass") -> ReferenceModule:
    return reference(f"def get_inputs():\n    {before}\n    return {expression}\n")


def places_like(values: list[Any]) -> list[Any]:
    """A tree of waiting tensors, filled with a value that no draw gives."""
    leaves, spec = flatten(values)
    waiting: list[Any] = unflatten(spec, [torch.empty_like(leaf).contiguous().fill_(1) for leaf in leaves])
    return waiting


def same(a: list[Any], b: list[Any]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(flatten(a)[0], flatten(b)[0], strict=True))


def test_the_seed_decides() -> None:
    held = reference(MIXED)
    first = draw(held, seed=2**61 + 5, device=CPU)
    torch.rand(3)
    assert same(first.values, draw(held, seed=2**61 + 5, device=CPU).values)
    assert not same(first.values, draw(held, seed=6, device=CPU).values)
    assert first.drawn_on == "device"
    assert first.labels == ()
    assert first.values[4] == 2.5
    assert first.values[2].dtype is torch.int64


def test_own_values_are_those_of_torch_under_the_seed() -> None:
    torch.manual_seed(11)
    expected = torch.rand(6, 20)
    assert torch.equal(draw(returning("[torch.rand(N, 20)]"), seed=11, device=CPU).values[0], expected)


def test_other_generators_are_seeded_too() -> None:
    held = returning("[torch.from_numpy(np.random.rand(4)), torch.tensor([random.random()])]")
    assert same(draw(held, seed=3, device=CPU).values, draw(held, seed=3, device=CPU).values)


@pytest.mark.parametrize("variant", ["own", "zero_mean", "large_values", "structured"])
def test_drawing_into_places_gives_the_same_values(variant: str) -> None:
    held = reference(MIXED)
    fresh = draw(held, seed=9, variant=variant, device=CPU)
    targets = places_like(fresh.values)
    filled = draw_into(targets, held, seed=9, variant=variant, device=CPU)
    assert same(filled.values, fresh.values)
    assert filled.labels == fresh.labels
    assert (filled.drawn_on, filled.variant) == ("device", variant)
    for target, value in zip(flatten(targets)[0], flatten(filled.values)[0], strict=True):
        assert target.data_ptr() == value.data_ptr()


def test_random_draws_go_straight_into_their_places() -> None:
    """The usual `get_inputs` hands out the places themselves, so that nothing is drawn twice or copied."""
    held = reference(
        "SEEN = []\n\n\ndef get_inputs():\n"
        "    a, b, c = torch.rand(N, 20), torch.randn(N, 20, requires_grad=True), torch.randint(0, 9, (N,))\n"
        "    d = torch.rand(N, 20, dtype=torch.float64)\n"
        "    SEEN[:] = [t.data_ptr() for t in (a, b, c, d)]\n    return [a, b, c, d]\n"
    )
    fresh = draw(held, seed=1, device=CPU)
    assert not any(value.requires_grad for value in fresh.values)
    targets = places_like(fresh.values)
    filled = draw_into(targets, held, seed=1, device=CPU)
    assert held.sizes["SEEN"] == [target.data_ptr() for target in targets]
    assert same(filled.values, fresh.values)
    assert not any(target.requires_grad for target in targets)


@pytest.mark.parametrize(
    "body",
    [
        "    t = torch.rand(N, N)\n    return [torch.tril(t), t]\n",
        "    t = torch.rand(N, N)\n    return [t.T, torch.rand(N, N)]\n",
        "    t = torch.rand(N, N)\n    u = torch.rand(N, N)\n    return [u, t]\n",
        "    t = torch.rand(N, N)\n    return [t, t]\n",
        "    t = torch.rand(N, N)\n    return [t[0], t[:, 1]]\n",
        "    t = torch.rand(N, 1)\n    return [t.expand(N, N), torch.rand(N)]\n",
        "    t = torch.rand(N) * 2 - 1\n    return [t, torch.rand(N).abs()]\n",
        "    t = torch.empty(N).uniform_()\n    return [t, torch.arange(N), torch.zeros(N, dtype=torch.bool)]\n",
        "    t = torch.rand(N, generator=torch.Generator().manual_seed(3))\n    return [t]\n",
        "    return [torch.rand(2 * N)[::2], torch.rand(N)]\n",
        "    return (torch.nn.Parameter(torch.rand(N)), torch.rand(N))\n",
    ],
)
def test_awkward_functions_fill_the_places_all_the_same(body: str) -> None:
    held = reference("def get_inputs():\n" + body)
    fresh = draw(held, seed=4, device=CPU)
    targets = places_like(fresh.values)
    filled = draw_into(targets, held, seed=4, device=CPU)
    assert same(targets, fresh.values)
    assert same(filled.values, fresh.values)
    assert filled.labels == fresh.labels
    leaves = flatten(fresh.values)[0]
    assert all(leaf.is_contiguous() for leaf in leaves)
    assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == len(leaves)


def test_strides_that_are_lost_are_labelled() -> None:
    assert draw(returning("[torch.rand(N, 4).T]"), seed=1, device=CPU).labels == ("inputs[0]: made contiguous",)


def test_where_it_was_drawn_is_said() -> None:
    """The meta device stands for one that `get_inputs` was not made for."""
    meta = torch.device("meta")
    assert draw(returning("[torch.rand(N)]"), seed=1, device=meta).drawn_on == "device"
    refusing = returning("[torch.rand(N)]", before="torch.rand(1).numpy()")
    drawn = draw(refusing, seed=1, device=meta)
    assert drawn.drawn_on == "cpu"
    assert drawn.values[0].device == meta
    explicit = returning("[torch.rand(N, device='cpu')]")
    assert draw(explicit, seed=1, device=meta).drawn_on == "cpu"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("torch.rand(N)", "get_inputs returns a Tensor, not a list"),
        ("{'x': torch.rand(N)}", "returns a dict, not a list"),
        ("[torch.rand(N), {1, 2}]", r"a builtins.set at inputs\[1\]"),
        ("[torch.rand(N).to_sparse()]", r"inputs\[0\] is not a dense tensor"),
        ("[1 / 0]", "get_inputs failed: ZeroDivisionError"),
        ("exit(0)", "get_inputs failed: SystemExit"),
    ],
)
def test_what_can_not_be_an_input_is_the_problems_fault(expression: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        draw(returning(expression), seed=1, device=CPU)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("[torch.rand(N + 1)]", r"torch.float32 \(7,\) as inputs\[0\], but torch.float32 \(6,\) before"),
        ("[torch.rand(N).double()]", "torch.float64"),
        ("[torch.rand(N), torch.rand(N)]", "returned 2 tensors, but 1 before"),
    ],
)
def test_inputs_that_change_their_form_are_the_problems_fault(expression: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        draw_into([torch.zeros(6)], returning(expression), seed=1, device=CPU)


def test_an_unknown_variant_is_refused_before_anything_is_drawn() -> None:
    held = returning("[torch.rand(N)]", before="raise RuntimeError")
    with pytest.raises(ValueError, match="unknown input variant"):
        draw(held, seed=1, variant="odd", device=CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["own", "zero_mean", "large_values", "structured"])
def test_on_a_gpu_the_values_repeat_and_need_no_second_copy(variant: str) -> None:
    device = torch.device("cuda")
    held = returning("[torch.rand(4096, 4096), torch.rand(4096, 4096)]")
    fresh = draw(held, seed=5, variant=variant, device=device)
    assert fresh.drawn_on == "device"
    targets = [torch.empty_like(value) for value in fresh.values]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    draw_into(targets, held, seed=5, variant=variant, device=device)
    assert torch.cuda.max_memory_allocated() - before < targets[0].nbytes / 2
    assert same(targets, fresh.values)


@pytest.mark.gpu
def test_on_a_gpu_functions_made_for_the_cpu_are_drawn_there() -> None:
    drawn = draw(returning("[torch.from_numpy(np.random.rand(4))]"), seed=5, device=torch.device("cuda"))
    assert drawn.drawn_on == "cpu"
    assert drawn.values[0].is_cuda

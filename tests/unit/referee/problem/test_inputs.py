"""Inputs: seeds, devices, filling the referee's buffers in place, and what can't be an input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.problem import Problem, Workload
from harness.devices.layout import copied, unexpanded
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
    places = [copied(leaf) for leaf in leaves]
    for place in places:
        unexpanded(place).fill_(1)
    waiting: list[Any] = unflatten(spec, places)
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
    assert [leaf.stride() for leaf in leaves] == [leaf.stride() for leaf in flatten(list(held.get_inputs()))[0]]
    assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == len(leaves)


LAYOUTS = {
    "transposed": "torch.rand(N, 40).T",
    "channels last": "torch.rand(2, 8, N, N).to(memory_format=torch.channels_last)",
    "with gaps": "torch.rand(N, 80)[:, ::2]",
    "a column": "torch.rand(40, N)[:, 2]",
    "expanded": "torch.rand(N, 1).expand(N, 40)",
    "expanded within": "torch.rand(N, 1, 40).expand(N, 3, 40).transpose(0, 2)",
    "one row": "torch.rand(1, 40).T",
}


@pytest.mark.parametrize("variant", ["own", "zero_mean", "large_values", "structured"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_are_those_of_the_problem_in_every_variant(layout: str, variant: str) -> None:
    held = returning(f"[{LAYOUTS[layout]}, torch.rand(N)]")
    (given, _) = held.get_inputs()
    fresh = draw(held, seed=5, variant=variant, device=CPU)
    targets = places_like(fresh.values)
    filled = draw_into(targets, held, seed=5, variant=variant, device=CPU)
    assert fresh.values[0].stride() == targets[0].stride() == given.stride()
    assert same(filled.values, fresh.values)
    assert filled.labels == fresh.labels
    if variant == "own":
        torch.manual_seed(5)
        assert torch.equal(fresh.values[0], held.get_inputs()[0])


@pytest.mark.parametrize("variant", ["zero_mean", "large_values", "structured"])
def test_a_variant_has_the_same_values_in_any_layout(variant: str) -> None:
    plain = draw(returning("[torch.rand(N, 4000)]"), seed=3, variant=variant, device=CPU).values[0]
    gaps = "torch.stack([t, t], dim=1).permute(0, 2, 1)[..., 0]"
    held = returning(f"[{gaps}]", before="t = torch.rand(N, 4000)")
    other = draw(held, seed=3, variant=variant, device=CPU).values[0]
    assert not other.is_contiguous()
    torch.testing.assert_close(other, plain, rtol=1e-6, atol=1e-6)  # the mean is summed in another order


def test_transposed_draws_go_straight_into_their_places() -> None:
    held = reference(
        "SEEN = []\n\n\ndef get_inputs():\n    t = torch.rand(N, 20)\n    SEEN[:] = [t.data_ptr()]\n    return [t.T]\n"
    )
    targets = places_like(draw(held, seed=1, device=CPU).values)
    draw_into(targets, held, seed=1, device=CPU)
    assert held.sizes["SEEN"] == [targets[0].data_ptr()]


def test_overlapping_elements_are_made_contiguous_and_labelled() -> None:
    drawn = draw(returning("[torch.rand(40).unfold(0, 8, 4)]"), seed=1, device=CPU)
    assert drawn.labels == ("inputs[0]: made contiguous, because its elements overlap",)
    assert drawn.values[0].is_contiguous()


def test_a_tensor_that_is_expanded_in_some_draws_only_is_the_problem_s_fault() -> None:
    held = reference(
        "COUNT = [0]\n\n\ndef get_inputs():\n    COUNT[0] += 1\n"
        "    return [torch.rand(N, 1).expand(N, 9) if COUNT[0] == 1 else torch.rand(N, 9)]\n"
    )
    targets = places_like(draw(held, seed=1, device=CPU).values)
    with pytest.raises(ProblemError, match=r"expanded inputs\[0\] in another way"):
        draw_into(targets, held, seed=1, device=CPU)


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.float16", "torch.complex64", "torch.int64", "torch.bool"])
def test_memory_that_nothing_writes_has_a_fixed_value(dtype: str) -> None:
    held = returning(f"[torch.empty(N, dtype={dtype}), torch.empty_like(torch.rand(N)), torch.rand(N).new_empty(N)]")
    drawn = draw(held, seed=1, device=CPU).values
    real = drawn[0].is_floating_point() or drawn[0].is_complex()
    assert bool(drawn[0].isnan().all() if real else (drawn[0] == 0).all())
    assert all(bool(value.isnan().all()) for value in drawn[1:])


NAMED = [
    "torch.rand(N, device='cuda')",
    "torch.rand(N).cuda()",
    "torch.rand(N).to('cuda:0', torch.float64)",
    "torch.rand(N).to(device=torch.device('cuda'))",
    "torch.tensor([1.0, 2.0], device='cuda')",
    "torch.rand(N).new_zeros(3, device='cuda')",
    "torch.nn.Linear(3, 4).cuda().weight",
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize("expression", NAMED)
def test_tensors_of_a_gpu_that_is_not_there_are_on_the_cpu(expression: str) -> None:
    held = returning(f"[{expression}]")
    assert held.moves is not None
    assert not held.moves.moved
    assert draw(held, seed=1, device=CPU).values[0].device == CPU
    assert held.moves.moved


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

"""The shipped problems: complete declarations, KernelBench's shapes at `full`, sound references at `small`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.catalog import Catalog, load_problems
from harness.catalog.problems import read_yaml
from harness.inputs import draw
from harness.model import Problem
from harness.reference import ReferenceModule, load_reference
from harness.trees import flatten, unflatten

ROOT = Path(__file__).parents[1] / "problems"
CPU = torch.device("cpu")

MAX_SMALL_ELEMENTS = 200_000
"""Most values in one input at `small`; checked execution on the CPU looks at every access."""

MAX_SMALL_FLOPS = 20e6
"""Most work at `small`: under a second of checked execution."""

FULL_SHAPES = {
    "level1/1": [(4096, 4096), (4096, 4096)],
    "level1/4": [(2048, 1048576), (1048576, 1)],
    "level1/6": [(256, 524288), (524288, 256)],
    "level1/16": [(8192, 2048), (8192, 4096)],
    "level1/17": [(2048, 8192), (4096, 8192)],
    "level1/19": [(4096, 393216)],
    "level1/23": [(4096, 393216)],
    "level1/33": [(64, 64, 512, 512)],
    "level1/36": [(112, 64, 512, 512)],
    "level1/40": [(16, 64, 256, 256)],
    "level1/47": [(128, 4096, 4095)],
    "level1/89": [(32768, 32768)],
    "level1/95": [(32768, 4096), (32768,)],
}

CATALOG: Catalog = load_problems(ROOT)


@pytest.fixture(params=list(CATALOG))
def problem(request: pytest.FixtureRequest) -> Problem:
    return CATALOG[request.param]


@pytest.fixture
def small(problem: Problem) -> ReferenceModule:
    return load_reference(problem, problem.workloads["small"])


def answer(reference: ReferenceModule, values: list[Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        return [leaf.clone() for leaf in flatten(reference.model(1, CPU)(*values))[0]]


def copied(values: list[Any]) -> list[Any]:
    leaves, spec = flatten(values)
    held: list[Any] = unflatten(spec, [leaf.clone() for leaf in leaves])
    return held


def test_the_table_of_shapes_names_every_problem() -> None:
    assert sorted(FULL_SHAPES) == sorted(CATALOG)


def test_the_declaration_is_complete(problem: Problem) -> None:
    entry = read_yaml(problem.path.parent / "workloads.yaml")["problems"][int(problem.id.partition("/")[2])]
    assert {"precision", "workloads", "inputs"} <= set(entry)
    assert entry["workloads"]["full"] == {}
    assert entry["workloads"]["small"]
    assert set(problem.workloads) >= {"full", "small"}


def test_full_sizes_are_those_of_kernelbench(problem: Problem) -> None:
    reference = load_reference(problem, problem.workloads["full"])
    drawn = draw(reference, seed=1, device=torch.device("meta"))
    assert drawn.drawn_on == "device", "the inputs can be drawn where they are needed"
    assert [tuple(leaf.shape) for leaf in flatten(drawn.values)[0]] == FULL_SHAPES[problem.id]


def test_small_is_small_and_awkward(problem: Problem, small: ReferenceModule) -> None:
    leaves = flatten(draw(small, seed=1, device=CPU).values)[0]
    assert max(leaf.numel() for leaf in leaves) <= MAX_SMALL_ELEMENTS
    extents = {extent for leaf in leaves for extent in leaf.shape}
    assert any(extent % 16 for extent in extents - {1})
    model = small.model(1, CPU)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*draw(small, seed=1, device=CPU).values)
    assert counter.get_total_flops() <= MAX_SMALL_FLOPS


def test_the_reference_repeats_itself_and_is_finite(problem: Problem, small: ReferenceModule) -> None:
    for variant in ("own", *problem.rules.variants):
        for seed in (2, 3):
            drawn = draw(small, seed=seed, variant=variant, device=CPU)
            first = answer(small, copied(drawn.values))
            assert first
            assert all(bool(torch.isfinite(leaf).all()) for leaf in first)
            again = answer(small, copied(drawn.values))
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_every_variant_is_another_input(problem: Problem, small: ReferenceModule) -> None:
    own = flatten(draw(small, seed=4, device=CPU).values)[0]
    for variant in problem.rules.variants:
        changed = draw(small, seed=4, variant=variant, device=CPU)
        assert not any("left as drawn" in label for label in changed.labels)
        pairs = zip(own, flatten(changed.values)[0], strict=True)
        assert all(torch.equal(a, b) != a.is_floating_point() for a, b in pairs)


def test_every_input_moves_the_output(problem: Problem, small: ReferenceModule) -> None:
    values = draw(small, seed=5, variant="zero_mean", device=CPU).values
    before = answer(small, copied(values))
    others = flatten(draw(small, seed=6, variant="zero_mean", device=CPU).values)[0]
    leaves, spec = flatten(values)
    for i, other in enumerate(others):
        after = answer(small, copied(unflatten(spec, [*leaves[:i], other, *leaves[i + 1 :]])))
        assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_reference_leaves_its_inputs_alone(small: ReferenceModule) -> None:
    values = draw(small, seed=7, device=CPU).values
    before = copied(values)
    answer(small, values)
    assert all(torch.equal(a, b) for a, b in zip(flatten(before)[0], flatten(values)[0], strict=True))

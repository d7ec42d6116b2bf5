"""The shipped problems: how many, complete declarations, sensible sizes, and at `small` references that are sound and
tell right answers from wrong ones. `harness problems lint` looks deeper, and on a GPU at full size."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from harness.catalog import Catalog, load_problems
from harness.catalog.problems import read_yaml
from harness.catalog.sizes import evaluate
from harness.core.choices import PrecisionClass
from harness.core.problem import Problem
from harness.protocol.tensor_tree import TreeSpec, flatten, unflatten
from harness.referee.correctness.precision import class_limits
from harness.referee.correctness.tolerance import LongSum, compare, judge, limits_for
from harness.referee.problem.choices import Choices, IndexChoice
from harness.referee.problem.codes import CodeChoice
from harness.referee.problem.inputs import draw
from harness.referee.problem.loader import ReferenceModule, load_reference
from harness.referee.problem.longest_sum import LongestSum
from harness.referee.problem.shapes import sketch
from tests.support.paths import ROOT

ROOT = ROOT / "problems"
CPU = torch.device("cpu")

MAX_SMALL_ELEMENTS = 200_000
"""Most values in one input at `small`; checked execution on the CPU looks at every access."""

MAX_SMALL_FLOPS = 3e6
"""Most work in products and convolutions at `small`: under a second of checked execution."""

MAX_FULL_BYTES = 9 * 2**30
"""Most bytes of inputs at any size: several sets of inputs, the outputs and float64 copies share a GPU."""

ROOM = 4.0
"""How far within its class's limits the float32 reference stays."""

KERNELBENCH_SHAPES = {
    "level1/1": [(4096, 4096), (4096, 4096)],
    "level1/4": [(2048, 1048576), (1048576, 1)],
    "level1/6": [(256, 524288), (524288, 256)],
    "level1/16": [(8192, 2048), (8192, 4096)],
    "level1/17": [(2048, 8192), (4096, 8192)],
    "level1/19": [(4096, 393216)],
    "level1/23": [(4096, 393216)],
    "level1/33": [(64, 64, 512, 512)],
    "level1/40": [(16, 64, 256, 256)],
    "level1/47": [(128, 4096, 4095)],
    "level1/89": [(32768, 32768)],
    "level1/95": [(32768, 4096), (32768,)],
}
"""Problems that keep KernelBench's sizes; the others have sizes of their own."""

CATALOG: Catalog = load_problems(ROOT)
IDS = list(CATALOG)

Leaves = list[torch.Tensor]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are small: more threads would cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=IDS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return CATALOG[request.param]


@functools.lru_cache(maxsize=2)
def small(key: str) -> ReferenceModule:
    return load_reference(CATALOG[key], CATALOG[key].workloads["small"])


@functools.cache
def declarations(level: str) -> dict[int, Any]:
    held: dict[int, Any] = read_yaml(ROOT / level / "workloads.yaml")["problems"]
    return held


def drawn(problem: Problem, seed: int, variant: str = "own") -> tuple[Leaves, TreeSpec]:
    return flatten(draw(small(problem.id), seed=seed, variant=variant, device=CPU).values)


def answer(model: torch.nn.Module, leaves: Leaves, spec: TreeSpec) -> Leaves:
    """The outputs on copies of these inputs, and what else the call changed of the model, copied."""
    torch.manual_seed(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        outputs = flatten(model(*unflatten(spec, [leaf.clone() for leaf in leaves])))[0]
    changed = [value for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    return [leaf.clone() for leaf in (*outputs, *changed)]


def truth(problem: Problem, leaves: Leaves, spec: TreeSpec) -> tuple[Leaves, dict[int, IndexChoice | CodeChoice]]:
    """The outputs in float64, with the values that indices point to in their place, and the choices among them."""
    doubled = [leaf.double() if leaf.is_floating_point() else leaf.clone() for leaf in leaves]
    # made before the default dtype changes: random weights would be others in float64
    model, again = (small(problem.id).model(1, CPU).double() for _ in range(2))
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), Choices() as choosing:
            choices = choosing.of(flatten(model(*unflatten(spec, doubled)))[0])
        exact = answer(again, doubled, spec)
    finally:
        torch.set_default_dtype(torch.float32)
    return pointed(exact, choices), choices


def pointed(leaves: Leaves, choices: dict[int, IndexChoice | CodeChoice]) -> Leaves:
    return [choices[number].pointed(leaf) if number in choices else leaf for number, leaf in enumerate(leaves)]


def equal(a: Leaves, b: Leaves) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_there_are_enough_of_every_level_and_numbers_above_a_hundred_are_our_own() -> None:
    count = {level: sum(key.startswith(f"{level}/") for key in IDS) for level in CATALOG.levels}
    assert count["level1"] >= 60
    assert count["level2"] >= 30
    assert count["level3"] >= 10
    assert count["backward"] >= 30
    assert all(int(key.rpartition("/")[2]) > 100 for key in IDS if key.startswith(("level2/", "level3/")))


def test_the_declaration_is_complete(problem: Problem) -> None:
    level, _, number = problem.id.partition("/")
    entry = declarations(level)[int(number)]
    assert {"precision", "workloads", "inputs"} <= set(entry)
    assert entry["workloads"]["full"] == {}
    assert entry["workloads"]["small"]
    assert set(problem.workloads) <= {"full", "small", "odd", "half"}
    has_convolution = re.search(r"nn\.Conv", problem.source) is not None
    own = PrecisionClass.TF32 if has_convolution else PrecisionClass.FP32
    if problem.precision is not own:  # a product of 16-bit operands
        assert {PrecisionClass.FP16: "(torch.float16)", PrecisionClass.BF16: "(torch.bfloat16)"}[
            problem.precision
        ] in problem.source.partition("def get_inputs")[2].replace(".half()", ".to(torch.float16)")
    if "half" in problem.workloads:
        assert problem.workloads["half"].sizes == {"dtype": "bfloat16"}
        assert problem.workloads["half"].precision is PrecisionClass.BF16


def test_sizes_of_every_workload_are_what_they_are_for(problem: Problem) -> None:
    """Every workload runs, large ones on tensors without data."""
    made = {name: sketch(problem, workload) for name, workload in problem.workloads.items()}
    assert made["full"].input_bytes <= MAX_FULL_BYTES
    assert max(torch.Size(leaf.shape).numel() for leaf in made["small"].inputs) <= MAX_SMALL_ELEMENTS
    assert made["small"].flops <= MAX_SMALL_FLOPS
    extents = {extent for leaf in made["small"].inputs for extent in leaf.shape if extent > 16}
    assert all(extent & (extent - 1) for extent in extents if problem.id != "level1/4"), "a power of two fits tiles"
    if "odd" in made:
        shapes = [{extent for leaf in made[name].inputs for extent in leaf.shape} for name in ("full", "odd")]
        assert shapes[0].isdisjoint(extent for extent in shapes[1] if extent > 64)
    if "half" in made:
        kinds = {leaf.dtype for leaf in (*made["half"].inputs, *made["half"].outputs)}
        assert "bfloat16" in kinds
        assert "float32" not in kinds
    if problem.id in KERNELBENCH_SHAPES:
        assert [leaf.shape for leaf in made["full"].inputs] == KERNELBENCH_SHAPES[problem.id]


ONE_PASS = [
    ("level1/35", "features // num_groups * dim1 * dim2", 32768),
    ("level1/40", "features * dim1 * dim2", 8192),
    ("level1/89", "length", 4096),
    ("level1/91", "length", 4096),
    ("level1/95", "num_classes", 1024),
    ("level1/101", "M", 256),
    ("level1/111", "columns", 256),
    ("level1/111", "added", 2048),
    ("level2/137", "length", 128),
    ("level2/137", "head_dim", 32),
]
"""What a block of the tuned or example solution takes at a time."""


@pytest.mark.parametrize(("key", "extent", "one_pass"), ONE_PASS)
def test_a_small_size_takes_more_than_one_pass(key: str, extent: str, one_pass: int) -> None:
    """Otherwise loops run once, and no wrong step, missing barrier between passes or lost total is noticed."""
    assert evaluate(extent, CATALOG[key].workloads["small"].sizes) > one_pass


def test_the_reference_is_sound_on_every_variant(problem: Problem) -> None:
    """It repeats itself, is finite, leaves its inputs alone, and float32 reaches the class with room."""
    model = small(problem.id).model(1, CPU)
    own, _ = drawn(problem, 2)
    for variant in ("own", *problem.rules.variants):
        leaves, spec = drawn(problem, 2, variant)
        if variant != "own":
            assert not equal(leaves, own), f"{variant} changes no input"
        before = [leaf.clone() for leaf in leaves]
        got = answer(model, leaves, spec)
        assert equal(leaves, before)
        assert equal(got, answer(small(problem.id).model(1, CPU), leaves, spec))
        assert all(bool(torch.isfinite(leaf.double()).all()) for leaf in got if leaf.is_floating_point())
        with LongestSum() as counting:
            answer(model, leaves, spec)
        longest = LongSum(terms=counting.terms, alike=variant in ("large_values", "structured"))
        right, choices = truth(problem, leaves, spec)
        for output, exact in zip(pointed(got, choices), right, strict=True):
            error = compare(output, exact)
            limits = class_limits(problem.precision, longest=longest)
            if error.exact:
                assert error.wrong == 0, "integers must not hang on rounding"
            else:
                assert error.rms_error is not None
                assert error.max_error is not None
                assert max(error.rms_error / limits.rms, error.max_error / limits.max) <= 1 / ROOM
        model = small(problem.id).model(1, CPU)


WRONG: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None]] = {
    "zeros": lambda got, other: torch.zeros_like(got),
    "constant": lambda got, other: _constant(got) if got.numel() > 1 else None,
    "half written": lambda got, other: _half(got) if got.numel() > 1 else None,
    "of another seed": lambda got, other: other,
    "shifted by one": lambda got, other: got.roll(1, -1) if got.dim() and got.shape[-1] > 1 else None,
}


def _constant(got: torch.Tensor) -> torch.Tensor:
    middle = got.double().mean()
    return torch.full_like(got, float(middle if got.is_floating_point() else middle.round()))


def _half(got: torch.Tensor) -> torch.Tensor:
    cut = got.clone(memory_format=torch.contiguous_format)
    cut.view(-1)[got.numel() // 2 :] = 0
    return cut


def test_wrong_answers_are_rejected(problem: Problem) -> None:
    """Each output alone being wrong is noticed, on the problem's own inputs already."""
    leaves, spec = drawn(problem, 3)
    got, others = (answer(small(problem.id).model(1, CPU), held, spec) for held in (leaves, drawn(problem, 4)[0]))
    exact, choices = truth(problem, leaves, spec)
    references = [compare(output, right) for output, right in zip(pointed(got, choices), exact, strict=True)]
    limits = [limits_for(problem.precision, reference) for reference in references]
    outputs = len(sketch(problem, problem.workloads["small"]).outputs)

    def accepted(answers: Leaves) -> bool:
        compared = [
            compare(a, t, reference=own if a.dtype is own.dtype else None, limits=limit)
            for a, t, own, limit in zip(pointed(answers, choices), exact, got, limits, strict=True)
        ]
        return judge(compared, problem.precision, references=references).failure is None

    assert accepted(got)
    for what, spoil in WRONG.items():
        for i in range(outputs):
            wrong = spoil(got[i], others[i])
            if wrong is not None:
                assert not accepted([*got[:i], wrong, *got[i + 1 :]]), f"output {i}, {what}"


def test_every_input_and_parameter_moves_the_output(problem: Problem) -> None:
    leaves, spec = drawn(problem, 5)
    others, _ = drawn(problem, 6)
    model = small(problem.id).model(1, CPU)
    before = answer(model, leaves, spec)
    for i, other in enumerate(others):
        after = answer(small(problem.id).model(1, CPU), [*leaves[:i], other, *leaves[i + 1 :]], spec)
        assert _moved(before, after), f"input {i}"
    for name, _ in model.named_parameters():
        changed = small(problem.id).model(1, CPU)
        held: Any = dict(changed.named_parameters())[name]
        assert held.numel() == 1 or float(held.detach().float().std()) > 0, f"{name} is the same everywhere"
        with torch.no_grad():
            held.mul_(1.25).add_(0.01)
        assert _moved(before, answer(changed, leaves, spec)), name


def _moved(before: Leaves, after: Leaves) -> bool:
    """Whether some output changed by far more than rounding."""
    pairs = [(a.double(), b.double()) for a, b in zip(before, after, strict=True)]
    return any(float((a - b).square().mean()) > 1e-6 * float(a.square().mean()) for a, b in pairs)


@pytest.mark.parametrize("variant", ["own", "zero_mean"])
def test_the_triplet_loss_hangs_on_many_rows_in_every_draw(variant: str) -> None:
    """One that hangs on a few rows close to the margin is rounding: honest sums in another order would be wrong now and
    then. One of no row at all is zero, which is no computation."""
    reference = small("level1/99")
    for seed in range(40):
        anchor, positive, negative = draw(reference, seed=seed, variant=variant, device=CPU).values
        excess = (anchor - positive).norm(dim=1) - (anchor - negative).norm(dim=1) + 1.0
        assert 0.2 < float((excess > 0).double().mean()) < 0.9, seed

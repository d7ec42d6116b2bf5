"""The example solutions: complete, of every kind that was promised, constructed like the references they answer.

Compiling and running them is the pipeline's test; here `load_inline` only notes what it was asked for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.catalog import find_authors, find_solutions, load_problems
from harness.core.problem import Solution
from harness.referee.problem.inputs import draw
from harness.referee.problem.loader import ReferenceModule, load_reference
from tests.support.paths import ROOT

HERE = ROOT
CPU = torch.device("cpu")
CATALOG = load_problems(HERE / "problems")
EXAMPLES = {held.label: held for held in find_solutions([HERE / "solutions" / "examples"], CATALOG)}
TORCH_ONLY = [label for label, held in EXAMPLES.items() if "load_inline" not in held.source]


def build_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", lambda **request: calls.append(request))
    return calls


def constructed(solution: Solution) -> tuple[torch.nn.Module, ReferenceModule]:
    reference = load_reference(CATALOG[solution.problem_id], CATALOG[solution.problem_id].workloads["small"])
    space: dict[str, Any] = {"__name__": "solution"}
    exec(compile(solution.source, solution.label, "exec"), space)
    return space["ModelNew"](*reference.init_inputs()), reference


def test_the_problems_of_the_examples_have_a_solution_that_is_not_broken() -> None:
    sound = {held.problem_id for held in EXAMPLES.values() if held.author != "broken"}
    assert sound == {f"level1/{number}" for number in (1, 4, 6, 16, 17, 19, 23, 33, 36, 40, 47, 89, 95)}
    assert {held.problem_id for held in EXAMPLES.values()} == sound


def test_authors_introduce_themselves() -> None:
    authors, findings = find_authors(list(EXAMPLES.values()))
    assert not findings
    assert set(authors) == {"naive", "optimised", "broken"}
    assert all(held.notes for held in authors.values())


@pytest.mark.parametrize("label", EXAMPLES)
def test_each_says_its_idea_and_is_short(label: str) -> None:
    solution = EXAMPLES[label]
    idea = ast.get_docstring(ast.parse(solution.source))
    assert idea
    assert idea.startswith("MISTAKE") == (solution.author == "broken")
    assert solution.source.count("\n") <= 110


@pytest.mark.parametrize("label", EXAMPLES)
def test_each_is_constructed_like_its_reference(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = build_calls(monkeypatch)
    model, reference = constructed(EXAMPLES[label])
    wanted = reference.model(1, CPU).state_dict()
    assert {name: value.shape for name, value in model.state_dict().items()} == {
        name: value.shape for name, value in wanted.items()
    }
    for request in calls:
        declared = re.findall(r"torch::Tensor\s+(\w+)\(", request["cpp_sources"])
        assert request["functions"] == declared


def test_every_promised_kind_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, Callable[[str], Any]] = {
        "tiled with both barriers": lambda text: text.count("__syncthreads();") >= 2 and "__shared__" in text,
        "vectorised": lambda text: "float4" in text,
        "warp shuffle": lambda text: "__shfl_" in text,
        "two kernels": lambda text: len(re.findall(r"\w+<<<", text)) >= 2,
        "built in the constructor": lambda text: re.search(r"super\(\).__init__\(\)\s+self.module = load_inline", text),
        "plain C++": lambda text: "cpp_sources=CPP" in text and "cuda_sources" not in text,
        "torch operations": lambda text: "load_inline" not in text,
    }
    good = [held.source for held in EXAMPLES.values() if held.author != "broken"]
    for kind, applies in kinds.items():
        assert any(applies(text) for text in good), kind


@pytest.mark.parametrize("label", TORCH_ONLY)
def test_torch_operations_do_what_their_docstring_says(label: str) -> None:
    model, reference = constructed(EXAMPLES[label])
    truth_model = reference.model(1, CPU, torch.float64)
    reference_model = reference.model(1, CPU)
    model.load_state_dict(reference_model.state_dict())  # as the referee does
    x = draw(reference, seed=3, variant="zero_mean", device=CPU).values
    with torch.no_grad():
        answer, expected = model(*x), reference_model(*x)
        truth = truth_model(*(value.double() for value in x))
    same_shape = answer.shape == expected.shape
    error = float((answer.double() - truth).abs().max() / truth.pow(2).mean().sqrt()) if same_shape else 0.0
    stale = any(
        not torch.equal(value, dict(model.state_dict())[name]) for name, value in reference_model.state_dict().items()
    )
    found = {"wrong_shape": not same_shape, "low_precision": error > 1e-4, "wrong_state": stale}
    expected_of = {
        "broken/level1/17_bfloat16.py": "low_precision",
        "broken/level1/33_forgets_running_statistics.py": "wrong_state",
        "broken/level1/47_drops_a_dimension.py": "wrong_shape",
    }
    assert [name for name, held in found.items() if held] == [name for key, name in expected_of.items() if key == label]

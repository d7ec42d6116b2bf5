"""References: sizes applied, nothing shared, seeds kept, and every fault of a problem named as the problem's."""

from __future__ import annotations

import dataclasses
import gc
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.problem import Problem, Workload
from harness.referee.problem.loader import ProblemError, load_reference

SOURCE = """\
from __future__ import annotations

import dataclasses

import torch

N = 8
M = 2 * N
SEEN = []


@dataclasses.dataclass
class Shape:
    rows: int


class Model(torch.nn.Module):
    def __init__(self, scale, start):
        super().__init__()
        self.scale = scale
        self.linear = torch.nn.Linear(N, M)
        self.register_buffer("start", start * 1)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        SEEN.append(Shape(N))
        return self.linear(x) * self.scale + self.start


def get_inputs():
    return [torch.rand(M, N)]


def get_init_inputs():
    return [2.5, torch.rand(M)]
"""

CPU = torch.device("cpu")


def problem(source: str = SOURCE, path: Path = Path("level1/7_x.py")) -> Problem:
    return Problem(id="level1/7", name="x", path=path, source=source, digest="")


def sized(**sizes: Any) -> Workload:
    return Workload(name="small", sizes=sizes)


FULL = Workload(name="full")


def test_sizes_reach_everything_derived_from_them() -> None:
    reference = load_reference(problem(), sized(N=3))
    assert reference.get_inputs()[0].shape == (6, 3)
    assert reference.model(1, CPU).linear.weight.shape == (6, 3)
    assert (reference.sizes["N"], reference.sizes["M"]) == (3, 6)
    assert load_reference(problem(), FULL).get_inputs()[0].shape == (16, 8)


def test_the_seed_decides_the_weights_and_only_the_seed() -> None:
    reference = load_reference(problem(), FULL)
    first = reference.model(1, CPU).state_dict()
    torch.rand(5)
    again = reference.model(1, CPU).state_dict()
    other = reference.model(2, CPU).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["linear.weight"], other["linear.weight"])
    assert torch.equal(first["start"], other["start"]), "constructor arguments don't depend on the seed"


def test_weights_are_those_of_kernelbench() -> None:
    """Seeded with torch.manual_seed, constructed on the CPU."""
    reference = load_reference(problem(), FULL)
    torch.manual_seed(42)
    expected = torch.nn.Linear(8, 16).weight
    assert torch.equal(reference.model(42, CPU).linear.weight, expected)


def test_double_precision_has_the_same_weights() -> None:
    reference = load_reference(problem(), FULL)
    single, double = reference.model(1, CPU), reference.model(1, CPU, torch.float64)
    assert double.linear.weight.dtype is torch.float64
    assert double.count.dtype is torch.int64
    assert torch.equal(double.linear.weight, single.linear.weight.double())
    assert double.training


def test_two_loads_share_nothing() -> None:
    one, two = load_reference(problem(), FULL), load_reference(problem(), FULL)
    one.model(1, CPU)(one.get_inputs()[0])
    assert len(one.sizes["SEEN"]) == 1
    assert two.sizes["SEEN"] == []


def test_the_module_is_registered_under_a_name_nobody_guesses() -> None:
    before = set(sys.modules)
    reference = load_reference(problem(), FULL)
    (name,) = set(sys.modules) - before
    assert name.startswith("reference_")
    assert len(name) > 40
    assert dataclasses.asdict(vars(sys.modules[name])["Shape"](rows=2)) == {"rows": 2}
    del reference
    gc.collect()
    assert name not in sys.modules


def test_lines_of_the_file_show_in_tracebacks(tmp_path: Path) -> None:
    source = SOURCE.replace("SEEN.append(Shape(N))", "raise RuntimeError('broken here')")
    path = tmp_path / "7_x.py"
    path.write_text(source)
    reference = load_reference(problem(source, path), sized(N=3))
    with pytest.raises(RuntimeError, match="broken here") as caught:
        reference.model(1, CPU)(reference.get_inputs()[0])
    last = caught.traceback[-1]
    assert str(last.path) == str(path)
    assert last.lineno + 1 == source[: source.index("raise")].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("N = 8", "N = ", "not valid Python"),
        ("N = 8", "N = 1 / 0", "fails on import: ZeroDivisionError"),
        ("N = 8", "import nowhere_to_be_found", "fails on import: ModuleNotFoundError"),
        ("N = 8", "raise SystemExit(0)", "fails on import: SystemExit"),
        ("class Model(", "class Modell(", "defines no Model"),
        ("class Model(torch.nn.Module)", "class Model", "not a subclass"),
        ("def get_inputs", "def get_input", "defines no get_inputs"),
        ("def get_init_inputs", "def get_init", "defines no get_init_inputs"),
        ("N = 8", "N = 8\0", "not valid Python"),
    ],
)
def test_files_that_can_not_be_loaded_are_the_problems_fault(old: str, new: str, said: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ProblemError, match=said) as caught:
        load_reference(problem(SOURCE.replace(old, new)), FULL)
    assert "level1/7" not in str(caught.value), "whoever shows it says of which problem it is"
    assert not {name for name in set(sys.modules) - before if name.startswith("reference_")}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return [2.5, torch.rand(M)]", "return 2.5", "returns a float, not a list"),
        ("return [2.5, torch.rand(M)]", "return [1 / 0]", "get_init_inputs failed: ZeroDivisionError"),
        ("return [2.5, torch.rand(M)]", "return []", "Model.* failed: TypeError"),
        ("self.scale = scale", "exit(3)", "Model.* failed: SystemExit"),
    ],
)
def test_constructors_that_fail_are_the_problems_fault(old: str, new: str, said: str) -> None:
    reference = load_reference(problem(SOURCE.replace(old, new)), FULL)
    with pytest.raises(ProblemError, match=said):
        reference.model(1, CPU)


def test_tensors_among_the_constructors_arguments_go_to_the_device() -> None:
    source = SOURCE.replace('self.register_buffer("start", start * 1)', "self.held = (start.device, scale.device)")
    source = source.replace("return [2.5, torch.rand(M)]", "return [torch.ones(1), torch.rand(M)]")
    reference = load_reference(problem(source), FULL)
    meta = torch.device("meta")
    assert reference.model(1, meta).held == (meta, meta)


def test_compiled_models_with_helpers_find_their_module() -> None:
    """`torch.compile` imports the module of an inlined function by its name."""
    source = SOURCE.replace("        SEEN.append(Shape(N))\n", "").replace(
        "return self.linear(x)", "return helper(self.linear(x))"
    )
    source += "\n\ndef helper(x):\n    return torch.relu(x) + N\n"
    reference = load_reference(problem(source), sized(N=5))
    model, x = reference.model(1, CPU), torch.rand(10, 5)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), model(x))

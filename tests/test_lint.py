"""Lint of problems: sound ones keep every rule, and each flaw breaks the rule that it should."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import torch

from harness.catalog import Costs, load_problems
from harness.cli import main
from harness.devices import open_device
from harness.lint import RULES, ProblemReport, Verdict, lint_problem
from harness.lint.samples import Drawer, make_sample
from harness.model import DeviceKind, InputRules, PrecisionClass, Problem, Workload, digest_text
from harness.numerics import compare, judge
from harness.oracle import Oracle
from harness.reference import load_reference
from harness.trees import unflatten

ROOT = Path(__file__).parent.parent
SHIPPED = ["1", "4", "6", "16", "17", "19", "23", "33", "36", "40", "47", "89", "95"]


def source(forward: str, inputs: str = "[torch.randn(24, 40)]", init: str = "", head: str = "") -> str:
    constructor = (
        "    def __init__(self):\n        super().__init__()\n" + textwrap.indent(init, " " * 8) if init else ""
    )
    return (
        f"import torch\nimport torch.nn.functional as F\n{head}\n"
        f"class Model(torch.nn.Module):\n{constructor}\n    def forward(self, x, *rest):\n"
        f"{textwrap.indent(textwrap.dedent(forward), ' ' * 8)}\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )


def lint(
    text: str,
    *,
    variants: tuple[str, ...] = ("zero_mean", "structured"),
    precision: PrecisionClass = PrecisionClass.FP32,
    flops: str | None = None,
) -> ProblemReport:
    problem = Problem(
        id="level1/1",
        name="flawed",
        path=Path("1_flawed.py"),
        source=text,
        digest=digest_text(text),
        precision=precision,
        rules=InputRules(variants=variants),
    )
    return lint_problem(problem, Workload(name="full"), Costs(flops=flops), open_device(DeviceKind.HOST))


def broken(report: ProblemReport) -> dict[str, str]:
    return {check.rule: " | ".join(check.details) for check in report.broken}


@pytest.mark.parametrize("number", SHIPPED)
def test_the_first_problems_keep_every_rule(number: str) -> None:
    catalog = load_problems(ROOT / "problems")
    problem = catalog[f"level1/{number}"]
    report = lint_problem(problem, problem.workloads["small"], catalog.costs[problem.id], open_device(DeviceKind.HOST))
    assert broken(report) == {}
    assert report.tried >= 10
    assert {check.rule for check in report.checks} == set(RULES)
    # Only what can't be told here is left unchecked.
    unchecked = {check.rule for check in report.checks if check.verdict is Verdict.NOT_CHECKED}
    assert unchecked <= {
        "launch_floor",
        "flops",
        "moves_with_parameters",
        "dropped_operation",
        "neighbouring_index",
        "half_written",
    }


FLAWS = {
    "a constant answer": (
        source("y = x.amax(dim=1, keepdim=True)\nreturn F.gelu(y - y.mean(dim=1, keepdim=True))"),
        "constants",
        "zeros",
    ),
    "an answer that hardly moves": (
        source("return x.mean() + 1000", "[torch.rand(200, 200)]"),
        "previous_output",
        "another",
    ),
    "rows that are all alike": (
        source("return x.mean(dim=0, keepdim=True).expand(24, 40).contiguous()"),
        "neighbouring_index",
        "shifted by one along dimension 0",
    ),
    "an input without effect": (
        source("return x + 0 * rest[0]", "[torch.randn(24, 40), torch.randn(24, 40)]"),
        "moves_with_inputs",
        "input[1]",
    ),
    "a parameter without effect": (
        source("return torch.softmax(x + self.shift, dim=1)", init="self.shift = torch.nn.Parameter(torch.ones(1))"),
        "moves_with_parameters",
        "shift",
    ),
    "an operation without effect": (
        source("return torch.relu(torch.softmax(x, dim=1))"),
        "dropped_operation",
        "relu left out: changes nothing",
    ),
    "chance in forward": (source("return x + torch.rand_like(x)"), "deterministic", "random"),
    "inputs that no seed decides": (
        source(
            "return x * 2",
            "[torch.from_numpy(np.random.default_rng().normal(size=(24, 40)))]",
            head="import numpy as np",
        ),
        "deterministic",
        "get_inputs",
    ),
    "infinities on large values": (source("return torch.exp(x)"), "finite", "large_values"),
    "a reference without the precision asked for": (
        source("return (x + 1e5) - 1e5"),
        "reference_precision",
        "own inputs",
    ),
    "an answer that half precision gives too": (source("return x.mean() + 1000"), "lower_precision", "float16"),
    "a last tile that drowns": (
        source("return x.sum(dim=1)", "[torch.cat([torch.rand(8, 4096) + 100, torch.rand(8, 32)], dim=1)]"),
        "dropped_tile",
        "dimension 1",
    ),
    "half an output that is zero": (
        source("return torch.cat([x, torch.zeros_like(x)])"),
        "half_written",
        "rest zero",
    ),
    "a forward that fails": (source("raise RuntimeError('no')"), "loads", "forward failed"),
    "a file that fails": ("1 / 0", "loads", "fails on import"),
}


@pytest.mark.parametrize("name", sorted(FLAWS))
def test_a_flaw_breaks_its_rule(name: str) -> None:
    text, rule, word = FLAWS[name]
    own = name in ("a last tile that drowns", "an answer that hardly moves", "an answer that half precision gives too")
    variants = ("large_values",) if "large" in name else () if own else ("zero_mean", "structured")
    held = broken(lint(text, variants=variants))
    assert rule in held, held
    assert word in held[rule]


def test_coarse_arithmetic_that_is_exact_is_no_mistake() -> None:
    assert broken(lint(source("return (x > 0).float()"))) == {}


@pytest.mark.parametrize("error", [0.0, 3e-5, 9e-5, 1.1e-4, 5e-4, 1e-2, float("nan")])
@pytest.mark.parametrize("precision", [PrecisionClass.FP32, PrecisionClass.TF32])
def test_an_answer_is_rejected_exactly_where_a_solution_would_fail(error: float, precision: PrecisionClass) -> None:
    text = source("return torch.tanh(x)")
    problem = Problem(id="level1/1", name="p", path=Path("1_p.py"), source=text, digest=digest_text(text))
    device = open_device(DeviceKind.HOST)
    reference = load_reference(problem, Workload(name="full"))
    oracle = Oracle(reference, device, seed=1)
    leaves, tree = Drawer(reference, device).inputs("own")
    oracle.try_out(unflatten(tree, list(leaves)), 1)
    sample = make_sample("own", leaves, tree, 1, oracle, precision)
    answer = sample.own[0] + error * torch.randn(24, 40)
    comparison = compare(answer, sample.truth[0], reference=sample.own[0], limits=sample.limits[0])
    failure = judge([comparison], precision, references=sample.errors).failure
    assert sample.rejects([answer]) == (failure is not None)


def test_declared_flops_are_compared_with_the_counter() -> None:
    text = source("return x @ rest[0]", "[torch.randn(24, 40), torch.randn(40, 8)]", head="M = 24")
    assert "flops" not in broken(lint(text, flops="2 * M * 40 * 8"))
    assert "counted" in broken(lint(text, flops="M * 40 * 8"))["flops"]


def test_a_graph_that_does_not_trace_is_said_so() -> None:
    report = lint(source("if x.sum() > 1e9:\n    return -x\nreturn x * torch.tanh(x)"))
    assert broken(report) == {}
    (check,) = [item for item in report.checks if item.rule == "dropped_operation"]
    assert check.verdict is Verdict.NOT_CHECKED
    assert "torch.fx" in check.details[0]
    assert any("torch.fx does not trace it" in note for note in report.notes)


def test_every_operation_of_a_chain_is_left_out_in_turn() -> None:
    report = lint(source("return torch.tanh(torch.sin(x) * 2) + 1"))
    (check,) = [item for item in report.checks if item.rule == "dropped_operation"]
    # Four operations left out, and mul, tanh and add replaced as well.
    assert (check.verdict, check.tried) == (Verdict.KEPT, 7)


def test_state_is_left_as_it_was() -> None:
    """A batch norm updates its statistics at each call: the trials must not feed on one another."""
    text = source("return self.bn(x)", init="self.bn = torch.nn.BatchNorm1d(40)")
    assert broken(lint(text, variants=("zero_mean",))) == {}


def test_results_of_several_kinds() -> None:
    text = source("values, places = x.max(dim=1)\nreturn {'v': values, 'p': places}")
    report = lint(text, variants=("zero_mean",))
    assert broken(report) == {}
    assert report.tried > 15


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "1_good.py").write_text(source("return torch.tanh(x)"))
    (level / "2_constant.py").write_text(source("return x * 0"))
    (level / "3_huge.py").write_text(source("return torch.tanh(x)", "[torch.randn(2**20, 2**10)]"))
    return tmp_path / "problems"


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "lint", "level1/1", "--problems", str(folder), "--device", "cpu"]) == 0
    assert "✓ level1/1" in capsys.readouterr().out
    assert main(["problems", "lint", str(folder), "--device", "cpu"]) == 1
    shown = capsys.readouterr()
    assert "✗ level1/2" in shown.out
    assert "zeros: changes nothing" in shown.out
    assert "declare a small one" in shown.out
    assert "2 of 3 problems" in shown.err


def test_the_command_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "lint", str(folder / "level1" / "2_constant.py"), "--device", "cpu", "--json"]) == 1
    (held,) = json.loads(capsys.readouterr().out)
    assert (held["problem"], held["passed"], held["device"]) == ("level1/2", False, "cpu")
    assert {check["rule"] for check in held["checks"] if check["verdict"] == "broken"} >= {
        "constants",
        "moves_with_inputs",
    }
    assert main(["problems", "lint", "--rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == dict(RULES)


def test_wrong_calls(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "lint", "level1/9", "--problems", str(folder), "--device", "cpu"]) == 2
    assert main(["problems", "lint", "--problems", str(folder), "--device", "tpu"]) == 2
    assert "auto, cpu or cuda" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["problems", "lint", "--problems", str(folder), "--device", "cuda"]) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("number", SHIPPED)
def test_the_first_problems_keep_every_rule_at_full_size(number: str) -> None:
    catalog = load_problems(ROOT / "problems")
    problem = catalog[f"level1/{number}"]
    report = lint_problem(problem, problem.workloads["full"], catalog.costs[problem.id], open_device(DeviceKind.CUDA))
    assert broken(report) == {}

"""Lint of problems: sound ones keep every rule, and each flaw breaks the rule that it should."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.catalog import load_problems
from harness.cli import main
from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Costs, InputRules, Problem, Workload, digest_text
from harness.devices.device import open_device
from harness.protocol.tensor_tree import unflatten
from harness.referee.correctness.tolerance import compare, judge
from harness.referee.problem.loader import load_reference
from harness.referee.problem.stress_variants import checked_variants
from harness.referee.problem.truth import Reference
from harness.referee.soundness import RULES, ProblemReport, RuleVerdict, graph, lint_problem, linting, samples
from harness.referee.soundness.samples import SampleDrawer, make_sample
from tests.support.paths import ROOT

SHIPPED = load_problems(ROOT / "problems")
AT_FULL_SIZE = [f"level1/{number}" for number in (1, 4, 6, 16, 17, 19, 23, 33, 36, 40, 47, 89, 95)]
"""Those that the tests lint at full size; `results/lint-h200.md` has all."""


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
        costs=Costs(flops=flops),
    )
    return lint_problem(problem, Workload(name="full"), open_device(DeviceKind.HOST))


def broken(report: ProblemReport) -> dict[str, str]:
    return {check.rule: " | ".join(check.details) for check in report.broken}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the command does it: to hand out such small pieces costs more than it gains."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_problem_keeps_every_rule(name: str, one_thread: None) -> None:
    problem = SHIPPED[name]
    report = lint_problem(problem, problem.workloads["small"], open_device(DeviceKind.HOST))
    assert broken(report) == {}
    assert {check.rule for check in report.checks} == set(RULES)
    # Only what can't be told here is left unchecked.
    unchecked = {check.rule for check in report.checks if check.verdict is RuleVerdict.NOT_CHECKED}
    assert unchecked <= {
        "launch_floor",
        "flops",
        "moves_with_parameters",
        "dropped_operation",
        "neighbouring_index",
        "half_written",
        "dropped_tile",
        "lower_precision",
    }
    assert report.tried >= 10


@pytest.mark.parametrize("name", [key for key, problem in SHIPPED.items() if "half" in problem.workloads])
def test_in_half_precision_they_keep_every_rule_too(name: str, one_thread: None) -> None:
    """At small sizes, since the declared ones are for a GPU; judged by the class that `half` declares."""
    problem = SHIPPED[name]
    small, half = problem.workloads["small"], problem.workloads["half"]
    assert half.precision is PrecisionClass.BF16
    reduced = replace(half, sizes={**small.sizes, **half.sizes})
    report = lint_problem(problem, reduced, open_device(DeviceKind.HOST))
    assert broken(report) == {}
    assert report.tried >= 10


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
        "relu left out: equals the reference's output",
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
    "an answer that half precision gives too": (source("return x.mean() / 1000 + 1000"), "lower_precision", "float16"),
    "a last tile that drowns": (
        source("return x.sum(dim=1)", "[torch.cat([torch.rand(8, 4096) + 10000, torch.rand(8, 32)], dim=1)]"),
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


def test_coarser_arithmetic_stays_coarse_where_a_model_widens_its_inputs() -> None:
    """Else the answer in float16 would err only where an input is too small for float16, and be accepted."""
    small = "[torch.cat([torch.full((1, 96), 3.3e-6), torch.randn(47, 96)]).to(torch.bfloat16)]"
    report = lint(source("return torch.sin(x.to(torch.get_default_dtype()))", small), variants=("zero_mean",))
    assert "lower_precision" not in broken(report), broken(report)


def test_only_results_with_a_history_can_be_detached() -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x) + x * 2

    recorder = graph._Recorder(torch.fx.symbolic_trace(Doubled()))
    recorder.run(torch.randn(3, requires_grad=True))
    assert recorder.with_history == {"x", "mul", "add", "output"}
    assert "zeros_like" in recorder.shapes


ROUNDED = """
def rounded(x, bits):
    # To so many bits of mantissa, as a product in TF32 rounds to 10; what is computed for the truth is left exact.
    if x.dtype != torch.float32:
        return x
    return ((x.view(torch.int32) + (1 << (22 - bits))) & -(1 << (23 - bits))).view(torch.float32)
"""


@pytest.mark.parametrize(
    ("bits", "variants", "precision", "kept"),
    [
        (10, ("zero_mean", "structured"), PrecisionClass.TF32, True),
        (10, ("large_values",), PrecisionClass.TF32, True),
        (9, ("zero_mean", "structured"), PrecisionClass.TF32, True),  # errs as much as truncating to 10 bits
        (8, ("zero_mean", "structured"), PrecisionClass.TF32, False),
        (10, ("zero_mean", "structured"), PrecisionClass.FP32, False),
        (23, ("zero_mean", "structured"), PrecisionClass.FP32, True),
    ],
)
def test_a_reference_may_compute_in_the_arithmetic_of_its_class_but_no_coarser(
    bits: int, variants: tuple[str, ...], precision: PrecisionClass, kept: bool
) -> None:
    text = source(
        f"return rounded(x, {bits}) @ rounded(rest[0], {bits})",
        "[torch.randn(48, 96), torch.randn(96, 40)]",
        head=ROUNDED,
    )
    report = lint(text, variants=variants, precision=precision)
    assert ("reference_precision" not in broken(report)) == kept, broken(report)


def test_single_entries_of_a_coarse_class_count_except_on_large_values() -> None:
    """A few of a hundred thousand entries are off by a hundredth: where x was made large, or where it came so."""
    off = "y = torch.tanh(x)\nif x.dtype == torch.float32:\n    y = torch.where({}, y * 0.99, y)\nreturn y"
    for where, kept in (("x.abs() > 30", True), ("(x.abs() > 4) & (x.abs() < 30)", False)):
        held = lint(
            source(off.format(where), "[torch.randn(320, 400)]"),
            variants=("large_values",),
            precision=PrecisionClass.TF32,
        )
        assert ("reference_precision" not in broken(held)) == kept, broken(held)


def test_coarse_arithmetic_that_is_exact_is_no_mistake() -> None:
    assert broken(lint(source("return (x > 0).float()"))) == {}


@pytest.mark.parametrize("error", [0.0, 3e-5, 9e-5, 1.1e-4, 5e-4, 1e-2, float("nan")])
@pytest.mark.parametrize("precision", [PrecisionClass.FP32, PrecisionClass.TF32])
def test_an_answer_is_rejected_exactly_where_a_solution_would_fail(error: float, precision: PrecisionClass) -> None:
    text = source("return torch.tanh(x)")
    problem = Problem(id="level1/1", name="p", path=Path("1_p.py"), source=text, digest=digest_text(text))
    device = open_device(DeviceKind.HOST)
    reference = load_reference(problem, Workload(name="full"))
    oracle = Reference(reference, device, seed=1)
    leaves, tree = SampleDrawer(reference, device).inputs("own")
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
    assert check.verdict is RuleVerdict.NOT_CHECKED
    assert "torch.fx" in check.details[0]
    assert any("torch.fx does not trace the model" in note for note in report.notes)


def test_every_operation_of_a_chain_is_left_out_in_turn() -> None:
    report = lint(source("return torch.tanh(torch.sin(x) * 2) + 1"))
    (check,) = [item for item in report.checks if item.rule == "dropped_operation"]
    # Four operations left out, and mul, tanh and add replaced as well.
    assert (check.verdict, check.tried) == (RuleVerdict.KEPT, 7)


def test_a_long_loop_is_tried_step_by_step_up_to_a_number_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "total = x\nfor step in range({}):\n    total = total + torch.sin(x * (step + 2))\nreturn total"
    report = lint(source(loop.format(40)), variants=("zero_mean",))
    (check,) = [item for item in report.checks if item.rule == "dropped_operation"]
    # Left out: the product, the sine and the sum; replaced: the product and the sum.
    assert (check.verdict, check.tried) == (RuleVerdict.KEPT, 40 * 5)
    assert not any("not tried" in note for note in report.notes)
    monkeypatch.setattr(graph, "MAX_MUTANTS", 120)
    many = lint(source(loop.format(40)), variants=("zero_mean",))
    assert "80 changed graphs beyond the first 120 were not tried" in many.notes


def test_what_kernelbenchs_rule_accepts_is_named_apart_from_what_is_accepted_here() -> None:
    """Its absolute tolerance of 1e-4 is larger than these outputs; an operation that changes nothing is no mistake."""
    report = lint(source("return torch.abs(torch.softmax(x, dim=1) * 1e-5)"))
    accepted = {check.rule: check.kernelbench_accepts for check in report.checks}
    assert "constants" not in broken(report)
    assert "zeros" in accepted["constants"]
    assert "abs left out" not in accepted["dropped_operation"]
    large = lint(source("return torch.tanh(x)"))
    assert all("zeros" not in check.kernelbench_accepts for check in large.checks)


def test_a_tensor_that_forward_makes_is_no_state() -> None:
    report = lint(source("return torch.relu(torch.min(x, torch.tensor(0.5)) + 0.25)"))
    assert broken(report) == {}


def test_an_attribute_that_forward_sets_is_left_as_it_was() -> None:
    held = source("self.held = torch.tanh(x)\nreturn self.held * 2.0", init="self.held = torch.zeros(24, 40)")
    assert "loads" not in broken(lint(held, variants=("zero_mean",)))


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
    assert main(["problems", "lint", "level1/1", "--problems", str(folder), "--device", "host"]) == 0
    assert "✓ level1/1" in capsys.readouterr().out
    assert main(["problems", "lint", str(folder), "--device", "host"]) == 1
    shown = capsys.readouterr()
    assert "✗ level1/2" in shown.out
    assert "zeros: equals the reference's output" in shown.out
    assert "declare a workload small" in shown.out
    assert "2 of 3 checked" in shown.err


def test_the_command_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "lint", str(folder / "level1" / "2_constant.py"), "--device", "host", "--json"]) == 1
    (held,) = json.loads(capsys.readouterr().out)
    assert (held["problem"], held["passed"], held["device"]) == ("level1/2", False, "cpu")
    assert {check["rule"] for check in held["checks"] if check["verdict"] == "broken"} >= {
        "constants",
        "moves_with_inputs",
    }
    assert main(["problems", "lint", "--rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == dict(RULES)


def test_wrong_calls(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "lint", "level1/9", "--problems", str(folder), "--device", "host"]) == 2
    assert main(["problems", "lint", "--problems", str(folder), "--device", "tpu"]) == 2
    assert "auto, cuda, host" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["problems", "lint", "--problems", str(folder), "--device", "cuda"]) == 3


@pytest.mark.gpu
@pytest.mark.exclusive_gpu
@pytest.mark.parametrize("name", AT_FULL_SIZE)
def test_the_first_problems_keep_every_rule_at_full_size(name: str) -> None:
    problem = SHIPPED[name]
    report = lint_problem(problem, problem.workloads["full"], open_device(DeviceKind.CUDA))
    assert broken(report) == {}


def test_no_wrong_solution_keeps_what_it_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """At full size six kept outputs and two samples have no room on a GPU of 80 GB."""
    held: list[int] = []
    look = linting._Linted._look_at

    def look_at(linted: linting._Linted, sample: samples.ReferenceCall, **found: list[str]) -> samples.ReferenceCall:
        shape = sample.own[0].shape
        held.append(sum(type(item) is torch.Tensor and item.shape == shape for item in gc.get_objects()))
        return look(linted, sample, **found)

    monkeypatch.setattr(linting._Linted, "_look_at", look_at)
    problem = SHIPPED["level1/36"]
    lint_problem(problem, problem.workloads["small"], open_device(DeviceKind.HOST))
    assert held[0] == 3, "inputs, truth and answer of the first sample"
    assert max(held) <= 6, "and of one more"


def test_no_more_than_the_first_sample_is_held_while_another_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """At full size two of them and what it takes to make a third have no room on a GPU of 80 GB."""
    held: list[int] = []

    def make(*arguments: Any) -> samples.ReferenceCall:
        held.append(
            sum(type(item) is samples.ReferenceCall for item in gc.get_objects())
        )  # no isinstance: it follows weak proxies
        return make_sample(*arguments)

    monkeypatch.setattr(samples, "make_sample", make)
    problem = SHIPPED["level1/19"]
    lint_problem(problem, problem.workloads["small"], open_device(DeviceKind.HOST))
    assert len(held) == len(checked_variants(problem, samples.OWN_DRAWS)) - 1
    assert max(held) <= 1
    assert held[-1] == 0, "nothing is tried any more, and the first one is not needed"


def test_a_lint_cut_short_goes_on_with_what_is_left(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "kept" / "lint.jsonl", tmp_path / "lint.md"
    call = ["problems", "lint", str(folder), "--device", "host", "--out", str(out)]
    assert main([*call, "--budget", "1e-9"]) == 3
    assert "3 of 3 not checked; run again with --resume" in capsys.readouterr().err
    assert main([*call, "--shard", "1/3"]) == 0
    assert main([*call, "--resume", "--markdown", str(table)]) == 1
    shown = capsys.readouterr()
    assert "level1/1 " not in shown.out.split("[2/3]")[1]
    assert "2 of 3 checked problems break a rule" in shown.err
    assert len(out.read_text().splitlines()) == 3
    text = table.read_text()
    assert "3 problems (3 at small) on cpu" in text
    assert "| level1/2 | small | ✗ |" in text
    # A line that its writer never finished is done again; another problem text too.
    whole = out.read_text()
    out.write_text(whole[:-20])
    assert main([*call, "--resume"]) == 1
    assert "level1/3" in (again := capsys.readouterr().out)
    assert "level1/2" not in again
    assert [json.loads(line)["problem"] for line in out.read_text().splitlines()] == [f"level1/{i}" for i in (1, 2, 3)]
    (folder / "level1" / "2_constant.py").write_text(source("return x * 2"))
    assert main([*call, "--resume", "--json"]) == 1
    assert [item["passed"] for item in json.loads(capsys.readouterr().out)] == [True, True, False]
    # Files of several parts are concatenated; of two lines about one problem the later counts.
    out.write_text(out.read_text() + whole)
    assert main([*call, "--resume"]) == 1


def test_a_problem_that_memory_does_not_suffice_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hungry = "if x.dtype is torch.float64:\n    raise MemoryError('no')\nreturn torch.tanh(x)"
    (folder / "level1" / "2_constant.py").write_text(source(hungry))
    assert main(["problems", "lint", "level1/2", "--problems", str(folder), "--device", "host"]) == 1
    shown = capsys.readouterr()
    assert "loads" in shown.out
    assert "not enough memory to check it: this machine has too little free memory: use a smaller" in shown.out
    assert "error of the harness" not in shown.err


def test_a_level_by_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "level2").mkdir()
    (folder / "level2" / "1_good.py").write_text(source("return torch.tanh(x)"))
    call = ["problems", "lint", "level2", "--problems", str(folder), "--device", "host", "--json"]
    assert main(call) == 0
    assert [item["problem"] for item in json.loads(capsys.readouterr().out)] == ["level2/1"]


def test_shares_are_even_and_together_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for number in (1, 2):
        main(["problems", "lint", str(folder), "--device", "host", "--shard", f"{number}/2", "--json"])
        seen.append([item["problem"] for item in json.loads(capsys.readouterr().out)])
    assert seen == [["level1/1", "level1/3"], ["level1/2"]]


def test_a_file_of_findings_that_is_none(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lint.jsonl"
    call = ["problems", "lint", str(folder), "--device", "host", "--out", str(out)]
    out.write_text('{"format": 1}\n{"format": 1}\n')
    assert main(call) == 2
    assert "pass --resume to continue it" in capsys.readouterr().err
    assert main([*call, "--resume"]) == 2
    assert "line 1" in capsys.readouterr().err
    out.write_text('{"format": 99}\n\n')
    assert main([*call, "--resume"]) == 2
    assert "newer harness" in capsys.readouterr().err
    assert main(["problems", "lint", str(folder), "--resume"]) == 2
    assert main(["problems", "lint", str(folder), "--shard", "3/2"]) == 2
    assert main(["problems", "lint", str(folder), "--budget", "0"]) == 2


def test_workloads_by_name_where_they_are_declared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    level = folder / "level1"
    (level / "1_good.py").write_text(source("return torch.tanh(x)", "[torch.randn(N, 40)]", head="N = 24"))
    (level / "workloads.yaml").write_text("format: 1\nproblems:\n  1:\n    workloads: {full: {}, odd: {N: 23}}\n")
    call = ["problems", "lint", "--device", "host", "--workload", "odd"]
    assert main([*call, str(folder)]) == 0
    shown = capsys.readouterr()
    assert "odd on cpu" in shown.out
    assert "1 checked, none" in shown.err
    # One that was named has to have it; where it is the only one, the call is wrong and not the problem.
    assert main([*call, str(level / "3_huge.py"), str(level / "1_good.py")]) == 1
    assert "declares no workload 'odd'" in capsys.readouterr().out
    assert main([*call, str(level / "3_huge.py")]) == 2
    assert "'odd': no problem here declares it; they have full" in capsys.readouterr().err
    assert main([*call, "--workload", "full", str(level / "1_good.py")]) == 0
    assert "2 checked, none" in capsys.readouterr().err
    # A name that nobody declares is a slip of the pen.
    assert main([*call, "--workload", "ood", str(folder)]) == 2
    assert "'ood': no problem here declares it; they have full, odd" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_broken_context_is_the_problems_fault_and_the_rest_is_left(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer that was tried may end in a device-side assertion, after which a process computes nothing more."""
    index = "torch._assert_async((x[-1, -1] != 0).all())\nreturn x * 2"
    (folder / "level1" / "1_good.py").write_text(source(index))
    (folder / "level1" / "3_huge.py").unlink()
    out = tmp_path / "lint.jsonl"
    command = [sys.executable, "-m", "harness", "problems", "lint", str(folder), "--device", "cuda", "--out", str(out)]
    first = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert first.returncode == 3, first.stderr
    assert "the GPU failed" in first.stdout
    assert "1 of 2 not checked" in first.stderr
    second = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=300, check=False)
    assert second.returncode == 1
    assert len(out.read_text().splitlines()) == 2

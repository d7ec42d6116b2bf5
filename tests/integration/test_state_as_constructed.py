"""State of models as KernelBench gives it: solutions as constructed, hidden states, other names, folded constants."""

from __future__ import annotations

import pytest

from harness.core.record import Record
from harness.core.status import Status
from tests.support.judged_on_host import judged_files

FOLDED = """
import torch
class {name}(torch.nn.Module):
    def __init__(self, divisor):
        super().__init__()
        self.linear = torch.nn.Linear(30, 20)
        {more}
    def forward(self, x):
        {forward}
"""
HIDDEN = """
import torch
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}
    def forward(self, x):
        {forward}
"""
GIVEN = """
def get_inputs():
    return [torch.randn(40, 30)]
def get_init_inputs():
    return [{arguments}]
"""
LINEAR = "self.cell = torch.nn.Linear(30, 30)"
STEP = "torch.tanh(self.cell(x) + self.{hidden}.to(x.device))"


def folded(more: str, forward: str = "return torch.relu(self.linear(x))") -> str:
    return FOLDED.format(name="ModelNew", more=more, forward=forward)


def hidden(constructor: str, forward: str) -> str:
    return HIDDEN.format(name="ModelNew", constructor=constructor, forward=f"return {forward}")


PROBLEMS = {
    "1_divided": FOLDED.format(name="Model", more="", forward="return self.linear(x).relu() / 4.0")
    + GIVEN.format(arguments="4.0"),
    "2_recurrent": HIDDEN.format(
        name="Model",
        constructor=f"self.h0 = torch.randn(40, 30); {LINEAR}; self.mask = torch.arange(30)",
        forward=f"return {STEP.format(hidden='h0')}",
    )
    + GIVEN.format(arguments=""),
}
SOLUTIONS = {
    "1_folds": folded("self.linear.weight.data.div_(divisor); self.linear.bias.data.div_(divisor)"),
    "1_folds_badly": folded("self.linear.weight.data.div_(divisor)"),
    "1_renames": """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, divisor):
        super().__init__()
        inner = torch.nn.Linear(30, 20)
        self.w, self.b = inner.weight, inner.bias
    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.w, self.b)) / 4.0
""",
    "1_draws_first": folded(
        "torch.manual_seed(0); torch.nn.init.normal_(self.linear.weight)", "return torch.relu(self.linear(x)) / 4.0"
    ),
    "1_draws_first_and_errs": folded(
        "torch.manual_seed(0); torch.nn.init.normal_(self.linear.weight)", "return torch.relu(self.linear(x)) / 3.9"
    ),
    "2_same_order": hidden(f"self.h0 = torch.randn(40, 30); {LINEAR}", STEP.format(hidden="h0")),
    "2_other_order": hidden(f"{LINEAR}; self.h0 = torch.randn(40, 30)", STEP.format(hidden="h0")),
    "2_other_name": hidden(f"{LINEAR}; self.state = torch.randn(40, 30)", STEP.format(hidden="state")),
    "2_buffer": hidden(f"{LINEAR}; self.register_buffer('h0', torch.zeros(40, 30))", STEP.format(hidden="h0")),
    "2_without": hidden(LINEAR, "torch.tanh(self.cell(x))"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return judged_files(tmp_path_factory.mktemp("state"), PROBLEMS, SOLUTIONS)


@pytest.mark.parametrize(
    ("name", "status", "copied", "kernelbench"),
    [
        ("1_folds", Status.passed, [], True),
        ("1_folds_badly", Status.wrong_value, ["linear.weight"], False),
        ("1_renames", Status.passed, [], True),
        ("1_draws_first", Status.passed, ["linear.weight"], False),
        ("1_draws_first_and_errs", Status.wrong_value, ["linear.weight"], False),
        ("2_same_order", Status.passed, [], True),
        ("2_other_order", Status.passed, ["cell.weight", "cell.bias", "h0"], False),
        ("2_other_name", Status.passed, ["cell.weight", "cell.bias", "h0"], False),
        ("2_buffer", Status.passed, ["cell.weight", "cell.bias", "h0"], False),
        ("2_without", Status.wrong_state, ["cell.weight", "cell.bias"], False),
    ],
)
def test_state_is_copied_only_where_a_solution_needs_it(
    records: dict[str, Record], name: str, status: Status, copied: list[str], kernelbench: bool
) -> None:
    record = records[name]
    assert record.status is status, record.reason
    assert record.evidence["state"]["copied"] == copied
    assert record.evidence["kernelbench_would_pass"] is kernelbench


def test_a_hidden_state_that_a_solution_lacks_is_named(records: dict[str, Record]) -> None:
    assert "matches the reference's 'h0'" in records["2_without"].reason
    assert records["2_without"].evidence["state"]["unmatched"] == ["h0"], "the mask is the same under every seed"


def test_the_reason_is_that_of_the_smaller_error(records: dict[str, Record]) -> None:
    assert "2.6 %" in records["1_draws_first_and_errs"].reason, "with the reference's weights only the factor is wrong"

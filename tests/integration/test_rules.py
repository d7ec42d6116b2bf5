"""The settings `rules`, `inputs` and `dtype` in whole evaluations on the host device."""

from __future__ import annotations

import pytest

from harness.core.record import Record
from harness.core.status import Status
from tests.support.judged_on_host import judged_files

NORM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(30{momentum})
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(40, 30)]
def get_init_inputs():
    return []
"""
EXP = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)
def get_inputs():
    return [torch.randn(40, 30)]
def get_init_inputs():
    return []
"""
OWN_NORM = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(30)
    def forward(self, x):
        {forward}
"""
STATISTICS = "return torch.nn.functional.batch_norm(x, {mean}, {var}, self.norm.weight, self.norm.bias, True, 0.1)"
KEPT = STATISTICS.format(mean="self.norm.running_mean", var="self.norm.running_var")
UNSTABLE = "e = x.exp(); return {factor} * e / e.sum(1, keepdim=True)"
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {forward}
"""
PROBLEMS = {
    "1_norm": NORM.format(momentum=""),
    "2_average": NORM.format(momentum=", momentum=None"),
    "3_softmax": EXP,
}
FILES = {
    "1_no_counter": OWN_NORM.format(forward=KEPT),
    "1_no_statistics": OWN_NORM.format(forward=STATISTICS.format(mean="None", var="None")),
    "1_wrong": OWN_NORM.format(forward=STATISTICS.format(mean="None", var="None") + " * 1.5"),
    "2_no_counter": OWN_NORM.format(forward=KEPT.replace("0.1)", "1.0)")),
    "3_unstable": SOLUTION.format(forward=UNSTABLE.format(factor="1.0")),
    "3_wrong": SOLUTION.format(forward=UNSTABLE.format(factor="1.5")),
}
UNTRACKED = "BatchNorm1d(30, track_running_stats=False)"
FILES["1_without_any"] = FILES["1_no_statistics"].replace("BatchNorm1d(30)", UNTRACKED)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return judged_files(tmp_path_factory.mktemp("strict"), PROBLEMS, FILES)


@pytest.fixture(scope="module")
def kernelbench(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return judged_files(tmp_path_factory.mktemp("kernelbench"), PROBLEMS, FILES, rules="kernelbench")


@pytest.mark.parametrize(
    ("name", "status", "would_pass"),
    [
        ("1_no_counter", Status.passed, None),
        ("1_no_statistics", Status.wrong_state, True),
        ("1_without_any", Status.wrong_state, True),
        ("1_wrong", Status.wrong_value, False),
        ("2_no_counter", Status.wrong_state, True),
        ("3_unstable", Status.non_finite, True),
        ("3_wrong", Status.non_finite, False),
    ],
)
def test_a_strict_failure_says_whether_kernelbench_rules_would_pass_it(
    strict: dict[str, Record], name: str, status: Status, would_pass: bool | None
) -> None:
    record = strict[name]
    assert record.status in (status, Status.wrong_value if name == "3_wrong" else status), record.reason
    assert record.evidence.get("kernelbench_rules_would_pass") is would_pass
    assert ("correct under --rules kernelbench" in record.reason) is bool(would_pass)


def test_batch_counters_alone_are_a_label(strict: dict[str, Record]) -> None:
    assert "batch_counter" in strict["1_no_counter"].labels
    assert "num_batches_tracked" in strict["2_no_counter"].reason, "an average over all batches reads the counter"


def test_a_failure_on_stress_inputs_alone_says_first_that_own_inputs_are_right(strict: dict[str, Record]) -> None:
    assert strict["3_unstable"].reason.startswith("right on the problem's own inputs; ")
    assert "(on large values inputs)" in strict["3_unstable"].reason
    assert "own inputs" not in strict["3_wrong"].reason


def test_state_that_a_solution_lacks_says_nothing_about_its_outputs(strict: dict[str, Record]) -> None:
    record = strict["1_without_any"]
    assert "ModelNew has no state 'norm.running_mean'" in record.reason
    assert record.evidence["kernelbench_would_pass"] is True


@pytest.mark.parametrize("name", FILES)
def test_kernelbench_rules_judge_outputs_on_own_inputs(kernelbench: dict[str, Record], name: str) -> None:
    record = kernelbench[name]
    assert (record.status is Status.passed) is not name.endswith("wrong"), record.reason
    assert list(record.evidence["variants"]) == ["own"]
    assert record.evidence["precision_override"] == "kernelbench rules", "not ranked with strict results"


def test_with_own_inputs_state_is_compared_all_the_same(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    files = {name: FILES[name] for name in ("1_no_statistics", "3_unstable")}
    records = judged_files(tmp_path_factory.mktemp("own"), PROBLEMS, files, inputs="own")
    assert records["3_unstable"].status is Status.passed
    assert records["1_no_statistics"].status is Status.wrong_state


def test_files_for_float32_are_judged_in_half_precision(tmp_path_factory: pytest.TempPathFactory) -> None:
    same = "assert x.dtype is torch.float16 and self.norm.weight.dtype is torch.float16; return self.norm(x)"
    files = {
        "1_same": OWN_NORM.format(forward=same),
        "1_float": OWN_NORM.format(forward="self.norm(x); return self.norm(x).float()"),
        "3_half": SOLUTION.format(forward="return torch.softmax(x, 1)"),
    }
    records = judged_files(tmp_path_factory.mktemp("half"), PROBLEMS, files, dtype="fp16")
    assert records["1_same"].status is Status.passed, records["1_same"].reason
    assert records["3_half"].status is Status.passed, records["3_half"].reason
    assert records["1_float"].status is Status.wrong_dtype
    assert records["1_same"].evidence["precision_override"] == "dtype fp16"

"""What callers of the Python API hand over: names, texts, files, sizes and settings, refused at once where they can't
be used, and never taken for something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.api.given import given_problem, given_solution, given_workload
from harness.api.keeper import RunKeeper
from harness.api.result import Result, reward
from harness.catalog import CatalogError, UnreadableProblem, load_problems
from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.config import ConfigError, TimingConfig
from harness.core.environment import collect
from harness.core.problem import Problem, Workload
from harness.core.record import Record
from harness.core.status import Status
from harness.runner.plan import PlannedSolution

PROBLEM = """
import torch
SIZE = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(SIZE, SIZE) - 0.5]
def get_init_inputs():
    return []
"""


def problem() -> Problem:
    held = given_problem(PROBLEM)
    assert held is not None
    return held


def label(*, text: str = "a", author: str = "ann", name: str | None = None, sample: int | None = None) -> str:
    return given_solution(problem(), text, author=author, name=name, sample=sample).label


@pytest.mark.parametrize(
    ("author", "said"),
    [("..", "another folder"), (".", "another folder"), ("../x", "another folder"), ("a/b", "; use 'a_b'")],
)
def test_authors_that_would_be_another_folder_are_refused(author: str, said: str) -> None:
    with pytest.raises(CatalogError, match=f"is invalid: .*{said}"):
        label(author=author)


@pytest.mark.parametrize("by_file", [False, True])
def test_a_solution_in_another_encoding_is_a_syntax_error(tmp_path: Path, by_file: bool) -> None:
    text = "# coding: utf-7\nx = 1\n"
    path = tmp_path / "x.py"
    path.write_text(text)
    held = given_solution(problem(), path if by_file else text, author="ann", name=None, sample=None)
    assert held.failure is not None
    assert held.failure.status is Status.syntax_error
    assert "line 1: the file declares the encoding utf-7" in held.failure.reason


def test_results_can_be_kept_in_sets_and_rewards_are_of_results_alone() -> None:
    record = Record(
        problem="level1/1",
        author="ann",
        solution="ann/level1/1_a.py",
        device=DeviceKind.HOST,
        workload="full",
        status=Status.passed,
        reason="right",
    )
    result = Result(record=record, source="", log="")
    assert {result, Result(record=replace(record), source="", log=""), replace(result, source="x")} == {
        result,
        replace(result, source="x"),
    }
    for wrong in (None, 1.0, {"status": "passed"}, [result]):
        with pytest.raises(TypeError, match="`result` must be a Result or a Record, not"):
            reward(wrong)  # type: ignore[arg-type]


def test_what_differs_in_name_or_sample_differs_in_label() -> None:
    long = "x" * 80
    handed: list[dict[str, Any]] = [
        {"name": "v1"},
        {"name": "v 1"},
        {"name": "v/1"},
        {"name": "v_1"},
        {"name": "v*1"},
        {"name": long},
        {"name": long + "1"},
        {"name": long + "2"},
        {"name": "\udc80"},
        {"name": "\udc81"},
        {"name": "v1", "sample": 0},
        {"name": "v1", "sample": 1},
        {"name": "v1_sample1"},
        {"name": "v1_sample1", "sample": 1},
        {"sample": 0},
        {"sample": 1},
        {"text": "b"},
        {"text": "b", "sample": 1},
        {"author": "bob"},
    ]
    labels = [label(**each) for each in handed]
    assert len(set(labels)) == len(labels), labels
    assert all(each.isascii() and "/".join(each.split("/")[2:]).endswith(".py") for each in labels)
    assert label(name="v1", sample=3).endswith("_v1_sample3.py"), "as `harness extract --sample` names it"
    assert label(name="v1") == label(name="v1", text="another"), "a name is the caller's own"


@pytest.mark.parametrize("sample", [-1, 2**63, 10**400])
def test_a_sample_that_no_record_can_hold_is_refused(sample: int) -> None:
    with pytest.raises(CatalogError, match=r"`sample` must be from 0 to 2\*\*63 - 1"):
        label(sample=sample)
    assert label(sample=2**63 - 1)


def test_a_byte_order_mark_is_no_part_of_a_text_as_it_is_of_no_file(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_bytes(b"\xef\xbb\xbfclass ModelNew: pass\n")
    read = given_solution(problem(), file, author="ann", name=None, sample=None)
    text = given_solution(problem(), "\ufeffclass ModelNew: pass\n", author="ann", name=None, sample=None)
    assert (text.source, text.digest) == (read.source, read.digest)
    assert given_problem("\ufeff" + PROBLEM) == problem()


def test_a_text_of_several_lines_is_a_problem_whatever_ends_them() -> None:
    for ends in ("\r\n", "\r"):
        held = given_problem(PROBLEM.replace("\n", ends))
        assert held is not None
        assert held.id.startswith("inline/")
    assert given_problem("import torch") is None


def test_a_problem_is_found_by_the_path_of_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "my problems.v2"
    folder.mkdir()
    (folder / "5_relu.py").write_text(PROBLEM)
    (folder / "6_broken.py").write_text("def (")
    (folder / "relu.py").write_text(PROBLEM)
    held = given_problem(folder / "5_relu.py")
    assert held is not None
    assert (held.id, held.source) == ("my problems.v2/5", PROBLEM)
    with pytest.raises(UnreadableProblem, match="6_broken"):
        given_problem(folder / "6_broken.py")
    named = given_problem(str(folder / "relu.py"))
    assert named is not None
    assert (named.id, named.source) == ("local/relu", PROBLEM)
    linked = tmp_path / "links"
    linked.mkdir()
    (linked / "7_linked.py").symlink_to(folder / "relu.py")
    held = given_problem(linked / "7_linked.py")
    assert held is not None
    assert held.id == "links/7"


def test_what_no_problem_can_be_says_what_one_is(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "19_relu.py").write_text(PROBLEM)
    with Harness(device="host", problems=tmp_path) as h:
        for wanted in ("import torch", "", Path("no/such.py"), "x" * 5000 + ".py", "level1/20"):
            with pytest.raises(
                CatalogError, match=r"there is no problem .*\n.* path of a \.py file, or a source text of more"
            ):
                h.submit(wanted, "")
        with pytest.raises(CatalogError, match="declares no workload ''"):
            h.submit("level1/19", "", workload="")
    unnamed = r"there is no problem '7_x\.py': no such file\npass an id"
    with Harness(device="host", problems=tmp_path / "none") as h, pytest.raises(CatalogError, match=unnamed):
        h.submit(Path("7_x.py"), "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizes": {"SIZES": 3}}, "the file has no top-level constant SIZES; it has SIZE"),
        ({"sizes": {"SIZE": "3"}}, "must have type int"),
        ({"sizes": {3: 3}}, "the file has no top-level constant 3"),
        ({"sizes": [3]}, "sizes must map names of constants"),
        ({"sizes": None}, "sizes must map names of constants"),
        ({"precision": "bf16"}, "precision 'bf16' must be None or one of PrecisionClass.FP32"),
        ({"name": "full"}, "declares other sizes or another precision by this name"),
        ({"name": ""}, "is no name for a workload"),
        ({"name": 5}, "is no name for a workload"),
        ({"name": "a\nb"}, "is no name for a workload"),
    ],
)
def test_sizes_that_a_problem_does_not_have_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CatalogError) as caught:
        given_workload(problem(), replace(Workload(name="odd", sizes={"SIZE": 3}), **change))
    assert said in str(caught.value)


def test_sizes_that_a_problem_has_are_taken(tmp_path: Path) -> None:
    odd = Workload(name="odd", sizes={"SIZE": 3}, precision=PrecisionClass.BF16)
    assert given_workload(problem(), odd) is odd
    assert given_workload(problem(), Workload(name="full")) == Workload(name="full")
    unreadable = given_problem("SIZE = (\n")
    assert unreadable is not None
    assert given_workload(unreadable, odd) is odd, "the verdict says what is wrong with it"
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_relu.py").write_text(PROBLEM)
    (tmp_path / "level1" / "workloads.yaml").write_text("format: 1\nproblems: {1: {workloads: {small: {SIZE: 3}}}}\n")
    held = load_problems(tmp_path)["level1/1"]
    assert given_workload(held, held.workloads["small"]).sizes == {"SIZE": 3}


def test_a_run_that_is_kept_has_one_meaning_for_a_workloads_name(tmp_path: Path) -> None:
    """Its records are told by that name: the later one would have taken the place of the earlier."""
    config = Harness(device="host").config
    for results in (tmp_path / "run", None):
        keeper = RunKeeper(results, config, collect())
        try:
            held = given_problem(PROBLEM)
            assert held is not None
            solution = given_solution(held, "x = 1", author="me", name=None, sample=None)
            for name, size, taken in (("odd", 3, True), ("odd", 3, True), ("even", 4, True), ("odd", 5, False)):
                job = PlannedSolution(
                    solution=solution, problem=held, workload=Workload(name=name, sizes={"SIZE": size})
                )
                if taken or results is None:
                    assert keeper.work(job).job is job
                    continue
                with pytest.raises(
                    CatalogError, match=r"'odd' of .* had other sizes \(\{'SIZE': 3\}\) .*use another name"
                ):
                    keeper.work(job)
            changed = replace(held, digest="of a declaration that was changed meanwhile")
            job = PlannedSolution(solution=solution, problem=changed, workload=Workload(name="odd", sizes={"SIZE": 5}))
            assert keeper.work(job).job is job
        finally:
            keeper.close()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"results": ""}, "`results` must be a path, not ''"),
        ({"results": 5}, "`results` must be a path, not 5"),
        ({"results": "a\0b"}, "`results` must be a path"),
        ({"problems": ""}, "`problems` must be a path, not ''"),
        ({"problems": 5}, "`problems` must be a path, not 5"),
        ({"cache_dir": ""}, "`cache_dir` must be a path, not ''"),
        ({"device": 5}, "`device` must be one of auto, cuda, host, not 5"),
        ({"precision": 5}, f"`precision` must be one of {', '.join(PrecisionClass)}, not 5"),
        ({"baselines": 5}, "`baselines` must be one or several of eager"),
        ({"baselines": ["eager", None]}, "not ['eager', None]"),
    ],
)
def test_a_setting_of_another_kind_is_named(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Harness(**{"device": "host", **setting})
    assert said in str(caught.value)


def test_a_folder_that_can_not_hold_caches_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for setting, variable in (({"cache_dir": tmp_path / "file" / "below"}, None), ({}, tmp_path / "file")):
        if variable is not None:
            monkeypatch.setenv("HARNESS_CACHE", str(variable))
        with pytest.raises(ConfigError, match=r"can't hold caches: .*; name another by cache_dir or HARNESS_CACHE"):
            Harness(device="host", **setting)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"min_samples": "12"}, "`min_samples` must be a whole number from 1 to"),
        ({"sets_per_burst": 10**9}, "`sets_per_burst` must be a whole number from 1 to"),
        ({"relative_half_width": -1.0}, "`relative_half_width` must be a number above 0"),
        ({"budget_s": float("nan")}, "`budget_s` must be a number above 0"),
    ],
)
def test_a_timing_that_can_not_be_measured_is_refused(wrong: dict[str, Any], said: str) -> None:
    usable = TimingConfig(min_samples=12, sets_per_burst=8, relative_half_width=0.02, budget_s=0.25)
    with Harness(device="host", timing=usable) as h:
        assert h.config.timing == usable
    with pytest.raises(ConfigError, match=said):
        Harness(device="host", timing=replace(usable, **wrong))


def test_settings_may_be_given_as_the_command_line_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Harness(device=DeviceKind.HOST, baselines="compile,eager", precision=PrecisionClass.TF32) as h:
        assert (h.device, h.config.precision) == (DeviceKind.HOST, PrecisionClass.TF32)
        assert [str(name) for name in h.config.baselines] == ["compile", "eager"]
    with Harness(device="host", problems="~/problems", results="~/run", cache_dir="~/cache") as h:
        assert (h.config.problems, h.config.cache_dir) == (tmp_path / "problems", tmp_path / "cache")
        assert h._results == tmp_path / "run"

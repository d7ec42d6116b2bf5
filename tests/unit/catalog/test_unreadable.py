"""Files that can't be read, beside sound ones: each is named with what to do, and nothing else is lost."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import Harness
from harness.catalog import CatalogError
from harness.cli import main
from harness.core.choices import PrecisionClass
from harness.core.record import Record
from harness.core.status import Status
from harness.results.writer import RunStore
from harness.toolchain import default_root

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
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
"""
LATIN = b"import torch\n# caf\xe9\nclass ModelNew: ...\n"
"""Not UTF-8 in its second line."""

WHY = "problem level1/16 can't be read: level1/16_broken.py, line 2: "


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one sound problem and two others, and with solutions of each."""
    monkeypatch.chdir(tmp_path)
    level = tmp_path / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "16_broken.py").write_text("import torch\nclass Model(:\n")
    (level / "18_relu.py").write_text(PROBLEM)
    (level / "19_relu.py").write_text(PROBLEM)
    (level / "workloads.yaml").write_text(
        "format: 1\nproblems:\n  18: {precision: fp31}\n  19: {workloads: {small: {SIZE: 45}}}\n"
    )
    folder = tmp_path / "solutions" / "ann" / "level1"
    folder.mkdir(parents=True)
    for number in (16, 18, 19):
        (folder / f"{number}_right.py").write_text(SOLUTION)
    (folder / "19_latin.py").write_bytes(LATIN)
    return tmp_path


Call = Callable[..., Called]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: object) -> Called:
        code = main([str(item) for item in arguments])
        told = capfd.readouterr()
        return Called(code, told.out, told.err)

    return run


def records(run: Path) -> dict[str, Record]:
    return {Path(item.solution).stem: item for item in RunStore.open(run).records()}


QUICK = ("--device", "host", "--workload", "full", "--min-samples", "4", "--timing-budget", "0.5")
EVAL = (*QUICK, "--run-id", "r", "--cache", default_root())


def test_each_gets_its_record_and_the_others_are_judged(place: Path, call: Call) -> None:
    done = call("eval", "solutions", *EVAL)
    found = records(place / "results/r")
    assert {name: item.status for name, item in found.items()} == {
        "16_right": Status.harness_error,
        "18_right": Status.harness_error,
        "19_latin": Status.syntax_error,
        "19_right": Status.passed,
    }, done.err
    assert found["16_right"].reason.startswith(WHY)
    assert found["16_right"].reason.endswith(": fix the file")
    assert "level1/workloads.yaml, problem 18: precision must be one of" in found["18_right"].reason
    assert found["19_latin"].reason == "line 2: byte 18 (0xe9) is not UTF-8: save the file as UTF-8"
    assert done.code == 3
    assert "2 solutions could not be judged because of the machine or the problem" in done.err

    board = call("leaderboard", "results/r", "--json")
    assert board.code == 0, board.err
    (row,) = json.loads(board.out)
    assert (row["author"], row["passed"], row["unjudged"]) == ("ann", 1, 2)
    shown = call("show", "results/r", "19_latin", "--feedback")
    assert shown.code == 0, shown.err
    assert "is not UTF-8" in shown.out

    screened = call("screen", "results/r", "--json")
    assert screened.code == 1, screened.err
    told = {Path(item["file"]).stem: item["unreadable"] for item in json.loads(screened.out)}
    assert told == {**dict.fromkeys(found), "19_latin": found["19_latin"].reason}

    (place / "problems/level1/16_broken.py").write_text(PROBLEM)
    (place / "solutions/ann/level1/19_latin.py").write_text(SOLUTION)
    again = call("eval", "solutions", *EVAL, "--resume")
    assert "3 to evaluate, 1 already done" in again.err
    found = records(place / "results/r")
    assert [name for name, item in found.items() if item.status is not Status.passed] == ["18_right"]


def test_a_failure_that_was_told_is_not_told_again_before_the_file_changes(place: Path, call: Call) -> None:
    path = "solutions/ann/level1/19_latin.py"
    assert call("eval", path, *EVAL).code == 0
    assert "0 to evaluate, 1 already done" in call("eval", path, *EVAL, "--resume").err
    Path(path).write_bytes(LATIN.replace(b"\xe9", b"\xe8"))
    assert "1 to evaluate" in call("eval", path, *EVAL, "--resume").err


def test_what_is_wrong_for_all_still_stops_before_anything_runs(place: Path, call: Call) -> None:
    (place / "problems/level1/19_again.py").write_text(PROBLEM)
    done = call("eval", "solutions", *EVAL)
    assert done.code == 2
    assert "are both problem level1/19" in done.err
    assert not (place / "results").exists()


def test_a_problem_named_by_option_is_told_likewise(place: Path, call: Call) -> None:
    (place / "mine.py").write_text(SOLUTION)
    assert call("eval", "mine.py", "--problem", "1/16", *EVAL).code == 3
    assert records(place / "results/r")["mine"].reason.startswith(WHY)


def test_problems_list_and_show(place: Path, call: Call) -> None:
    listed = call("problems", "list", "--quick")
    assert listed.code == 3
    assert "level1/19" in listed.out
    assert "level1/16" not in listed.out
    assert WHY in listed.err
    assert f"precision must be one of {', '.join(PrecisionClass)}, not 'fp31'" in listed.err
    as_json = call("problems", "list", "--json", "--quick")
    assert as_json.code == 3
    assert [item["id"] for item in json.loads(as_json.out)] == ["level1/19"]
    assert call("problems", "show", "level1/19").code == 0
    shown = call("problems", "show", "level1/16")
    assert (shown.code, shown.out) == (3, "")
    assert WHY in shown.err


@pytest.mark.parametrize("wanted", [(), ("level1",), ("level1/16", "level1/18", "level1/19"), ("problems/level1",)])
def test_lint_finds_them_at_fault_and_checks_the_rest(place: Path, call: Call, wanted: tuple[str, ...]) -> None:
    done = call("problems", "lint", *wanted, "--device", "host", "--workload", "small", "--json")
    assert done.code == 1
    reports = {item["problem"]: item for item in json.loads(done.out)}
    assert sorted(reports) == ["level1/16", "level1/18", "level1/19"]
    (check,) = reports["level1/16"]["checks"]
    assert (check["rule"], check["verdict"]) == ("loads", "broken")
    assert check["details"][0].startswith(WHY)
    assert all(check["verdict"] != "broken" for check in reports["level1/19"]["checks"])


def test_lint_of_one_file_does_not_mind_its_neighbours(place: Path, call: Call) -> None:
    assert call("problems", "lint", "problems/level1/19_relu.py", "--device", "host").code == 0
    assert call("problems", "lint", "problems/level1/16_broken.py", "--device", "host").code == 1


def test_baselines_of_the_others_are_measured(place: Path, call: Call) -> None:
    options = ("--baseline", "eager", "--device", "host", "--cache", place / "cache")
    done = call("baseline", "level1", *options, "--json")
    assert done.code == 3
    assert [(row["problem"], row["outcome"]) for row in json.loads(done.out)["rows"]] == [("level1/19", "measured")]
    assert WHY in done.err
    assert "no result for 2" in done.err
    alone = call("baseline", "level1/16", *options)
    assert alone.code == 3
    assert WHY in alone.err
    assert call("baseline", "level1/19", *options).code == 0


def test_responses_are_extracted_for_a_problem_that_can_not_be_read(place: Path, call: Call) -> None:
    (place / "answer.txt").write_text(f"```python\n{SOLUTION}```\n")
    done = call("extract", "answer.txt", "--problem", "level1/16", "--author", "bob", "--out", "found")
    assert done.code == 0, done.err
    assert (place / "found/bob/level1/16_broken.py").is_file()


def test_python_callers_get_a_verdict_or_an_exception(place: Path) -> None:
    with Harness(device="host", problems=place / "problems") as h:
        result = h.evaluate("level1/19", place / "solutions/ann/level1/19_latin.py")
        assert result.status is Status.syntax_error
        assert "line 2: byte 18" in result.feedback()
        result.feedback().encode()
        with pytest.raises(CatalogError, match="level1/16 can't be read"):
            h.submit("level1/16", SOLUTION)


def test_ci_judges_the_others_and_says_that_the_base_has_to_be_mended(place: Path, call: Call) -> None:
    def git(*arguments: str) -> None:
        identity = {f"GIT_{who}_{what}": f"{what}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", *arguments], check=True, capture_output=True, env=environment)

    git("init", "-q", "-b", "main")
    git("add", "problems")
    git("commit", "-q", "-m", "base")
    git("checkout", "-q", "-b", "submission")
    git("add", "solutions")
    git("commit", "-q", "-m", "solutions")
    options = ("--device", "host", "--workload", "full", "--timing-budget", "0.5", "--cache", default_root())
    done = call("ci", "--base", "main", "--out", "out", *options)
    verdict = json.loads((place / "out/verdict.json").read_text())
    assert {Path(item["path"]).stem: item["status"] for item in verdict["solutions"]} == {
        "16_right": "harness_error",
        "18_right": "harness_error",
        "19_latin": "syntax_error",
        "19_right": "passed",
    }, done.err
    assert verdict["rejected"] == []
    reasons = {Path(item["path"]).stem: item["reason"] for item in verdict["solutions"]}
    assert reasons["16_right"].startswith(WHY)
    assert done.code == 1  # 19_latin breaks a rule, whatever could not be judged

"""`harness ci` on real throwaway repositories: what a branch may change, rules, pages and exit codes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.cli import main
from harness.cli.ci import (
    CiVerdict,
    Gates,
    Rejected,
    broken_rules,
    github_annotations,
    junit,
    read_gates,
    score,
    summary,
)
from harness.cli.ci.command import _settled
from harness.cli.ci.verdict import failing_line
from harness.cli.evaluate import Ran, View
from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, RunConfig
from harness.core.environment import Environment, MachineError
from harness.core.git import Repository, RevisionError, TreeEntry
from harness.core.record import Record
from harness.core.status import Status
from harness.results.gates import FAILED, PASSED, SKIPPED, weigh
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
SOLUTION = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
RIGHT = SOLUTION.format("torch.clamp(x, min=0)")
WRONG = SOLUTION.format("x")
BROKEN = "import torch\n\nclass ModelNew(:\n"
EASY = PROBLEM.replace("torch.relu(x)", "x")


class Repo:
    """A git repository in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = {f"GIT_{who}_{what}": f"{what}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def write(self, path: str, text: str) -> Path:
        held = self.folder / path
        held.parent.mkdir(parents=True, exist_ok=True)
        held.write_text(text)
        return held

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def branch(self, name: str) -> None:
        self.git("checkout", "-q", "-b", name, "main")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A base with one problem, one solution, and rules."""
    made = Repo(tmp_path / "repo")
    made.write("problems/level1/19_relu.py", PROBLEM)
    made.write("solutions/ann/level1/19_old.py", RIGHT)
    made.write(".ci/gates.yaml", "format: 1\nno_regression: {tolerance: 0.5}\n")
    made.commit()
    return made


Call = Callable[..., int]


@pytest.fixture
def call(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def run(*arguments: str, out: str = "out") -> int:
        where = ["--repository", str(repo.folder), "--out", str(tmp_path / out), "--cache", str(default_root())]
        quick = ["--device", "host", "--workload", "full", "--timing-budget", "0.5"]
        return main(["ci", "--base", "main", *where, *quick, *arguments])

    return run


def document(tmp_path: Path, out: str = "out") -> dict[str, object]:
    held = json.loads((tmp_path / out / "verdict.json").read_text())
    assert isinstance(held, dict)
    return held


def test_only_the_branchs_solutions_count_and_the_base_judges_them(
    repo: Repo, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo.branch("submission")
    repo.write("solutions/bob/level1/19_right.py", RIGHT)
    # It would pass by a problem, rules and results of its own.
    repo.write("solutions/bob/level1/19_wrong.py", WRONG)
    repo.write("problems/level1/19_relu.py", EASY)
    repo.write(".ci/gates.yaml", "format: 1\nrequire_passed: false\n")
    repo.write("solutions/bob/level1/19_typo.py", BROKEN)
    repo.commit()
    # Nor does what lies about in the working tree matter.
    repo.write("solutions/bob/level1/19_right.py", WRONG)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    assert call() == 1
    verdict = document(tmp_path)
    found = {item["path"]: item for item in verdict["solutions"]}  # type: ignore[attr-defined]
    assert {path: item["status"] for path, item in found.items()} == {
        "solutions/bob/level1/19_right.py": "passed",
        "solutions/bob/level1/19_wrong.py": "wrong_value",
        "solutions/bob/level1/19_typo.py": "syntax_error",
    }
    assert (verdict["verdict"], verdict["exit_code"]) == ("failed", 1)
    assert verdict["ignored"] == [".ci/gates.yaml", "problems/level1/19_relu.py"]
    assert found["solutions/bob/level1/19_typo.py"]["line"] == 3
    printed = capsys.readouterr().out
    assert "::error file=solutions/bob/level1/19_typo.py,line=3,title=syntax_error::" in printed
    token = printed.partition("::stop-commands::")[2].split()[0]
    assert printed.index(f"::stop-commands::{token}") < printed.index("wrong_value") < printed.index(f"::{token}::")
    assert "failed: solutions/bob/level1/19_typo.py: require_passed: syntax_error: line 3: " in printed
    assert "failed: solutions/bob/level1/19_wrong.py: require_passed: wrong_value: " in printed
    assert "failed: solutions/bob/level1/19_right.py" not in printed
    page = (tmp_path / "step.md").read_text()
    assert "19\\_typo.py**: line 3: " in page
    assert page == (tmp_path / "out" / "summary.md").read_text()
    assert "19_wrong" in page.replace("\\", "")
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    with (tmp_path / "out" / "leaderboard.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert (row["author"], row["results"]) == ("bob", "1")

    # What ran becomes part of the base; then a change that breaks a solution is a regression too.
    repo.git("checkout", "-qf", "main")
    run = tmp_path / "out" / str(verdict["run"])
    for name in ("run.yaml", "records.jsonl"):
        cut_short = '{"format": 1, "pro' if name == "records.jsonl" else ""
        repo.write(f"results/first/{name}", (run / name).read_text() + cut_short)
    repo.write("solutions/bob/level1/19_right.py", RIGHT)
    repo.commit()
    repo.branch("worse")
    repo.write("solutions/bob/level1/19_right.py", BROKEN)
    repo.commit()
    assert call(out="second") == 1
    assert "note: run first of the base: the last line was cut short (18 bytes)" in capsys.readouterr().err
    (item,) = document(tmp_path, "second")["solutions"]  # type: ignore[misc,attr-defined]
    assert (item["change"], item["status"]) == ("modified", "syntax_error")
    assert {result["gate"]: result["outcome"] for result in item["gates"]} == {
        "require_passed": "failed",
        "no_regression": "failed",
    }
    assert item["compared_with_base"]["before"] == "passed"
    page = (tmp_path / "second" / "summary.md").read_text()
    assert "| modified | level1/19 | syntax_error | - | passed" in page


def test_what_authors_say_is_taken_from_the_base(repo: Repo, call: Call, tmp_path: Path) -> None:
    repo.write("solutions/ann/author.yaml", "display_name: Ann B.\nmodel: m-1\n")
    repo.commit()
    repo.branch("renamed")
    repo.write("solutions/ann/author.yaml", "display_name: Somebody else\n")
    repo.write("solutions/ann/level1/19_new.py", BROKEN)
    repo.write("solutions/bob/author.yaml", "display_name: Ann B.\n")
    repo.write("solutions/bob/level1/19_new.py", BROKEN)
    repo.commit()
    assert call() == 1
    assert document(tmp_path)["ignored"] == ["solutions/ann/author.yaml", "solutions/bob/author.yaml"]
    with (tmp_path / "out" / "leaderboard.csv").open() as stream:
        said = {row["author"]: (row["display_name"], row["model"]) for row in csv.DictReader(stream)}
    assert said == {"ann": ("Ann B.", "m-1"), "bob": ("", "")}
    assert "| ann | Ann B. | m-1 |" in (tmp_path / "out" / "summary.md").read_text()

    repo.git("rm", "-qf", "solutions/ann/author.yaml")
    repo.write("solutions/ann/author.yaml/level1/19_odd.py", BROKEN)
    repo.commit()
    assert call(out="folder") == 1, "a folder of that name is in nobody's way"


def test_a_branch_without_solutions_has_nothing_to_score(repo: Repo, call: Call, tmp_path: Path) -> None:
    repo.branch("docs")
    repo.write("README.md", "words\n")
    repo.git("rm", "-q", "solutions/ann/level1/19_old.py")
    repo.commit()
    assert call() == 0
    verdict = document(tmp_path)
    assert (verdict["verdict"], verdict["deleted"]) == ("nothing", ["solutions/ann/level1/19_old.py"])


def test_what_can_not_be_evaluated_fails_the_submission(repo: Repo, call: Call, tmp_path: Path) -> None:
    repo.branch("odd")
    (repo.folder / "solutions/ann/level1/19_link.py").symlink_to("/etc/passwd")
    repo.write("solutions/ann/level9/3_unknown.py", RIGHT)
    repo.write("solutions/ann/level1/notes.py", RIGHT)
    # Its last folders are another author's; it counts for the first one.
    repo.write("solutions/mine/ann/level1/19_old.py", BROKEN)
    repo.commit()
    assert call() == 1
    (scored,) = document(tmp_path)["solutions"]  # type: ignore[misc]
    assert (scored["author"], scored["solution"]) == ("mine", "mine/ann/level1/19_old.py")
    rejected = {item["path"]: item["reason"] for item in document(tmp_path)["rejected"]}  # type: ignore[attr-defined]
    assert "a link" in rejected["solutions/ann/level1/19_link.py"]
    assert "no problem 'level9/3'" in rejected["solutions/ann/level9/3_unknown.py"]
    assert "its path names no problem" in rejected["solutions/ann/level1/notes.py"]
    assert not any("--" in reason for reason in rejected.values()), "harness ci has no such option"
    assert not any(str(tmp_path) in reason or "harness-ci-" in reason for reason in rejected.values())


def test_wrong_calls(repo: Repo, call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--base", "no-such-branch") == 2
    assert "fetch-depth: 0" in capsys.readouterr().err
    assert call("--gates", "other.yaml") == 2
    assert "gates come from the base" in capsys.readouterr().err
    assert main(["ci", "--base", "main", "--repository", str(tmp_path)]) == 2
    assert call("--problems", "elsewhere") == 2
    assert "the base main has no folder elsewhere: name its folder of problems" in capsys.readouterr().err
    # A mistyped folder must not make every submission one that has nothing to score, or nothing to be compared with.
    assert call("--solutions", "solution") == 2
    assert "neither main nor HEAD has a folder solution: name another with --solutions" in capsys.readouterr().err
    assert call("--results", "result") == 2
    assert "the base main has no folder result: name its folder of runs" in capsys.readouterr().err
    repo.write(".ci/gates.yaml", "minimum_speedup: {speedup: fast}\n")
    repo.commit()
    assert call() == 2
    assert ".ci/gates.yaml: minimum_speedup.speedup must be a number" in capsys.readouterr().err


def test_a_harness_that_the_branch_changed_is_refused(
    repo: Repo, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo.git("checkout", "-q", "main")
    repo.write("harness/cli/app.py", "a = 1\n")
    repo.commit()
    monkeypatch.setattr("harness.cli.ci.command.PACKAGE", repo.folder / "harness")
    assert call() == 0
    repo.branch("own")
    repo.write("harness/cli/app.py", "a = 2\n")
    repo.commit()
    assert call() == 2
    assert "judged by its own harness" in capsys.readouterr().err


def test_a_fault_of_the_harness_is_no_verdict_on_the_submission(
    repo: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo.branch("innocent")
    repo.write("solutions/ann/level1/19_new.py", RIGHT)
    repo.commit()

    def failing(config: RunConfig, found: Environment, view: View) -> Ran:
        """What a run leaves whose referee could not be had."""
        ours = record(Status.harness_error, solution="ann/level1/19_new.py")
        with RunStore.create(config.run_dir, config=config.to_json(), environment={}) as store:
            store.append(ours)
        return Ran(records=[ours], skipped=0, wall_s=1.0)

    def unable(config: RunConfig, found: Environment, view: View) -> Ran:
        raise MachineError("no device is left")

    where = ["--repository", str(repo.folder), "--out", str(tmp_path / "out"), "--device", "host"]
    assert main(["ci", "--base", "main", *where], run=failing) == 3
    verdict = document(tmp_path)
    assert (verdict["verdict"], verdict["exit_code"]) == ("error", 3)
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    assert main(["ci", "--base", "main", *where], run=unable) == 3
    assert "no device is left" in capsys.readouterr().err
    verdict = document(tmp_path)
    assert (verdict["verdict"], verdict["fault"], verdict["run"]) == ("error", "no device is left", None)
    assert "no device is left" in (tmp_path / "out" / "summary.md").read_text()


def test_a_made_up_tree_can_not_write_elsewhere(repo: Repo, tmp_path: Path) -> None:
    held = Repository(repo.folder)
    (entry,) = held.entries("main", [".ci/gates.yaml"])
    names = ["../out.py", "/abs.py", "a/../../b.py", "a//b.py", ".git/hooks/x"]
    entries = [replace(entry, path=name) for name in names] + [
        TreeEntry(path="l", mode="120000", oid="0", size_bytes=None)
    ]
    assert held.write([*entries, entry], tmp_path / "into") == [*names, "l"]
    assert [path.name for path in (tmp_path / "into").rglob("*") if path.is_file()] == ["gates.yaml"]
    with pytest.raises(RevisionError, match="is not a commit"):
        held.commit("--help")


# Rules and pages, on records.


def record(
    status: Status = Status.passed,
    *,
    speedup: float | None = 2.0,
    labels: tuple[str, ...] = (),
    device: DeviceKind = DeviceKind.CUDA,
    solution: str = "ann/level1/19_x.py",
    **more: object,
) -> Record:
    timed = status is Status.passed and speedup is not None
    speedup = speedup or 1.0
    bursts = [[1e-3, 1.001e-3, 0.999e-3], [1.0005e-3, 0.9995e-3, 1e-3]] * 3
    timing = {
        "speedup": {"speedup": speedup, "low": speedup * 0.99, "high": speedup * 1.01},
        "reference": {"samples_s": [[value * speedup for value in burst] for burst in bursts]},
        "solution": {"samples_s": bursts},
        "baselines": {"compile": {"speedup": speedup / 2, "low": speedup / 2.1, "high": speedup / 1.9}},
    }
    return Record(
        problem="level1/19",
        author="ann",
        solution=solution,
        device=device,
        workload="full",
        status=status,
        reason="so it was",
        speedup=speedup if timed else None,
        timing=timing if timed else None,
        labels=labels,
        environment={"gpu": "NVIDIA H200", "cpu": "some CPU"},
        problem_digest="d",
        **more,  # type: ignore[arg-type]
    )


def outcomes(held: Record, gates: Gates, before: Record | None = None) -> dict[str, str]:
    results, _ = weigh(held, before, gates)
    return {result.gate: result.outcome for result in results}


def test_a_speedup_that_is_too_noisy_to_tell_reaches_no_minimum() -> None:
    noisy = record(speedup=4.0)
    assert noisy.timing is not None
    wide = {**noisy.timing, "speedup": {"speedup": 4.0, "low": 2.0, "high": 8.0}}
    results, _ = weigh(replace(noisy, timing=wide), None, Gates(minimum_speedup=1.5))
    (fast,) = (result for result in results if result.gate == "minimum_speedup")
    assert (fast.outcome, "too noisy to tell" in fast.detail) == (FAILED, True)


def test_the_minimum_speedup_is_held_against_the_low_end_and_the_named_baseline() -> None:
    eager = Gates(minimum_speedup=1.98)
    assert outcomes(record(speedup=2.0), eager)["minimum_speedup"] == PASSED
    assert outcomes(record(speedup=1.99), eager)["minimum_speedup"] == FAILED
    compiled = Gates(minimum_speedup=1.0, baseline="compile")
    assert outcomes(record(speedup=2.2), compiled)["minimum_speedup"] == PASSED
    assert outcomes(record(speedup=2.0), compiled)["minimum_speedup"] == FAILED
    assert outcomes(record(), Gates(minimum_speedup=1.0, baseline="none_such"))["minimum_speedup"] == FAILED
    for speedup in (None, 1.0, 9.0):
        assert outcomes(record(speedup=speedup, device=DeviceKind.HOST), eager)["minimum_speedup"] == SKIPPED
    assert outcomes(record(speedup=None), eager)["minimum_speedup"] == FAILED


def test_slower_beyond_noise_and_tolerance_is_a_regression() -> None:
    gates = Gates(regression_tolerance=0.05)
    assert outcomes(record(speedup=1.0), gates, record(speedup=2.0))["no_regression"] == FAILED
    assert outcomes(record(speedup=1.97), gates, record(speedup=2.0))["no_regression"] == PASSED
    assert outcomes(record(speedup=3.0), gates, record(speedup=2.0))["no_regression"] == PASSED
    assert outcomes(record(), gates)["no_regression"] == SKIPPED
    slower, before = (record(speedup=speedup, device=DeviceKind.HOST) for speedup in (1.0, 2.0))
    assert outcomes(slower, gates, before)["no_regression"] == SKIPPED
    assert outcomes(record(Status.data_race, device=DeviceKind.HOST), gates, before)["no_regression"] == FAILED
    other = replace(record(speedup=9.0), environment={"gpu": "NVIDIA L4"})
    assert outcomes(record(), gates, other)["no_regression"] == SKIPPED


def test_statuses_labels_and_what_has_no_verdict() -> None:
    gates = Gates(refused_labels=("unexplained_time",))
    assert outcomes(record(labels=("unexplained_time",)), gates)["refused_labels"] == FAILED
    assert outcomes(record(labels=("static_buffer",)), gates)["refused_labels"] == PASSED
    for status in (Status.not_emulated, Status.unsupported):
        assert outcomes(record(status, device=DeviceKind.HOST), gates)["require_passed"] == SKIPPED
        assert outcomes(record(status), gates)["require_passed"] == FAILED
    assert outcomes(record(Status.harness_error), gates)["require_passed"] == SKIPPED
    assert outcomes(record(Status.data_race), gates)["require_passed"] == FAILED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "must hold"),
        ("format: 9", "format 9"),
        ("requires_passed: true", "unknown key requires_passed"),
        ("require_passed: 1", "true or false"),
        ("no_regression: {tolerance: 1.5}", "at least 0 and below 1"),
        ("minimum_speedup: {baseline: 3, speedup: 1}", "minimum_speedup.baseline"),
        ("minimum_speedup: {baseline: compiled, speedup: 1}", "nearest: compile"),
        ("refused_labels: unexplained_time", "a list of label names"),
        ("refused_labels: [torch_onyl]", r"refused_labels: unknown label 'torch_onyl' \(nearest: torch_only\)"),
        ("{", r"gates.yaml: not valid YAML: .* at line \d, column \d"),
        ("format: 2026-99-99", "not valid YAML: month must be"),
        ("[" * 3000, "not valid YAML"),
    ],
)
def test_rules_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_gates(text, "gates.yaml")


def test_rules_are_read_as_documented() -> None:
    text = "format: 1\nminimum_speedup: {baseline: compile, speedup: 1.1}\nno_regression: {}\n"
    text += "refused_labels: [torch_only]\n"
    gates = read_gates(text, "gates.yaml")
    labels = ("torch_only",)
    assert gates == Gates(baseline="compile", minimum_speedup=1.1, regression_tolerance=0.02, refused_labels=labels)
    assert read_gates("", "gates.yaml") == Gates()
    assert read_gates("minimum_speedup: {baseline: max-autotune, speedup: 1}", "g").baseline == "compile_max_autotune"


def test_the_baseline_of_the_rules_is_measured_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else no submission could meet a rule about it. The host device times none of what the rule is about."""
    monkeypatch.setattr("harness.core.environment.cuda_unusable", lambda found: None)
    rules = read_gates("minimum_speedup: {baseline: compile, speedup: 1}", "gates.yaml")
    for device, wanted in (("cuda", ["eager", "compile"]), ("host", ["eager"])):
        settled = _settled(rules, tmp_path, [tmp_path], tmp_path, {"device": device})
        assert [item.value for item in settled.baselines] == wanted


HOSTILE = "x | y\n::error::owned\x1b[31m<script>&@someone https://example.org `%0A"


def verdict_on(
    held: Record, path: str, change: str, gates: Gates, before: Sequence[Record] = (), **also: Any
) -> CiVerdict:
    """The verdict on a submission of one solution."""
    scored = score([held], paths={held.solution: (path, change, "")}, base_records=before, gates=gates)
    return CiVerdict(scored=scored, gates=gates, base="b" * 40, head="c" * 40, device="cuda", workload="full", **also)


def test_pages_escape_what_a_submission_chose() -> None:
    held = replace(record(Status.runtime_error), reason="x::y " + HOSTILE.replace("\n", " "))
    rejected = [Rejected(path="a,b:c.py", reason=HOSTILE)]
    verdict = verdict_on(held, f"solutions/{HOSTILE}.py", "added", Gates(), rejected=rejected)
    lines = github_annotations(verdict)
    assert all(line.startswith("::error file=") and "\n" not in line for line in lines)
    assert lines[0].startswith("::error file=a%2Cb%3Ac.py,title=")
    assert "%250A" in lines[0]
    page = summary(verdict)
    assert "<script>" not in page
    assert "@someone" not in page
    assert "\x1b" not in page
    (row,) = [line for line in page.splitlines() if line.startswith("| ❌")]
    assert row.replace("\\|", "").count("|") == 9
    assert [line.startswith("failed: ") and "\n" not in line for line in broken_rules(verdict)] == [True, True]
    root = ElementTree.fromstring(junit(verdict).partition("\n")[2])
    assert root[0].get("failures") == "2"
    json.dumps(verdict.to_json(), allow_nan=False)


def test_a_right_solution_that_breaks_a_rule_fails_by_the_rules_name() -> None:
    slow = record(speedup=0.5, labels=("coerced_device",))
    rules = Gates(minimum_speedup=1.0, refused_labels=("coerced_device",))
    verdict = verdict_on(slow, "solutions/ann/level1/19_x.py", "added", rules)
    (line,) = github_annotations(verdict)
    assert "title=minimum_speedup%2C refused_labels::0.5x over eager, at least 0.495x; required: 1x; has " in line
    assert broken_rules(verdict) == [
        "failed: solutions/ann/level1/19_x.py: minimum_speedup: 0.5x over eager, at least 0.495x; required: 1x",
        "failed: solutions/ann/level1/19_x.py: refused_labels: has coerced_device",
    ]
    failure = ElementTree.fromstring(junit(verdict).partition("\n")[2])[0][0][0]
    assert failure.get("type") == "minimum_speedup, refused_labels"
    assert (failure.get("message") or "").startswith("0.5x over eager, at least 0.495x")


def test_a_record_at_the_base_that_finishes_in_the_future_is_not_what_counts_there() -> None:
    """It would let a regression pass, by saying that the base was slow."""
    own = record(speedup=4.0, finished_at="2026-01-01T00:00:00+00:00")
    crafted = replace(record(Status.wrong_value), finished_at="2999-01-01T00:00:00+00:00")
    head = record(Status.wrong_value)
    for order in ([own, crafted], [crafted, own]):
        rules = Gates(require_passed=False, regression_tolerance=0.02)
        verdict = verdict_on(head, "solutions/ann/level1/19_x.py", "changed", rules, order)
        assert [item.outcome for item in verdict.scored[0].gates if item.gate == "no_regression"] == [FAILED]


def test_annotations_stand_at_the_line_that_the_compiler_or_a_check_names() -> None:
    evidence = {"error": {"tool": "nvcc", "message": "identifier is undefined", "line": 2, "solution_line": 5}}
    failed = replace(record(Status.compile_error), evidence=evidence)
    source = 'import torch\nkernels = """\n__global__ void twice(float* x) {\n  x[0] *= 2;\n}\n"""\n'
    assert failing_line(failed, source) == 5
    assert failing_line(failed, "short\n") is None
    reports = [{"kernel": "twice", "file": "cuda source 1", "line": 2}, {"file": "16_naive.py", "line": 4}]
    raced = replace(record(Status.data_race), evidence={"reports": reports})
    assert failing_line(raced, source) == 4
    assert failing_line(replace(raced, evidence={"reports": reports[:1]}), source) is None
    assert failing_line(record(Status.crashed), source) is None


def test_the_base_has_records_that_are_read(repo: Repo, tmp_path: Path) -> None:
    with RunStore.create(repo.folder / "results" / "r", config={}, environment={}) as store:
        store.append(record())
    commit = repo.commit()
    held = Repository(repo.folder)
    assert held.write(held.entries(commit, ["results"]), tmp_path / "base") == []
    assert RunStore.open(tmp_path / "base" / "results" / "r").records() == [record()]

"""The files of CI systems: what they grant, what they run, and that they run what people run by hand."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import harness
from harness.cli import main
from tests.support.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GITLAB = ROOT / ".gitlab-ci.yml"
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
ACTION = ROOT / "action.yml"


def read(path: Path) -> dict[Any, Any]:
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(held, dict)
    return held


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_can_only_read_and_leaves_no_credentials_behind(path: Path) -> None:
    held = read(path)
    # YAML 1.1 reads the key `on` as true.
    triggers = held[True]
    assert "pull_request_target" not in triggers
    assert held["permissions"] == {"contents": "read"}
    # Only what makes a release may write; its job runs nothing of the repository.
    writing = {name: job["permissions"] for name, job in held["jobs"].items() if "permissions" in job}
    release = {"publish": {"attestations": "write", "contents": "write", "id-token": "write"}}
    assert writing == (release if path == RELEASE else {})
    assert "secrets." not in path.read_text(encoding="utf-8")
    for step in steps(path):
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        # What an event holds (a branch's name) must not be pasted into a shell's program.
        assert "${{" not in step.get("run", "")


def test_pull_requests_never_reach_the_own_runner() -> None:
    """Those of forks never, and those of this repository only by a label, which takes the right to write."""
    for path in WORKFLOWS:
        for job in read(path)["jobs"].values():
            if "self-hosted" in job["runs-on"]:
                by_hand = "github.event_name == 'workflow_dispatch'" in job["if"] and "default_branch" in job["if"]
                label = "github.event.label.name == 'gpu'" in job["if"]
                own = "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
                assert by_hand or (label and own)
                assert job["environment"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit_with_the_version_beside_it(path: Path) -> None:
    uses = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert uses
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in uses), uses


def test_a_branch_is_not_tested_twice_and_the_default_branch_is_tested_to_the_end() -> None:
    test = read(ROOT / ".github" / "workflows" / "test.yml")
    assert test[True]["push"] == {"branches": ["main"]}
    assert test["concurrency"]["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    shards = test["jobs"]["all"]["strategy"]["matrix"]["shard"]
    assert shards == [f"{part}/{len(shards)}" for part in range(1, len(shards) + 1)]


def commands(path: Path) -> list[list[str]]:
    """The arguments of every `harness` command in a file."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    folded = re.sub(r">-\n\s+(\S[^\n]*)\n\s+(\S)", r"\1 \2", text)
    found = re.findall(r"^\s*(?:- )?\S*/\.venv/bin/harness\"? (.*)$", folded, flags=re.MULTILINE)
    return [shlex.split(line) for line in found]


@pytest.mark.parametrize("path", [*WORKFLOWS, GITLAB], ids=lambda path: path.name)
def test_the_commands_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = commands(path)
    assert bool(found) == (path.name not in ("test.yml", "release.yml"))
    for command, *arguments in found:
        assert main([command, "--help"]) == 0
        known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert {item for item in arguments if item.startswith("--")} <= known


@pytest.mark.parametrize("path", [*WORKFLOWS, GITLAB], ids=lambda path: path.name)
def test_no_job_imports_the_harness_of_the_folder_that_it_runs_in(path: Path) -> None:
    """`python -m` looks there first, and a merge request's job runs in the merge request's folder."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in lines if "-m harness" in line or "PYTHONPATH" in line]


checks_schemas = pytest.mark.skipif(
    importlib.util.find_spec("check_jsonschema") is None,
    reason="check-jsonschema is not installed; `pip install check-jsonschema` makes this run",
)


@checks_schemas
def test_a_schema_admits_each_file() -> None:
    """GitHub's and GitLab's published schemas, which check-jsonschema brings."""
    for schema, paths in (("github-workflows", WORKFLOWS), ("github-actions", [ACTION]), ("gitlab-ci", [GITLAB])):
        transform = ["--data-transform", "gitlab-ci"] if schema == "gitlab-ci" else []
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *transform]
        done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


@checks_schemas
def test_the_schema_check_finds_mistakes(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(broken)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=300).returncode == 1


def test_a_release_has_the_version_of_its_tag(tmp_path: Path) -> None:
    """The step's own shell, on this project's files."""
    (step,) = [step for step in steps(RELEASE) if step.get("name") == "The tag is the version"]

    def refused(tag: str) -> str:
        environment = {"PATH": os.environ["PATH"], "GITHUB_REF_NAME": tag}
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (done.stderr == "")
        return done.stderr

    assert refused(f"v{harness.__version__}") == ""
    assert f"pyproject.toml {harness.__version__}" in refused("v9.9.9")
    assert refused(harness.__version__)


def test_the_job_that_may_write_runs_nothing_of_the_repository() -> None:
    release = read(RELEASE)
    assert release[True] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert not any(str(step.get("uses", "")).startswith("actions/checkout@") for step in publish["steps"])
    assert [step["run"].split()[:3] for step in publish["steps"] if "run" in step] == [["gh", "release", "create"]]


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="no actionlint on PATH: it is no Python package")
def test_actionlint_has_nothing_to_say() -> None:
    done = subprocess.run(["actionlint", *map(str, WORKFLOWS)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout


def test_both_systems_run_the_projects_own_tests_and_score_with_the_same_command() -> None:
    github = [step.get("run") for step in steps(ROOT / ".github" / "workflows" / "test.yml")]
    gitlab = read(GITLAB)
    assert ".ci/run" in github
    assert gitlab["test"]["script"] == [".ci/run"]
    scores = [*commands(ROOT / ".github" / "workflows" / "score.yml"), *commands(GITLAB)]
    assert len(scores) == 3
    assert all({"ci", "--base", "--head", "--device", "--out"} <= set(arguments) for arguments in scores)
    assert {gitlab[name]["variables"]["DEVICE"] for name in ("score-host", "score-gpu")} == {"host", "cuda"}
    assert gitlab["score-gpu"]["rules"][0]["when"] == "manual"

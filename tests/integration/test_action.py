"""action.yml: its steps score a branch of a throwaway repository, as a runner would run them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.github_action import filled, run_action
from tests.support.paths import ROOT
from tests.unit.cli.test_ci import PROBLEM, RIGHT, WRONG, Repo

ACTION = ROOT / "action.yml"


@pytest.mark.parametrize(("solution", "code"), [(RIGHT, 0), (WRONG, 1)], ids=["right", "wrong"])
def test_the_steps_score_what_a_branch_adds(
    solution: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the first step, which takes a minute: here this Python is the environment that it makes."""
    repo = Repo(tmp_path / "repository")
    repo.write("problems/level1/1_relu.py", PROBLEM)
    repo.write(".ci/gates.yaml", "format: 1\nrequire_passed: true\n")
    base = repo.commit()
    repo.write("solutions/me/level1/1_clamp.py", solution)
    head = repo.commit()
    tools = tmp_path / "temp" / "kernel-harness" / "bin"
    tools.mkdir(parents=True)
    (tools / "harness").write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n')
    (tools / "harness").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    event = {"github.event.pull_request.base.sha": base, "github.event.pull_request.head.sha": head}
    given = {"repository": "repository", "device": "host"}
    ended = run_action(ACTION, given=given, event=event, folder=tmp_path, temp=tmp_path / "temp", skip=1)
    assert ended == (code, {"results": "ci-results"})
    verdict = json.loads((tmp_path / "ci-results" / "verdict.json").read_text())
    assert (verdict["base"], verdict["head"], verdict["verdict"]) == (base, head, "failed" if code else "passed")
    assert f"the submission {verdict['verdict']}" in (tmp_path / "temp" / "summary.md").read_text()


def test_what_an_event_holds_reaches_the_shell_by_variables_only() -> None:
    """A branch's name pasted into a program would be run."""
    read = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    for step in read["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert set(re.findall(r"\$([A-Z]+)\b", step["run"])) <= set(step["env"])
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", ACTION.read_text(encoding="utf-8")))
    assert used == set(read["inputs"])


def test_the_stand_in_knows_every_expression() -> None:
    assert filled("a ${{ inputs.torch-index }} b", {"inputs.torch-index": "x"}) == "a x b"
    with pytest.raises(KeyError):
        filled("${{ github.actor }}", {})

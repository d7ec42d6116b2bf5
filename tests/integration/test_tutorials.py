"""Each tutorial is followed from top to bottom, as by its reader: files are written, commands and Python are run, and
they print what the page says.

A block with a title is a file, and one in `diff` with a title a change of it. A block without a language holds commands
for the shell, `python` continues the Python of the page, and `text` is output of what came before it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from tests.support.page_blocks import Block, absent_lines, blocks_in
from tests.support.paths import ROOT

TUTORIALS = ROOT / "harness" / "guides" / "tutorials"
RUNS = ("h200-examples", "h200-examples-later")
"""The committed runs that a reader in a clone of the repository has."""

FAILS = {
    "harness compare results/h200-examples results/h200-examples-later": 1,
    "harness ci --base main --device host": 1,
}
"""Command -> exit code, if that is not 0. The page says so."""

GIT = {
    **{f"GIT_{who}_{what}": f"{what}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class Reader:
    """Follows a page in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed = ""
        self.names: dict[str, object] = {"__name__": "__main__"}

    def follow(self, block: Block, capfd: pytest.CaptureFixture[str]) -> None:
        path = self.folder / block.title
        if block.title and block.language == "diff":
            path.write_text(changed(path.read_text(encoding="utf-8"), block.text), encoding="utf-8")
        elif block.title:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with chdir(self.folder):
                exec(compile(block.text, f"line {block.line}", "exec"), self.names)
            self.printed += "".join(capfd.readouterr())
        elif block.language == "":
            for line in block.text.splitlines():
                self.printed += run(line, self.folder)
        elif block.language == "text":
            absent = absent_lines(block.text, self.printed)
            assert not absent, f"line {block.line}: not printed: {absent}\n{self.printed[-6000:]}"
        else:
            pytest.fail(f"line {block.line}: nothing runs a block in {block.language!r} without a title")


def changed(text: str, difference: str) -> str:
    """A file with the change that a block in `diff` shows, whose lines begin with a space, `-` or `+`."""
    before = "".join(line[1:] for line in difference.splitlines(keepends=True) if line[0] in " -")
    after = "".join(line[1:] for line in difference.splitlines(keepends=True) if line[0] in " +")
    assert text.count(before) == 1, f"not once in the file:\n{before}"
    return text.replace(before, after)


def run(line: str, folder: Path) -> str:
    words = [word for part in shlex.split(line, comments=True) for word in matching(part, folder)]
    assert words[0] in ("harness", "git"), line
    # -P: nothing is imported from the folder
    command = words if words[0] == "git" else [sys.executable, "-P", "-m", *words]
    environment = {**os.environ, **GIT, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    shown = " ".join(shlex.split(line, comments=True))
    assert done.returncode == FAILS.get(shown, 0), f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def matching(word: str, folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]


@pytest.mark.parametrize("name", sorted(path.name for path in TUTORIALS.glob("*.md")))
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for run_id in RUNS:
        shutil.copytree(ROOT / "results" / run_id, tmp_path / "results" / run_id)
    reader = Reader(tmp_path)
    blocks = list(blocks_in((TUTORIALS / name).read_text(encoding="utf-8")))
    assert len(blocks) > 2
    for block in blocks:
        reader.follow(block, capfd)


def test_output_that_was_not_printed_is_found() -> None:
    printed = "1 solution, 1 passed, in 5.27 s.\nlevel1/38   l1_norm.py   passed\n"
    assert absent_lines("1 solution, 1 passed, in 9 s.\nlevel1/38 l1_norm.py …\n", printed) == []
    assert absent_lines("1 solution, 0 passed, in 9 s.\npassed\n", printed) == [
        "1 solution, 0 passed, in 9 s.",
        "passed",
    ]


def test_every_fence_of_a_tutorial_is_a_block() -> None:
    for path in TUTORIALS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert 2 * len(list(blocks_in(text))) == len(re.findall(r"^\s*```", text, flags=re.MULTILINE)), path.name


def test_the_workflow_of_the_tutorial_runs_the_command_that_it_shows_by_hand() -> None:
    """It grants a token that can only read, to a command whose arguments no event can turn into a program."""
    blocks = {block.title: block for block in blocks_in((TUTORIALS / "ci.md").read_text(encoding="utf-8"))}
    workflow = yaml.safe_load(blocks[".github/workflows/score.yml"].text)
    assert workflow["permissions"] == {"contents": "read"}
    steps = workflow["jobs"]["host"]["steps"]
    assert steps[-1]["run"] == 'harness ci --base "$BASE" --head "$HEAD" --device host'
    uses = {step["uses"] for step in steps if "uses" in step}
    assert uses <= set(re.findall(r"actions/\S+", (ROOT / ".github" / "workflows" / "score.yml").read_text("utf-8")))

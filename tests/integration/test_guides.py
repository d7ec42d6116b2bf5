"""Every command that the README and the guides show is run, as a newcomer would type it, in a folder of small inputs.

A command that is neither in `RUNS` nor in `NOT_RUN` fails, and so does an entry that no page shows any more. Python and
YAML in the guides are run and read too, and output that they show is compared: a block that is in none of the lists
fails. `test_tutorials.py` follows the tutorials.

Commands that only read, print or check files are called in this process. Those that evaluate are processes. Without a
GPU, several of these share the builders and referees of one server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

import harness
from harness import Harness
from harness.catalog import load_problems
from harness.catalog.authors import AUTHOR_TEXTS
from harness.cli import main
from harness.cli.app import COMMANDS, GROUPS
from harness.cli.ci import read_gates
from harness.core.config import KEYS, TIMING_KEYS
from harness.core.environment import collect
from harness.core.policy import Policy, parse_policy
from harness.report.csv import COLUMNS
from tests.support.page_blocks import absent_lines, blocks_in
from tests.support.paths import ROOT

GUIDES = ROOT / "harness" / "guides"
PAGES = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]
PROGRAMS = ("harness", "make", "python", "git", "pip", "pytest")
RUN = "h200-examples"
"""The committed run that stands for `results/<run>`."""

PROBLEMS = {"level1": (1, 4, 16, 17, 19, 25, 33, 36, 40, 47), "level2": (106,)}
"""Those of the shipped problems that the folder has, so that `harness problems lint` takes seconds."""


@dataclass(frozen=True, kw_only=True)
class As:
    """What is run for a command that is shown. `lines`: with what stands for its placeholders; empty: as it is shown.
    `codes` are the exit codes that are right; `said` a part of its output; `needs` another command of the pages, of
    which it uses what that made. `served`: it may evaluate in the processes of a server that others use too."""

    lines: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)
    said: str = ""
    gpu: bool = False
    needs: str = ""
    served: bool = False


EXAMPLE = f"results/{RUN}"
QUICKLY = "--config quick.yaml"
"""Added where a solution is timed, but for one command: that one is run with the settings that everybody has."""
COMPILED = (
    "harness eval solution.py --problem level1/19 --baseline eager,compile --timing-budget 30 --run-id compiled "
    f"{QUICKLY}"
)
MINE = f"harness eval solutions/mine/level1/19_vectorised.py --device host --run-id mine {QUICKLY}"
RUNS: dict[str, As] = {
    "harness serve --new-token": As(said="sha256"),
    "harness doctor": As(said="--device"),
    "harness eval solutions/ --device cuda --out results/": As(gpu=True, said="passed"),
    "harness new problem my_problem": As(said="my_problem.py"),
    "harness new solution my_problem.py": As(said="my_problem_solution.py"),
    "harness eval my_kernel.py --problem my_problem.py": As(
        lines=(f"harness eval my_problem_solution.py --problem my_problem.py {QUICKLY}",), said="1 solution, 1 passed"
    ),
    "harness eval my_kernel.py --problem level1/16": As(
        lines=(f"harness eval one_solution.py --problem level1/16 {QUICKLY}",), said="1 solution, 1 passed"
    ),
    "harness eval solutions/": As(
        lines=(f"harness eval solutions/ --run-id RUN {QUICKLY}",), said="1 solution, 1 passed"
    ),
    "harness eval solutions/ -k matmul -x": As(
        lines=(f"harness eval solutions/ -k vectorised -x --run-id chosen {QUICKLY}",), said="1 solution, 1 passed"
    ),
    "harness eval solutions/ --resume --run-id RUN": As(said="RUN", needs="harness eval solutions/"),
    "harness timeline results/RUN": As(said="host", needs="harness eval solutions/"),
    "harness verify results/<run>": As(
        lines=("harness verify results/RUN",), said="0 findings in 1 records", needs="harness eval solutions/"
    ),
    # Times on a busy CPU may differ.
    "harness replay results/<run> [solution]": As(
        lines=("harness replay results/RUN",), codes=(0, 1, 3), said="1 solutions:", needs="harness eval solutions/"
    ),
    "harness eval --config results/<run>/run.yaml": As(
        lines=("harness eval --config results/RUN/run.yaml --run-id again",),
        said="1 passed",
        needs="harness eval solutions/",
        served=True,
    ),
    "harness eval first/solutions --problems first/problems": As(
        lines=(f"harness eval first/solutions --problems first/problems --run-id first {QUICKLY}",),
        said="1 solution, 1 passed",
        served=True,
    ),
    "harness prompt level1/19 --template one_example --gpu H200": As(said="4.80 TB/s"),
    "harness extract response.txt --problem level1/16 --author some-model --out solutions": As(said="some-model"),
    "harness show results/<run> [solution]": As(
        lines=(f"harness show {EXAMPLE}", f"harness show {EXAMPLE} 17_bfloat16"), said="low_precision"
    ),
    "harness show results/<run>": As(said="data_race"),
    "harness show results/<run> 1_missing_barrier": As(said="speed of light|matmul_kernel"),
    "harness show results/<run> 1_missing_barrier --all": As(said="What to do"),
    "harness show last -k relu --status failed": As(
        lines=("harness show last -k relu --status failed",), said="results"
    ),
    "harness show results/<run> 1_missing_barrier --json": As(said='"status": "data_race"'),
    "harness show results/<run> 4_wide --json": As(said='"samples"'),
    "harness show results/<run> 16_naive --feedback": As(
        lines=(f"harness show {EXAMPLE} 17_library_call --feedback",), said="Correct"
    ),
    "harness timeline results/<run>": As(said="GPU-"),
    "harness leaderboard results/* --csv leaderboard.csv": As(said="optimised"),
    "harness leaderboard results/* --csv leaderboard.csv --by author --metric geomean": As(
        lines=tuple(
            f"harness leaderboard {EXAMPLE} --csv leaderboard.csv --by {by} --metric {metric}"
            for by, metric in (("author", "geomean"), ("problem", "fast_1"), ("solution", "sol"))
        ),
        said="optimised",
    ),
    "harness leaderboard results/* --parquet leaderboard.parquet": As(said="optimised"),
    "harness report results/* --out report.html": As(said="report.html"),
    "harness plot results/* --out figures --format pdf": As(said="figures/"),
    "harness compare results/yesterday results/today": As(said="same"),
    # Two ways to write one product: which is faster on this machine's CPU is not for a test to say.
    "harness compare mine_v1.py mine_v2.py --problem level1/16": As(
        lines=(f"harness compare mine_v1.py mine_v2.py --problem level1/16 {QUICKLY}",),
        codes=(0, 1),
        said="level1/16",
    ),
    "harness problems list | show | lint": As(
        lines=(
            "harness problems list",
            "harness problems show level1/19",
            "harness problems lint my_problems/level1/7_row_scale.py",
        ),
        said="matmul",
    ),
    "harness problems list [level1 ...]": As(lines=("harness problems list level1 level2 --gpu H200",), said="matmul"),
    "harness problems derive --write": As(said="derived"),
    "harness problems lint": As(said="11 checked, none breaks a rule"),
    "harness problems lint level1/16 my_problems/ --json": As(said='"problem": "level1/7"'),
    "harness problems lint --rules": As(said="dropped_operation"),
    "harness problems lint --workload odd --out lint.jsonl --resume --budget 300 --markdown lint.md": As(
        lines=(
            "harness problems lint my_problems --workload full --out lint.jsonl --resume --budget 300 --markdown "
            "lint.md",
        )
        * 2,
        codes=(0, 1),
        said="1 checked",
    ),
    "harness baseline level1 --baseline eager,compile": As(
        lines=("harness baseline level1/19 --baseline eager,compile",), said="compile"
    ),
    "harness eval --baseline eager,compile": As(lines=(COMPILED,), said="1 passed"),
    "harness eval solution.py --problem level1/19 --baseline eager,compile": As(lines=(COMPILED,), said="1 passed"),
    "harness leaderboard --baseline compile": As(
        lines=("harness leaderboard results/compiled --baseline compile",),
        said="compile",
        needs="harness eval --baseline eager,compile",
    ),
    "harness profile solutions/someone/level1/16_fast.py": As(
        gpu=True, lines=("harness profile solutions/mine/level1/19_vectorised.py",), said="relu"
    ),
    "harness profile my_kernel.py --problem level1/16 --json": As(
        gpu=True, lines=("harness profile solution.py --problem level1/19 --json",), said="kernel"
    ),
    "harness show --feedback": As(lines=(f"harness show {EXAMPLE} --feedback",), said="What to do"),
    "harness problems lint my_problems/level1/7_row_scale.py": As(said="none breaks a rule"),
    "harness problems show level1/7 --problems my_problems": As(said="row_scale"),
    "harness problems show level1/19": As(said="relu"),
    "harness eval solution.py --problem level1/7 --problems my_problems": As(
        lines=(f"harness eval row_scale.py --problem level1/7 --problems my_problems {QUICKLY}",),
        said="passed",
        served=True,
    ),
    "harness eval solution.py --problem level1/19 --timing-budget 30": As(lines=(COMPILED,), said="1 passed"),
    "harness eval solutions/mine/level1/19_vectorised.py": As(lines=(MINE,), said="passed", served=True),
    "harness eval solutions/mine/level1/19_vectorised.py --device host": As(lines=(MINE,), said="passed", served=True),
    "harness show results/<run> 19_vectorised --feedback": As(
        lines=("harness show results/mine 19_vectorised --feedback",),
        said="Correct",
        needs="harness eval solutions/mine/level1/19_vectorised.py --device host",
    ),
    "harness eval solutions/mine --shapes 4": As(
        lines=(f"harness eval solutions/mine --device host --shapes 1 --run-id mine-at-secret-sizes {QUICKLY}",),
        said="passed",
    ),
    "harness eval solutions/mine --workload half": As(
        gpu=True, lines=("harness eval halves/mine --workload half",), said="passed"
    ),
    "harness screen solution.py": As(),
    "harness screen FILE...": As(lines=("harness screen solution.py one_solution.py solutions/",)),
    "harness eval runs/my_model --problems ../KernelBench/KernelBench": As(
        lines=(
            "harness eval runs/my_model --problems ../KernelBench/KernelBench --workload full --run-id bench "
            f"{QUICKLY}",
        ),
        said="passed",
        served=True,
    ),
    "harness export kernelbench results/<run> --out runs/my_model": As(
        lines=("harness export kernelbench results/bench --out runs/their_run",),
        said="eval_results.json",
        needs="harness eval runs/my_model --problems ../KernelBench/KernelBench",
    ),
    "harness import kernelbench runs/their_run/eval_results.json --baseline-file baseline_time_torch.json --level 1 "
    "--out results/their-run": As(
        lines=(
            "harness import kernelbench runs/their_run/eval_results.json --baseline-file "
            "runs/their_run/baseline_time_torch.json --level 1 --out results/their-run",
        ),
        said="geometric mean",
        needs="harness export kernelbench results/<run> --out runs/my_model",
    ),
    "harness import gpumode ../reference-kernels --out gpumode": As(said="1 problems, 1 solutions, 0 skipped"),
    "harness problems lint --problems gpumode/problems --device host": As(
        said="none breaks a rule", needs="harness import gpumode ../reference-kernels --out gpumode"
    ),
    "harness eval gpumode/solutions --problems gpumode/problems": As(
        lines=(f"harness eval gpumode/solutions --problems gpumode/problems --device host {QUICKLY}",),
        said="passed",
        served=True,
        needs="harness import gpumode ../reference-kernels --out gpumode",
    ),
    "harness import flashinfer ../flashinfer-trace --out flashinfer": As(said="1 problems"),
    "harness export flashinfer level1/19 --problems problems --out trace": As(said="1 definitions"),
    "harness export kernelbench-parquet level1 --out table": As(said="level_1-00000-of-00001.parquet"),
    "harness import kernelbench-parquet table --out kernelbench": As(
        said="10 problems", needs="harness export kernelbench-parquet level1 --out table"
    ),
    "harness export schema > record.schema.json": As(lines=("harness export schema",), said="json-schema.org"),
    "harness export schema run > run.schema.json": As(lines=("harness export schema run",), said="RunHead"),
    "harness export parquet results/nightly --out nightly.parquet": As(
        lines=(f"harness export parquet {EXAMPLE} --out nightly.parquet",), said="25 rows"
    ),
    "harness export parquet results --nested timing --nested evidence --out all.parquet": As(
        lines=(f"harness export parquet {EXAMPLE} --nested timing --nested evidence --out all.parquet",), said="25 rows"
    ),
    "git worktree add --detach ../base origin/main": As(),
    "make -C ../base warmup": As(needs="git worktree add --detach ../base origin/main"),
    "harness ci --base origin/main": As(
        lines=("harness ci --base origin/main --timing-budget 0.5",), said="verdict: passed"
    ),
    "../base/.venv/bin/harness ci --base origin/main --head HEAD": As(
        lines=("../base/.venv/bin/harness ci --base origin/main --head HEAD --timing-budget 0.5",),
        said="verdict: passed",
        needs="make -C ../base warmup",
    ),
}
"""Command as shown -> what is run. In order: later ones use what earlier ones made. A line that stands for several
commands is run for the first of them."""

RED_TEAM = "minutes; test_exploits_grammar.py runs the same for a sample"
CORPUS = "minutes; tests/integration/test_exploits.py runs what needs no GPU"

NOT_RUN = {
    "harness profile my_kernel.py --problem level1/16 --ncu": "needs a GPU whose counters anybody may read, and ncu",
    "make eval": "evaluates all of solutions/examples, minutes on a CPU; `make -C ../base warmup` above takes the same "
    "Makefile's path, and tests/integration/test_examples.py judges the examples",
    "make test": "these very tests",
    "pytest --harness": "tests/integration/test_pytest_plugin.py runs it",
    "pytest --harness --harness-device cuda": "the same, with `-m gpu`",
    "make doors": "installs packages; tests/integration/test_doors.py has the contracts",
    "harness generate level1/19 --model some-model --samples 4 --base-url http://localhost:8000/v1": (
        "needs a model; tests/integration/test_generate.py has a server that speaks the protocol"
    ),
    "harness eval generated/solutions": "needs these samples",
    "harness show last 19_relu --feedback | harness prompt level1/19 --feedback -": (
        "a pipe; tests/integration/test_generate.py calls it"
    ),
    "pip install kernel-harness[generate]": "installs a package",
    "make docs": "needs the extra `docs`; .ci/run runs it",
    "harness eval solutions/examples": "the same as `make eval`",
    "harness eval solutions/quantised --device host -k 122": "tests/integration/test_low_precision_problems.py does",
    "harness eval --last-failed": "needs a run with failures; tests/unit/cli/test_cli.py has one",
    "harness --install-completion": "writes to a start-up file; tests/unit/cli/test_cli.py completes words",
    "harness eval solutions/ --device cuda --shard $SLURM_ARRAY_TASK_ID/8 "
    "--run-id $SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID --resume": "needs SLURM; test_parts.py runs its script",
    "harness eval solutions/ --device cuda --ray-address auto --accelerator-type H200": (
        "needs a Ray cluster with GPUs; tests/integration/test_executor_ray.py runs one on this machine"
    ),
    "python -m tests.exploits": CORPUS,
    "python -m tests.exploits --device host --only A1": CORPUS,
    "python -m tests.exploits --table results/exploits.md": CORPUS,
    "python -m tests.exploits --shapes 3 --device host": CORPUS,
    "harness eval solutions/ --sign key.pem": "needs a key; tests/unit/results/test_verify.py signs",
    "harness verify results/<run> --key public.pem": "the same; tests/unit/results/test_verify.py asks for a key",
    "harness replay results/<run> 16_naive": "the form of `harness replay results/<run> [solution]`, which is run",
    "python -m tests.exploits.grammar --out red-team": RED_TEAM,
    "python -m tests.exploits.grammar --out red-team --device host --every 9 --table red-team.md": RED_TEAM,
    "harness eval - --problem level1/16": "reads standard input; tests/unit/cli/test_cli.py calls it",
    "harness mcp --http --hide level2/*": "stays; tests/integration/test_mcp.py starts and ends servers",
    "harness serve --http 8000 &": "stays; tests/integration/test_http_service.py starts and ends it",
    "harness serve --http 0.0.0.0:8000 --tenants tenants.yaml --store jobs.sqlite --config service.yaml": (
        "the same, with tenants"
    ),
    "harness serve &": "stays; tests/integration/test_service.py starts and ends servers",
    "harness eval solutions/ --server auto": "needs that server; tests/integration/test_service.py calls it",
    "harness eval --allow-degenerate": "the name of an option; test_degenerate.py evaluates with it",
}
"""Command as shown -> why it is not run here, and what tests it instead."""

CODE = {
    # `place` writes these, and commands evaluate them.
    ("README.md", "python"): 2,
    ("README.md", "yaml"): 1,
    ("writing_a_problem.md", "python"): 1,
    ("writing_a_problem.md", "yaml"): 2,
    ("writing_a_solution.md", "python"): 1,
    # test_the_python_guides_code_runs, test_what_the_guides_say_in_yaml_is_read
    ("environments.md", "python"): 1,  # test_environments.py runs it
    ("python.md", "python"): 2,
    ("results.md", "python"): 1,
    ("results.md", "yaml"): 1,
    ("ci.md", "yaml"): 3,
    # tests/integration/test_pytest_plugin.py
    ("ci.md", "python"): 1,
    # test_the_guide_to_data_reads_the_records_of_runs
    ("data.md", "python"): 2,
    ("trust.md", "yaml"): 1,
    # tests/integration/test_mcp.py
    ("mcp.md", "json"): 1,
    ("mcp.md", "python"): 1,
    # tests/integration/test_http_service.py
    ("http.md", "python"): 1,
    ("http.md", "yaml"): 1,
    # tests/integration/test_container_image.py
    ("container.md", "sh"): 2,
}
"""Page and language -> how many of its blocks tests run or read."""

OUTPUT = {
    "verdicts.md": "harness show results/<run>",
    "problems.md": "harness problems list [level1 ...]",
}
"""Page -> the command that prints the page's first block of output."""

OUTPUT_ELSEWHERE = {
    ("README.md", "✓ passed"): "on an H200; tests/integration/test_examples.py has the statuses",
    ("README.md", "✗ data_race"): "the same, on the host device",
    ("README.md", "harness/core/"): "no output: test_the_readme_is_short_and_complete",
    ("verdicts.md", "too inexact for fp32"): "the tutorial about leaderboards prints it",
    ("mcp.md", "status: wrong_value"): "the form that tests/unit/api/servers/test_replies.py reads",
    ("verdicts.md", "past, line 10"): "tests/unit/referee/contestants/test_crash_report.py",
}
"""Page and beginning of other blocks of output -> what shows that they are true."""

TORCH = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, {}):\n        return {}\n"


def shown_in(text: str) -> list[str]:
    """The commands of a page: lines of code blocks that begin with a program, and `harness ...` in running text where
    it has more than a command's name."""
    found = []
    language: str | None = None
    for line in text.splitlines():
        if line.startswith("```"):
            language = None if language is not None else line[3:].strip()
            continue
        if language in ("", "bash") or (language is None and line.startswith("    ")):
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                continue
            if words and words[0].rpartition("/")[2] in PROGRAMS:
                found.append(" ".join(words))
        elif language is None:
            found += [name for name in re.findall(r"`(harness [^`]+)`", line) if re.search(r"[-<./\[]", name)]
    return found


def all_shown() -> dict[str, list[str]]:
    """Command -> pages that show it."""
    pages: dict[str, list[str]] = {}
    for path in PAGES:
        for command in shown_in(path.read_text(encoding="utf-8")):
            pages.setdefault(command, []).append(path.name)
    return pages


def code_in(name: str, language: str) -> list[str]:
    """The blocks in a language of a guide or of the README."""
    text = (ROOT / name if name == "README.md" else GUIDES / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_every_command_that_is_shown_is_run_or_says_why_not() -> None:
    shown = all_shown()
    assert len(shown) > 40
    unknown = {command: pages for command, pages in shown.items() if command not in RUNS and command not in NOT_RUN}
    assert not unknown, "add these to RUNS (or, with the reason, to NOT_RUN)"
    stale = [command for command in (*RUNS, *NOT_RUN) if command not in shown]
    assert not stale, "no page shows these any more"
    assert not RUNS.keys() & NOT_RUN.keys()


@pytest.mark.parametrize("shown", RUNS)
def test_what_is_run_is_what_is_shown(shown: str) -> None:
    """Placeholders may be filled in and options added, no more."""
    words = set(re.findall(r"(?<!\S)--?[a-z-]+", shown))
    for line in RUNS[shown].lines:
        assert words <= set(shlex.split(line))
        if "|" not in shown:
            assert line.split()[:2] == shown.split()[:2]


def test_every_block_of_a_page_is_run_or_says_why_not() -> None:
    found: Counter[tuple[str, str]] = Counter()
    output = []
    for path in (*PAGES, *sorted((GUIDES / "design").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        assert 2 * len(list(blocks_in(text))) == len(re.findall(r"^\s*```", text, flags=re.MULTILINE)), path.name
        for block in blocks_in(text):
            if block.language in ("", "bash"):
                assert shown_in(f"```\n{block.text}```"), f"{path.name}, line {block.line}: no command; is it output?"
            elif block.language == "text":
                output.append((path.name, block.text))
            else:
                found[path.name, block.language] += 1
    assert dict(found) == CODE, "add a test of the block, and count it in CODE"
    firsts = {page: next(text for name, text in output if name == page) for page in OUTPUT}
    others = [(name, text) for name, text in output if firsts.get(name) != text]
    assert len(others) == len(OUTPUT_ELSEWHERE)
    assert all(
        any(name == page and text.startswith(start) for page, start in OUTPUT_ELSEWHERE) for name, text in others
    )


def test_the_guides_that_readers_are_promised_exist_and_are_linked() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *GUIDES.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            linked_to = (path.parent / target).resolve()
            assert linked_to.exists(), f"{path.name} links to {target}, which is not there"
            on_site = path.parent == ROOT or linked_to.is_relative_to(GUIDES)
            assert on_site, f"{path.name} links to {target}, which is not on the site"
    linked = {Path(target).name for target in re.findall(r"\]\((harness/guides/[^)#\s]+)\)", readme)}
    for path in GUIDES.glob("*.md"):
        linked |= {Path(target).name for target in re.findall(r"\]\(([a-z_]+\.md)\)", path.read_text(encoding="utf-8"))}
    assert {path.name for path in GUIDES.glob("*.md")} <= linked
    wanted = {"writing_a_problem", "writing_a_solution", "verdicts", "trust", "time", "long_runs", "ci", "python"}
    assert wanted <= {path.stem for path in GUIDES.glob("*.md")}


def test_the_api_reference_has_all_that_the_package_offers() -> None:
    text = (GUIDES / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^::: harness\.api\.|`harness\.)(\w+)", text, flags=re.MULTILINE))
    assert named >= {name for name in harness.__all__ if not name.startswith("__")}


def test_the_readme_is_short_and_complete() -> None:
    from harness.core.status import Status

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 250
    rooms = {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")}
    assert rooms | {"guides"} == set(re.findall(r"^harness/([a-z]+)/  ", readme, flags=re.MULTILINE))
    groups = readme.partition("## Verdicts")[2].partition("## Trust")[0]
    named = {name for line in groups.splitlines() if line.startswith("|") for name in re.findall(r"`([a-z_]+)`", line)}
    assert {item.value for item in Status if not item.value.startswith("wrong_")} == named


def test_every_command_of_the_program_is_shown_somewhere() -> None:
    """Except those that others explain: a guide for each would say what --help does."""
    shown = " ".join(all_shown())
    text = " ".join(path.read_text(encoding="utf-8") for path in PAGES)
    missing = [name for name in COMMANDS if f"harness {name}" not in shown and f"`harness {name}" not in text]
    missing += [
        f"{group} {name}"
        for group, (_, held) in GROUPS.items()
        for name in held
        if f"{group} {name}" not in text and f"harness {group}" not in shown
    ]
    assert not missing


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder beside a KernelBench tree: a clone of this repository where there is one, with few problems,
    solutions and results, and a commit that adds a solution."""
    outer = tmp_path_factory.mktemp("guides")
    here = outer / "repository"
    _git(outer, "clone", "-q", str(ROOT), str(here)) if (ROOT / ".git").exists() else here.mkdir()
    for name in ("problems", "solutions", "results"):
        shutil.rmtree(here / name, ignore_errors=True)
    for level, numbers in PROBLEMS.items():
        _copy_problems(level, numbers, here / "problems" / level)
    for name in (RUN, "yesterday", "today"):
        shutil.copytree(ROOT / "results" / RUN, here / "results" / name)
    (here / "solutions").mkdir()
    write = {
        "solutions/mine/level1/19_vectorised.py": code_in("writing_a_solution.md", "python")[0],
        "solution.py": TORCH.format("x", "torch.relu(x)"),
        "quick.yaml": "timing: {min_samples: 4, sets_per_burst: 3, relative_half_width: 0.9, budget_s: 0.5}\n",
        "halves/mine/level1/25_swish.py": TORCH.format("x", "torch.nn.functional.silu(x)"),
        "one_solution.py": TORCH.format("A, B", "A.T @ B"),
        "mine_v1.py": TORCH.format("A, B", "A.T @ B"),
        "mine_v2.py": TORCH.format("A, B", "torch.einsum('km,kn->mn', A, B)"),
        "row_scale.py": TORCH.format("x, factors", "torch.einsum('rc,r->rc', x, factors)"),
        "response.txt": f"Here it is:\n\n```python\n{TORCH.format('A, B', 'A.T @ B')}```\n",
        "my_problems/level1/7_row_scale.py": code_in("writing_a_problem.md", "python")[0],
        "my_problems/level1/workloads.yaml": code_in("writing_a_problem.md", "yaml")[0],
        "first/problems/level1/1_scale_shift_relu.py": code_in("README.md", "python")[0],
        "first/problems/level1/workloads.yaml": code_in("README.md", "yaml")[0],
        "first/solutions/me/level1/1_fused.py": code_in("README.md", "python")[1],
        "runs/my_model/level_1_problem_1_sample_0_kernel.py": TORCH.format("x", "torch.clamp(x, min=0)"),
        "../KernelBench/KernelBench/level1/1_ReLU.py": (
            "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n\n"
            "def get_inputs():\n    return [torch.randn(16, 384)]\n\ndef get_init_inputs():\n    return []\n"
        ),
        "../reference-kernels/problems/sums/rows/task.yml": (
            "files:\n- {name: reference.py, source: reference.py}\nlang: py\nbenchmarks: [{rows: 512, seed: 1}]\n"
        ),
        "../reference-kernels/problems/sums/rows/reference.py": (
            "import torch\n\ndef ref_kernel(data):\n    return data[0] + data[1]\n\n"
            "def generate_input(rows, seed):\n    gen = torch.Generator(device='cuda').manual_seed(seed)\n"
            "    return tuple(torch.randn(rows, 384, device='cuda', generator=gen) for _ in range(2))\n"
        ),
        "../reference-kernels/problems/sums/rows/submission.py": (
            "import torch\n\ndef custom_kernel(data):\n    return torch.add(data[1], data[0])\n"
        ),
        "../flashinfer-trace/definitions/gemm/gemm_n64.json": json.dumps(
            {
                "name": "gemm_n64",
                "op_type": "gemm",
                "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 64}},
                "inputs": {
                    "A": {"shape": ["M", "N"], "dtype": "float16"},
                    "B": {"shape": ["N", "N"], "dtype": "float16"},
                },
                "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
                "reference": "import torch\n\ndef run(A, B):\n    return A @ B.T\n",
            }
        ),
    }
    for name, text in write.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return here


def _copy_problems(level: str, numbers: tuple[int, ...], target: Path) -> None:
    target.mkdir(parents=True)
    for number in numbers:
        (source,) = (ROOT / "problems" / level).glob(f"{number}_*.py")
        shutil.copy(source, target)
    declared = yaml.safe_load((ROOT / "problems" / level / "workloads.yaml").read_text(encoding="utf-8"))
    declared["problems"] = {number: declared["problems"][number] for number in numbers}
    (target / "workloads.yaml").write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")


def _git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{who}_{what}": f"{what}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    # A checkout may belong to another user than the one who runs the tests in a container.
    safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    environment = {**os.environ, **who, **safe, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout


class Done:
    """What was run in `place`: the commands as shown, and what the lines that stand for them printed."""

    def __init__(self) -> None:
        self.shown: set[str] = set()
        self.printed: dict[str, str] = {}


@pytest.fixture(scope="module")
def done_already() -> Done:
    return Done()


@pytest.fixture(scope="module")
def submitted(place: Path) -> Iterator[Path]:
    """The clone with everything as `origin/main` has it, and a branch that adds one solution and a harness of
    its own, which must never run."""
    if not (place / ".git").exists():
        pytest.skip("the sources are no git repository: nothing to take a base from")
    small = {name: (place / name) for name in ("problems", "solutions", "results")}
    kept = {name: path.rename(place.parent / f"kept-{name}") for name, path in small.items()}
    _git(place, "checkout", "-q", "-b", "work")
    _git(place, "checkout", "-q", "--", *small)
    added = place / "solutions" / "newcomer" / "level1" / "19_clamp.py"
    added.parent.mkdir(parents=True)
    added.write_text(TORCH.format("x", "torch.clamp(x, min=0)"), encoding="utf-8")
    own = place / "harness" / "__init__.py"
    own.write_text("raise SystemExit('the harness of the branch was imported')\n", encoding="utf-8")
    _git(place, "add", str(added), str(own))
    _git(place, "commit", "-q", "-m", "A solution")
    _git(place, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    yield place
    for name, path in kept.items():
        shutil.rmtree(place / name)
        path.rename(place / name)


HARNESS = (sys.executable, "-P", "-m", "harness")
"""The command as it is installed: unlike `python -m` alone, it imports nothing from the folder that it runs in."""


@pytest.fixture(scope="module")
def socket(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a server for commands that are `served`: builders and referees for the settings of `QUICKLY`."""
    path = tmp_path_factory.mktemp("serve") / "socket"
    command = [*HARNESS, "serve", "--socket", str(path), *shlex.split(QUICKLY), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"{\n", "it prints its socket when it listens"
            yield path
        finally:
            server.terminate()


def _arguments(line: str, place: Path) -> list[str]:
    """What a shell makes of a line here: the placeholder and patterns filled in, this Python behind the names."""
    words = []
    for word in shlex.split(line.replace("results/<run>", EXAMPLE)):
        words += sorted(str(path.relative_to(place)) for path in place.glob(word)) if "*" in word else [word]
    if words[0] == "make":
        return [*words, "HARNESS_SYSTEM=1", f"PYTHON={sys.executable}"]
    return [*HARNESS, *words[1:]] if words[0].endswith("harness") else words


@pytest.mark.xdist_group("guides")
@pytest.mark.parametrize(
    "shown",
    # At full size: two of them failed beside other tests on GPUs of 80 GB.
    [
        pytest.param(shown, marks=[pytest.mark.gpu, pytest.mark.exclusive_gpu]) if held.gpu else shown
        for shown, held in RUNS.items()
    ],
)
def test_a_command_does_what_the_page_says(
    shown: str,
    place: Path,
    done_already: Done,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if "harness ci" in shown or shown.startswith(("git ", "make ")):
        request.getfixturevalue("submitted")
    _run(shown, place, done_already, request, capfd)


def _run(
    shown: str, place: Path, done_already: Done, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """Run what stands for a command, and before it what it needs, unless that was run."""
    held = RUNS[shown]
    if held.needs and held.needs not in done_already.shown:
        _run(held.needs, place, done_already, request, capfd)
    if shown in done_already.shown:
        return
    variables = {"COLUMNS": "200", "PYTHONPATH": str(place.parent / "base" if shown.startswith("../base") else ROOT)}
    if held.served and not collect().gpus:  # on a GPU, a server's processes would disturb other tests
        variables["HARNESS_SERVER"] = str(request.getfixturevalue("socket"))
    lines = held.lines or (shown,)
    printed = [
        done_already.printed.get(line) or _printed_by(line, place, variables, held.codes, capfd) for line in lines
    ]
    assert re.search(held.said, "".join(printed)), "".join(printed)[-3000:]
    done_already.shown.add(shown)
    done_already.printed.update(zip(lines, printed, strict=True))


@pytest.mark.xdist_group("guides")
@pytest.mark.parametrize("page", OUTPUT)
def test_what_a_page_shows_of_a_commands_output_is_printed(
    page: str, place: Path, done_already: Done, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    _run(OUTPUT[page], place, done_already, request, capfd)
    printed = "".join(done_already.printed[line] for line in RUNS[OUTPUT[page]].lines or (OUTPUT[page],))
    text = (GUIDES / page).read_text(encoding="utf-8")
    shown = next(block.text for block in blocks_in(text) if block.language == "text")
    assert not absent_lines(shown, printed), printed


def _printed_by(
    line: str, place: Path, variables: dict[str, str], codes: tuple[int, ...], capfd: pytest.CaptureFixture[str]
) -> str:
    command = _arguments(line, place)
    if tuple(command[:4]) == HARNESS and not _evaluates(*command[4:]):
        capfd.readouterr()
        with chdir(place), patch.dict(os.environ, variables):
            code = main(command[4:])
        out, err = capfd.readouterr()
    else:
        done = subprocess.run(
            command,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            env={**os.environ, **variables},
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    assert code in codes, f"{line}\n{out[-3000:]}\n{err[-3000:]}"
    assert "Traceback" not in err
    return out + err


def _evaluates(command: str, *more: str) -> bool:
    """Whether a command builds, evaluates or times solutions, times references, or uses a GPU."""
    if command == "compare":
        return more[0].endswith(".py")
    if (command, *more[:1]) == ("problems", "lint"):
        return bool(collect().gpus)
    return command in ("eval", "baseline", "ci", "profile")


@pytest.mark.xdist_group("guides")
def test_the_python_guides_code_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    right = TORCH.format("x", "torch.clamp(x, min=0)")
    names: dict[str, object] = {"source": right, "sources": [right, TORCH.format("x", "x")]}
    block, in_a_loop = code_in("python.md", "python")
    exec(compile(block, "python.md", "exec"), names)
    shown = capsys.readouterr().out
    assert shown.startswith("passed")
    assert "0.1\n" in shown  # the reward of a wrong answer
    exec(compile(in_a_loop, "python.md", "exec"), names)
    with Harness(device="host") as h:
        results = asyncio.run(names["judge"](h, names["sources"]))  # type: ignore[operator]
    assert sorted(result.status.value for result in results) == ["passed", "passed", "wrong_value"]


def test_what_the_guides_say_in_yaml_is_read(place: Path) -> None:
    gates = read_gates(code_in("ci.md", "yaml")[0], "ci.md")
    assert (gates.minimum_speedup, gates.regression_tolerance) == (1.0, 0.02)
    problem = load_problems(place / "my_problems")["level1/7"]
    assert {"full", "small", "odd"} == set(problem.workloads)
    assert {name: (held.low, held.high, held.step) for name, held in problem.shapes.ranges.items()} == {
        "ROWS": (1, 65536, 1),
        "COLUMNS": (64, 8192, 64),
    }
    declarations = place / "my_problems/level1/workloads.yaml"
    declarations.write_text(f"format: 1\nproblems:\n  7:\n{code_in('writing_a_problem.md', 'yaml')[1]}")
    listed = load_problems(place / "my_problems")["level1/7"].shapes.listed
    declarations.write_text(code_in("writing_a_problem.md", "yaml")[0])
    assert [entry.calls for entry in listed] == [8120, 377]
    assert set(yaml.safe_load(code_in("results.md", "yaml")[0])) == set(AUTHOR_TEXTS)
    policy = parse_policy(yaml.safe_load(code_in("trust.md", "yaml")[0])["policy"])
    assert policy == Policy(
        require_custom_kernel=True, refuse_labels=("specialised_shape", "unexplained_time"), min_own_share=0.5
    )


def test_the_guide_to_results_reads_the_records_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(compile(code_in("results.md", "python")[0], "results.md", "exec"), names)
    assert RUN in set(names["frame"].run)


def test_the_guide_to_data_reads_the_records_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("duckdb", "polars", "pyarrow"):
        pytest.importorskip(package)
    (tmp_path / "results").mkdir()
    shutil.copytree(ROOT / EXAMPLE, tmp_path / "results" / "nightly")
    monkeypatch.chdir(tmp_path)
    assert main(["export", "parquet", "results/nightly", "--out", "nightly.parquet"]) == 0
    assert main(["export", "parquet", "results", "--nested", "timing", "--out", "all.parquet"]) == 0
    names: dict[str, Any] = {}
    for block in code_in("data.md", "python"):
        exec(compile(block, "data.md", "exec"), names)
    assert names["table"].num_rows == 25
    fastest: dict[str, float] = {}
    for problem, _, speedup in names["fastest"]:
        fastest[problem] = max(speedup, fastest.get(problem, 0.0))
    assert dict(names["best"].iter_rows()) == fastest
    assert len(fastest) > 10
    assert all(median is None or median > 0 for _, median in names["median_s"])


def test_the_example_for_a_solution_is_judged_right_by_the_guide_about_problems(place: Path) -> None:
    """The two guides' files work together with the API, too."""
    with Harness(device="host", problems=place / "my_problems") as h:
        assert h.evaluate("level1/7", (place / "row_scale.py").read_text(encoding="utf-8")).passed


def rows_of(guide: str, heading: str) -> list[list[str]]:
    """The cells of the first table after `heading`, without those of its head."""
    behind = (GUIDES / guide).read_text(encoding="utf-8").partition(heading)[2]
    lines = [line for line in behind.split("\n\n| ")[1].splitlines() if "|" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:] if line.startswith("|")]


def test_the_table_of_settings_is_that_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {cells[0].strip("`"): cells[1:] for cells in rows_of("settings.md", "## Settings")}
    known = {**KEYS, **{f"timing.{name}": held for name, held in TIMING_KEYS.items()}}
    assert list(rows) == list(known)
    for name, (_, default, _) in rows.items():
        held = known[name].default
        given = re.fullmatch(r"`([^`]+)`", default)
        assert (given is not None) == (held is not None), f"{name}: a default in code is that of all machines"
        assert given is None or known[name].parse(yaml.safe_load(given[1])) == held, name
    assert main(["eval", "--help"]) == 0
    options = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    shown = {option for row in rows.values() for option in re.findall(r"--[a-z-]+", row[0])}
    assert shown == options - {
        "--config",
        "--json",
        "--last-failed",
        "--server",
        "--sign",
    }  # these are no settings of a run


def test_the_table_of_the_leaderboards_columns_has_them_all() -> None:
    cells = [cells[0] for cells in rows_of("results.md", "### CSV columns")]
    named = {name for cell in cells for name in re.findall(r"`([a-z_0-9]+)`", cell)}
    fast = {name for name in COLUMNS if name.startswith("fast_")}
    assert named - fast == set(COLUMNS) - fast
    assert "`fast_0` … `fast_2`" in cells


def test_the_guides_tables_of_statuses_and_labels_are_complete() -> None:
    from harness.core.labels import LABELS
    from harness.core.status import Status

    statuses = [cells[0].strip("`") for cells in rows_of("verdicts.md", "### All statuses")]
    assert statuses == [item.value for item in Status]
    kinds = re.findall(r"`([a-z_…]+)`", " ".join(cells[1] for cells in rows_of("verdicts.md", "## Statuses")))
    single = {item.value for item in Status if not item.value.startswith("wrong_")}
    assert sorted(kinds) == sorted({*single, "wrong_…"})
    assert [cells[0].strip("`") for cells in rows_of("verdicts.md", "## Labels")] == list(LABELS)


def test_json_is_there_wherever_a_program_may_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    for command in [(name,) for name in COMMANDS] + [(group, n) for group, (_, held) in GROUPS.items() for n in held]:
        assert main([*command, "--help"]) == 0
        shown = capsys.readouterr().out
        # The output of `new` is the path of a file, that of `export schema` is JSON.
        assert "--json" in shown or command[0] == "new" or command == ("export", "schema"), command

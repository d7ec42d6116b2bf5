"""House rules that import-linter's contracts (pyproject.toml) can't state, read from the sources."""

from __future__ import annotations

import ast
import glob
import re
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from harness import Harness
from harness.core.status import Status
from tests.support.paths import ROOT
from tests.support.rooms import arrows, root_entries

PACKAGE = ROOT / "harness"
PRINTS = "harness.cli"
UNTRUSTED = "harness.untrusted."
MAX_ARROWS = 70
MAX_ROOMS = 17


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


MODULES = modules()


@cache
def parsed(name: str) -> ast.Module:
    """A module's tree. Not all of them while tests are collected: each worker does that, and one needs them."""
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def trees() -> Iterator[tuple[str, ast.Module]]:
    return ((name, parsed(name)) for name in MODULES)


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_the_root_of_the_package_holds_rooms_and_nothing_else() -> None:
    rooms, files = root_entries()
    assert len(rooms) <= MAX_ROOMS
    assert files == ["__init__.py", "__main__.py", "py.typed"]


def test_there_are_few_arrows_between_rooms_and_no_pair_of_them() -> None:
    found = arrows()
    assert len(found) <= MAX_ARROWS
    assert [pair for pair in found if pair[::-1] in found] == []


def test_no_file_name_stands_twice_in_a_room() -> None:
    names = Counter((room(name), path.name) for name, path in MODULES.items() if path.name != "__init__.py")
    assert [key for key, count in names.items() if count > 1] == []


def test_no_class_name_stands_twice() -> None:
    found: dict[str, list[str]] = {}
    for name, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    assert {key: places for key, places in found.items() if len(places) > 1} == {}


def entry_points() -> list[tuple[str, str]]:
    """Modules that are started by a name in a string: `"harness.x:main"`, and `-m harness.x`."""
    found = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            named = re.fullmatch(r"(harness(?:\.\w+)+)(:\w+)?", node.value)
            if named and (named[2] or named[1] in MODULES):
                found.append((name, node.value))
    return found


ENTRY_POINTS = entry_points()


@pytest.mark.parametrize(("where", "target"), ENTRY_POINTS)
def test_what_is_started_by_name_is_there(where: str, target: str) -> None:
    module, _, function = target.partition(":")
    assert module in MODULES, f"{where} names {target}"
    if function:
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in parsed(module).body)


def test_functions_that_a_zygote_calls_in_a_sandbox_lie_in_the_untrusted_room() -> None:
    called = [target for _, target in ENTRY_POINTS if ":" in target]
    assert called
    assert [target for target in called if not target.startswith(UNTRUSTED)] == []


WITNESS = textwrap.dedent(
    """
    import sys
    import torch
    from torch.utils.cpp_extension import load_inline

    JUDGES = ("harness.referee", "harness.results", "harness.runner", "harness.catalog", "harness.report", "pandas")
    SEEN = sorted(name for name in sys.modules if name.startswith(JUDGES))
    OWN = sorted(name for name in sys.modules if name.startswith("harness.untrusted."))
    if SEEN or not OWN:
        raise ImportError(f"trusted modules {SEEN}, untrusted ones {OWN}")

    EXTENSION = load_inline("witness", "torch::Tensor twice(torch::Tensor x) { return 2 * x; }", functions=["twice"])

    class ModelNew(torch.nn.Module):
        def forward(self, x):
            seen = sorted(name for name in sys.modules if name.startswith(JUDGES))
            if seen:
                raise RuntimeError(f"trusted modules {seen}")
            return EXTENSION.twice(x)
    """
)
"""Imported by a real builder, and by a real contestant, which calls it: each refuses to go on beside a judge."""

PROBLEM = textwrap.dedent(
    """
    import sys
    import torch

    if "harness.referee.session" not in sys.modules or "pandas" in sys.modules:
        raise ImportError("no referee, or one with pandas")

    N = 64

    class Model(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    def get_inputs():
        return [torch.randn(N)]

    def get_init_inputs():
        return []
    """
)


@pytest.fixture(scope="module")
def host() -> Iterator[Harness]:
    with Harness(device="host") as harness:
        yield harness


def test_no_process_that_has_executed_a_submission_has_imported_the_judge(host: Harness) -> None:
    result = host.evaluate(PROBLEM, WITNESS, workload="full")
    assert (result.status, result.record.build is not None) == (Status.passed, True), result.record.reason


def test_a_witness_that_sees_a_judge_is_heard(host: Harness) -> None:
    """So that the test above can fail: what it looks for is a module that is there."""
    result = host.evaluate(PROBLEM, WITNESS.replace('"harness.referee", ', '"harness.untrusted", '), workload="full")
    assert result.status is Status.import_error
    assert "trusted modules ['harness.untrusted" in result.record.reason


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_says_what_it_is_for(name: str) -> None:
    text = ast.get_docstring(parsed(name))
    assert text, f"{name} has no docstring"
    assert len(text.split()) >= 4, f"{name}: {text!r} says too little"


def test_the_first_line_of_a_docstring_has_at_most_80_characters() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = ((name, ast.get_docstring(node)) for name, t in trees() for node in ast.walk(t) if isinstance(node, kinds))
    assert [(name, first) for name, text in texts if text and len(first := text.splitlines()[0]) > 80] == []


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    assert not [name for name in MODULES if name.split(".")[-1] in ("utils", "util", "helpers", "common", "misc")]


def test_python_is_parsed_in_one_place() -> None:
    """Where `ast.parse` of two threads at once would fail at times, on any source."""
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if name != "harness.core.python_ast"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "ast.parse"
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_prints() -> None:
    wrong = []
    for name, tree in trees():
        if name == PRINTS or name.startswith((PRINTS + ".", UNTRUSTED)):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "Console"):
                wrong.append(f"{name}:{node.lineno} calls {node.func.id}")
    assert not wrong, "\n".join(wrong)


def test_the_package_below_the_command_line_does_not_exit() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if not name.startswith((PRINTS, "harness.__main__"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) == "sys.exit"
        # A process of its own (`python -m …`) ends with its exit code.
        and not any(isinstance(item, ast.If) and "__main__" in ast.unparse(item.test) for item in tree.body)
    ]
    assert not wrong, "\n".join(wrong)


def test_help_and_reports_wait_for_neither_torch_nor_pandas() -> None:
    code = """
import sys, harness, harness.cli
first = sorted({"pandas", "torch"} & sys.modules.keys())
harness.cli.main(["eval", "--help"])
harness.cli.main(["leaderboard", "results/h200-examples", "--csv", "-"])
from harness import load_records
print("imported:", first, sorted({"pandas", "torch"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "imported: [] []"


def test_whatever_the_package_reads_is_installed_with_it() -> None:
    """Headers of the standard library's kind have no suffix that a pattern could go by."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["harness"]
    installed = {name for pattern in patterns for name in glob.glob(pattern, root_dir=PACKAGE, recursive=True)}
    held = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    lacking = {name for name in held - installed if not name.endswith((".py", ".pyc", "include/hostcuda/README.md"))}
    assert not lacking, f"pyproject.toml, package-data: {sorted(lacking)}"

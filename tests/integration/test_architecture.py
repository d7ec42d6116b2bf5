"""The layers, the trust boundary and the house rules, read from the sources' imports."""

from __future__ import annotations

import ast
import glob
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "harness"

LAYERS = {
    "vocabulary": "choices problem record status",
    "pure": "authors breakage calibration census claims comparing comparison comparison_kernel comparison_real "
    "datasheets defences digest digest_kernel disturbance extract holdback kernel_names labels messages "
    "numerics nvrtc occupancy parsing patterns policies precision python_syntax queues readings recency reports "
    "kernel_rows rewards roofline "
    "rounding sanitizers scoring screen sizes slicing stats stopping structure trees variants wire "
    "work",
    "edges": "catalog config crew devices disk environment gate gpus gpustate hostcuda images inputs "
    "interpreter kernelbench lean mending merging peaks programs recorder reference rundelay runs shortage sketch "
    "sources split store stublibs texts unregistered whereabouts writable",
    "stages": "alongside arrival aside asker audit auditor backtoback bare baselines bench build contention "
    "contestant conversation cycles empty guest health heldstate hush idle largepages learning measure nonstop "
    "opened oracle patience places postmortem posts prefork quiet recall refresh reordering retrial sandbox session "
    "sidebench sidecheck signature snapshot standby symboliser tally tasks timing tracing turns values verification "
    "verify walls zygote",
    "control": "athand conducting conductor events executors lint judging pipeline planning referee schedule sharing",
    "outside": "api ci cli doctor feedback profile rehearsal report service transcripts __main__",
}
"""A unit (module or package directly in `harness`) imports only from its own layer and those above it."""

UNTRUSTED = (
    "harness.untrusted.contestant.pristine_torch",
    "harness.untrusted.contestant.main",
    "harness.untrusted.contestant.model_state",
    "harness.untrusted.contestant.device",
    "harness.untrusted.contestant.outputs",
    "harness.untrusted.contestant.symbolizer",
    "harness.untrusted.contestant.cupti",
    "harness.untrusted.builder.static_scan",
    "harness.untrusted.builder.import_solution",
    "harness.untrusted.builder.compile_job",
    "harness.untrusted.builder.load_check",
    "harness.untrusted.builder.constant_eval",
    "harness.untrusted.builder.fake_cuda",
    "harness.untrusted.builder.load_inline_calls",
    "harness.untrusted.contestant.load_inline",
    "harness.untrusted.contestant.hostcuda.shim",
    "harness.untrusted.contestant.hostcuda.loader",
    "harness.untrusted.builder.hostcuda_runner",
    "harness.untrusted.builder.split_compile",
)
"""Modules that run in one process with a submission. They are started by name, never imported by trusted ones."""

JUDGES = frozenset(
    {
        "baselines",
        "bench",
        "catalog",
        "comparison",
        "comparison_real",
        "inputs",
        "lint",
        "merging",
        "numerics",
        "oracle",
        "referee",
        "reference",
        "runs",
        "session",
        "sketch",
        "store",
        "structure",
        "tasks",
        "values",
        "verification",
        "verify",
    }
)
"""Units that hold the reference, seeds, tolerances, verdicts or results."""

PRINTS = "harness.cli"


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


PACKAGES = {name.rpartition(".")[0] for name in MODULES} | {"harness"}


def imports(name: str) -> Iterator[str]:
    """Dotted names of the harness modules that a module imports, inside functions too.

    The package itself imports its API only when that is asked for by name (tests/unit/api/test_api.py), so none count
    for it.
    """
    if name == "harness":
        return
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names if item.name.split(".")[0] == "harness")
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                here = name.split(".") if name in PACKAGES else name.split(".")[:-1]
                source = ".".join([*here[: len(here) - node.level + 1], *([source] if source else [])])
            if source.split(".")[0] == "harness":
                for item in node.names:
                    deeper = f"{source}.{item.name}"
                    yield deeper if deeper in MODULES else source


def unit(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


LAYER_OF = {member: layer for layer, members in LAYERS.items() for member in members.split()}


def rank(name: str) -> int:
    return list(LAYERS).index(LAYER_OF[unit(name)])


def test_every_unit_has_a_layer() -> None:
    homeless = {unit(name) for name in MODULES} - set(LAYER_OF) - {""}
    assert not homeless, f"say in LAYERS which layer these belong to: {sorted(homeless)}"


@pytest.mark.parametrize("layer", list(LAYERS))
def test_the_map_in_the_readme_has_every_unit(layer: str) -> None:
    (row,) = re.findall(rf"^\| {layer} \|(.*)\|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    lacking = set(LAYERS[layer].split()) - set(re.findall(r"`(\w+)`", row)) - {"__main__"}
    assert not lacking, f"README.md, The code, {layer}: {sorted(lacking)}"


def test_imports_point_one_way() -> None:
    wrong = [
        f"{name} ({LAYER_OF[unit(name)]}) imports {target} ({LAYER_OF[unit(target)]})"
        for name in MODULES
        if unit(name)
        for target in imports(name)
        if unit(target) and rank(target) > rank(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_units_of_one_layer_do_not_import_in_circles() -> None:
    arrows: dict[str, set[str]] = {}
    for name in MODULES:
        arrows.setdefault(unit(name), set()).update(unit(item) for item in imports(name))
    done: set[str] = set()

    def follow(here: str, path: tuple[str, ...]) -> None:
        assert here not in path, " -> ".join((*path[path.index(here) :], here))
        if here in done:
            return
        for target in sorted(arrows.get(here, set()) - {here, ""}):
            follow(target, (*path, here))
        done.add(here)

    for start in sorted(arrows):
        follow(start, ())


def test_no_trusted_module_imports_the_untrusted_side() -> None:
    wrong = [
        f"{name} imports {target}"
        for name in MODULES
        if name not in UNTRUSTED
        for target in imports(name)
        if target in UNTRUSTED
    ]
    assert not wrong, "\n".join(wrong)


def test_the_untrusted_side_does_not_hold_the_judges_tools() -> None:
    """Rule 2 of the trust boundary: what a contestant's process imports must not include these."""
    for start in (name for name in UNTRUSTED if name in MODULES):
        reached: set[str] = set()
        pending = [start]
        while pending:
            name = pending.pop()
            if name in MODULES and name not in reached:
                reached.add(name)
                pending += imports(name)
        assert not {unit(name) for name in reached} & JUDGES, start


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_says_what_it_is_for(name: str) -> None:
    text = ast.get_docstring(parsed(name))
    assert text, f"{name} has no docstring"
    assert len(text.split()) >= 5, f"{name}: {text!r} states no charter"


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
        if name == PRINTS or name.startswith(PRINTS + ".") or name in UNTRUSTED:
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


def test_help_and_reports_do_not_wait_for_torch() -> None:
    code = "import sys, harness.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_whatever_the_package_reads_is_installed_with_it() -> None:
    """Headers of the standard library's kind have no suffix that a pattern could go by."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["harness"]
    installed = {name for pattern in patterns for name in glob.glob(pattern, root_dir=PACKAGE, recursive=True)}
    held = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    lacking = {name for name in held - installed if not name.endswith((".py", ".pyc", "include/hostcuda/README.md"))}
    assert not lacking, f"pyproject.toml, package-data: {sorted(lacking)}"

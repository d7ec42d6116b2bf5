"""The host device accepts and refuses small sources as nvcc does (tests/hostcuda/sources.tsv).

nvcc compiled each source alone. Here, all of one kind are one extension: those that a build has errors for are refused
and taken out, until the rest is built.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness.hostcuda.translate import build
from harness.toolchain import ExtensionSpec
from tests.support.nvcc_sources import BEFORE, FUNCTIONS, sources, table

VERDICTS = table()
SOURCES = sources()

KNOWN: dict[str, set[str]] = {
    "kernel": {
        "assertion",
        "int_types",
        "lambda_device",
        "launch",
        "printf",
        "read_const_array",
        "runtime_call",
        "string",
    },
    "both": {
        "asm",
        "assertion",
        "atomic_add",
        "atomic_double",
        "atomic_long",
        "atomic_max_int",
        "atomic_mixed",
        "ballot",
        "barrier",
        "bits",
        "call_device",
        "call_template",
        "clock",
        "dot",
        "fast_division",
        "fast_exp",
        "fence",
        "int_types",
        "lambda_device",
        "launch",
        "ldg",
        "leading_zeros",
        "popcount",
        "printf",
        "read_const_array",
        "read_variable",
        "saturate",
        "shared",
        "shuffle",
        "string",
        "throws",
        "tries",
        "warp_barrier",
    },
    "host": {
        "asm",
        "assertion",
        "atomic_add",
        "atomic_double",
        "atomic_long",
        "atomic_max_int",
        "atomic_mixed",
        "ballot",
        "barrier",
        "bits",
        "call_template",
        "clock",
        "dot",
        "fast_division",
        "fast_exp",
        "fence",
        "int_types",
        "lambda_device",
        "ldg",
        "leading_zeros",
        "popcount",
        "printf",
        "saturate",
        "shared",
        "shuffle",
        "string",
        "warp_barrier",
    },
}
"""Statements that only the host device accepts: CUDA's own device functions in host code, the standard library's names,
and calls that the harness does not certainly know (guides/design/host_device.md)."""

_ERROR = re.compile(r"^cuda\.cu:(\d+):\d+: +(?:error|note: not emulated|required from here)", re.M)
_MOST_BUILDS = 12


def test_the_table_has_the_sources_of_its_script() -> None:
    assert set(VERDICTS) == set(SOURCES)
    assert len(VERDICTS) >= 300
    assert 100 < sum(VERDICTS.values()) < len(VERDICTS) - 100


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_source_compiles_if_nvcc_accepts_it(function: str, tmp_path: Path) -> None:
    accepted = {name for (kind, name), verdict in VERDICTS.items() if kind == function and verdict}
    found = _accepted(function, tmp_path)
    assert accepted - found == set(), "refused here only"
    assert found - accepted == KNOWN[function], "accepted here only"


def _accepted(function: str, folder: Path) -> set[str]:
    headers = build.prepare_headers()
    kept = {name: text.removeprefix(BEFORE) for (kind, name), text in SOURCES.items() if kind == function}
    for number in range(_MOST_BUILDS):
        text, lines = BEFORE, []
        for index, (name, part) in enumerate(kept.items()):
            text += re.sub(r" ([fkh])\(", rf" \g<1>{index}(", part)
            lines += [name] * part.count("\n")
        spec = ExtensionSpec(name="m", cuda_sources=(text,), cpp_sources=("",), no_implicit_headers=True)
        place = folder / str(number)
        (command,) = build.prepare(spec, place, checked=False, headers=headers)
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return set(kept)
        places = [int(line) - 1 - BEFORE.count("\n") for line in _ERROR.findall(done.stdout)]
        refused = {lines[place] for place in places if 0 <= place < len(lines)}
        assert refused, done.stdout + done.stderr
        for name in refused:
            del kept[name]
    raise AssertionError(f"still errors after {_MOST_BUILDS} builds")

"""The host device takes and refuses names behind headers as nvcc and g++ do (tests/hostcuda/names.tsv)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.hostcuda.translate import build
from harness.hostcuda.translate import compile as compiling
from harness.hostcuda.translate.bindings import Definition
from harness.hostcuda.translate.declared import undeclared
from tests.support.nvcc_names import TORCH, Unit, refused, table, units
from tests.unit.hostcuda.test_build import Spec

VERDICTS = table()

_HALVES = {f"device {name}" for name in ("bfloat16", "bfloat162", "fp8", "half", "half2", "half_call")}
ALSO_ACCEPTED = _HALVES | {"host string", "host queue", "host stack"}
"""The host device's own headers need the half types, and torch's lean headers follow what a source mentions."""

NOT_EMULATED = {"host driver_call", "host cusparse", "host curand_host"}
"""Names that the host device does not have: no verdict on the source."""


def test_the_table_has_the_units_and_probes_of_its_script() -> None:
    expected = {(unit.name, probe) for unit in units() for probe in unit.probes}
    assert set(VERDICTS) == expected
    assert len(VERDICTS) >= 300
    assert 100 < sum(VERDICTS.values()) < len(VERDICTS) - 100


@pytest.mark.parametrize("unit", units(), ids=lambda unit: unit.name)
def test_a_unit_sees_what_its_headers_declare(unit: Unit, tmp_path: Path) -> None:
    wrong = {probe for (name, probe), accepted in VERDICTS.items() if name == unit.name and not accepted}
    found = _refused(unit, tmp_path)
    assert found - wrong - NOT_EMULATED == set(), "refused here only"
    assert wrong - found - ALSO_ACCEPTED == set(), "accepted here only"


def _refused(unit: Unit, folder: Path) -> set[str]:
    """The probes that the host device refuses in its lean unit, where it looks first."""
    torch = unit.headers[: len(TORCH)] == TORCH or unit.file == "main.cpp"
    others = "".join(text for name, text in unit.probes.items() if name not in unit.python)
    texts = {"cuda.cu": "", "main.cpp": ""} | {unit.file: unit.head + others}
    spec = Spec(name="m", cuda_sources=(texts["cuda.cu"],), cpp_sources=(texts["main.cpp"],))
    build.prepare(spec, folder, checked=False, headers=build.prepare_headers())
    job = json.loads((folder / "job.json").read_text()) | {"no_implicit_headers": not torch}
    lean = compiling._lean_units(folder, job, texts, Definition(text="", functions={}))
    assert lean is not None
    _, log = compiling._compile(job, lean[0][-1 if unit.file == "main.cpp" else 0], compiling.TranslationFindings())
    found = refused(log, unit)
    for probe, text in unit.python.items():
        if undeclared({"cuda.cu": "", "main.cpp": ""} | {unit.file: unit.head + text}, job):
            found.add(probe)
    return found

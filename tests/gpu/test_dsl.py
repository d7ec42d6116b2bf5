"""Solutions in Triton, CuTe DSL and TileLang pass, with their kernels found and no compilation in a timed call."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys

import pytest

from harness.core.labels import FALLS_BACK, LIBRARY_ONLY, NO_CUSTOM_KERNEL, TORCH_ONLY, UNCOUNTED
from harness.core.record import Record
from harness.core.status import Status
from harness.results.writer import RunStore
from tests.support.paths import ROOT

pytestmark = pytest.mark.gpu

MODULES = {"triton": "triton", "cute": "cutlass", "tilelang": "tilelang"}
FILES = {dsl: sorted(ROOT.glob(f"solutions/dsl/level*/*_{dsl}_*.py")) for dsl in MODULES}
COMPILES_S = 0.02
"""Less than any of the three takes to compile, or to load, a kernel; more than a call that was disturbed."""


@pytest.fixture(scope="module", params=MODULES)
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    dsl = request.param
    if importlib.util.find_spec(MODULES[dsl]) is None:
        pytest.skip(f"the package of {dsl} (module {MODULES[dsl]}) is not installed")
    folder = tmp_path_factory.mktemp(dsl)
    command = [sys.executable, "-m", "harness", "eval", *map(str, FILES[dsl]), "--problems", str(ROOT / "problems")]
    options = ["--device", "cuda", "--run-id", "run", "--audit", "never", "--timing-budget", "0.5"]
    done = subprocess.run([*command, *options], cwd=folder, check=False, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(RunStore.open(folder / "results/run").records())


def test_there_are_eight_solutions_a_dsl() -> None:
    assert {dsl: len(files) for dsl, files in FILES.items()} == dict.fromkeys(MODULES, 8)


def test_all_pass(records: list[Record]) -> None:
    assert [(r.solution, r.status, r.reason) for r in records if r.status is not Status.passed] == []
    assert len(records) == 8


def test_the_kernels_are_their_own(records: list[Record]) -> None:
    wrong = {TORCH_ONLY, NO_CUSTOM_KERNEL, LIBRARY_ONLY, FALLS_BACK, UNCOUNTED}
    for record in records:
        assert not wrong & set(record.labels), record.solution
        census = record.evidence["census"]
        assert [row["owner"] for row in census["kernels"] if row["kind"] == "kernel"] == ["own"], record.solution


def test_no_timed_call_compiles(records: list[Record]) -> None:
    for record in records:
        assert record.timing is not None
        samples = [sample for burst in record.timing["solution"]["samples_s"] for sample in burst]
        assert max(samples) < statistics.median(samples) + COMPILES_S, record.solution

"""The five transcripts on the host device: what each computes and what is found in it, built as its author wrote it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.catalog.extract import extract
from tests.support.paths import ROOT

SEEDS = ROOT.parent / "shared" / "seeds"
TIMEOUT_S = 900

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the transcripts of ../shared/seeds are not here")

DRIVER = """
import json, sys
import torch
from harness.hostcuda.translate import build
from tests.support import hostcuda_runner as runner
from harness.untrusted.contestant.hostcuda import shim
shim.activate(build.prepare_headers())
runner.install_load_inline(checked=True)
names = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), names)
model = names["ModelNew"]()
torch.manual_seed(0)
a, b = (torch.randn(shape) for shape in json.loads(sys.argv[2]))
out = []
for schedule in (0, 1):
    shim.set_schedule(schedule)
    y = model(a.cuda(), b.cuda())
    truth = eval(sys.argv[3], {"a": a.double(), "b": b.double()})
    error = (y.cpu().double() - truth).abs().max() / truth.square().mean().sqrt()
    out.append({"device": y.device.type, "shape": list(y.shape), "error": error.item()})
print(json.dumps({"runs": out, "reports": shim.collect_reports()}))
"""

CASES = {
    "000": ([[64, 256], [256, 64]], "a @ b"),
    "001": ([[96, 64], [96, 72]], "a.T @ b"),
    "002": ([[48, 64], [40, 64]], "a @ b.T"),
    "003": ([[96, 64], [96, 72]], "a.T @ b"),
    "004": ([[64, 1024], [1024, 1]], "a @ b"),
}


def run(seed: str, folder: Path) -> dict[str, Any]:
    transcript = next(SEEDS.glob(f"{seed}_*.txt")).read_text()
    solution = folder / "solution.py"
    solution.write_text(extract(transcript).source)
    shapes, truth = CASES[seed]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(solution), json.dumps(shapes), truth],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@pytest.mark.parametrize("seed", ["001", "003", "004"])
def test_right_solutions_are_right_in_both_schedules_and_silent(seed: str, tmp_path: Path) -> None:
    answer = run(seed, tmp_path)
    assert answer["reports"] == []
    assert [run["device"] for run in answer["runs"]] == ["cuda", "cuda"]
    assert all(run["error"] < 1e-5 for run in answer["runs"])


def test_the_output_moved_to_the_cpu_is_seen_to_be_there(tmp_path: Path) -> None:
    answer = run("002", tmp_path)
    assert [run["device"] for run in answer["runs"]] == ["cpu", "cpu"]
    assert answer["reports"] == []


def test_the_missing_barrier_is_a_race_in_both_lines_on_both_arrays(tmp_path: Path) -> None:
    answer = run("000", tmp_path)
    races = answer["reports"]
    assert {r["kind"] for r in races} == {"data_race"}
    assert {r["kernel"] for r in races} == {"matrixMulKernel"}
    assert {r["array"] for r in races} == {"sharedA", "sharedB"}
    loads, product = (36, 42), 51  # the stores into the two tiles, and the product that reads both, in the cuda source
    assert {frozenset((r["line"], r["other_line"])) for r in races} == {frozenset((store, product)) for store in loads}
    assert all(run["error"] > 0.1 for run in answer["runs"])

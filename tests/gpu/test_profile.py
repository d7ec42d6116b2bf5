"""`harness profile` on a GPU: both sides' kernels, the speed of light, and ncu's counters where that tool is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.cli import main
from harness.core.executables import find_nvcc
from harness.runner.profile.ncu import find_ncu
from tests.support.paths import ROOT

pytestmark = pytest.mark.gpu

SOLUTION = "solutions/examples/optimised/level1/4_wide_loads_shuffle.py"


def profiled(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    code = main(["profile", SOLUTION, "--json", *options])
    held = capsys.readouterr()
    assert code == 0, held.err
    found: dict[str, Any] = json.loads(held.out)
    return found


@pytest.mark.exclusive_gpu  # its times and the GPU's peaks, measured while others work, do not fit one another
def test_both_sides_side_by_side(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = profiled(capsys, monkeypatch)
    own, reference = found["solution"]["census"], found["reference"]["census"]
    assert own["own_share"] > 0.9
    assert reference["library_share"] > 0.9
    assert found["speed_of_light"]["bound"] == "memory"
    # Nothing beats the bytes that must be moved, and this solution comes near.
    assert 0.5 < found["speed_of_light"]["sol_time_s"] / own["device_s"] < 1.05
    heaviest = own["kernels"][0]
    assert heaviest["owner"] == "own"
    assert heaviest["spill_loads_bytes"] == 0
    assert 0.0 < heaviest["occupancy"]["share"] <= 1.0


def test_with_hardware_counters(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if find_ncu(find_nvcc()) is None:
        pytest.skip("ncu is not installed")
    found = profiled(capsys, monkeypatch, "--ncu")
    for side in ("solution", "reference"):
        assert found[side]["counters_lack"] is None
        launch = max(found[side]["counters"], key=lambda item: item["time_s"])
        # A matrix-vector product reads the matrix once: 8 GiB, at most of the memory's speed.
        assert launch["read_bytes"] == pytest.approx(2048 * 1048576 * 4, rel=0.1)
        assert launch["bytes_per_s"] > 1e12
        assert 0.0 < launch["occupancy"] <= 1.0
        assert launch["tensor_share"] == pytest.approx(0.0, abs=0.01)
        assert launch["stalls"]

"""Peaks as the doctor and the problems' pages show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.core import environment
from harness.core.environment import Gpu, collect
from harness.devices import measured_peaks
from harness.devices.gpu_specs import Peaks, datasheet
from harness.devices.measured_peaks import PeaksKey
from harness.report.peaks import peaks_facts

MEASURED = Peaks(
    name="NVIDIA H200",
    copy_bytes_per_s=4.08e12,
    read_bytes_per_s=4.32e12,
    flops_per_s={"fp32": 53.5e12},
    l2_bytes=50 * 2**20,
    source="measured",
    reference="copy and sum of 1 GiB",
    launch_floor_s=2.4e-6,
    launch_latency_s=9.1e-6,
)
GPU = Gpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-12",
    compute_capability="9.0",
    memory_bytes=None,
    sm_clock_max_mhz=None,
    memory_clock_max_mhz=None,
    power_limit_w=None,
    ecc=None,
    mig=None,
    persistence=None,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose driver lists one H200, with its peaks in the cache folder."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    listed = ((GPU,), "580.1", "13.0", None)
    monkeypatch.setattr(environment, "query_gpus", lambda: listed)
    monkeypatch.setattr(measured_peaks, "query_gpus", lambda: listed)
    measured_peaks._keep(PeaksKey(gpu_uuid="12", driver="580.1", torch=str(collect().torch)), MEASURED, tmp_path)
    return tmp_path


def test_every_peak_has_its_share_of_the_datasheet() -> None:
    facts = peaks_facts(MEASURED, datasheet("NVIDIA H200"))
    assert facts["copy"] == "4.08 TB/s (85 % of the datasheet's)"
    assert facts["read"] == "4.32 TB/s (90 % of the datasheet's)"
    assert facts["matrix products fp32"].startswith("53.5 Tflop/s (80 %")
    assert facts["empty kernel"] == "2.40 µs"
    assert peaks_facts(MEASURED, None)["copy"] == "4.08 TB/s"


def test_the_doctor_shows_what_is_kept(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "peak rates measured on GPU 0 NVIDIA H200" in shown
    assert "4.08 TB/s (85 % of the datasheet's)" in shown
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["peaks"] == {"GPU 0 NVIDIA H200": MEASURED.to_json()}


def test_without_a_gpu_there_is_nothing_to_measure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if not environment.cuda_unusable(collect()):
        pytest.skip("there is a GPU here")
    assert main(["doctor", "--measure", "--cache", str(tmp_path)]) == 3
    assert "--measure needs a GPU" in capsys.readouterr().err


def test_problems_are_shown_by_measured_peaks_where_there_are_any(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["problems", "show", "level1/19", "--json"]) == 0
    (full, *_) = json.loads(capsys.readouterr().out)["costs"]
    light = full["speed_of_light"]
    assert light["peaks_source"] == "measured"
    assert light["sol_time_s"] == pytest.approx(full["costs"]["total_bytes"] / 4.32e12)
    assert main(["problems", "show", "level1/19", "--gpu", "H100", "--json"]) == 0
    (full, *_) = json.loads(capsys.readouterr().out)["costs"]
    assert full["speed_of_light"]["peaks_source"] == "datasheet"

"""Peaks: measured on the host device with small sizes (the same code as on a GPU), kept and found again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.devices import measured_peaks
from harness.devices.device import open_device
from harness.devices.gpu_specs import Peaks, datasheet
from harness.devices.interference import Neighbours, Reading
from harness.devices.measured_peaks import PeaksKey
from harness.devices.nvml import GpuReading
from harness.referee.problem.roofline import speed_of_light

KEY = PeaksKey(gpu_uuid="1234-ab", driver="580.1", torch="2.11.0")


def made(**changes: object) -> Peaks:
    fields: dict[str, object] = {
        "name": "NVIDIA Test",
        "copy_bytes_per_s": 4e12,
        "read_bytes_per_s": 4.4e12,
        "flops_per_s": {"fp32": 5e13},
        "l2_bytes": 50 * 2**20,
        "source": "measured",
        "reference": "test",
        "launch_floor_s": 2e-6,
        "launch_latency_s": 9e-6,
    }
    return Peaks(**{**fields, **changes})  # type: ignore[arg-type]


def keep(folder: Path, key: PeaksKey, value: Peaks) -> Path:
    measured_peaks._keep(key, value, folder)
    return key.path(folder)


def test_a_measurement_gives_every_rate_and_both_launches() -> None:
    found = measured_peaks.measure(open_device(DeviceKind.HOST), copy_bytes=2**22, product_size=64)
    assert set(found.flops_per_s) == {item.value for item in measured_peaks.DTYPES}
    assert found.source == "measured"
    for rate in (found.copy_bytes_per_s, found.read_bytes_per_s, found.launch_floor_s, found.launch_latency_s):
        assert rate is not None
        assert rate > 0.0


def test_kept_peaks_are_found_again_by_their_key_alone(tmp_path: Path) -> None:
    keep(tmp_path, KEY, made())
    assert measured_peaks.held(KEY, tmp_path) == made()
    for other in (
        PeaksKey(gpu_uuid="1234-ac", driver="580.1", torch="2.11.0"),
        PeaksKey(gpu_uuid="1234-ab", driver="580.2", torch="2.11.0"),
        PeaksKey(gpu_uuid="1234-ab", driver="580.1", torch="2.11.1"),
    ):
        assert measured_peaks.held(other, tmp_path) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', '{"format": 1, "key": {}, "peaks": {}}'])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, damage: str) -> None:
    keep(tmp_path, KEY, made()).write_text(damage)
    assert measured_peaks.held(KEY, tmp_path) is None


def test_a_file_of_another_method_does_not_count(tmp_path: Path) -> None:
    path = keep(tmp_path, KEY, made())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": measured_peaks.FORMAT + 1}))
    assert measured_peaks.held(KEY, tmp_path) is None


def test_the_host_device_has_none(tmp_path: Path) -> None:
    assert measured_peaks.ensure(open_device(DeviceKind.HOST), tmp_path) is None
    assert not list(tmp_path.iterdir())


class Watched:
    """NVML on a GPU of which `disturbed` measurements see the clocks held down."""

    def __init__(self, disturbed: int) -> None:
        self.left = disturbed
        self.now_s = 0.0

    def __call__(self, uuid: str | None) -> Watched:
        return self

    def reading(self) -> Reading:
        self.now_s += 1.0
        return Reading(at_s=self.now_s, throttled_ns={"power brake": 0})

    def look(self, since_s: float) -> GpuReading:
        self.now_s += 1.0
        held_ns = 500_000_000 if self.left > 0 else 0
        self.left -= 1
        seen = Reading(at_s=self.now_s, throttled_ns={"power brake": held_ns})
        return GpuReading(state=None, reading=seen, around=Neighbours(known=False))


@pytest.mark.parametrize(
    ("disturbed", "measured", "kept"), [(0, 1, True), (1, 2, True), (9, measured_peaks.ATTEMPTS, False)]
)
def test_peaks_of_a_gpu_that_was_disturbed_are_measured_again_and_never_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturbed: int, measured: int, kept: bool
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(measured_peaks, "key_of", lambda device: KEY)
    monkeypatch.setattr(measured_peaks, "GpuMonitor", Watched(disturbed))
    monkeypatch.setattr(measured_peaks, "measure", lambda device: calls.append(device) or made())
    assert measured_peaks.ensure(open_device(DeviceKind.HOST), tmp_path) == made()
    assert len(calls) == measured
    assert (measured_peaks.held(KEY, tmp_path) is not None) is kept


def test_tf32_is_allowed_inside_and_as_before_outside() -> None:
    flags = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [item.allow_tf32 for item in flags]
    for wanted in (True, False):
        with measured_peaks.tf32_allowed(wanted):
            assert [item.allow_tf32 for item in flags] == [wanted, wanted]
        assert [item.allow_tf32 for item in flags] == before
    with measured_peaks.tf32_allowed(None):
        assert [item.allow_tf32 for item in flags] == before


def test_reading_faster_than_copying_sets_the_memory_bound() -> None:
    light = speed_of_light(0, 44 * 10**9, made(), PrecisionClass.FP32)
    assert light.bound == "memory"
    assert light.sol_time_s == pytest.approx(44e9 / 4.4e12)
    assert light.peaks_source == "measured"
    without = speed_of_light(0, 44 * 10**9, made(read_bytes_per_s=None), PrecisionClass.FP32)
    assert without.sol_time_s == pytest.approx(44e9 / 4e12)


def test_peaks_of_an_older_file_lack_what_was_not_measured_then() -> None:
    value = {k: v for k, v in made().to_json().items() if k not in ("read_bytes_per_s", "launch_latency_s")}
    assert Peaks.from_json(value) == made(read_bytes_per_s=None, launch_latency_s=None)


@pytest.mark.gpu
@pytest.mark.exclusive_gpu
class TestOnAGpu:
    def test_no_measured_peak_passes_the_datasheets(self) -> None:
        device = open_device(DeviceKind.CUDA)
        found = measured_peaks.measure(device)
        sheet = datasheet(str(device.name))
        if sheet is None:
            pytest.fail(f"{device.name} has no datasheet here: add it to datasheets.DATASHEETS")
        assert 0.5 * sheet.copy_bytes_per_s < found.copy_bytes_per_s <= sheet.copy_bytes_per_s
        assert found.read_bytes_per_s is not None
        assert found.read_bytes_per_s <= sheet.copy_bytes_per_s
        for name, rate in found.flops_per_s.items():
            assert 0.4 * sheet.flops_per_s[name] < rate <= sheet.flops_per_s[name], name
        assert found.launch_floor_s is not None
        assert found.launch_latency_s is not None
        assert found.launch_floor_s < found.launch_latency_s

    def test_measured_once_and_then_read(self, tmp_path: Path) -> None:
        device = open_device(DeviceKind.CUDA)
        first = measured_peaks.ensure(device, tmp_path)
        assert first is not None
        assert measured_peaks.ensure(device, tmp_path) == first
        (key,) = [k for k in measured_peaks.keys_of_machine() if measured_peaks.held(k, tmp_path)] or [None]
        assert key == measured_peaks.key_of(device)

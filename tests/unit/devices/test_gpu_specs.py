"""Peaks as a value, and the datasheets found by a device's name."""

from __future__ import annotations

import json

import pytest

from harness.devices.gpu_specs import DATASHEETS, Peaks, datasheet

MEASURED = Peaks(
    name="made up",
    copy_bytes_per_s=4e12,
    flops_per_s={"fp32": 50e12, "tf32": 400e12, "bf16": 700e12},
    l2_bytes=50 * 2**20,
    source="measured",
    reference="a test",
    launch_floor_s=2e-6,
)


class TestPeaks:
    @pytest.mark.parametrize(
        ("device", "name"),
        [
            ("NVIDIA H200", "H200 SXM"),
            ("NVIDIA H200 NVL", "H200 SXM"),
            ("NVIDIA H100 80GB HBM3", "H100 SXM"),
            ("NVIDIA H100 PCIe", "H100 PCIe"),
            ("NVIDIA H100 NVL", "H100 NVL"),
            ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
            ("NVIDIA A100 80GB PCIe", "A100 80GB"),
            ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
            ("NVIDIA L4", "L4"),
            ("NVIDIA GeForce RTX 4090", "RTX 4090"),
            ("NVIDIA B200", "B200"),
        ],
    )
    def test_device_names(self, device: str, name: str) -> None:
        found = datasheet(device)
        assert found is not None
        assert found.name == name

    @pytest.mark.parametrize(
        "device",
        ["NVIDIA GH200 480GB", "NVIDIA L40S", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GB200", "NVIDIA H20", ""],
    )
    def test_relatives_are_not_taken_for_one_another(self, device: str) -> None:
        assert datasheet(device) is None

    def test_every_sheet_names_its_source_and_orders_its_rates(self) -> None:
        for _, peaks in DATASHEETS:
            assert peaks.source == "datasheet"
            assert "NVIDIA" in peaks.reference
            rates = peaks.flops_per_s
            assert rates["fp32"] <= rates["tf32"] <= rates["bf16"] <= rates["fp16"] <= rates.get("fp8", float("inf"))

    def test_json_and_back(self) -> None:
        assert Peaks.from_json(json.loads(json.dumps(MEASURED.to_json(), allow_nan=False))) == MEASURED
        with pytest.raises(ValueError, match="not the peaks"):
            Peaks.from_json({"name": "x"})

    def test_impossible_peaks(self) -> None:
        value = MEASURED.to_json()
        with pytest.raises(ValueError, match="positive"):
            Peaks.from_json({**value, "copy_bytes_per_s": 0.0})
        with pytest.raises(ValueError, match="measured or"):
            Peaks.from_json({**value, "source": "guess"})

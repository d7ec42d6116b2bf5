"""Peak rates of GPUs: the `Peaks` value and a table of datasheets.

Trusted side. `measured_peaks` measures peaks; this module does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.json_value import JsonObject, from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks(JsonObject):
    """Peak rates of one GPU.

    Attributes:
        name: Name of the GPU.
        copy_bytes_per_s: Bytes read plus bytes written per second, by a copy.
        flops_per_s: Dense rate by precision class (and `fp64`).
        l2_bytes: Size of the L2 cache.
        source: `measured` or `datasheet`.
        reference: How it was measured, or which document states it.
        launch_floor_s: Device time of a call that launches one empty kernel; None if unknown.
        read_bytes_per_s: Bytes read per second, by a reduction; None if unknown.
        launch_latency_s: Host time of a call with one empty kernel on an idle device; None if unknown.
    """

    name: str
    copy_bytes_per_s: float
    read_bytes_per_s: float | None = None
    flops_per_s: Mapping[str, float]
    l2_bytes: int
    source: str
    reference: str
    launch_floor_s: float | None = None
    launch_latency_s: float | None = None

    def __post_init__(self) -> None:
        if self.source not in ("measured", "datasheet"):
            raise ValueError(f"the source of peaks must be measured or datasheet, not {self.source!r}")
        known = (self.read_bytes_per_s, self.launch_floor_s, self.launch_latency_s)
        rates = (self.copy_bytes_per_s, *self.flops_per_s.values(), *(value for value in known if value is not None))
        if not all(math.isfinite(rate) and rate > 0.0 for rate in rates) or self.l2_bytes < 0:
            raise ValueError(f"the peaks of {self.name} must all be finite and positive")

    @property
    def memory_bytes_per_s(self) -> float:
        """The fastest memory rate; most GPUs read faster than they copy."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s or 0.0)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Peaks:
        """Invert `to_json`; raise `ValueError` for a missing or impossible value."""
        try:
            return from_json(value, cls)
        except ValueError as error:
            raise ValueError(f"not the peaks of a GPU: {error}") from error


def _sheet(name: str, *, tb_per_s: float, l2_mib: int, tflops: Mapping[str, float], reference: str) -> Peaks:
    return Peaks(
        name=name,
        copy_bytes_per_s=tb_per_s * 1e12,
        flops_per_s={key: value * 1e12 for key, value in tflops.items()},
        l2_bytes=l2_mib * 2**20,
        source="datasheet",
        reference=reference,
    )


_HOPPER = {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}

DATASHEETS: tuple[tuple[str, Peaks], ...] = (
    (
        r"\bH200\b",
        _sheet("H200 SXM", tb_per_s=4.8, l2_mib=50, tflops=_HOPPER, reference="NVIDIA H200 datasheet (2024)"),
    ),
    (
        r"\bH100 PCIe\b",
        _sheet(
            "H100 PCIe",
            tb_per_s=2.04,
            l2_mib=50,
            tflops={"fp64": 51.2, "fp32": 51.2, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0, "fp8": 1513.0},
            reference="NVIDIA H100 datasheet (2023)",
        ),
    ),
    (
        r"\bH100 NVL\b",
        _sheet("H100 NVL", tb_per_s=3.94, l2_mib=50, tflops=_HOPPER, reference="NVIDIA H100 NVL product brief (2024)"),
    ),
    (
        r"\bH100\b",
        _sheet("H100 SXM", tb_per_s=3.35, l2_mib=50, tflops=_HOPPER, reference="NVIDIA H100 datasheet (2023)"),
    ),
    (
        r"\bA100\b.*80GB",
        _sheet("A100 80GB", tb_per_s=2.039, l2_mib=40, tflops=_AMPERE, reference="NVIDIA A100 80GB datasheet (2021)"),
    ),
    (
        r"\bA100\b",
        _sheet("A100 40GB", tb_per_s=1.555, l2_mib=40, tflops=_AMPERE, reference="NVIDIA A100 datasheet (2020)"),
    ),
    (
        r"\bL4\b",
        _sheet(
            "L4",
            tb_per_s=0.3,
            l2_mib=48,
            tflops={"fp64": 0.49, "fp32": 31.3, "tf32": 62.7, "fp16": 125.3, "bf16": 125.3, "fp8": 250.7},
            reference="NVIDIA L4 datasheet (2023) and Ada architecture whitepaper 2.01, at the 2,040 MHz boost clock",
        ),
    ),
    (
        r"\bRTX 4090$",
        _sheet(
            "RTX 4090",
            tb_per_s=1.008,
            l2_mib=72,
            tflops={"fp64": 1.29, "fp32": 82.6, "tf32": 82.6, "fp16": 330.3, "bf16": 165.2, "fp8": 660.6},
            reference="NVIDIA Ada architecture whitepaper 2.01, dense, fp16 and fp8 with 16-bit accumulation",
        ),
    ),
    (
        r"\bB200\b",
        _sheet(
            "B200",
            tb_per_s=8.0,
            l2_mib=126,
            tflops={"fp64": 45.0, "fp32": 90.0, "tf32": 1250.0, "fp16": 2500.0, "bf16": 2500.0, "fp8": 5000.0},
            reference="NVIDIA Blackwell architecture technical brief (2024), at 1,200 W, dense",
        ),
    ),
)
"""Upper limits by a regular expression for the driver's device name; the first match counts. Rates are dense."""


def datasheet(device_name: str) -> Peaks | None:
    """Return the datasheet's peaks for a GPU's name (`NVIDIA H200`), or None."""
    return next((peaks for pattern, peaks in DATASHEETS if re.search(pattern, device_name)), None)

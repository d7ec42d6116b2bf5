"""The two times made of flops and bytes."""

from __future__ import annotations

import json

import pytest

from harness.catalog import load_problems
from harness.core.choices import PrecisionClass
from harness.devices.gpu_specs import Peaks, datasheet
from harness.referee.problem.flops import Traffic
from harness.referee.problem.roofline import DeclaredLeast, speed_of_light, trust_floor
from harness.referee.problem.shapes import sketch
from tests.support.paths import ROOT

FP32, TF32, FP16, BF16, FP8 = map(PrecisionClass, ("fp32", "tf32", "fp16", "bf16", "fp8"))

MEASURED = Peaks(
    name="made up",
    copy_bytes_per_s=4e12,
    flops_per_s={"fp32": 50e12, "tf32": 400e12, "bf16": 700e12},
    l2_bytes=50 * 2**20,
    source="measured",
    reference="a test",
    launch_floor_s=2e-6,
)


class TestSpeedOfLight:
    def test_each_bound(self) -> None:
        memory = speed_of_light(10**9, 8 * 10**9, MEASURED, FP32)
        assert (memory.bound, memory.sol_time_s) == ("memory", pytest.approx(2e-3))
        compute = speed_of_light(2 * 4096**3, 3 * 4096**2 * 4, MEASURED, FP32)
        assert (compute.bound, compute.sol_time_s) == ("compute", pytest.approx(2 * 4096**3 / 50e12))
        assert speed_of_light(2 * 4096**3, 1, MEASURED, TF32).sol_time_s == pytest.approx(2 * 4096**3 / 400e12)
        launch = speed_of_light(1000, 1000, MEASURED, FP32)
        assert (launch.bound, launch.sol_time_s) == ("launch", 2e-6)

    def test_an_unknown_rate_leaves_the_compute_bound_out(self) -> None:
        found = speed_of_light(10**15, 1000, MEASURED, FP8)
        assert found.compute_s is None
        assert found.bound == "launch"
        json.dumps(found.to_json(), allow_nan=False)

    def test_fraction(self) -> None:
        assert speed_of_light(0, 4 * 10**9, MEASURED, FP32).fraction(2e-3) == pytest.approx(0.5)


class TestTrustFloor:
    """Times are compared with what was measured on an H200 (shared figures of eager torch)."""

    def test_eager_kernels_lie_above_the_floor(self) -> None:
        for (rows, columns), outputs, seconds in (
            ((16384, 1024), 16384 * 1024, 36.0e-6),  # softmax
            ((1 << 20, 1), 1 << 20, 6.9e-6),  # relu
            ((4096, 4096), 4096 * 4096, 2681e-6),  # matrix product
        ):
            traffic = Traffic(read_bytes=rows * columns * 4, written_bytes=outputs * 4, fresh_bytes=outputs * 4)
            floor = trust_floor(traffic, FP32, device_name="NVIDIA H200")
            assert floor is not None
            assert floor.floor_s < seconds

    def test_only_fresh_outputs_beyond_the_cache_count(self) -> None:
        traffic = Traffic(read_bytes=8 * 10**9, written_bytes=5 * 10**9, fresh_bytes=4 * 10**9)
        floor = trust_floor(traffic, FP32, device_name="NVIDIA H200")
        assert floor is not None
        assert floor.unavoidable_bytes == 4 * 10**9 - 50 * 2**20
        assert floor.floor_s == pytest.approx((4e9 - 50 * 2**20) / 4.8e12)
        small = Traffic(read_bytes=8 * 10**9, written_bytes=8192, fresh_bytes=8192)
        floor = trust_floor(small, FP32, device_name="NVIDIA H200")
        assert floor is not None
        assert floor.floor_s == 0.0

    def test_a_declared_share_of_inputs_counts(self) -> None:
        traffic = Traffic(read_bytes=8 * 10**9, written_bytes=8192, fresh_bytes=8192)
        floor = trust_floor(traffic, FP32, device_name="NVIDIA H200", declared=DeclaredLeast(read_share=1.0))
        assert floor is not None
        assert floor.floor_s == pytest.approx(8e9 / 4.8e12, rel=0.01)

    def test_declared_bytes_replace_the_count_even_by_nothing(self) -> None:
        traffic = Traffic(read_bytes=0, written_bytes=10**9, fresh_bytes=10**9)
        floor = trust_floor(traffic, FP32, device_name="NVIDIA H200", declared=DeclaredLeast(least_bytes=0))
        assert floor is not None
        assert floor.floor_s == 0.0

    def test_declared_flops_are_held_to_the_fastest_unit_that_reaches_the_class(self) -> None:
        traffic = Traffic(read_bytes=0, written_bytes=0, fresh_bytes=0)
        declared = DeclaredLeast(least_flops=10**15)
        for precision, rate in ((FP32, 989.4e12), (BF16, 989.4e12), (FP8, 1978.9e12)):
            floor = trust_floor(traffic, precision, device_name="NVIDIA H200", declared=declared)
            assert floor is not None
            assert floor.floor_s == pytest.approx(1e15 / rate)

    def test_measured_peaks_have_a_margin_and_yield_to_a_datasheet(self) -> None:
        traffic = Traffic(read_bytes=0, written_bytes=10**10, fresh_bytes=10**10)
        unknown = trust_floor(traffic, FP32, device_name="NVIDIA X", measured=MEASURED)
        assert unknown is not None
        assert unknown.bytes_per_s == pytest.approx(5e12)
        known = trust_floor(traffic, FP32, device_name="NVIDIA H200", measured=MEASURED, l2_bytes=10**9)
        assert known is not None
        assert known.bytes_per_s == pytest.approx(4.8e12)
        assert known.unavoidable_bytes == 9 * 10**9
        json.dumps(known.to_json(), allow_nan=False)

    def test_an_unknown_gpu_has_no_floor(self) -> None:
        assert trust_floor(Traffic(read_bytes=1, written_bytes=1, fresh_bytes=1), FP32, device_name="NVIDIA X") is None

    def test_senseless_declarations(self) -> None:
        with pytest.raises(ValueError, match="between 0 and 1"):
            DeclaredLeast(read_share=1.5)
        with pytest.raises(ValueError, match="must not be negative"):
            DeclaredLeast(least_flops=-1)

    def test_measured_peaks_are_named_with_their_margin(self) -> None:
        traffic = Traffic(read_bytes=8, written_bytes=8, fresh_bytes=8)
        sheet = trust_floor(traffic, FP32, device_name="NVIDIA H200")
        measured = trust_floor(traffic, FP32, device_name="unknown", measured=MEASURED)
        assert sheet is not None
        assert measured is not None
        assert "measured" not in sheet.peaks
        assert measured.peaks == "a test, measured, times 1.25"


def test_products_of_eight_bits_have_the_rate_of_fp8_whatever_the_class() -> None:
    problem = load_problems(ROOT / "problems")["level2/140"]
    assert (problem.precision, problem.costs.rate) == (BF16, FP8)
    peaks = datasheet("NVIDIA H200")
    assert peaks is not None
    light = sketch(problem, problem.workloads["full"]).light(problem, problem.workloads["full"], peaks)
    assert light.compute_s == pytest.approx(2 * 4096**3 / 1978.9e12)
    for name in ("fp8_e4m3", "fp8_e5m2", "mxfp8"):
        assert speed_of_light(10**12, 1, peaks, PrecisionClass(name)).compute_s == pytest.approx(1e12 / 1978.9e12)
    assert speed_of_light(10**12, 1, peaks, PrecisionClass("int4")).compute_s is None, "unknown"

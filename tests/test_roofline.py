"""Flops, bytes and the two times made of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from harness.model import PrecisionClass
from harness.roofline import (
    DATASHEETS,
    DeclaredLeast,
    Peaks,
    Traffic,
    count_flops,
    datasheet,
    least_traffic,
    speed_of_light,
    trust_floor,
)

FP32, TF32, FP16, BF16, FP8 = PrecisionClass


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, device="meta", dtype=dtype)


class TestFlops:
    @pytest.mark.parametrize(
        ("call", "flops"),
        [
            (lambda: meta(4096, 4096) @ meta(4096, 4096), 2 * 4096**3),
            (lambda: meta(8192, 2048).T @ meta(8192, 4096), 2 * 2048 * 8192 * 4096),
            (lambda: meta(2048, 1048576) @ meta(1048576, 1), 2 * 2048 * 1048576),
            (lambda: meta(2048, 1000) @ meta(1000), 2 * 2048 * 1000),
            (lambda: torch.dot(meta(77), meta(77)), 154),
            (lambda: torch.addmv(meta(5), meta(5, 7), meta(7)), 70),
            (lambda: meta(3, 10, 20) @ meta(3, 20, 30), 3 * 2 * 10 * 20 * 30),
            (lambda: torch.conv2d(meta(2, 3, 9, 9), meta(4, 3, 3, 3)), 2 * 2 * 4 * 49 * 27),
            (lambda: torch.relu(meta(1000)), 0),
        ],
    )
    def test_known_counts_on_meta_tensors(self, call, flops: int) -> None:
        assert count_flops(call).total == flops

    def test_composite_calls_count_as_torchs_own_counter_says(self) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        def call() -> None:
            x = torch.randn(2, 3, 9, 9)
            torch.nn.Conv2d(3, 8, 3)(x)
            q = torch.randn(1, 2, 16, 8)
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            torch.einsum("bij,bjk->bik", torch.randn(2, 3, 4), torch.randn(2, 4, 5))
            torch.nn.functional.linear(torch.randn(3, 4, 5), torch.randn(6, 5), torch.randn(6))
            torch.nn.LSTM(4, 5)(torch.randn(2, 3, 4))

        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call()
        assert count_flops(call).total == counter.get_total_flops() > 0

    def test_counting_imports_no_compiler(self) -> None:
        code = (
            "import sys, torch\n"
            "from harness.roofline import count_flops\n"
            "count_flops(lambda: torch.ones(4, 4) @ torch.ones(4, 4))\n"
            "sys.exit('torch._dynamo' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_a_module_run_for_real_counts_the_same(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.ReLU(), torch.nn.Linear(40, 5))
        found = count_flops(lambda: model(torch.ones(7, 30)))
        assert found.total == 2 * 7 * (30 * 40 + 40 * 5)
        assert sum(found.by_operator.values()) == found.total

    def test_what_the_call_raises_is_raised(self) -> None:
        def call() -> None:
            raise RuntimeError("forward is broken")

        with pytest.raises(RuntimeError, match="forward is broken"):
            count_flops(call)


class TestTraffic:
    def test_matrix_product(self) -> None:
        a, b = torch.zeros(256, 1000), torch.zeros(1000, 256)
        found = least_traffic([a, b], [], a @ b)
        assert found == Traffic(read_bytes=2 * 256 * 1000 * 4, written_bytes=256 * 256 * 4, fresh_bytes=256 * 256 * 4)
        assert found.total_bytes == found.read_bytes + found.written_bytes

    def test_trees_dtypes_and_other_values(self) -> None:
        x = torch.zeros(10, dtype=torch.float16)
        found = least_traffic({"x": [x, 3]}, {"w": torch.zeros(4, dtype=torch.int64)}, (x + 1, {"y": x > 0}, None))
        assert (found.read_bytes, found.written_bytes) == (20 + 32, 20 + 10)

    def test_once_however_often_it_occurs(self) -> None:
        x = torch.zeros(100)
        assert least_traffic([x, x, x.view(10, 10)], [x], torch.zeros(1)).read_bytes == 400
        assert least_traffic([x[:50], x[50:]], [], []).read_bytes == 400
        assert least_traffic([meta(100), meta(100)], [], []).read_bytes == 800

    def test_a_broadcast_counts_what_is_stored(self) -> None:
        assert least_traffic([torch.zeros(1, 50).expand(1000, 50)], [], []).read_bytes == 200

    def test_an_output_that_is_an_input_is_not_fresh(self) -> None:
        x = torch.zeros(100)
        found = least_traffic([x], [], x.view(10, 10))
        assert (found.written_bytes, found.fresh_bytes) == (400, 0)

    def test_empty(self) -> None:
        assert least_traffic([torch.zeros(0, 5)], [], torch.zeros(0)).total_bytes == 0


H200 = datasheet("NVIDIA H200")
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
        with pytest.raises(ValueError, match="not negative"):
            DeclaredLeast(least_flops=-1)

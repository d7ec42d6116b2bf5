"""Flops and bytes of calls."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from harness.referee.problem.flops import Traffic, count_flops, least_traffic


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, device="meta", dtype=dtype)


def gradients_of_convolution(groups: int) -> None:
    """Both gradients of a convolution of two samples: six channels of nine to four of seven, by three taps."""
    x, weight, grad = meta(2, 6, 9), meta(4, 6 // groups, 3), meta(2, 4, 7)
    wanted = [True, True, False]
    torch.ops.aten.convolution_backward(grad, x, weight, None, [1], [0], [1], False, [0], groups, wanted)


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
            (lambda: gradients_of_convolution(groups=1), 2 * 2 * (2 * 4 * 6 * 7 * 3)),
            (lambda: gradients_of_convolution(groups=2), 2 * 2 * (2 * 4 * 3 * 7 * 3)),
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
            "from harness.referee.problem.flops import count_flops\n"
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

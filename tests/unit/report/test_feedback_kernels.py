"""The census in sentences: what a passed solution's author is told of where the time goes."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.report.feedback import feedback
from harness.report.feedback.kernels import sentences

OWN = {
    "name": "matmul_tiled(float const*, float*)", "kind": "kernel", "calls": 1, "total_s": 9.5e-4, "share": 0.95,
    "owner": "own", "grid": [64, 1, 1], "block": [256, 1, 1], "registers": 128, "spill_stores_bytes": 8,
    "spill_loads_bytes": 16, "occupancy": {"share": 0.25, "blocks": 2, "limiter": "registers", "waves": 0.24},
}  # fmt: skip
LIBRARY = {
    "name": "void at::native::vectorized_elementwise_kernel<4>(int)", "kind": "kernel", "calls": 5, "total_s": 5e-5,
    "share": 0.05, "owner": "library", "library": "torch", "grid": [9, 1, 1], "block": [128, 1, 1],
}  # fmt: skip


def record(census: Any) -> Record:
    return Record(
        problem="level1/1",
        author="a",
        solution="a/level1/1_x.py",
        device=DeviceKind.CUDA,
        workload="full",
        status=Status.passed,
        reason="right",
        evidence={"census": census},
    )


def census(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"kernels": list(rows), "launches": 6, "own_share": 0.95, "library_share": 0.05, **changes}


def test_the_heaviest_kernel_its_occupancy_and_its_spills() -> None:
    text = " ".join(sentences(record(census(OWN, LIBRARY))))
    assert "Most (95 %) of the device time goes to matmul_tiled, 64 blocks of 256 threads." in text
    assert "those of libraries 5.0 %" in text
    assert "launches 6 kernels" in text
    assert "fills only 24 % of the GPU" in text
    assert "occupancy is at most 25 %, because registers limit it to 2 blocks per multiprocessor" in text
    assert "spills 24 B per thread" in text


def test_several_kernels_share_the_time() -> None:
    rows = [{**OWN, "share": 0.45}, {**LIBRARY, "share": 0.35}, {**LIBRARY, "name": "gemm", "share": 0.2}]
    text = " ".join(sentences(record(census(*rows, own_share=0.45, library_share=0.55))))
    assert text.startswith("45 % of the device time goes to matmul_tiled")
    assert "Next: at::native::vectorized_elementwise_kernel<4> (torch's) (35 %) and gemm (torch's) (20 %)." in text


def test_a_second_helping_of_blocks() -> None:
    held = {**OWN, "share": 1.0, "occupancy": {"share": 1.0, "blocks": 8, "limiter": "threads", "waves": 1.1}}
    lines = sentences(record(census(held, launches=1, library_share=0.0)))
    assert lines[0].startswith("All of the device time")
    assert any("1.10 times the blocks that fit on the GPU" in line for line in lines)
    assert not any("occupancy" in line for line in lines)


def test_the_host_device_has_launches_only() -> None:
    held = {"kernels": [{"name": "relu", "kind": "kernel", "calls": 11, "owner": "own"}], "launches": 11}
    assert sentences(record(held)) == ["Kernels that ran, with their number of launches: relu (11x)."]


def test_it_is_part_of_the_feedback() -> None:
    assert "matmul_tiled" in feedback(record(census(OWN)))


@pytest.mark.parametrize("junk", [None, 7, "text", [1], {"kernels": 3}, {"kernels": [{"share": "much"}, 5, None]}])
def test_a_census_of_another_shape_is_passed_over(junk: Any) -> None:
    assert sentences(record(junk)) == []
    feedback(record(junk))


def test_names_act_on_no_terminal() -> None:
    held = {**OWN, "name": "\x1b[31mred\u202e", "library": "\x1b[0m", "occupancy": {"limiter": "\x1b", "share": 0.1}}
    text = "\n".join(sentences(record(census(held, launches=2**60))))
    assert not set(text) & set("\x1b\u202e")

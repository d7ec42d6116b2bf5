"""The tracer: the layout of CUPTI's records, how launches are counted together, what is said where CUPTI is missing.

That it works is for a GPU to show: tests/integration/test_census_run.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from harness.protocol.kernel_rows import MAX_ROWS, KernelRow
from harness.untrusted.contestant import cupti

OFFSETS = {
    "registers": 6, "start_ns": 16, "end_ns": 24, "grid": 52, "block": 64, "static_shared": 76, "dynamic_shared": 80,
    "local_a_thread": 84, "name": 104,
}  # fmt: skip
"""Of `CUpti_ActivityKernel4` to `10` in cupti_activity.h of CUDA 9.0 to 13.0, in bytes."""


def test_the_records_layout_is_cuptis() -> None:
    assert {name: getattr(cupti._Kernel, name).offset for name in OFFSETS} == OFFSETS
    assert (cupti._Moved.detail.offset, cupti._Moved.start_ns.offset, cupti._Moved.end_ns.offset) == (4, 16, 24)


class Recorded(cupti.Trace):
    """A trace whose records were read already."""

    def __init__(self, records: list[tuple[tuple[object, ...], float]]) -> None:
        self.complete = True
        self._held = records

    def _records(self) -> Iterator[tuple[tuple[object, ...], float]]:
        return iter(self._held)


def record(name: str, seconds: float, grid: tuple[int, int, int] = (1, 1, 1)) -> tuple[tuple[object, ...], float]:
    return ("kernel", name, name, grid, (32, 1, 1), 16, 0, 0, 0), seconds


def test_alike_launches_are_one_row_and_the_longest_comes_first() -> None:
    trace = Recorded([record("a", 1e-6), record("b", 5e-6), record("a", 2e-6), record("a", 1e-6, (2, 1, 1))])
    rows = trace.rows()
    assert [(row.name, row.grid, row.calls) for row in rows] == [
        ("b", (1, 1, 1), 1),
        ("a", (1, 1, 1), 2),
        ("a", (2, 1, 1), 1),
    ]
    assert rows[1].total_s == pytest.approx(3e-6)
    assert trace.complete


def test_more_kernels_than_a_reply_may_hold_are_cut_and_that_is_said() -> None:
    trace = Recorded([record(f"k{number}", number * 1e-6) for number in range(MAX_ROWS + 5)])
    rows = trace.rows()
    assert len(rows) == MAX_ROWS
    assert rows[0].name == f"k{MAX_ROWS + 4}"
    assert not trace.complete


def test_launches_of_the_host_device() -> None:
    (first, second) = cupti.counted([("relu", 3, (4, 1, 1), (256, 1, 1)), ("softmax", 9, (0, 0, 0), (0, 0, 0))])
    assert (first.name, first.calls, second.grid, second.total_s) == ("softmax", 9, (4, 1, 1), 0.0)
    assert KernelRow.from_json(second.to_json()) == second


def test_symbols_are_told_as_cpp_names() -> None:
    named = cupti._demangler()
    assert named("_Z9my_kernelIfEvPT_i") == "void my_kernel<float>(float*, int)"
    assert named("plain") == "plain"
    assert named("_Zbroken") == "_Zbroken"
    assert len(named("_Z" + "9" * 5000)) <= cupti.MAX_NAME


def test_a_missing_cupti_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_: Any) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(cupti.TraceUnavailable, match="libcupti"):
        cupti.Trace()

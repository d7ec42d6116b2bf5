"""The host device end to end: kernels compiled and run in a child process, what they compute and what is reported."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.support.paths import SUPPORT, TESTS

pytestmark = pytest.mark.xdist_group("test_hostcuda_device")
"""One worker runs all of it: the tests share two runs."""

HERE = TESTS
SCRIPT = SUPPORT / "hostcuda_device.py"
SOURCE = (SUPPORT / "hostcuda_device.cu").read_text().splitlines()
BROKEN = [
    "missing_barrier",
    "past_the_end",
    "past_shared",
    "past_macro",
    "past_local",
    "never_written",
    "misaligned",
    "divergent",
    "stuck_warp",
    "asserting",
    "unknown_ptx",
    "launch_unnoticed",
    "host_tensor",
    "exited_shuffle",
    "nested",
    "wide_race",
    "host_access",
]
UNCHECKED = [
    "order",
    "atomics",
    "overloads",
    "grid_sum",
    "spinning",
    "symbols",
    "early_exit",
    "devices",
    "cub_calls",
    "events",
]
UNCHECKED += ["events", "compat", "torch_warp", "streams", "launch_forms", "pinned", "torch_device", "blobs"]
UNCHECKED += ["wide", "copies", "hosts_own", "heap_objects"]
CLEAN = [*UNCHECKED, "launch_limits", "wrong_arguments", "leaking", "after_exit", "accessors", "groups"]
TIMEOUT_S = 900
"""The first run on a machine prepares headers."""


@cache
def run(names: tuple[str, ...]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *names], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=HERE.parent
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def checked(name: str) -> tuple[Any, list[dict[str, Any]]]:
    answer = run((*BROKEN, *CLEAN))[name]
    return answer["values"], answer["reports"]


def line(mark: str) -> int:
    return next(number for number, text in enumerate(SOURCE, 1) if f"MARK {mark}" in text)


def test_a_missing_barrier_is_a_race_with_both_lines_and_the_shared_element() -> None:
    values, reports = checked("missing_barrier")
    races = [r for r in reports if r["kind"] == "data_race"]
    assert {frozenset((r["line"], r["other_line"])) for r in races} == {
        frozenset((line("race write"), line("race read")))
    }
    assert all(r["kernel"] == "missing_barrier_kernel" and r["array"] == "s" and r["space"] == "shared" for r in races)
    late = next(r for r in races if r["access"] == "read of 4 bytes")
    assert (late["subscript"], late["thread"], late["other_thread"]) == ("[0][0]", [32, 0, 0], [0, 0, 0])
    assert all(value != value for value in values[:32]), "shared memory is poisoned before a block runs"


@pytest.mark.parametrize(
    ("name", "kind", "mark", "array", "index"),
    [
        ("past_the_end", "memory_error", "past the end", "out", 100),
        ("past_shared", "memory_error", "past shared", "tile", 64),
        ("past_macro", "memory_error", "past macro", "mine_row", 64),
        ("past_local", "memory_error", "past local", "'float [8]'", 8),
        ("never_written", "uninitialised_read", "never written", "fresh", 0),
    ],
)
def test_a_bad_access_is_named_with_array_and_index(name: str, kind: str, mark: str, array: str, index: int) -> None:
    _, reports = checked(name)
    assert [(r["kind"], r["line"], r["array"], r["index"]) for r in reports] == [(kind, line(mark), array, index)]
    assert reports[0]["kernel"] == f"{name}_kernel"


def test_the_thread_of_an_access_past_the_end_is_the_one_that_made_it() -> None:
    _, reports = checked("past_the_end")
    assert (reports[0]["block"], reports[0]["thread"], reports[0]["access"]) == (
        [3, 0, 0],
        [4, 0, 0],
        "write of 4 bytes",
    )


def test_a_misaligned_vector_access_ends_the_kernel() -> None:
    error, reports = checked("misaligned")
    assert error == "CUDA error: misaligned address"
    assert [(r["kind"], r["line"]) for r in reports] == [("misaligned", line("misaligned"))]


def test_two_barriers_in_two_branches_are_reported_with_both_lines() -> None:
    _, reports = checked("divergent")
    assert [r["kind"] for r in reports] == ["barrier_error"]
    assert {reports[0]["line"], reports[0]["other_line"]} == {line("barrier one"), line("barrier two")}


def test_a_shuffle_that_cannot_complete_ends_the_kernel() -> None:
    error, reports = checked("stuck_warp")
    assert error == "CUDA error: unspecified launch failure"
    assert [(r["kind"], r["line"]) for r in reports] == [("barrier_error", line("stuck shuffle"))]
    assert "0xffffffff" in reports[0]["message"]


def test_a_shuffle_that_reads_a_lane_which_has_exited_is_reported() -> None:
    _, reports = checked("exited_shuffle")
    assert {(r["kind"], r["line"]) for r in reports} == {("barrier_error", line("exited"))}
    assert "has exited: the value is undefined" in reports[0]["message"]
    assert reports[0]["other_thread"][0] >= 20


def test_votes_barriers_and_broadcasts_after_an_exit_are_no_defect() -> None:
    assert checked("after_exit") == ([1.0 + 20 + 1] * 20, [])


def test_accessors_of_torch_and_groups_of_any_kind() -> None:
    assert checked("accessors")[0] == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]
    assert checked("groups")[0] == [2016, *(sum(range(first, first + 16)) for first in range(0, 64, 16))]


def test_a_failed_assertion_has_its_expression_and_its_error() -> None:
    error, reports = checked("asserting")
    assert error == "CUDA error: device-side assert triggered"
    assert [(r["kind"], r["line"], r["message"]) for r in reports] == [
        ("assertion", line("assert"), "x[threadIdx.x] > 0.0f")
    ]


def test_what_is_not_emulated_is_said_with_its_line_and_never_guessed() -> None:
    error, reports = checked("unknown_ptx")
    assert error == "CUDA error: operation not supported"
    expected = next(number for number, text in enumerate(SOURCE, 1) if "wgmma.fence" in text)
    assert [(r["kind"], r["line"]) for r in reports] == [("not_emulated", expected)]
    assert "wgmma.fence.sync.aligned" in reports[0]["message"]


def test_a_launch_from_device_code_is_not_emulated_and_has_its_line() -> None:
    error, reports = checked("nested")
    assert error == "CUDA error: operation not supported"
    assert [(r["kind"], r["line"], r["message"]) for r in reports] == [
        ("not_emulated", line("nested"), "kernel launch from device code")
    ]


def test_launches_beyond_the_limits_fail_as_on_a_gpu() -> None:
    errors, reports = checked("launch_limits")
    assert errors == [
        None,
        "CUDA error: invalid configuration argument",
        "CUDA error: invalid configuration argument",
        "CUDA error: invalid argument",
        "CUDA error: too many resources requested for launch",
    ]
    assert reports == [], "a program that asks for the error handles it"


def test_a_refused_launch_nobody_asked_about_is_reported() -> None:
    values, reports = checked("launch_unnoticed")
    assert values == [0.0] * 4
    assert [r["kind"] for r in reports] == ["launch_error"]
    assert "2048" in reports[0]["message"]


def test_a_cpu_tensor_in_a_kernel_is_an_illegal_address() -> None:
    error, reports = checked("host_tensor")
    assert error == "CUDA error: an illegal memory access was encountered"
    assert [(r["kind"], r["array"]) for r in reports] == [("memory_error", "x")]
    assert "cpu" in reports[0]["message"]


def test_host_code_that_reads_or_writes_what_is_the_devices_is_reported() -> None:
    _, reports = checked("host_access")
    assert [(r["kind"], r["line"], r["message"].split(",")[0].split(":")[0]) for r in reports] == [
        ("memory_error", line("host access"), "host code reads device memory"),
        ("memory_error", line("host access"), "host code writes device memory"),
        ("memory_error", line("host variable"), "host code writes a device variable"),
    ]
    assert reports[0]["count"] == 3


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_host_code_reaches_managed_and_pinned_memory_and_its_own(mode: str) -> None:
    assert results(mode, "hosts_own") == [1.0, 1.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_objects_on_the_devices_heap_come_and_go(mode: str) -> None:
    assert results(mode, "heap_objects") == [32.0, 36.0, 5.0]


def test_memory_that_is_not_freed_is_a_leak() -> None:
    report, _ = checked("leaking")
    kept = next(number for number, text in enumerate(SOURCE, 1) if "cudaMalloc(&kept" in text)
    assert (report["kind"], report["count"], report["bytes"], report["line"]) == ("leak", 1, 1024, kept)
    assert "1024 bytes" in report["message"]


@pytest.mark.parametrize("name", CLEAN)
def test_right_kernels_are_silent(name: str) -> None:
    assert checked(name)[1] == []


def results(mode: str, name: str) -> Any:
    return checked(name)[0] if mode == "checked" else run((*UNCHECKED, "--unchecked"))[name]["values"]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_kernels_compute_what_they_say(mode: str) -> None:
    assert results(mode, "atomics") == [[250] * 4, [500.0], [999]]
    doubled = [[2.0 * i for i in range(8)], [i + 1.0 for i in range(8)]]
    assert results(mode, "overloads") == [doubled] * 3
    assert results(mode, "symbols") == [4.5, 3.5, 2.5, 1.5]
    assert results(mode, "early_exit") == [32.0, 32.0, 6.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_events_and_the_device_in_torchs_cpp_api(mode: str) -> None:
    assert results(mode, "events") == [1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_streams_of_others_guards_and_the_allocator_in_torchs_cpp_api(mode: str) -> None:
    assert results(mode, "streams") == [0.0, 0.5, 2.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_pinned_memory_is_made_in_cpp_and_used_by_kernels(mode: str) -> None:
    assert results(mode, "pinned") == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_copied_and_loaded_tensors_are_used_by_kernels(mode: str) -> None:
    assert results(mode, "copies") == [[0.0, 2.0, 4.0]] * 3


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_atomics_of_128_bits(mode: str) -> None:
    assert results(mode, "wide") == [500.0, 1500.0, 7.0, 8.0, 9.0]


def test_an_atomic_of_128_bits_races_with_a_plain_write() -> None:
    _, reports = checked("wide_race")
    assert {(r["kind"], r["array"]) for r in reports} == {("data_race", "mine")}
    assert {r["line"] for r in reports} <= {line("wide write"), line("wide swap")}


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_atomics_and_warps_by_torchs_names(mode: str) -> None:
    maximum = ["nan", "-31.0", "8.0"]
    assert results(mode, "torch_device") == ["33.0", *maximum, "96.0", "0.0", "32.0", "3.0", "0.0"]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_own_memory_becomes_a_tensor_of_its_device(mode: str) -> None:
    """That of the host is refused where all that the device has is known."""
    assert results(mode, "blobs") == [0.0, 6.0, 12.0, 1.0 if mode == "checked" else 0.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_a_launch_may_be_returned_and_take_a_list_for_a_struct(mode: str) -> None:
    assert results(mode, "launch_forms") == [0.0, 0.0, 3.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_mathematical_functions_by_torchs_names(mode: str) -> None:
    assert results(mode, "compat") == [0.0, 0.5, 2.0]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_warps_and_atomics_by_torchs_names(mode: str) -> None:
    assert results(mode, "torch_warp") == [[496.0, 30.0, 0.0, 8.0]] * 2


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_reductions_and_scans_of_cub(mode: str) -> None:
    sums, ranks, total = results(mode, "cub_calls")
    assert sums == [sum(range(64)), 63.0, sum(range(64, 100)), 99.0]
    assert ranks[:64] == [max(0, i - 51) for i in range(64)]
    assert ranks[64:] == [min(i, 36) for i in range(64)]
    assert total == [sum(range(100))]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_blocks_that_wait_for_each_other_make_progress(mode: str) -> None:
    assert results(mode, "grid_sum") == [4096.0]
    assert results(mode, "spinning") == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_the_second_schedule_runs_blocks_and_threads_backwards(mode: str) -> None:
    assert results(mode, "order") == [[0, 2, 4, 6], [6, 4, 2, 0]]


def test_wrong_arguments_are_a_type_error_that_names_the_function() -> None:
    texts, _ = checked("wrong_arguments")
    assert len(texts) == 3
    assert all(text.startswith("early_exit(): incompatible function arguments") for text in texts)


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_cuda_tensors_are_told_from_cpu_tensors(mode: str) -> None:
    found = results(mode, "devices")
    assert found["devices"] == ["cuda:0"] * 6 + ["cpu", "cuda:0"]
    assert found["made"] == ["cuda:0", "cpu", "cuda:0"]
    assert found["layers"] == ["cuda:0"] * 4
    assert found["is_cuda"] == [True, False]
    assert found["host_unchanged"], ".cuda() is a copy"
    assert "two devices, cuda:0 and cpu" in found["mixed"]
    assert found["numpy"] == "TypeError"
    assert found["marked"] == ["cuda", "cpu"]
    assert found["shares"], "mark_cuda shares memory"


@pytest.mark.parametrize("mode", ["checked", "unchecked"])
def test_torch_computes_the_same_on_both_devices(mode: str) -> None:
    found = results(mode, "devices")
    assert found["product"]
    assert found["lstm"]
    assert found["autocast"] == "torch.float16"
    assert found["available"] == [True, 1, 32]
    assert found["resized"] == [3, 2]
    assert found["elapsed"]

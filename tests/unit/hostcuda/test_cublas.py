"""cuBLAS on the host device: its values against float64, its statuses, what stray calls are reported as, and solutions
that use it through a whole evaluation.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from harness.api import Harness
from harness.core.status import Status
from tests.support.paths import SUPPORT, TESTS

HERE = TESTS
SOURCE = (SUPPORT / "hostcuda_cublas.cu").read_text().splitlines()
TIMEOUT_S = 900
"""The first run on a machine prepares headers."""

SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 7, 15

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the host device needs g++"),
    pytest.mark.xdist_group("test_hostcuda_cublas"),
]
"""One worker runs all of it: every test asks for the same run."""


@cache
def found() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "hostcuda_cublas.py")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=HERE.parent,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def line(mark: str) -> int:
    return next(number for number, text in enumerate(SOURCE, 1) if text.endswith(f"// MARK {mark}"))


BOUNDS = {
    ("torch.float32", 68): 2e-6,
    ("torch.float64", 70): 2e-15,
    ("torch.float16", 68): 1e-3,
    ("torch.bfloat16", 68): 1e-2,
    ("torch.float16", 64): 3e-3,
    ("torch.int32", 72): 0.0,
}
"""By type of the result and compute type: largest error over the spread of the truth. float16 sums err repeatedly."""


def test_products_are_right_over_transposes_types_batches_and_scalars() -> None:
    rows = found()["products"]
    assert len(rows) == 3 * 4 * 9 * 5 + 3 * 6 * 3 * 4
    wrong = [
        row for row in rows if row["status"] != SUCCESS or not row["error"] <= BOUNDS[row["case"][4], row["case"][5]]
    ]
    assert wrong == []
    assert all(row["gaps"] for row in rows), "what lies between the columns of C is nobody's to change"


def test_the_precision_is_that_of_the_compute_type_the_math_mode_and_the_old_algorithms() -> None:
    errors = found()["precision"]
    assert errors["plain"] == errors["pedantic"] < 1e-5
    assert all(2e-4 < errors[name] < 4e-3 for name in ("tf32", "tf32 mode", "half", "old algorithm"))
    assert 4e-3 < errors["bfloat"] < 3e-2


def test_routines_of_vectors_and_matrices_are_right() -> None:
    errors = found()["vectors"]
    assert len(errors) == 2 * 31
    assert {name: e for name, e in errors.items() if e > (1e-5 if name[0] == "S" else 1e-13)} == {}


def test_sums_and_positions() -> None:
    # x = 3, 2, -4 by steps of two; y = 2, -1, 3 backwards
    dot, norm, total, largest, smallest = found()["sums"]
    assert (dot, total, largest, smallest) == (3 * 2 - 2 * 1 - 4 * 3, 9, 3, 2)
    assert norm == pytest.approx(29**0.5)
    assert found()["no sums"] == [0, 0, 0, 0, 0]


def test_scalars_and_results_may_lie_in_device_memory() -> None:
    status, values, norm = found()["device scalars"]
    assert (status, values, norm) == (SUCCESS, [2 * 4 - 1] * 16, 28)


def test_bad_arguments_get_the_statuses_of_cublas() -> None:
    held = found()["statuses"]
    good = {"good", "nothing", "no depth", "lda transposed good", "no batch"}
    unsupported = {"half as double", "float by half", "compute"}
    assert {name for name, status in held.items() if status == SUCCESS} == good
    assert {name for name, status in held.items() if status == NOT_SUPPORTED} == unsupported
    assert {status for name, status in held.items() if name not in good | unsupported} == {INVALID_VALUE}


def test_handles_are_made_used_and_gone() -> None:
    no_place, made, stream, math, pointers, gone, again, none, mode, version = found()["handles"]
    assert (no_place, made, stream, math, pointers) == (INVALID_VALUE, SUCCESS, SUCCESS, INVALID_VALUE, INVALID_VALUE)
    assert (gone, again, none, mode, version) == (SUCCESS, NOT_INITIALIZED, NOT_INITIALIZED, 0, 1)
    assert found()["text"] == "CUBLAS_STATUS_INVALID_VALUE: an invalid value was used as an argument"


def test_torchs_handle_follows_torchs_switch_and_its_check_raises() -> None:
    assert found()["math modes"] == [0, 3]
    assert found()["check"].startswith("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSetStream(")


def test_right_calls_are_silent_and_counted_by_name() -> None:
    assert found()["reports"] == []
    assert {"cublasSgemm", "cublasGemmEx", "cublasHgemmStridedBatched", "cublasIsamax"} <= set(found()["launches"])


STRAY = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("case", "kind", "array", "subscript", "said", "failure"),
    [
        ("m", "memory_error", "A", "[1, 7]", "out of bounds", STRAY),
        ("n", "memory_error", "B", "[0, 8]", "out of bounds", STRAY),
        ("k", "memory_error", "A", "[0, 8]", "out of bounds", STRAY),
        ("batch", "memory_error", "C", "[0, 0]", "out of bounds (product 2 of the batch)", STRAY),
        ("vector", "memory_error", "x", "[12]", "out of bounds", STRAY),
        ("unwritten", "uninitialised_read", "C", "[0, 0]", "this memory was never written", None),
        ("in place", "data_race", "C", "[0, 0]", "overlaps A", None),
        ("one result", "data_race", "C", "[0, 0]", "two results of one call overlap", None),
        ("host scalar", "memory_error", "alpha", "[0]", "address outside device memory", STRAY),
        ("device scalar", "memory_error", "alpha", "[0]", "the pointer mode is CUBLAS_POINTER_MODE_HOST", None),
        ("on the host", "memory_error", "x", "[0]", "the tensor is on the cpu", STRAY),
        ("pointers on the host", "memory_error", "Aarray", "[0]", "address outside device memory", STRAY),
    ],
)
def test_stray_calls_are_reported(
    case: str, kind: str, array: str, subscript: str, said: str, failure: str | None
) -> None:
    held = found()["broken"][case]
    [report] = held["reports"]
    assert (report["kind"], report["array"], report["subscript"]) == (kind, array, subscript)
    assert said in report["message"]
    assert report["kernel"].startswith("cublasS")
    assert held["failure"] == failure


def test_complex_products_are_not_emulated_and_said_so() -> None:
    [report] = found()["broken"]["complex"]["reports"]
    assert (report["kind"], report["message"]) == ("not_emulated", "cuBLAS (products of complex matrices)")


@pytest.mark.parametrize(("case", "mark"), [("m", "past"), ("unwritten", "unwritten"), ("in place", "in place")])
def test_a_report_names_the_line_of_the_call(case: str, mark: str) -> None:
    assert found()["broken"][case]["reports"][0]["line"] == line(mark)


SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {  // a is k x m in rows, so m x k in columns
    const int m = a.size(1), k = a.size(0), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    const float alpha = 1.0f, beta = 0.0f;
    cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
    const cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, ROWS, k, &alpha,
                                              b.data_ptr<float>(), n, a.data_ptr<float>(), m, &beta,
                                              c.data_ptr<float>(), n);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, cublasGetStatusString(status));
    return c;
}
"""
ext = load_inline("product", "torch::Tensor product(torch::Tensor a, torch::Tensor b);", CUDA, functions=["product"],
                  extra_ldflags=["-lcublas"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ext.product(A.contiguous(), B.contiguous())
'''


COMPLEX = """
    cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, a.data_ptr(), CUDA_C_32F, 1,
                 b.data_ptr(), CUDA_C_32F, 1, &beta, c.data_ptr(), CUDA_C_32F, 1, CUBLAS_COMPUTE_32F,
                 CUBLAS_GEMM_DEFAULT);
"""


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness(device="host") as h:
        yield h


def test_a_solution_that_hands_its_product_to_cublas_passes_and_is_labelled(harness: Harness) -> None:
    result = harness.evaluate("level1/16", SOLUTION.replace("ROWS", "m"))
    assert result.status is Status.passed, result.reason
    assert {"no_custom_kernel", "library_only"} <= set(result.record.labels)
    [row] = result.record.evidence["census"]["kernels"]
    assert (row["name"], row["library"]) == ("cublasSgemm", "cublas")


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (("ROWS, k,", "m, k + 1,"), Status.memory_error, "out of bounds"),
        (("ROWS", "m - 1"), Status.non_finite, "the last row"),
        (("b.data_ptr<float>(), n,", "b.data_ptr<float>(), n - 1,"), Status.runtime_error, "invalid value"),
        (("cublasSgemm(", "cublasSsymm("), Status.not_emulated, "cuBLAS (cublasSsymm)"),
        (("cublasSgemm(", "cublasSgemmm("), Status.not_emulated, "cuBLAS (cublasSgemmm)"),
        (("    return c;", COMPLEX + "    return c;"), Status.not_emulated, "products of complex matrices"),
        (
            ("    return c;", "    cublasSgemm_v2(handle);\n    return c;"),
            Status.not_emulated,
            "cuBLAS (cublasSgemm_v2)",
        ),
    ],
)
def test_a_solution_that_calls_it_wrongly_fails(
    harness: Harness, change: tuple[str, str], status: Status, said: str
) -> None:
    source = SOLUTION.replace(*change).replace("ROWS", "m")
    if "cublasSgemm_v2" in source:
        source = source.replace("#include <cublas", 'extern "C" int cublasSgemm_v2(void*);\n#include <cublas')
    result = harness.evaluate("level1/16", source)
    assert result.status is status, result.reason
    assert said in result.reason

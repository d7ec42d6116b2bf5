"""What a unit of `load_inline` sees: separate units, declarations in `cpp_sources`, `no_implicit_headers`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.hostcuda.translate import build
from harness.hostcuda.translate.declared import has_torch, undeclared, undefined, unexported
from harness.toolchain.cuda_source.main_declarations import declarations
from tests.unit.hostcuda.test_build import KERNEL, LAUNCH, Spec, run

CUDA = f"#include <torch/extension.h>\n{KERNEL}torch::Tensor f(torch::Tensor x) {{ {LAUNCH} return x; }}\n"
STREAM = "at::cuda::getCurrentCUDAStream()"
CPP = "torch::Tensor f(torch::Tensor x);"


def job(functions: Sequence[str] | None = ("f",), **options: Any) -> dict[str, Any]:
    names = None if functions is None else {name: name for name in functions}
    return {"name": "m", "functions": names, "no_implicit_headers": False, "own_headers": [], **options}


@pytest.mark.parametrize(
    ("cpp", "plain"),
    [
        ("torch::Tensor f(torch::Tensor x, const at::Tensor& y, double e = 1e-5, int64_t n = -1);", True),
        ("#include <torch/extension.h>\n#include <vector>\nstd::vector<torch::Tensor> f(torch::Tensor x);", True),
        ("// of cudaStream_t { } \nvoid f(void);", True),
        ("", True),
        ("void launch(const float* x, unsigned int n);", True),
        ("void f(torch::Tensor x, cudaStream_t stream);", False),
        ("Tensor f(Tensor x);", False),
        ("torch::Tensor f(torch::Tensor x) { return x; }", False),
        ("#include <c10/cuda/CUDAGuard.h>\nvoid f();", False),
        ("#define N 4\nvoid f();", False),
        ("static void f();", False),
        ("template <typename T> void f(T x);", False),
        ("using namespace torch;", False),
    ],
)
def test_a_main_that_only_declares_functions_is_known(cpp: str, plain: bool) -> None:
    assert (declarations(cpp) is not None) is plain
    assert declarations(cpp) is None or len(declarations(cpp).splitlines()) == len(cpp.splitlines())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cpp", "cuda", "options", "error"),
    [
        (CPP, CUDA, {}, ""),
        ("", CUDA, {}, "main.cpp:1:1: error: ‘f’ was not declared in this scope"),
        ("// torch::Tensor f(torch::Tensor x);", CUDA, {}, "‘f’ was not declared"),
        ("torch::Tensor ff(torch::Tensor x);", CUDA, {}, "‘f’ was not declared"),
        (CPP, CUDA, {"no_implicit_headers": True}, "main.cpp:1:1: error: expected constructor"),
        ("#include <torch/extension.h>\n" + CPP, CUDA, {"no_implicit_headers": True}, ""),
        (CPP, CUDA + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", {}, "redefinition of ‘PyInit_m’"),
        ("", CUDA + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", {"functions": None}, ""),
        (
            "",
            "#include <torch/types.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}",
            {"functions": None},
            "cuda.cu:2:1: error: ‘PYBIND11_MODULE’ was not declared",
        ),
        ("", "// PYBIND11_MODULE", {"functions": None}, ""),
        (
            "",
            "#include <vector>\n__global__ void k(__half* x) {}",
            {"functions": None, "no_implicit_headers": True},
            "cuda.cu:2:1: error: ‘__half’ was not declared",
        ),
        (
            "",
            "#include <cuda_fp16.h>\n__global__ void k(__half* x) {}",
            {"functions": None, "no_implicit_headers": True},
            "",
        ),
        ("", "__global__ void k(__half* x) {}", {"functions": None}, ""),
        (CPP, '#include "mine.h"\nvoid g(py::object x) {}', {}, ""),
        (CPP, "void g(py::object x) {}", {}, "cuda.cu:1:8: error: ‘py’ was not declared"),
    ],
)
def test_names_that_a_unit_does_not_see_are_errors(cpp: str, cuda: str, options: dict[str, Any], error: str) -> None:
    log = undeclared({"main.cpp": cpp, "cuda.cu": cuda}, job() | options)
    said = log.replace("cuda.cu:1:1:", "cuda.cu:1:8:")
    assert (error in said) if error else (log == "")


def test_torch_is_there_by_itself_or_by_an_umbrella_header() -> None:
    assert has_torch("", job())
    assert not has_torch("#include <c10/cuda/CUDAStream.h>\n", job(no_implicit_headers=True))
    assert has_torch("#include <torch/types.h>\n", job(no_implicit_headers=True))


@pytest.mark.parametrize(
    ("definition", "seen"),
    [
        ("int f(int x) { return x; }", True),
        ("int f(int x); int g() { return f(1); }", True),
        ("#include <string>\nstd::string f(int x) { return std::to_string(x); }", True),
        ("static int f(int x) { return x; } int (*p)(int) = &f;", False),
        ("inline int f(int x) { return x; } int (*p)(int) = &f;", False),
        ('extern "C" int f(int x) { return x; }', False),
        ("template <class T> int f(T x) { return x; } int (*p)(int) = &f;", False),
    ],
)
def test_a_function_that_other_units_do_not_see_is_undefined(tmp_path: Path, definition: str, seen: bool) -> None:
    (tmp_path / "unit.cpp").write_text(definition + "\n")
    subprocess.run(["g++", "-c", "-o", "unit.o", "unit.cpp"], cwd=tmp_path, check=True)
    error = unexported(tmp_path / "unit.o", ["f"])
    assert error == "" if seen else error.startswith("undefined reference to `f': ")


def test_only_the_first_error_says_that_a_definition_is_missing() -> None:
    missing = "bound_functions:2:40: error: invalid 'static_cast' from type '<unresolved overloaded function type>'\n"
    assert "`g'" in undefined(missing, ["f", "g"])
    assert undefined("cuda.cu:3:1: error: expected ';'\n" + missing, ["f", "g"]) == ""


@pytest.mark.parametrize(
    ("cpp", "cuda", "error"),
    [
        ("torch::Tensor f(torch::Tensor x, double s);", CUDA, "undefined reference to `f'"),
        (CPP, CUDA.replace("torch::Tensor f", "static torch::Tensor f"), "undefined reference to `f'"),
        (CPP, CUDA.replace("return x;", f"(void){STREAM}; return x;"), "getCurrentCUDAStream"),
        (CPP, CUDA.replace("return x;", "return g(x);") + "torch::Tensor g(torch::Tensor x) { return x; }", "‘g’ was"),
        (CPP + "\ntorch::Tensor g(torch::Tensor x);", CUDA.replace("return x;", "return g(x);"), "‘g’ was"),
        (CPP, CUDA + "#define x 3\n", ""),
        (CPP, "#include <ATen/cuda/CUDAContext.h>\n" + CUDA.replace("1, 4>>>", f"1, 4, 0, {STREAM}>>>"), ""),
    ],
    ids=[
        "other parameters",
        "static",
        "no header of streams",
        "called before its definition",
        "declared in main only",
        "a macro",
        "a stream",
    ],
)
def test_a_joined_unit_has_the_errors_of_two(tmp_path: Path, cpp: str, cuda: str, error: str) -> None:
    spec = Spec(name="m", cuda_sources=(cuda,), cpp_sources=(cpp,), functions=("f",))
    code, log = run(build.prepare(spec, tmp_path, checked=True, headers=build.prepare_headers()), tmp_path)
    assert (code != 0, error in log) == (error != "", True), log[-3000:]
    assert not (tmp_path / "main_unit.cpp").exists(), "torch's full headers are not read for it"

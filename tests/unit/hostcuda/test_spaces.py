"""Calls between host and device code that nvcc refuses: which are found, and that nothing else is; and that sources
which compile for a GPU have nothing of what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate.refusals import refusals
from harness.hostcuda.translate.spaces import spaces, survey
from tests.support.paths import ROOT

REFUSED = ("test_spaces.py", "test_refusals.py", "test_functors.py", "test_build.py")
"""Tests with sources that nvcc refuses on purpose."""

HELPER = "inline float act(float v) { return v > 0 ? v : 0; }\n"
KERNEL = "__global__ void k(float* x) {\n  x[0] = act(x[1]);\n}\n"


def found(source: str) -> list[tuple[int, str]]:
    return [(call.line, call.message) for call in spaces(survey(source)).wrong_calls]


def refused(of: str, by: str, caller: str = "k") -> str:
    return f'calling a __{of}__ function("act") from a __{by}__ function("{caller}") is not allowed'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HELPER + KERNEL, (3, refused("host", "global"))),
        ("float act(float);\n" + KERNEL + HELPER, (3, refused("host", "global"))),
        ("__host__ float act(float v) { return v; }\n" + KERNEL, (3, refused("host", "global"))),
        ("template <class T> T act(T v) { return v; }\n" + KERNEL, (3, refused("host", "global"))),
        ("namespace mine {\n" + HELPER + KERNEL + "}\n", (4, refused("host", "global"))),
        (
            HELPER
            + "static __device__ float d(float v) { return act(v); }\n__global__ void k(float* x) { *x = d(1); }",
            (2, refused("host", "device", "d")),
        ),
        (
            HELPER
            + "template <class T> __global__ void k(T* x) { x[0] = act(x[0]); }\nvoid go(float* x) { k<<<1, 1>>>(x); }",
            (2, refused("host", "global")),
        ),
        (
            "__device__ float act(float v) { return v; }\nfloat f() { return act(1); }",
            (2, refused("device", "host", "f")),
        ),
    ],
)
def test_what_nvcc_refuses_is_found_with_its_line(source: str, expected: tuple[int, str]) -> None:
    assert found(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "__device__ " + HELPER + KERNEL,
        "__host__ __device__ " + HELPER + KERNEL,
        "constexpr " + HELPER + KERNEL,
        "#define dev __device__ __forceinline__\ndev " + HELPER + KERNEL,
        "C10_HOST_DEVICE " + HELPER + KERNEL,
        HELPER.replace("float act", "float C10_DEVICE act") + KERNEL,
        "__attribute__((device)) " + HELPER + KERNEL,
        "__device__ int act(int v) { return v; }\n" + HELPER + KERNEL,
        "__device__ float act(float);\n" + HELPER + KERNEL,
        "#ifdef __CUDACC__\n__device__ float act(float v) { return v; }\n#else\n" + HELPER + "#endif\n" + KERNEL,
        "#if 0\n" + HELPER + "#endif\n" + KERNEL,
        "#if 0\n" + KERNEL + "#endif\n" + HELPER,
        "#define act(v) fabsf(v)\n" + HELPER + KERNEL,
        HELPER + KERNEL.replace("float* x", "float* x, F act"),
        HELPER + KERNEL.replace("x[0]", "auto act = [](float v) { return v; };\n  x[0]"),
        HELPER + "struct Act { float operator()(float v) const; };\n" + KERNEL.replace("x[0]", "Act act;\n  x[0]"),
        HELPER + "template <class act>\n" + KERNEL,
        HELPER + KERNEL.replace("act(", "x.act("),
        HELPER + KERNEL.replace("act(", "p->act("),
        HELPER + KERNEL.replace("act(", "other::act("),
        HELPER + KERNEL.replace("x[0] = act(x[1])", "x[0] = sizeof(act(x[1]))"),
        HELPER + KERNEL.replace("x[0] = act(x[1])", "decltype(act(x[1])) v = x[0]"),
        HELPER + KERNEL.replace("act(x[1])", "CHECKED(act(x[1]))"),
        HELPER + KERNEL.replace("  x[0]", "#ifndef __CUDA_ARCH__\n  x[0]").replace(";\n", ";\n#endif\n"),
        HELPER + "__host__ __device__ float hd(float v) { return act(v); }\n",
        HELPER + "static __device__ float unused(float v) { return act(v); }\n",
        HELPER + "template <class T> __global__ void k(T* x) { x[0] = act(x[0]); }\n",
        HELPER
        + "template <class T> __global__ void k(T* x) { if constexpr (false) x[0] = act(x[0]); }\n"
        + "void go(float* x) { k<<<1, 1>>>(x); }\n",
        "#pragma nv_exec_check_disable\n" + HELPER + KERNEL,
        HELPER + KERNEL.replace("x[0]", "x[0] = = ;"),
        "struct S {\n" + HELPER + "  __device__ float f() { return act(1); }\n};\n" + KERNEL,
        "struct S { static __device__ float act(float v); };\n" + HELPER + KERNEL,
        "using other::act;\n" + HELPER + KERNEL,
        "template <> __device__ float act<float>(float v) { return v; }\n" + HELPER + KERNEL,
        "__device__ float act(float v) { return v; }\nvoid f() { run([=] __device__(float v) { return act(v); }); }",
        "__device__ float act(float v) { return v; }\n#define dev __device__\ndev float g(float v) { return act(v); }",
        "__device__ float act(float v) { return v; }\ntemplate <class T> T f(T v) { return act(v); }",
        "constexpr __device__ float act(float v) { return v; }\nfloat f() { return act(1); }",
        "__global__ void act(float* x) {}\nvoid f(float* x) { act<<<1, 1>>>(x); }",
        "__device__ float act(float v) { return v; }\nvoid f() { auto p = &act; }",
    ],
)
def test_what_nvcc_takes_or_may_take_is_left_alone(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    "folder", ["solutions", "tests/exploits/honest", "tests/hostcuda", "tests/unit", "tests/support"]
)
def test_sources_that_compile_for_a_gpu_have_nothing_of_it(folder: str) -> None:
    texts: dict[Path, list[str]] = {}
    for path in (ROOT / folder).rglob("*"):
        if path.suffix == ".cu":
            texts[path] = [path.read_text()]
        elif path.suffix == ".py" and path.name not in REFUSED:
            nodes = ast.walk(ast.parse(path.read_text()))
            texts[path] = [
                node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
    held = [(path, text) for path in texts for text in texts[path] if "__global__" in text or "__device__" in text]
    assert held
    read = [(path, survey(text)) for path, text in held]
    assert [(path, wrong) for path, each in read if (wrong := (*spaces(each).wrong_calls, *refusals(each)))] == []


def test_where_device_code_lies() -> None:
    source = (
        "void f() {\n}\n__global__ void k() {\n}\n__device__ int d() {\n  return 1;\n}\n"
        "template <class T>\n__device__ T unused() {\n}\n#define dev __device__\ndev int e() {\n}\n"
    )
    assert spaces(survey(source)).device_lines == ((3, 4), (5, 7))


@given(
    st.lists(st.sampled_from(["__global__ ", "void k(", "int n", ") {", "}", "act(", ")", ";", "#if 1\n", "\n", "<"]))
)
def test_no_text_is_too_odd(pieces: list[str]) -> None:
    spaces(survey("".join(pieces)))

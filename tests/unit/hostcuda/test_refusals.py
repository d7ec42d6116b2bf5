"""What nvcc refuses of device code beside calls: what is found, and that nothing else is. That sources which compile
for a GPU have nothing of it is seen in test_hostcuda_spaces.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate.refusals import refusals
from harness.hostcuda.translate.spaces import survey

KERNEL = "__global__ void k(float* x, int n) {{\n  {}\n}}\n"
EXCEPTIONS = "device code does not support exception handling"
STORE = "expression must be a modifiable lvalue"
LAUNCH = "a __global__ function call must be configured"


def found(source: str) -> list[tuple[int, str]]:
    return [(refusal.line, refusal.message) for refusal in refusals(survey(source))]


def kernel(statement: str, before: str = "") -> str:
    return before + KERNEL.format(statement)


def undefined(name: str) -> str:
    return f'identifier "{name}" is undefined in device code'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (kernel("if (n < 0) throw 1;"), (2, EXCEPTIONS)),
        (kernel("try { x[0] = 1; } catch (...) {}"), (2, EXCEPTIONS)),
        (kernel("x[0] = d();", "static __device__ float d() { throw 1; }\n"), (1, EXCEPTIONS)),
        (kernel("std::cout << n;"), (2, undefined("std::cout"))),
        (kernel("x[0] = low;", "static float low = 0;\n"), (3, undefined("low"))),
        (
            kernel("x[0] = table[n];", "namespace mine { float table[4]; }\nusing namespace mine;\n"),
            (4, undefined("table")),
        ),
        (kernel("size = n;", "unsigned int size;\n"), (3, undefined("size"))),
        (kernel("c = 1;", "__constant__ float c;\n"), (3, STORE)),
        ("__global__ int k(float* x) { return 0; }\n", (1, "a __global__ function must have a void return type")),
        (kernel("x[0] = 1;") + "void f(float* x) { k(x, 1); }\n", (4, LAUNCH)),
        ("template <class T> __global__ void k(T* x) {}\nvoid f(float* x) {\n  k<float>(x);\n}\n", (3, LAUNCH)),
    ],
)
def test_what_nvcc_refuses_is_found_with_its_line(source: str, expected: tuple[int, str]) -> None:
    assert found(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        kernel("c[n] += 1;", "__constant__ float c[4];\n"),
        kernel("++c[0][1];", "static __constant__ int c[2][2] = {};\n"),
        "void f(float* x) { if (x == nullptr) throw 1; }\n" + kernel("x[0] = 1;"),
        "static __device__ float unused() { throw 1; }\n" + kernel("x[0] = 1;"),
        kernel("if constexpr (false) throw 1;"),
        kernel("CHECKED(throw 1);"),
        kernel("\n#ifndef __CUDA_ARCH__\n  throw 1;\n#endif\n"),
        kernel("x[0] = low;", "static const float low = 0;\n"),
        kernel("x[0] = low;", "constexpr float low = 0;\n"),
        kernel("x[0] = low;", "__device__ float low;\n"),
        kernel("x[0] = low;", "__managed__ float low;\n"),
        kernel("x[0] = low;", "const static int low = 1;\n"),
        kernel("x[0] = low;", "#ifdef A\nfloat low;\n#else\n__device__ float low;\n#endif\n"),
        kernel("x[0] = low;", "#define low 1\nfloat low;\n"),
        kernel("x[0] = low;", "DEVICE float low;\n"),
        kernel("float low = 1; x[0] = low;", "float low;\n"),
        kernel("x[0] = p.low;", "float low;\nstruct P { float low; };\n"),
        kernel("x[0] = other::low;", "float low;\n"),
        kernel("x[0] = sizeof(low);", "float low;\n"),
        kernel("x[0] = low(1);", "float low(int);\n"),
        kernel("x[0] = low(1);", "auto low = [] __device__ (int v) { return v; };\n"),
        kernel("for (int low : {1, 2}) x[0] = low;", "float low;\n"),
        kernel("auto [low, high] = pair(n); x[0] = low;", "float low;\n"),
        kernel("c[0] = 1;", "__constant__ float* c;\n"),
        kernel("p[0][0] = 1;", "__constant__ float* p[2];\n"),
        kernel("x[0] = c[1];", "__constant__ float c[4];\n"),
        kernel("c.at = 1;", "__constant__ Own c;\n"),
        "void f() { c = 1; }\n__constant__ float c;\n" + kernel("x[0] = 1;"),
        kernel("x[0] = 1;") + "void f(float* x) { k<<<1, 1>>>(x, 1); auto p = &k; launch(k, x); p(x, 1); }\n",
        kernel("x[0] = 1;") + "struct S { void k(float*); void g(float* x) { k(x); } };\n",
        kernel("x[0] = 1;") + "void k(int);\nvoid f() { k(1); }\n",
        "TYPE __global__ k(float* x) {}\n",
        "template <class T> __global__ std::enable_if_t<true> k(T* x) {}\n",
    ],
)
def test_what_nvcc_takes_or_may_take_is_left_alone(source: str) -> None:
    assert found(source) == []


@given(
    st.lists(
        st.sampled_from(["__global__ ", "void k", "(", ")", "{", "}", "float a;", "a = 1;", "throw", "k(a);", "\n"])
    )
)
def test_no_text_is_too_odd(pieces: list[str]) -> None:
    found("".join(pieces))

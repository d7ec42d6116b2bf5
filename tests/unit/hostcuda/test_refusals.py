"""What nvcc refuses and g++ accepts: which of it is found, and that nothing else is.

What is expected of each source is what nvcc 13.0 says of it, with torch's own `--expt-relaxed-constexpr`. All sources
are one extension: each has a namespace, and names of its own.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate import build
from harness.hostcuda.translate.rewrite import rewrite
from tests.unit.hostcuda.test_build import Spec

HELPER = "inline float act(float v) { return v > 0 ? v : 0; }\n"
KERNEL = "__global__ void k(float* x) {\n  x[0] = act(x[1]);\n}\n"
F = "struct F { float operator()(float v) const { return v; } };\n"
G = "struct G { __device__ float operator()(float v) const { return v; } };\n"
T = "template <class T> struct F { T operator()(T v) const { return v; } };\n"
M = "struct F { float m(float v) const { return v; } static float s(float v) { return v; } };\n"
LAUNCHED = "template <class O> __global__ void k(float* x, O o) {\n  x[0] = o(x[0]);\n}\n"
APPLIED = "template <class O> __device__ float d(float v, O o) {\n  return o(v);\n}\n"
EXCEPTIONS = "device code does not support exception handling"
STORE = "expression must be a modifiable lvalue"
LAUNCH = "a __global__ function call must be configured"


def refused(callee: str = "F::operator()", of: str = "host", by: str = "global", caller: str = "k") -> str:
    return f'calling a __{of}__ function("{callee}") from a __{by}__ function("{caller}") is not allowed'


def undefined(name: str) -> str:
    return f'identifier "{name}" is undefined in device code'


def kernel(statement: str, before: str = "") -> str:
    return f"{before}__global__ void k(float* x, int n) {{\n  {statement}\n}}\n"


def go(body: str) -> str:
    return f"void go(float* x) {{ {body} }}\n"


REFUSED = [
    (HELPER + KERNEL, (3, refused("act"))),
    ("float act(float);\n" + KERNEL + HELPER.replace("inline ", ""), (3, refused("act"))),
    ("__host__ float act(float v) { return v; }\n" + KERNEL, (3, refused("act"))),
    ("template <class T> T act(T v) { return v; }\n" + KERNEL, (3, refused("act"))),
    (
        HELPER + "static __device__ float d(float v) { return act(v); }\n__global__ void k(float* x) { *x = d(1); }",
        (2, refused("act", by="device", caller="d")),
    ),
    (
        HELPER
        + "template <class T> __global__ void k(T* x) { x[0] = act(x[0]); }\nvoid go(float* x) { k<<<1, 1>>>(x); }",
        (2, refused("act")),
    ),
    ("#define HELP(name) float name(float v) { return v; }\nHELP(act)\n" + KERNEL, (4, refused("act"))),
    ("#define GET(v) act(v)\n" + HELPER + KERNEL.replace("act(", "GET("), (4, refused("act"))),
    (
        HELPER + KERNEL.replace("x[0]", "\n#ifdef __CUDA_ARCH__\n  x[0]").replace(");", ");\n#endif"),
        (5, refused("act")),
    ),
    (
        "__device__ float act(float v) { return v; }\nfloat f() { return act(1); }",
        (2, refused("act", "device", "host", "f")),
    ),
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
    (kernel("x[0] = 1;") + "void f(float* x) { k(x, 1); }\n", (4, LAUNCH)),
    ("template <class T> __global__ void k(T* x) {}\nvoid f(float* x) {\n  k<float>(x);\n}\n", (3, LAUNCH)),
    (kernel("int a[n]; x[0] = a[0];"), (2, "expression must have a constant value")),
    (F + kernel("F f; x[0] = f(x[0]);"), (3, refused())),
    (F + kernel("x[0] = F()(x[0]);"), (3, refused())),
    (F + kernel("const auto f = F{}; x[0] = f(x[0]);"), (3, refused())),
    (F + kernel("F f; x[0] = f.operator()(x[0]);"), (3, refused())),
    (F + "static " + kernel("x[0] = F()(x[0]);") + go("k<<<1, 1>>>(x, 1);"), (3, refused())),
    (M + kernel("F f; x[0] = f.m(x[0]);"), (3, refused("F::m"))),
    (M + kernel("x[0] = F::s(x[0]);"), (3, refused("F::s"))),
    (M + "__global__ void k(float* x, const F* p) {\n  x[0] = p->m(x[0]);\n}\n", (3, refused("F::m"))),
    ("struct F { float m(float) const; };\n" + kernel("x[0] = F().m(x[0]);"), (3, refused("F::m"))),
    (
        "struct F { template <class T> T operator()(T v) const { return v; } };\n" + kernel("x[0] = F()(x[0]);"),
        (3, refused()),
    ),
    (T + kernel("x[0] = F<float>()(x[0]);"), (3, refused())),
    (F + LAUNCHED + go("k<<<1, 1>>>(x, F());"), (3, refused())),
    (F + LAUNCHED + go("F f; k<F><<<1, 1>>>(x, f);"), (3, refused())),
    (F + G + LAUNCHED + go("k<<<1, 1>>>(x, G()); k<<<1, 1>>>(x, F());"), (4, refused())),
    (F + LAUNCHED + go("auto l = [&](auto o) { k<<<1, 1>>>(x, o); }; l(F());"), (3, refused())),
    (F + LAUNCHED + go('AT_DISPATCH_ALL_TYPES(at::kFloat, "k", [&] { k<<<1, 1>>>(x, F()); });'), (3, refused())),
    (
        F + LAUNCHED + "template <class O> void l(float* x, O o) { k<<<1, 1>>>(x, o); }\n" + go("l(x, F());"),
        (3, refused()),
    ),
    (F + APPLIED + kernel("x[0] = d(x[0], F());"), (3, refused(by="device", caller="d"))),
    (
        F + APPLIED + LAUNCHED.replace("o(x[0])", "d(x[0], o)") + go("k<<<1, 1>>>(x, F());"),
        (3, refused(by="device", caller="d")),
    ),
    (
        M + "template <class O> __global__ void k(float* x) {\n  x[0] = O::s(x[0]);\n}\n" + go("k<F><<<1, 1>>>(x);"),
        (3, refused("F::s")),
    ),
    ("struct F { float a; F(float v) : a(v) {} };\n" + kernel("F f(x[0]); x[0] = f.a;"), (3, refused("F::F"))),
    ("struct F { float a; ~F() {} };\n" + kernel("F f{x[0]}; x[0] = f.a;"), (4, refused("F::~F"))),
    (
        "struct F { float a; F operator+(F o) const { return o; } };\n" + kernel("F f{1}; x[0] = (f + f).a;"),
        (3, refused("F::operator+")),
    ),
    (F + "struct H : F {};\n" + kernel("x[0] = H()(x[0]);"), (4, refused())),
    (F + kernel("auto f = [](float v) { return F()(v); }; x[0] = f(x[0]);"), (3, refused(by="device"))),
    (kernel("struct F { float operator()(float v) const { return v; } };\n  x[0] = F()(x[0]);"), None),
    (
        F + "struct H { __device__ float m(float v) { return F()(v); } };\n" + kernel("x[0] = H().m(1);"),
        (2, refused(by="device", caller="m")),
    ),
]
"""Sources with the line and the message; without where it is not found."""

ACCEPTED = [
    "__device__ " + HELPER + KERNEL,
    "__host__ __device__ " + HELPER + KERNEL,
    "constexpr " + HELPER + KERNEL,
    "#define dev __device__ __forceinline__\ndev float act(float v) { return v; }\n" + KERNEL,
    "C10_HOST_DEVICE " + HELPER + KERNEL,
    HELPER.replace("float act", "float C10_DEVICE act") + KERNEL,
    "__device__ float act(float);\n" + HELPER + KERNEL,
    "__device__ float act(float v) { return v; }\nfloat act(int v) { return v; }\n" + KERNEL,
    "#ifdef __CUDACC__\n__device__ float act(float v) { return v; }\n#else\n" + HELPER + "#endif\n" + KERNEL,
    "#if 0\n" + KERNEL + "#endif\n" + HELPER,
    HELPER + "#define act(v) fabsf(v)\n" + KERNEL + "#undef act\n",
    HELPER + KERNEL.replace("x[0]", "auto act = [](float v) { return v; };\n  x[0]"),
    HELPER + KERNEL.replace("x[0] = act(x[1])", "x[0] = sizeof(act(x[1]))"),
    HELPER + KERNEL.replace("x[0] = act(x[1])", "decltype(act(x[1])) v = x[0]; x[1] = v"),
    HELPER + KERNEL.replace("  x[0]", "#ifndef __CUDA_ARCH__\n  x[0]").replace(");\n", ");\n#endif\n"),
    HELPER + "__host__ __device__ float hd(float v) { return act(v); }\n",
    HELPER + "static __device__ float unused(float v) { return act(v); }\n",
    HELPER + "template <class T> __global__ void k(T* x) { x[0] = act(x[0]); }\n",
    HELPER
    + "template <class T> __global__ void k(T* x) { if constexpr (false) x[0] = act(x[0]); }\n"
    + "void go(float* x) { k<<<1, 1>>>(x); }\n",
    "struct S {\n__device__ float act(float v) { return v; } __device__ float f() { return act(1); }\n};\n"
    + kernel("S s; x[0] = s.f();"),
    "__device__ float act(float v) { return v; }\n#define dev __device__\ndev float g(float v) { return act(v); }",
    "__device__ float act(float v) { return v; }\ntemplate <class T> T f(T v) { return act(v); }",
    "__global__ void act(float* x) {}\nvoid f(float* x) { act<<<1, 1>>>(x); }",
    "__device__ float act(float v) { return v; }\nvoid f() { auto p = &act; (void)p; }",
    kernel("c[n] += 1;", "__constant__ float c[4];\n"),
    "void f(float* x) { if (x == nullptr) throw 1; }\n" + kernel("x[0] = 1;"),
    "static __device__ float unused() { throw 1; }\n" + kernel("x[0] = 1;"),
    kernel("if constexpr (sizeof(n) == 1) throw 1;"),
    kernel("\n#ifndef __CUDA_ARCH__\n  throw 1;\n#endif\n"),
    kernel("x[0] = low;", "static const float low = 0;\n"),
    kernel("x[0] = low;", "constexpr float low = 0;\n"),
    kernel("x[0] = low;", "__device__ float low;\n"),
    kernel("x[0] = low;", "__managed__ float low;\n"),
    kernel("x[0] = low;", "#ifdef A\nfloat low;\n#else\n__device__ float low;\n#endif\n"),
    kernel("float low = 1; x[0] = low;", "float low;\n"),
    kernel("P p; x[0] = p.low;", "float low;\nstruct P { float low; };\n"),
    kernel("x[0] = sizeof(low);", "float low;\n"),
    kernel("for (int low : {1, 2}) x[0] = low;", "float low;\n"),
    kernel("c[0] = 1;", "__constant__ float* c;\n"),
    kernel("x[0] = c[1];", "__constant__ float c[4];\n"),
    kernel("x[0] = 1;") + "void f(float* x) { k<<<1, 1>>>(x, 1); auto p = &k; (void)p; }\n",
    kernel("x[0] = 1;") + "struct S { void k(float*); void g(float* x) { k(x); } };\n",
    "void f(int n) { int a[n]; a[0] = 1; }\n",
    "template <int N> __device__ float d() { int a[N]; return a[0] = 1; }\n" + kernel("x[0] = d<3>();"),
    G + kernel("x[0] = G()(x[0]);"),
    F.replace("float op", "__host__ __device__ float op") + kernel("x[0] = F()(x[0]);"),
    F.replace("float op", "constexpr float op") + kernel("x[0] = F()(x[0]);"),
    F.replace("float op", "[[nodiscard]] __device__ float op") + kernel("x[0] = F()(x[0]);"),
    F.replace("float op", "__forceinline__ __device__ float op") + kernel("x[0] = F()(x[0]);"),
    F.replace("float op", "/* __host__ */ __device__ // both\n float op") + kernel("x[0] = F()(x[0]);"),
    F + kernel("x[0] = sizeof(F()(x[0]));"),
    F + go("F()(1.0f);") + kernel("x[0] = 1;"),
    F + LAUNCHED,
    F + LAUNCHED + "template <class O> void go(float* x, O o) { k<<<1, 1>>>(x, F()); }\n",
    F + LAUNCHED.replace("x[0] = o", "if constexpr (sizeof(O) > 9) x[0] = o") + go("k<<<1, 1>>>(x, F());"),
    F + LAUNCHED.replace("o(x[0])", "sizeof(o)") + go("k<<<1, 1>>>(x, F());"),
    F + G + LAUNCHED + go("k<<<1, 1>>>(x, G());"),
    F + APPLIED.replace("__device__", "__host__ __device__") + kernel("x[0] = d(x[0], F());"),
    F + "__host__ __device__ float h(float v) { return F()(v); }\n" + kernel("x[0] = h(x[0]);"),
    F + G + kernel("F f; { G f; x[0] = f(x[0]); } (void)f;"),
    F + G + kernel("using F = G; F f; x[0] = f(x[0]);"),
    "template <class T> struct F { T operator()(T v) const; };\n"
    "template <> struct F<float> { __device__ float operator()(float v) const { return v; } };\n"
    + kernel("x[0] = F<float>()(x[0]);"),
    "struct F { float m(float) const; };\n__device__ float F::m(float v) const { return v; }\n"
    + kernel("x[0] = F().m(x[0]);"),
    G + "struct F { G op; float other(float v) { return v; } };\n" + kernel("F f; x[0] = f.op(x[0]);"),
    "struct F { float a = 1; F() = default; F& operator=(const F&) = default; };\n"
    + kernel("F f, g; f.operator=(g); x[0] = f.a;"),
    "#define MEMBERS __device__ float m(float v) { return v; }\nstruct F { MEMBERS };\n" + kernel("x[0] = F().m(1);"),
    kernel("auto f = [](float v) { return v; }; x[0] = f(x[0]);"),
    "struct F { virtual float m(float v) { return v; } };\n__global__ void k(float* x, F* f) { f->m(1); }\n",
    "void run(float v) {}\n" + go("k<<<1, 1>>>(x); run(1);").replace("k<<<1, 1>>>(x);", ""),
]

_NAMES = re.compile(
    r"\b(act|k|d|f|g|go|h|hd|l|m|s|op|low|table|size|c|p|r|dev|mine|unused|MEMBERS|HELP|GET|F|G|H|S|P)\b(?!\.h)"
)
_ERROR = re.compile(r"^cuda\.cu:(\d+):\d+: error: (.*)$", re.M)


def log_of(source: str, folder: Path) -> str:
    spec = Spec(name="m", cuda_sources=(source,))
    (command,) = build.prepare(spec, folder, checked=False, headers=build.prepare_headers())
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[tuple[int, str]]]:
    """Lines and messages, by the number of the source."""
    text, first = "#include <iostream>\n", []
    for number, source in enumerate([source for source, _ in REFUSED] + ACCEPTED):
        text += f"namespace case_{number} {{\n"
        first.append(text.count("\n"))
        text += _NAMES.sub(rf"\1_c{number}", source).rstrip("\n") + "\n}\n"
    log = log_of(text, tmp_path_factory.mktemp("refusals"))
    assert "not allowed" in log, log
    found: dict[int, list[tuple[int, str]]] = {number: [] for number in range(len(first))}
    for error in _ERROR.finditer(log):
        number = max(number for number, line in enumerate(first) if line < int(error[1]))
        found[number].append((int(error[1]) - first[number], re.sub(r"_c\d+\b", "", error[2])))
    return found


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_nvcc_refuses_is_found_with_its_line(number: int, errors: dict[int, list[tuple[int, str]]]) -> None:
    expected = REFUSED[number][1]
    assert errors[number] == ([expected] if expected is not None else [])


@pytest.mark.parametrize("number", range(len(ACCEPTED)))
def test_what_nvcc_takes_is_left_alone(number: int, errors: dict[int, list[tuple[int, str]]]) -> None:
    assert errors[len(REFUSED) + number] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "__global__ int k(float* x) { return 0; }\n",
            "1:1: error: a __global__ function must have a void return type",
        ),
        (
            "__global__ void a(float* x) { extern __shared__ float s[]; x[0] = s[0]; }\n"
            "__global__ void b(double* x) {\n  extern __shared__ double s[]; x[0] = s[0]; }\n",
            '3:19: error: declaration is incompatible with previous "s" (declared at line 1)',
        ),
    ],
)
def test_what_no_other_headers_can_help_is_refused_alone(source: str, expected: str, tmp_path: Path) -> None:
    assert f"cuda.cu:{expected}" in log_of(source, tmp_path)


PIECES = ["__global__ ", "void k(", "int n", ") {", "}", "act(", ")", ";", "struct F {", "throw 1;", "a", "\n", "<"]


@given(st.lists(st.sampled_from(PIECES)))
def test_no_text_is_too_odd(pieces: list[str]) -> None:
    rewrite("".join(pieces))

"""Member functions of the host that device code calls: which are found, and that nothing else is. What is expected of
each source here is what nvcc 13.0 says of it, with torch's own `--expt-relaxed-constexpr`; those named in `MISSED` it
refuses as well. That sources which compile for a GPU have nothing of it is seen in test_hostcuda_spaces.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate.refusals import refusals
from harness.hostcuda.translate.spaces import survey

F = "struct F { float operator()(float v) const { return v; } };\n"
G = "struct G { __device__ float operator()(float v) const { return v; } };\n"
T = "template <class T> struct F { T operator()(T v) const { return v; } };\n"
M = "struct F { float m(float v) const { return v; } static float s(float v) { return v; } };\n"
LAUNCHED = "template <class O> __global__ void k(float* x, O o) {\n  x[0] = o(x[0]);\n}\n"
APPLIED = "template <class O> __device__ float d(float v, O o) {\n  return o(v);\n}\n"


def kernel(body: str) -> str:
    return f"__global__ void k(float* x) {{\n  {body}\n}}\n"


def go(body: str) -> str:
    return f"void go(float* x) {{ {body} }}\n"


def found(source: str) -> list[tuple[int, str]]:
    return [(refusal.line, refusal.message) for refusal in refusals(survey(source))]


def refused(member: str = "operator()", by: str = "global", caller: str = "k") -> str:
    return f'calling a __host__ function("F::{member}") from a __{by}__ function("{caller}") is not allowed'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (F + kernel("F f; x[0] = f(x[0]);"), (3, refused())),
        (F + kernel("x[0] = F()(x[0]);"), (3, refused())),
        (F + kernel("const auto f = F{}; x[0] = f(x[0]);"), (3, refused())),
        (F + kernel("if (false) x[0] = F{}(x[0]);"), (3, refused())),
        (F + kernel("F f; x[0] = f.operator()(x[0]);"), (3, refused())),
        ("namespace mine {\n" + F + kernel("x[0] = F()(x[0]);") + "}\n", (4, refused())),
        (F + "static " + kernel("x[0] = F()(x[0]);"), (3, refused())),
        (M + kernel("F f; x[0] = f.m(x[0]);"), (3, refused("m"))),
        (M + kernel("x[0] = F::s(x[0]);"), (3, refused("s"))),
        (M + "__global__ void k(float* x, const F* p) {\n  x[0] = p->m(x[0]);\n}\n", (3, refused("m"))),
        ("struct F { float m(float) const; };\n" + kernel("x[0] = F().m(x[0]);"), (3, refused("m"))),
        (
            "struct F { template <class T> T operator()(T v) const { return v; } };\n" + kernel("x[0] = F()(x[0]);"),
            (3, refused()),
        ),
        (T + kernel("x[0] = F<float>()(x[0]);"), (3, refused())),
        (F + LAUNCHED + go("k<<<1, 1>>>(x, F());"), (3, refused())),
        (F + LAUNCHED + go("F f; k<F><<<1, 1>>>(x, f);"), (3, refused())),
        (T + LAUNCHED + go("k<<<1, 1>>>(x, F<float>{});"), (3, refused())),
        (F + G + LAUNCHED + go("k<<<1, 1>>>(x, G()); k<<<1, 1>>>(x, F());"), (4, refused())),
        (F + LAUNCHED + go("auto l = [&] { k<<<1, 1>>>(x, F()); };"), (3, refused())),
        (F + LAUNCHED + go('AT_DISPATCH_ALL_TYPES(t, "k", [&] { k<<<1, 1>>>(x, F()); });'), (3, refused())),
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
            M
            + "template <class O> __global__ void k(float* x) {\n  x[0] = O::s(x[0]);\n}\n"
            + go("k<F><<<1, 1>>>(x);"),
            (3, refused("s")),
        ),
    ],
)
def test_what_nvcc_refuses_is_found_with_its_line(source: str, expected: tuple[int, str]) -> None:
    assert found(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        G + kernel("x[0] = G()(x[0]);"),
        F.replace("float op", "__host__ __device__ float op") + kernel("x[0] = F()(x[0]);"),
        F.replace("float op", "constexpr float op") + kernel("x[0] = F()(x[0]);"),
        F.replace("float op", "[[nodiscard]] __device__ float op") + kernel("x[0] = F()(x[0]);"),
        F.replace("float op", "__forceinline__ __device__ float op") + kernel("x[0] = F()(x[0]);"),
        F.replace("float op", "/* __host__ */ __device__ // both\n float op") + kernel("x[0] = F()(x[0]);"),
        F.replace("float op", "\n#ifdef __CUDACC__\n__device__\n#endif\nfloat op") + kernel("x[0] = F()(x[0]);"),
        "#define DEV __device__\n" + F.replace("float op", "DEV float op") + kernel("x[0] = F()(x[0]);"),
        F.replace("float op", "C10_DEVICE float op") + kernel("x[0] = F()(x[0]);"),
        F + kernel("x[0] = sizeof(F()(x[0]));"),
        F + go("F()(1.0f);") + kernel("x[0] = 1;"),
        F + LAUNCHED,
        F + LAUNCHED + "template <class O> void go(float* x, O o) { k<<<1, 1>>>(x, F()); }\n",
        F + LAUNCHED + go("auto l = [&](auto o) { k<<<1, 1>>>(x, F()); };"),
        F + LAUNCHED.replace("x[0] = o", "if constexpr (sizeof(O) > 9) x[0] = o") + go("k<<<1, 1>>>(x, F());"),
        F + LAUNCHED.replace("o(x[0])", "sizeof(o)") + go("k<<<1, 1>>>(x, F());"),
        F + G + LAUNCHED + go("k<<<1, 1>>>(x, G());"),
        F + G + LAUNCHED.replace("class O", "class F").replace("O o", "F o") + go("k<<<1, 1>>>(x, G());"),
        F
        + G
        + "template <int N, class A, class B> __global__ void k(float* x, B b) { x[0] = A()(x[0]); }\n"
        + go("k<3, G><<<1, 1>>>(x, F());"),
        F + APPLIED.replace("__device__", "__host__ __device__") + kernel("x[0] = d(x[0], F());"),
        F + "__host__ __device__ float h(float v) { return F()(v); }\n" + kernel("x[0] = h(x[0]);"),
        F + "static __device__ float unused(float v) { return F()(v); }\n",
        F + "__device__ float f(float v) { return v; }\n" + kernel("x[0] = f(x[0]);"),
        F + G + kernel("F f; { G f; x[0] = f(x[0]); }"),
        F + G + kernel("using F = G; F f; x[0] = f(x[0]);"),
        F + G + "__device__ G make() { return G(); }\n" + kernel("auto f = make(); x[0] = f(x[0]);"),
        F + G + APPLIED.replace("O o", "O* o").replace("o(v)", "1") + kernel("F f; x[0] = d(x[0], &f);"),
        "namespace a {\n"
        + F
        + "}\nnamespace b {\n"
        + G.replace("G", "F")
        + "}\n"
        + kernel("using b::F; x[0] = F()(x[0]);"),
        F + "struct Q {\n" + G.replace("G", "F") + "};\n" + kernel("x[0] = Q::F()(x[0]);"),
        F
        + "struct Q {\n"
        + G.replace("G", "F")
        + "__device__ float r(float v) { return F()(v); } };\n"
        + kernel("x[0] = Q().r(x[0]);"),
        T
        + "template <> struct F<float> { __device__ float operator()(float v) const; };\n"
        + kernel("x[0] = F<float>()(x[0]);"),
        "template <class T> struct F { T operator()(T v) const; };\n"
        "template <> __device__ inline float F<float>::operator()(float v) const { return v; }\n"
        + kernel("x[0] = F<float>()(x[0]);"),
        "struct F { float m(float) const; };\n__device__ float F::m(float v) const { return v; }\n"
        + kernel("x[0] = F().m(x[0]);"),
        "struct F { __device__ float m(float) const; };\nfloat F::m(float v) const { return v; }\n"
        + kernel("x[0] = F().m(x[0]);"),
        "struct F { constexpr float m(float) const; };\nconstexpr float F::m(float v) const { return v; }\n"
        + kernel("x[0] = F().m(x[0]);"),
        G + "struct F { G op; float other(float v) { return v; } };\n" + kernel("F f; x[0] = f.op(x[0]);"),
        "struct B { static __device__ float m(float v) { return v; } };\nstruct F : B { float q(); };\n"
        + kernel("x[0] = F::m(x[0]);"),
        "struct B { __device__ float m(float v) { return v; } };\nstruct F : B { using B::m; float m(int, int); };\n"
        + kernel("F f; x[0] = f.m(x[0]);"),
        "struct F { float a = 1; F() = default; F& operator=(const F&) = default; };\n"
        + kernel("F f, g; f.operator=(g); x[0] = f.a;"),
        "#define MEMBERS __device__ float m(float v) { return v; }\nstruct F { MEMBERS };\n"
        + kernel("x[0] = F().m(1);"),
        kernel("auto f = [](float v) { return v; }; x[0] = f(x[0]);"),
    ],
)
def test_what_nvcc_takes_is_left_alone(source: str) -> None:
    assert found(source) == []


MISSED = {
    "constructor": "struct F { float a; F(float v) : a(v) {} };\n" + kernel("F f(x[0]); x[0] = f.a;"),
    "destructor": "struct F { float a; ~F() {} };\n" + kernel("F f{x[0]}; x[0] = f.a;"),
    "operator": "struct F { float a; F operator+(F o) const { return o; } };\n" + kernel("F f{1}; x[0] = (f + f).a;"),
    "conversion": "struct F { float a; operator float() const { return a; } };\n" + kernel("F f{1}; x[0] = f;"),
    "inherited": F + "struct H : F {};\n" + kernel("x[0] = H()(x[0]);"),
    "virtual": "struct F { virtual float m(float v) { return v; } };\n__global__ void k(float* x, F* f) { f->m(1); }\n",
    "by a lambda": F + kernel("auto f = [](float v) { return F()(v); }; x[0] = f(x[0]);"),
    "in a function": kernel("struct F { float operator()(float v) const { return v; } }; x[0] = F()(x[0]);"),
    "by a method": F + "struct H { __device__ float m(float v) { return F()(v); } };\n" + kernel("x[0] = H().m(1);"),
}
"""Calls that nvcc refuses as well, and that are not looked for."""


@pytest.mark.parametrize("name", MISSED)
def test_what_is_not_looked_for_is_not_guessed(name: str) -> None:
    assert found(MISSED[name]) == []


def test_many_templates_that_call_each_other_come_to_an_end() -> None:
    many = "".join(f"struct F{i} {{ float operator()(float v) const; }};\n" for i in range(30))
    taking = "".join(
        f"template <class A, class B> __device__ float d{i}(A a, B b) {{ return d{(i + 1) % 30}(b, F{i}()); }}\n"
        for i in range(30)
    )
    assert found(many + taking + kernel("x[0] = d0(F1(), F2());")) == []


@given(
    st.lists(
        st.sampled_from(
            ["struct F {", "float operator()(float v)", "const", ";", "{", "}", "F", "()", "f", "x[0] = ", "(1)",
             "template <class O> ", "__global__ void k(", "O o)", "void g()", "k<<<1, 1>>>", "auto ", "::", ".m", "\n"]
        )
    )
)  # fmt: skip
def test_no_text_is_too_odd(pieces: list[str]) -> None:
    found("".join(pieces))

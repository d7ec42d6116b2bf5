"""What the rewriter makes of CUDA syntax behind the preprocessor. Nothing is compiled here."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate.preprocess import author_text, marked
from harness.hostcuda.translate.rewrite import rewrite
from harness.toolchain.cuda_source.tokens import balanced, blank, words
from tests.support.hostcuda_text import translated, translated_lines


def test_a_launch_becomes_a_call_that_evaluates_its_arguments_once() -> None:
    text = translated("void f(float* x) { k<float, 4><<<dim3(1, 2), 32, 0, s>>>(x, n++); }").text
    assert "<<<" not in text
    assert "Configuration(dim3(1, 2), 32, 0, s)" in text
    assert text.count("n++") == 1
    assert "k<float, 4>(hostcuda_a...)" in text


@pytest.mark.parametrize(
    "call",
    ["k<<<1, 2>>>()", "ns::k<<<1, 2>>>(x)", "table[i]<<<1, 2>>>(x)", "k<T><<<g, b, m>>>(x, y)", "(*f)<<<1, 2>>>(x)"],
)
def test_every_form_of_callee_is_launched(call: str) -> None:
    text = translated(f"void f() {{ {call}; }}").text
    assert "<<<" not in text
    assert text.count("hostcuda::start") == 1


def test_launches_in_macros_and_in_lambdas_of_macro_arguments() -> None:
    source = (
        "#define RUN(K, T) \\\n  K<T><<<g, b>>>(x, \\\n    n)\n"
        "#define EACH(t, ...) [&] { if (t) { using scalar_t = float; __VA_ARGS__(); } else "
        "{ using scalar_t = double; __VA_ARGS__(); } }()\n"
        "void f() {\n  EACH(t, ([&] {\n    k<scalar_t><<<g, b>>>(x);\n  }));\n  RUN(k, float); }\n"
    )
    lines = translated_lines(source)
    assert not any("<<<" in line for line in lines.values())
    assert lines[7].count('hostcuda::start(::hostcuda::Configuration(g, b), false, "k<scalar_t>", 7, ') == 2
    assert lines[9].count("hostcuda::start") == 1


def test_a_pragma_of_a_macro_keeps_its_line() -> None:
    source = (
        '#define QUIET(x) _Pragma("GCC diagnostic push") x _Pragma("GCC diagnostic pop")\nint a = QUIET(1); int b;\n'
    )
    lines = [line.strip() for line in translated(source).text.splitlines()]
    assert [line for line in lines if "pragma" in line] == ["#pragma GCC diagnostic push", "#pragma GCC diagnostic pop"]


def test_a_launch_may_come_from_several_macros() -> None:
    source = '#define OPEN <<\n#define ON OPEN<1, \\\n  32>>>\nvoid f() {\n  k ON (x); // ON\n  g(ON_, "ON"); }\n'
    lines = translated_lines(source)
    assert "Configuration(1, 32)" in lines[5]
    assert 'g(ON_, "ON");' in lines[6]


def test_words_of_declarations_may_come_from_macros() -> None:
    source = (
        '#define SMEM __shared__  // a tile\n#define KERNEL extern "C" __global__ void\n'
        "#define PER_TYPE template <typename T, int N>\n#define BOUNDS(n) __launch_bounds__(n)\n"
        "KERNEL BOUNDS(64) k(int* x) { SMEM float s[4]; }\nPER_TYPE __global__ void t(T* x) {}\n"
    )
    lines = translated_lines(source)
    assert '::hostcuda::enter("k", "x", static_cast<int>(64));' in lines[5]
    assert "SharedVariable" in lines[5]
    assert '::hostcuda::enter("t", "x", 0);' in lines[6]
    assert "KernelRegistration" not in lines[6], "there is no address of a template"


@pytest.mark.parametrize(
    "before",
    [
        "struct S { __host__ __device__ S() {} int a; };\n",
        "__device__ int f(int n, S b) { if (n > decltype(b.n){0}) return 1; return n < decltype(n)(0) ? 1 : 2; }\n",
        "template <class T> __device__ void f(T x) { g(typename T::type(x), 3); }\n",
        '__device__ void f() { _Pragma("unroll") for (int i = 0; i < 4; ++i) g(i); }\n',
        "__device__ void f() {\n#pragma unroll\nfor (int i = 0; i < 4; ++i) g(i); }\n",
        "[[maybe_unused]] static __device__ __forceinline__ int f();\n",
        "__attribute__((always_inline)) __device__ int f();\n",
    ],
)
@pytest.mark.parametrize("inside", ["{}", "namespace a::b {{ {} }}"])
def test_a_variable_behind_what_the_grammar_does_not_read_is_registered(before: str, inside: str) -> None:
    assert "SymbolRegistration" in translated(inside.format(f"\n{before}__device__ int after;")).text


def test_a_macro_may_declare_shared_memory() -> None:
    source = (
        "#define TILE(T, name, line, ...) __shared__ T name[line], name##_next __VA_ARGS__\n"
        "__global__ void k() {\n  TILE(int, a, 4, [2][3]);\n  TILE(int, b, 4, ); a_next[1][2] = b[1]; }"
    )
    lines = translated_lines(source)
    assert '"a_next"' in lines[3]
    assert re.search(r"typedef int hostcuda_t\d+ \[2\]\[3\];", lines[3])
    assert lines[4].count("SharedVariable<") == 2
    assert "enum { hostcuda_line = 4 }" in lines[4]
    assert "without_bounds(::hostcuda::without_bounds(a_next)[1])[2] = ::hostcuda::without_bounds(b)[1];" in lines[4]


@pytest.mark.parametrize("wide", [True, False])
def test_a_condition_around_a_shared_variable_may_leave_a_brace_open(wide: bool) -> None:
    source = (
        "__global__ void k(int n) {\n#if WIDE\n  if (n > 1) {\n  __shared__ float s[8];\n#else\n  {\n"
        "  __shared__ float s[4];\n#endif\n  s[n] = 1; }\n}\n__device__ int after;\n"
    )
    lines = translated_lines(f"#define WIDE {int(wide)}\n{source}")
    assert f"float hostcuda_t2[{8 if wide else 4}];" in lines[5 if wide else 8]
    assert "without_bounds(s)[n]" in lines[10]
    assert "SymbolRegistration" in lines[12]


def test_ptx_in_a_macro_keeps_its_meaning_whatever_its_parameters_are_called() -> None:
    source = (
        '#define BAR(count) asm volatile("bar.red.popc.u32 %0, 0, %1;" : "=r"(n) : "r"(count))\n'
        "__device__ void f(int n) { BAR(32); }\n"
    )
    text = translated(source).text
    assert "BarrierAnswer::count" in text
    assert "operand<std::uint32_t>(32)" in text


def test_what_can_not_be_read_stays_in_its_declaration() -> None:
    broken = "__device__ void f() { if (a <) g((b; } "
    source = f"namespace n {{\n{broken}\n__launch_bounds__(64)\n"
    lines = translated_lines(source + "__global__ void k(int* x) { __shared__ int s[4]; }\n__device__ int after;\n}\n")
    assert '::hostcuda::enter("k", "x", static_cast<int>(64))' in lines[4]
    assert "KernelRegistration" in lines[4]
    assert '"after"' in lines[5]
    assert "enum { hostcuda_line = 4 }" in lines[4]


def test_a_launch_with_a_lambda_argument_keeps_the_lambda() -> None:
    text = translated("void f() { k<<<1, 2>>>(n, [=] __device__(float v) { return v + c; }); }").text
    assert ", n, [=] (float v) { return v + c; })" in text


def test_a_launch_has_no_value_and_may_be_returned() -> None:
    text = translated("void f() { return k<<<1, 2>>>(x); }").text
    assert "return static_cast<void>(::hostcuda::start(" in text


def test_a_list_in_braces_gets_the_type_of_the_parameter() -> None:
    text = translated("void f() { k<\n  T><<<1, 2>>>(n, {x, y}); }").text
    assert ", n, ::hostcuda::Parameter<1, decltype(k<   T>)>{x, y})" in text


def test_null_for_a_pointer_parameter_is_a_null_pointer() -> None:
    text = translated(
        "__global__ void k(float* x, int n) {}\nvoid f() { k<<<1, 2>>>(0, 0); k<<<1, 2>>>(NULL, 1); }"
    ).text
    assert text.count("nullptr, 0)") == 1
    assert text.count("nullptr, 1)") == 1


def test_shared_variables_of_all_shapes() -> None:
    source = (
        "__global__ void k() {\n  __shared__ float a[4][8], *p;\n  __shared__ __align__(16) int4 v;\n"
        "  extern __shared__ char raw[];\n}"
    )
    text = translated(source).text
    assert "__shared__" not in text
    assert "typedef float hostcuda_t2[4][8];" in text
    assert "typedef float *hostcuda_t3;" in text
    assert "typedef char hostcuda_t5[];" in text
    assert text.count("SharedVariable<") == 3
    assert text.count("dynamic_shared_as<") == 1


def test_dynamic_shared_memory_at_namespace_scope_reaches_the_kernels_that_use_it() -> None:
    source = "extern __shared__ float s[];\n__global__ void a() { s[0] = 1; }\n__global__ void b() { }\n"
    lines = translated_lines(source)
    assert lines[1].strip() == ""
    assert "dynamic_shared_as" in lines[2]
    assert "dynamic_shared_as" not in lines[3]


def test_kernels_tell_their_name_parameters_and_bound() -> None:
    found = translated(
        "template <int N> __global__ void __launch_bounds__(N * 2, 1) k(const float* a, int (&b)[3], int = 2) {}\n"
    )
    assert found.kernels == ("k",)
    assert '::hostcuda::enter("k", "a,b,?", static_cast<int>(N * 2));' in found.text


def test_kernels_tell_the_dimensions_of_their_clusters() -> None:
    two = "static_cast<unsigned>(N), static_cast<unsigned>(2)"
    text = translated("template <int N> __global__ void __cluster_dims__(N, 2) k(float* a) {}\n").text
    assert f'::hostcuda::enter("k", "a", 0, ::hostcuda::Dim3{{{two}}});' in text
    text = translated("__cluster_dims__(4) __global__ void k() {}\n").text
    assert '::hostcuda::enter("k", "", 0, ::hostcuda::Dim3{static_cast<unsigned>(4)});' in text
    assert "&k), 0, ::hostcuda::Dim3{static_cast<unsigned>(4)});" in text
    text = translated("__global__ void __cluster_dims__(4) k();\n__global__ void k() {}\n__global__ void l() {}\n").text
    assert '::hostcuda::enter("k", "", 0, ::hostcuda::Dim3{static_cast<unsigned>(4)});' in text
    assert '::hostcuda::enter("l", "", 0);' in text


def test_dimensions_of_clusters_may_come_from_a_macro() -> None:
    lines = translated_lines("\n#define PAIRED __cluster_dims__(2)\n__global__ void PAIRED k() {}\n")
    assert "0, ::hostcuda::Dim3{static_cast<unsigned>(2)});" in lines[3]
    assert "__cluster_dims__" not in lines[3]


def test_a_launch_with_attributes_keeps_the_type_of_its_kernel() -> None:
    text = translated(
        "void f() { cudaLaunchKernelExC(&c, (const void*)k, a); cudaLaunchKernelExC(&c, (void*)&k, a); }\n"
    ).text
    assert "cudaLaunchKernelExC(&c, k, a); cudaLaunchKernelExC(&c, &k, a);" in text


def test_device_variables_are_registered_and_functions_are_not() -> None:
    text = translated("__constant__ float c[4];\nstatic __device__ int n = 3, m;\n__device__ float f(float x);\n").text
    assert '(&c, sizeof(c), "c")' in text
    assert '(&n, sizeof(n), "n")' in text
    assert '(&m, sizeof(m), "m")' in text
    assert text.count("SymbolRegistration") == 3


def test_strings_are_left_alone() -> None:
    source = 'const char* s = "k<<<1, 2>>>(x) __noinline__ hostcuda_line";\nconst char t = \'"\';\n'
    assert translated(source).text.endswith(source)


def test_an_empty_wait_gives_way() -> None:
    assert "poll_hint" in translated("__device__ void f(volatile int* p) { while (*p == 0); }").text
    assert "poll_hint" not in translated("__device__ void f(int n) { while (n > 0) { --n; } }").text


def test_a_cooperative_launch_keeps_the_type_of_its_kernel() -> None:
    calls = (
        "cudaLaunchCooperativeKernel((void*)k<float>, g, b, a); cudaLaunchKernel(reinterpret_cast<void*>(k), g, b, a);"
    )
    text = translated(f"void f() {{ {calls} }}").text
    assert "cudaLaunchCooperativeKernel(k<float>, g" in text
    assert "cudaLaunchKernel(k, g" in text


def test_ptx_that_cannot_be_emulated_is_found_with_its_line() -> None:
    found = translated('__device__ void f() {\n\n  asm volatile("wgmma.fence.sync.aligned;");\n}\n')
    assert [(f.line, "wgmma" in f.construct) for f in found.not_emulated] == [(3, True)]
    assert "not_emulated" in found.text


def test_only_subscripts_of_shared_arrays_are_freed_of_the_compilers_bounds() -> None:
    lines = translated_lines("__global__ void k() {\n __shared__ int a[2][2];\n int b[2];\n a[b[1]][3] = b[0];\n}")
    freed = "::hostcuda::without_bounds("
    assert lines[4] == f" {freed}{freed}a)[b[1]])[3] = b[0];"


FRAGMENTS = [
    "__global__ void k(float* x) {",
    "}",
    "k<<<1, 2>>>(x);",
    "__shared__ float s[4];",
    "<<<",
    ">>>",
    "__device__ int v;",
    "extern __shared__ int e[];",
    "\n#pragma unroll\n",
    '\n# 7 "cuda.cu"\n',
    '"text"',
    "é",
    "while (1);",
    'asm("bar.sync 0;");',
    "throw 1;",
    "__launch_bounds__(",
    "(",
    ")",
    "\n",
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join))
def test_any_text_keeps_its_number_of_lines(source: str) -> None:
    assert rewrite(source).text.count("\n") == source.count("\n")


@given(st.lists(st.sampled_from(["(", ")", "{", "}", ";", "f", "\n", "#if X", "\\\n", '"a"', ","]), max_size=12))
def test_marks_leave_no_trace(pieces: list[str]) -> None:
    source = "".join(pieces)
    done = marked(source).replace("\\\n", "")
    unit = author_text('# 1 "cuda.cu"\n' + done, lambda _: True)
    assert "hostcuda_line" not in unit.text
    assert unit.text.split('"cuda.cu"')[-1].count("f") <= source.count("f")


def test_a_preprocessor_that_says_nothing_leaves_nothing() -> None:
    assert author_text("", lambda _: True).text == "#hostcuda 0\n"


def test_words_of_headers_that_the_source_includes_first_are_replaced() -> None:
    text = (
        '# 1 "unit.cpp"\nint a;\n# 1 "cuda.cu"\n# 1 "x.cuh" 1\n__device__ int b;\n# 2 "cuda.cu" 2\n__device__ int c;\n'
    )
    unit = author_text(text, lambda file: file == "cuda.cu")
    whole = unit.restored(rewrite(unit.text).text, "int before;\n")
    assert [line.strip() for line in whole.splitlines() if line.startswith(("int", " int"))][:3] == [
        "int a;",
        "int before;",
        "int b;",
    ]
    assert "__device__" not in whole


def test_words_skips_literals_and_comments() -> None:
    data = b'a \'b\' "c" // d\n/* e */ R"x(f)x" 1e5f g'
    assert [word for word, _, _ in words(data)] == [b"a", b"g"]


def test_balanced_and_blank() -> None:
    data = b'f (a, ")", (b)) c'
    assert balanced(data, 1) == data.index(b" c")
    assert balanced(b"f(a", 1) is None
    assert balanced(b"f a", 1) is None
    out = bytearray(b"ab\ncd")
    blank(out, 1, 4)
    assert bytes(out) == b"a \n d"


def test_device_code_has_the_devices_heap() -> None:
    text = translated(
        "__global__ void k(A* a) { delete a; delete[] new B[2](); new (a) A; }\nvoid f() { delete new A; }"
    ).text
    assert (
        "::hostcuda::device_delete(a); ::hostcuda::device_delete_array(::new (::hostcuda::device_heap) B[2]());" in text
    )
    assert "new (a) A; }" in text
    assert text.rstrip().endswith("void f() { delete new A; }")


def test_a_template_of_device_variables_is_found_with_its_line() -> None:
    source = "template <class T> __device__ T f(T x);\ntemplate <class T> __device__ T v = 1;\n"
    found = translated(source + "template <class T> __constant__ const T c = 1;\n").not_emulated
    assert [(finding.line, finding.construct) for finding in found] == [(2, "a template of device variables")]


def test_in_functions_for_both_sides_the_heap_is_that_of_who_calls() -> None:
    source = (
        "#define MAKE(T, n) new T[n]\n#define DROP(p) do { \\\n  delete[] p; \\\n  free(p); } while (0)\n"
        "struct S { S(const S&) = delete; };\n"
        "__host__ __device__ int* f(int* p) { DROP(p); return MAKE(int, 2); }\n"
        "int* h() { auto l = [=] __device__ (int n) { return MAKE(int, n); }; return MAKE(int, 2); }\n"
    )
    lines = translated_lines(source)
    assert "S(const S&) = delete;" in lines[5]
    assert "::hostcuda::callers_delete_array(p); ::hostcuda::callers_free(p); } while (0)" in lines[6]
    assert "return ::new (::hostcuda::callers_heap) int[2]; }" in lines[6]
    assert "return ::new (::hostcuda::device_heap) int[n]; }; return new int[2]; }" in lines[7]


ASKS = "#ifdef __CUDA_ARCH__\n  return 1;\n#else\n  return 2;\n#endif\n"


def test_host_code_has_no_architecture() -> None:
    lines = translated_lines(
        "int f() {\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700\n  return 3;\n"
        "#elif __CUDA_ARCH__\n  return 4;\n#endif\n" + ASKS + "}\nint g() { return 5; }\n"
    )
    assert "return 3" not in "".join(lines.values())
    assert lines[10].strip() == "return 2;"
    assert lines[13].endswith("int g() { return 5; }")


@pytest.mark.parametrize(
    "head",
    [
        "__host__ __device__ int f()",
        "template <class T> __host__ __device__ auto f(T v) -> int",
        "constexpr int f()",
        "__device__ int f();\nint f()",
        "#pragma clang force_cuda_host_device begin\nint f()",
    ],
)
def test_a_function_for_both_sides_is_there_twice(head: str) -> None:
    source = f"\n{head} {{\n{ASKS}}}\n__global__ void k() {{}}\n"
    lines, original = translated_lines(source), source.splitlines()
    first = original.index("  return 1;") + 1
    assert "if (::hostcuda::on_host())" in lines[first - 2]
    assert (lines[first].strip(), lines[first + 2].strip()) == ("return 1;", "return 2;")
    assert "void k()" in lines[len(original)]


@pytest.mark.parametrize(
    "source",
    [
        f"__device__ int f() {{\n{ASKS}}}\n",
        f"__global__ void k() {{\n{ASKS}}}\n",
        f"__host__ __device__ auto f() {{\n{ASKS}}}\n",
        f"__host__ __device__ int f() {{\nagain:\n{ASKS}}}\n",
        "#ifdef __CUDA_ARCH__\n__host__ __device__ int f() { return 1; }\n#endif\n",
    ],
)
def test_where_two_versions_can_not_be_the_devices_stays(source: str) -> None:
    text = translated(source).text
    assert "return 1;" in text
    assert "return 2;" not in text


@pytest.mark.parametrize(
    ("code", "edited"),
    [
        ("o[0] = 1u << n;", "1u << ::hostcuda::shift << n"),
        ("n >>= o[0];", "n >>= ::hostcuda::shift >>= o[0]"),
        ("o[0] = (int)x * 2;", "(int)(::hostcuda::Converted<int>)x * 2"),
        ("o[0] = static_cast<unsigned>(x);", "static_cast<unsigned>(::hostcuda::Converted<unsigned>(x))"),
        ("o[0] = uint8_t(x);", "uint8_t(::hostcuda::Converted<uint8_t>(x))"),
        ("s.bits <<= n;", "s.bits <<= n;"),
        ("o[0] = 1 << 3;", "1 << 3;"),
        ("o[0] = (float)n;", "(float)n;"),
    ],
)
def test_arithmetic_of_device_code_is_written_as_a_gpu_does_it(code: str, edited: str) -> None:
    assert edited in translated(f"__global__ void k(float x, int n, int* o) {{ {code} }}").text
    host = f"void f(float x, int n, int* o) {{ {code} }}"
    assert translated(host).text.rstrip().endswith(host)

"""What the rewriter makes of CUDA syntax. Nothing is compiled here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate.rewrite import NotTranslated, rewrite
from harness.toolchain.cuda_source.tokens import balanced, blank, words


def test_a_launch_becomes_a_call_that_evaluates_its_arguments_once() -> None:
    text = rewrite("void f(float* x) { k<float, 4><<<dim3(1, 2), 32, 0, s>>>(x, n++); }").text
    assert "<<<" not in text
    assert "Configuration(dim3(1, 2), 32, 0, s)" in text
    assert text.count("n++") == 1
    assert "k<float, 4>(hostcuda_a...)" in text


@pytest.mark.parametrize(
    "call",
    ["k<<<1, 2>>>()", "ns::k<<<1, 2>>>(x)", "table[i]<<<1, 2>>>(x)", "k<T><<<g, b, m>>>(x, y)", "(*f)<<<1, 2>>>(x)"],
)
def test_every_form_of_callee_is_launched(call: str) -> None:
    text = rewrite(f"void f() {{ {call}; }}").text
    assert "<<<" not in text
    assert text.count("hostcuda::start") == 1


def test_launches_in_macros_and_in_lambdas_of_macro_arguments() -> None:
    source = (
        "#define RUN(K, T) \\\n  K<T><<<g, b>>>(x, \\\n    n)\n"
        'void f() { DISPATCH(t, "n", ([&] { k<scalar_t><<<g, b>>>(x.data_ptr<scalar_t>()); })); RUN(k, float); }\n'
    )
    text = rewrite(source).text
    assert "<<<" not in text
    assert text.count("hostcuda::start") == 2
    assert text.count("\n") == source.count("\n")
    assert all(line.endswith("\\") for line in text.splitlines()[:2]), "a macro's lines stay joined"


def test_a_macro_for_the_configuration_alone_is_written_out_where_it_is_used() -> None:
    source = '#define ON <<<1, \\\n  32>>>\nvoid f() {\n  k ON (x); // ON\n  g(ON_, "ON"); }\n'
    text = rewrite(source).text
    assert text.count("hostcuda::start") == 1
    assert 'g(ON_, "ON");' in text
    assert text.count("\n") == source.count("\n")


def test_a_macro_that_says_where_something_lives_is_written_out() -> None:
    source = (
        '#define SMEM __shared__  // a tile\n#define KERNEL extern "C" __global__ void\n'
        "KERNEL k(int* x) { SMEM float s[4]; }\n#undef SMEM\n"
    )
    text = rewrite(source).text
    assert "HOSTCUDA_ENTER" in text
    assert "SharedVariable" in text
    assert text.startswith("#define SMEM __shared__  // a tile\n")
    assert "#undef SMEM\n" in text
    assert text.count("\n") == source.count("\n")


def test_a_macro_that_says_it_differently_in_places_stays() -> None:
    source = "#if A\n#define FN __device__\n#else\n#define FN __host__ __device__\n#endif\nFN int f();\n"
    assert "\nFN int f();" in rewrite(source).text
    assert "\n__device__ int f();" in rewrite(source.replace("__host__ __device__", "")).text


@pytest.mark.parametrize(
    "before",
    [
        "INSTANTIATE(float, 4)\n",
        "struct S { C10_HOST_DEVICE S() {} C10_HOST_DEVICE S(int a) : a(a) {} int a; };\n",
        "__device__ int f(int n, S b) { if (n > decltype(b.n){0}) return 1; return n < decltype(n)(0) ? 1 : 2; }\n",
        "void f() { DISPATCH(t, CASE(1, [&] { k<1><<<1, 2>>>(x); }) CASE(2, [&] { k<2><<<1, 2>>>(x); })); }\n",
        "__device__ void f() { UNROLL for (int i = 0; i < 4; ++i) g(i); UNROLL_BY(4) for (;;) { } }\n",
        "template <class T> __device__ void f(T x) { g(typename T::type(x), 3); }\n",
        "NAMESPACE_BEGIN\n",
        "struct S { int a; }; REGISTER(S) REGISTER(T)\n",
        '__device__ void f() { _Pragma("unroll") for (int i = 0; i < 4; ++i) g(i); }\n',
    ],
)
@pytest.mark.parametrize("inside", ["{}", "namespace a::b {{ {} }}"])
def test_a_variable_behind_what_the_grammar_does_not_read_is_registered(before: str, inside: str) -> None:
    text = rewrite(inside.format(f"\n{before}__device__ int after;")).text
    assert "SymbolRegistration" in text
    assert text.count("hostcuda::start") == before.count("<<<")
    assert before.split("{")[0].split("(")[0] in text, "what is compiled keeps its macros"


def test_a_macro_that_declares_shared_memory_ends_where_it_did() -> None:
    source = (
        "#define TILE(T, name, line) __shared__ T name[line], name##_next[2]\n#define SYNC __syncthreads()\n"
        "#define WAIT(p) while (*p == 0)\n#define BOUNDS(n) __launch_bounds__(n)\n"
        "__global__ void BOUNDS(64) k() { TILE(int, a, 4); TILE(int, b, 4); SYNC; WAIT(p); }"
    )
    lines = rewrite(source).text.splitlines()
    assert lines[0].endswith(";")
    assert "_##name##_next& name##_next =" in lines[0], "used twice in a scope, it must not declare one type twice"
    assert " name()" not in lines[0], "an argument would take its place"
    assert "HOSTCUDA_TEXT(name##_next)" in lines[0], "a report says the name that the argument makes"
    assert '"name' not in lines[0]
    assert "enum { line " not in lines[0]
    assert lines[1:4] == source.splitlines()[1:4]
    assert lines[4].startswith("__global__ void BOUNDS(64) k() { HOSTCUDA_ENTER(")


def test_a_macro_for_the_template_of_a_kernel_is_written_out() -> None:
    text = rewrite("#define PER_TYPE template <typename T, int N>\nPER_TYPE\n__global__ void k(T* x) {}\n").text
    assert "HOSTCUDA_ENTER" in text
    assert "KernelRegistration" not in text, "there is no address of a template"


def test_what_can_not_be_read_stays_in_its_declaration() -> None:
    broken = "__device__ void f() { if (a <) g(((b; } "
    source = f"namespace n {{\n#define A 1\n#if A\n{broken.replace('(((b', '(b)')}\n#endif\n__launch_bounds__(64)\n"
    text = rewrite(source + "__global__ void k(int* x) { __shared__ int s[4]; }\n__device__ int after;\n}\n").text
    assert 'HOSTCUDA_ENTER("k", "x", static_cast<int>(64))' in text
    assert "KernelRegistration" in text
    assert '"after"' in text
    assert "enum { hostcuda_line = 7 }" in text


def test_a_launch_with_a_lambda_argument_keeps_the_lambda() -> None:
    text = rewrite("void f() { k<<<1, 2>>>(n, [=] __device__(float v) { return v + c; }); }").text
    assert ", n, [=] __device__(float v) { return v + c; })" in text


def test_a_launch_has_no_value_and_may_be_returned() -> None:
    text = rewrite("void f() { return k<<<1, 2>>>(x); }").text
    assert "return static_cast<void>(::hostcuda::start(" in text


def test_a_list_in_braces_gets_the_type_of_the_parameter() -> None:
    text = rewrite("void f() { k<\n  T><<<1, 2>>>(n, {x, y}); }").text
    assert ", n, ::hostcuda::Parameter<1, decltype(k<   T>)>{x, y})" in text


def test_null_for_a_pointer_parameter_is_a_null_pointer() -> None:
    text = rewrite("__global__ void k(float* x, int n) {}\nvoid f() { k<<<1, 2>>>(0, 0); k<<<1, 2>>>(NULL, 1); }").text
    assert text.count("nullptr, 0)") == 1
    assert text.count("nullptr, 1)") == 1


def test_shared_variables_of_all_shapes() -> None:
    source = (
        "__global__ void k() {\n  __shared__ float a[4][8], *p;\n  __shared__ __align__(16) int4 v;\n"
        "  extern __shared__ char raw[];\n}"
    )
    text = rewrite(source).text
    assert "__shared__" not in text
    assert "typedef float hostcuda_t2[4][8];" in text
    assert "typedef float *hostcuda_t3;" in text
    assert "typedef char hostcuda_t5[];" in text
    assert text.count("SharedVariable<") == 3
    assert text.count("dynamic_shared_as<") == 1


def test_dynamic_shared_memory_at_namespace_scope_reaches_the_kernels_that_use_it() -> None:
    source = "extern __shared__ float s[];\n__global__ void a() { s[0] = 1; }\n__global__ void b() { }\n"
    lines = rewrite(source).text.splitlines()
    assert lines[0].strip() == ""
    assert "dynamic_shared_as" in lines[1]
    assert "dynamic_shared_as" not in lines[2]


def test_kernels_tell_their_name_parameters_and_bound() -> None:
    found = rewrite(
        "template <int N> __global__ void __launch_bounds__(N * 2, 1) k(const float* a, int (&b)[3], int = 2) {}\n"
    )
    assert found.kernels == ("k",)
    assert 'HOSTCUDA_ENTER("k", "a,b,?", static_cast<int>(N * 2));' in found.text


def test_kernels_tell_the_dimensions_of_their_clusters() -> None:
    two = "static_cast<unsigned>(N), static_cast<unsigned>(2)"
    text = rewrite("template <int N> __global__ void __cluster_dims__(N, 2) k(float* a) {}\n").text
    assert f'HOSTCUDA_ENTER("k", "a", 0, {two});' in text
    text = rewrite("__cluster_dims__(4) __global__ void k() {}\n").text
    assert 'HOSTCUDA_ENTER("k", "", 0, static_cast<unsigned>(4));' in text
    assert "&k), 0, ::hostcuda::Dim3{static_cast<unsigned>(4)});" in text
    text = rewrite("__global__ void __cluster_dims__(4) k();\n__global__ void k() {}\n__global__ void l() {}\n").text
    assert 'HOSTCUDA_ENTER("k", "", 0, static_cast<unsigned>(4));' in text
    assert 'HOSTCUDA_ENTER("l", "", 0);' in text


def test_dimensions_of_clusters_in_a_macro_are_refused_with_their_line() -> None:
    found = rewrite("\n#define PAIRED __cluster_dims__(2)\n__global__ void PAIRED k() {}\n")
    assert found.not_emulated == (NotTranslated(line=2, construct="__cluster_dims__ in a macro"),)
    assert "__cluster_dims__" not in found.text


def test_a_launch_with_attributes_keeps_the_type_of_its_kernel() -> None:
    text = rewrite(
        "void f() { cudaLaunchKernelExC(&c, (const void*)k, a); cudaLaunchKernelExC(&c, (void*)&k, a); }\n"
    ).text
    assert "cudaLaunchKernelExC(&c, k, a); cudaLaunchKernelExC(&c, &k, a);" in text


def test_device_variables_are_registered_and_functions_are_not() -> None:
    text = rewrite("__constant__ float c[4];\nstatic __device__ int n = 3, m;\n__device__ float f(float x);\n").text
    assert '(&c, sizeof(c), "c")' in text
    assert '(&n, sizeof(n), "n")' in text
    assert '(&m, sizeof(m), "m")' in text
    assert text.count("SymbolRegistration") == 3


def test_comments_and_strings_are_left_alone() -> None:
    source = '// k<<<1, 2>>>(x);\nconst char* s = "k<<<1, 2>>>(x) __noinline__";\n/* __shared__ int a; */\n'
    assert rewrite(source).text == source


def test_an_empty_wait_gives_way() -> None:
    assert "poll_hint" in rewrite("__device__ void f(volatile int* p) { while (*p == 0); }").text
    assert "poll_hint" not in rewrite("__device__ void f(int n) { while (n > 0) { --n; } }").text


def test_a_cooperative_launch_keeps_the_type_of_its_kernel() -> None:
    calls = (
        "cudaLaunchCooperativeKernel((void*)k<float>, g, b, a); cudaLaunchKernel(reinterpret_cast<void*>(k), g, b, a);"
    )
    text = rewrite(f"void f() {{ {calls} }}").text
    assert "cudaLaunchCooperativeKernel(k<float>, g" in text
    assert "cudaLaunchKernel(k, g" in text


def test_ptx_that_cannot_be_emulated_is_found_with_its_line() -> None:
    found = rewrite('__device__ void f() {\n\n  asm volatile("wgmma.fence.sync.aligned;");\n}\n')
    assert [(f.line, "wgmma" in f.construct) for f in found.not_emulated] == [(3, True)]
    assert "not_emulated" in found.text


def test_only_subscripts_of_shared_arrays_are_freed_of_the_compilers_bounds() -> None:
    text = rewrite("__global__ void k() {\n __shared__ int a[2][2];\n int b[2];\n a[b[1]][3] = b[0];\n}").text
    freed = "::hostcuda::without_bounds("
    assert text.splitlines()[3] == f" {freed}{freed}a)[b[1]])[3] = b[0];"


FRAGMENTS = [
    "__global__ void k(float* x) {",
    "}",
    "k<<<1, 2>>>(x);",
    "__shared__ float s[4];",
    "<<<",
    ">>>",
    "__device__ int v;",
    "extern __shared__ int e[];",
    "\n#define M k<<<1,\\\n2>>>(x)\n",
    '"text',
    "/*",
    "*/",
    "é",
    "while (1);",
    'asm("bar.sync 0;");',
    "__launch_bounds__(",
    "(",
    ")",
    "\n",
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join))
def test_any_text_keeps_its_number_of_lines(source: str) -> None:
    assert rewrite(source).text.count("\n") == source.count("\n")


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


def test_shared_arrays_that_a_macro_declares_are_freed_of_the_compilers_bounds() -> None:
    source = (
        "#define ROW(T, name, n) __shared__ T name##_row[n], name[n]\n"
        "__global__ void k(float* x) {\n    ROW(float, mine, 4 * (2 + 2));\n    mine_row[0] = 1;\n    x[0] = 2;\n"
        "    mine[1] = 3;\n    row[1] = 4;\n}\n"
    )
    lines = rewrite(source).text.splitlines()
    assert [number for number, line in enumerate(lines, 1) if "without_bounds" in line] == [4, 6]


def test_a_macro_may_take_the_extents_of_the_shared_array_under_a_name() -> None:
    source = (
        "#define SMEM(T, name, d) __shared__ T name d\n#define SHAPE [2][3]\n"
        "__global__ void k() { SMEM(float, a, [4]); SMEM(float, b, SHAPE); __shared__ int c SHAPE; }\n"
    )
    lines = rewrite(source).text.splitlines()
    assert "typedef T hostcuda_t3_##name d;" in lines[0]
    assert "hostcuda_t3_##name& name =" in lines[0]
    assert "SMEM(float, b, [2][3]); typedef int hostcuda_t2 [2][3];" in lines[2]
    other = rewrite("#define SMEM(T, name) __shared__ T name\n__global__ void k() { SMEM(float, a); }").text
    assert "hostcuda_t2_##name& name =" in other, "no extents: the last word is the name"


def test_device_code_has_the_devices_heap() -> None:
    text = rewrite(
        "__global__ void k(A* a) { delete a; delete[] new B[2](); new (a) A; }\nvoid f() { delete new A; }"
    ).text
    assert (
        "::hostcuda::device_delete(a); ::hostcuda::device_delete_array(::new (::hostcuda::device_heap) B[2]());" in text
    )
    assert "new (a) A; }" in text
    assert text.endswith("void f() { delete new A; }")


def test_a_template_of_device_variables_is_found_with_its_line() -> None:
    source = "template <class T> __device__ T f(T x);\ntemplate <class T> __device__ T v = 1;\n"
    found = rewrite(source + "template <class T> __constant__ const T c = 1;\n").not_emulated
    assert [(finding.line, finding.construct) for finding in found] == [(2, "a template of device variables")]


def test_a_macro_may_take_the_extents_of_the_shared_array_that_it_declares() -> None:
    source = (
        "#define SMEM(T, name, ...) __shared__ T name __VA_ARGS__\n__global__ void k() { SMEM(float, a, [2][3]); }\n"
    )
    first = rewrite(source).text.splitlines()[0]
    assert "typedef T hostcuda_t2_##name __VA_ARGS__;" in first
    assert "HOSTCUDA_TEXT(name)" in first
    assert "hostcuda_t2_##name& name =" in first


def test_in_macros_and_functions_for_both_sides_the_heap_is_that_of_who_calls() -> None:
    source = (
        "#define MAKE(T, n) new T[n]\n#define DROP(p) do { \\\n  delete[] p; \\\n  free(p); } while (0)\n"
        "#define FIXED(T) T(const T&) = delete\n"
        "__host__ __device__ int* f() { return new int; }\nEITHER int* g() { return (int*)malloc(4); }\n"
        "int* h() { auto l = [=] __device__ (int n) { return new int[n]; }; return new int; }\n"
    )
    text = rewrite(source).text
    assert "#define MAKE(T, n) ::new (::hostcuda::callers_heap) T[n]\n" in text
    assert "::hostcuda::callers_delete_array(p); \\\n  ::hostcuda::callers_free(p); } while (0)\n" in text
    assert "#define FIXED(T) T(const T&) = delete\n" in text
    assert "int* f() { return ::new (::hostcuda::callers_heap) int; }" in text
    assert "return (int*)::hostcuda::callers_malloc(4);" in text
    assert "return ::new (::hostcuda::device_heap) int[n]; }; return new int; }" in text
    assert text.count("\n") == source.count("\n")


ASKS = "#ifdef __CUDA_ARCH__\n  return 1;\n#else\n  return 2;\n#endif\n"


def test_host_code_has_no_architecture() -> None:
    text = rewrite(
        "#if defined(__CUDA_ARCH__)\n#endif\nint f() {\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700\n"
        "#elif __CUDA_ARCH__\n#endif\n" + ASKS + "}\n"
    ).text
    asked = [line for line in text.splitlines() if line.startswith(("#if", "#elif"))]
    assert asked == [
        "#if defined(__CUDA_ARCH__)",
        "#if defined(hostcuda_no_architecture) && hostcuda_no_architecture >= 700",
        "#elif hostcuda_no_architecture",
        "#ifdef hostcuda_no_architecture",
    ]


@pytest.mark.parametrize(
    "head",
    [
        "__host__ __device__ int f()",
        "template <class T> __host__ __device__ auto f(T v) -> int",
        "constexpr int f()",
        "C10_HOST_DEVICE int f()",
        "__device__ int f();\nint f()",
        "#pragma clang force_cuda_host_device begin\nint f()",
    ],
)
def test_a_function_for_both_sides_is_there_twice(head: str) -> None:
    source = f"\n{head} {{\n{ASKS}}}\n__global__ void k() {{}}\n"
    text = rewrite(source).text
    assert text.count("#ifdef __CUDA_ARCH__\n") == text.count("#ifdef hostcuda_no_architecture\n") == 1
    number, numbers = 0, {}
    for line in text.splitlines():
        number = int(line.split()[1]) - 1 if line.startswith("#line") else number + 1
        numbers[line] = number
    lines = source.splitlines()
    assert all(numbers[line] == lines.index(line) + 1 for line in ("  return 1;", "  return 2;", "#endif"))
    assert numbers[next(line for line in numbers if "void k()" in line)] == len(lines)


@pytest.mark.parametrize(
    "source",
    [
        f"__device__ int f() {{\n{ASKS}}}\n",
        f"__global__ void k() {{\n{ASKS}}}\n",
        f"__host__ __device__ auto f() {{\n{ASKS}}}\n",
        f"__host__ __device__ int f() {{\nagain:\n{ASKS}}}\n",
        f"void g() {{ auto l = [] __host__ __device__ () {{\n{ASKS}}}; }}\n",
        "#ifdef __CUDA_ARCH__\n__host__ __device__ int f() { return 1; }\n#endif\n",
    ],
)
def test_where_two_versions_can_not_be_the_devices_stays(source: str) -> None:
    text = rewrite(source).text
    assert "hostcuda_no_architecture" not in text
    assert "__CUDA_ARCH__" in text


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
    assert edited in rewrite(f"__global__ void k(float x, int n, int* o) {{ {code} }}").text
    host = f"void f(float x, int n, int* o) {{ {code} }}"
    assert rewrite(host).text == host


def test_shifts_in_macros_are_written_so_unless_the_preprocessor_computes_with_them() -> None:
    macros = "#define MASK(n) ((1u << (n)) - 1)\n#define SIZE (1 << LOG)\n#define ALL SIZE\n#if ALL > 4\n#endif\n"
    text = rewrite(macros).text
    assert "((1u << ::hostcuda::shift << (n)) - 1)" in text
    assert "#define SIZE (1 << LOG)" in text

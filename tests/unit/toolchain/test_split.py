"""CUDA sources in two parts: what each compiler is given, what is refused, and that the machine code stays the same."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from harness.core.executables import find_nvcc
from harness.toolchain.split import flags, symbols
from harness.toolchain.split.parts import split
from harness.toolchain.split.stubs import Unsplittable
from tests.support import split_corpus

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")

SOURCE = """\
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

static __constant__ float weights[4];
__device__ int counter = 0;
constexpr int WIDTH = 3;
static int calls = 0;

__device__ __forceinline__ float twice(float x) { return 2 * x; }
struct Pair { float a, b; __device__ float sum() const { return a + b; } };

namespace {
template <typename T, int N, typename... More>
static __global__ void __launch_bounds__(128, 2) scale(const T* __restrict__ x, T* y, const int n, More... more) {
    y[threadIdx.x] = twice(x[threadIdx.x]) * weights[0];
}
}
extern "C" __global__ void plain(void) {}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    float held[4] = {1, 2, 3, 4};
    cudaMemcpyToSymbol(weights, held, sizeof(held));
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "run", ([&] {
        scale<scalar_t, 4><<<dim3(1, 2),
            32, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), 3);
    }));
    plain<<<1, 1>>>();
    ++calls;
    return y;
}
"""


def test_every_line_stays_where_it_stood() -> None:
    parts = split(SOURCE)
    for text in (parts.device, parts.host):
        assert text.count("\n") == SOURCE.count("\n")
    for word in ("twice(float x)", "WIDTH = 3", 'extern "C"'):
        at = SOURCE[: SOURCE.index(word)].count("\n")
        assert word in parts.device.split("\n")[at]


def test_the_device_part_holds_nothing_of_the_host() -> None:
    device = split(SOURCE).device
    assert not re.search(r"torch|at::|cudaMemcpyToSymbol|calls|<<<", device)
    assert all(
        word in device for word in ("twice(x[threadIdx.x])", "struct Pair", "__launch_bounds__(128, 2)", "counter")
    )


def test_the_host_part_holds_stubs_and_launches() -> None:
    host = split(SOURCE).host
    assert "threadIdx" not in host
    assert "<<<" not in host
    assert "twice" not in host  # a function of the device
    assert "cooperative_groups" not in host
    assert "(void)0 : scale<scalar_t, 4>(x.data_ptr<scalar_t>()" in host
    assert "&scale<T, N, More...>" in host
    assert "harness_split::passed<decltype(more)>..." in host


def test_both_parts_call_things_alike() -> None:
    parts = split(SOURCE)
    assert parts.variables == {"weights": True}  # the host names it; `counter` it does not
    for text in (parts.device, parts.host):
        assert "static __constant__" not in text  # else each part would have one of its own
        assert "static __global__" not in text
        assert "inline namespace harness_unnamed {" in text
    assert parts.templates


def test_a_kernels_parameters_are_named() -> None:
    host = split("__global__ void k(float*, int n, int) {}").host
    assert "k(float* harness_p0, int n, int harness_p2)" in host


def test_an_initialiser_is_the_devices_own() -> None:
    source = "__device__ int f(int);\n__device__ int (*table[])(int) = {\n f,\n f};\n__global__ void k() {}"
    parts = split(source)
    assert "(*table[2])(int)" in parts.host
    assert "= {" in parts.device
    assert parts.host.count("\n") == source.count("\n")


KERNEL = "__global__ void k(int* x) {}\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("int f() { return 1; }", "no kernels found"),
        (KERNEL + "#define RUN(x) k<<<1, 1>>>(x)\nvoid f(int* x) { RUN(x); }", "a macro that contains CUDA syntax"),
        ("#define DEVICE __device__\n" + KERNEL, "a macro that contains CUDA syntax"),
        (KERNEL + "#ifdef __CUDACC__\nint a;\n#endif", "__CUDACC__ distinguishes compilers"),
        (KERNEL + "#if TORCH_VERSION_MAJOR > 1\nint a;\n#endif", "#if depends on torch's macro TORCH_VERSION_MAJOR"),
        (KERNEL + "__managed__ int x;", "managed memory"),
        (KERNEL + "struct S { friend __global__ void j(S* s) {} };", "1 kernels in an unsupported form"),
        (KERNEL + "extern __device__ int x;", "a device variable that is a template or is defined elsewhere"),
        (KERNEL + "void f() { auto g = [] __device__ (int i) { return i; }; }", "__device__ in a host function"),
        (KERNEL + "#include <cub/cub.cuh>\n", "<cub/cub.cuh>, which brings its own kernels"),
        (KERNEL + '#include "mine.cuh"\n', "the author's own header"),
        ("__global__ void k(int* x) { k<<<1, 1>>>(x); }", "1 kernel launches outside of host functions"),
        (KERNEL + "__constant__ const int c = 1;\nvoid f() { int d = c; }", "a constant device variable"),
    ],
)
def test_what_is_left_to_the_ordinary_build(source: str, why: str) -> None:
    with pytest.raises(Unsplittable, match=re.escape(why)):
        split(source)


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(Unsplittable, match=r"^line 2: managed memory"):
        split(KERNEL + "__managed__ int x;")


def test_words_in_comments_and_texts_are_no_code() -> None:
    split(KERNEL + '// __CUDACC__ k<<<1, 1>>>()\nconst char* text = "k<<<1, 1>>>() __NVCC__";')


# -- flags -----------------------------------------------------------------------------------------------------


def test_what_nvcc_hands_to_the_hosts_compiler() -> None:
    given = [
        "-DA=1",
        "-I",
        "x",
        "-O3",
        "--use_fast_math",
        "-gencode=arch=compute_90,code=sm_90",
        "-lineinfo",
        "-Xptxas",
    ]
    given += ["-v", "--compiler-options", "'-fPIC'", "-Xcompiler=-Wall,-fopenmp", "-std=c++20", "-maxrregcount", "64"]
    assert flags.for_host(given) == ["-DA=1", "-I", "x", "-O3", "-fPIC", "-Wall", "-fopenmp", "-std=c++20"]


@pytest.mark.parametrize("flag", ["-rdc=true", "-dc", "-G", "--default-stream=per-thread", "-ccbin", "-include", "@f"])
def test_flags_that_might_matter(flag: str) -> None:
    with pytest.raises(flags.UnknownFlag, match=re.escape(flag)):
        flags.for_host([flag, "x"])


@pytest.mark.parametrize("named", ["gcc", "g++", "folder"])
def test_a_host_compiler_that_is_the_same_one_is_fine(named: str, tmp_path: Path) -> None:
    """torch names it to nvcc where CC or CXX is set."""
    for name in ("gcc", "g++", "clang++", "g++-11"):
        (tmp_path / name).touch(mode=0o755)
    chosen = str(tmp_path if named == "folder" else tmp_path / named)
    assert flags.for_host(["-ccbin", chosen, "-O2"], str(tmp_path / "g++")) == ["-O2"]
    assert flags.for_host([f"--compiler-bindir={chosen}", "-O2"], str(tmp_path / "g++")) == ["-O2"]


@pytest.mark.parametrize("named", ["clang++", "g++-11", "elsewhere/g++"])
def test_another_host_compiler_is_not(named: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("g++", "clang++", "g++-11", "elsewhere/g++"):
        (tmp_path / name).touch(mode=0o755)
    with pytest.raises(flags.UnknownFlag, match="host compiler"):
        flags.for_host(["-ccbin", str(tmp_path / named)], str(tmp_path / "g++"))


def test_the_device_part_goes_without_torchs_folders() -> None:
    given = ["-isystem", "/torch", "-isystem", "/cuda", "-O2"]
    assert flags.for_device(given, ["/torch"]) == ["-isystem", "/cuda", "-O2"]


# -- symbols ---------------------------------------------------------------------------------------------------

LISTING = """\
0000000000000000 T _Z1kPf
0000000000000010 b _ZZ1kPfE14harness_kernel
0000000000000018 b _ZGVZ1kPfE14harness_kernel
0000000000000000 W _Z5scaleIfLi4EEvPKT_
0000000000000000 u _ZZ5scaleIfLi4EEvPKT_E14harness_kernel
0000000000000000 T plain
0000000000000020 b _ZZ5plainE14harness_kernel
0000000000000000 0000000000000010 B weights
0000000000000010 0000000000000004 D _ZN4deep7counterE
                 U cudaLaunchKernel
"""


def test_which_kernels_an_object_launches() -> None:
    assert symbols.kernels_in(LISTING) == ["_Z1kPf", "plain", "_Z5scaleIfLi4EEvPKT_"]


def test_which_variables_an_object_shares() -> None:
    found = symbols.variables_in(LISTING, {"weights": True, "counter": False})
    assert found == [
        symbols.Symbol(name="weights", bytes=16, constant=True),
        symbols.Symbol(name="_ZN4deep7counterE", bytes=4),
    ]
    with pytest.raises(LookupError, match="0 variables named absent"):
        symbols.variables_in(LISTING, {"absent": False})


def test_no_name_makes_the_search_for_templates_slow() -> None:
    """Names are a submission's: one of 5,000 characters took two seconds, twice as long a one eight times that."""
    started = time.process_time()
    assert symbols.instances(["void " + "<>(" * 100_000]) == ""
    assert time.process_time() - started < 5


def test_instances_of_templates_are_asked_for() -> None:
    told = symbols.instances(["k(float*)", "void scale<float, 4>(float const*)", "plain"])
    assert told == "template __global__ void scale<float, 4>(float const*);\n"


# -- compiled --------------------------------------------------------------------------------------------------


@needs_nvcc
@pytest.mark.parametrize(
    "name",
    ["matmul_tiled", "reduce_shuffle", "cg_reduce", "constant_polynomial", "function_pointers", "device_symbols"],
)
def test_the_machine_code_is_the_same(name: str, tmp_path: Path) -> None:
    source = next(item for item in split_corpus.sources() if item.name == name)
    comparison = split_corpus.Comparison(tmp_path, "sm_90")
    comparison.build(source, tmp_path)
    in_parts, whole = comparison.code(source, tmp_path)
    assert whole
    assert in_parts == whole


@needs_nvcc
def test_lines_are_the_sources_own(tmp_path: Path) -> None:
    """compute-sanitizer names them. A cubin's table of lines holds the file's name and no other."""
    text = "// a\n// b\n__global__ void k(float* x) {\n  x[0] = 1;\n}\nvoid f(float* x) {\n  k<<<1, 1>>>(x);\n}\n"
    source = split_corpus.Source(name="lines", text=text, torch=False)
    comparison = split_corpus.Comparison(tmp_path, "sm_90")
    comparison.build(source, tmp_path)
    comparison.code(source, tmp_path)
    dumps = []
    for name in ("device.cubin", "cuda.cubin"):
        command = ["readelf", "--debug-dump=decodedline", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = re.findall(r"^(\S+)\s+(\d+)\s+0x?[0-9a-f]+", done.stdout, re.MULTILINE)
        dumps.append([(file, line) for file, line in lines])
    assert dumps[0] == dumps[1]
    assert ("cuda.cu", "4") in dumps[1]


@needs_nvcc
def test_kernels_that_differ_are_told_apart(tmp_path: Path) -> None:
    """The comparison itself: another constant is other code."""
    codes = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"__global__ void k(float* x) {{ x[0] = {number}; }}\nvoid f(float* x) {{ k<<<1, 1>>>(x); }}\n"
        source = split_corpus.Source(name="k", text=text, torch=False)
        comparison = split_corpus.Comparison(folder, "sm_90")
        comparison.build(source, folder)
        codes.append(comparison.code(source, folder)[0])
    assert codes[0] != codes[1]


@pytest.mark.gpu
def test_kernels_in_two_parts_answer_right_on_a_gpu() -> None:
    """The whole corpus of `tests/hostcuda`, each entry linked with its driver, run and judged."""
    assert split_corpus.main(["--run"]) == 0

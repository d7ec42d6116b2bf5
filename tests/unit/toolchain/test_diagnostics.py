"""Compiler output as g++ 12.2 and nvcc 13.0 really write it, read into one error and the resources of kernels."""

from __future__ import annotations

import time

import pytest

from harness.toolchain import CompilerError, Diagnostics, ExtensionSpec
from harness.toolchain.diagnostics import (
    SourceMap,
    first_error,
    kernel_name,
    kernel_resources,
    not_emulated,
    own_fault,
    undefined_symbol,
)
from harness.toolchain.nvcc_toolchain import NvccToolchain
from harness.toolchain.units import units_of

CUDA = """
#include <vector>
__global__ void k(float* p) {
  p[threadIdx.x] = undefined_name;
}
"""
CPP = "torch::Tensor f(torch::Tensor x);"
SPEC = ExtensionSpec(
    name="ext", cpp_sources=(CPP, "int g();"), cuda_sources=("// first", CUDA), functions=(("f", "f"),)
)
MAPS = [unit.map for unit in units_of(SPEC)]
SOLUTION = f'import torch\n\nfirst = "// first"\nsource = """{CUDA}"""\n'


def error(log: str, solution: str | None = None) -> CompilerError:
    found = first_error(log, MAPS, solution)
    assert found is not None
    return found


def test_the_written_files_are_torchs() -> None:
    main, cuda = units_of(SPEC)
    assert main.text == (
        "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x);\nint g();\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\nm.def("f", torch::wrap_pybind_function(f), "f");\n}'
    )
    assert cuda.text == f"#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n// first\n{CUDA}"


def test_an_nvcc_error_is_placed_in_the_source_and_the_solution() -> None:
    found = error(
        'cuda.cu(8): error: identifier "undefined_name" is undefined\n    p[threadIdx.x] = undefined_name;\n',
        SOLUTION,
    )
    assert (found.tool, found.file, found.line, found.solution_line) == ("nvcc", "cuda source 2", 4, 7)
    assert found.text == "p[threadIdx.x] = undefined_name;"
    assert SOLUTION.split("\n")[6].strip() == found.text
    assert found.sentence() == (
        'cuda source 2, line 4 (line 7 of the solution): identifier "undefined_name" is undefined'
    )


@pytest.mark.parametrize("line", ["/tmp/build/cuda.cu(8): error #20: no", "cuda.cu(8): catastrophic error: no"])
def test_other_forms_of_nvcc(line: str) -> None:
    assert (error(line).line, error(line).message) == (4, "no")


def test_a_line_that_stands_once_is_found_though_the_text_does_not() -> None:
    solution = f"parts = [\n  '''{CUDA.replace('#include <vector>', '#include {}')}'''\n]"
    found = error('cuda.cu(8): error: identifier "undefined_name" is undefined', solution)
    assert found.solution_line == 5
    assert error('cuda.cu(8): error: identifier "undefined_name" is undefined', solution * 2).solution_line is None


def test_a_gxx_error_in_the_second_source() -> None:
    found = error("main.cpp:3:5: error: expected initializer before 'int'\n    3 | int g();\n")
    assert (found.tool, found.file, found.line, found.text) == ("g++", "cpp source 2", 1, "int g();")


def test_a_function_that_is_bound_but_not_declared() -> None:
    found = error("main.cpp:5:46: error: 'f' was not declared in this scope; did you mean 'ff'?")
    assert (found.file, found.line) == ("generated bindings", 2)


def test_an_error_inside_a_header_is_placed_where_the_source_causes_it() -> None:
    log = """In file included from /usr/include/c++/12/bits/stl_algobase.h:71,
                 from main.cpp:1:
/usr/include/c++/12/bits/predefined_ops.h: In instantiation of 'constexpr bool operator()(_Iterator1, _Iterator2)':
/usr/include/c++/12/bits/stl_algo.h:1809:14:   required from 'void std::__insertion_sort(_RandomAccessIterator)'
/usr/include/c++/12/bits/stl_algo.h:4820:18:   required from 'void std::sort(_RAIter, _RAIter)'
main.cpp:2:39:   required from here
/usr/include/c++/12/bits/predefined_ops.h:45:23: error: no match for 'operator<' (operand types are 'A' and 'A')
   45 |       { return *__it1 < *__it2; }
"""
    found = error(log)
    assert (found.file, found.line) == ("cpp source 1", 1)
    assert found.message == "no match for 'operator<' (operand types are 'A' and 'A')"
    log = """/usr/include/c++/12/bits/stl_algo.h(1809): error: no operator "<" matches these operands
          detected during:
            instantiation of "void std::sort(T)" at line 4820
            instantiation of "void std::sort(T)" at line 8 of cuda.cu
"""
    assert (error(log).file, error(log).line) == ("cuda source 2", 4)


def test_an_error_in_a_header_with_no_source_to_blame() -> None:
    found = error("/usr/include/thing.h:45:23: error: no")
    assert (found.file, found.line, found.solution_line) == ("/usr/include/thing.h", 45, None)


OTHERS = {
    "main.cpp:2:10: fatal error: missing.h: No such file or directory": ("g++", "missing.h: No such file or directory"),
    "g++-13: error: unrecognized command-line option '-fother'": ("g++", "unrecognized command-line option '-fother'"),
    "x86_64-conda-linux-gnu-c++: fatal error: no input files": ("g++", "no input files"),
    "g++-real: fatal error: Killed signal terminated program cc1plus": (
        "g++",
        "Killed signal terminated program cc1plus",
    ),
    "g++: error: unrecognized command-line option '-fno-such'": ("g++", "unrecognized command-line option '-fno-such'"),
    "nvcc fatal   : Unsupported gpu architecture 'sm_10'": ("nvcc", "Unsupported gpu architecture 'sm_10'"),
    "ptxas error   : Entry function '_Z3bigIfEvPT_' uses too much shared data (0x13880 bytes, 0xc000 max)": (
        "ptxas",
        "Entry function 'big' uses too much shared data (0x13880 bytes, 0xc000 max)",
    ),
    "ptxas /tmp/tmpxft_00006fc7-6_p.ptx, line 21; error   : Unknown modifier '.instr'": (
        "ptxas",
        "Unknown modifier '.instr'",
    ),
    "/usr/bin/ld: cannot find -lnosuch: No such file or directory\ncollect2: error: ld returned 1 exit status": (
        "linker",
        "cannot find -lnosuch: No such file or directory",
    ),
    "main.o: in function `f':\nmain.cpp:(.text+0x5): undefined reference to `u()'": (
        "linker",
        "undefined reference to `u()'",
    ),
    "ninja: error: '.harness/build.ninja:3: bad $-escape'": ("ninja", "'.harness/build.ninja:3: bad $-escape'"),
    "/bin/sh: 1: Syntax error: Unterminated quoted string\nninja: build stopped: subcommand failed.": (
        "shell",
        "Syntax error: Unterminated quoted string",
    ),
}


@pytest.mark.parametrize("log", OTHERS)
def test_errors_without_a_line_of_the_source(log: str) -> None:
    assert (error(log).tool, error(log).message) == OTHERS[log]


def test_what_the_build_says_itself_is_no_error() -> None:
    log = """[1/3] sh .harness/try_lean.sh cuda.cu cuda.cuda.o nvcc
[harness] lean headers did not suffice for cuda.cu, which starts over with the full ones; the first error was:
[harness]   cuda.cu(5): error: identifier "missing" is undefined
cuda.cu(7): warning #177-D: variable "y" was declared but never referenced
main.cpp:3:5: warning: unused variable 'error' [-Wunused]
"""
    assert first_error(log, MAPS) is None


def test_a_hostile_log_is_bounded() -> None:
    found = error(f"cuda.cu({'9' * 5000}): error: {'x' * 100_000}")
    assert len(found.message) <= 400
    assert (found.line or 0) < 10**9
    many = "".join(f"ptxas info    : Compiling entry function '_Z1kPf{n}' for 'sm_90'\n" for n in range(5000))
    assert len(kernel_resources(many)) == 256


PTXAS = """ptxas info    : 28 bytes gmem
ptxas info    : Compiling entry function '_Z3bigIfEvPT_' for 'sm_90'
ptxas info    : Function properties for _Z3bigIfEvPT_
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 16 bytes cumulative stack size, 8000 bytes smem
ptxas info    : Compile time = 3.914 ms
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90'
ptxas info    : Function properties for _Z1kPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 368 bytes cmem[0]
"""


def test_resources_of_each_kernel() -> None:
    big, small = kernel_resources(PTXAS)
    assert (big.kernel, big.arch, big.registers, big.shared_bytes, big.barriers) == ("big", "sm_90", 12, 8000, 1)
    assert (big.stack_bytes, big.spill_stores_bytes, big.spill_loads_bytes) == (16, 8, 4)
    assert (small.kernel, small.registers, small.shared_bytes, small.stack_bytes) == ("k", 8, 0, 0)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z15matrixMulKernelPKfS0_Pfiii", "matrixMulKernel"),
        ("_Z6kernelIfLi32EEvPT_", "kernel"),
        ("_ZN3foo3barIfEEvPT_", "bar"),
        ("_ZN41_GLOBAL__N__18c7c5f8_7_cuda_cu_a47d2b62_106kernelEPf", "kernel"),
        ("plain_c_name", "plain_c_name"),
        ("_Z", "_Z"),
        ("_Z999short", "_Z999short"),
    ],
)
def test_names_of_kernels(symbol: str, name: str) -> None:
    assert kernel_name(symbol) == name


def test_a_fault_of_the_harness_among_the_compilers() -> None:
    log = """cuda.cu:3: note: not emulated: textures
Traceback (most recent call last):
  File "/somewhere/harness/hostcuda/compile.py", line 59, in main
    rewritten = rewrite(cuda)
                ^^^^^^^^^^^^^
UnboundLocalError: cannot access local variable
ninja: build stopped
"""
    assert own_fault(log) == "UnboundLocalError: cannot access local variable"
    assert own_fault(log.replace("/harness/", "/elsewhere/")) is None
    assert own_fault("Traceback (most recent call last):\n" * 10_000) is None


def test_undefined_symbols() -> None:
    message = "module.so: undefined symbol: f(at::Tensor, at::Tensor)"
    assert undefined_symbol(message) == "f(at::Tensor, at::Tensor)"
    assert undefined_symbol("libcudart.so.13: cannot open shared object file") is None


def test_json_gives_the_same_diagnostics_back() -> None:
    held = Diagnostics(error=error("cuda.cu(8): error: no", SOLUTION), kernels=kernel_resources(PTXAS))
    assert Diagnostics.from_json(held.to_json()) == held


def test_lines_of_a_map() -> None:
    source = SourceMap(file="x", parts=(("a", "1\n2", 3), ("b", "3", 5)))
    assert [source.locate(line) for line in (2, 3, 4, 5, 6)] == [
        None,
        ("a", 1, "1"),
        ("a", 2, "2"),
        ("b", 1, "3"),
        None,
    ]


COMPILING = "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"


@pytest.mark.parametrize(
    "log",
    [
        COMPILING + "1" * 4_000_000 + "\n",
        COMPILING + "1" * 4_000_000 + " bytes smem\n",
        (COMPILING + "1" * 15_000 + "\n") * 250,
        "cuda.cu(1): " * 300_000,
        "undefined reference " * 200_000,
        ("undefined reference " * 200 + "\n") * 1000,
        "ptxas " + " " * 4_000_000,
        "\n" * 4_000_000,
        "a: \n" * 1_000_000,
        "cuda.cu(1): error: _Z" + "N" + "1a" * 1_000_000,
    ],
    ids=lambda log: log[-20:].strip()[:20],
)
def test_a_hostile_log_is_read_in_time_that_grows_with_it_alone(log: str) -> None:
    """A line of digits once took the conductor longer the longer it was, and squared: this ends, or it does not."""
    begin = time.process_time()
    first_error(log, MAPS)
    kernel_resources(log)
    not_emulated(log, MAPS)
    own_fault(log)
    assert time.process_time() - begin < 12  # four million lines that say nothing took 23 s


def test_a_hostile_symbol_is_read_in_such_time_too() -> None:
    assert kernel_name("_ZN" + "1a" * 1_000_000) == "a"
    assert kernel_name("_ZNK" + "K" * 1_000_000 + "1ab") == "a"


def test_kernels_of_a_log_count_where_nvcc_ran_alone() -> None:
    text = COMPILING + "ptxas info    : Used 255 registers\n"
    assert [held.registers for held in kernel_resources(text)] == [255]
    toolchain = NvccToolchain.__new__(NvccToolchain)
    plain = ExtensionSpec(name="m", cpp_sources=("int f() { return 1; }",), functions=(("f", "f"),))
    assert toolchain.interpret(plain, text).kernels == ()
    cuda = ExtensionSpec(name="m", cuda_sources=("int f() { return 1; }",), functions=(("f", "f"),))
    assert len(toolchain.interpret(cuda, text).kernels) == 1

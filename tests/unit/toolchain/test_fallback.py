"""Which errors torch's full headers might mend: what isn't sure is compiled once more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.toolchain.headers import fallback
from harness.toolchain.headers.fallback import OWN_FAULT, first_error, own_fault

SOURCE = """\
#include <torch/extension.h>
#define TILE 16
__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * TILE + threadIdx.x
  y[idx] = x[i] * scale;
  my_odd_dict.insert(i);
  float4 w = v * 2.0f;
  total = sum(x) + static_cast<uint>(n);
  half* h = nullptr;
}
void C10_UNUSED g(torch::Tensor t) { k<<<1, 1>>>(t.data_ptr<float>(), 3); }
"""

WORDS = {
    "idx",
    "scale",
    "sum",
    "uint",
    "half",
    "option",
    "their_helper",
    "tensor",
    "softmax",
    "var",
    "OrderedDict",
    "List",
    "total",
    "known",
}
MACROS = {"C10_UNUSED", "scale"}
FILES = {"there.h", "ATen/ops/softmax.h", "ATen/ops/var.h"}


def own(log: str, text: str = SOURCE) -> bool:
    return own_fault(log, "cuda.cu", text, stands=(WORDS | MACROS | FILES).__contains__, macro=MACROS.__contains__)


@pytest.mark.parametrize(
    "error",
    [
        'cuda.cu(5): error: expected a ";"',
        "cuda.cu:5:3: error: expected ',' or ';' before 'y'",
        "cuda.cu:5:3: error: expected \u2018,\u2019 or \u2018;\u2019 before \u2018y\u2019",
        'cuda.cu(6): error: identifier "my_odd_dict" is undefined',  # in no header
        'cuda.cu(5): error: identifier "idx" is undefined',  # in headers, but a variable
        "cuda.cu:5:5: error: 'idx' was not declared in this scope; did you mean 'hostcuda::idx'?",
        'cuda.cu(7): error: no operator "*" matches these operands\n'
        "            operand types are: float4 * float\n    float4 w = v * 2.0f;\n                 ^",
        "cuda.cu:7:16: error: no match for 'operator*' (operand types are 'float4' and 'float')",
        'cuda.cu(8): error: no instance of overloaded function "atomicAdd" matches the argument list\n'
        "            argument types are: (short *, short)\n",
        'cuda.cu(5): error: a value of type "int" cannot be used to initialize an entity of type "float *"',
        'cuda.cu(5): error: argument of type "int" is incompatible with parameter of type "float *"',
        'cuda.cu(5): error: no suitable conversion function from "at::Tensor" to "const float *" exists',
        "cuda.cu:5:5: error: cannot convert 'const at::Tensor' to 'const float*'",
        "cuda.cu:5:5: error: could not convert '{y, n}' from '<brace-enclosed initializer list>' to 'at::Tensor'",
        'cuda.cu(5): error: calling a __host__ function("act(float)") from a __global__ function("k") is not allowed',
        'cuda.cu(5): error: calling a __host__ function("std::max") from a __global__ function("k") is not allowed',
        'cuda.cu(5): error: class "at::Tensor" has no member "option"',
        "cuda.cu:5:5: error: 'class at::Tensor' has no member named 'option'; did you mean 'options'?",
        "cuda.cu:5:5: error: 'using Tensor = class at::Tensor' {aka 'class at::Tensor'} has no member named 'option'",
        "cuda.cu:5:5: error: 'nobodys_name' is not a member of 'torch'",
        "cuda.cu(5): error: too few arguments in function call\n    k(x);\n        ^",
        'cuda.cu(5): error: function "k" has already been defined (previous definition at line 3)',
        "cuda.cu:5:17: error: redefinition of 'void k(int)'\ncuda.cu:3:17: note: 'void k(int)' previously defined here",
        "cuda.cu:5:9: error: conflicting declaration 'double s []'\n"
        "cuda.cu:5:9: note: previous declaration as 'float s []'",
        "ptxas error   : Entry function '_Z1kv' uses too much shared data (0x13880 bytes, 0xc000 max)",
        "cuda.cu:3:10: fatal error: nowhere.h: No such file or directory",
        'cuda.cu(3): catastrophic error: cannot open source file "nowhere.h"',
    ],
)
def test_what_would_be_there_with_all_headers(error: str) -> None:
    assert own(f"nvcc -c cuda.cu\n{error}\n1 error detected\n")


@pytest.mark.parametrize(
    "error",
    [
        "",
        "nvcc fatal   : something else",
        'cuda.cu(6): error: namespace "torch" has no member "OrderedDict"\n\n'
        'cuda.cu(6): error: identifier "my_odd_dict" is undefined',  # since its type is not known
        "cuda.cu:6:3: error: 'List' is not a member of 'c10'\n"
        "cuda.cu:6:9: error: 'my_odd_dict' was not declared in this scope",
        'cuda.cu(5): error: identifier "scale" is undefined',  # a macro of theirs
        'cuda.cu(8): error: identifier "sum" is undefined',  # found by its arguments
        'cuda.cu(8): error: identifier "uint" is undefined',  # a type
        'cuda.cu(9): error: identifier "half" is undefined',
        'cuda.cu(11): error: expected a ";"',  # behind a macro of theirs
        'cuda.cu(10): error: expected a ";"',  # in front of one
        'torch/include/c10/util/x.h(5): error: expected a ";"',  # not the author's file
        'cuda.cu(5): error: class "c10::IValue" has no member "option"',
        'cuda.cu(5): error: class "c10::ArrayRef<at::Tensor>" has no member "option"',
        'cuda.cu(5): error: no operator "*" matches these operands\n            operand types are: c10::Half * float',
        'cuda.cu(5): error: no operator "*" matches these operands\n      operand types are: <error-type> * float',
        'cuda.cu(5): error: no instance of overloaded function "torch::var" matches the argument list\n'
        "            argument types are: (at::Tensor, int)",  # there is one more in another header
        'cuda.cu(5): error: no instance of overloaded function "torch::tensor" matches the argument list\n'
        "            argument types are: (int)",
        'cuda.cu(5): error: no instance of overloaded function "torch::softmax" matches the argument list',
        'cuda.cu(5): error: no instance of overloaded function "torch::softmax" matches the argument list\n'
        "            argument types are: (at::Tensor, at::indexing::Slice)",
        "cuda.cu:5:5: error: no matching function for call to 'softmax(at::Tensor&, c10::List<long int>)'",
        "cuda.cu:5:5: error: no matching function for call to 'their_helper(at::Tensor&)'",
        "cuda.cu:5:5: error: no matching function for call to 'at::Tensor::index(c10::List<long int>)'",
        'cuda.cu(5): error: no instance of overloaded function "at::Tensor::index" matches the argument list\n'
        "            argument types are: ({...}, at::indexing::Slice)\n            object type is: at::Tensor",
        "cuda.cu:5:5: error: too few arguments to function 'at::Tensor at::matmul(const Tensor&, const Tensor&)'",
        "cuda.cu(5): error: too few arguments in function call\n    torch::matmul(y);\n",
        'cuda.cu(5): error: calling a __host__ function("c10::f") from a __global__ function("k") is not allowed',
        'cuda.cu(5): error: argument of type "std::string" is incompatible with parameter of type "int64_t"',
        "cuda.cu:5:17: error: redefinition of 'void k(int)'\nlean.h:3:17: note: 'void k(int)' previously defined here",
        "cuda.cu:5:9: error: conflicting declaration 'double s []'\n"
        "lean.h:5:9: note: previous declaration as 'float s []'",
        'cuda.cu(5): error: function "k" has already been defined (previous definition at line 3 of "lean/x.h")',
        "cuda.cu:3:10: fatal error: there.h: No such file or directory",
    ],
)
def test_what_they_might_mend(error: str) -> None:
    assert not own(f"nvcc -c cuda.cu\n{error}\n1 error detected\n")


def test_names_of_an_open_namespace_may_be_anywhere() -> None:
    log = 'cuda.cu(5): error: identifier "idx" is undefined\n'
    assert own(log)
    assert not own(log, SOURCE.replace("__global__", "using namespace torch; __global__"))


def test_of_several_errors_the_first_is_looked_at() -> None:
    error = first_error(
        'cuda.cu(4): warning #177-D: unused\n\ncuda.cu(5): error: expected a ";"\n    y[i]\n    ^\n\nx.h(7): error: z\n'
    )
    assert error is not None
    assert (error.file, error.line, error.message) == ("cuda.cu", 5, 'expected a ";"')
    assert error.details == ("    y[i]", "    ^", "")


def test_as_a_program_it_needs_nothing_of_ours(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "torch.h").write_text("namespace torch { int known(int); }\n#  define C10_MACRO\n")
    (tmp_path / "cuda.cu").write_text("int a\nC10_MACRO int b;\n\n\nint c\nint d;\n")
    log = tmp_path / "log"

    def asked(said: str) -> int:
        log.write_text(said)
        command = [sys.executable, "-I", fallback.__file__, str(log), "cuda.cu", str(headers)]
        return subprocess.run(command, cwd=tmp_path, check=False).returncode

    assert asked('cuda.cu(6): error: expected a ";"\n') == OWN_FAULT
    assert asked('cuda.cu(2): error: expected a ";"\n') == 0
    assert asked('cuda.cu(5): error: namespace "torch" has no member "nobodys"\n') == OWN_FAULT
    assert asked('cuda.cu(5): error: namespace "torch" has no member "known"\n') == 0
    assert asked("cuda.cu:1:1: fatal error: torch.h: No such file or directory\n") == 0
    log.unlink()
    command = [sys.executable, "-I", fallback.__file__, str(log), "cuda.cu", str(headers)]
    done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode not in (0, OWN_FAULT), "and what goes wrong is no answer"


@pytest.mark.parametrize("text", ["a" * 2_000_000, "'" * 500_000, "error: " * 200_000, "x.cu(1): " * 100_000])
def test_no_log_makes_it_slow(text: str) -> None:
    assert not own(text)

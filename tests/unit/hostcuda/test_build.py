"""Builds for the host device: command lines, what compiling leaves behind, and the way back to torch's full headers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.subprocesses import CommandPool
from harness.hostcuda.translate import build, kinds, preparation
from harness.hostcuda.translate import compile as compiling
from harness.hostcuda.translate.kinds import Precompiled
from tests.support.hostcuda_loader import declarations_of
from tests.support.paths import ROOT

KERNEL = "__global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }\n"
LAUNCH = "k<<<1, 4>>>(x.data_ptr<float>());"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    name: str
    cuda_sources: tuple[str, ...]
    cpp_sources: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def headers() -> build.PreparedHeaders:
    return build.prepare_headers()


def spec_of(source: str, functions: Sequence[str] = ("f",), **options: Any) -> Spec:
    """The specification of a source, with declarations of its functions for `cpp_sources`."""
    return Spec(
        name="m",
        cuda_sources=(source,),
        cpp_sources=(declarations_of(source, functions),),
        functions=tuple(functions),
        **options,
    )


def run(commands: Sequence[Sequence[str]], folder: Path) -> tuple[int, str]:
    log = ""
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        log += done.stdout + done.stderr
        if done.returncode != 0:
            return done.returncode, log
    return 0, log


def test_prepare_writes_only_into_its_folder_and_parses_nothing(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    spec = spec_of("not C++ at all <<<")
    commands = build.prepare(spec, tmp_path / "b", checked=True, headers=headers)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["job.json"]
    job = json.loads((tmp_path / "b" / "job.json").read_text())
    assert job["functions"] == {"f": "f"}
    assert all(isinstance(word, str) for command in commands for word in command)


def test_an_error_has_the_line_of_the_solution(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    source = KERNEL + "\n__global__ void broken(float* x) {\n  x[0] = undeclared;\n}\nvoid f() {}\n"
    commands = build.prepare(spec_of(source), tmp_path, checked=True, headers=headers)
    code, log = run(commands, tmp_path)
    error = build.interpret(log)
    assert code != 0
    assert error is not None
    assert (error.file, error.line) == ("cuda.cu", 4)
    assert "undeclared" in error.message


@pytest.mark.parametrize(("depth", "built"), [(3_000, True), (60_000, False)])
def test_a_source_that_nests_deeply_is_the_authors(
    headers: build.PreparedHeaders, tmp_path: Path, depth: int, built: bool
) -> None:
    deep = f"__global__ void k(float* x) {{ x[0] = {'(' * depth}1.0f{')' * depth}; }}\nvoid f() {{}}\n"
    spec = spec_of(deep)
    code, log = run(build.prepare(spec, tmp_path, checked=True, headers=headers), tmp_path)
    assert (code == 0) is built, log[-2000:]
    if not built:
        error = build.interpret(log)
        assert error is not None
        assert (error.file, error.message) == (
            "cuda.cu",
            "the source nests too deeply to be translated for the CPU",
        )


def test_what_is_built_to_be_imported_goes_with_the_process_and_not_with_its_children(tmp_path: Path) -> None:
    script = """
import os, tempfile
from tests.support.hostcuda_loader import CompileError, load
try:
    load("no CUDA at all")
except CompileError:
    if os.fork() == 0:
        raise SystemExit
    os.wait()
    print(len(os.listdir(tempfile.gettempdir())))
"""
    own = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


HOST_HELPER = "inline float act(float v) { return v; }\n"


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (
            HOST_HELPER + "__global__ void k(float* x) { x[0] = act(x[1]); }\n",
            2,
            'calling a __host__ function("act") from a __global__ function("k") is not allowed',
        ),
        (
            HOST_HELPER.replace("act", "sigmoid") + "__global__ void k(float* x) { x[0] = sigmoid(x[1]); }\n",
            2,
            'calling a __host__ function("sigmoid") from a __global__ function("k") is not allowed',
        ),
        (
            HOST_HELPER.replace("act", "helper") + "__global__ void k(float* x) { x[0] = helper(x[1]); }\n",
            2,
            'calling a __host__ function("helper") from a __global__ function("k") is not allowed',
        ),
        (
            "__global__ void a(float* x) { extern __shared__ float s[]; x[0] = s[0]; }\n"
            "__global__ void b(double* x) { extern __shared__ double s[]; x[0] = s[0]; }\n",
            2,
            'declaration is incompatible with previous "s" (declared at line 1)',
        ),
        (
            "__global__ void k(float* x, int n) {\n  float held[n];\n  x[0] = held[0];\n}\n",
            2,
            "expression must have a constant value",
        ),
        (
            "template <class T> __global__ void k(T* x) {\n  extern __shared__ T s[];\n  x[0] = s[0];\n}\n"
            "void g(float* x, double* y) { k<<<1, 1, 8>>>(x); k<<<1, 1, 8>>>(y); }\n",
            2,
            'declaration is incompatible with previous "s" (declared at line 2)',
        ),
        (
            "template <class T> __global__ void k(T* x) {\n  extern __shared__ T s[];\n  x[0] = s[0];\n}\n"
            "void g(float* x) { k<<<1, 1, 8>>>(x); }\n",
            0,
            "",
        ),
        (
            "__global__ void k(float* x) { x[0] = 1; }\nvoid g(float* x) { k(x); }\n",
            2,
            "a __global__ function call must be configured",
        ),
        (
            "struct Own {};\ninline float atomicAdd(Own v) { return 0; }\n"
            + "__global__ void k(float* x) { atomicAdd(x, 1.0f); }\n",
            0,
            "",
        ),
        ("__global__ void k(float* x) { constexpr int n = 2; float held[n] = {1}; x[0] = held[1]; }\n", 0, ""),
        (
            "__device__ float relu(float v) { return v; }\ntorch::Tensor g(torch::Tensor x) { return relu(x); }\n",
            0,
            "",
        ),
        ("int g(int n) { int held[n]; held[0] = n; return held[0]; }\n", 0, ""),
    ],
)
def test_what_nvcc_does_not_take_of_device_code_does_not_compile(
    headers: build.PreparedHeaders, tmp_path: Path, source: str, line: int, message: str
) -> None:
    spec = spec_of(source + "void f(torch::Tensor x) {}\n")
    code, log = run(build.prepare(spec, tmp_path, checked=True, headers=headers), tmp_path)
    error = build.interpret(log) if code != 0 else None
    assert ((error.line, error.message) if error is not None else (0, "")) == (line, message), log


def test_a_shared_variable_beyond_the_limit_does_not_compile(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    source = "__global__ void k() { __shared__ float s[13000]; s[0] = 1; }\nvoid f() { k<<<1, 1>>>(); }\n"
    code, log = run(
        build.prepare(spec_of(source), tmp_path, checked=True, headers=headers),
        tmp_path,
    )
    assert code != 0
    assert "48 KiB" in log


def test_libraries_that_are_not_emulated_are_findings(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    source = "\n#include <cublasLt.h>\n" + KERNEL + "void f() {}\n"
    code, log = run(
        build.prepare(spec_of(source), tmp_path, checked=True, headers=headers),
        tmp_path,
    )
    assert code != 0
    assert build.findings(tmp_path)["not_emulated"] == [{"line": 2, "construct": "cuBLAS (#include <cublasLt.h>)"}]
    assert "cublasLt.h" in log


def test_a_macro_given_as_flag_reaches_the_kernel(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    source = "#if SIZE != 7\n#error no\n#endif\n" + KERNEL + f"void f(torch::Tensor x) {{ {LAUNCH} }}\n"
    spec = spec_of(source, extra_cuda_cflags=("-O3", "--use_fast_math", "-DSIZE=7"))
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    assert code == 0, log
    assert build.module_path(spec, tmp_path).exists()
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit sufficed"


HOST_SIDE = """
#include <torch/extension.h>
using torch::indexing::Slice;
std::vector<torch::Tensor> f(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor, not ", x.sizes());
    auto options = torch::TensorOptions().dtype(torch::kFloat32).device(x.device()).requires_grad(false);
    auto rows = torch::arange(2, x.options().dtype(torch::kLong));
    auto picked = x.index({rows}).clone();
    x.index_put_({rows}, 7.0);
    k<<<1, 4>>>(picked.data_ptr<float>());
    return {picked, x.index({Slice(1, 3)}), torch::cat({x, x}, 1), torch::stack({x, x}), torch::zeros({2, 3}, options),
            torch::full({2}, 1.5, options), torch::tensor({{1, 2}, {3, 4}}), torch::tensor({1.5, 2.5})};
}
"""


def test_what_host_code_asks_of_torch_compiles_with_the_lean_headers_and_means_the_same(tmp_path: Path) -> None:
    run_it = (
        "import json, sys, torch\nfrom pathlib import Path\n"
        "from tests.support.hostcuda_loader import load\nsource, folder = sys.argv[1:]\n"
        "m = load(source, 'std::vector<torch::Tensor> f(torch::Tensor x);', ['f'], folder=Path(folder))\n"
        "found = m.f(torch.arange(6.0).view(3, 2).cuda())\n"
        "print(json.dumps([[t.device.type, str(t.dtype), t.tolist()] for t in found]))\n"
    )
    command = [sys.executable, "-c", run_it, KERNEL + HOST_SIDE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit sufficed"
    x = torch.tensor([[7.0, 7], [7, 7], [4, 5]])
    expected = [
        torch.tensor([[0.0, 2], [4, 6]]),
        x[1:3],
        torch.cat([x, x], 1),
        torch.stack([x, x]),
        torch.zeros(2, 3),
        torch.full((2,), 1.5),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([1.5, 2.5]),
    ]
    on = ["cuda"] * 6 + ["cpu"] * 2
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [device, str(t.dtype), t.tolist()] for device, t in zip(on, expected, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("x.options().requires_grad(true)", True),
        ("options.requires_grad(x.requires_grad())", True),
        ("options.requires_grad(false)", False),
        ("if (x.requires_grad()) f();", False),
        ("torch::autograd::Variable v;", True),
        ("py::dict d;", True),
        ("happy::f();", False),
    ],
)
def test_what_is_compiled_with_the_full_headers_at_once(text: str, needed: bool) -> None:
    assert kinds.needs_full(text) == needed
    assert not kinds.needs_full(f"// {text}"), "a comment"


@pytest.mark.parametrize("piece", ["requires_grad(" + 300_000 * " ", "requires_grad( ", "torch::", "torch/", "/*", '"'])
def test_a_text_of_any_kind_is_looked_through_in_time(piece: str) -> None:
    begin = time.perf_counter()
    kinds.kind_of([piece * (300_000 // len(piece) + 1)], [])
    assert time.perf_counter() - begin < 20  # quadratic: minutes


@pytest.mark.parametrize(
    ("text", "flags", "kind"),
    [
        ("void f();", (), Precompiled.LEAN),
        ("void f();", ("-O3", "-DOWN=1"), Precompiled.LEAN),
        ("void f();", ("-U__CUDA_NO_HALF_OPERATORS__",), Precompiled.SWITCHED),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", (), Precompiled.LEAN),
        ("torch::nn::functional::relu(x);", ("-U__CUDA_NO_HALF_OPERATORS__",), Precompiled.FULL),
        ("torch::fft::fft(x);", (), Precompiled.FULL),
    ],
)
def test_what_is_precompiled_for_an_extension(text: str, flags: tuple[str, ...], kind: Precompiled) -> None:
    assert kinds.kind_of(["", text], flags) is kind


def test_what_few_units_need_is_precompiled_for_the_first_of_them(
    headers: build.PreparedHeaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a preparation of its own, as a machine has it on which nobody needed such headers yet."""
    folder = tmp_path / "headers"
    folder.mkdir()
    own = replace(headers, headers=folder)
    for entry in headers.headers.iterdir():
        if not entry.name.startswith("switched"):
            (folder / entry.name).symlink_to(entry)
    begun: list[str] = []
    run_it = preparation._run

    def noted(crew: CommandPool, command: Sequence[str]) -> None:
        begun.append(command[-1])
        run_it(crew, command)

    monkeypatch.setattr(preparation, "_run", noted)
    body = KERNEL + "__half twice(__half x) { return x + x; }\nvoid f(torch::Tensor x) {}\n"
    for number, flags in enumerate([(), ("-U__CUDA_NO_HALF_OPERATORS__",), ("-U__CUDA_NO_HALF_OPERATORS__",)]):
        source = body if flags else body.replace("x + x", "x")
        spec = spec_of(source, extra_cuda_cflags=flags)
        with CommandPool(1) as crew:
            build.precompile(crew, own, build.kind_of(spec), checked=False)
        made = folder / "switched-unchecked" / "prelude.h.gch"
        assert made.exists() == bool(flags)
        assert begun == [str(made.with_suffix(""))] * bool(flags), "once, and in this mode alone"
        code, log = run(build.prepare(spec, tmp_path / str(number), checked=False, headers=own), tmp_path)
        assert code == 0, log


@pytest.mark.parametrize(
    ("log", "blamed"),
    [
        ("cuda.cu:3:5: error: 'indexing' is not a member of 'torch'\n", True),
        ("cuda.cu:3:5: error: no matching function for call to 'g(int)'\n    3 |   at::g(1);\n", True),
        ("cuda.cu:3:5: error: no matching function for call to 'g(int)'\n    3 |   g(1);\n", False),
        ("cuda.cu:3:5: error: redefinition of 'int twice(int)'\n", True),
        ("cuda.cu:3:5: error: 'missing' was not declared in this scope\n    3 |   at::g(missing);\n", False),
    ],
)
def test_which_errors_the_full_headers_might_mend(log: str, blamed: bool) -> None:
    assert compiling._may_be_mended(log, []) == blamed


def test_a_member_that_no_tensor_has_is_not_looked_for_in_the_full_headers(
    headers: build.PreparedHeaders, tmp_path: Path
) -> None:
    source = "torch::Tensor f(torch::Tensor x) {\n  auto z = x.to_contiguous();\n  return x.relu_there();\n}\n"
    spec = spec_of("#include <torch/extension.h>\n" + source)
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    error = build.interpret(log)
    assert code != 0
    assert error is not None
    assert (error.file, error.line) == ("cuda.cu", 3)
    assert "to_contiguous" in error.message
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit was enough to say so"


def test_a_header_that_is_nowhere_is_not_looked_for_among_the_full_ones(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "there.h").touch()
    flags = ["-isystem", os.fspath(tmp_path / "other"), f"-I{tmp_path}"]
    for name, may in (("deep/there.h", True), ("there.h", False), ("torch/c10/at.h", False), ("", False)):
        log = f"cuda.cu:3:10: fatal error: {name}: No such file or directory\n    3 | #include <torch/{name}>\n"
        assert compiling._may_be_mended(log, flags) is may


NAMED = """
#include <torch/extension.h>
#include <pybind11/stl.h>
namespace py = pybind11;
KERNEL
torch::Tensor f(torch::Tensor x) { LAUNCH return x; }
double g(double a, int64_t n, std::optional<double> m, bool b) { return a + 10 * n + 100 * m.value_or(7) + 1000 * b; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "two functions";
  m.def("go", &f, "doubles");  // in place
  m.def("g", &g, "sums", py::arg("a"), py::arg("n") = 2, py::arg("m") = py::none(), py::arg("b") = true);
}
"""
CALLS = """
import sys, torch
from pathlib import Path
from harness.untrusted.contestant.hostcuda import shim
shim.activate()
m = shim.load_module("named", Path(sys.argv[1]))
print(m.__doc__, m.go(torch.arange(4.0).cuda()).tolist())
for call in sys.argv[2:]:
    try:
        print(eval(call))
    except TypeError as error:
        print(str(error).splitlines()[0])
"""
REFUSED = "g(): incompatible function arguments. The following argument types are supported:"
SAID = {
    "m.g(1)": "1721.0",
    "m.g(1, 3, 4.0, False)": "431.0",
    "m.g(b=False, a=2.5)": "722.5",
    "m.g(1, m=0)": "1021.0",
    "m.g()": REFUSED,
    "m.g(1, a=1)": REFUSED,
    "m.g(1, c=1)": REFUSED,
    "m.g(1, n=2.5)": REFUSED,
    "m.g(1, 2, 3, True, 4)": REFUSED,
}


def test_a_module_that_only_names_functions_and_arguments_needs_no_pybind11(
    headers: build.PreparedHeaders, tmp_path: Path
) -> None:
    spec = Spec(name="named", cuda_sources=(NAMED.replace("KERNEL", KERNEL).replace("LAUNCH", LAUNCH),))
    code, log = run(build.prepare(spec, tmp_path, checked=True, headers=headers), tmp_path)
    assert code == 0, log
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit sufficed"
    command = [sys.executable, "-c", CALLS, str(build.module_path(spec, tmp_path)), *SAID]
    first, *rest = subprocess.check_output(command, text=True).splitlines()
    assert first == "two functions [0.0, 2.0, 4.0, 6.0]"
    assert dict(zip(SAID, rest, strict=True)) == SAID


def test_a_source_that_needs_more_of_torch_or_pybind11_is_compiled_with_the_full_headers(
    headers: build.PreparedHeaders, tmp_path: Path
) -> None:
    """One for both, since it takes most of a minute. That it needs pybind11, only a header of its own says: so it is
    compiled with the lean headers first, as one is that only needs more of torch.

    The full units are neither optimised nor instrumented: what the headers hold is read all the same, in less time."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\ncase $* in *-DHOSTCUDA_FULL=1*) set -- "$@" -O0 -g0 -fno-sanitize=all;; esac\n'
        f'exec {headers.compiler} "$@"\n'
    )
    compiler.chmod(0o755)
    headers = replace(headers, compiler=os.fspath(compiler))
    (tmp_path / "named.h").write_text("#include <torch/extension.h>\nusing Named = py::dict;\n")
    line = f"{LAUNCH} c10::List<int64_t> sizes; sizes.push_back(d.size()); return torch::ones({{sizes.get(0)}});"
    source = f'#include "named.h"\n{KERNEL}torch::Tensor f(torch::Tensor x, Named d) {{ {line} }}\n'
    spec = Spec(
        name="m",
        cuda_sources=(source,),
        cpp_sources=('#include "named.h"\ntorch::Tensor f(torch::Tensor x, Named d);',),
        functions=("f",),
        extra_include_paths=(str(tmp_path),),
    )
    code, log = run(build.prepare(spec, tmp_path, checked=True, headers=headers), tmp_path)
    assert code == 0, log
    assert build.module_path(spec, tmp_path).exists()
    assert (tmp_path / "unit.cpp").exists()
    assert (tmp_path / "main_unit.cpp").exists()


def test_where_the_cuda_unit_fails_the_other_one_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\ncase $* in *main_unit.cpp*) touch begun; sleep 300; exit 0;; esac\n"
        "while [ ! -e begun ]; do sleep 0.1; done\necho 'cuda.cu:1:1: error: torch' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    headers = replace(build.prepare_headers(), compiler=os.fspath(compiler))
    source = "#include <torch/extension.h>\npy::dict d;\nvoid f() {\n}\n"
    spec = spec_of(source)
    build.prepare(spec, tmp_path, checked=True, headers=headers)
    monkeypatch.chdir(tmp_path)
    begun = time.monotonic()
    assert compiling.main(tmp_path) == 1
    assert time.monotonic() - begun < 60


def test_what_a_comment_says_needs_no_full_headers(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    source = (
        "// As torch::nn::ReLU, without PYBIND11_MODULE: an input tensor (float), an output tensor (float)\n" + KERNEL
    )
    spec = spec_of(source + "void f(torch::Tensor x) {}\n")
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    assert code == 0, log
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit sufficed"


def test_where_nobody_defines_a_module_no_full_headers_are_read(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    """A call of `load_inline` without functions: it compiles, as it does there, and can't be imported."""
    spec = Spec(name="m", cuda_sources=(KERNEL + "torch::Tensor f(torch::Tensor x) { return x; }\n",))
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    assert code == 0, log
    assert not (tmp_path / "main_unit.cpp").exists()
    assert b"PyInit_" not in build.module_path(spec, tmp_path).read_bytes()


@pytest.mark.parametrize(
    ("source", "functions"),
    [
        ('extern "C" void* PyInit_m() { return nullptr; }\n', None),
        ("#include <torch/extension.h>\nint f(torch::Tensor x, py::dict d) { return py::len(d); }\n", ("f",)),
    ],
    ids=["a module by Python's own interface", "pybind11"],
)
def test_what_the_lean_headers_lack_for_sure_is_not_tried_with_them(
    monkeypatch: pytest.MonkeyPatch,
    headers: build.PreparedHeaders,
    tmp_path: Path,
    source: str,
    functions: tuple[str, ...] | None,
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        compiling,
        "_compile",
        lambda job, unit, found, *, begun=None: (asked.append(unit.headers is not Precompiled.FULL), (1, ""))[1],
    )
    spec = spec_of(source, functions or ())
    build.prepare(spec, tmp_path, checked=False, headers=headers)
    assert compiling.main(tmp_path) == 1
    assert set(asked) == {False}


TYPES_OF_INTRINSICS = """using wide = unsigned long long;
__global__ void k(float* x, wide* u, long long* l, uint64_t* w, unsigned short* s, int* i) {
    atomicAdd(w, 1ull);                                // no
    atomicMax(reinterpret_cast<int64_t*>(w), 1);       // no
    atomicCAS(w, 1, 2);                                // no
    atomicCAS(x, 1.0f, 2.0f);                          // no
    atomicSub(u, 1ull);                                // no
    float2 pair = __shfl_xor_sync(~0u, float2{}, 1);   // no
    float* other = __shfl_sync(~0u, x, 1);             // no
    unsigned same = __match_any_sync(~0u, int2{});     // no
    atomicAdd(u, 1), atomicMax(l, 1ll), atomicAnd(l, 1), atomicCAS(s, 1, 2), atomicExch(x, 1);
    atomicSub(i, 1), atomicAdd(x, 1.0);
    bool yes = __shfl_sync(~0u, true, 0);
    static_assert(sizeof(__shfl_up_sync(~0u, 'c', 1)) == sizeof(int) && sizeof(__shfl_down_sync(~0u, *w, 1)) == 8);
    same = __match_any_sync(~0u, *w) | __match_all_sync(~0u, *x, i);
}
__device__ int64_t atomicAdd(int64_t* p, int64_t v) { return atomicAdd(reinterpret_cast<wide*>(p), v); }
__device__ void atomicAdd(c10::Half* p, c10::Half v) { *p += v; }
__device__ float2 __shfl_xor_sync(unsigned mask, float2 v, int d) { return {__shfl_xor_sync(mask, v.x, d), v.y}; }
template <typename T> __device__ T WARP_SHFL(T v, int lane) { return __shfl_sync(~0u, v, lane); }
void f(torch::Tensor x) {}
"""


def test_atomics_and_shuffles_have_the_types_that_cuda_has(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    """And what it lacks a source may define."""
    spec = spec_of(TYPES_OF_INTRINSICS)
    code, log = run(build.prepare(spec, tmp_path, checked=True, headers=headers), tmp_path)
    assert code != 0
    wrong = {i for i, line in enumerate(TYPES_OF_INTRINSICS.split("\n"), 1) if line.endswith("// no")}
    assert {int(number) for number in re.findall(r"^cuda\.cu:(\d+):\d+: error: ", log, re.M)} == wrong, log


TORCH_S_HALVES = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T, typename Own> __global__ void k(const T* x, T* y, Own* z) {
    T v = x[0];
    y[0] = x[0] > T(0) ? x[0] : T(0);
    if (v < x[1] && x[1] <= v && v >= T(1) && v == y[0] && x[0] != v) y[1] = -v * x[1] + v / x[0];
    if (v > 0 || v < 0.5f) y[2] = v * 2.0f;
    z[0] = static_cast<Own>(v);
    z[1] = Own{v};
    Own own(x[0]);
    y[3] = own;
    y[4] = z[1];
}
template __global__ void k<c10::BFloat16, __nv_bfloat16>(const c10::BFloat16*, c10::BFloat16*, __nv_bfloat16*);
template __global__ void k<c10::Half, __half>(const c10::Half*, c10::Half*, __half*);
void f(torch::Tensor x) {}
"""


def test_torch_s_half_types_are_compared_and_converted_as_a_gpu_build_does(
    headers: build.PreparedHeaders, tmp_path: Path
) -> None:
    spec = spec_of(TORCH_S_HALVES)
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    assert code == 0, log
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit sufficed"


@pytest.mark.parametrize("switch", ["-U__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_BFLOAT16_OPERATORS__"])
def test_switches_of_the_authors_own_decide_what_is_declared(
    headers: build.PreparedHeaders, tmp_path: Path, switch: str
) -> None:
    source = (
        "#include <cuda_fp16.h>\n__global__ void k(__half* x) { x[0] = x[1] * x[2]; }\nvoid f(torch::Tensor x) {}\n"
    )
    spec = spec_of(source, extra_cuda_cflags=(switch,))
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    assert (code == 0) == switch.startswith("-U"), log


def test_what_only_the_extensions_own_headers_call_is_there(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    own = "inline torch::Tensor halves(torch::Tensor x) { return at::logaddexp(x, torch::flip(x, {0})); }\n"
    (tmp_path / "halves.h").write_text(own)
    spec = spec_of(
        '#include "halves.h"\n' + KERNEL + "torch::Tensor f(torch::Tensor x) { return halves(x); }\n",
        extra_include_paths=(str(tmp_path),),
    )
    commands = build.prepare(spec, tmp_path, checked=False, headers=headers, own_headers=(own,))
    code, log = run(commands, tmp_path)
    assert code == 0, log
    assert not (tmp_path / "main_unit.cpp").exists(), "the lean unit sufficed"


def test_kernels_and_errors_of_the_extensions_own_headers_are_as_in_the_source(
    headers: build.PreparedHeaders, tmp_path: Path
) -> None:
    own = "__global__ void halve(float* x) { __shared__ float s[32]; s[0] = x[0]; x[1] = s[0]; }\n"
    own += "inline void halves(float* x) { halve<<<1, 32>>>(x); }\n"
    (tmp_path / "halves.cuh").write_text(own)
    spec = spec_of('#include "halves.cuh"\nvoid f(torch::Tensor x) { halves(x.data_ptr<float>()); }\n')
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers, own_headers=(own,)), tmp_path)
    assert code == 0, log
    wrong = own + "inline float act(float v) { return v; }\n__global__ void k(float* x) {\n  x[0] = act(x[1]);\n}\n"
    (tmp_path / "halves.cuh").write_text(wrong)
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers, own_headers=(wrong,)), tmp_path)
    assert code != 0
    assert 'halves.cuh:5:13: error: calling a __host__ function("act")' in log


def test_whatever_translates_a_source_is_in_the_fingerprint() -> None:
    script = (
        "import sys, harness.hostcuda.translate.compile\n"
        "own = ('harness.hostcuda', 'harness.toolchain.cuda_source')\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith(own)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    root = Path(preparation.__file__).parents[1]
    folders = [(root / folder).resolve() for folder in preparation._FOLDERS_THAT_DECIDE]
    used = [Path(name) for name in done.stdout.split()]
    assert used
    assert [path for path in used if not any(path.is_relative_to(folder) for folder in folders)] == [
        root / "__init__.py"
    ]


def test_preparing_twice_gives_the_same_and_costs_nothing(headers: build.PreparedHeaders) -> None:
    before = headers.bridge.stat().st_mtime_ns
    assert build.prepare_headers() == headers
    assert headers.bridge.stat().st_mtime_ns == before


def test_a_torch_that_the_stand_in_for_its_lists_does_not_go_with_is_used_without_it(tmp_path: Path) -> None:
    lean, own = tmp_path / "lean", tmp_path / "own"
    lists = lean / "ATen" / "core" / "List.h"
    texts = {
        lists: "#error this torch has moved on\n",
        lean / "torch" / "extension.h": "",
        own / "ATen" / "core" / "List.h": "struct Tensor {};\n",
        tmp_path / "prelude.h": "#include <ATen/core/List.h>\n#include <torch/extension.h>\nTensor t;\n",
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made = tmp_path / "prelude.h.new"
    command = ["g++", f"-I{lean}", f"-isystem{own}", "-x", "c++-header", "-o", str(made), str(tmp_path / "prelude.h")]
    with CommandPool(1) as crew:
        preparation._precompile_lean(crew, command, lists)
    assert made.exists()
    assert sorted(path.name for path in lean.rglob("*.h")) == ["extension.h"]
    (own / "ATen" / "core" / "List.h").unlink()
    with pytest.raises(build.BuildError, match=r"ATen/core/List\.h"), CommandPool(1) as crew:
        preparation._precompile_lean(crew, command, lists)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", None),
        (
            "cuda.cu:7:3: error: 'x' was not declared\ncuda.cu:9:1: error: more\n",
            ("cuda.cu", 7, "'x' was not declared"),
        ),
        ("/usr/include/a.h:3: error: deep\nmain.cpp:2:1: fatal error: own\n", ("main.cpp", 2, "own")),
        ("/usr/bin/ld: undefined reference to `f()'\n", ("", 0, "undefined reference to f()")),
    ],
)
def test_interpret_finds_the_first_error_of_the_solution(log: str, expected: tuple[str, int, str] | None) -> None:
    error = build.interpret(log)
    assert (None if error is None else (error.file, error.line, error.message)) == expected


def test_findings_of_a_hostile_folder_are_empty(tmp_path: Path) -> None:
    (tmp_path / "findings.json").write_text('{"not_emulated": 3}')
    assert build.findings(tmp_path)["not_emulated"] == []


def test_a_function_may_have_the_name_of_one_of_cudas(headers: build.PreparedHeaders, tmp_path: Path) -> None:
    """torch binds it where CUDA's headers are not read, and so where it has no overloads."""
    names = ("norm", "rsqrt", "max")
    heads = [f"torch::Tensor {name}(torch::Tensor x)" for name in names]
    cuda = "#include <torch/extension.h>\n" + KERNEL + "".join(f"{head} {{ {LAUNCH} return x; }}\n" for head in heads)
    cpp = "".join(f"{head};\n" for head in heads)
    spec = Spec(name="m", cuda_sources=(cuda,), cpp_sources=(cpp,), functions=names)
    code, log = run(build.prepare(spec, tmp_path, checked=False, headers=headers), tmp_path)
    assert code == 0, log[-3000:]
    assert not (tmp_path / "main_unit.cpp").exists()

"""Lean stand-ins for torch's headers: what they hold, and that code built with them computes the same.

One unit is really compiled and run; what nvcc makes of a stand-in is tried to the object, where there is an nvcc.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.environment import MachineError
from harness.core.executables import find_gxx, find_nvcc
from harness.toolchain import (
    BuildCache,
    BuilderZygotes,
    BuildOutcome,
    BuildTools,
    ExtensionSpec,
    NvccToolchain,
    build_solution,
)
from harness.toolchain.diagnostics import kernel_resources
from harness.toolchain.headers import shared as headers_module
from harness.toolchain.headers.lean import DEFINE, MAX_CHARS, SHADOWED, UNIT, LeanHeaders, needs_full
from harness.toolchain.headers.shared import SharedHeaders, variant_for
from harness.toolchain.ninja_file import SCRIPT
from harness.toolchain.toolchain import LEAN_FAILED
from harness.toolchain.torchinfo import find_torch, python_include

TORCH = find_torch()


@pytest.fixture(scope="module")
def lean() -> LeanHeaders:
    return LeanHeaders(TORCH.include)


def unit(lean: LeanHeaders, text: str, *, python: bool = False) -> str:
    found = lean.unit(text, python=python)
    assert found is not None
    return found


def test_what_is_not_mentioned_is_not_there(lean: LeanHeaders) -> None:
    text = unit(lean, "torch::Tensor f(torch::Tensor x);")
    for name in ("pybind", "ATen/ATen.h", "ATen/Functions.h", "torch/all.h", "ATen/Dispatch", "ATen/ops/", "<map>"):
        assert name not in text
    assert "<ATen/core/Tensor.h>" in text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("auto y = torch::softmax(x, -1);", "<ATen/ops/softmax.h>"),
        ("auto y = at::sum<int>(x);", "<ATen/ops/sum.h>"),
        ("using namespace torch; auto y = matmul (a, b);", "<ATen/ops/matmul.h>"),
        ("AT_DISPATCH_FLOATING_TYPES(t, n, f)", "<ATen/Dispatch.h>"),
        ("x.index({torch::indexing::Slice()})", "<ATen/TensorIndexing.h>"),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", "<torch/csrc/utils/pybind.h>"),
        ("TORCH_LIBRARY(mine, m) {}", "<torch/library.h>"),
        ("std::map<int, int> m;", "<map>"),
        ("auto t = std::chrono::steady_clock::now();", "<chrono>"),
        ("at::parallel_for(0, n, 1, f);", "<ATen/Parallel.h>"),
    ],
)
def test_what_is_mentioned_is_there(lean: LeanHeaders, source: str, expected: str) -> None:
    assert f"#include {expected}" in unit(lean, source)


def test_factories_come_with_all_overloads(lean: LeanHeaders) -> None:
    text = unit(lean, "auto y = torch::empty({2, 3});")
    original = TORCH.include / "torch" / "csrc" / "autograd" / "generated" / "variable_factories.h"
    assert text.count("inline at::Tensor empty(") == original.read_text().count("inline at::Tensor empty(") > 0
    assert "inline at::Tensor zeros(" not in text


@pytest.mark.parametrize(
    "comment",
    [
        "// the input tensor (float), of torch::zeros(n)\n",
        "/* torch::nn::Linear (a)\n AT_DISPATCH_ALL */",
        'const char* s = "/*"; // torch::nn',
        "int n = 1'000; // torch::nn, empty(n)\n",
        "/* torch::autograd",
    ],
)
def test_what_a_comment_mentions_is_not_there(lean: LeanHeaders, comment: str) -> None:
    """`tensor (` is the name of a factory."""
    found = unit(lean, f"{comment}")
    assert "ATen/ops/" not in found
    assert "inline at::Tensor" not in found
    assert "ATen/Dispatch.h" not in found


def test_what_stands_behind_comments_and_literals_is_mentioned(lean: LeanHeaders) -> None:
    text = "/* one */ int n = 1'000; auto a = '\"'; auto y = torch::softmax(x, -1); char c = '\\'';"
    text += ' auto z = at::sum("//"), at::exp(y);'
    for name in ("softmax", "sum", "exp"):
        assert f"#include <ATen/ops/{name}.h>" in unit(lean, text)


@pytest.mark.parametrize("piece", ["/*", '"', "'\\", "/", "//", "/* *", '"\\', "'"])
def test_a_text_of_any_kind_is_read_in_time(lean: LeanHeaders, piece: str) -> None:
    begin = time.perf_counter()
    unit(lean, piece * (MAX_CHARS // len(piece)))
    assert time.perf_counter() - begin < 20  # quadratic: minutes


@pytest.mark.skipif(find_gxx() is None, reason="needs g++")
@pytest.mark.parametrize(
    "source",
    [
        "auto f(at::Tensor x) { return torch::tensor({1.0, 2.0}); }",
        "auto f(at::Tensor x) { auto n = 2; return torch::tensor(n); }",
        "void tensor (float x); void f() { tensor(1.0f); }",
        "using namespace torch; auto f(at::Tensor x) { return tensor ({x.size(0)}); }",
        "auto f(c10::SymIntArrayRef n) { return torch::full_symint(n, 1); }",
        "auto f(at::Tensor x) { return torch::cat({x, x}); }",
        "auto f(std::vector<int64_t> n) { TORCH_CHECK(n.size() == 2, n); return torch::randn(n); }",
    ],
)
def test_what_is_mentioned_compiles(lean: LeanHeaders, tmp_path: Path, source: str) -> None:
    for name, text in {**lean.shared(), UNIT: unit(lean, source)}.items():
        path = tmp_path / "lean" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "use.cpp").write_text(f"#include <torch/extension.h>\n{source}\n")
    folders = [tmp_path / "lean", *TORCH.include_folders(), python_include()]
    command = ["g++", "-fsyntax-only", f"-std={TORCH.cxx_standard}", DEFINE, str(tmp_path / "use.cpp")]
    command += [item for folder in folders for item in ("-isystem", str(folder))]
    command += [word for flag in TORCH.defines() for word in shlex.split(flag)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", ["torch::nn::Linear l(1, 2);", "torch::autograd::Function<F>", "at::native::f()"])
def test_what_only_the_full_headers_hold(lean: LeanHeaders, source: str) -> None:
    assert lean.unit(source) is None


def test_shared_headers_shadow_the_umbrellas_and_every_operator(lean: LeanHeaders) -> None:
    files = lean.shared()
    assert set(SHADOWED) < set(files)
    operator = files["ATen/ops/softmax.h"]
    assert "<ATen/ops/softmax_ops.h>" in operator
    assert "inline at::Tensor softmax(" in operator
    assert "ATen/Context.h" not in operator
    assert "ATen/ops/from_blob.h" not in files  # written by hand, used as it is


def test_shared_headers_are_written_once(tmp_path: Path) -> None:
    shared = SharedHeaders(tmp_path, TORCH, find_gxx() or Path(), "a fingerprint")
    shared.unit("int x;", python=False)
    stamp = (shared.folder / "lean" / "torch" / "extension.h").stat().st_mtime_ns
    SharedHeaders(tmp_path, TORCH, find_gxx() or Path(), "a fingerprint").unit("int x;", python=False)
    assert (shared.folder / "lean" / "torch" / "extension.h").stat().st_mtime_ns == stamp
    assert [path.name for path in shared.folder.iterdir() if path.is_dir()] == ["lean"]


def test_a_folder_of_headers_that_a_group_shares_stays_the_groups(tmp_path: Path) -> None:
    shared = SharedHeaders(tmp_path, TORCH, find_gxx() or Path(), "a fingerprint")
    for mode, after in ((0o770, 0o775), (0o2775, 0o2775)):
        shared.folder.mkdir(exist_ok=True)
        shared.folder.chmod(mode)
        shared.unit("int x;", python=False)
        assert stat.S_IMODE(shared.folder.stat().st_mode) == after


@pytest.mark.parametrize(
    ("flags", "variant"),
    [
        ((), "plain"),
        (("",), "plain"),
        (("-O3",), "optimised"),
        (("-O2 -Wall", "-w", "-I/x"), "optimised"),
        (("-O3", "-std=c++20"), "optimised"),
        (("-O3", "-std=c++17"), None),
        (("-O3 -march=native",), None),
        (("-Ofast",), None),
        (("-O3", "-fopenmp"), None),
        (("-DNDEBUG",), None),
        (("-g",), None),
        (("-Wp,-DX",), None),
    ],
)
def test_which_precompiled_header_fits(flags: tuple[str, ...], variant: str | None) -> None:
    assert variant_for(flags, "c++20") == variant


def small_bindings(folder: Path) -> Path:
    """A stand-in for the compiled bindings, which take half a minute."""
    made = folder / "bindings"
    made.mkdir()
    (made / "harness_bindings.cpp").write_text("int bound;")
    return made


def test_a_precompiled_header_is_made_once_and_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = "#pragma once\nint made;\n"
    monkeypatch.setattr(headers_module.lean.LeanHeaders, "precompiled", lambda self, kind: made)
    monkeypatch.setattr(headers_module, "BINDINGS", small_bindings(tmp_path))
    compiler = find_gxx() or Path()
    shared = SharedHeaders(tmp_path, TORCH, compiler, "a fingerprint")
    assert "-include" not in shared.flags("unit", kind="core", precompiled_for=("-O3",))
    assert shared.bindings is None
    assert shared.warm_up()["precompiled"] == ["bindings", "stubs", "core plain", "python plain", "core optimised"]
    assert shared.bindings is not None
    assert shared.warm_up()["precompiled"] == []
    flags = shared.flags("unit", kind="core", precompiled_for=("-O3",))
    header = Path(flags[flags.index("-include") + 1])
    assert header.with_name(f"{header.name}.gch").exists()
    (tmp_path / "use.cpp").write_text("int f() { return made; }")
    defines = [flag.replace("\\", "") for flag in TORCH.defines()]
    asked = ["-O3", "-fPIC", f"-std={TORCH.cxx_standard}", *defines, "-Winvalid-pch", "-Werror", "-H"]
    done = subprocess.run(
        [os.fspath(compiler), *asked, *flags[:3], "-c", "use.cpp"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"! {header}.gch" in done.stderr  # the form of -H for a precompiled header that was taken
    assert "-include" not in shared.flags("unit", kind="core", precompiled_for=("-O3", "-march=native"))
    assert "-include" not in shared.flags("unit", kind="core")
    assert "-include" not in shared.flags("unit", kind="cuda", precompiled_for=("-O3",))  # without a toolkit


def test_folders_of_headers_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of torch or compiler leaves one behind."""
    monkeypatch.setattr(headers_module, "VARIANTS", {})
    monkeypatch.setattr(headers_module, "BINDINGS", small_bindings(tmp_path))
    for number in range(5):
        (tmp_path / f"shared-{number}").mkdir()
    shared = SharedHeaders(tmp_path, TORCH, find_gxx() or Path(), "a fingerprint")
    shared.warm_up()
    left = sorted(tmp_path.glob("shared-*"))
    assert len(left) == 3
    assert shared.folder in left


def test_a_compiler_that_fails_to_precompile_is_the_machines_fault(tmp_path: Path) -> None:
    shared = SharedHeaders(tmp_path, TORCH, Path("/bin/false"), "a fingerprint")
    with pytest.raises(MachineError, match="compiling torch's headers failed"):
        shared.warm_up()
    assert list(shared.folder.glob("precompiled/*/*.tmp")) == []


# -- compiled and run ------------------------------------------------------------------------------------------

SOURCE = r"""
#include <torch/extension.h>
#include <map>

torch::Tensor f(torch::Tensor a, torch::Tensor b, int64_t rows) {
  TORCH_CHECK(a.dim() == 2, "a has ", a.dim(), " dimensions");
  auto out = torch::empty({rows, b.size(1)}, a.options());
  auto product = torch::matmul(a, b) * 2.0 + 1;
  out.copy_(product.index({torch::indexing::Slice(0, rows)}));
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "f", [&] {
    auto view = out.accessor<scalar_t, 2>();
    view[0][0] += static_cast<scalar_t>(std::abs(-0.5f));
  });
  std::map<int, int> used{{1, 2}};
  float values[3] = {1.f, 2.f, static_cast<float>(used[1])};
  auto tail = torch::from_blob(values, {3}, torch::kFloat32).clone();
  torch::NoGradGuard guard;
  return torch::cat({out.sum(1), tail, torch::tensor({4.0f, 5.0f}), torch::softmax(tail, 0)});
}

std::vector<bool> flags() {
  auto grad = torch::zeros({2}, torch::TensorOptions().dtype(torch::kDouble).requires_grad(true));
  auto plain = torch::full_like(grad, 3, torch::kInt);
  return {grad.requires_grad(), grad.is_leaf(), plain.requires_grad(), plain.dtype() == torch::kInt32};
}

std::string shown(torch::Tensor x) {
  std::ostringstream text;
  text << x;
  return text.str();
}
"""

SOLUTION = f"""
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
ext = load_inline("rich", {SOURCE!r}, functions=["f", "flags", "shown"], extra_cflags=["-O1"])

class ModelNew(nn.Module):
    def forward(self, x):
        return ext.f(x, x, 1)
"""

CHECK = """
import json, sys, torch
from harness.untrusted.contestant import load_inline as inject
inject.install(json.loads(sys.argv[1]), fallback=False)
scope = {}
exec(sys.stdin.read(), scope)
ext = scope["ext"]
a, b = torch.randn(4, 5), torch.randn(5, 3)
expected = (torch.matmul(a, b) * 2.0 + 1)[:2]
expected[0, 0] += 0.5
tail = torch.tensor([1.0, 2.0, 2.0])
expected = torch.cat([expected.sum(1), tail, torch.tensor([4.0, 5.0]), torch.softmax(tail, 0)])
torch.testing.assert_close(ext.f(a, b, 2), expected)
assert ext.flags() == [True, True, False, True], ext.flags()
assert "CPUFloatType{2}" in ext.shown(torch.ones(2))
try:
    ext.f(torch.ones(3), b, 2)
except RuntimeError as error:
    assert "a has 1 dimensions" in str(error)
else:
    raise AssertionError("no exception")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildOutcome]:
    root = tmp_path_factory.mktemp("cache")
    with BuilderZygotes() as zygotes:
        outcome = build_solution(
            SOLUTION,
            "rich.py",
            BuildTools(zygotes=zygotes, toolchain=NvccToolchain((), root), cache=BuildCache(root), timeout_s=300),
            log_path=root / "log",
        )
        yield outcome


def test_a_unit_built_lean_computes_the_same(built: BuildOutcome) -> None:
    assert built.failure is None
    assert built.modules[0].report.headers == {"main.cpp": "lean"}
    subprocess.run([sys.executable, "-c", CHECK, json.dumps(built.injected())], input=SOLUTION, text=True, check=True)


CUDA = """
#include <torch/extension.h>
#include <cuda_runtime.h>
template <typename T> __global__ void scale(const T* x, T* y, int n) {
  __shared__ T held[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  held[threadIdx.x % 32] = i < n ? x[i] : T(0);
  __syncthreads();
  if (i < n) y[i] = held[threadIdx.x % 32] * T(2);
}
torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    scale<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  return y;
}
"""


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")
@pytest.mark.parametrize(("quick", "way"), [(("split",), "split"), ((), "lean")])
def test_nvcc_takes_the_stand_ins_and_reports_resources(tmp_path: Path, quick: tuple[str, ...], way: str) -> None:
    toolchain = NvccToolchain([(9, 0)], tmp_path / "cache", quick_ways=quick)
    folder = tmp_path / "build"
    folder.mkdir()
    plan = toolchain.prepare(ExtensionSpec(name="ext", cpp_sources=("",), cuda_sources=(CUDA,)), folder)
    ninja = [*plan.commands[0], "cuda.cuda.o"]
    done = subprocess.run(ninja, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert plan.headers["cuda.cu"] == way
    assert "\n[harness]" not in done.stdout
    kernels = kernel_resources(done.stdout)
    assert {(kernel.kernel, kernel.arch) for kernel in kernels} == {("scale", "sm_90")}
    assert {kernel.shared_bytes for kernel in kernels} == {128, 256}
    assert all(kernel.registers > 0 and kernel.spill_stores_bytes == 0 for kernel in kernels)


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")
@pytest.mark.parametrize(
    ("old", "new", "goes_on"),
    [
        ("threadIdx.x;", "threadIdx.x", False),
        ("y[i] =", "y[idx] =", False),
        ("auto y", 'torch::OrderedDict<std::string, int64_t> my_lengths; my_lengths.insert("n", 1);\n  auto y', True),
    ],
    ids=["semicolon", "variable", "a class that lean headers lack"],
)
def test_by_what_nvcc_says_the_full_headers_are_tried_or_not(tmp_path: Path, old: str, new: str, goes_on: bool) -> None:
    toolchain = NvccToolchain([(9, 0)], tmp_path / "cache", quick_ways=())
    folder = tmp_path / "build"
    folder.mkdir()
    source = CUDA.replace(old, new, 1)
    plan = toolchain.prepare(ExtensionSpec(name="ext", cpp_sources=("",), cuda_sources=(source,)), folder)
    script = folder / SCRIPT
    full = 'exec "$compiler" "$@"'
    assert full in script.read_text()
    script.write_text(script.read_text().replace(full, "exit 77"))  # that would take a minute
    ninja = [*plan.commands[0], "cuda.cuda.o"]
    done = subprocess.run(ninja, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (LEAN_FAILED in done.stdout) is goes_on, done.stdout


def test_what_is_very_long_gets_the_full_headers(lean: LeanHeaders) -> None:
    """The search holds the interpreter's lock: others' builds would wait for it."""
    begin = time.process_time()
    assert lean.unit("a <" * 1_300_000) is None
    assert needs_full("a <" * 1_300_000)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("text", ["a<" * 50_000, "a" + " " * 100_000, "std::" * 20_000])
def test_no_text_makes_the_search_for_names_slow(lean: LeanHeaders, text: str) -> None:
    """It is done in the process that serves all solutions: texts like these held a whole run up for minutes."""
    started = time.process_time()
    lean.unit(text)
    assert time.process_time() - started < 5

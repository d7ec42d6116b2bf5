"""The quick ways of building: the same module from compiled bindings, and the ordinary way where a quick one ends."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.executables import find_nvcc
from harness.toolchain import ExtensionSpec, NvccToolchain, Plan, SourceFile, default_root
from harness.toolchain.diagnostics import kernel_resources
from harness.toolchain.fast_paths import bound_text, joined_bindings
from harness.toolchain.headers.lean import UNIT
from harness.toolchain.headers.shared import SharedHeaders
from harness.toolchain.ninja_file import OWN
from harness.toolchain.toolchain import QUICK_FAILED
from harness.toolchain.units import units_of

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")

CPP = """
#include <torch/extension.h>
torch::Tensor add(torch::Tensor a, const torch::Tensor& b, double scale) { return a + b * scale; }
int64_t count(torch::Tensor a) { return a.numel(); }
bool negate(bool value) { return !value; }
std::string repeat(const std::string& text, int times) {
  std::string made;
  for (int i = 0; i < times; ++i) made += text;
  return made;
}
std::vector<torch::Tensor> halves(std::vector<torch::Tensor> all) { for (auto& one : all) one = one / 2; return all; }
std::tuple<torch::Tensor, torch::Tensor> both(torch::Tensor a) { return {a + 1, a + 2}; }
torch::Tensor maybe(std::optional<torch::Tensor> a, std::optional<int64_t> n) {
  return a.has_value() ? *a + n.value_or(10) : torch::zeros({1});
}
void in_place(torch::Tensor& a) { a.add_(1); }
torch::Tensor& same(torch::Tensor& a) { return a; }
float ratio(float x, unsigned int n) { return x / n; }
std::vector<int64_t> backwards(std::vector<int64_t> values) { return {values.rbegin(), values.rend()}; }
torch::Tensor refuse(torch::Tensor a) { TORCH_CHECK(a.dim() == 7, "seven dimensions, not ", a.dim()); return a; }
int standard() { throw std::out_of_range("too far"); }
"""
FUNCTIONS = (
    "add count negate repeat halves both maybe in_place same ratio backwards refuse standard".split()  # noqa: SIM905
)

CALLS = """
import importlib.machinery, importlib.util, sys
import torch
path = sys.argv[1]
loader = importlib.machinery.ExtensionFileLoader("ext", path)
spec = importlib.util.spec_from_file_location("ext", path, loader=loader)
ext = importlib.util.module_from_spec(spec)
loader.exec_module(ext)
a, b = torch.arange(3.0), torch.ones(3)
CALLS = [
    "ext.add(a, b, 2)", "ext.add(a, b, 2.5)", "ext.add(a, 1, 2)", "ext.add(a, b)", "ext.add(a, b, s=1)",
    "ext.add(None, b, 1)", "ext.count(a)", "ext.negate(True)", "ext.negate(1)", "ext.negate(None)",
    "ext.repeat('ab', 3)", "ext.repeat('ab', 2.5)", "ext.repeat('ab', 2**40)", "ext.repeat(b'x', 1)",
    "ext.halves([a, b])", "ext.halves((a,))", "ext.halves(a)", "ext.both(a)", "ext.maybe(None, None)",
    "ext.maybe(a, None)", "ext.maybe(a, 5)", "(ext.in_place(a), a)", "ext.same(a) is a", "ext.same(a)",
    "ext.ratio(1, 4)", "ext.ratio(1.5, -1)", "ext.backwards([1, 2, 3])", "ext.backwards([1.5])", "ext.refuse(a)",
    "ext.standard()", "ext.standard(1)", "ext.__name__", "sorted(n for n in dir(ext) if n[0] != '_')",
    "[getattr(ext, n).__doc__ for n in sorted(dir(ext)) if n[0] != '_']", "ext.add.__name__", "ext.add.__module__",
]
for call in CALLS:
    try:
        said = repr(eval(call))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(call, "->", said.split("Exception raised from")[0])
"""


def built(toolchain: NvccToolchain, spec: ExtensionSpec, folder: Path, target: str = "") -> tuple[Plan, str]:
    """Build as a job would, or only as far as `target`. Returns the plan and the log."""
    folder.mkdir()
    plan = toolchain.prepare(spec, folder)
    command = [*plan.commands[0], *([target] if target else [])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return plan, done.stdout


@pytest.fixture(scope="module")
def toolchain() -> NvccToolchain:
    """With compiled bindings and precompiled headers, as every machine has them that was warmed up: those that the
    evaluations of other tests take, too, made by whoever comes first."""
    made = NvccToolchain((), default_root())
    made.warm_up()
    assert isinstance(made._headers, SharedHeaders)
    assert made._headers.bindings is not None
    return made


def spec_of(cpp: str, names: list[str], **options: object) -> ExtensionSpec:
    fields = {"name": "ext", "cpp_sources": (cpp,), "functions": tuple((name, f"says {name}") for name in names)}
    return ExtensionSpec(**fields | options)  # type: ignore[arg-type]


def test_compiled_bindings_behave_as_pybind11s_own(toolchain: NvccToolchain, tmp_path: Path) -> None:
    """Values, conversions, refusals, exceptions and documentation, call by call."""
    spec = spec_of(CPP, FUNCTIONS)
    ordinary = NvccToolchain((), default_root(), quick_ways=())
    said = []
    for name, tools, way in (("quick", toolchain, "prebuilt"), ("ordinary", ordinary, "lean")):
        plan, log = built(tools, spec, tmp_path / name)
        assert plan.headers == {"main.cpp": way}
        assert "[harness]" not in log.replace('echo "[harness]', ""), log
        command = [sys.executable, "-c", CALLS, os.fspath(tmp_path / name / "module.so")]
        said.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
    assert said[0] == said[1]
    assert len(said[0]) > 36
    header = (tmp_path / "quick" / OWN / "quick-main.cpp" / UNIT).read_text()
    assert "torch/csrc/utils/pybind.h" not in header, "which costs more than compiled bindings save"
    assert "ext.add(a, b, 2) -> tensor([2., 3., 4.])" in said[0]
    assert any("RuntimeError: seven dimensions, not 1" in line for line in said[0])


def test_torchs_translation_of_exceptions_is_as_asked_for() -> None:
    for guarded, word in ((True, "true"), (False, "false")):
        spec = spec_of("int f() { return 1; }", ["f"], with_pytorch_error_handling=guarded)
        text = bound_text(spec, units_of(spec)[0])
        assert text is not None
        assert f'::harness_bindings::bound<&f>("f", "says f", {word})' in text


def test_a_type_that_the_library_lacks_is_bound_the_ordinary_way(toolchain: NvccToolchain, tmp_path: Path) -> None:
    text = "#include <torch/extension.h>\nint64_t f(std::map<std::string, int64_t> all) { return all.size(); }"
    plan, log = built(toolchain, spec_of(text, ["f"]), tmp_path / "build")
    assert plan.headers == {"main.cpp": "prebuilt"}
    assert f"\n{QUICK_FAILED} main.cpp: " in log
    assert (tmp_path / "build" / "module.so").exists(), log
    assert toolchain.interpret(spec_of(text, ["f"]), log).error is None


@pytest.mark.parametrize(
    "changes",
    [
        {"functions": None},
        {"cpp_sources": ("#include <torch/extension.h>\nint f(pybind11::object o) { return 1; }",)},
        {"extra_cflags": ("-D_GLIBCXX_USE_CXX11_ABI=0",)},
        {"is_python_module": False},
    ],
)
def test_what_is_not_tried_with_compiled_bindings(
    toolchain: NvccToolchain, tmp_path: Path, changes: dict[str, object]
) -> None:
    spec = spec_of("#include <torch/extension.h>\nint f() { return 1; }", ["f"], **changes)
    (tmp_path / "build").mkdir()
    assert toolchain.prepare(spec, tmp_path / "build").headers == {"main.cpp": "lean"}


def test_errors_are_those_of_the_ordinary_build(toolchain: NvccToolchain, tmp_path: Path) -> None:
    text = "#include <torch/extension.h>\n\nint f() {\n  return nobodys_name;\n}"
    spec = spec_of(text, ["f"])
    _, log = built(toolchain, spec, tmp_path / "build")
    error = toolchain.interpret(spec, log).error
    assert error is not None
    assert (error.file, error.line) == ("cpp source 1", 4)
    assert "nobodys_name" in error.message


# -- CUDA ------------------------------------------------------------------------------------------------------

MACRO = """
#include <cuda_runtime.h>
#define RUN(kernel) kernel<<<1, 1>>>()
__global__ void k() {}
void f() { RUN(k); }
"""


@pytest.fixture
def cuda(tmp_path: Path) -> NvccToolchain:
    return NvccToolchain([(9, 0)], tmp_path / "cache")


@needs_nvcc
def test_what_can_not_be_split_is_built_whole(cuda: NvccToolchain, tmp_path: Path) -> None:
    spec = ExtensionSpec(name="ext", cpp_sources=("",), cuda_sources=(MACRO,), no_implicit_headers=True)
    plan, log = built(cuda, spec, tmp_path / "build", "cuda.cuda.o")
    assert plan.headers["cuda.cu"] == "split"
    assert f"\n{QUICK_FAILED} cuda.cu: line 3: a macro that contains CUDA syntax" in log
    assert (tmp_path / "build" / "cuda.cuda.o").exists(), log


BY_ARCHITECTURE = """
__global__ void k(float* x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;");
#endif
  x[0] = 1;
}
void f(float* x) { k<<<1, 1>>>(x); }
"""

FATBIN_MAGIC = 0xBA55ED50
FATBIN_ELF = 2


def machine_code(path: Path) -> list[int]:
    """For which architectures an object of nvcc's holds machine code: kind and number of each image of its fatbin."""
    data = path.read_bytes()
    begin = data.index(struct.pack("<I", FATBIN_MAGIC))
    header_bytes, images_bytes = struct.unpack_from("<HQ", data, begin + 6)
    place = begin + header_bytes
    end = place + images_bytes
    found = []
    while place < end:
        kind, _, own_bytes, image_bytes = struct.unpack_from("<HHIQ", data, place)
        assert kind == FATBIN_ELF, "code that the driver would have to compile first"
        found.append(struct.unpack_from("<I", data, place + 28)[0])
        place += own_bytes + image_bytes
    return found


@needs_nvcc
@pytest.mark.parametrize("ways", [("split",), ()])
@pytest.mark.parametrize("numbers", [[90], [80, 90]])
def test_a_module_has_code_for_every_kind_of_gpu(tmp_path: Path, ways: tuple[str, ...], numbers: list[int]) -> None:
    """The architectures differ in what they can do: the instruction is unknown to the older one."""
    toolchain = NvccToolchain([divmod(number, 10) for number in numbers], tmp_path / "cache", quick_ways=ways)
    spec = ExtensionSpec(name="ext", cpp_sources=("",), cuda_sources=(BY_ARCHITECTURE,), no_implicit_headers=True)
    plan, log = built(toolchain, spec, tmp_path / "build", "cuda.cuda.o")
    assert plan.headers["cuda.cu"] == ("split" if ways else "lean")
    assert f"\n{QUICK_FAILED}" not in log
    assert machine_code(tmp_path / "build" / "cuda.cuda.o") == numbers, log
    assert [kernel.arch for kernel in kernel_resources(log)] == [f"sm_{number}" for number in numbers]


@needs_nvcc
def test_an_error_in_a_kernel_has_its_place(cuda: NvccToolchain, tmp_path: Path) -> None:
    text = "__global__ void k(float* x) {\n  x[0] = nobodys_name;\n}\nvoid f(float* x) { k<<<1, 1>>>(x); }"
    spec = ExtensionSpec(name="ext", cpp_sources=("",), cuda_sources=(text,), no_implicit_headers=True)
    _, log = built(cuda, spec, tmp_path / "build", "cuda.cuda.o")
    error = cuda.interpret(spec, log).error
    assert error is not None
    assert (error.tool, error.file, error.line) == ("nvcc", "cuda source 1", 2)


@needs_nvcc
@pytest.mark.parametrize(
    "changes",
    [
        {"extra_cuda_cflags": ("-rdc=true",)},
        {"extra_cuda_cflags": ("--default-stream=per-thread",)},
        {"extra_include_paths": ("include",)},
        {"cuda_sources": (), "files": (SourceFile(path="a.cu", text=MACRO),), "compiled": ("a.cu",), "cpp_sources": ()},
    ],
)
def test_what_is_not_tried_in_two_parts(cuda: NvccToolchain, tmp_path: Path, changes: dict[str, Any]) -> None:
    """Flags that change what is linked, and headers of the author's, which may hold kernels."""
    fields: dict[str, Any] = {"name": "ext", "cpp_sources": ("",), "cuda_sources": (MACRO,)}
    spec = ExtensionSpec(**fields | changes)
    (tmp_path / "build").mkdir()
    assert "split" not in cuda.prepare(spec, tmp_path / "build").headers.values()


JOINED = """
#include <torch/extension.h>
__global__ void k(float* x) { x[threadIdx.x] += 1.0f; }
%s torch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }
"""
DECLARED = "torch::Tensor f(torch::Tensor x);"


def joining(definition: str, declared: str = DECLARED) -> ExtensionSpec:
    """A specification that binds `f`, which `cpp_sources` declare and `cuda_sources` define."""
    return ExtensionSpec(
        name="ext", cpp_sources=(declared,), cuda_sources=(JOINED % definition,), functions=(("f", "f"),)
    )


@pytest.mark.parametrize(
    ("changes", "joined"),
    [
        ({}, True),
        ({"extra_cflags": ("-O3 -Wall",)}, True),
        ({"extra_cflags": ("-DTensor=int",)}, False),
        ({"no_implicit_headers": True}, False),
        ({"cpp_sources": ("inline int g() { return 1; } " + DECLARED,)}, False),
        ({"cuda_sources": ("#define f other\n" + JOINED % "",)}, False),
    ],
)
def test_when_a_main_is_joined(changes: dict[str, Any], joined: bool) -> None:
    units = units_of(replace(joining(""), **changes))
    assert (joined_bindings(replace(joining(""), **changes), *units) is not None) is joined


@needs_nvcc
def test_a_joined_main_binds_only_what_two_units_bind(tmp_path: Path) -> None:
    """A static definition, or one with other parameters, is no definition for another unit."""
    tools = NvccToolchain([(9, 0)], default_root())
    tools.warm_up()
    for name, spec, joined in (
        ("plain", joining(""), True),
        ("static", joining("static"), False),
        ("other", joining("", "torch::Tensor f(torch::Tensor x, int64_t n);"), False),
    ):
        _, log = built(tools, spec, tmp_path / name)
        assert (tmp_path / name / "cuda.cuda.o.joined").exists() is joined, log
        said = subprocess.run(
            ["nm", "-D", "-C", str(tmp_path / name / "module.so")], capture_output=True, text=True, check=True
        ).stdout
        assert (" T f(at::Tensor)" in said) is (name != "static")
        assert (" U f(at::Tensor" in said) is not joined, said

"""What g++ and nvcc are asked to do, held against torch's own extension builder, and the fallback from lean headers."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch.utils.cpp_extension as extension

from harness.core.choices import DeviceKind
from harness.core.environment import Gpu, MachineError
from harness.core.executables import find_nvcc
from harness.core.status import Status
from harness.hostcuda.toolchain import HostToolchain
from harness.runner.executors.toolchains import open_toolchain
from harness.toolchain import ExtensionSpec, NvccToolchain, Plan, SourceFile
from harness.toolchain import nvcc_toolchain as native_module
from harness.toolchain.ninja_file import try_lean
from harness.toolchain.torchinfo import find_torch, nvcc_flags_of, standard_of

CPP = "torch::Tensor f(torch::Tensor x);"
CUDA = "__global__ void k() {}\ntorch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(); return x; }"
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")


def toolchain(cache: Path, **options: Any) -> NvccToolchain:
    capabilities = options.pop("capabilities", [(9, 0)] if find_nvcc() else [])
    return NvccToolchain(capabilities, cache, **options)


def prepared(tmp_path: Path, spec: ExtensionSpec, **options: Any) -> tuple[Path, Plan]:
    folder = tmp_path / "build"
    folder.mkdir()
    return folder, toolchain(tmp_path / "cache", **options).prepare(spec, folder)


def variables(path: Path) -> dict[str, list[str]]:
    """The variables of a build file, split into words as a shell does."""
    lines = (line.partition(" = ") for line in path.read_text().splitlines() if " = " in line and line[0] != " ")
    return {name.strip(): shlex.split(value) for name, _, value in lines}


def torchs_own(folder: Path, monkeypatch: pytest.MonkeyPatch, *args: Any, **options: Any) -> dict[str, list[str]]:
    """What this torch writes for a `load_inline` call, without compiling it."""
    folder.mkdir()
    home = None if find_nvcc() is None else str(native_module.cuda_home(find_nvcc() or Path()))
    monkeypatch.setattr(extension, "CUDA_HOME", home)
    monkeypatch.setattr(extension, "_run_ninja_build", lambda *_, **__: None)
    monkeypatch.setattr(extension, "_import_module_from_library", lambda *_, **__: None)
    monkeypatch.setattr(extension, "remove_extension_h_precompiler_headers", lambda: None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    extension.load_inline(*args, build_directory=str(folder), **options)
    return variables(folder / "build.ninja")


OPTIONS: dict[str, Any] = {
    "functions": ["f"],
    "extra_cflags": ["-O3 -Wall", ""],
    "extra_cuda_cflags": ["--use_fast_math", ""],
    "extra_ldflags": ["-lm", ""],
    "extra_include_paths": ["/opt/somewhere include"],
}


def spec_of(**changes: Any) -> ExtensionSpec:
    fields: dict[str, Any] = {
        "name": "ext",
        "cpp_sources": (CPP,),
        "cuda_sources": (CUDA,),
        "functions": (("f", "f"),),
        **{name: tuple(value) for name, value in OPTIONS.items() if name != "functions"},
    }
    return ExtensionSpec(**fields | changes)


@needs_nvcc
def test_files_and_flags_are_torchs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = prepared(tmp_path, spec_of())
    own = torchs_own(tmp_path / "torch", monkeypatch, "ext", CPP, CUDA, **OPTIONS)
    ours = variables(folder / ".harness" / "full.ninja")
    for name in ("main.cpp", "cuda.cu"):
        assert (folder / name).read_text() == (tmp_path / "torch" / name).read_text()
    assert ours["cflags"] == own["cflags"]
    added = ["-lineinfo", "-Xptxas", "-v"]
    assert [flag for flag in ours["cuda_cflags"] if flag not in added] == own["cuda_cflags"]
    assert all(flag in ours["cuda_cflags"] for flag in added)
    # This torch may be a CPU build, without the libraries that torch names.
    absent = () if find_torch().has_cuda_libraries else ("-lc10_cuda", "-ltorch_cuda")
    assert ours["ldflags"] == [flag for flag in own["ldflags"] if flag not in absent]


def test_plain_cpp_is_torchs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = prepared(tmp_path, spec_of(name="plain", cuda_sources=(), extra_cuda_cflags=()), capabilities=())
    options = {name: value for name, value in OPTIONS.items() if name != "extra_cuda_cflags"}
    own = torchs_own(tmp_path / "torch", monkeypatch, "plain", CPP, **options)
    ours = variables(folder / ".harness" / "full.ninja")
    assert (folder / "main.cpp").read_text() == (tmp_path / "torch" / "main.cpp").read_text()
    assert (ours["cflags"], ours["ldflags"]) == (own["cflags"], own["ldflags"])


@needs_nvcc
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["-gencode=arch=compute_90,code=sm_90"]),
        ({"extra_cuda_cflags": ("-arch=sm_90a",)}, []),
        ({"extra_cuda_cflags": ("-gencode", "arch=compute_90a,code=sm_90a")}, []),
        ({"cuda_arch_list": "9.0a"}, ["-gencode=arch=compute_90a,code=sm_90a"]),
        (
            {"cuda_arch_list": "8.0 9.0+PTX"},
            [
                "-gencode=arch=compute_80,code=sm_80",
                "-gencode=arch=compute_90,code=compute_90",
                "-gencode=arch=compute_90,code=sm_90",
            ],
        ),
        ({"cuda_arch_list": "Hopper"}, ["-gencode=arch=compute_90,code=sm_90"]),
        ({"cuda_arch_list": "native"}, ["-gencode=arch=compute_90,code=sm_90"]),
    ],
)
def test_architectures_of_one_gpu(tmp_path: Path, changes: dict[str, Any], expected: list[str]) -> None:
    folder, _ = prepared(tmp_path, spec_of(**changes))
    flags = variables(folder / ".harness" / "full.ninja")["cuda_cflags"]
    assert [flag for flag in flags if flag.startswith("-gencode=")] == expected


@needs_nvcc
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["86", "90", "100"]),
        ({"cuda_arch_list": "native"}, ["86", "90", "100"]),
        ({"cuda_arch_list": "9.0"}, ["90"]),
        ({"extra_cuda_cflags": ("-arch=sm_90a",)}, []),
    ],
)
def test_architectures_of_several_gpus(tmp_path: Path, changes: dict[str, Any], expected: list[str]) -> None:
    """Each once, and a solution that names its own keeps its say."""
    folder, _ = prepared(tmp_path, spec_of(**changes), capabilities=[(10, 0), (9, 0), (8, 6), (9, 0)])
    flags = variables(folder / ".harness" / "full.ninja")["cuda_cflags"]
    expected_flags = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in expected]
    assert [flag for flag in flags if flag.startswith("-gencode=")] == expected_flags


@needs_nvcc
def test_a_language_standard_of_the_solutions_own(tmp_path: Path) -> None:
    folder, _ = prepared(tmp_path, spec_of(extra_cuda_cflags=("-std=c++17",)))
    flags = variables(folder / ".harness" / "full.ninja")["cuda_cflags"]
    assert [flag for flag in flags if flag.startswith("-std=")] == ["-std=c++17"]


def test_files_of_load_keep_their_places(tmp_path: Path) -> None:
    spec = ExtensionSpec(
        name="ext",
        files=(
            SourceFile(path="a.cpp", text="A"),
            SourceFile(path="include0/deep/b.h", text="B"),
        ),
        compiled=("a.cpp",),
        extra_include_paths=("include0",),
    )
    folder, plan = prepared(tmp_path, spec, capabilities=())
    assert (folder / "include0" / "deep" / "b.h").read_text() == "B"
    assert "-Iinclude0" in variables(folder / ".harness" / "full.ninja")["cflags"]
    assert set(plan.headers) == {"a.cpp"}


@pytest.mark.parametrize(
    ("own", "lacking", "quick"), [((), None, True), (("-Wl,-z,defs",), None, False), ((), "c10", False)]
)
def test_modules_are_linked_with_stubs_where_there_are_any(
    tmp_path: Path, own: tuple[str, ...], lacking: str | None, quick: bool
) -> None:
    """Unless the author has a say in how it is linked; what starts over is linked as torch does it."""
    spec = ExtensionSpec(name="ext", cpp_sources=(CPP,), functions=(("f", "f"),), extra_ldflags=own)
    tools = toolchain(tmp_path / "cache", capabilities=())
    assert tools._headers is not None
    stubs = tools._headers.folder / "stubs"
    stubs.mkdir(parents=True)
    for name in ("c10", "torch_cpu", "torch", "torch_python"):
        if name != lacking:
            (stubs / f"lib{name}.so").touch()
    folder = tmp_path / "build"
    folder.mkdir()
    plan = tools.prepare(spec, folder)
    flags = variables(folder / ".harness" / "build.ninja")["ldflags"]
    assert (f"-L{stubs}" in flags, f"-L{find_torch().lib}" in flags) == (quick, not quick)
    assert f"-L{find_torch().lib}" in variables(folder / ".harness" / "full.ninja")["ldflags"]
    assert tools._headers.folder in plan.readable


@pytest.mark.parametrize("name", ["build.ninja", "full.ninja", "try_lean.sh", "quick-a.cpp", "module.so"])
def test_a_source_may_be_called_as_a_file_of_the_build(tmp_path: Path, name: str) -> None:
    texts = {"a.cpp": "int a;", name: "int b;"}
    files = tuple(SourceFile(path=path, text=text) for path, text in texts.items())
    spec = ExtensionSpec(name="ext", files=files, compiled=tuple(texts))
    folder, plan = prepared(tmp_path, spec, capabilities=())
    assert {path: (folder / path).read_text() for path in texts} == texts
    assert set(plan.headers) == set(texts)
    assert "build module.so" in (folder / ".harness" / "build.ninja").read_text()


def test_lean_headers_can_be_switched_off(tmp_path: Path) -> None:
    spec = spec_of(cuda_sources=())
    _, plan = prepared(tmp_path, spec, lean_headers=False, capabilities=())
    assert (plan.headers, plan.second_try, plan.readable) == ({"main.cpp": "full"}, (), ())
    lean = toolchain(tmp_path / "cache", capabilities=())
    full = toolchain(tmp_path / "cache", lean_headers=False, capabilities=())
    assert lean.key(spec) != full.key(spec)


def test_the_processor_counts_only_where_it_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = toolchain(tmp_path, capabilities=())
    native, plain = spec_of(extra_cflags=("-O3 -march=native",)), spec_of()
    before = (tools.key(native), tools.key(plain))
    monkeypatch.setattr(native_module, "_cpu_flags", lambda: "another processor")
    assert tools.key(native) != before[0]
    assert tools.key(plain) == before[1]


def test_the_architecture_is_in_the_key(tmp_path: Path) -> None:
    if find_nvcc() is None:
        pytest.skip("no nvcc on this machine")
    kinds: list[list[tuple[int, int]]] = [[(8, 0)], [(9, 0)], [(8, 0), (9, 0)], []]
    assert " arch 9.0 lean " in toolchain(tmp_path, capabilities=[(9, 0)]).fingerprint  # as ever, or caches grow cold
    assert len({toolchain(tmp_path, capabilities=kind).key(spec_of()) for kind in kinds}) == 4


def test_without_nvcc_cuda_is_refused(tmp_path: Path) -> None:
    refused = toolchain(tmp_path, capabilities=()).refuse(spec_of())
    assert refused is not None
    assert refused.status is Status.unsupported


def test_missing_tools_are_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_module, "find_nvcc", lambda: None)
    with pytest.raises(MachineError, match="set CUDA_HOME"):
        NvccToolchain([(9, 0)], tmp_path)
    monkeypatch.setattr(native_module, "find_gxx", lambda: None)
    with pytest.raises(MachineError, match=r"install g\+\+"):
        NvccToolchain((), tmp_path)


def test_the_toolchain_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_toolchain(DeviceKind.HOST, tmp_path), HostToolchain)
    monkeypatch.setattr("harness.runner.executors.toolchains.query_gpus", lambda: ((), None, None, "no driver"))
    with pytest.raises(MachineError, match="no driver"):
        open_toolchain(DeviceKind.CUDA, tmp_path)


@needs_nvcc
def test_code_for_every_kind_of_gpu_unless_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = dict.fromkeys(item.name for item in fields(Gpu))
    gpus = tuple(Gpu(**unknown | {"compute_capability": kind}) for kind in ("10.0", "8.6", None, "10.0"))  # type: ignore[arg-type]
    monkeypatch.setattr("harness.runner.executors.toolchains.query_gpus", lambda: (gpus, "580", "13.0", None))
    assert " arch 8.6,10.0 " in open_toolchain(DeviceKind.CUDA, tmp_path).fingerprint
    assert " arch 9.0 " in open_toolchain(DeviceKind.CUDA, tmp_path, capabilities=[(9, 0)]).fingerprint


def test_max_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "3")
    _, plan = prepared(tmp_path, spec_of(cuda_sources=()), capabilities=())
    assert plan.commands[0][2:4] == ("-j", "3")


def test_what_torch_says_of_itself() -> None:
    text = "x = ['/std:c++17'] + ['-std=c++17']\ny = '-std=c++17'\nCOMMON_NVCC_FLAGS = [\n  '-DA',\n  '--b'\n]\n"
    assert standard_of(text) == "c++17"
    assert standard_of("") == "c++17"
    assert nvcc_flags_of(text) == ("-DA", "--b")
    with pytest.raises(MachineError):
        nvcc_flags_of("")
    assert find_torch().nvcc_flags == tuple(extension.COMMON_NVCC_FLAGS)


# -- the script that tries lean headers first ------------------------------------------------------------------

FAKE = """#!/bin/sh
case "$*" in
  *lean*) {lean} ;;
  *) {full} ;;
esac
"""


class Trial:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "headers").mkdir()
        (folder / "headers" / "torch.h").write_text("void known_name(int);")
        (folder / "try.sh").write_text(try_lean([folder / "headers"]))
        (folder / "x.cu").write_text("#include <torch/extension.h>\n\nauto y = known_name(1);\n")

    def __call__(self, lean: str, full: str = "echo full > x.o") -> subprocess.CompletedProcess[str]:
        compiler = self.folder / "compiler"
        compiler.write_text(FAKE.format(lean=lean, full=full))
        compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
        command = ["sh", "try.sh", "x.cu", "x.o", "--options=lean", os.fspath(compiler), "-c", "x.cu"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    @property
    def built(self) -> str | None:
        path = self.folder / "x.o"
        return path.read_text().strip() if path.exists() else None


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_lean_is_enough(trial: Trial) -> None:
    done = trial("echo a warning; echo lean > x.o", "echo never")
    assert (done.returncode, done.stdout, trial.built) == (0, "a warning\n", "lean")


def test_full_where_lean_lacks_something(trial: Trial) -> None:
    done = trial("""echo 'x.cu(3): error: identifier "known_name" is undefined'; echo half > x.o; exit 1""")
    assert (done.returncode, trial.built) == (0, "full")
    assert done.stdout.startswith("[harness] lean headers did not suffice for x.cu, ")
    assert all(line.startswith("[harness]") for line in done.stdout.splitlines())


def test_what_the_full_headers_say_counts(trial: Trial) -> None:
    done = trial(
        "echo 'x.cu(3): error: known_name is not what you think'; exit 1", "echo 'x.cu(9): error: real'; exit 2"
    )
    assert (done.returncode, trial.built) == (2, None)
    assert "x.cu(9): error: real" in done.stdout


@pytest.mark.parametrize(
    "message",
    [
        'x.cu(3): error: identifier "nobodys_name" is undefined',
        'x.cu(3): error: expected a ";"',
        'x.cu(3): error: namespace "torch" has no member "nobodys_name"',
        "x.cu:3:5: error: 'nobodys_name' was not declared in this scope; did you mean 'x'?",
        "x.cu:3:5: error: 'nobodys_name' does not name a type",
        "x.cu:3:5: error: 'nobodys_name' is not a member of 'torch'",
        "x.cu:3:5: error: 'class at::Tensor' has no member named 'nobodys_name'; did you mean 'y'?",
        "ptxas error   : Entry function '_Z1kv' uses too much shared data (0x13880 bytes, 0xc000 max)",
        "x.cu:3:10: fatal error: nobodys_header.h: No such file or directory",
        "x.cu:3:10: fatal error: /somewhere/else.h: No such file or directory",
        "x.cu:3:10: fatal error: *: No such file or directory",
    ],
)
def test_what_no_header_could_mend_is_not_tried_again(trial: Trial, message: str) -> None:
    (trial.folder / "message").write_text(message + "\n")
    done = trial("cat message; exit 1", "echo never > x.o")
    assert (done.returncode, done.stdout, trial.built) == (1, message + "\n", None)


def test_a_header_that_is_there_may_be_hidden_by_lean_ones(trial: Trial) -> None:
    done = trial("echo 'x.cu:3:10: fatal error: torch.h: No such file or directory'; exit 1")
    assert (done.returncode, trial.built) == (0, "full")


@pytest.mark.parametrize("hostile", ["$(touch pwned)", "`touch pwned`", "; touch pwned", "-rf"])
def test_names_in_messages_are_not_obeyed(trial: Trial, hostile: str) -> None:
    (trial.folder / "message").write_text(f'x.cu(3): error: identifier "{hostile}" is undefined\n')
    trial("cat message; exit 1")
    assert not (trial.folder / "pwned").exists()
    assert trial.built == "full"

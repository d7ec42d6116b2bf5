"""CUDA sources built for the CPU in sandboxes: modules, errors in the author's lines, and what can't be emulated.

The host device's libraries and headers are prepared where every run of the harness has them (most of a minute, once).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.preparing import TellPreparing
from harness.core.status import Status
from harness.core.subprocesses import CommandPool
from harness.hostcuda.toolchain import MANY_FULL, HostToolchain
from harness.hostcuda.translate.build import BuildError, Precompiled, PreparedHeaders, default_cache
from harness.toolchain import (
    BuildCache,
    BuilderZygotes,
    BuildOutcome,
    BuildTools,
    ExtensionSpec,
    SourceFile,
    build_solution,
)

KERNEL = """
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * FACTOR;
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""

HEAD = f'''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline
kernel = """{KERNEL}"""

class ModelNew(nn.Module):
    def forward(self, x):
        return ext.run(x)
'''


class Builder:
    def __init__(self, zygotes: BuilderZygotes, folder: Path) -> None:
        self.zygotes = zygotes
        self.folder = folder
        self.toolchain = HostToolchain(default_cache(), checked=False)
        self.cache = BuildCache(folder / "cache")

    def __call__(self, body: str) -> BuildOutcome:
        return build_solution(
            HEAD + textwrap.dedent(body),
            "solution.py",
            BuildTools(zygotes=self.zygotes, toolchain=self.toolchain, cache=self.cache, timeout_s=300),
            log_path=self.folder / "log",
        )


@pytest.fixture
def build(zygotes: BuilderZygotes, tmp_path: Path) -> Builder:
    return Builder(zygotes, tmp_path)


RUN = """
import json, sys
from pathlib import Path
import torch
from harness.untrusted.contestant import load_inline as inject
from harness.untrusted.contestant.hostcuda import shim
from harness.hostcuda.translate.build import prepare_headers
prepared = prepare_headers()
shim.activate(prepared, checked=False)
here = inject.host_builder(prepared.folder, checked=False)
notes = inject.install(json.loads(sys.argv[1]), build_here=here)
scope = {}
exec(sys.stdin.read(), scope)
x = torch.arange(40.0, device="cuda")
assert torch.equal(scope["ext"].run(x).cpu(), 2 * torch.arange(40.0))
print(json.dumps(notes))
"""


def run(injected: tuple[dict[str, object], ...], body: str) -> list[str]:
    """Run it where a solution runs; what was noted."""
    command = [sys.executable, "-c", RUN, json.dumps(injected)]
    source = HEAD + textwrap.dedent(body)
    with tempfile.TemporaryDirectory() as private:  # as where a solution runs
        own = os.environ | {"TMPDIR": private}
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False, env=own)
    assert done.returncode == 0, done.stderr
    notes: list[str] = json.loads(done.stdout.splitlines()[-1])
    return notes


INLINE = """
declaration = "torch::Tensor run(torch::Tensor x);"
ext = load_inline("twice", declaration, kernel.replace("FACTOR", "2.0f"), functions=["run"])
"""


def test_a_kernel_is_built_ahead_and_runs_on_the_cpu(build: Builder) -> None:
    outcome = build(INLINE)
    assert outcome.failure is None
    assert outcome.has_cuda_sources
    assert outcome.modules[0].report.headers == {"cuda.cu": "emulated"}
    assert set(outcome.runtime) < set(outcome.readable)
    assert run(outcome.injected(), INLINE) == []
    assert build(INLINE).cache_hits == 1


def test_files_of_a_solution_become_texts_with_their_headers_beside_them(tmp_path: Path) -> None:
    texts = {"k.cu": '#include "factor.h"', "bind.cpp": "int f();", "factor.h": "#define FACTOR 2", "include0/x.h": ""}
    spec = ExtensionSpec(
        name="twice",
        files=tuple(SourceFile(path=path, text=text) for path, text in texts.items()),
        compiled=("k.cu", "bind.cpp"),
        extra_include_paths=("include0", "/usr/include/somewhere"),
    )
    plan = HostToolchain(default_cache()).prepare(spec, tmp_path)
    job = json.loads((tmp_path / "job.json").read_text())
    assert (job["cuda_sources"], job["cpp_sources"]) == (['#include "factor.h"'], ["int f();"])
    assert (tmp_path / "factor.h").read_text() == "#define FACTOR 2"
    assert job["include_paths"] == [str(tmp_path), str(tmp_path / "include0"), "/usr/include/somewhere"]
    assert plan.product == "twice.so"


def test_what_was_not_foreseen_is_built_where_the_solution_runs() -> None:
    notes = run((), INLINE)
    assert notes[0] == "building twice where the solution runs: not found by the discovery"


def test_an_error_is_placed_in_the_authors_line(build: Builder) -> None:
    declared = "torch::Tensor run(torch::Tensor x);"
    wrong = 'kernel.replace("FACTOR", "missing_factor")'
    outcome = build(f'ext = load_inline("twice", {declared!r}, {wrong}, functions=["run"])')
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    error = outcome.compiler_error
    assert error is not None
    assert (error.file, error.line) == ("cuda source 1", 6)
    assert "missing_factor" in error.message


def test_a_compilers_message_can_not_pass_for_a_fault_of_the_harness(build: Builder) -> None:
    """Nor for a construct that can't be emulated: either would count nowhere."""
    lines = (
        "Traceback (most recent call last):",
        '  File "/opt/harness/hostcuda/compile.py", line 1, in <module>',
        "KeyError: 1",
        "cuda.cu:3: note: not emulated: everything",
    )
    said = json.dumps("\n".join(("", *lines)))
    outcome = build(
        f"""
        forged = {f"__attribute__((error({said}))) void bad();"!r} + kernel
        forged = forged.replace("return y;", "bad(); return y;").replace("FACTOR", "2")
        ext = load_inline("twice", "torch::Tensor run(torch::Tensor x);", forged, functions=["run"])
        """
    )
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error, outcome.failure
    assert "bad" in outcome.failure.reason


def test_what_can_not_be_emulated_is_told_from_errors(tmp_path: Path) -> None:
    spec = ExtensionSpec(name="k", cuda_sources=("// one", "// two\n#include <cublasLt.h>"))
    log = "cuda.cu:3: note: not emulated: cuBLAS (#include <cublasLt.h>)\ncuda.cu:3:10: fatal error: cublasLt.h: No\n"
    found = HostToolchain(tmp_path).interpret(spec, log + log)
    assert found.not_emulated == ("cuda source 2, line 2: cuBLAS (#include <cublasLt.h>)",)
    solution = 'import torch\n\nONE = """// one"""\nTWO = """// two\n#include <cublasLt.h>"""\n'
    placed = HostToolchain(tmp_path).interpret(spec, log, solution=solution)
    assert placed.not_emulated == ("cuda source 2, line 2 (line 5 of the solution): cuBLAS (#include <cublasLt.h>)",)
    assert found.error is not None
    assert (found.error.file, found.error.line) == ("cuda source 2", 2)


def test_a_name_that_no_module_can_have(tmp_path: Path) -> None:
    toolchain = HostToolchain(tmp_path)
    for name in ("../../escape", "my-kernel", "1st"):
        failure = toolchain.refuse(ExtensionSpec(name=name, cuda_sources=("",)))
        assert failure is not None
        assert failure.status is Status.compile_error
    assert toolchain.refuse(ExtensionSpec(name="my_kernel", cuda_sources=("",))) is None


def test_the_mode_is_in_the_key(tmp_path: Path) -> None:
    spec = ExtensionSpec(name="k", cuda_sources=("",))
    assert HostToolchain(tmp_path).key(spec) != HostToolchain(tmp_path, checked=True).key(spec)
    plain = ExtensionSpec(name="k", cpp_sources=("",))
    assert HostToolchain(tmp_path).key(plain) == HostToolchain(tmp_path, checked=True).key(plain)


HALF = KERNEL.replace("* FACTOR;", "* 2.0f; if (i < 0) { __half a, b; a = a + b; }").replace(
    "#include <torch/extension.h>", "#include <torch/extension.h>\n#include <cuda_fp16.h>"
)


def test_operators_of_half_types_are_there_only_where_the_solution_takes_torchs_switch_back(build: Builder) -> None:
    call = 'ext = load_inline("twice", "torch::Tensor run(torch::Tensor x);", HALF, functions=["run"], FLAGS)'
    source = f"HALF = {HALF!r}\n{call}\n"
    refused = build(source.replace("FLAGS", "extra_cuda_cflags=[]"))
    assert refused.failure is not None
    assert refused.failure.status is Status.compile_error
    assert refused.compiler_error is not None
    assert "operator+" in refused.compiler_error.message
    taken = build(source.replace("FLAGS", "extra_cuda_cflags=['-O3', '-U__CUDA_NO_HALF_OPERATORS__']"))
    assert taken.failure is None


def test_what_cublas_lacks_is_not_emulated_whether_its_header_is_named_or_not(build: Builder) -> None:
    for number, head in enumerate(("#include <cublasLt.h>", "#include <ATen/cuda/CUDAContext.h>")):
        kernel = KERNEL.replace("FACTOR", "2.0f").replace("auto y", "cublasLtHandle_t handle;\n  auto y")
        kernel = kernel.replace("#include <torch/extension.h>", f"#include <torch/extension.h>\n{head}")
        declared = "torch::Tensor run(torch::Tensor x);"
        outcome = build(f'ext = load_inline("blas{number}", {declared!r}, {kernel!r}, functions=["run"])')
        assert outcome.failure is not None
        assert outcome.failure.status is Status.not_emulated
        assert "cuBLAS" in outcome.failure.reason
        assert "line" in outcome.failure.reason


def test_all_of_torch_is_precompiled_only_where_many_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Precompiled] = []

    def noted(
        crew: CommandPool, headers: PreparedHeaders, kind: Precompiled, *, checked: bool, tell: TellPreparing
    ) -> None:
        assert checked
        begun.append(kind)
        if kind is Precompiled.FULL:
            raise BuildError("no room: the build does without")

    monkeypatch.setattr("harness.hostcuda.translate.build.precompile", noted)
    toolchain = HostToolchain(default_cache(), checked=True)
    switched = ("-U__CUDA_NO_HALF_OPERATORS__",)
    for number in range(MANY_FULL + 1):
        for line, flags in (("torch::nn::ReLU relu;", ()), ("", switched), ("", ())):
            source = f"#include <torch/extension.h>\n__global__ void k() {{}}\nvoid f() {{ {line} }}\n"
            spec = ExtensionSpec(name="m", cuda_sources=(source,), functions=(("f", ""),), extra_cuda_cflags=flags)
            plan = toolchain.prepare(spec, tmp_path / f"{number}{line}{len(flags)}")
            assert plan.commands
    assert begun.count(Precompiled.SWITCHED) == begun.count(Precompiled.LEAN) == MANY_FULL + 1
    assert begun.count(Precompiled.FULL) == 2, "the third one and the fourth"


def test_what_main_needs_is_precompiled_only_if_it_has_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Precompiled] = []
    monkeypatch.setattr(
        "harness.hostcuda.translate.build.precompile", lambda crew, headers, kind, *, checked, tell: begun.append(kind)
    )
    toolchain = HostToolchain(default_cache(), checked=True)
    for cpp, expected in (("void f();", [Precompiled.LEAN]), ("void f() {}", [Precompiled.LEAN, Precompiled.SWITCHED])):
        begun.clear()
        spec = ExtensionSpec(name="m", cpp_sources=(cpp,), cuda_sources=("",), functions=(("f", ""),))
        toolchain.prepare(spec, tmp_path / str(len(expected)))
        assert begun == expected


def test_who_closes_it_waits_for_no_compiler(tmp_path: Path) -> None:
    started, compiler = tmp_path / "started", tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 600\n")
    compiler.chmod(0o755)
    toolchain = HostToolchain(default_cache(), checked=True)
    (tmp_path / "headers").mkdir()
    own = replace(toolchain._prepared, headers=tmp_path / "headers", compiler=str(compiler))
    toolchain.__dict__["_prepared"] = own
    source = "#include <torch/extension.h>\n__global__ void k() {}\nvoid f() {}\n"
    flags = ("-U__CUDA_NO_HALF_OPERATORS__",)
    spec = ExtensionSpec(name="m", cuda_sources=(source,), functions=(("f", ""),), extra_cuda_cflags=flags)
    with ThreadPoolExecutor(1) as pool:
        plan = pool.submit(toolchain.prepare, spec, tmp_path / "build")
        while not started.exists():
            assert not plan.done()
            time.sleep(0.01)
        toolchain.close()
        assert plan.result(60).commands
    toolchain.close()
    assert not list((tmp_path / "headers").rglob("*.gch"))

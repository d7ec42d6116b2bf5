"""The static screen: every rule fires where it should, honest examples stay nearly silent, and nothing crashes it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.catalog.screen import RULES, Screening, Weight, screen, screen_cuda
from harness.catalog.screen.findings import MAX_FINDINGS
from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.results.reader import timestamp
from harness.results.writer import RunStore
from tests.support.paths import ROOT

PYTHON = {
    "clock_patch": "import torch.cuda as c\nc.Event.elapsed_time = lambda a, b: 1e-3",
    "stream": "import torch\ns = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())",
    "stream_not_joined": "from torch.cuda import Stream as S\ns = S()",
    "thread": "from threading import Thread\nThread(target=print).start()",
    "cache_by_address": "class M:\n def forward(self, x):\n  key = x.data_ptr()\n  return self.known[key]",
    "cache_by_shape": "class M:\n def forward(self, x):\n  k = tuple(x.shape)\n  if k not in self.plans: pass",
    "lazy_tensor": "import torch\nclass T(torch.Tensor):\n pass",
    "reads_clock": "from time import perf_counter as pc\npc()",
    "sleeps": "import time\ntime.sleep(1)",
    "call_counter": "class ModelNew:\n def forward(self, x):\n  self.n += 1\n  return x",
    "kept_between_calls": "class ModelNew:\n def forward(self, x):\n  self.y = x\n  return x",
    "cuda_graph": "import torch\ng = torch.cuda.CUDAGraph()",
    "introspection": "import sys\nsys._getframe(1).f_back",
    "process_memory": "p = '/proc/self/mem'",
    "ignores_input": "class ModelNew:\n def forward(self, x, y):\n  return x",
    "constant_answer": "import torch\nclass ModelNew:\n def forward(self, x):\n  y = torch.empty_like(x)\n  return y",
    "input_rebuilt": "import torch\ntorch.manual_seed(42)",
    "private_gpu_memory": "import torch\ntorch.cuda.mem_get_info()",
    "hard_coded_shape": "class ModelNew:\n def forward(self, x):\n  assert x.shape == (16, 1024)\n  return x",
    "half_precision": "class ModelNew:\n def forward(self, x):\n  return x.half().float()",
    "tf32": "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
    "fast_math": "flags = ['--use_fast_math']",
    "changes_input": "class ModelNew:\n def forward(self, x):\n  return x.add_(1)",
    "inherits_reference": "from problem import Model\nclass ModelNew(Model):\n pass",
    "decoy_kernel": "from torch.utils.cpp_extension import load_inline\nm = load_inline(cpp_sources='int f();')",
    "no_custom_kernel": "import torch\nclass ModelNew(torch.nn.Module):\n pass",
    "torch_compile": "import torch as t\nf = t.compile(print)",
    "falls_back": "try:\n  import triton\nexcept ImportError:\n  triton = None",
    "vendor_library": "import torch.nn.functional as F\ndef f(x):\n return F.softmax(x, -1)",
    "process_exit": "import os\ngetattr(os, '_exit')(0)",
    "monkeypatch": "import torch\nsetattr(torch, 'allclose', lambda *a: True)",
    "imports_harness": "from harness import verify",
    "dynamic_code": "import base64\nexec(base64.b64decode('eA=='))",
    "hooks": "import atexit\natexit.register(print)",
    "descriptors": "import os\nos.write(1, b'x')",
    "network": "import socket",
    "special_methods": "class T:\n def __eq__(self, o):\n  return True",
    "hidden_source": "from torch.utils.cpp_extension import load_inline\nload_inline(name='a', cuda_sources=make())",
    "file_access": "open('x')",
    "environment": "import os\nos.environ['A'] = 'b'",
    "global_flags": "import torch\ntorch.set_num_threads(1)",
    "private_torch": "import torch\ntorch._foo(1)",
    "prints": "import sys\nsys.stdout.flush()",
}

CUDA = {
    "clock_patch": "cudaError_t cudaEventElapsedTime(float* ms, void* a, void* b) { *ms = 0.01f; return 0; }",
    "stream": "auto s = c10::cuda::getStreamFromPool(); void f() { cudaStreamSynchronize(s); }",
    "stream_not_joined": "void f() { cudaStream_t s; cudaStreamCreate(&s); }",
    "host_callback": "void f() { cudaLaunchHostFunc(s, g, nullptr); }",
    "thread": "void f() { std::thread t([] { g(); }); t.detach(); }",
    "cache_by_address": "int f(at::Tensor x) { return memo[x.data_ptr()]; }",
    "reads_clock": "__global__ void k() { long a = clock64(); } void f() { k<<<2, 2>>>(); }",
    "sleeps": "__device__ void f() { __nanosleep(100); }",
    "call_counter": "int f() { static int calls = 0; return ++calls; }",
    "static_tensor": "static torch::Tensor kept;",
    "cuda_graph": "void f() { cudaGraphLaunch(g, s); }",
    "persisting_l2": "void f() { cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20); }",
    "process_memory": 'void f() { auto p = "/proc/self/maps"; }',
    "private_gpu_memory": "void f() { cuMemGetAddressRange(&b, &s, p); }",
    "hard_coded_shape": "void f(at::Tensor x) { TORCH_CHECK(x.size(0) == 4096); }",
    "half_precision": "__device__ float f(float x) { return __half2float(__float2half(x)); }",
    "tf32": 'void f() { asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {};"); }',
    "fast_math": "__device__ float f(float x) { return __expf(x); }",
    "decoy_kernel": "__global__ void never(float* x) { x[0] = 0; }",
    "tiny_launch": "__global__ void k() {} void f() { k<<<1, 1>>>(); }",
    "falls_back": "int f() { try { g(); } catch (...) { return 1; } return 0; }",
    "vendor_library": "void f() { cublasSgemm(h, 0, 0); }",
    "library_only": "at::Tensor f(at::Tensor a) { return at::matmul(a, a); }",
    "process_exit": "void f() { _exit(0); }",
    "descriptors": "void f() { write(1, s, 3); }",
    "network": "void f() { int s = socket(1, 2, 3); }",
    "native_tricks": "__attribute__((constructor)) void f() {}",
    "python_from_cpp": 'void f() { py::exec("x"); }',
    "file_access": 'void f() { fopen("x", "r"); }',
    "environment": 'void f() { setenv("A", "B", 1); }',
    "global_flags": "void f() { cudaDeviceSetLimit(a, b); }",
    "prints": 'void f() { printf("x"); }',
}


@pytest.mark.parametrize("rule", sorted(PYTHON))
def test_each_rule_finds_its_construct_in_python(rule: str) -> None:
    held = screen(PYTHON[rule])
    assert held.unreadable is None
    assert rule in {item.rule for item in held.findings}


@pytest.mark.parametrize("rule", sorted(CUDA))
def test_each_rule_finds_its_construct_in_cuda(rule: str) -> None:
    assert rule in {item.rule for item in screen_cuda(CUDA[rule]).findings}


def test_every_rule_is_tried_and_explained() -> None:
    assert set(PYTHON) | set(CUDA) == set(RULES)
    assert all(rule.name == name and len(rule.why) > 10 for name, rule in RULES.items())


def test_a_finding_in_a_string_has_the_line_of_the_file() -> None:
    source = 'import torch\n\nCUDA = r"""\n#include <x>\nvoid f() {\n    cudaLaunchHostFunc(s, g, 0);\n}\n"""\n'
    (found,) = [item for item in screen(source).findings if item.rule == "host_callback"]
    assert (found.line, found.excerpt) == (6, "cudaLaunchHostFunc(s, g, 0);")


@pytest.mark.parametrize(
    "literal",
    [
        '"#include <x>\\n"\n    "void f() {\\n"\n    "    cudaLaunchHostFunc(s, g, 0);}\\n"',
        'f"""#include <x>\nvoid f() {{ int n = {N};\n    cudaLaunchHostFunc(s, g, 0);}}\n"""',
    ],
)
def test_lines_of_joined_and_formatted_strings(literal: str) -> None:
    source = f"N = 3\nCODE = (\n    {literal}\n)\n"
    (found,) = [item for item in screen(source).findings if item.rule == "host_callback"]
    assert "cudaLaunchHostFunc" in found.excerpt
    assert found.line == 5


def test_a_kernel_launched_in_another_string_is_no_decoy() -> None:
    source = 'K = "__global__ void k(float* x) {}"\nH = "void f(float* x) { k<<<8, 32>>>(x); }"\n'
    assert not [item for item in screen(source).findings if item.rule == "decoy_kernel"]


@pytest.mark.parametrize(
    "path",
    [
        *sorted((ROOT / "solutions" / "examples").glob("optimised/**/*.py")),
        *sorted((ROOT / "solutions" / "examples").glob("naive/**/*.py")),
    ],
    ids=lambda path: path.stem,
)
def test_nothing_rare_is_found_in_the_honest_examples(path: Path) -> None:
    strong = {i.rule for i in screen(path.read_text()).findings if i.described.weight is Weight.STRONG}
    assert strong <= ({"no_custom_kernel"} if "library_call" in path.name else set())


def test_most_cheats_show_something() -> None:
    """A kernel that is wrong on purpose looks like one that is right; most other tricks need a construct."""
    cheats = sorted((ROOT / "tests" / "exploits" / "cheats").rglob("*.py"))
    screened = [screen(path.read_text()) for path in cheats]
    assert all(held.unreadable is None for held in screened)
    assert sum(bool(held.findings) for held in screened) > 0.9 * len(cheats) > 9


def test_what_is_not_python_says_so_with_its_line() -> None:
    held = screen("x = 1\ndef f(:\n")
    assert held.findings == ()
    assert held.unreadable is not None
    assert held.unreadable.startswith("line 2: not valid Python")


def test_broken_cuda_is_read_as_far_as_it_goes() -> None:
    held = screen_cuda("void f( { cudaLaunchHostFunc(s, g, 0) ")
    assert "host_callback" in {item.rule for item in held.findings}
    assert held.notes


def test_findings_are_bounded() -> None:
    assert len(screen("import os\n" + "os._exit(0)\n" * 3 * MAX_FINDINGS).findings) == MAX_FINDINGS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "16_fast.py"
    path.write_text("import os\n\n\nos._exit(0)  # \x1b[31m\n")
    return path


def test_the_command_lists_advice_and_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", str(file)]) == 0
    shown = capsys.readouterr()
    assert "4 ! process_exit" in shown.out
    assert "ends or signals processes" in shown.out
    assert "\x1b" not in shown.out
    assert "no verdict" in shown.err


def test_the_command_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", str(file.parent), "--json"]) == 0
    (held,) = json.loads(capsys.readouterr().out)
    assert held["file"] == str(file)
    assert held["unreadable"] is None
    assert {(item["rule"], item["line"], item["family"], item["weight"]) for item in held["findings"]} >= {
        ("process_exit", 4, "harness", "strong")
    }


@pytest.mark.parametrize(("rule", "code"), [("process_exit", 1), ("network", 0), ("strong", 1), ("any", 1)])
def test_a_gate_is_asked_for(file: Path, rule: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", str(file), "--fail-on", rule]) == code
    assert ("process_exit" in capsys.readouterr().err) == (code == 1)


def test_wrong_calls(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", str(file), "--fail-on", "nonsense"]) == 2
    assert "--rules" in capsys.readouterr().err
    assert main(["screen", str(tmp_path / "absent.py")]) == 2
    assert "absent.py" in capsys.readouterr().err
    assert main(["screen"]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["screen", str(tmp_path / "empty")]) == 2


def test_a_file_that_can_not_be_parsed_is_a_failed_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("def f(:\n")
    (tmp_path / "b.py").write_bytes(b"\xff\xfe")
    (tmp_path / "c.cu").write_text("__global__ void k() {}")
    assert main(["screen", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "line 1: not valid Python" in shown.out
    assert "not UTF-8" in shown.out
    assert "decoy_kernel" in shown.out
    assert "2 of 3 files" in shown.err


def test_the_sources_of_a_run_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    judged = "import os\nos._exit(0)\n"
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "renamed.py").write_text(judged)

    def record(name: str, source: str) -> Record:
        return Record(
            problem="level1/1",
            author="ann",
            solution=f"ann/level1/{name}",
            device=DeviceKind.HOST,
            workload="small",
            status=Status.crashed,
            reason="it left",
            solution_digest=digest_text(source),
            finished_at=timestamp(),
        )

    run = tmp_path / "results" / "one"
    with RunStore.create(run, config={}, environment={}) as store:
        store.append(record("1_a.py", judged))
        store.append(record("1_b.py", "edited since"))
    assert main(["screen", str(run)]) == 1
    shown = capsys.readouterr()
    assert "ann/level1/1_a.py (crashed): " in shown.out
    assert "process_exit" in shown.out
    assert "1_b.py (crashed): not screened" in shown.out
    assert "1 of 2 files" in shown.err


def test_the_rules_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen", "--rules"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in RULES)
    assert main(["screen", "--rules", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(RULES)


@pytest.mark.parametrize("screened", [screen, screen_cuda])
def test_a_file_that_would_take_minutes_is_not_looked_at(screened: Callable[[str], Screening]) -> None:
    begin_s = time.process_time()
    found = screened("a<" * 300_000)
    assert time.process_time() - begin_s < 1.0
    assert found.unreadable == "600000 characters, more than 262144: not looked at"
    assert screened("x = 1  # " + "y" * 200_000).unreadable is None

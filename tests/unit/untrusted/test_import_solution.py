"""What solutions ask to have built, found in real sandboxed processes, and who is to blame when that breaks off."""

from __future__ import annotations

import importlib.util
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.status import Status
from harness.toolchain import BuilderZygotes
from harness.toolchain.arguments import describe
from harness.toolchain.discovery import Discovery, Request, harvest
from harness.toolchain.packages import is_lacking
from harness.toolchain.spec import MAX_AHEAD_BYTES

EXT = 'load_inline("ext", cpp_sources="int f(int);", functions=["f"])'
HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.cpp_extension import load, load_inline\n"
MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        return x
"""


class Harvester:
    def __init__(self, zygotes: BuilderZygotes, log_path: Path) -> None:
        self.zygotes = zygotes
        self.log_path = log_path

    def __call__(
        self,
        body: str,
        *,
        init: tuple[Any, ...] = (),
        inputs: tuple[Any, ...] | None = (torch.empty(64, 32, device="meta"),),
        refused: dict[str, str] | None = None,
        timeout_s: float = 120.0,
        filename: str = "solution_16.py",
    ) -> Discovery:
        return harvest(
            Request(
                source=HEAD + textwrap.dedent(body),
                filename=filename,
                arguments=None if inputs is None else describe(init, inputs),
                refused=refused or {},
                seed=0,
            ),
            zygote=self.zygotes.torch,
            sandbox="auto",
            log_path=self.log_path,
            timeout_s=timeout_s,
        )


@pytest.fixture
def run(zygotes: BuilderZygotes, tmp_path: Path) -> Harvester:
    return Harvester(zygotes, tmp_path / "log")


def names(found: Discovery) -> list[str]:
    return [spec.name for spec in found.specs]


# -- where extensions are found ------------------------------------------------------------------------------


def test_compiled_at_import(run: Harvester) -> None:
    found = run(f"ext = {EXT}\n{MODEL}")
    assert (names(found), found.failure, found.complete) == (["ext"], None, True)
    assert found.specs[0].functions == (("f", "f"),)


def test_the_text_that_was_read_is_compiled_whatever_encoding_it_declares(
    zygotes: BuilderZygotes, tmp_path: Path
) -> None:
    request = Request(
        source=f"# coding: utf-7\n{HEAD}ext = {EXT}\n{MODEL}\n# +AAo-raise SystemExit('hidden')\n",
        filename="mine.py",
        arguments=None,
        refused={},
        seed=0,
    )
    found = harvest(request, zygote=zygotes.torch, sandbox="auto", log_path=tmp_path / "log", timeout_s=60.0)
    assert (names(found), found.failure) == (["ext"], None)


def test_compiled_in_the_constructor_with_arguments(run: Harvester) -> None:
    found = run(
        f"""
        class ModelNew(nn.Module):
            def __init__(self, width, activation="relu"):
                super().__init__()
                self.linear = nn.Linear(width, width)
                self.ext = {EXT}
        """,
        init=(8192,),
    )
    assert (names(found), found.failure) == (["ext"], None)


def test_compiled_on_first_call(run: Harvester) -> None:
    found = run(
        f"""
        class ModelNew(nn.Module):
            ext = None
            def forward(self, x):
                x = x.contiguous().cuda()
                assert x.is_cuda and x.device.type == "cuda" and x.shape == (64, 32)
                if self.ext is None:
                    ModelNew.ext = {EXT}
                return self.ext.f(x)
        """
    )
    assert (names(found), found.failure) == (["ext"], None)


def test_a_swallowed_exception_hides_nothing(run: Harvester) -> None:
    """A function of an extension that is not there yet must not look like a failing kernel."""
    found = run(
        f"""
        class ModelNew(nn.Module):
            def forward(self, x):
                try:
                    return {EXT}.f(x)
                except Exception:
                    {EXT.replace('"ext"', '"fallback"')}
        """
    )
    assert names(found) == ["ext"]


def test_functions_looked_up_at_import(run: Harvester) -> None:
    found = run(f"ext = {EXT}\nf = ext.f\nassert hasattr(ext, 'f') and callable(f)\n{MODEL}")
    assert (names(found), found.failure) == (["ext"], None)


def test_several_extensions_each_once(run: Harvester) -> None:
    second = EXT.replace("ext", "second")
    found = run(f"import torch.utils.cpp_extension as c\na = {EXT}\nb = c.{second}\nagain = {EXT}\n{MODEL}")
    assert names(found) == ["ext", "second"]


def test_operators_registered_with_torch(run: Harvester) -> None:
    found = run(
        f"""
        load_inline("ops", cpp_sources="TORCH_LIBRARY(mine, m) {{}}", is_python_module=False)
        relu = torch.ops.mine.relu
        {MODEL.replace(chr(10), chr(10) + " " * 8)}
        """
    )
    assert (names(found), found.failure) == (["ops"], None)
    assert not found.specs[0].is_python_module


def test_operators_that_come_with_a_module(run: Harvester) -> None:
    """They are missing until it is loaded, which is nobody's fault."""
    found = run(
        f"""
        load_inline("ops", cpp_sources='TORCH_LIBRARY(mine, m) {{{{ m.def("f(Tensor x) -> Tensor"); }}}}', functions=[])
        torch.library.register_fake("mine::f")(lambda x: x)
        {MODEL.replace(chr(10), chr(10) + " " * 8)}
        """
    )
    assert (names(found), found.failure) == (["ops"], None)
    assert any("mine::f" in note for note in found.notes)


@pytest.mark.parametrize(
    "line",
    [
        "assert int(torch.version.cuda.split('.')[0]) >= 11",
        "import os; os.path.join(torch.utils.cpp_extension.CUDA_HOME, 'include')",
        "kernel = torch.cuda._compile_kernel('extern \"C\" __global__ void f() {}', 'f')",
        "square = torch.cuda.jiterator._create_jit_fn('template <typename T> T f(T x) { return x * x; }')",
        "assert torch.cuda.get_arch_list()[-1].startswith('sm_')",
        "free, total = torch.cuda.mem_get_info()",
        "'%d' % torch.cuda.Stream().cuda_stream + None",
        "torch.cuda.get_sync_debug_mode() + None",
    ],
)
def test_what_only_a_cuda_build_of_torch_knows_is_no_fault(run: Harvester, line: str) -> None:
    found = run(f"import torch.utils.cpp_extension\n{line}\n{MODEL}")
    assert found.failure is None


def test_files_that_the_solution_writes(run: Harvester) -> None:
    found = run(
        f"""
        import os, tempfile
        folder = tempfile.mkdtemp()
        with open(os.path.join(folder, "k.cu"), "w") as file:
            file.write("int f() {{ return 1; }}")
        ext = load("ext", [os.path.join(folder, "k.cu")])
        {MODEL.replace(chr(10), chr(10) + " " * 8)}
        """
    )
    assert found.specs[0].compiled == ("k.cu",)


def test_an_architecture_of_its_own(run: Harvester) -> None:
    found = run(f"import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0a'\next = {EXT}\n{MODEL}")
    assert found.specs[0].cuda_arch_list == "9.0a"


def test_a_gpu_in_the_constructor_is_make_believe(run: Harvester) -> None:
    found = run(
        f"""
        assert torch.cuda.is_available()
        table = torch.arange(1 << 40, device="cuda")
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(100_000, 100_000).cuda())
                self.stream = torch.cuda.Stream()
                self.count = torch.cuda.get_device_properties(0).multi_processor_count
                with torch.cuda.stream(self.stream):
                    self.scale = torch.ones(3, device=self.weight.device)
                torch.cuda.synchronize()
                self.to("cuda:0")
                self.ext = {EXT}
        """
    )
    assert (names(found), found.failure) == (["ext"], None)


@pytest.mark.parametrize(
    "line",
    [
        "x.record_stream(torch.cuda.current_stream())",
        "x = torch.ones(3, device='cpu').pin_memory()",
        "x = x.to(torch.device('cuda', 0), torch.float16)",
        "x = x.to(0).cuda(0) + torch.ones(32, device=0)",
        "x = x.type(torch.cuda.HalfTensor).type('torch.cuda.FloatTensor')",
        "x = torch.randn(4, 4, device='cuda', generator=torch.Generator(device='cuda').manual_seed(0))",
        "torch.cuda.nvtx.range_push('a'), torch.cuda.nvtx.range_pop()",
        "torch.accelerator.synchronize(), torch.accelerator.current_stream()",
        "torch.Stream(device='cuda').wait_stream(torch.cuda.current_stream())",
        "torch.cuda.graph_pool_handle(), torch.cuda.get_rng_state()",
        "assert torch.device('cuda').type == 'cuda' and torch.device('cuda', 0).index == 0",
    ],
)
def test_what_torch_has_for_a_gpu_only_is_passed_on_the_way(run: Harvester, line: str) -> None:
    found = run(
        f"""
        class ModelNew(nn.Module):
            def forward(self, x):
                {line}
                return {EXT}.f(x)
        """
    )
    assert (names(found), found.notes) == (["ext"], ())


def test_code_that_looks_at_values_is_tried_with_values(run: Harvester) -> None:
    found = run(
        f"""
        width = int(torch.tensor([3.0]).cuda().sum().item())
        ext = {EXT}
        class ModelNew(nn.Module):
            def forward(self, x):
                assert width == 3
                return {EXT.replace("ext", "second")}.f(x)
        """
    )
    assert names(found) == ["ext", "second"]


def test_without_arguments_forward_gets_matrices(run: Harvester) -> None:
    found = run(
        f"""
        class ModelNew(nn.Module):
            def forward(self, a, b):
                return {EXT}.f(a @ b)
        """,
        inputs=None,
    )
    assert (names(found), found.failure) == (["ext"], None)


def test_torch_only(run: Harvester) -> None:
    found = run(MODEL)
    assert (names(found), found.failure, found.complete) == ([], None, True)


def test_extensions_found_before_the_end_are_kept(run: Harvester) -> None:
    found = run(f"a = {EXT}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        import os; os._exit(3)")
    assert (names(found), found.failure, found.complete) == (["ext"], None, False)
    assert "exit code 3" in found.notes[-1]


# -- faults of the solution ----------------------------------------------------------------------------------


def test_what_the_harness_meets_before_it_runs_a_file_is_no_fault_of_the_file(run: Harvester) -> None:
    found = run(MODEL, filename=f"{'long' * 100}.py")
    assert found.failure is not None
    assert found.failure.status is Status.harness_error, found.failure
    assert "File name too long" in run.log_path.read_text()


def test_syntax_error(run: Harvester) -> None:
    found = run("class ModelNew(nn.Module)\n    pass")
    assert found.failure is not None
    assert found.failure.status is Status.syntax_error
    assert found.failure.reason == "line 4: expected ':': class ModelNew(nn.Module)"
    assert found.failure.evidence["line"] == 4


def test_a_text_that_is_no_python_at_all(run: Harvester) -> None:
    for body in ("\0", "(" * 1000, "x = " + "-" * 1_000_000 + "1"):
        failure = run(body).failure
        assert failure is not None
        assert failure.status is Status.syntax_error


def test_no_model_new(run: Harvester) -> None:
    for body in ("class Model(nn.Module): pass", "ModelNew = 7"):
        failure = run(body).failure
        assert failure is not None
        assert failure.status is Status.no_model_new


def test_wrong_constructor(run: Harvester) -> None:
    failure = run("class ModelNew(nn.Module):\n    def __init__(self, a, b): pass", init=(1,)).failure
    assert failure is not None
    assert failure.status is Status.bad_constructor
    assert "missing a required argument: 'b'" in failure.reason


def test_constructor_that_raises(run: Harvester) -> None:
    failure = run("class ModelNew(nn.Module):\n    def __init__(self):\n        raise ValueError('no')").failure
    assert failure is not None
    assert failure.status is Status.bad_constructor
    assert failure.reason == "ModelNew's constructor raised ValueError: no (line 6)"


IMPORT_ERRORS = {
    "undefined_name": ("\n\nx = y", "raised NameError: name 'y' is not defined (line 6)"),
    "hallucinated_package": ("import turbokernels", "raised ModuleNotFoundError: No module named 'turbokernels'"),
    "sys_exit": ("import sys; sys.exit(0)", "calls sys.exit"),
    "os_exit": ("import os; os._exit(0)", "ends the process (exit code 0)"),
    "kill": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "dies of signal 11"),
    "wrong_keyword": ('load_inline("e", "a", cuda_flags=[])', "got an unexpected keyword argument 'cuda_flags'"),
    "wrong_functions": ('load_inline("e", "a", functions=("f",))', "Expected 'functions' to be a list or dict"),
}


@pytest.mark.parametrize("name", IMPORT_ERRORS)
def test_import_that_fails(run: Harvester, name: str) -> None:
    body, expected = IMPORT_ERRORS[name]
    failure = run(body).failure
    assert failure is not None
    assert failure.status is Status.import_error
    assert expected in failure.reason


def test_import_that_hangs(run: Harvester) -> None:
    found = run("while True: pass", timeout_s=1.5)
    assert found.failure is not None
    assert found.failure.status is Status.import_error
    assert found.failure.reason == "importing the file does not end (limit 2 s)"


def test_import_that_floods_stdout(run: Harvester) -> None:
    found = run("while True: print('x' * 10_000)", timeout_s=3.0)
    assert found.failure is not None
    assert found.failure.status is Status.import_error
    assert "prints endless output" in found.failure.reason
    assert run.log_path.stat().st_size < 16 * 2**20


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed here")
@pytest.mark.parametrize(
    "line",
    [
        "import cupy",
        "import os, cupy.cuda as gpu, sys",
        "from cupy.cuda import runtime",
        "import importlib; importlib.import_module('cupy')",
    ],
)
def test_a_package_for_kernels_that_is_not_installed_is_not_the_solutions_fault(run: Harvester, line: str) -> None:
    failure = run(line).failure
    assert failure is not None
    assert failure.status is Status.unsupported
    assert failure.evidence["package"] in ("cupy", "cupy.cuda")


FAULTS_OF_THE_PRETENCE = {
    "import": "x = torch.ones(3).cuda()\nraise RuntimeError('CUDA driver version is insufficient')",
    "no_class": "if torch.cuda.memory_reserved() > 1e99 or torch.ones(1).cuda().is_cpu:\n    ModelNew = nn.Identity",
    "exit": "x = torch.ones(3).cuda()\nimport os; os._exit(1)",
    "constructor": "class ModelNew(nn.Module):\n  def __init__(self):\n    torch.ones(3).cuda()\n    raise OSError",
    "forward": "class ModelNew(nn.Module):\n    def forward(self, x):\n        raise OSError",
    "generator": "g = torch.Generator(device='cuda')",
    "driver": "import ctypes; ctypes.CDLL('libcuda.so.99')",
    "nvidia_smi": "import subprocess; subprocess.run(['nvidia-smi-99'])",
    "stub": f"ext = {EXT}\next.f(1)",
}


@pytest.mark.parametrize("name", FAULTS_OF_THE_PRETENCE)
def test_a_fault_that_the_pretence_may_have_caused_is_not_blamed(run: Harvester, name: str) -> None:
    assert run(FAULTS_OF_THE_PRETENCE[name]).failure is None


def test_a_registration_that_only_a_second_import_fails_at_is_not_blamed(run: Harvester) -> None:
    body = f"""
    ext = {EXT}
    library = torch.library.Library("registered_once", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x, "CUDA")
    class ModelNew(nn.Module):
        def forward(self, x):
            return torch.ops.registered_once.f(x)
    """
    found = run(body)
    assert (names(found), found.failure) == (["ext"], None)


# -- extensions that do not build ------------------------------------------------------------------------------


def test_a_refused_extension_comes_back_out(run: Harvester) -> None:
    body = f"try:\n    ext = {EXT}\nexcept RuntimeError as error:\n    raise ImportError('sorry') from error\n{MODEL}"
    digest = run(body).specs[0].digest
    failure = run(body, refused={digest: "line 3: expected ;"}).failure
    assert failure is not None
    assert failure.status is Status.compile_error
    assert "line 3: expected ;" in failure.reason


def test_a_caught_refusal_leads_elsewhere(run: Harvester) -> None:
    body = f"try:\n    ext = {EXT}\nexcept RuntimeError:\n    ext = {EXT.replace('ext', 'second')}\n{MODEL}"
    digest = run(body).specs[0].digest
    found = run(body, refused={digest: "no"})
    assert (names(found), found.failure) == (["second"], None)


# -- solutions that lie ----------------------------------------------------------------------------------------

FIND_CHANNEL = """
import gc
from harness.protocol.channel import Channel
channel = next(held for held in gc.get_objects() if isinstance(held, Channel))
"""


@pytest.mark.parametrize(
    "frame",
    [
        "{'type': 'done', 'failure': {'status': 'passed', 'reason': 'x', 'evidence': {}}, 'notes': []}",
        "{'type': 'done', 'failure': {'status': 'harness_error', 'reason': 'x', 'evidence': {}}, 'notes': []}",
        "{'type': 'done', 'failure': 7, 'notes': []}",
        "{'type': 'done', 'failure': None, 'notes': [1]}",
        "{'type': 'extension', 'spec': {'name': 'x'}}",
        "{'type': 'phase', 'phase': 'victory'}",
        "{'type': 'verdict'}",
    ],
)
def test_frames_that_no_harvest_sends_disqualify(run: Harvester, frame: str) -> None:
    found = run(f"{FIND_CHANNEL}\nchannel.send({frame})\nwhile True: pass", timeout_s=20.0)
    assert found.failure is not None
    assert found.failure.status is Status.disqualified
    assert found.failure.evidence["rule"] == "protocol"


SAYS_CUPY = "{'status': 'unsupported', 'reason': 'no cupy', 'evidence': {'package': 'cupy'}, 'detail': ''}"
SAYS_GPUS = SAYS_CUPY.replace("cupy", "gpus")


@pytest.mark.parametrize(
    "body",
    [
        "raise ModuleNotFoundError('no cupy', name='cupy')",
        "raise ModuleNotFoundError('no such part', name='torch.triton')",
        f"{FIND_CHANNEL}\nchannel.send({{'type': 'done', 'notes': [], 'failure': {SAYS_CUPY}}})",
        f"{FIND_CHANNEL}\nchannel.send({{'type': 'done', 'notes': [], 'failure': {SAYS_GPUS}}})",
    ],
)
def test_who_says_that_a_package_is_missing_is_not_believed(run: Harvester, body: str) -> None:
    """Its text imports none: else whatever fails could be said to fail for want of one, and would count nowhere."""
    failure = run(body).failure
    assert failure is not None
    assert failure.status is Status.import_error


@pytest.mark.parametrize(
    ("module", "source", "lacking"),
    [
        ("triton", "import triton", False),
        ("triton.language", "import triton.language as tl", False),
        ("triton.no_such_part", "from triton.no_such_part import x", True),
        ("cuda", "import os", False),
        ("torch", "import torch", False),
        (None, "import triton", False),
        ("triton\n", "import triton\n", False),
    ],
)
def test_a_package_is_looked_for_where_python_would(
    module: str | None, source: str, lacking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "triton" / "language"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("raise RuntimeError('looking for it must not run it')")
    monkeypatch.syspath_prepend(tmp_path)
    assert is_lacking(module, source) is lacking


def test_a_forged_failure_is_cut_to_size(run: Harvester) -> None:
    frame = (
        "{'type': 'done', 'notes': [], 'failure': {'status': 'import_error', 'reason': 'r' * 9999,"
        " 'detail': 'd' * 10**6, 'evidence': {'phase': 'p' * 9999, 'exception': [1], 'junk': 'j' * 10**6}}}"
    )
    failure = run(f"{FIND_CHANNEL}\nchannel.send({frame})").failure
    assert failure is not None
    assert len(failure.reason) <= 500
    assert len(failure.detail) <= 20_000
    assert set(failure.evidence) == {"phase"}
    assert len(failure.evidence["phase"]) <= 200


def test_more_extensions_than_are_built_ahead(run: Harvester) -> None:
    found = run(f"for i in range(100):\n    load_inline(f'e{{i}}', f'int f{{i}}();')\n{MODEL}")
    assert (len(found.specs), found.failure, found.complete) == (64, None, True)


def test_more_text_than_is_built_ahead(run: Harvester) -> None:
    """Whatever is sent is read by the process that waits for everybody's builds."""
    found = run(f"for i in range(9):\n    load_inline(f'e{{i}}', f'int f{{i}}();' + '//' * 2**19)\n{MODEL}")
    assert (len(found.specs), found.failure, found.complete) == (3, None, True)
    assert sum(spec.size_bytes for spec in found.specs) <= MAX_AHEAD_BYTES


def test_frames_that_hold_everybody_up_disqualify(run: Harvester) -> None:
    """Sixteen megabytes of brackets take the parser seconds, in the process that waits for everybody's builds."""
    body = "import gc\nimport harness.untrusted.builder.import_solution as own\n"
    body += "(held,) = [held for held in gc.get_objects() if type(held) is own._Harvest]\n"
    body += "for i in range(250):\n    held.send({'type': 'phase', 'phase': 'import', 'more': [[]] * 1_000_000})\n"
    begin = time.process_time()
    found = run(body + MODEL)
    assert time.process_time() - begin < 20
    assert found.failure is not None
    assert (found.failure.status, found.failure.evidence.get("rule")) == (Status.disqualified, "protocol"), found


def test_who_sends_more_text_is_disqualified(run: Harvester) -> None:
    body = "import harness.untrusted.builder.import_solution as own\nown.MAX_AHEAD_BYTES = 2**40\n"
    body += "import gc\nfor held in gc.get_objects():\n    if type(held) is own._Harvest: held._left_bytes = 2**40\n"
    found = run(f"{body}for i in range(9):\n    load_inline(f'e{{i}}', f'int f{{i}}();' + '//' * 2**19)\n{MODEL}")
    assert found.failure is not None
    assert (found.failure.status, found.failure.evidence["rule"]) == (Status.disqualified, "protocol")


def test_waiting_for_a_process_with_torch_is_none_of_the_solutions_time(tmp_path: Path) -> None:
    limit_s = 5.0
    (tmp_path / "slow_to_import.py").write_text(f"import time\ntime.sleep({limit_s})\n")
    with BuilderZygotes(preload=["slow_to_import"], env={"PYTHONPATH": str(tmp_path)}) as held:
        found = Harvester(held, tmp_path / "log")(f"ext = {EXT}\n{MODEL}", timeout_s=limit_s)
    assert (names(found), found.failure, found.complete) == (["ext"], None, True)

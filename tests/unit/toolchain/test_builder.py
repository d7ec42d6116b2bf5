"""Whole builds in real sandboxes, of sources so small that they compile in no time.

They leave torch's headers out (`no_implicit_headers`), which changes nothing for what is tested here: who compiles
what, once, with which verdict.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.core.status import Status
from harness.sandbox import child, limits
from harness.sandbox.child import Child
from harness.sandbox.mounts import closed_to_others
from harness.toolchain import (
    BuildCache,
    BuilderZygotes,
    BuildOutcome,
    BuildTools,
    Diagnostics,
    ExtensionSpec,
    NvccToolchain,
    build_solution,
    compile_extension,
)
from harness.toolchain.build_processes import BuildAttempt
from harness.toolchain.toolchain import Plan
from tests.support.paths import SUPPORT

TINY = """
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&module); }
"""

HEAD = f"""
from torch import nn
from torch.utils.cpp_extension import load_inline

def build(answer, name="tiny", extra="", **options):
    source = '''{TINY}'''.replace("ANSWER", str(answer)) + extra
    return load_inline(name, source, no_implicit_headers=True, **options)

class ModelNew(nn.Module):
    def forward(self, x):
        return x
"""


class Builder:
    def __init__(self, zygotes: BuilderZygotes, folder: Path) -> None:
        self.zygotes = zygotes
        self.cache = BuildCache(folder / "cache")
        self.toolchain = NvccToolchain((), folder / "cache")
        self.log_path = folder / "logs" / "solution.log"

    def __call__(self, body: str, *, timeout_s: float = 120.0, **options: Any) -> BuildOutcome:
        return build_solution(
            HEAD + textwrap.dedent(body),
            "solution.py",
            BuildTools(
                zygotes=options.pop("zygotes", self.zygotes),
                toolchain=self.toolchain,
                cache=self.cache,
                timeout_s=timeout_s,
                **{name: options.pop(name) for name in ("sandbox", "import_timeout_s") if name in options},
            ),
            log_path=self.log_path,
            **options,
        )


@pytest.fixture
def build(zygotes: BuilderZygotes, tmp_path: Path) -> Builder:
    return Builder(zygotes, tmp_path)


Run = Callable[[BuildOutcome, str], Any]

RUN = """
import json, os, sys, traceback
import torch
from harness.untrusted.contestant import load_inline as inject
for line in sys.stdin:
    if (child := os.fork()) == 0:
        try:
            modules, source = json.loads(line)
            notes = inject.install(modules, fallback=False)
            scope = {}
            exec(source, scope)
            said = [scope["seen"], notes]
        except BaseException:
            said = traceback.format_exc()
        os.write(1, json.dumps(said).encode() + b"\\n")
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        os.write(1, b'"it died"\\n')
"""


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """What a contestant sees: `seen`, as the solution leaves it. Each solution has a process of its own, forked from
    one that has imported torch."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, tells = process.stdin, process.stdout

        def seen_by(outcome: BuildOutcome, body: str) -> Any:
            asks.write(json.dumps([outcome.injected(), HEAD + textwrap.dedent(body)]) + "\n")
            said = json.loads(tells.readline())
            assert isinstance(said, list), said
            seen, notes = said
            assert notes == []
            return seen

        yield seen_by
        asks.close()
    assert process.returncode == 0


def test_a_module_is_built_once_and_works_where_the_solution_runs(build: Builder, run: Run) -> None:
    body = "ext = build(42)\nseen = ext.answer() if hasattr(ext, '__file__') else None"
    first = build(body)
    assert (first.failure, first.cache_hits, len(first.modules)) == (None, 0, 1)
    assert first.modules[0].report.headers == {"main.cpp": "lean"}
    assert not first.has_cuda_sources
    assert run(first, body) == 42
    second = build(body)
    assert (second.cache_hits, second.harvest_s, second.compile_s) == (1, 0.0, 0.0)
    assert second.modules[0].path == first.modules[0].path
    third = build(f"{body}\n# another solution with the same sources")
    assert third.cache_hits == 1
    assert third.harvest_s > 0.0
    log = build.log_path.read_text()
    assert log.count("== building extension tiny ==") == 1
    assert "-DTORCH_EXTENSION_NAME=tiny" in log
    assert list(build.cache.root.glob("drafts/*")) == []


def test_a_umask_that_closes_everything_to_others_closes_nothing_to_the_sandboxs_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o077)
    try:
        with BuilderZygotes() as zygotes:
            outcome = Builder(zygotes, tmp_path)("ext = build(42)")
    finally:
        os.umask(before)
    assert (outcome.failure, len(outcome.modules)) == (None, 1)
    module = outcome.modules[0].path
    assert not closed_to_others(str(module))
    assert not closed_to_others(str(module.parent))


def test_what_a_record_says_of_a_build(build: Builder) -> None:
    value = json.loads(json.dumps(build("ext = build(1)").to_json(), allow_nan=False))
    assert [(module["name"], module["cached"]) for module in value["modules"]] == [("tiny", False)]
    assert (value["kernels"], value["compiler_error"], value["cache_hits"]) == ([], None, 0)
    assert value["wall_s"] >= value["compile_s"] > 0


def test_several_extensions_of_one_solution(build: Builder, run: Run) -> None:
    body = """
    modules = build(1), build(2), build(3)
    seen = [module.answer() if hasattr(module, "__file__") else 0 for module in modules]
    """
    assert run(build(body), body) == [1, 2, 3]


def test_the_modules_of_one_solution_have_a_limit_together(build: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    size = build("ext = build(1)").modules[0].path.stat().st_size
    monkeypatch.setattr(compile_extension, "MAX_MODULES_BYTES", size * 5 // 2)
    assert build("modules = build(1), build(2)").failure is None
    for what in ("compiled now", "from the cache"):
        refused = build(f"modules = build(1), build(2), build(3)  # {what}").failure
        assert refused is not None
        assert refused.status is Status.compile_error
        assert "the extensions of one solution exceed" in refused.reason
        monkeypatch.setattr(compile_extension, "MAX_MODULES_BYTES", size * 4)
        assert build("modules = build(1), build(2), build(3)").failure is None  # so that the third is there
        monkeypatch.setattr(compile_extension, "MAX_MODULES_BYTES", size * 5 // 2)


def test_threads_build_equal_extensions_once(build: Builder) -> None:
    bodies = [f"ext = build(7)\n# {number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(build, bodies))
    assert sorted(outcome.cache_hits for outcome in outcomes) == [0, 1, 1, 1]
    assert len({outcome.modules[0].path for outcome in outcomes}) == 1


TOGETHER = """
import sys
from pathlib import Path
from harness.toolchain import BuildCache, BuilderZygotes, BuildTools, NvccToolchain, build_solution
root, log = Path(sys.argv[1]), Path(sys.argv[2])
source = sys.stdin.read()
with BuilderZygotes() as zygotes:
    zygotes.start()
    zygotes.torch.wait_ready()
    tools = BuildTools(zygotes=zygotes, toolchain=NvccToolchain((), root), cache=BuildCache(root), timeout_s=120)
    outcome = build_solution(source, "s.py", tools, log_path=log)
assert outcome.failure is None, outcome.failure
print(outcome.cache_hits, outcome.modules[0].path)
"""


def test_two_processes_build_a_key_once(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(tmp_path / "cache"), str(tmp_path / f"{number}.log")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(HEAD + "ext = build(5)")
        process.stdin.close()
    answers = []
    for process in processes:
        assert process.stdout is not None
        answers.append(process.stdout.read().split())
        process.stdout.close()
        assert process.wait() == 0
    assert sorted(hits for hits, _ in answers) == ["0", "1"]
    assert answers[0][1] == answers[1][1]


def test_a_corrupt_module_is_built_again(build: Builder) -> None:
    first = build("ext = build(42)")
    first.modules[0].path.write_bytes(b"rubbish")
    second = build("ext = build(42)")
    assert (second.failure, second.cache_hits) == (None, 0)
    assert second.modules[0].path.stat().st_size > 1000


def test_modules_in_use_outlive_eviction(build: Builder) -> None:
    build.cache.max_bytes = 1
    outcome = build("ext = build(42)")
    build.cache.evict()
    assert outcome.modules[0].path.exists()
    outcome.release()
    build.cache.evict()
    assert not outcome.modules[0].path.exists()


# -- errors ----------------------------------------------------------------------------------------------------


def test_a_compile_error_names_the_line(build: Builder) -> None:
    body = '''
    source = """
    int f() {
        return 1
    }
    """
    ext = load_inline("broken", ["int g();", source], no_implicit_headers=True)
    '''
    outcome = build(body)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    assert outcome.compiler_error is not None
    error = outcome.compiler_error
    assert (error.file, error.line) == ("cpp source 2", 3)
    lines = (HEAD + textwrap.dedent(body)).split("\n")
    assert error.solution_line is not None
    assert lines[error.solution_line - 1].strip() == "return 1"
    assert f"(line {error.solution_line} of the solution): expected ';'" in outcome.failure.reason
    assert outcome.failure.reason.startswith("broken: cpp source 2, line 3")
    assert outcome.to_json()["compiler_error"]["solution_line"] == error.solution_line


def test_hip_sources_are_unsupported_and_no_compile_error(build: Builder) -> None:
    outcome = build("build(5, extra='#include <hip/hip_runtime.h>')")
    assert outcome.failure is not None
    assert outcome.failure.status is Status.unsupported
    assert "HIP sources, for AMD GPUs, can't be built here: write CUDA" in outcome.failure.reason


def test_a_compile_error_is_not_compiled_again(build: Builder) -> None:
    broken = 'ext = build(1, extra="no C++")'
    first, second = build(broken), build(f"# one line more\n{broken}")
    assert first.compile_s > 0.0 == second.compile_s
    assert first.compiler_error is not None
    assert second.compiler_error is not None
    assert first.compiler_error.message == second.compiler_error.message
    log = build.log_path.read_text()
    assert "== building extension tiny ==" in log
    assert "== building extension tiny (compiler output of an earlier run) ==" in log


@pytest.mark.parametrize("said", ["Resource temporarily unavailable", "Too many open files", "Text file busy"])
def test_an_error_that_may_be_the_machines_is_tried_again_and_not_remembered(
    build: Builder, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    attempts = []

    class Counted(BuildAttempt):
        def run(self) -> Any:
            attempts.append(self.spec.name)
            return super().run()

    monkeypatch.setattr(compile_extension, "BuildAttempt", Counted)
    extra = f"\n#error g++: vfork: {said}"
    body = f"build(1, extra={extra!r})"
    for number in (1, 2):
        outcome = build(body)
        assert outcome.failure is not None
        assert outcome.failure.status is Status.compile_error, "a source may print it, so it is no excuse"
        assert len(attempts) == 2 * number
    assert "of an earlier run" not in build.log_path.read_text()


def test_a_known_solution_imports_nothing(build: Builder) -> None:
    """Whether it builds, or is refused: all that it asks for, and what came of that, is known."""
    for body in ("ext = build(3)", 'ext = build(3, extra="no C++ either")'):
        first, second = build(body), build(body)
        assert first.harvest_s > 0.0 == second.harvest_s
        assert first.failure == second.failure
        assert first.compiler_error == second.compiler_error


def test_a_caught_compile_error_is_no_verdict(build: Builder, run: Run) -> None:
    body = """
    try:
        ext = build(1, extra="no C++")
    except RuntimeError as error:
        assert "Error building extension 'tiny'" in str(error)
        ext = build(2)
    seen = ext.answer() if hasattr(ext, "__file__") else None
    """
    outcome = build(body)
    assert (outcome.failure, len(outcome.modules), len(outcome.refused)) == (None, 1, 1)
    assert run(outcome, body) == 2


ENDLESS = (
    "template <int N, int M> struct F { static const int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; }; "
    "int x = F<28, 1>::v;"
)


def test_a_machine_short_of_processors_is_no_fault_of_the_solution(
    build: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "PATIENCE", 1.2)
    monkeypatch.setattr(limits, "idle_s", lambda: 0.0)
    monkeypatch.setattr(Child, "_processor_s", lambda _: 0.3 * time.perf_counter())
    outcome = build(f'ext = build(1, extra="{ENDLESS}")', timeout_s=2.0)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.harness_error
    assert "this machine is too busy to build tiny: it ran for" in outcome.failure.reason


def test_a_compiler_that_does_not_end(build: Builder) -> None:
    outcome = build(f'ext = build(1, extra="{ENDLESS}")', timeout_s=3.0)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_timeout
    assert "did not finish within 3 s" in outcome.failure.reason
    assert list(build.cache.root.glob("drafts/*")) == []
    assert list(build.cache.root.glob("locks/*")) == []


def test_a_function_that_no_source_defines(build: Builder) -> None:
    outcome = build('ext = build(1, extra="int missing(float); int use() { return missing(1.0f); }")')
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    assert "undefined symbol: missing(float)" in outcome.failure.reason


def test_no_bindings(build: Builder) -> None:
    outcome = build('ext = load_inline("bare", "int f() { return 1; }", no_implicit_headers=True)')
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    assert "no bindings: pass functions=[...]" in outcome.failure.reason


def test_cuda_where_only_cpp_can_be_built(build: Builder) -> None:
    outcome = build('ext = load_inline("gpu", "", "__global__ void k() {}", no_implicit_headers=True)')
    assert outcome.failure is not None
    assert outcome.failure.status is Status.unsupported


class Emulating(NvccToolchain):
    """A toolchain whose log says that something can't be executed."""

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        return Diagnostics(error=None, not_emulated=("cuda source 1, line 3: textures",))


def test_what_can_not_be_emulated_is_no_compile_error(build: Builder, tmp_path: Path) -> None:
    build.toolchain = Emulating((), tmp_path / "cache")
    outcome = build('ext = build(1, extra="no C++")')
    assert outcome.failure is not None
    assert outcome.failure.status is Status.not_emulated
    assert "line 3: textures" in outcome.failure.reason
    assert build("ext = build(2)").failure is None  # it compiles: only what is reached when it runs counts


def test_a_harvest_that_fails_builds_nothing(build: Builder) -> None:
    outcome = build("ext = build(1)\nraise ValueError('no')")
    assert outcome.failure is not None
    assert outcome.failure.status is Status.import_error
    assert outcome.modules == ()
    assert "raise ValueError" not in outcome.failure.reason
    assert "Traceback" in outcome.failure.detail


def test_a_dead_zygote_is_the_harnesss_fault(build: Builder) -> None:
    with BuilderZygotes() as dead:
        dead.start()
        dead.torch.wait_ready()
    outcome = build("ext = build(1)", zygotes=dead)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.harness_error


# -- flags -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        'extra_ldflags=[""], extra_cflags=[""], extra_cuda_cflags=[""]',
        'extra_cflags=["-O3 -march=native", "-DEXTRA=a"], extra_ldflags=["-lm"], verbose=True',
        'with_cuda=False, build_directory="/nonexistent", keep_intermediates=False, use_pch=True',
        'extra_cflags=["-O1\\n", " "], with_pytorch_error_handling=False',
    ],
)
def test_odd_flags_are_honoured(build: Builder, run: Run, flags: str) -> None:
    body = f"ext = build(42, {flags})\nseen = ext.answer() if hasattr(ext, '__file__') else None"
    outcome = build(body)
    assert outcome.failure is None
    assert run(outcome, body) == 42


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ('extra_cflags="-O3"', "cannot find"),  # falls apart into letters, as in torch
        ('extra_cflags=["-fno-such-option"]', "unrecognized command-line option"),
        ('extra_ldflags=["-lnosuchlibrary"]', "cannot find -lnosuchlibrary"),
    ],
)
def test_flags_that_the_compiler_refuses(build: Builder, flags: str, said: str) -> None:
    outcome = build(f"ext = build(42, {flags})")
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    if "cannot find" not in said or "library" in said:
        assert said in outcome.failure.reason


# -- hostile builds --------------------------------------------------------------------------------------------


def test_flags_reach_a_shell_inside_the_sandbox_only(build: Builder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outcome = build(f"ext = build(42, extra_cflags=['; touch {outside}; true'])")
    assert not outside.exists()
    assert outcome.failure is not None


@pytest.mark.parametrize("instead", ["ln -s /etc/hostname module.so", "mkfifo module.so", "mkdir module.so", "true"])
def test_something_else_in_the_modules_place(build: Builder, instead: str) -> None:
    outcome = build(f"ext = build(42, extra_ldflags=['-o x.so; rm -rf module.so; {instead}; true'])")
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    assert list(build.cache.root.glob("entries/*/*/module.so")) == []


def test_sources_can_not_include_what_is_not_theirs(build: Builder, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text('#error "the secret"')
    outcome = build(f"ext = build(1, extra='\\n#include \"{secret}\"\\n')")
    assert outcome.failure is not None
    assert "No such file or directory" in outcome.failure.reason
    assert "the secret" not in build.log_path.read_text()


def test_a_module_whose_initialiser_never_ends_is_left_to_the_run(
    build: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.toolchain.build_processes._LOAD_S", 1.0)
    outcome = build('ext = build(1, extra="struct S { S() { for (;;) asm volatile(\\"\\"); } } s;")')
    assert (outcome.failure, len(outcome.modules)) == (None, 1)


STARVING = SUPPORT / "sandboxed"


def test_a_machine_without_memory_is_not_the_files_fault(tmp_path: Path) -> None:
    """The zygote sees the kernel kill for want of memory, and its child was killed, far from any limit of its own."""
    with BuilderZygotes(preload=["starving"], env={"PYTHONPATH": str(STARVING)}) as own:
        failure = Builder(own, tmp_path)("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)").failure
    assert failure is not None
    assert failure.status is Status.harness_error, failure
    assert "ran out of memory" in failure.reason


def test_a_compiler_that_was_killed_is_not_the_sources_fault(
    zygotes: BuilderZygotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job that is out of memory the kernel may end the one process that is at work; here it is out of time."""
    flags = ["-wrapper", "prlimit,--cpu=1:1", "-fconstexpr-ops-limit=2000000000", "-fconstexpr-loop-limit=2000000000"]
    slow = "constexpr long f() { long s = 0; for (long i = 0; i < 1000000000; ++i) s += i; return s; }"
    counts = itertools.count(1)
    with monkeypatch.context() as patch:
        patch.setattr(limits, "out_of_memory_kills", lambda: next(counts))
        failure = Builder(zygotes, tmp_path)(
            f"build(1, extra='{slow} static_assert(f() > 0);', extra_cflags={flags})"
        ).failure
    assert failure is not None
    assert failure.status is Status.harness_error, failure
    assert "ran out of memory" in failure.reason


def test_a_compiler_that_says_that_it_was_killed_is_not_believed(zygotes: BuilderZygotes, tmp_path: Path) -> None:
    said = r'asm(".print \"g++: fatal error: Killed signal terminated program cc1plus\""); asm(".error \"no\"");'
    failure = Builder(zygotes, tmp_path)(f"build(1, extra={said!r})").failure
    assert failure is not None
    assert failure.status is Status.compile_error, failure
    assert "Killed" in failure.reason


def test_a_build_that_leaves_folders_in_one_another_without_end_ends_nobody_elses(build: Builder) -> None:
    script = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nraise SystemExit(1)"
    flags = ["-wrapper", f"'{sys.executable},-c,exec(bytes.fromhex(\"{script.encode().hex()}\"))'"]
    outcome = build(f"build(1, extra_cflags={flags!r})")
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error, outcome.failure
    assert list((build.cache.root / "drafts").iterdir()) == []
    assert build("build(2)").failure is None


class Broken(NvccToolchain):
    """One that fails in a way that nobody foresaw."""

    fault: Exception = ZeroDivisionError("of ours")

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        raise self.fault


@pytest.mark.parametrize("kind", [ZeroDivisionError, IsADirectoryError, NotADirectoryError, FileExistsError])
def test_a_fault_of_ours_met_by_one_solution_ends_nobody_elses(
    build: Builder, tmp_path: Path, kind: type[Exception]
) -> None:
    sound, broken = build.toolchain, Broken((), tmp_path / "cache")
    broken.fault, build.toolchain = kind("of ours"), broken
    failure = build("build(1)").failure
    assert failure is not None
    assert failure.status is Status.harness_error
    assert f"{kind.__name__}: of ours" in failure.reason
    assert "test_builder.py" in failure.detail
    build.toolchain = sound
    assert build("build(1)").failure is None


def test_a_name_that_is_no_text_ends_nobodys_run(build: Builder) -> None:
    """It can't be written into a file, nor into the log: torch itself refuses it where the solution runs."""
    outcome = build('load_inline("half\\ud800", "int f();", functions=["f"])')
    assert outcome.failure is None
    assert outcome.modules == ()
    assert any("left to the run" in note for note in outcome.notes)

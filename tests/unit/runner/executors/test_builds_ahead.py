"""Builds that begin with what a solution's text says: a head start where it is right, nothing where it is wrong.

The sources leave torch's headers out, as in `tests/unit/toolchain/test_builder.py`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.status import Status
from harness.runner.executors import BuildRequest
from harness.runner.executors.builders import LocalBuilders
from harness.sandbox import SandboxPolicy
from harness.sandbox.limits import children_of
from harness.toolchain import (
    BuildCache,
    BuilderZygotes,
    BuildOutcome,
    BuildTools,
    Compilations,
    ExtensionSpec,
    NvccToolchain,
    begin_ahead,
    build_solution,
)
from harness.toolchain.build_processes import JOB
from harness.toolchain.zygotes import LateZygote

SLOW = "template <int N, int M> struct F { static const int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };"

HEAD = '''
from torch import nn
from torch.utils.cpp_extension import load_inline

TINY = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&module); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        return x
'''

RIGHT = f"{HEAD}\next = load_inline('tiny', TINY, no_implicit_headers=True)\n"
BROKEN = f"{HEAD}\next = load_inline('tiny', TINY + 'no C++', no_implicit_headers=True)\n"
NEVER = "if TINY == '':\n    load_inline('never', '{0}', no_implicit_headers=True)\n"
NEVER_ENDS = NEVER.format(f"{SLOW} int x = F<28, 1>::v;")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the compilers are started for; one entry a job."""
    started: list[str] = []
    spawn = LateZygote.spawn

    def counting(self: LateZygote, target: str, policy: SandboxPolicy, log_path: Path, fds: Sequence[int] = ()) -> Any:
        # A wrong guess of the test before may still be on its way to its end.
        if target == JOB and policy.writable[0].is_relative_to(tmp_path):
            started.append(target)
        return spawn(self, target, policy, log_path, fds)

    monkeypatch.setattr(LateZygote, "spawn", counting)
    return started


class Builder:
    def __init__(self, zygotes: BuilderZygotes, folder: Path) -> None:
        self.zygotes = zygotes
        self.cache = BuildCache(folder / "cache")
        self.toolchain = NvccToolchain((), folder / "cache")
        self.log_path = folder / "logs" / "solution.log"

    def __call__(self, source: str, **options: Any) -> BuildOutcome:
        return build_solution(
            source, "solution.py", self.tools(options.pop("zygotes", self.zygotes)), log_path=self.log_path, **options
        )

    def tools(self, zygotes: BuilderZygotes) -> BuildTools:
        return BuildTools(zygotes=zygotes, toolchain=self.toolchain, cache=self.cache, timeout_s=120.0)

    def ahead(self, source: str) -> Compilations:
        """Begun with what that text says."""
        return begin_ahead(source, replace(self.tools(self.zygotes), timeout_s=600.0))

    def modules(self) -> int:
        """How many are in the cache."""
        return len(list(self.cache.root.glob("entries/*/*/module.so")))


@pytest.fixture
def build(zygotes: BuilderZygotes, tmp_path: Path) -> Builder:
    return Builder(zygotes, tmp_path)


def zygotes_with(part: str) -> set[int]:
    """The processes that this one has started as zygotes which imported that."""
    found = set()
    for pid in children_of(os.getpid()):
        with suppress(OSError):
            if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def eventually(done: Any) -> None:
    deadline = time.monotonic() + 60.0
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_the_text_says_is_compiled_once_and_belongs_to_the_solution(build: Builder, jobs: list[str]) -> None:
    begun = build.ahead(RIGHT)
    eventually(lambda: jobs)  # on a busy machine the discovery may ask for it before the text is read
    outcome = build(RIGHT, begun=begun)
    assert outcome.failure is None
    (module,) = outcome.modules
    assert (module.begun_from_text, module.cached) == (True, False)
    assert outcome.to_json()["modules"][0]["begun_from_text"] is True
    log = build.log_path.read_text()
    assert log.index("== import ==") < log.index("== building extension tiny ==")
    assert "-DTORCH_EXTENSION_NAME=tiny" in log
    assert len(jobs) == build.modules() == 1
    (again,) = build(f"{RIGHT}# known by now").modules
    assert (again.begun_from_text, again.cached) == (False, True)
    assert len(jobs) == 1


def test_what_is_not_plain_from_the_text_is_built_as_the_harvest_asks(build: Builder) -> None:
    (module,) = build(
        f"{HEAD}\ndef make(text):\n    load_inline('tiny', text, no_implicit_headers=True)\nmake(TINY)"
    ).modules
    assert not module.begun_from_text


def test_a_build_begins_before_anybody_knows_how_the_model_is_called(build: Builder, jobs: list[str]) -> None:
    begun = build.ahead(RIGHT)
    eventually(lambda: build.modules() == 1)
    assert not build.log_path.exists()
    outcome = build(RIGHT, begun=begun)
    assert outcome.modules[0].begun_from_text
    assert len(jobs) == 1


def test_a_wrong_guess_ends_when_it_is_known_to_be_wrong_and_leaves_no_trace(build: Builder, jobs: list[str]) -> None:
    begun = build.ahead(f"{RIGHT}{NEVER_ENDS}")
    eventually(lambda: len(jobs) == 2)
    outcome = build(f"{RIGHT}{NEVER_ENDS}", begun=begun)
    assert [module.name for module in outcome.modules] == ["tiny"]
    assert (outcome.failure, outcome.refused, outcome.compiler_error, outcome.notes) == (None, (), None, ())
    assert "never" not in build.log_path.read_text()
    eventually(lambda: not list(build.cache.root.glob("drafts/*")) and not list(build.cache.root.glob("locks/*")))
    assert build.modules() == 1


def test_a_wrong_guess_that_does_not_compile_is_nobodys_fault(build: Builder) -> None:
    outcome = build(f"{RIGHT}{NEVER.format('no C++ at all')}")
    assert (outcome.failure, outcome.refused, outcome.compiler_error) == (None, (), None)
    assert "no C++ at all" not in build.log_path.read_text()


def test_a_guess_is_no_reason_to_build_what_fails_on_import(build: Builder) -> None:
    outcome = build(f"{RIGHT}raise ValueError('no')")
    assert outcome.failure is not None
    assert outcome.failure.status is Status.import_error
    assert outcome.modules == ()
    assert "building extension" not in build.log_path.read_text()


def test_a_guess_that_fails_is_compiled_once(build: Builder, jobs: list[str]) -> None:
    outcome = build(BROKEN)
    assert outcome.failure is not None
    assert outcome.failure.status is Status.compile_error
    assert "does not name a type" in outcome.failure.reason
    assert build.log_path.read_text().count("== building extension tiny ==") == 1
    assert len(jobs) == 1
    assert build(f"{BROKEN}# known by now").failure == outcome.failure
    assert len(jobs) == 1


def test_a_second_extension_for_which_the_first_is_given_up(build: Builder, jobs: list[str]) -> None:
    """The text names both; the second is asked for only when the first has failed, and is not compiled in vain."""
    text = BROKEN.replace("ext = ", "try:\n    ext = ") + (
        "except RuntimeError:\n    ext = load_inline('tiny', TINY, no_implicit_headers=True)\n"
    )
    outcome = build(text)
    assert outcome.failure is None
    assert (len(outcome.modules), len(outcome.refused)) == (1, 1)


def test_solutions_with_equal_extensions_compile_them_once(build: Builder, jobs: list[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(build, [f"{RIGHT}# {number}" for number in range(4)]))
    assert sorted(outcome.cache_hits for outcome in outcomes) == [0, 1, 1, 1]
    assert len(jobs) == 1


def test_where_all_is_known_nothing_starts(build: Builder) -> None:
    for source in (RIGHT, BROKEN):
        build(source)
        with BuilderZygotes() as fresh:
            outcome = build(source, zygotes=fresh)
            assert (outcome.harvest_s, outcome.compile_s) == (0.0, 0.0)
            assert not fresh.light.started
            assert not fresh.torch.started


def test_a_compilation_without_a_thread_is_waited_for_by_nobody(
    build: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = build.ahead("nothing is to be built")
    spec = ExtensionSpec(name="never", cpp_sources=("no C++",), no_implicit_headers=True)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="thread"):
            begun.begin(spec)
    assert begun.result(spec).error is not None


def test_modules_of_wrong_guesses_may_be_evicted(build: Builder) -> None:
    other = "\nif TINY == '':\n    load_inline('other', TINY.replace('tiny', 'other'), no_implicit_headers=True)\n"
    begun = build.ahead(f"{RIGHT}{other}")
    eventually(lambda: build.modules() == 2)
    build(f"{RIGHT}{other}", begun=begun).release()
    eventually(lambda: not list(build.cache.root.glob("drafts/*")))
    build.cache.max_bytes = 1
    build.cache.evict()
    assert build.modules() == 0


# -- the builders of an executor -------------------------------------------------------------------------------


@pytest.fixture
def builders(build: Builder, tmp_path: Path) -> Iterator[LocalBuilders]:
    made = LocalBuilders(build.toolchain, build.cache, timeout_s=600.0, sandbox="auto", log=tmp_path / "zygotes.log")
    yield made
    made.close()


def test_an_order_that_is_expected_begins(build: Builder, builders: LocalBuilders, jobs: list[str]) -> None:
    order = BuildRequest(source=RIGHT, filename="solution.py", arguments=None, log_path=build.log_path)
    builders.expect(order)
    builders.expect(order)
    eventually(lambda: build.modules() == 1)
    outcome = builders.build(order)
    assert outcome.modules[0].begun_from_text
    assert len(jobs) == 1


@pytest.mark.parametrize("part", ["harness.untrusted.builder.static_scan", "harness.untrusted.builder.import_solution"])
def test_a_zygote_that_is_killed_under_a_compilation_is_replaced(
    build: Builder, builders: LocalBuilders, jobs: list[str], part: str
) -> None:
    """One of these builders', under a compilation that takes long enough to be hit."""
    ends = "template <int M> struct F<0, M> { static const int v = M; }; int x = F<13, 1>::v;"
    source = RIGHT.replace("TINY,", f"TINY + '{SLOW} {ends}',")
    order = BuildRequest(source=source, filename="solution.py", arguments=None, log_path=build.log_path)
    before = zygotes_with(part)
    builders.expect(order)
    eventually(lambda: jobs and zygotes_with(part) - before)
    for pid in zygotes_with(part) - before:
        os.kill(pid, signal.SIGKILL)
    outcome = builders.build(order)
    assert outcome.failure is None
    assert [module.name for module in outcome.modules] == ["tiny"]


def test_an_order_that_does_not_come_ends_with_the_builders(
    build: Builder, builders: LocalBuilders, jobs: list[str]
) -> None:
    builders.expect(
        BuildRequest(source=f"{HEAD}{NEVER_ENDS}", filename="s.py", arguments=None, log_path=build.log_path)
    )
    eventually(lambda: jobs)
    builders.close()
    eventually(lambda: not any(thread.name == "extension" for thread in threading.enumerate()))
    eventually(lambda: not list(build.cache.root.glob("drafts/*")))
    builders.expect(BuildRequest(source=RIGHT, filename="s.py", arguments=None, log_path=build.log_path))
    assert len(jobs) == 1

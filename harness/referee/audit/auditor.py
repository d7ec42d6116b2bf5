"""Run a solution's kernels under compute-sanitizer's tools, on a small workload.

Trusted side. Audits use the same sandbox as evaluations. One zygote or more runs under each tool as long as the auditor
lives, so an audit costs a fork and a context (0.5 to 1.3 s per tool) instead of a new process that imports torch (4 to
8 s). The tools run in parallel. Each starts its audits in the order of the requests, up to `POSTS` at a time, so audits
can run ahead of the evaluation. `hold` pauses them all while something is timed.

An audited contestant gets copies of its inputs in separate allocations, because every access inside the arena, one
large allocation, is in bounds.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.core.choices import SandboxMode
from harness.core.status import one_line
from harness.devices.hardware_queues import ONE_QUEUE
from harness.referee.audit.audit import ANSWERS, Audit, AuditSubject, ContestantSet, ToolRun
from harness.referee.audit.sanitizer import CALLS, SanitizerTool, not_needed, overflowed, parse
from harness.referee.audit.timeouts import END_LIMIT_S, OPEN_LIMIT_S, WALL_LIMIT_S, ToolTimeouts
from harness.referee.audit.zygotes import SanitizerZygote, SanitizerZygotes
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.sandbox import SandboxPolicy, SandboxUnavailable
from harness.sandbox.zygote import ZygoteError

T = TypeVar("T")

POSTS = {SanitizerTool.MEMCHECK: 2, SanitizerTool.RACECHECK: 4, SanitizerTool.INITCHECK: 2, SanitizerTool.SYNCCHECK: 2}
"""Maximum number of zygotes per tool; all but the first start on demand.

An audit takes as long as two evaluations, mostly because it is paused while others are timed; racecheck takes twice
that. For 32 solutions in a row on an H200, racecheck's median was 2.6 s and the other tools' 1.4 s.
"""

START_LIMIT_S = 120.0

TRIES = 2
"""How often a tool starts on a solution if it fails before any code of the solution runs."""

MAX_LOG_BYTES = 4 * 2**20

_OWN_ALLOCATIONS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Otherwise torch's allocator returns parts of large allocations, and no tool sees their bounds."""


def find_sanitizer(nvcc: Path | None = None) -> str | None:
    """Find compute-sanitizer beside this nvcc, on PATH, or in CUDA's usual folder.

    None if it is not installed.
    """
    beside = nvcc.resolve().parent / "compute-sanitizer" if nvcc else None
    if beside is not None and beside.exists():
        return str(beside)
    usual = Path("/usr/local/cuda/bin/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (str(usual) if usual.exists() else None)


class Auditor:
    """Keeps zygotes under each tool; a context manager.

    Starting a zygote takes seconds and happens in the background. `zygotes` pauses the tools while something is timed.
    """

    def __init__(
        self, executable: str, *, preload: Sequence[str], logs: Path, sandbox: SandboxMode, memory_limit_bytes: int
    ) -> None:
        self._sandbox: SandboxMode = sandbox
        self._memory_limit_bytes = memory_limit_bytes
        self._threads = {
            tool: ThreadPoolExecutor(POSTS[tool], thread_name_prefix=f"audit-{tool.value}") for tool in SanitizerTool
        }
        self.zygotes = SanitizerZygotes(executable, preload=preload, logs=logs, most=POSTS, again=self._prepare)
        for tool in SanitizerTool:
            self._prepare(tool)

    def __enter__(self) -> Auditor:
        return self

    def __exit__(self, *_: object) -> None:
        self.zygotes.release()
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
        self.zygotes.close()

    def begin(self, subject: AuditSubject, tools: Collection[SanitizerTool] = tuple(SanitizerTool)) -> Audit:
        """Start `tools` on `subject`, each as soon as it has finished its earlier audits."""
        # The arena's owner may close it before the last tool has started.
        subject, contestants = replace(subject, arena_fd=os.dup(subject.arena_fd)), ContestantSet()
        # Kernels compiled later may use features that do not occur in these texts.
        known = subject.parts and not subject.builds_later
        texts = [subject.source, *(part.text for part in subject.parts)] if known else ()
        idle = {tool: why for tool in tools if (why := not_needed(tool, texts)) is not None}
        running = {
            tool: self._submit(tool, self._run, tool, subject, contestants) for tool in tools if tool not in idle
        }
        audit = Audit(subject, running, contestants, idle, waits=self.zygotes.withdraw)
        audit.close_when_over()
        return audit

    def _submit(self, tool: SanitizerTool, work: Callable[..., T], *arguments: Any) -> Future[T]:
        return self._threads[tool].submit(work, *arguments)

    def _prepare(self, tool: SanitizerTool) -> None:
        """Start a zygote of this tool in the background."""
        with suppress(RuntimeError):  # the auditor is closing
            self._submit(tool, self.zygotes.prepare, tool)

    def _run(self, tool: SanitizerTool, subject: AuditSubject, contestants: ContestantSet) -> ToolRun:
        with self.zygotes.turn(lambda: contestants.cancelled) as begins:
            return self._run_now(tool, subject, contestants) if begins else ToolRun(not_run="cancelled")

    def _run_now(self, tool: SanitizerTool, subject: AuditSubject, contestants: ContestantSet) -> ToolRun:
        begin = time.perf_counter()
        told = ToolRun(not_run="cancelled", again=True)
        for _ in range(TRIES):
            if contestants.cancelled or not told.again:
                break
            told = self._try(tool, subject, contestants)
        else:
            if told.again and told.ended is not None:  # no code of the solution ran
                told.not_run, told.ended = f"failed to start {TRIES} times: {told.ended}", None
        told.wall_s = time.perf_counter() - begin
        return told

    def _try(self, tool: SanitizerTool, subject: AuditSubject, contestants: ContestantSet) -> ToolRun:
        post = None
        try:
            post = self.zygotes.take(tool)
            post.zygote.wait_ready(START_LIMIT_S)
        except (ZygoteError, OSError) as error:
            if post is not None:
                self.zygotes.drop(post)
            return ToolRun(not_run=one_line(f"failed to start: {error}"))
        seen = post.log_path.stat().st_size if post.log_path.exists() else 0
        told = ToolRun()
        try:
            self._converse(post, subject, contestants, seen, told)
        except SandboxUnavailable as error:
            told.not_run = one_line(str(error))
        except (ZygoteError, OSError) as error:
            told.ended, told.again, told.lost = one_line(str(error)), True, True
        with self.zygotes.reading():
            said = _read_from(post.log_path, seen)
            told.findings = parse(said, tool)
            if told.ended is None and overflowed(said):
                told.ended = "the kernels have more pairs of accesses than racecheck can store"
        post.printed += sum(finding.count for finding in told.findings)
        (self.zygotes.drop if told.lost else self.zygotes.give_back)(post)
        return told

    def _converse(
        self, post: SanitizerZygote, subject: AuditSubject, contestants: ContestantSet, seen: int, told: ToolRun
    ) -> None:
        """Make the calls one after another until the tool finds something.

        `told.ended` is the reason if not all of them were made.
        """
        tool, paces = post.tool, contestants.paces
        burst = subject.burst if tool is ANSWERS else subject.elsewhere
        policy = SandboxPolicy(
            mode=self._sandbox,
            gpu=True,
            gpu_minor=subject.gpu_minor,
            readable=subject.readable,
            max_memory_bytes=self._memory_limit_bytes,
            # Nothing is timed here. With one queue, a kernel that waits for a later kernel on another stream never
            # ends; the tools' timeouts stop it.
            env={**_OWN_ALLOCATIONS, **ONE_QUEUE},
            under_tool=True,
        )
        log_path = subject.log_path.with_name(f"{subject.log_path.name}.{tool.value}")
        limit_s = functools.partial(paces.limit_s, tool)
        begin_s = self.zygotes.clock()
        try:
            with ContestantProcess(
                post.zygote, policy, log_path, memory_limit_bytes=self._memory_limit_bytes
            ) as contestant:
                contestant.parse_within(self.zygotes.reading)
                contestants.add(contestant)
                patience = ToolTimeouts(self.zygotes.clock, contestant.kill)
                try:
                    told.again = True
                    with patience.step("opening the device", lambda: OPEN_LIMIT_S):
                        contestant.attach(subject.attach, subject.arena_fd, WALL_LIMIT_S)
                    told.again = False
                    with patience.step("importing the solution", limit_s):
                        contestant.load(subject.load, WALL_LIMIT_S)
                    for call in burst.calls[: CALLS[tool]]:
                        with patience.step("a call", limit_s, lambda: paces.others(tool) + _hint(tool)):
                            done, _ = contestant.burst(replace(burst, calls=(call,)), WALL_LIMIT_S)
                        told.answers.append(done)
                        with self.zygotes.reading():
                            found = parse(_read_from(post.log_path, seen), tool)
                        if found:
                            return  # further calls may take seconds each and repeat the finding
                    with patience.step("ending the process", lambda: END_LIMIT_S):
                        contestant.finish(WALL_LIMIT_S)
                    told.ended = patience.why
                    if told.ended is None:
                        paces.told(tool, self.zygotes.clock() - begin_s)
                except ContestantFailed as failed:
                    runaway = "the contestant's processes could not be paused" if contestant.ran_away else None
                    told.ended = patience.why or runaway or failed.failure.reason
                    # If a zygote hangs before any code of the solution ran, the next attempt uses another zygote.
                    told.lost = told.again and patience.why is not None
        finally:
            log_path.unlink(missing_ok=True)


def _hint(tool: SanitizerTool) -> str:
    """A possible cause, other than slowness, of a call that does not end."""
    if tool not in (SanitizerTool.SYNCCHECK, SanitizerTool.RACECHECK):
        return ""
    return "; a kernel that hangs only under this tool may have a barrier that some threads of a block never reach"


def _read_from(path: Path, offset: int) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(offset)
        return file.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    return ""

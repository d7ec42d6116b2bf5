"""Runs audits: a solution's kernels under compute-sanitizer's tools, on a small workload, in the same sandbox.

Trusted side; used by the referee. Zygotes stand under each tool for as long as the auditor lives, so that an audit
costs a fork and a context instead of a new process that imports torch (0.5 to 1.3 s a tool against 4 to 8). The tools
run beside each other, and each begins its audits in the order in which they were asked for, `POSTS` at a time: so
audits can run ahead of the judgement. While something is timed, `hold` keeps them all still.

A contestant that is audited gets copies of its inputs in allocations of their own, since the arena is one allocation in
which no access is out of bounds.
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
"""Zygotes under each tool at most; those beyond the first start when they are needed. An audit takes as long as two
judgements, most of all because it is held while others are timed, and racecheck's twice that: of 32 solutions in a row
on an H200 it took 2.6 s in the median where the others took 1.4, and all waited for it."""

START_LIMIT_S = 120.0

TRIES = 2
"""How often a tool begins with a solution, where it fails before any of the solution's code is reached."""

MAX_LOG_BYTES = 4 * 2**20

_OWN_ALLOCATIONS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Else torch's allocator hands out pieces of large allocations, whose bounds no tool can see."""


def find_sanitizer(nvcc: Path | None = None) -> str | None:
    """compute-sanitizer beside this nvcc, on PATH, or where CUDA is usually installed; None where it is missing."""
    beside = nvcc.resolve().parent / "compute-sanitizer" if nvcc else None
    if beside is not None and beside.exists():
        return str(beside)
    usual = Path("/usr/local/cuda/bin/compute-sanitizer")
    return shutil.which("compute-sanitizer") or (str(usual) if usual.exists() else None)


class Auditor:
    """Holds a zygote under each tool. A context manager; starting takes seconds and happens in the background."""

    def __init__(
        self, executable: str, *, preload: Sequence[str], logs: Path, sandbox: SandboxMode, memory_limit_bytes: int
    ) -> None:
        self._sandbox: SandboxMode = sandbox
        self._memory_limit_bytes = memory_limit_bytes
        self._threads = {
            tool: ThreadPoolExecutor(POSTS[tool], thread_name_prefix=f"audit-{tool.value}") for tool in SanitizerTool
        }
        self._sanitizer_zygotes = SanitizerZygotes(
            executable, preload=preload, logs=logs, most=POSTS, again=self._prepare
        )
        for tool in SanitizerTool:
            self._prepare(tool)

    def __enter__(self) -> Auditor:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
        self._sanitizer_zygotes.close()

    def begin(self, subject: AuditSubject, tools: Collection[SanitizerTool] = tuple(SanitizerTool)) -> Audit:
        """Start `tools` on `subject`, each as soon as it is done with what was begun before."""
        # The arena's owner may close it before the last tool has begun.
        subject, contestants = replace(subject, arena_fd=os.dup(subject.arena_fd)), ContestantSet()
        # Kernels that are made later may hold what these texts do not.
        known = subject.parts and not subject.builds_later
        texts = [subject.source, *(part.text for part in subject.parts)] if known else ()
        idle = {tool: why for tool in tools if (why := not_needed(tool, texts)) is not None}
        running = {
            tool: self._submit(tool, self._run, tool, subject, contestants) for tool in tools if tool not in idle
        }
        audit = Audit(subject, running, contestants, idle, waits=self._sanitizer_zygotes.withdraw)
        audit.close_when_over()
        return audit

    def announce(self) -> None:
        """Tell every tool's children to stop, without waiting until they do: `hold` does that, and `withdraw` takes it
        back. No audit begins meanwhile; whoever waits for one withdraws it.
        """
        self._sanitizer_zygotes.announce()

    def withdraw(self) -> None:
        """Let them go on where no `hold` has followed. Idempotent."""
        self._sanitizer_zygotes.withdraw()

    def hold(self) -> bool:
        """Keep every tool and what it watches still until `release`: the device is somebody else's now.

        False where nothing was under way. Else a kernel that was stays on the GPU until it is over; `contention` tells
        when. Idempotent.
        """
        return self._sanitizer_zygotes.hold()

    def release(self) -> None:
        """Let them go on. Idempotent."""
        self._sanitizer_zygotes.release()

    def loosen(self) -> None:
        """Let what is under way go on, and hold what would come next."""
        self._sanitizer_zygotes.loosen()

    def drain(self) -> None:
        """Let what is under way come to its end, and hold what would come next."""
        self._sanitizer_zygotes.drain()

    def _submit(self, tool: SanitizerTool, work: Callable[..., T], *arguments: Any) -> Future[T]:
        return self._threads[tool].submit(work, *arguments)

    def _prepare(self, tool: SanitizerTool) -> None:
        """Begin a zygote of this tool in the background."""
        with suppress(RuntimeError):  # at the end nobody needs another one
            self._submit(tool, self._sanitizer_zygotes.prepare, tool)

    def _run(self, tool: SanitizerTool, subject: AuditSubject, contestants: ContestantSet) -> ToolRun:
        with self._sanitizer_zygotes.turn(lambda: contestants.cancelled) as begins:
            return self._run_now(tool, subject, contestants) if begins else ToolRun(not_run="not needed any more")

    def _run_now(self, tool: SanitizerTool, subject: AuditSubject, contestants: ContestantSet) -> ToolRun:
        begin = time.perf_counter()
        told = ToolRun(not_run="not needed any more", again=True)
        for _ in range(TRIES):
            if contestants.cancelled or not told.again:
                break
            told = self._try(tool, subject, contestants)
        else:
            if told.again and told.ended is not None:  # a failure of nobody's code
                told.not_run, told.ended = f"could not begin, {TRIES} times: {told.ended}", None
        told.wall_s = time.perf_counter() - begin
        return told

    def _try(self, tool: SanitizerTool, subject: AuditSubject, contestants: ContestantSet) -> ToolRun:
        post = None
        try:
            post = self._sanitizer_zygotes.take(tool)
            post.zygote.wait_ready(START_LIMIT_S)
        except (ZygoteError, OSError) as error:
            if post is not None:
                self._sanitizer_zygotes.drop(post)
            return ToolRun(not_run=one_line(f"could not be started: {error}"))
        seen = post.log_path.stat().st_size if post.log_path.exists() else 0
        told = ToolRun()
        try:
            self._converse(post, subject, contestants, seen, told)
        except SandboxUnavailable as error:
            told.not_run = one_line(str(error))
        except (ZygoteError, OSError) as error:
            told.ended, told.again, told.lost = one_line(str(error)), True, True
        said = _read_from(post.log_path, seen)
        told.findings = parse(said, tool)
        if told.ended is None and overflowed(said):
            told.ended = "its threads met more often than racecheck can keep"
        post.printed += sum(finding.count for finding in told.findings)
        (self._sanitizer_zygotes.drop if told.lost else self._sanitizer_zygotes.give_back)(post)
        return told

    def _converse(
        self, post: SanitizerZygote, subject: AuditSubject, contestants: ContestantSet, seen: int, told: ToolRun
    ) -> None:
        """Have the calls made, one after another until something is found; `told.ended` is why not all of them were."""
        tool, paces = post.tool, contestants.paces
        burst = subject.burst if tool is ANSWERS else subject.elsewhere
        policy = SandboxPolicy(
            mode=self._sandbox,
            gpu=True,
            gpu_minor=subject.gpu_minor,
            readable=subject.readable,
            max_memory_bytes=self._memory_limit_bytes,
            # Nobody is timed here. A kernel that waits for one on another stream that is submitted later would wait for
            # ever; the tools give it up.
            env={**_OWN_ALLOCATIONS, **ONE_QUEUE},
            under_tool=True,
        )
        log_path = subject.log_path.with_name(f"{subject.log_path.name}.{tool.value}")
        limit_s = functools.partial(paces.limit_s, tool)
        begin_s = self._sanitizer_zygotes.clock()
        try:
            with ContestantProcess(
                post.zygote, policy, log_path, memory_limit_bytes=self._memory_limit_bytes
            ) as contestant:
                contestants.add(contestant)
                patience = ToolTimeouts(self._sanitizer_zygotes.clock, contestant.kill)
                try:
                    told.again = True
                    with patience.step("opening its device", lambda: OPEN_LIMIT_S):
                        contestant.attach(subject.attach, subject.arena_fd, WALL_LIMIT_S)
                    told.again = False
                    with patience.step("importing it", limit_s):
                        contestant.load(subject.load, WALL_LIMIT_S)
                    for call in burst.calls[: CALLS[tool]]:
                        with patience.step("a call", limit_s, lambda: paces.others(tool) + _hint(tool)):
                            done, _ = contestant.burst(replace(burst, calls=(call,)), WALL_LIMIT_S)
                        told.answers.append(done)
                        if parse(_read_from(post.log_path, seen), tool):
                            return  # each further call may take seconds, and say the same
                    with patience.step("its process", lambda: END_LIMIT_S):
                        contestant.finish(WALL_LIMIT_S)
                    told.ended = patience.why
                    if told.ended is None:
                        paces.told(tool, self._sanitizer_zygotes.clock() - begin_s)
                except ContestantFailed as failed:
                    runaway = "its processes could not be held still" if contestant.ran_away else None
                    told.ended = patience.why or runaway or failed.failure.reason
                    # A zygote that is stuck before it has seen anything is not asked again: another one is.
                    told.lost = told.again and patience.why is not None
        finally:
            log_path.unlink(missing_ok=True)


def _hint(tool: SanitizerTool) -> str:
    """What a call that does not end may have, beside being slow."""
    if tool not in (SanitizerTool.SYNCCHECK, SanitizerTool.RACECHECK):
        return ""
    return "; a kernel that hangs under this tool alone may have a barrier that part of a block never reaches"


def _read_from(path: Path, offset: int) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(offset)
        return file.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    return ""

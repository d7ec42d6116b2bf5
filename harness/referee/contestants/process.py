"""Control one contestant process: start, requests, errors as failures.

Trusted side. A contestant that is late, dies, breaks the protocol or raises is a failure of its solution; the status
says which. Only a failure before any of its code ran is the harness's fault. See guides/design/contestants.md.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status, one_line
from harness.core.task import RefereeConfig, Task
from harness.devices.hardware_queues import ONE_QUEUE, queues_for
from harness.protocol.channel import FrameTimeout, WireError
from harness.protocol.fields import MessageError
from harness.protocol.kernel_rows import CensusTaken
from harness.protocol.messages import (
    Attach,
    Broken,
    Burst,
    BurstDone,
    Collect,
    EmptyTimed,
    ExportLaunches,
    Go,
    Load,
    Loaded,
    LoadLaunches,
    Open,
    Prepare,
    Ready,
    Recorded,
    RecordLaunches,
    Release,
    Reply,
    Request,
    Stage,
    TakeCensus,
    TakeState,
    TimeEmpty,
    parse_reply,
)
from harness.protocol.reply_limits import ReplyLimits
from harness.referee.contestants.crash_recorder import CrashRecorder, CrashRecording
from harness.referee.contestants.failures import failure_of
from harness.sandbox import ExitReport, SandboxPolicy, SandboxReport
from harness.sandbox.child import ProcessorsShort
from harness.sandbox.suspend import StopError
from harness.sandbox.zygote import Child, Zygote

ReplyKind = TypeVar("ReplyKind", Recorded, Ready, Loaded, EmptyTimed, BurstDone, CensusTaken)

CONTESTANT = "harness.untrusted.contestant.main:main"

EXIT_GRACE_S = 2.0
"""Seconds within which a contestant must be ending after it closed its channel, or ran while stopped."""

ENDING_S = 60.0
"""Seconds for the end itself: it frees gigabytes, or a GPU's memory."""

TIME_IS_OVER = signal.SIGXCPU
"""Signal sent to a host-device process at its time limit, before it is killed, so that it records its position."""

TELLING_S = 5.0
"""Seconds allowed for that on a busy machine; milliseconds on an idle one."""

_STAGE_WORDS = {
    Stage.ATTACH: "being prepared",
    Stage.IMPORT: "being imported",
    Stage.CONSTRUCT: "constructing ModelNew",
    Stage.CALL: "calling forward",
}

_REACHED_FROM = {
    Stage.ATTACH: (Stage.ATTACH,),
    Stage.IMPORT: (Stage.IMPORT, Stage.CONSTRUCT),
    Stage.CALL: (Stage.CALL,),
}
"""Stages at which a request may fail.

Otherwise a contestant could report a failed "attach", which is the harness's fault and counts nowhere.
"""


MOVED = Failure(
    status=Status.disqualified,
    reason="the process ran between two calls, although the harness had stopped it",
    evidence={"rule": "stopped"},
)


class ContestantFailed(Exception):
    """The contestant failed; carries the verdict on the solution.

    Args:
        failure: Status, reason and evidence.
        reports: Findings that came with it, if it raised an exception.
        recording: What a process that died has left behind.
    """

    def __init__(
        self, failure: Failure, reports: Sequence[Mapping[str, Any]] = (), recording: CrashRecording | None = None
    ) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.reports = tuple(reports)
        self.recording = recording


class ContestantProcess:
    """One contestant process. A context manager: the block's end kills it.

    It runs only during requests. After each reply all its threads and processes are stopped, so that none can write to
    shared memory late, read the next inputs early, or disturb the reference.
    """

    def __init__(self, zygote: Zygote, policy: SandboxPolicy, log_path: Path, *, memory_limit_bytes: int) -> None:
        begin = time.perf_counter()
        self._zygote, self._policy, self._log_path = zygote, policy, log_path
        self._child = zygote.spawn(CONTESTANT, policy, log_path)
        self.spawn_s = time.perf_counter() - begin
        """Seconds to start it and build its sandbox."""
        self.stopping_s = 0.0
        """Seconds spent on stopping it after replies, and on seeing that it stood still."""
        self.opened_s: float | None = None
        """Seconds to open its device, if that was done ahead."""
        self._memory_limit_bytes = memory_limit_bytes
        self._emulated = not policy.gpu
        self._recorder = CrashRecorder() if self._emulated else None
        self.has_one_queue = ONE_QUEUE.items() <= policy.env.items()
        """Whether a GPU context that it opens has a single hardware queue."""
        self._exit: ExitReport | None = None
        self._asked_s = self._stopped_s = time.perf_counter()
        self.in_line_s = 0.0
        """Seconds that its threads waited for a processor during the last request, summed, by the kernel's count.

        Threads that it creates also delay each other, so this does not prove that the machine is busy.
        """
        self._limits = ReplyLimits()
        self._entered = False
        """Whether code of the solution may be in the process."""

    @property
    def sandbox(self) -> SandboxReport:
        """The sandbox as it was set up."""
        return self._child.report

    @property
    def exit_report(self) -> ExitReport | None:
        """How the process ended; None while it runs."""
        return self._exit

    @property
    def ran_away(self) -> bool:
        """Whether it was killed because it could not be stopped."""
        return self._child.ran_away

    @property
    def starved_s(self) -> float:
        """Seconds beyond the limits of requests, spent because processors were short."""
        return self._child.starved_s

    def __enter__(self) -> ContestantProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._exit is None:
            self._exit = self._child.kill()
        self._child.channel.close()
        if self._recorder is not None:
            self._recorder.close()

    def beside(self, target: str) -> Child:
        """Start another process in an equal sandbox, without access to this one's memory.

        Args:
            target: Function of the untrusted side, as `module:function`.

        Returns:
            The process; the caller ends it.

        Raises:
            Exception: As `Zygote.spawn`.
        """
        return self._zygote.spawn(target, self._policy, self._log_path)

    def parse_within(self, block: Callable[[], AbstractContextManager[object]]) -> None:
        """Parse its replies only within such a block, which may wait."""
        self._child.channel.parsing = block

    def hold(self) -> None:
        """Stop it during a request, from any thread, until `go_on`; may raise `StopError`."""
        self._child.hold()

    def go_on(self) -> None:
        """Let it continue after `hold`."""
        self._child.release()

    # Each request below raises `ContestantFailed` if it is not answered correctly within `timeout_s` seconds.

    def open(self, request: Open, timeout_s: float) -> None:
        """Let it open its device, or confirm that it still works; no solution is loaded."""
        begin = time.perf_counter()
        self._expect(Ready, "open", request, Stage.ATTACH, timeout_s)
        if self.opened_s is None:
            self.opened_s = time.perf_counter() - begin

    def attach(self, request: Attach, fd: int, timeout_s: float) -> None:
        """Give it the shared memory, or other shared memory instead."""
        # Once a solution is loaded, its failures are its own.
        stage = Stage.CALL if self._entered else Stage.ATTACH
        fds = (fd,) if self._recorder is None else (fd, self._recorder.fd)
        self._expect(Loaded, "attach", request, stage, timeout_s, fds)

    def empty_calls(self, timeout_s: float) -> EmptyTimed:
        """Time empty kernels in its process (`devices/empty_kernel.py`), before `load`."""
        return self._expect(EmptyTimed, "empty calls", TimeEmpty(), Stage.ATTACH, timeout_s)

    def load(self, request: Load, timeout_s: float) -> Loaded:
        """Load the solution."""
        return self._expect(Loaded, "load", request, Stage.IMPORT, timeout_s)

    def take_state(self, timeout_s: float) -> Loaded:
        """Let the solution take over the reference's state."""
        return self._expect(Loaded, "take state", TakeState(), Stage.CONSTRUCT, timeout_s)

    def burst(self, request: Burst, timeout_s: float) -> tuple[BurstDone, float]:
        """Run a burst; return its claims, and the seconds until everything was stopped."""
        done = self._expect_claims("burst", request, len(request.calls), timeout_s)
        return done, self._stopped_s - self._asked_s

    def prepare(self, request: Prepare, timeout_s: float, gate_fd: int | None = None) -> str | None:
        """Prepare calls for a later `go`; return why they can't be made, or None."""
        fds = () if gate_fd is None else (gate_fd,)
        return self._expect(Ready, "prepare", request, Stage.CALL, timeout_s, fds).refused

    def go(self, timeout_s: float) -> float:
        """Start the prepared calls; return the seconds until everything was stopped."""
        self._expect(Ready, "go", Go(), Stage.CALL, timeout_s)
        return self._stopped_s - self._asked_s

    def collect(self, calls: int, timeout_s: float) -> BurstDone:
        """Return one claim for each of the prepared calls, which have ended."""
        return self._expect_claims("collect", Collect(), calls, timeout_s)

    def release(self, timeout_s: float) -> None:
        """Let it drop solution and shared memory, so that another solution can be loaded."""
        self._expect(Ready, "release", Release(), Stage.CALL, timeout_s)

    def census(self, request: TakeCensus, timeout_s: float) -> CensusTaken:
        """Ask which kernels a call runs."""
        return self._expect(CensusTaken, "census", request, Stage.CALL, timeout_s)

    def record_launches(self, request: RecordLaunches, timeout_s: float) -> Recorded:
        """Record what one call submits."""
        return self._expect(Recorded, "record launches", request, Stage.CALL, timeout_s)

    def export_launches(self, request: ExportLaunches, fds: tuple[int, int], timeout_s: float) -> None:
        """Let it copy the recording out."""
        self._expect(Ready, "export launches", request, Stage.CALL, timeout_s, fds)

    def load_launches(self, request: LoadLaunches, fds: tuple[int, int], timeout_s: float) -> None:
        """Load recorded launches in place of a solution."""
        self._expect(Ready, "load launches", request, Stage.IMPORT, timeout_s, fds)

    def _expect(
        self,
        kind: type[ReplyKind],
        name: str,
        request: Request,
        stage: Stage,
        timeout_s: float,
        fds: tuple[int, ...] = (),
    ) -> ReplyKind:
        """Return the reply to a request; another kind of reply is against the protocol."""
        reply = self._ask(request, fds, stage, timeout_s)
        if not isinstance(reply, kind):
            raise ContestantFailed(_protocol(name, reply))
        return reply

    def _expect_claims(self, name: str, request: Request, calls: int, timeout_s: float) -> BurstDone:
        done = self._expect(BurstDone, name, request, Stage.CALL, timeout_s)
        if len(done.claims) != calls:
            raise ContestantFailed(_protocol(name, done))
        return done

    def expect_still(self) -> None:
        """Raise `ContestantFailed` if any of its code ran since its last reply.

        The kernel may continue a stopped process for the process's own reasons (a timer, the end of a relative).
        """
        begin = time.perf_counter()
        try:
            moved = self._entered and self._exit is None and self._child.moved()
            self.stopping_s += time.perf_counter() - begin
        except StopError as error:
            self._exit = self._child.kill()
            raise ContestantFailed(_not_stopped(Stage.CALL, error)) from error
        if moved:
            self._exit = self._wait_for_end()  # a process that is killed, by its memory limit for example, runs to end
            if self._exit is not None:
                raise self._lost(self._died(Stage.CALL))
            self._exit = self._child.kill()
            raise ContestantFailed(MOVED)

    def kill(self) -> None:
        """Kill it, from any thread; a pending request raises `ContestantFailed`."""
        self._exit = self._child.kill()

    def finish(self, timeout_s: float) -> None:
        """Let it end by itself, as tools that observe it need; kill it after `timeout_s`."""
        self._child.resume()
        self._child.channel.close()
        self._exit = self._child.wait(timeout_s)

    def _ask(self, request: Request, fds: tuple[int, ...], stage: Stage, timeout_s: float) -> Reply:
        self.expect_still()
        self._entered = self._entered or stage is Stage.IMPORT
        before_s = self._child.in_line_s
        self._asked_s = time.perf_counter()
        try:
            self._child.resume()
            asked = request.to_json()
            self._child.channel.send(asked, fds, timeout_s=timeout_s)
            received = self._child.receive(timeout_s, self._limits.of(asked))
            begin = time.perf_counter()
            self._stopped_s = self._child.pause()
            self.stopping_s += time.perf_counter() - begin
            self.in_line_s = max(0.0, self._child.in_line_s - before_s)
            reply = parse_reply(received.message)
        except StopError as error:
            self._exit = self._child.kill()
            raise ContestantFailed(_not_stopped(stage, error)) from error
        except FrameTimeout:
            self._exit = self._end_late()
            if self._exit.cause == "memory_limit":
                raise self._lost(self._died(stage)) from None
            raise self._lost(_too_late(stage, timeout_s), TIME_IS_OVER) from None
        except ProcessorsShort as error:
            self._exit = self._child.kill()
            reason = f"this machine is too busy: {error}; reduce its load, repeat with --resume"
            failure = Failure(status=Status.harness_error, reason=reason, evidence={"stage": stage.value})
            raise ContestantFailed(failure) from error
        except MessageError as error:
            raise ContestantFailed(_protocol(stage.value, error)) from error
        except (WireError, OSError) as error:
            self._exit = self._wait_for_end()
            if self._exit is None:
                self._exit = self._child.kill()
                raise ContestantFailed(_protocol(stage.value, error)) from error
            raise self._lost(self._died(stage)) from error
        if isinstance(reply, Broken | BurstDone) and reply.reports and not self._emulated:
            # Only the host device has such checks, and their finding "not emulated" counts nowhere.
            raise ContestantFailed(_protocol(stage.value, "findings of checks that this device does not have"))
        if isinstance(reply, Broken):
            if reply.stage not in _REACHED_FROM[stage]:
                raise ContestantFailed(_protocol(stage.value, f"a failure while {_STAGE_WORDS[reply.stage]}"))
            # Before the solution is loaded, errors and findings are the harness's.
            raise ContestantFailed(failure_of(reply), () if reply.stage is Stage.ATTACH else reply.reports)
        return reply

    def _wait_for_end(self) -> ExitReport | None:
        """Wait for its end and return the report; None if it keeps running."""
        deadline_s = time.perf_counter() + ENDING_S
        while (report := self._child.wait(EXIT_GRACE_S)) is None:
            if not self._child.is_ending() or time.perf_counter() > deadline_s:
                return None
        return report

    def _end_late(self) -> ExitReport:
        if self._recorder is not None and self._entered:
            self._child.send(TIME_IS_OVER)
            self._child.wait(TELLING_S)
        return self._child.kill()

    def _lost(self, failure: Failure, told: int | None = None) -> ContestantFailed:
        """Add what a dead process left behind to its failure.

        `told` is the signal that asked for its position, if the harness sent one.
        """
        if self._recorder is None or not self._entered or failure.status is Status.harness_error:
            return ContestantFailed(failure)
        assert self._exit is not None
        return ContestantFailed(failure, recording=self._recorder.read().ended_by(told or self._exit.signal))

    def _died(self, stage: Stage) -> Failure:
        report = self._exit
        assert report is not None
        where = _STAGE_WORDS[stage]
        evidence = {
            "stage": stage.value,
            "exit_code": report.exit_code,
            "signal": report.signal,
            "peak_memory_bytes": report.peak_memory_bytes,
        }
        if report.cause == "lost":
            reason = f"the harness lost track of the process while {where}; repeat with --resume"
            return Failure(status=Status.harness_error, reason=reason, evidence=evidence)
        if report.cause == "machine_memory":
            reason = f"this machine ran out of host memory while {where}; free memory and repeat with --resume"
            return Failure(status=Status.harness_error, reason=reason, evidence=evidence | {"short_of_memory": True})
        if report.cause == "memory_limit":
            limit = self._memory_limit_bytes / 2**30
            reason = f"used more than {limit:.1f} GiB of host memory, its limit, while {where}"
            return Failure(status=Status.out_of_memory, reason=reason, evidence=evidence)
        if report.signal is not None:
            name = signal.Signals(report.signal).name if report.signal in set(signal.Signals) else str(report.signal)
            return Failure(status=Status.crashed, reason=f"the process died of {name} while {where}", evidence=evidence)
        status = Status.import_error if stage is Stage.IMPORT else Status.crashed
        reason = f"the process exited with code {report.exit_code} while {where}"
        return Failure(status=status, reason=reason, evidence=evidence)


def _not_stopped(stage: Stage, error: StopError) -> Failure:
    if error.starved:
        reason = f"this machine is too busy: {error}, without a free processor; reduce its load, repeat with --resume"
        return Failure(status=Status.harness_error, reason=reason, evidence={"stage": stage.value})
    return _protocol(stage.value, error)


def _too_late(stage: Stage, timeout_s: float) -> Failure:
    status, reason = Status.timeout, f"no answer within {timeout_s:.4g} s: an endless loop, a deadlock or far too slow"
    if stage is Stage.IMPORT:
        status, reason = (
            Status.import_error,
            f"import and constructor together did not finish within {timeout_s:.4g} s",
        )
    return Failure(status=status, reason=reason, evidence={"stage": stage.value, "timeout_s": timeout_s})


def _protocol(what: str, got: object) -> Failure:
    return Failure(
        status=Status.disqualified,
        reason=one_line(f"invalid reply to {what}, which the harness's own code never sends: {got}"),
        evidence={"rule": "protocol"},
    )


def policy_for(task: Task, config: RefereeConfig, gpu_minor: int | None) -> SandboxPolicy:
    """Return the sandbox for a task's solution.

    Args:
        task: The solution; its extensions become readable.
        config: Settings of the run.
        gpu_minor: Number of the GPU's device file, if known.
    """
    return SandboxPolicy(
        mode=config.sandbox,
        gpu=config.device is DeviceKind.CUDA,
        gpu_minor=gpu_minor,
        readable=task.readable + ((Path(runtime),) if (runtime := config.host_runtime) else ()),
        max_memory_bytes=config.memory_limit_bytes,
        env=queues_for(task.source) if config.device is DeviceKind.CUDA else {},
    )


def trusted_policy_for(task: Task, config: RefereeConfig, gpu_minor: int | None) -> SandboxPolicy:
    """Return the sandbox for the harness's own code, the same for every task.

    It uses one stream and reads no file of a solution.

    Args:
        task: Any task.
        config: Settings of the run.
        gpu_minor: Number of the GPU's device file, if known.
    """
    own = policy_for(replace(task, readable=()), config, gpu_minor)
    return replace(own, env=ONE_QUEUE) if own.gpu else own


def told(contestant: ContestantProcess) -> dict[str, Any]:
    """Return what a record says about the contestant's sandbox and end.

    Returns:
        JSON fields of the sandbox, `opened_ahead_s` and, after its end, `peak_memory_bytes` and `log_truncated`.
    """
    facts: dict[str, Any] = {**contestant.sandbox.to_json(), "opened_ahead_s": contestant.opened_s}
    if (ended := contestant.exit_report) is not None:
        facts |= {"peak_memory_bytes": ended.peak_memory_bytes, "log_truncated": ended.log_truncated}
    return facts

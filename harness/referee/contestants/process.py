"""The referee's end of one contestant: start it, ask it, and turn whatever goes wrong into a `Failure`.

Trusted side. A contestant that is late, dies, lies about the protocol or raises is a failure of its submission,
with the status that says which; only what happens before any of its code ran is the harness's fault.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status, one_line
from harness.core.task import RefereeConfig, Task
from harness.devices.hardware_queues import ONE_QUEUE, queues_for
from harness.protocol.channel import FrameTimeout, WireError
from harness.protocol.kernel_rows import CensusTaken
from harness.protocol.messages import (
    Attach,
    Broken,
    Burst,
    BurstDone,
    Collect,
    EmptyTimed,
    Go,
    Load,
    Loaded,
    MessageError,
    Open,
    Prepare,
    Ready,
    Release,
    Reply,
    Request,
    Stage,
    TakeCensus,
    TimeEmpty,
    parse_reply,
)
from harness.referee.contestants.crash_recorder import CrashRecorder, CrashRecording
from harness.referee.contestants.failures import failure_of
from harness.sandbox import ExitReport, SandboxPolicy, SandboxReport
from harness.sandbox.suspend import StopError
from harness.sandbox.zygote import Child, Zygote

CONTESTANT = "harness.untrusted.contestant.main:main"

EXIT_GRACE_S = 2.0
"""How long a contestant that closed its channel, or moved while it was stopped, may take to be seen to end."""

ENDING_S = 60.0
"""How long one that is seen to end may take for that: it gives back gigabytes, or what it had of a GPU."""

TIME_IS_OVER = signal.SIGXCPU
"""What a process on the host device is sent at its time limit, before it is killed, so that it tells where it is."""

TELLING_S = 5.0
"""How long it may take for that on a busy machine; it is some milliseconds on an idle one."""

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
"""Where a request may break. A call that "could not be prepared" would be blamed on the harness, and count nowhere."""


MOVED = Failure(
    status=Status.disqualified,
    reason="its process ran on between two calls, while it was stopped",
    evidence={"rule": "stopped"},
)


class ContestantFailed(Exception):
    """Ends the conversation; carries the verdict on the submission, and the `reports` that came with what it is of, or
    what one that died without a word has left behind (`recording`).
    """

    def __init__(
        self, failure: Failure, reports: Sequence[Mapping[str, Any]] = (), recording: CrashRecording | None = None
    ) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.reports = tuple(reports)
        self.recording = recording


class ContestantProcess:
    """One contestant process. A context manager: it is dead when the block ends.

    It runs only while it is asked something: after each reply all its threads and processes are stopped, so that none
    can write to the arena late, look at the next inputs early, or disturb the reference.
    """

    def __init__(self, zygote: Zygote, policy: SandboxPolicy, log_path: Path, *, memory_limit_bytes: int) -> None:
        begin = time.perf_counter()
        self._zygote, self._policy, self._log_path = zygote, policy, log_path
        self._child = zygote.spawn(CONTESTANT, policy, log_path)
        self.spawn_s = time.perf_counter() - begin
        """What building its walls took, in seconds."""
        self.stopping_s = 0.0
        """What stopping it after each reply has taken."""
        self.opened_s: float | None = None
        """What opening its device took, where it was opened ahead."""
        self._memory_limit_bytes = memory_limit_bytes
        self._emulated = not policy.gpu
        self._recorder = CrashRecorder() if self._emulated else None
        self.has_one_queue = ONE_QUEUE.items() <= policy.env.items()
        """Whether a context that it opens on a GPU has a single hardware queue."""
        self._exit: ExitReport | None = None
        self._asked_s = self._stopped_s = time.perf_counter()
        self.in_line_s = 0.0
        """How long its threads stood in line for a processor while it was last asked something, all together, as the
        kernel counts it. Threads that it makes get in each other's way, too: that proves no busy machine."""
        self._entered = False
        """Whether code of the submission may be in it."""

    @property
    def sandbox(self) -> SandboxReport:
        return self._child.report

    @property
    def exit_report(self) -> ExitReport | None:
        return self._exit

    @property
    def ran_away(self) -> bool:
        """Whether it was ended since it could not be held still."""
        return self._child.ran_away

    def __enter__(self) -> ContestantProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._exit is None:
            self._exit = self._child.kill()
        self._child.channel.close()
        if self._recorder is not None:
            self._recorder.close()

    def beside(self, target: str) -> Child:
        """Another process behind walls like its own, and none of its memory, that runs `target` of the untrusted side.
        The caller ends it. Raises what `Zygote.spawn` raises.
        """
        return self._zygote.spawn(target, self._policy, self._log_path)

    def hold(self) -> None:
        """Stop it in the middle of what it was asked, from any thread, until `go_on`. Raises `StopError`."""
        self._child.hold()

    def go_on(self) -> None:
        """Let it answer after a `hold`."""
        self._child.release()

    def open(self, request: Open, timeout_s: float) -> None:
        """Let it open its device, or say that it still is sound. Nothing of the submission is there yet.

        Raises `ContestantFailed`.
        """
        begin = time.perf_counter()
        reply = self._ask(request, (), Stage.ATTACH, timeout_s)
        if not isinstance(reply, Ready):
            raise ContestantFailed(_protocol("open", reply))
        if self.opened_s is None:
            self.opened_s = time.perf_counter() - begin

    def attach(self, request: Attach, fd: int, timeout_s: float) -> None:
        fds = (fd,) if self._recorder is None else (fd, self._recorder.fd)
        reply = self._ask(request, fds, Stage.ATTACH, timeout_s)
        if not isinstance(reply, Loaded):
            raise ContestantFailed(_protocol("attach", reply))

    def empty_calls(self, timeout_s: float) -> EmptyTimed:
        """What calls that do next to nothing take in its process (`harness.devices.empty_kernel`). Only before
        `load`.
        """
        reply = self._ask(TimeEmpty(), (), Stage.ATTACH, timeout_s)
        if not isinstance(reply, EmptyTimed):
            raise ContestantFailed(_protocol("empty calls", reply))
        return reply

    def load(self, request: Load, timeout_s: float) -> Loaded:
        reply = self._ask(request, (), Stage.IMPORT, timeout_s)
        if not isinstance(reply, Loaded):
            raise ContestantFailed(_protocol("load", reply))
        return reply

    def burst(self, request: Burst, timeout_s: float) -> tuple[BurstDone, float]:
        """The claims, and the seconds from the request until everything was stopped, by the referee's own clock.

        Raises `ContestantFailed`; a reply with another number of claims than calls is a protocol failure.
        """
        reply = self._ask(request, (), Stage.CALL, timeout_s)
        wall_s = self._stopped_s - self._asked_s
        if not isinstance(reply, BurstDone) or len(reply.claims) != len(request.calls):
            raise ContestantFailed(_protocol("burst", reply))
        return reply, wall_s

    def prepare(self, request: Prepare, timeout_s: float, gate_fd: int | None = None) -> str | None:
        """Let it make ready. Why calls can't be made in the manner asked for; None where all is ready."""
        reply = self._ask(request, () if gate_fd is None else (gate_fd,), Stage.CALL, timeout_s)
        if not isinstance(reply, Ready):
            raise ContestantFailed(_protocol("prepare", reply))
        return reply.refused

    def go(self, timeout_s: float) -> float:
        """Start the prepared calls; the seconds until everything was stopped, by the referee's own clock."""
        reply = self._ask(Go(), (), Stage.CALL, timeout_s)
        wall_s = self._stopped_s - self._asked_s
        if not isinstance(reply, Ready):
            raise ContestantFailed(_protocol("go", reply))
        return wall_s

    def collect(self, calls: int, timeout_s: float) -> BurstDone:
        """What it says of the `calls` that were prepared; they are over by then."""
        reply = self._ask(Collect(), (), Stage.CALL, timeout_s)
        if not isinstance(reply, BurstDone) or len(reply.claims) != calls:
            raise ContestantFailed(_protocol("collect", reply))
        return reply

    def release(self, timeout_s: float) -> None:
        """Let it let go of its solution and arena, so that another may be loaded. Raises `ContestantFailed`."""
        reply = self._ask(Release(), (), Stage.CALL, timeout_s)
        if not isinstance(reply, Ready):
            raise ContestantFailed(_protocol("release", reply))

    def census(self, request: TakeCensus, timeout_s: float) -> CensusTaken:
        """Which kernels it says that a call runs. Raises `ContestantFailed`."""
        reply = self._ask(request, (), Stage.CALL, timeout_s)
        if not isinstance(reply, CensusTaken):
            raise ContestantFailed(_protocol("census", reply))
        return reply

    def expect_still(self) -> None:
        """Raise `ContestantFailed` where anything in it has run since its last reply: it was to stand still.

        The kernel lets a stopped process go on for reasons of the process's own (a timer, a relative's end).
        """
        try:
            moved = self._entered and self._exit is None and self._child.moved()
        except StopError as error:
            self._exit = self._child.kill()
            raise ContestantFailed(_not_stopped(Stage.CALL, error)) from error
        if moved:
            self._exit = self._wait_for_end()  # whoever is ended, by a limit on memory say, runs for that
            if self._exit is not None:
                raise self._lost(self._died(Stage.CALL))
            self._exit = self._child.kill()
            raise ContestantFailed(MOVED)

    def kill(self) -> None:
        """End it at once, from any thread; whoever waits for its answer gets `ContestantFailed`."""
        self._exit = self._child.kill()

    def finish(self, timeout_s: float) -> None:
        """Let it end by itself, which tools that watch it want; it is killed where that takes longer."""
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
            self._child.channel.send(request.to_json(), fds, timeout_s=timeout_s)
            received = self._child.channel.receive(timeout_s)
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
        except MessageError as error:
            raise ContestantFailed(_protocol(stage.value, error)) from error
        except (WireError, OSError) as error:
            self._exit = self._wait_for_end()
            if self._exit is None:
                self._exit = self._child.kill()
                raise ContestantFailed(_protocol(stage.value, error)) from error
            raise self._lost(self._died(stage)) from error
        if isinstance(reply, Broken | BurstDone) and reply.reports and not self._emulated:
            # Only the host device has such checks, and one of their findings ("not emulated") counts nowhere.
            raise ContestantFailed(_protocol(stage.value, "findings of checks that are not there"))
        if isinstance(reply, Broken):
            if reply.stage not in _REACHED_FROM[stage]:
                raise ContestantFailed(_protocol(stage.value, f"a failure while {_STAGE_WORDS[reply.stage]}"))
            # What goes wrong before any of its code is there is the harness's: no finding is the submission's then.
            raise ContestantFailed(failure_of(reply), () if reply.stage is Stage.ATTACH else reply.reports)
        return reply

    def _wait_for_end(self) -> ExitReport | None:
        """How it ended; None where it goes on."""
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
        """`failure` of a process that is gone, with what it has left behind where it is a verdict on the submission. It
        was `told` to say where it stands by this signal, or ended by another.
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
            return Failure(status=Status.harness_error, reason=f"the process was lost while {where}", evidence=evidence)
        if report.cause == "machine_memory":
            return Failure(
                status=Status.harness_error,
                reason=f"this machine ran out of host memory while {where}: free some, and --resume",
                evidence=evidence | {"short_of_memory": True},
            )
        if report.cause == "memory_limit":
            limit = self._memory_limit_bytes / 2**30
            return Failure(
                status=Status.out_of_memory,
                reason=f"took more than {limit:.1f} GiB of host memory while {where}",
                evidence=evidence,
            )
        if report.signal is not None:
            name = signal.Signals(report.signal).name if report.signal in set(signal.Signals) else str(report.signal)
            return Failure(status=Status.crashed, reason=f"the process died of {name} while {where}", evidence=evidence)
        status = Status.import_error if stage is Stage.IMPORT else Status.crashed
        return Failure(
            status=status,
            reason=f"the process exited with code {report.exit_code} while {where}",
            evidence=evidence,
        )


def _not_stopped(stage: Stage, error: StopError) -> Failure:
    if error.starved:
        reason = f"this machine is too busy: {error}, for want of a processor; let it have less to do, and --resume"
        return Failure(status=Status.harness_error, reason=reason, evidence={"stage": stage.value})
    return _protocol(stage.value, error)


def _too_late(stage: Stage, timeout_s: float) -> Failure:
    if stage is Stage.IMPORT:
        return Failure(
            status=Status.import_error,
            reason=f"importing and constructing did not finish within {timeout_s:.4g} s",
            evidence={"stage": stage.value, "timeout_s": timeout_s},
        )
    return Failure(
        status=Status.timeout,
        reason=f"no answer within {timeout_s:.4g} s: an endless loop, a deadlock, or far too slow",
        evidence={"stage": stage.value, "timeout_s": timeout_s},
    )


def _protocol(what: str, got: object) -> Failure:
    return Failure(
        status=Status.disqualified,
        reason=one_line(f"the process answered {what} with something that the harness's own code never sends: {got}"),
        evidence={"rule": "protocol"},
    )


def policy_for(task: Task, config: RefereeConfig, gpu_minor: int | None) -> SandboxPolicy:
    """For the solution of this task. `gpu_minor` is the number of the GPU's device file, where it is known."""
    return SandboxPolicy(
        mode=config.sandbox,
        gpu=config.device is DeviceKind.CUDA,
        gpu_minor=gpu_minor,
        readable=task.readable + ((Path(runtime),) if (runtime := config.host_runtime) else ()),
        max_memory_bytes=config.memory_limit_bytes,
        env=queues_for(task.source) if config.device is DeviceKind.CUDA else {},
    )


def trusted_policy_for(task: Task, config: RefereeConfig, gpu_minor: int | None) -> SandboxPolicy:
    """For the harness's own code, the same for every task: it uses one stream and reads nothing of a solution's."""
    own = policy_for(replace(task, readable=()), config, gpu_minor)
    return replace(own, env=ONE_QUEUE) if own.gpu else own


def told(contestant: ContestantProcess) -> dict[str, Any]:
    """What a record says of the walls that stood around this contestant, and of its end."""
    held: dict[str, Any] = {**contestant.sandbox.to_json(), "opened_ahead_s": contestant.opened_s}
    ended = contestant.exit_report
    if ended is not None:
        held["peak_memory_bytes"] = ended.peak_memory_bytes
        held["log_truncated"] = ended.log_truncated
    return held

"""One referee's process, as its executor sees it: started, told what it is for, asked for verdicts, ended.

Trusted side. Starting and telling are two steps, since a process imports torch for seconds and needs to know no more
for that than its device's kind: `harness.runner.executors.prestart` starts those of a run before anything else is
done. Imports no more than it takes to start one.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.subprocesses import python, search_path
from harness.core.task import MAX_TASK_BYTES, Outcome, RefereeConfig, Task
from harness.protocol.channel import Channel, FrameTimeout, WireError, pair
from harness.referee.problem.watchdog import CodeLocation, Phase, ProgressPage
from harness.runner.executors import SlotLost
from harness.runner.executors.problem_faults import LostSlot, limit_s

START_TIMEOUT_S = 180.0
"""Importing torch and making a CUDA context takes seconds; a cold disk makes it minutes."""

MARGIN_S = 600.0
"""Beyond a solution's own time limit: preparing a large problem, or truth on the CPU. Then the referee is stuck.
Steps of the problem's own code have limits of their own (`faults`)."""

END_TIMEOUT_S = 30.0
"""How long a killed referee may take to be gone, its GPU memory given back."""

TAIL_BYTES = 4000
"""So much of the end of a referee's log is told where it died."""

ALLOCATOR = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
"""Truth in float64 takes tens of gigabytes in one piece; torch's usual allocator splits such blocks for small tensors
that stay, until the large ones fit nowhere. The second name is the newer one."""

QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Idle OpenMP threads sleep. By default they spin for milliseconds after each parallel loop: the referee's then slow a
contestant on the same cores by several times, and the other way round."""

WORKER = ("-m", "harness.referee.worker")
"""What Python runs as a referee's process; its channel's descriptor is the last argument."""


class RefereeLost(Exception):
    """A referee died, hung or failed; `detail` is its traceback or the end of its log, and `loss` says so in the terms
    of the problem in whose own code it was.
    """

    def __init__(self, reason: str, detail: str, loss: LostSlot | None = None) -> None:
        super().__init__(reason)
        self.detail = detail
        self.loss = loss


class StartedProcess:
    """A process that gets ready to be some run's referee: it knows its device's kind, its slot's name and its
    environment (`env`, added to this process's), and imports what that takes.

    It ends when this process does, by whatever means, and with it all that it starts. What it and its zygote say before
    they have a log is kept in memory.
    """

    def __init__(
        self, device: DeviceKind, slot: str, env: Mapping[str, str], *, command: Sequence[str] = WORKER
    ) -> None:
        own = {**ALLOCATOR, **QUIET_THREADS, "HARNESS_SLOT": slot, **env}
        self._lock = threading.Lock()
        self._read = 0
        self._said = open(os.memfd_create("referee"), "rb", buffering=0)  # noqa: SIM115
        fcntl.fcntl(self._said, fcntl.F_SETFL, os.O_APPEND)  # several processes write to it
        self._board = ProgressPage()
        ours, theirs = pair()
        self.channel = Channel(ours, max_frame_bytes=MAX_TASK_BYTES)
        try:
            self._process = subprocess.Popen(
                python(*command, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **search_path(os.environ), **own},
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,
            )
        except BaseException:
            self.channel.close()
            self._said.close()
            self._board.close()
            raise
        finally:
            theirs.close()
        with suppress(WireError):  # one that died at once is met by its first task
            self.channel.send({"device": device.value}, [self._board.descriptor])

    def said(self) -> bytes:
        """What was said since this was asked last, less what went to a log."""
        with self._lock:
            if self._said.closed:
                return b""
            descriptor = self._said.fileno()
            data = os.pread(descriptor, os.fstat(descriptor).st_size - self._read, self._read)
            self._read += len(data)
            return data

    def place(self) -> CodeLocation | None:
        """In which problem's code it is, or was when it died."""
        with self._lock:
            return None if self._said.closed else self._board.read()

    def kill(self) -> None:
        """End it and all that it started; `end` waits for that."""
        with self._lock:
            if self._process.returncode is None:  # until somebody waits for it, no other group can have its number
                with suppress(ProcessLookupError):  # its group has what a problem started; zygotes have their own
                    os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """End it and all that it started, and wait until it is gone. Returns how it ended, by the rules of
        `subprocess.Popen.returncode`.
        """
        self.kill()
        # A process inside a driver that hangs dies when the driver lets it, if ever: the run does not wait for that.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        return self._process.returncode

    def close(self) -> None:
        """End it as `end` does, and drop what it said."""
        self.end()
        self.channel.close()
        with self._lock:
            if not self._said.closed:
                self._said.close()
                self._board.close()


class RefereeProcess:
    """A referee with its device, in a process that was started for it. Raises `SlotLost` where it says that its device
    is missing or ill.
    """

    def __init__(self, process: StartedProcess, config: RefereeConfig, log_path: Path) -> None:
        self._process = process
        self._config = config
        self._longest_s = config.solution_timeout_s + MARGIN_S
        self._log_path = log_path
        self._channel = process.channel
        self._keeping = threading.Lock()
        self.ready = False
        self.fresh = True
        """Nothing was asked of it yet."""
        self._starting = threading.Lock()
        self._refused: RefereeLost | SlotLost | None = None
        with suppress(RefereeLost):  # as above
            self._send({"config": config.to_json(), "log_path": str(log_path)})

    def wait_ready(self) -> None:
        """Return once it has its device. Raises `RefereeLost` and `SlotLost`, the same every time. Safe for threads."""
        with self._starting:
            if self._refused is not None:
                raise self._refused
            if self.ready:
                return
            try:
                self._receive(START_TIMEOUT_S)
            except (RefereeLost, SlotLost) as refused:
                self._refused = refused
                raise
            self.ready = True

    def place(self) -> CodeLocation | None:
        """In which problem's code it is."""
        return self._process.place()

    def prove(self, task: Task) -> None:
        """Return once it came through the code of this task's problem. Raises `RefereeLost` and `SlotLost`."""
        self.wait_ready()
        self.fresh = False
        self._send({"type": "prove", "task": task.to_json()})
        self._heard(self._receive(self._longest_s), "proved")

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Let it get ready what these will need, as long as it is asked nothing else. Raises `RefereeLost`."""
        self.fresh = False
        # The solutions may never be judged: what the harness's own code prints meanwhile is for the referee's log.
        own = [replace(task, log_path=self._log_path) for task in tasks]
        self._send({"type": "prepare", "tasks": [task.to_json() for task in own]})

    def judge(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        """The verdict, or None where it is left open. Raises `RefereeLost` and `SlotLost`."""
        self.wait_ready()
        return self._ask({"type": "judge", "task": task.to_json(), "ahead": [each.to_json() for each in ahead]})

    def due(self, task: Task) -> bool:
        """Whether the verdict that was left open is there. Raises `RefereeLost` and `SlotLost`."""
        self._send({"type": "due", "task": task.to_json()})
        return bool(self._heard(self._receive(self._longest_s), "due")["due"])

    def settle(self, task: Task) -> Outcome:
        """The verdict that was left open. Raises `RefereeLost` and `SlotLost`."""
        outcome = self._ask({"type": "settle", "task": task.to_json()})
        if outcome is None:
            raise RefereeLost("the referee left a verdict open twice", "")
        return outcome

    def _ask(self, message: Mapping[str, object]) -> Outcome | None:
        self.fresh = False
        self._send(message)
        reply = self._receive(self._longest_s)
        if reply["type"] == "owed":
            return None
        return Outcome.from_json(self._heard(reply, "judged")["outcome"])

    def _heard(self, reply: dict[str, Any], wanted: str) -> dict[str, Any]:
        """`reply`, where it is of the kind that is wanted. Raises `RefereeLost`."""
        if reply["type"] == "unready":  # what was to become ready beside the referee did not
            self.ready = False
            raise RefereeLost(f"the referee can't start: {reply['reason']}", self._tail())
        if reply["type"] != wanted:
            reason, trace = f"failed: {reply.get('reason')}", str(reply.get("trace", ""))
            place = reply.get("place")
            loss = None if place is None else LostSlot(place=CodeLocation.from_json(place), how=reason, detail=trace)
            raise RefereeLost(f"the referee {reason}", trace, loss)
        return reply

    def _send(self, message: Mapping[str, object]) -> None:
        # It reads nothing while it is at what it was told to get ready, and a large message does not go out until then.
        try:
            self._channel.send(message, timeout_s=self._longest_s)
        except FrameTimeout as error:
            how, place, tail = f"read nothing for {self._longest_s:g} s", self.place(), self._tail()
            loss = None if place is None else LostSlot(place=place, how=how, detail=tail)
            raise RefereeLost(f"the referee {how}", tail, loss) from error
        except WireError as error:
            raise self._died() from error

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        """The next answer, within `timeout_s` as long as each step of a problem's code keeps to its own limit."""
        end = time.monotonic() + timeout_s
        while True:
            place, now = self.place(), time.monotonic()
            due = now + min(limit_s(step, self._config) for step in Phase)  # of a step that begins at this moment
            if place is not None:
                due = min(due, place.since_s + limit_s(place.step, self._config))
            try:
                message = self._channel.receive(max(0.0, min(due, end) - now)).message
            except FrameTimeout as error:
                if (late := self._overdue(place)) is not None:
                    raise late from error
                if time.monotonic() >= end:
                    raise RefereeLost(f"the referee gave no answer within {timeout_s:g} s", self._tail()) from error
            except (WireError, OSError) as error:
                raise self._died() from error
            else:
                if message["type"] == "unavailable":
                    raise SlotLost(str(message["reason"]))
                return message

    def _overdue(self, place: CodeLocation | None) -> RefereeLost | None:
        """What is said of a referee that was in this step of a problem's code, and still is, for too long."""
        if place is None or place != self.place():
            return None
        allowed_s = limit_s(place.step, self._config)
        if time.monotonic() < place.since_s + allowed_s:
            return None
        how, tail = f"gave no answer for {allowed_s:g} s", self._tail()
        reason = f"the referee {how} in {place.step} of problem {place.problem} (workload {place.workload})"
        return RefereeLost(reason, tail, LostSlot(place=place, how=how, hung_s=allowed_s, detail=tail))

    def _died(self) -> RefereeLost:
        """What is said of a referee whose connection closed."""
        place, how = self.place(), _ended(self._process.end())
        tail = self._tail()
        where = "" if place is None else f" in {place.step} of problem {place.problem} (workload {place.workload})"
        loss = None if place is None else LostSlot(place=place, how=how, detail=tail)
        return RefereeLost(f"the referee process died: it {how}{where}", tail, loss)

    def _tail(self) -> str:
        self._keep_said()
        return self._log_path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def _keep_said(self) -> None:
        """Add to the log what was said before its process knew it."""
        with self._keeping:
            if data := self._process.said():
                with self._log_path.open("ab") as log:
                    log.write(data)

    def kill(self) -> None:
        """End it and all that it started; `close` waits for that."""
        self._process.kill()

    def close(self) -> None:
        """End it and all that it started, and wait until it is gone."""
        self._process.end()
        with suppress(OSError):  # a full disk, or a folder that is gone, keeps nobody from ending
            self._keep_said()
        self._process.close()


def _ended(returncode: int | None) -> str:
    """How a process ended, in words."""
    if returncode is None:
        return "closed its connection, and does not end"
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    memory = ", as for want of memory" if -returncode == signal.SIGKILL else ""
    return f"was killed ({name}{memory})"

"""One referee's process: start it, send it tasks, receive outcomes, end it.

Trusted side. A process starts before its run is fully known: importing torch takes seconds and needs only the device's
kind. See `harness.runner.executors.prestart`.
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
"""Limit for a referee's start, in seconds. Importing torch and creating a CUDA context takes minutes on a cold disk."""

MARGIN_S = 600.0
"""Time beyond a solution's own limit, for loading a large problem or computing the truth on the CPU, in seconds.

Then the referee counts as stuck. Steps of the problem's code have their own limits (`problem_faults.limit_s`).
"""

END_TIMEOUT_S = 30.0
"""How long a killed referee may take to exit and free its GPU memory, in seconds."""

TAIL_BYTES = 4000
"""How much of the end of a dead referee's log is reported, in bytes."""

ALLOCATOR = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
"""Settings of torch's CUDA allocator. The second name is the newer one.

The truth in float64 takes tens of gigabytes in one block. The default allocator splits such blocks for small tensors
that stay, until large tensors fit nowhere.
"""

QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Idle OpenMP threads sleep instead of spinning.

Otherwise idle threads of the referee spin for milliseconds after each parallel loop and slow a contestant on the same
cores by several times, and vice versa.
"""

WORKER = ("-m", "harness.referee.worker")
"""Arguments of Python that run a referee; the descriptor of its channel is appended."""


class RefereeLost(Exception):
    """A referee died, hung or failed.

    `detail` is its traceback or the end of its log. `loss` says in which code of which problem it happened, if in any.
    """

    def __init__(self, reason: str, detail: str, loss: LostSlot | None = None) -> None:
        super().__init__(reason)
        self.detail = detail
        self.loss = loss


class RefereeProcess:
    """A referee in a process of its own.

    It imports torch, then waits for what `begin` sends. It and all its children end when this process ends, in any way.
    Its output and its zygotes' is kept in memory until its log file is known. Its methods raise `SlotLost` if the
    referee reports that its device is missing or faulty.

    Args:
        device: The kind of its device.
        slot: The name of its slot.
        env: Environment variables, added to this process's.
        command: Arguments of Python that run it.
    """

    _config: RefereeConfig
    _longest_s: float

    def __init__(
        self, device: DeviceKind, slot: str, env: Mapping[str, str], *, command: Sequence[str] = WORKER
    ) -> None:
        own = {**ALLOCATOR, **QUIET_THREADS, "HARNESS_SLOT": slot, **env}
        self._lock = threading.Lock()
        self._read = 0
        self._said = open(os.memfd_create("referee"), "rb", buffering=0)  # noqa: SIM115
        fcntl.fcntl(self._said, fcntl.F_SETFL, os.O_APPEND)  # several processes write to this file
        self._board = ProgressPage()
        self._log_path = Path(os.devnull)
        self.ready = False
        self.fresh = True
        """Whether it has received no request yet."""
        self._starting = threading.Lock()
        self._refused: RefereeLost | SlotLost | None = None
        ours, theirs = pair()
        self._channel = Channel(ours, max_frame_bytes=MAX_TASK_BYTES)
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
            self._channel.close()
            self._said.close()
            self._board.close()
            raise
        finally:
            theirs.close()
        with suppress(WireError):  # if it died already, its first task reports that
            self._channel.send({"device": device.value}, [self._board.descriptor])

    def begin(self, config: RefereeConfig, log_path: Path) -> None:
        """Send the settings of its run, and its log file."""
        self._config, self._log_path = config, log_path
        self._longest_s = config.solution_timeout_s + MARGIN_S
        with suppress(RefereeLost):  # if it died already, its first task reports that
            self._send({"config": config.to_json(), "log_path": str(log_path)})

    def wait_ready(self) -> None:
        """Wait until it has its device.

        Raises the same `RefereeLost` or `SlotLost` at every call. May be called from several threads.
        """
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
        """Return the step of a problem's code that it executes, or died in.

        None if it executes none.
        """
        with self._lock:
            return None if self._said.closed else self._board.read()

    def prove(self, task: Task) -> None:
        """Run only the code of this task's problem, to learn whether it survives.

        Raises `RefereeLost` and `SlotLost`.
        """
        self.wait_ready()
        self.fresh = False
        self._send({"type": "prove", "task": task.to_json()})
        self._heard(self._receive(self._longest_s), "proved")

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Ask it to load the problems of these tasks until the next request.

        Raises `RefereeLost`.
        """
        self.fresh = False
        # These solutions may never be evaluated, so output goes to the referee's log instead of theirs.
        own = [replace(task, log_path=self._log_path) for task in tasks]
        self._send({"type": "prepare", "tasks": [task.to_json() for task in own]})

    def judge(self, task: Task, ahead: Sequence[Task] = ()) -> Outcome | None:
        """Return the outcome; None if the verdict stays open.

        Raises `RefereeLost` and `SlotLost`.
        """
        self.wait_ready()
        return self._ask({"type": "judge", "task": task.to_json(), "ahead": [each.to_json() for each in ahead]})

    def due(self, task: Task) -> bool:
        """Return whether the open verdict is ready. Raises `RefereeLost` and `SlotLost`."""
        self._send({"type": "due", "task": task.to_json()})
        return bool(self._heard(self._receive(self._longest_s), "due")["due"])

    def settle(self, task: Task) -> Outcome:
        """Wait for the open verdict and return it. Raises `RefereeLost` and `SlotLost`."""
        outcome = self._ask({"type": "settle", "task": task.to_json()})
        if outcome is None:
            raise RefereeLost("the referee left the same verdict open twice", "")
        return outcome

    def _ask(self, message: Mapping[str, object]) -> Outcome | None:
        self.fresh = False
        self._send(message)
        reply = self._receive(self._longest_s)
        if reply["type"] == "owed":
            return None
        return Outcome.from_json(self._heard(reply, "judged")["outcome"])

    def _heard(self, reply: dict[str, Any], wanted: str) -> dict[str, Any]:
        """Return `reply` if it has the wanted type. Raises `RefereeLost`."""
        if reply["type"] == "unready":  # a process that starts beside the referee failed
            self.ready = False
            raise RefereeLost(f"the referee can't start: {reply['reason']}", self._tail())
        if reply["type"] != wanted:
            reason, trace = f"failed: {reply.get('reason')}", str(reply.get("trace", ""))
            place = reply.get("place")
            loss = None if place is None else LostSlot(place=CodeLocation.from_json(place), how=reason, detail=trace)
            raise RefereeLost(f"the referee {reason}", trace, loss)
        return reply

    def _send(self, message: Mapping[str, object]) -> None:
        # It reads nothing while it executes a step of `prepare`, so a large message may block until the step ends.
        try:
            self._channel.send(message, timeout_s=self._longest_s)
        except FrameTimeout as error:
            how, place, tail = f"read nothing for {self._longest_s:g} s", self.place(), self._tail()
            loss = None if place is None else LostSlot(place=place, how=how, detail=tail)
            raise RefereeLost(f"the referee {how}", tail, loss) from error
        except WireError as error:
            raise self._died() from error

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next reply within `timeout_s`.

        Fails sooner if a step of a problem's code exceeds its limit.
        """
        end = time.monotonic() + timeout_s
        while True:
            place, now = self.place(), time.monotonic()
            due = now + min(limit_s(step, self._config) for step in Phase)  # the soonest limit of a step starting now
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
        """Return the error of a referee that still executes this step beyond its limit."""
        if place is None or place != self.place():
            return None
        allowed_s = limit_s(place.step, self._config)
        if time.monotonic() < place.since_s + allowed_s:
            return None
        how, tail = f"gave no answer for {allowed_s:g} s", self._tail()
        reason = f"the referee {how} in {place.step} of problem {place.problem} (workload {place.workload})"
        return RefereeLost(reason, tail, LostSlot(place=place, how=how, hung_s=allowed_s, detail=tail))

    def _died(self) -> RefereeLost:
        """Return the error for a referee whose connection closed."""
        place, how = self.place(), _ended(self._end())
        tail = self._tail()
        where = "" if place is None else f" in {place.step} of problem {place.problem} (workload {place.workload})"
        loss = None if place is None else LostSlot(place=place, how=how, detail=tail)
        return RefereeLost(f"the referee process died: it {how}{where}", tail, loss)

    def _tail(self) -> str:
        self._keep_said()
        return self._log_path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def _keep_said(self) -> None:
        """Append to the log the output from before the process knew its log."""
        with self._lock:
            if self._said.closed:
                return
            descriptor = self._said.fileno()
            if data := os.pread(descriptor, os.fstat(descriptor).st_size - self._read, self._read):
                self._read += len(data)
                with self._log_path.open("ab") as log:
                    log.write(data)

    def kill(self) -> None:
        """Kill it and all its children; `close` waits until they are gone."""
        with self._lock:
            if self._process.returncode is None:  # before `wait`, no other group can have this number
                with suppress(ProcessLookupError):  # the group holds a problem's children; zygotes have their own
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> int | None:
        """Kill it and all its children, and wait until they are gone.

        Returns its exit status, in the form of `subprocess.Popen.returncode`.
        """
        self.kill()
        # A process blocked in a hung driver may never exit: the run does not wait for it.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        return self._process.returncode

    def close(self) -> None:
        """Kill it and all its children, and wait until they are gone."""
        self._end()
        with suppress(OSError):  # a full disk or a removed folder must not keep it alive
            self._keep_said()
        self._channel.close()
        with self._lock:
            if not self._said.closed:
                self._said.close()
                self._board.close()


def _ended(returncode: int | None) -> str:
    """Say how a process ended."""
    if returncode is None:
        return "closed its connection but does not exit"
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    memory = ", possibly by the kernel because memory ran out" if -returncode == signal.SIGKILL else ""
    return f"was killed ({name}{memory})"

"""The process around one referee: `python -m harness.referee.worker FD`.

Trusted side. Speaks `wire` frames with the executor that started it. These tell its device's kind, by which it begins
to import what that takes; its configuration, as soon as that is known; then one task after another. It has its own
zygote for contestants, and no submission's code ever runs in it. It ends when its executor does, by whatever means, and
with it all that it started.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.core.choices import DeviceKind
from harness.core.status import Status
from harness.core.subprocesses import end_with
from harness.core.task import DEVICE_INDEX, MAX_TASK_BYTES, Outcome, RefereeConfig, Task
from harness.protocol.channel import Channel, ChannelClosed
from harness.referee.problem.watchdog import ProgressMarker
from harness.sandbox import SandboxUnavailable
from harness.sandbox.zygote import Zygote, ZygoteError

if TYPE_CHECKING:
    from harness.devices.device import Device
    from harness.referee.audit.auditor import Auditor
    from harness.referee.referee import Referee

T = TypeVar("T")

PRELOADED = (
    "torch",
    "harness.toolchain.import_cpp_extension",
    "harness.untrusted.contestant.main",
    "harness.untrusted.contestant.load_inline",
)
PRELOADED_HOST = ("harness.untrusted.contestant.hostcuda.shim",)
PRELOADED_CUDA = ("cuda.bindings.driver",)

OWN_OUTPUT = Path("/proc/self/fd/2")
"""Where this process's errors go, whatever that is by then."""

OOM_SCORE = "500"
"""Of -1000 to 1000: how soon the kernel ends a process when memory runs out. Other programs have 0, contestants
1000."""

OpenDevice = Callable[[DeviceKind, int], "Device"]


def main(fd: int, open_device: OpenDevice | None = None) -> None:
    """Serve until the executor closes the connection. `open_device` stands in for `harness.devices.device.open_device`."""
    go_before_others()
    gc.disable()  # collections while torch is imported find nothing, and take a tenth of its time
    sock = socket.socket(fileno=fd)
    # Else a referee would keep its GPU busy for minutes after its conductor was killed, beside the run that resumes.
    # The zygote sees its own connection close then, and ends its children; what a problem started is in this group.
    end_with(sock, lambda: os.killpg(0, signal.SIGKILL))  # it leads a group of its own (see `StartedProcess`)
    channel = Channel(sock, max_frame_bytes=MAX_TASK_BYTES)
    first = channel.receive()
    kind = DeviceKind(first.message["device"])
    progress_marker = ProgressMarker(*first.fds)
    preload = (*PRELOADED, *(PRELOADED_CUDA if kind is DeviceKind.CUDA else PRELOADED_HOST))
    # Before anything that takes time: this process and its zygote import torch side by side.
    with ExitStack() as stack, Zygote(preload=preload, log_path=OWN_OUTPUT) as zygote:
        if kind is DeviceKind.CUDA and open_device is None:
            _beside(_wake_driver)
        told = _beside(lambda: _receive_orders(channel, preload, stack))
        from harness.devices import device as devices  # with torch: seconds, in which the others have begun
        from harness.referee.contestants import health

        try:
            device = (open_device or devices.open_device)(kind, DEVICE_INDEX)
            # Computes on the GPU, which loads libraries, while this thread imports.
            healthy = _beside(lambda: health.check(device))
            from harness.referee.referee import Referee

            healthy.result()
            config, auditor = told.result()
            # The zygote may still be at its imports: making a problem ready does without.
            referee = stack.enter_context(
                Referee(config, zygote, device=device, auditor=auditor, progress_marker=progress_marker)
            )
        except devices.DeviceError as error:
            channel.send({"type": "unavailable", "reason": str(error)})
            return
        gc.freeze()  # looking through all that torch has made takes 50 ms, which may fall into a burst
        gc.enable()
        channel.send({"type": "ready"})
        _serve(channel, referee, zygote)


def go_before_others() -> None:
    """Where memory runs out, the kernel shall end this process and its children, which inherit that, rather than other
    programs of the machine. A contestant still goes first.
    """
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)


def _beside(work: Callable[[], T]) -> Future[T]:
    """Do this on a thread of its own. Nobody waits for its end who does not ask for its result."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="beside", daemon=True).start()
    return done


def _receive_orders(
    channel: Channel, preload: tuple[str, ...], stack: ExitStack
) -> tuple[RefereeConfig, Auditor | None]:
    """What this referee is for, and the auditor that it takes, which begins to start and is closed with `stack`. From
    here on everything that this process says goes to the log that it is told.
    """
    orders = channel.receive().message
    log_path = Path(orders["log_path"])
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    config = RefereeConfig.from_json(orders["config"])
    if config.sanitizer is None:
        return config, None
    from harness.referee.audit.auditor import Auditor  # what it imports comes after the start of torch's import

    auditor = Auditor(
        config.sanitizer,
        preload=preload,
        logs=log_path.parent,
        sandbox=config.sandbox,
        memory_limit_bytes=config.memory_limit_bytes,
    )
    return config, stack.enter_context(auditor)


def _wake_driver() -> None:
    """Make the GPU's primary context, which torch takes over, while torch is being imported: some tenths of a second.

    Where that fails nothing is said: torch meets the same lack, and words it.
    """
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), DEVICE_INDEX) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _serve(channel: Channel, referee: Referee, zygote: Zygote) -> None:
    from harness.devices.device import DeviceError
    from harness.referee.contestants import health

    while True:
        try:
            message = channel.receive().message
        except ChannelClosed:
            return
        if message["type"] == "prepare":
            _prepare(channel, referee, [Task.from_json(each) for each in message["tasks"]])
            continue
        if message["type"] == "due":
            channel.send({"type": "due", "due": referee.due(Task.from_json(message["task"]))})
            continue
        reason, trace = "", ""
        outcome: Outcome | None = None
        referee.progress_marker.begin()
        try:
            task = Task.from_json(message["task"])
            if message["type"] == "prove":
                referee.prove(task)
                health.check(referee.device)
                channel.send({"type": "proved"})
                continue
            if message["type"] == "settle":
                outcome = referee.settle(task)
            else:
                ahead = [Task.from_json(each) for each in message["ahead"]]
                outcome = referee.begin(task, ahead)
                if outcome is None:
                    channel.send({"type": "owed"})
                    continue
        except SandboxUnavailable as error:
            channel.send({"type": "unavailable", "reason": str(error)})
            return
        except Exception as error:
            reason, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
        if outcome is None or outcome.status is not Status.passed:
            try:
                health.check(referee.device)
            except health.ContextLost as error:
                outcome, reason = None, (outcome.reason if outcome is not None else reason) or str(error)
            except DeviceError as error:
                channel.send({"type": "unavailable", "reason": str(error)})
                return
        if outcome is not None and outcome.status is Status.harness_error and not zygote.alive:
            outcome, reason = None, "the zygote of the contestants died"
        if outcome is None and (why := _never_ready(zygote)) is not None:
            channel.send({"type": "unready", "reason": why})
            return
        if outcome is None:
            # A referee that failed may hold a broken device context: say so, and be replaced.
            place = referee.progress_marker.failed
            channel.send({"type": "fault", "reason": reason, "trace": trace, "place": place and place.to_json()})
            return
        channel.send({"type": "judged", "outcome": outcome.to_json()})


def _never_ready(zygote: Zygote) -> str | None:
    """Why the zygote died before it could fork anything; None where it lives, or was ready once."""
    if not zygote.alive and zygote.threads is None:
        try:
            zygote.wait_ready()
        except ZygoteError as error:
            return str(error)
    return None


def _prepare(channel: Channel, referee: Referee, tasks: Sequence[Task]) -> None:
    """Get ready what these tasks will need, step by step, until something else is asked for.

    Nobody is told what goes wrong: with the task it goes wrong again, also where the device broke, and is told then.
    """
    steps = referee.prepare(tasks)
    try:
        while not channel.has_arrived():
            next(steps)
    except StopIteration:
        pass
    except Exception:
        traceback.print_exc()
    finally:
        steps.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The process around one referee: `python -m harness.referee.worker FD`.

Trusted side. It exchanges frames with the executor that started it: first the kind of device, so that imports can
start; then the configuration; then one task after another. It has its own zygote for contestants, and runs no
submission's code. It ends, with everything it started, when its executor ends.
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
"""This process's stderr, also after it was redirected."""

OOM_SCORE = "500"
"""How early the kernel kills this process if memory runs out, from -1000 to 1000. Other programs have 0, contestants
1000.
"""

OpenDevice = Callable[[DeviceKind, int], "Device"]


def main(fd: int, open_device: OpenDevice | None = None) -> None:
    """Serve tasks until the executor closes the connection.

    Args:
        fd: Descriptor of the socket to the executor.
        open_device: Replaces `harness.devices.device.open_device` in tests.
    """
    go_before_others()
    gc.disable()  # collections during torch's import find nothing and take a tenth of its time
    sock = socket.socket(fileno=fd)
    # Else the referee would keep its GPU busy for minutes after its runner was killed, next to the resumed run.
    # The zygote ends its children when its connection closes; processes that a problem started are in this group.
    end_with(sock, lambda: os.killpg(0, signal.SIGKILL))  # this process leads its own group (see `RefereeProcess`)
    channel = Channel(sock, max_frame_bytes=MAX_TASK_BYTES)
    first = channel.receive()
    kind = DeviceKind(first.message["device"])
    progress_marker = ProgressMarker(*first.fds)
    preload = (*PRELOADED, *(PRELOADED_CUDA if kind is DeviceKind.CUDA else PRELOADED_HOST))
    # First, because this process and its zygote import torch in parallel.
    with ExitStack() as stack, Zygote(preload=preload, log_path=OWN_OUTPUT) as zygote:
        if kind is DeviceKind.CUDA and open_device is None:
            _beside(_wake_driver)
        told = _beside(lambda: _receive_orders(channel, preload, stack))
        from harness.devices import device as devices
        from harness.referee.contestants import health  # imports torch: seconds, while the threads work

        try:
            device = (open_device or devices.open_device)(kind, DEVICE_INDEX)
            # Loads the GPU's libraries while this thread imports.
            healthy = _beside(lambda: health.check(device))
            from harness.referee.referee import Referee

            healthy.result()
            config, auditor = told.result()
            # The zygote may still be importing; preparing a problem does not need it.
            referee = stack.enter_context(
                Referee(config, zygote, device=device, auditor=auditor, progress_marker=progress_marker)
            )
        except devices.DeviceError as error:
            channel.send({"type": "unavailable", "reason": str(error)})
            return
        gc.freeze()  # scanning torch's objects takes 50 ms, possibly within a burst
        gc.enable()
        channel.send({"type": "ready"})
        _serve(channel, referee, zygote)


def go_before_others() -> None:
    """Let the kernel kill this process before other programs if memory runs out.

    Children inherit that; a contestant still goes first.
    """
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)


def _beside(work: Callable[[], T]) -> Future[T]:
    """Run `work` in its own daemon thread."""
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
    """Receive the configuration, redirect output to the log, start the auditor.

    The auditor, if the configuration asks for one, is closed with `stack`.
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
    from harness.referee.audit.auditor import Auditor  # imported late, so that torch's import starts first

    auditor = Auditor(
        config.sanitizer,
        preload=preload,
        logs=log_path.parent,
        sandbox=config.sandbox,
        memory_limit_bytes=config.memory_limit_bytes,
    )
    return config, stack.enter_context(auditor)


def _wake_driver() -> None:
    """Create the GPU's primary context while torch is imported: saves some 0.1 s.

    Failures are ignored: torch meets the same problem and reports it.
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
            outcome, reason = None, "the process that starts contestants (zygote) died"
        if outcome is None and (why := _never_ready(zygote)) is not None:
            channel.send({"type": "unready", "reason": why})
            return
        if outcome is None:
            # The device context may be broken: report it and end, so that another referee takes over.
            place = referee.progress_marker.failed
            channel.send({"type": "fault", "reason": reason, "trace": trace, "place": place and place.to_json()})
            return
        channel.send({"type": "judged", "outcome": outcome.to_json()})


def _never_ready(zygote: Zygote) -> str | None:
    """Return why the zygote died before it was ready; None if it runs or was ready."""
    if not zygote.alive and zygote.threads is None:
        try:
            zygote.wait_ready()
        except ZygoteError as error:
            return str(error)
    return None


def _prepare(channel: Channel, referee: Referee, tasks: Sequence[Task]) -> None:
    """Prepare for tasks step by step until another request arrives.

    Errors are only logged: the task meets them again and reports them then.
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

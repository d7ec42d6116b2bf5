"""The process around one referee: `python -m harness.executors.worker FD`.

Trusted side. Speaks `wire` frames with the executor that started it: its configuration first, then one task after
another. It has its own zygote for contestants, and no submission's code ever runs in it. It ends when its executor
does, by whatever means, and with it all that it started.
"""

from __future__ import annotations

import ctypes
import gc
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.audit import Auditor
from harness.interpreter import end_with
from harness.model import DeviceKind, Status
from harness.sandbox import SandboxUnavailable
from harness.tasks import Outcome, RefereeConfig, Task
from harness.wire import Channel, ChannelClosed
from harness.zygote import Zygote, ZygoteError

if TYPE_CHECKING:
    from harness.devices import Device
    from harness.referee import Referee

MAX_TASK_BYTES = 64 * 2**20
"""Largest frame between executor and worker; a task holds the sources of problem and solution."""

PRELOADED = ("torch", "harness.build.quiet", "harness.contestant", "harness.build.inject")
PRELOADED_HOST = ("harness.hostcuda.shim",)
PRELOADED_CUDA = ("cuda.bindings.driver",)

OpenDevice = Callable[[DeviceKind, int], "Device"]


def main(fd: int, open_device: OpenDevice | None = None) -> None:
    """Serve until the executor closes the connection. `open_device` stands in for `harness.devices.open_device`."""
    sock = socket.socket(fileno=fd)
    # Else a referee would keep its GPU busy for minutes after its conductor was killed, beside the run that resumes.
    # The zygote sees its own connection close then, and ends its children.
    end_with(sock)
    channel = Channel(sock, max_frame_bytes=MAX_TASK_BYTES)
    start = channel.receive().message
    config = RefereeConfig.from_json(start["config"])
    extra = PRELOADED_CUDA if config.device is DeviceKind.CUDA else PRELOADED_HOST
    preload, log_path = (*PRELOADED, *extra), Path(start["log_path"])
    with ExitStack() as stack, Zygote(preload=preload, log_path=log_path) as zygote:
        if config.device is DeviceKind.CUDA and open_device is None:
            threading.Thread(target=_wake_driver, args=(config.device_index,), name="wake", daemon=True).start()
        auditor = stack.enter_context(_open_auditor(config, preload, log_path)) if config.sanitizer else None
        # Only now, so that this process and its zygote import torch at the same time (3 to 5 s each).
        from harness import devices, health
        from harness.referee import Referee

        try:
            device = (open_device or devices.open_device)(config.device, config.device_index)
            health.check(device)
            referee = stack.enter_context(Referee(config, zygote, device=device, auditor=auditor))
            zygote.wait_ready()
        except devices.DeviceError as error:
            channel.send({"type": "unavailable", "reason": str(error)})
            return
        except ZygoteError as error:
            channel.send({"type": "fault", "reason": str(error)})
            return
        gc.freeze()  # looking through all that torch has made takes 50 ms, which may fall into a burst
        channel.send({"type": "ready"})
        _serve(channel, referee, zygote)


def _wake_driver(index: int) -> None:
    """Make the GPU's primary context, which torch takes over, while torch is being imported: some tenths of a second.

    Where that fails nothing is said: torch meets the same lack, and words it.
    """
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _open_auditor(config: RefereeConfig, preload: tuple[str, ...], log_path: Path) -> Auditor:
    assert config.sanitizer is not None
    return Auditor(
        config.sanitizer,
        preload=preload,
        logs=log_path.parent,
        sandbox=config.sandbox,
        memory_limit_bytes=config.memory_limit_bytes,
    )


def _serve(channel: Channel, referee: Referee, zygote: Zygote) -> None:
    from harness import health
    from harness.devices import DeviceError

    while True:
        try:
            message = channel.receive().message
        except ChannelClosed:
            return
        if message["type"] == "prepare":
            _prepare(channel, referee, [Task.from_json(each) for each in message["tasks"]])
            continue
        reason, trace = "", ""
        outcome: Outcome | None = None
        try:
            task = Task.from_json(message["task"])
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
            except DeviceError as error:
                channel.send({"type": "unavailable", "reason": str(error)})
                return
        if outcome is not None and outcome.status is Status.harness_error and not zygote.alive:
            outcome, reason = None, "the zygote of the contestants died"
        if outcome is None:
            # A referee that failed may hold a broken device context: say so, and be replaced.
            channel.send({"type": "fault", "reason": reason, "trace": trace})
            return
        channel.send({"type": "judged", "outcome": outcome.to_json()})


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

"""The process around one referee: `python -m harness.executors.worker FD`.

Trusted side. Speaks `wire` frames with the executor that started it: its configuration first, then one task after
another. It has its own zygote for contestants, and no submission's code ever runs in it.
"""

from __future__ import annotations

import importlib
import socket
import sys
import traceback
from pathlib import Path

from harness.model import DeviceKind
from harness.wire import Channel, ChannelClosed
from harness.zygote import Zygote, ZygoteError

MAX_TASK_BYTES = 64 * 2**20
"""Largest frame between executor and worker; a task holds the sources of problem and solution."""

PRELOADED = ("torch", "harness.build.quiet", "harness.contestant", "harness.build.inject")
PRELOADED_HOST = ("harness.hostcuda.shim",)
PRELOADED_CUDA = ("cuda.bindings.driver",)


def main(fd: int) -> None:
    """Serve until the executor closes the connection."""
    channel = Channel(socket.socket(fileno=fd), max_frame_bytes=MAX_TASK_BYTES)
    start = channel.receive().message
    extra = PRELOADED_CUDA if start["config"]["device"] == DeviceKind.CUDA else PRELOADED_HOST
    with Zygote(preload=(*PRELOADED, *extra), log_path=Path(start["log_path"])) as zygote:
        # Only now, so that this process and its zygote import torch at the same time (3 to 5 s each).
        from harness.devices import DeviceError
        from harness.referee import Referee
        from harness.tasks import RefereeConfig, Task

        config = RefereeConfig.from_json(start["config"])
        try:
            referee = Referee(config, zygote)
            # The first draw of inputs would import it (2 to 3 s); here that costs nothing, beside the zygote's imports.
            importlib.import_module("torch._dynamo")
            zygote.wait_ready()
        except (DeviceError, ZygoteError) as error:
            channel.send({"type": "unavailable", "reason": str(error)})
            return
        with referee:
            channel.send({"type": "ready"})
            while True:
                try:
                    message = channel.receive().message
                except ChannelClosed:
                    return
                try:
                    outcome = referee.judge(Task.from_json(message))
                except Exception as error:
                    # A referee that failed may hold a broken device context: say so and start anew.
                    channel.send(
                        {"type": "fault", "reason": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
                    )
                    return
                channel.send({"type": "judged", "outcome": outcome.to_json()})


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Build a trial sandbox and report its isolation, for `harness doctor`.

Trusted code.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from harness.protocol.channel import Channel, WireError, pair
from harness.sandbox import zygote_process
from harness.sandbox.policy import SandboxPolicy, SandboxReport

_TIMEOUT_S = 60.0


def probe(*, gpu: bool = False) -> SandboxReport:
    """Build an empty sandbox and report its isolation. Takes about 0.1 s.

    Args:
        gpu: Whether the sandbox shows the GPU's device nodes.

    Returns:
        The report. If no sandbox can be built, its strength is `none` and `missing["zygote"]` has the reason.
    """
    ours, theirs = pair()
    channel = Channel(ours)
    started: subprocess.Popen[bytes] | None = None
    try:
        started = zygote_process.start(theirs, zygote_process.Start())
        theirs.close()
        report = _converse(channel, SandboxPolicy(gpu=gpu))
    except (WireError, OSError, KeyError) as error:
        report = SandboxReport(strength="none", missing={"zygote": f"could not be started: {error}"})
    finally:
        theirs.close()
        channel.close()
        if started is not None:
            started.wait()
    return report


def nothing(channel: Channel, fds: tuple[int, ...]) -> None:
    """Run nothing: the target of the probe."""


def _converse(channel: Channel, policy: SandboxPolicy) -> SandboxReport:
    _await(channel, "ready")
    outer, inner = pair()
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        request = {"do": "spawn", "id": 1, "target": f"{__name__}:nothing", "policy": policy.to_json()}
        channel.send(request, (inner.fileno(), null))
        report = SandboxReport.from_json(_await(channel, "spawned")["report"])
        _await(channel, "exited")
        return report
    finally:
        os.close(null)
        outer.close()
        inner.close()


def _await(channel: Channel, event: str) -> dict[str, Any]:
    received = channel.receive(_TIMEOUT_S)
    for fd in received.fds:
        os.close(fd)
    message = received.message
    if message["event"] != event:
        raise OSError(str(message.get("reason") or message))
    return message

"""The trusted end of reading a solution's text: asks for it in a sandbox, and takes what comes as a hint.

Imports `zygote`, `wire`, `build.spec` and `build.torchinfo`. What a text that is hostile, or not what it seems, can
bring about is a compilation that nobody asked for. So nothing here is an error: what is not understood is not foreseen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from harness.core.choices import SandboxMode
from harness.core.environment import MachineError
from harness.protocol.channel import WireError
from harness.sandbox import SandboxPolicy, SandboxUnavailable
from harness.sandbox.zygote import Zygote, ZygoteError
from harness.toolchain.spec import MAX_AHEAD_BYTES, ExtensionSpec
from harness.toolchain.torchinfo import find_torch

TARGET = "harness.untrusted.builder.static_scan:main"
_FUNCTION = "load_inline"
_TIMEOUT_S = 10.0
"""It is some hundredths of a second; a text that takes longer is not worth waiting for."""
_MEMORY_BYTES = 2**30
_MAX_BYTES = MAX_AHEAD_BYTES + 2**16
"""Of all that is said: what is beyond would not be built ahead."""


def foresee(source: str, *, zygote: Zygote, sandbox: SandboxMode, limit: int) -> Iterator[ExtensionSpec]:
    """What the text most likely asks to have built, at most `limit` extensions. Nothing of it is executed."""
    if _FUNCTION not in source:
        return  # and no process is needed to see that
    deadline = time.monotonic() + _TIMEOUT_S
    policy = SandboxPolicy(mode=sandbox, max_memory_bytes=_MEMORY_BYTES)
    try:
        parameters = find_torch().inline_parameters
        if not parameters:
            return
        with zygote.spawn(TARGET, policy, Path(os.devnull)) as child:
            request = {"source": source, "parameters": [list(each) for each in parameters]}
            child.channel.expect_at_most(_MAX_BYTES)
            child.channel.send(request, timeout_s=_TIMEOUT_S)
            for _ in range(limit):
                message = child.channel.receive(max(0.0, deadline - time.monotonic())).message
                if message.get("type") != "extension":
                    return
                yield ExtensionSpec.from_json(message.get("spec"))
    except (ZygoteError, SandboxUnavailable, MachineError, WireError, ValueError, OSError):
        return

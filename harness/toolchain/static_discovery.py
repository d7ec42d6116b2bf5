"""Run the static scan of a solution's text in a sandbox.

The extensions that it finds are compiled before the discovery has confirmed them.

Trusted side. The result is a hint: a hostile or misread text can only cause a useless compilation. So no error is
reported; an unreadable answer is no guess. See guides/design/discovery.md.
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
"""Time limit. A scan takes some hundredths of a second."""
_MEMORY_BYTES = 2**30
_MAX_BYTES = MAX_AHEAD_BYTES + 2**16
"""Limit of all answers; a larger extension would not be built ahead."""


def foresee(source: str, *, zygote: Zygote, sandbox: SandboxMode, limit: int) -> Iterator[ExtensionSpec]:
    """Yield the extensions that the text most likely asks for.

    Nothing of the text is executed.
    """
    if _FUNCTION not in source:
        return  # no process needed
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

"""Runs a plan's commands in a sandbox.

Untrusted side: `main` is started by name in a sandboxed process and never imported by a trusted module. The
compilers read hostile sources here; what is sent is a claim. Nothing of torch is needed in this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.protocol.channel import Channel
from harness.toolchain.diagnostics import NOTE


def main(channel: Channel, fds: tuple[int, ...]) -> None:
    """Build once. The request holds `folder`, `commands` and `environ`; the answer is `built` with `exit_code`."""
    request = channel.receive().message
    os.environ.update(request["environ"])
    channel.send({"type": "built", "exit_code": _run(request["commands"], Path(request["folder"]))})


def _run(commands: Sequence[Sequence[str]], folder: Path) -> int:
    """Exit code of the first command that fails, else 0. A command that does not start counts as 127."""
    for command in commands:
        try:
            code = subprocess.run(list(command), cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as error:
            sys.stdout.write(f"{NOTE} {command[0]} can't be started: {error}\n")
            sys.stdout.flush()
            return 127
        if code != 0:
            return code
    return 0

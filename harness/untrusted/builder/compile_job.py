"""Run a plan's commands in a sandbox.

Untrusted side: compilers read hostile sources here, and the answer is a claim. `main` is started by name and never
imported by a trusted module. This process needs no torch.
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
    """Build once.

    The request holds `folder`, `commands` and `environ`; the answer is `built` with `exit_code`.
    """
    request = channel.receive().message
    os.environ.update(request["environ"])
    channel.send({"type": "built", "exit_code": _run(request["commands"], Path(request["folder"]))})


def _run(commands: Sequence[Sequence[str]], folder: Path) -> int:
    """Return the exit code of the first command that fails, else 0.

    A command that does not start counts as 127.
    """
    for command in commands:
        try:
            code = subprocess.run(list(command), cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as error:
            sys.stdout.write(f"{NOTE} can't start {command[0]}: {error}\n")
            sys.stdout.flush()
            return 127
        if code != 0:
            return code
    return 0

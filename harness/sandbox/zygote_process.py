"""Start the process of a zygote with an allow-listed environment and one socket.

Trusted side. This environment is in the memory of every child.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.subprocesses import python, search_path
from harness.sandbox.environment import scrub
from harness.sandbox.wrapped_tool import HOST_PID


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Arguments of a zygote's start; see `Zygote`."""

    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    log_path: Path | None = None
    wrapper: tuple[str, ...] = ()
    enclosed: bool = False


def start(theirs: socket.socket, what: Start) -> subprocess.Popen[bytes]:
    """Start `python -m harness.sandbox.zygote` with `theirs` as its connection.

    The kernel ends the process when the calling thread ends. Raises `OSError`.
    """
    env = what.env
    # OpenBLAS threads would make forking unsafe; children compute with torch's threads.
    environment = scrub(os.environ) | {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"} | dict(env)
    environment |= search_path({**os.environ, **env})
    # The tools of this Python's environment (ninja), even if it is not activated.
    own_tools = os.path.dirname(sys.executable)
    environment["PATH"] = os.pathsep.join([own_tools, environment.get("PATH", os.defpath)])
    environment["HOME"] = os.path.expanduser("~")  # so that the sandbox hides it; children get another home
    place = f"enclosed:{HOST_PID}" if what.enclosed else "own"
    command = python("-m", "harness.sandbox.zygote", str(theirs.fileno()), place, *what.preload)
    command = [*what.wrapper, *command]
    if what.enclosed:
        command = python("-m", "harness.sandbox.pid_namespace", *command)
    with open(what.log_path or os.devnull, "ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

"""Runs a plan's commands in a sandbox and tries whether the module can be loaded.

Untrusted side: `main` is started by name in a sandboxed process and never imported by a trusted module. The
compilers read hostile sources here, and a module's static initialisers run here; what is sent is a claim.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.build.diagnostics import NOTE
from harness.wire import Channel

_FILTER_TIMEOUT_S = 10.0

_LEAN_MAY_LACK = re.compile(r"undefined symbol: (?:\w+ for )?(?:at|c10|torch|pybind11)::")
"""A missing inline function of torch's own may come of lean headers; a missing function of the author's does not."""


def main(channel: Channel, fds: tuple[int, ...]) -> None:
    """Build once.

    The request holds `folder`, `commands`, `second_try`, `product`, `name`, `is_python_module` and `environ`. Frames
    sent: `built` with `exit_code`, and after a success `loaded` with `error`: null, or why the loader refuses the
    module. Where the second try is needed, `again` and another `built` come before that.
    """
    request = channel.receive().message
    folder = Path(request["folder"])
    os.environ.update(request["environ"])
    exit_code = _run(request["commands"], folder)
    channel.send({"type": "built", "exit_code": exit_code})
    if exit_code != 0:
        return
    error = _load(folder, request)
    if error is not None and request["second_try"] and _LEAN_MAY_LACK.search(error):
        _say(f"the module can't be loaded ({error}); building it again with the full headers")
        channel.send({"type": "again"})
        exit_code = _run(request["second_try"], folder)
        channel.send({"type": "built", "exit_code": exit_code})
        if exit_code != 0:
            return
        error = _load(folder, request)
    channel.send({"type": "loaded", "error": error})


def _run(commands: Sequence[Sequence[str]], folder: Path) -> int:
    """Exit code of the first command that fails, else 0. A command that does not start counts as 127."""
    sys.stdout.flush()
    for command in commands:
        try:
            code = subprocess.run(list(command), cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as error:
            _say(f"{command[0]} can't be started: {error}")
            return 127
        if code != 0:
            return code
    return 0


def _load(folder: Path, request: Mapping[str, Any]) -> str | None:
    """Why the dynamic loader refuses the module, in its own words with names made readable."""
    product = folder / request["product"]
    if not product.is_file():
        return None  # whoever takes it sees that
    try:
        library = ctypes.CDLL(os.fspath(product), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        return _readable(str(error).replace(f"{folder}/", ""))
    if request["is_python_module"] and not hasattr(library, f"PyInit_{request['name']}"):
        return f"missing export: PyInit_{request['name']}"
    return None


def _say(text: str) -> None:
    sys.stdout.write(f"{NOTE} {text}\n")
    sys.stdout.flush()


def _readable(message: str) -> str:
    try:
        done = subprocess.run(
            ["c++filt"], input=message, capture_output=True, text=True, timeout=_FILTER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return message
    return done.stdout.strip()

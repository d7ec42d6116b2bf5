"""Check whether a built module can be loaded beside torch.

Untrusted side: the module's static initialisers run here, and the answer is a claim. `main` is started by name in a
sandboxed process with torch and never imported by a trusted module.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from harness.protocol.channel import Channel

_FILTER_TIMEOUT_S = 60.0


def main(channel: Channel, fds: tuple[int, ...]) -> None:
    """Load once.

    The request holds `product` (the module's path), `name` and `is_python_module`. The answer is `loaded` with
    `error`: null, or the loader's message.
    """
    request = channel.receive().message
    error = _load(Path(request["product"]), request["name"] if request["is_python_module"] else None)
    channel.send({"type": "loaded", "error": error})


def _load(product: Path, python_name: str | None) -> str | None:
    """Return the dynamic loader's message with demangled names, or None."""
    if not product.is_file():
        return None  # the trusted side reports it
    try:
        library = ctypes.CDLL(os.fspath(product), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        return _readable(str(error).replace(f"{product.parent}/", ""))
    if python_name is not None and not hasattr(library, f"PyInit_{python_name}"):
        return f"missing export: PyInit_{python_name}"
    return None


def _readable(message: str) -> str:
    try:
        done = subprocess.run(
            ["c++filt"], input=message, capture_output=True, text=True, timeout=_FILTER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return message
    return done.stdout.strip()

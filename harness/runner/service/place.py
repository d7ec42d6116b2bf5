"""Where a server's socket and token are, and the fingerprint of its code.

Trusted side.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
from pathlib import Path

import harness
from harness.core.config import cache_root
from harness.runner.service import ServiceError

MAX_ADDRESS_BYTES = 107
"""The kernel's limit for a socket's path, in bytes."""

TOKEN_BYTES = 32


def default_socket() -> Path:
    """Return the default socket: below the cache folder of this environment."""
    return cache_root().absolute() / "server" / "socket"


def checked(socket: Path) -> Path:
    """Return `socket` as an absolute path. Raises `ServiceError` if it is too long."""
    absolute = socket.expanduser().absolute()
    if len(os.fsencode(absolute)) > MAX_ADDRESS_BYTES:
        raise ServiceError(f"{absolute}: too long for a socket (at most {MAX_ADDRESS_BYTES} bytes); use a shorter path")
    return absolute


def token_file(socket: Path) -> Path:
    """Return the file that holds the token of the server at `socket`."""
    return socket.with_name(socket.name + ".token")


def write_token(socket: Path) -> str:
    """Write a new token to a file that only this user can read. Raises `OSError`."""
    token, path = secrets.token_hex(TOKEN_BYTES), token_file(socket)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


def read_token(socket: Path) -> str:
    """Read the token of the server at `socket`.

    Raises `OSError`, and `ServiceError` if another user could have written it.
    """
    path = token_file(socket)
    with path.open(encoding="ascii", errors="replace") as file:
        held = os.fstat(file.fileno())
        if held.st_uid != os.getuid() or stat.S_IMODE(held.st_mode) & 0o077:
            raise ServiceError(f"{path}: other users can access this token, so it is not trusted; remove the file")
        return file.read(4 * TOKEN_BYTES)


def stamp() -> str:
    """Return a fingerprint of the harness's code and this Python.

    A server that was started before an update has another one.
    """
    root = Path(harness.__file__).parent.resolve()
    state = hashlib.sha256(repr((str(root), sys.prefix, sys.version)).encode())
    for path in sorted(root.rglob("*")):
        if "__pycache__" not in path.parts and (held := path.stat()) and stat.S_ISREG(held.st_mode):
            state.update(repr((path.relative_to(root).as_posix(), held.st_size, held.st_mtime_ns)).encode())
    return state.hexdigest()

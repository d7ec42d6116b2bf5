"""Where a server is found, and what it and a call must have in common.

Outside layer; trusted side.
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
"""What the kernel takes for a socket's path."""

TOKEN_BYTES = 32


def default_socket() -> Path:
    """Where a server is that was given no other place: below the folder of caches, as its environment names it."""
    return cache_root().absolute() / "server" / "socket"


def checked(socket: Path) -> Path:
    """`socket`, absolute. Raises `ServiceError` where no socket can have that path."""
    absolute = socket.expanduser().absolute()
    if len(os.fsencode(absolute)) > MAX_ADDRESS_BYTES:
        raise ServiceError(f"{absolute}: a socket's path has at most {MAX_ADDRESS_BYTES} bytes; name a shorter one")
    return absolute


def token_file(socket: Path) -> Path:
    """The file that holds the token of the server at `socket`."""
    return socket.with_name(socket.name + ".token")


def write_token(socket: Path) -> str:
    """A new token, in a file that only this user can read. Raises `OSError`."""
    token, path = secrets.token_hex(TOKEN_BYTES), token_file(socket)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


def read_token(socket: Path) -> str:
    """The token of the server at `socket`. Raises `OSError`, and `ServiceError` where somebody else could have put it
    there.
    """
    path = token_file(socket)
    with path.open(encoding="ascii", errors="replace") as file:
        held = os.fstat(file.fileno())
        if held.st_uid != os.getuid() or stat.S_IMODE(held.st_mode) & 0o077:
            raise ServiceError(f"{path}: is not this user's alone, and so no server's of this user; remove it")
        return file.read(4 * TOKEN_BYTES)


def stamp() -> str:
    """Tells this code and this Python from others: what a server that was started before an update differs in."""
    root = Path(harness.__file__).parent.resolve()
    state = hashlib.sha256(repr((str(root), sys.prefix, sys.version)).encode())
    for path in sorted(root.rglob("*")):
        if "__pycache__" not in path.parts and (held := path.stat()) and stat.S_ISREG(held.st_mode):
            state.update(repr((path.relative_to(root).as_posix(), held.st_size, held.st_mtime_ns)).encode())
    return state.hexdigest()

"""Runs a command in a network of its own that holds a working loopback and nothing else.

Imports the system calls. Trusted code: `python -m harness.sandbox.netless COMMAND...`. For tools that talk to the
processes they watch over TCP (compute-sanitizer, ncu): tool, zygote and children share this network, and none of them
reaches the machine's.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

from harness.sandbox import system

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_CAP_SYS_ADMIN = 21


def enter() -> None:
    """Move this process, of one thread, into a new network namespace and switch its loopback on. Raises `OSError`."""
    if not system.has_capability(_CAP_SYS_ADMIN):
        system.enter_user_namespace(os.geteuid(), os.getegid())
    system.unshare(system.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def main(command: list[str]) -> None:
    enter()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

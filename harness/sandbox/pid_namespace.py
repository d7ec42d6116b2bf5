"""Run a command in its own pid namespace and network with a loopback only.

Trusted code: `python -m harness.sandbox.pid_namespace COMMAND...`. Tools such as compute-sanitizer find processes by id
and talk to them over sockets. So tool, zygote and children share both namespaces, and none of them can reach the
machine's. `HOST_PID` in COMMAND is replaced by the id of the calling process outside.

The calling process waits; its end, or its parent's, ends all processes inside.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
from typing import NoReturn

from harness.sandbox import syscalls
from harness.sandbox.wrapped_tool import HOST_PID

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_CAP_SYS_ADMIN = 21


def enter() -> None:
    """Enter a new network with an active loopback and a new mount namespace.

    Future children get a new pid namespace. The process must have one thread. Raises `OSError`.
    """
    if not syscalls.has_capability(_CAP_SYS_ADMIN):
        syscalls.enter_user_namespace(os.geteuid(), os.getegid())
    syscalls.unshare(syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def main(command: list[str]) -> NoReturn:
    command = [word.replace(HOST_PID, str(os.getpid())) for word in command]
    enter()
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    own = os.fork()
    if own == 0:
        os.umask(0)  # the tool makes a pipe for each process, and children have another user
        os.execvp(command[0], command)
    while True:  # the first process adopts orphans
        ended, status = os.wait()
        if ended == own:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])

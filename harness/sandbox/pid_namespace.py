"""Runs a command among processes and in a network of its own: a working loopback, no other process, nothing else.

Imports the system calls and `tool`. Trusted code: `python -m harness.sandbox.pid_namespace COMMAND...`. For tools that
watch processes from outside (compute-sanitizer): they find them by process id and talk to them over sockets, so tool,
zygote and children must share both namespaces, and none of them may see or reach the machine's. Where the words of
COMMAND hold `HOST_PID`, the id of the calling process outside takes its place.

The calling process waits; its end, or its parent's, is the end of everything inside.
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
    """Move this process, of one thread, into a new network with its loopback switched on, and its future children into
    new process ids; mounts are its own from here on. Raises `OSError`.
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
        os.umask(0)  # the tool makes a pipe for each process it learns of, and children run as another user
        os.execvp(command[0], command)
    while True:  # the first process inherits what loses its parent
        ended, status = os.wait()
        if ended == own:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])

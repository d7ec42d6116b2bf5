"""Landlock: a second restriction of files, TCP and signals behind the mounts.

It also holds if a mount was missed. Runs in the process to confine; it cannot be removed. Rights and structures follow
the kernel's uapi header `linux/landlock.h`, up to ABI 6.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from harness.sandbox import syscalls

_SYS_CREATE_RULESET = 444
_SYS_ADD_RULE = 445
_SYS_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
_NET_BIND_TCP = 1 << 0
_NET_CONNECT_TCP = 1 << 1
_SCOPE_ABSTRACT_SOCKETS = 1 << 0
_SCOPE_SIGNALS = 1 << 1

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def abi() -> int:
    """Return the kernel's Landlock version; raise `OSError` if there is none."""
    return syscalls.syscall(_SYS_CREATE_RULESET, "landlock", None, 0, _CREATE_RULESET_VERSION)


def restrict(
    *,
    readable: Iterable[str],
    writable: Iterable[str],
    devices: Iterable[str],
    listed: Iterable[str],
    network: bool = False,
) -> int:
    """Restrict this process to the given files.

    All other files, all TCP, and signals and abstract sockets to the outside are refused. Missing paths are ignored.
    `no_new_privs` must be set.

    Args:
        readable: Paths to read and execute below.
        writable: Paths with all rights except making device nodes.
        devices: Device nodes to read, write and control.
        listed: Folders whose entries may be listed.
        network: Allow TCP and abstract sockets.

    Returns:
        The Landlock ABI in force.

    Raises:
        OSError: The kernel has no Landlock or refuses the rules.
    """
    version = abi()
    every = (1 << 13) - 1
    every |= _REFER if version >= 2 else 0
    every |= _TRUNCATE if version >= 3 else 0
    every |= _IOCTL_DEV if version >= 5 else 0
    attributes = struct.pack("=Q", every)
    if version >= 4:
        attributes += struct.pack("=Q", 0 if network else _NET_BIND_TCP | _NET_CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPE_SIGNALS | (0 if network else _SCOPE_ABSTRACT_SOCKETS))
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = syscalls.syscall(_SYS_CREATE_RULESET, "landlock_create_ruleset", buffer, len(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ & every)
        for path in writable:
            _allow(ruleset, path, every & ~(_MAKE_CHAR | _MAKE_BLOCK))
        for path in listed:
            _allow(ruleset, path, _READ_DIR)
        for path in devices:
            _allow(ruleset, path, every & (_READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL_DEV | _TRUNCATE))
        syscalls.syscall(_SYS_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _ON_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        syscalls.syscall(_SYS_ADD_RULE, f"landlock_add_rule {path}", ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)

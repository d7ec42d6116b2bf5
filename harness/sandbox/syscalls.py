"""Linux system calls that Python lacks, called through libc by ctypes.

Trusted code. Every function raises `OSError` with the call's name and errno; none keeps state. Numbers and flags come
from the kernel's uapi headers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from contextlib import suppress

CLONE_FILES = 0x400
CLONE_THREAD = 0x10000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# All architectures share the numbers above 424; older ones are listed for the two supported architectures.
_X86 = platform.machine() == "x86_64"
_SYS_PIVOT_ROOT = 155 if _X86 else 41
_SYS_CAPSET = 126 if _X86 else 91
_SYS_CLOSE_RANGE = 436
_SYS_MOUNT_SETATTR = 442


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _path(value: str | None) -> bytes | None:
    return None if value is None else os.fsencode(value)


def syscall(number: int, what: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make system call `number`; integers pass as 64-bit words, bytes as pointers."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(int(_libc.syscall(ctypes.c_long(number), *words)), what)


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def enter_user_namespace(user: int, group: int) -> None:
    """Enter a new user namespace in which only the ids `user` and `group` exist.

    The caller must have one thread and gets every capability in it. After an `OSError` it may be inside without mapped
    ids.
    """
    outer_user, outer_group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    prctl(PR_SET_DUMPABLE, 1)  # else root owns the files
    maps = {"setgroups": "deny", "uid_map": f"{user} {outer_user} 1", "gid_map": f"{group} {outer_group} 1"}
    for name, text in maps.items():
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    result = _libc.mount(
        _path(source), _path(target), _path(kind), ctypes.c_ulong(flags), None if data is None else data.encode()
    )
    _check(result, f"mount {target}")


def unmount(target: str, flags: int = 0) -> None:
    _check(_libc.umount2(_path(target), ctypes.c_int(flags)), f"umount {target}")


def pivot_root(new: str, put_old: str) -> None:
    syscall(_SYS_PIVOT_ROOT, "pivot_root", _path(new), _path(put_old))


def mount_setattr(target: str, attributes: int) -> None:
    """Set `attributes` on `target` and every mount below it (Linux 5.12)."""
    buffer = ctypes.create_string_buffer(struct.pack("=QQQQ", attributes, 0, 0, 0), 32)
    syscall(_SYS_MOUNT_SETATTR, f"mount_setattr {target}", _AT_FDCWD, _path(target), _AT_RECURSIVE, buffer, 32)


def prctl(option: int, argument: int = 0, third: int = 0) -> int:
    words = (ctypes.c_ulong(argument), ctypes.c_ulong(third), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return _check(int(_libc.prctl(ctypes.c_int(option), *words)), f"prctl {option}")


def set_host_name(name: str) -> None:
    data = name.encode()
    _check(_libc.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")


def drop_bounding_set() -> None:
    """Prevent gaining any capability by exec, if permitted (CAP_SETPCAP)."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # beyond the last capability, or not permitted
            break


def drop_capabilities() -> None:
    """Drop every capability for ever, from all sets."""
    drop_bounding_set()
    with suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(bytes(24), 24)
    syscall(_SYS_CAPSET, "capset", header, data)


def has_capability(number: int) -> bool:
    """Return whether this process's effective set has capability `number`."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> number & 1)
    return False


def close_descriptors(keep: Iterable[int]) -> None:
    """Close every descriptor except 0, 1, 2 and `keep`."""
    first = 3
    for fd in [*sorted({fd for fd in keep if fd >= 3}), None]:
        last = 2**31 - 1 if fd is None else fd - 1
        if first <= last:
            try:
                syscall(_SYS_CLOSE_RANGE, "close_range", first, last, 0)
            except OSError:  # before Linux 5.9
                os.closerange(first, min(last + 1, os.sysconf("SC_OPEN_MAX")))
        first = last + 2


def flush_stdio() -> None:
    """Flush the stdio buffers of C code."""
    _libc.fflush(None)
